//! The quality of a call, by the E-model (ITU-T G.107) as Cole and Rosenbluth simplified it
//! ("Voice over IP performance monitoring", ACM CCR 31(2), 2001): R = 94.2 - Id - Ie,eff, and the
//! mean opinion score that goes with R.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// R of a call without delay, loss and codec (Cole and Rosenbluth, equation 3).
const BEST_R: f64 = 94.2;
/// The equipment impairment of Opus at 96 kbit/s: 55 - 4.6 ln(96000), as in rtcscore. ITU-T G.113
/// lists none.
const OPUS_IE: f64 = 2.23;
/// The packet-loss robustness of Opus without forward error correction, as in rtcscore.
const OPUS_BPL: f64 = 10.0;
/// The delay of Opus with 20 ms frames: the frame and 6.5 ms of look-ahead (RFC 6716, section 2).
const CODEC_DELAY_MS: f64 = 26.5;

/// The estimated quality with the best constant delay of the player. A longer delay costs more than
/// the packets that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Mean opinion score, 1 (bad) to 4.5.
    pub mos: f64,
    /// The transmission rating R of the E-model, 0 to 94.2.
    pub r: f64,
    /// The player's delay behind the quickest packet, in milliseconds.
    pub buffer_ms: f64,
    /// The packets that arrive too late for it or never, in percent.
    pub lost_percent: f64,
}

/// The best quality of a player with a constant delay. `lateness_us` holds the lateness of each
/// packet against the quickest of its time, in microseconds; `lost` packets came not at all or too
/// late. `None` if there was no packet.
pub(crate) fn best(lateness_us: &Histogram<u64>, lost: u64, rtt: Duration) -> Option<Quality> {
    if lateness_us.is_empty() {
        return None;
    }
    let one_way_ms = rtt.as_secs_f64() * 500.0;
    let total = (lateness_us.len() + lost) as f64;
    let mut best: Option<Quality> = None;
    let mut in_time = 0;
    for step in lateness_us.iter_recorded() {
        in_time += step.count_since_last_iteration();
        let lost_percent = 100.0 * (1.0 - in_time as f64 / total).max(0.0);
        let buffer_ms = step.value_iterated_to() as f64 / 1000.0;
        let r = rating(one_way_ms + CODEC_DELAY_MS + buffer_ms, lost_percent);
        if best.is_none_or(|best| r > best.r) {
            best = Some(Quality { mos: opinion(r), r, buffer_ms, lost_percent });
        }
    }
    best
}

/// R for a delay from mouth to ear in milliseconds, and random losses in percent.
fn rating(delay_ms: f64, lost_percent: f64) -> f64 {
    // Cole and Rosenbluth, equation 4, in place of the curves of G.107.
    let delay = 0.024 * delay_ms + 0.11 * (delay_ms - 177.3).max(0.0);
    // G.107 (2015), equation 7-29, for random losses: BurstR is 1.
    let equipment = OPUS_IE + (95.0 - OPUS_IE) * lost_percent / (lost_percent + OPUS_BPL);
    (BEST_R - delay - equipment).max(0.0)
}

/// G.107, annex B.
fn opinion(r: f64) -> f64 {
    (1.0 + 0.035 * r + r * (r - 60.0) * (100.0 - r) * 7e-6).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lateness(us: &[(u64, u64)]) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(1, 60_000_000, 3).unwrap();
        for (value, count) in us {
            histogram.record_n(*value, *count).unwrap();
        }
        histogram
    }

    #[test]
    fn published_ratings_are_reproduced() {
        // G.107, table B.1: R of 90, 80 and 50 are 4.34, 4.03 and 2.58.
        for (r, mos) in [(90.0, 4.34), (80.0, 4.03), (50.0, 2.58), (0.0, 1.0)] {
            assert!((opinion(r) - mos).abs() < 0.01, "{r}: {}", opinion(r));
        }
        // A loss equal to the robustness halves the rest of R.
        assert!((rating(0.0, 0.0) - rating(0.0, 10.0) - (95.0 - OPUS_IE) / 2.0).abs() < 1e-9);
        assert!((rating(177.3, 0.0) - rating(277.3, 0.0) - 13.4).abs() < 1e-9);
        assert!((OPUS_IE - (55.0 - 4.6 * 96_000_f64.ln())).abs() < 0.01);
    }

    #[test]
    fn the_buffer_trades_delay_against_loss() {
        let rtt = Duration::from_millis(52);
        // The best buffer waits for 4 % of packets that arrive 52 ms late. It does not wait for one
        // in 10,000 that arrives 2 s late.
        let quality = best(&lateness(&[(0, 9600), (52_000, 399), (2_000_000, 1)]), 0, rtt).unwrap();
        assert!(
            (quality.buffer_ms - 52.0).abs() < 0.1 && quality.lost_percent < 0.02,
            "{quality:?}"
        );
        let with_help = best(&lateness(&[(0, 9600), (2000, 400)]), 0, rtt).unwrap();
        assert!(with_help.mos > quality.mos && with_help.buffer_ms < 2.1, "{with_help:?}");
        let lossy = best(&lateness(&[(0, 9600)]), 400, rtt).unwrap();
        assert!((lossy.lost_percent - 4.0).abs() < 1e-9 && lossy.mos < 4.0, "{lossy:?}");
        assert_eq!(best(&lateness(&[]), 10, rtt), None);
    }
}
