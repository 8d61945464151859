//! Published figures of others, for curves behind ours. `reference/README.md` names the sources.

const AUDIO: &str = include_str!("../../reference/nsdi24-audio-dejitter.csv");
const UPLOAD_BY_SIZE: &str = include_str!("../../reference/nsdi24-upload-by-size.csv");
const UPLOAD_BY_LOSS: &str = include_str!("../../reference/nsdi24-upload-by-loss.csv");
const ACK_REDUCTION: &str = include_str!("../../reference/nsdi24-ack-reduction.csv");
const DOWNLOAD_BY_LOSS: &str = include_str!("../../reference/packrat26-download-by-loss.csv");
const DOWNLOAD_BY_BURST: &str =
    include_str!("../../reference/packrat26-download-by-burst-length.csv");

/// De-jitter delay in milliseconds by percentile. Series: `base`, `sidekick_2p_t8`,
/// `sidekick_4p_t16`, `sidekick_8p_t32`.
pub fn audio(series: &str) -> Vec<(f64, f64)> {
    read(AUDIO, &[("series", series)], "percentile", "dejitter_ms")
}

/// Goodput in Mbit/s by size in KiB, at a near loss of `0` or `1` percent. Series: `quic`, `tcp`,
/// `pep` and `sidekick_30ms_10`, `sidekick_60ms_20`, `sidekick_120ms_40`.
pub fn upload_by_size(series: &str, near_loss: &str) -> Vec<(f64, f64)> {
    let rows = [("series", series), ("near_loss_percent", near_loss)];
    read(UPLOAD_BY_SIZE, &rows, "size_kib", "goodput_mbit_s_median")
}

/// Goodput in Mbit/s of 10 MiB by near loss in percent. Series: `quic`, `tcp`, `pep`,
/// `sidekick_30ms_t10`.
pub fn upload_by_loss(series: &str) -> Vec<(f64, f64)> {
    read(UPLOAD_BY_LOSS, &[("series", series)], "near_loss_percent", "goodput_mbit_s_median")
}

/// `goodput_mbit_s_median` or `receiver_tx_packets` by the receiver's ack delay in milliseconds.
/// Series: `quic`, `sidekick_15ms_50`, `sidekick_30ms_100`, `sidekick_60ms_200`.
pub fn ack_reduction(series: &str, column: &str) -> Vec<(f64, f64)> {
    read(ACK_REDUCTION, &[("series", series)], "min_ack_delay_ms", column)
}

/// Goodput in Mbit/s of a download by near loss in percent. Networks: `wifi`, `cellular`,
/// `satellite`, `satellite_long`. Controllers of the server: `cubic`, `bbr3`. Series: `packrat`,
/// `end_to_end`, `split`, and with CUBIC `tunnel_unordered` and `tunnel_ordered_32`.
pub fn download_by_loss(network: &str, controller: &str, series: &str) -> Vec<(f64, f64)> {
    let rows = [("network", network), ("server_cc", controller), ("series", series)];
    read(DOWNLOAD_BY_LOSS, &rows, "near_loss_percent", "goodput_mbit_s_median")
}

/// Goodput in Mbit/s of a download at 10 % near loss by the mean length of the bad state in
/// packets. Networks: `wifi`, `cellular`. The server has CUBIC. Series: `packrat`, `end_to_end`,
/// `split`.
pub fn download_by_burst(network: &str, controller: &str, series: &str) -> Vec<(f64, f64)> {
    let rows = [("network", network), ("server_cc", controller), ("series", series)];
    read(DOWNLOAD_BY_BURST, &rows, "mean_bad_state_packets", "goodput_mbit_s_median")
}

/// The columns `x` and `y` of the rows that match `wanted` in other columns. The files are part of
/// this repository, and a test reads them.
fn read(file: &str, wanted: &[(&str, &str)], x: &str, y: &str) -> Vec<(f64, f64)> {
    let mut reader = csv::Reader::from_reader(file.as_bytes());
    let Ok(header) = reader.headers().cloned() else { return Vec::new() };
    let place = |name: &str| header.iter().position(|column| column == name);
    let rows = reader.records().filter_map(Result::ok);
    rows.filter(|row| {
        wanted.iter().all(|(name, value)| place(name).and_then(|at| row.get(at)) == Some(value))
    })
    .filter_map(|row| {
        let number = |name| row.get(place(name)?)?.parse::<f64>().ok();
        Some((number(x)?, number(y)?))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_is_there_whole() {
        for (series, points) in [("base", 21), ("sidekick_2p_t8", 21), ("sidekick_4p_t16", 21)] {
            assert_eq!(audio(series).len(), points, "{series}");
        }
        assert_eq!(audio("base")[17], (99.0, 52.481));
        for (series, loss, points) in
            [("quic", "0", 26), ("quic", "1", 26), ("sidekick_120ms_40", "1", 26), ("pep", "1", 3)]
        {
            assert_eq!(upload_by_size(series, loss).len(), points, "{series} {loss}");
        }
        for (series, points) in [("quic", 9), ("tcp", 12), ("pep", 17), ("sidekick_30ms_t10", 17)] {
            assert_eq!(upload_by_loss(series).len(), points, "{series}");
        }
        assert!(upload_by_loss("quic").contains(&(2.0, 1.687)));
        for column in ["goodput_mbit_s_median", "receiver_tx_packets"] {
            assert_eq!(ack_reduction("quic", column).len(), 27);
            assert_eq!(ack_reduction("sidekick_15ms_50", column).len(), 27);
        }
        assert_eq!(upload_by_loss("nobody"), []);
        for (network, controller, series, points) in [
            ("wifi", "cubic", "packrat", 17),
            ("wifi", "bbr3", "end_to_end", 10),
            ("cellular", "cubic", "tunnel_ordered_32", 17),
            ("satellite", "cubic", "split", 10),
            ("satellite_long", "bbr3", "packrat", 10),
        ] {
            let curve = download_by_loss(network, controller, series);
            assert_eq!(curve.len(), points, "{network} {controller} {series}");
        }
        assert!(download_by_loss("wifi", "cubic", "packrat").contains(&(10.0, 17.174)));
        for network in ["wifi", "cellular"] {
            for series in ["packrat", "end_to_end", "split"] {
                let points = download_by_burst(network, "cubic", series).len();
                assert_eq!(points, 12, "{network} {series}");
            }
        }
        assert!(download_by_burst("wifi", "cubic", "packrat").contains(&(5.092, 8.692)));
    }
}
