//! Commands of `tc` for a link.

use super::TcError;
use crate::link::{Discipline, JitterShape, LinkConfig, LossModel, RedParameters};
use crate::units::{BitRate, Percent};

/// The queueing disciplines that the commands may name.
pub(super) const DISCIPLINES: [&str; 4] = ["netem", "tbf", "red", "codel"];

/// Packets that `netem` may hold during their delay. This limit must never drop a packet, because
/// the scenario's queue is another one.
const DELAY_LINE_PACKETS: u32 = 100_000;

/// The least burst of `tbf`: a large frame and a little more. At high rates it is a millisecond's
/// worth, because a smaller burst costs throughput when the kernel's timer is late.
const LEAST_BURST: u64 = 3_028;

/// A full Ethernet frame. CoDel's limit is in packets, and the lab assumes this size for each.
const FULL_FRAME: u64 = 1514;

/// The command lines of `tc` that make `interface` send like one direction of a link.
///
/// The limit of `codel` is in packets: as many full frames as fit the limit in bytes.
///
/// [`TcError::Beyond`] names a setting that `tc` lacks. The interface has the name of its section.
pub(super) fn commands(interface: &str, link: &LinkConfig) -> Result<Vec<String>, TcError> {
    check(interface, link)?;
    // The disciplines from the interface inwards, each below the previous one.
    let mut disciplines = Vec::new();
    let options = netem(link);
    if !options.is_empty() {
        disciplines.push(format!("netem limit {DELAY_LINE_PACKETS} {options}"));
    }
    if let Some(rate) = link.rate {
        let (bits, burst, limit) = (rate.bits_per_second(), burst(rate), link.queue_bytes);
        let overhead = match link.overhead_bytes {
            0 => String::new(),
            bytes => format!(" overhead {bytes}"),
        };
        disciplines.push(format!("tbf rate {bits}bit burst {burst} limit {limit}{overhead}"));
        disciplines.extend(queue(link, rate));
    }
    let places = ["root handle 1:", "parent 1:1 handle 2:", "parent 2:1 handle 3:"];
    let command =
        |(place, discipline)| format!("tc qdisc add dev {interface} {place} {discipline}");
    Ok(places.into_iter().zip(disciplines).map(command).collect())
}

/// The line of `tc -batch` that changes the loss of `interface`: to that of the loss model, or to
/// another chance of each packet.
pub(super) fn change(interface: &str, link: &LinkConfig, loss: Option<Percent>) -> String {
    let lossy =
        loss.map(|loss| LinkConfig { loss, loss_model: LossModel::Independent, ..link.clone() });
    let options = netem(lossy.as_ref().unwrap_or(link));
    format!(
        "qdisc change dev {interface} root handle 1: netem limit {DELAY_LINE_PACKETS} {options}"
    )
}

fn check(interface: &str, link: &LinkConfig) -> Result<(), TcError> {
    let codel = matches!(link.queue, Discipline::CoDel(_));
    let beyond = [
        (link.trace.is_some(), "trace", "set a rate_mbit"),
        (
            link.fading.is_some_and(|fading| fading.rate.get() < 100.0),
            "bad_rate_percent",
            "set it to 100",
        ),
        (link.replay.is_some(), "replay", "leave it out"),
        (link.retries.is_some(), "retries", "leave them out"),
        (link.handovers.is_some(), "handover_every_ms", "leave the handovers out"),
        (link.mtu_bytes.is_some(), "mtu_bytes", "set it to unlimited"),
        (link.policer.is_some(), "policer_mbit", "leave the policer out"),
        (
            link.queue_packets.is_some() && !codel,
            "queue_packets beside queue_bytes",
            "set it to unlimited",
        ),
    ];
    match beyond.into_iter().find(|&(is_set, ..)| is_set) {
        None => Ok(()),
        Some((_, setting, instead)) => Err(TcError::Beyond(format!(
            "tc does not support {interface}.{setting}; {instead}, or use --backend user or \
             --backend sim"
        ))),
    }
}

/// The options of `netem`, for features that only it supports. Empty without such features.
fn netem(link: &LinkConfig) -> String {
    let mut options = Vec::new();
    let jitter = link.jitter.spread.as_nanos().div_ceil(1000);
    if !link.delay.is_zero() || jitter > 0 || link.loss.get() > 0.0 || link.is_timed() {
        options.push(format!("delay {}us", link.delay.as_nanos().div_ceil(1000)));
    }
    if jitter > 0 {
        let shape = match link.jitter.shape {
            JitterShape::Uniform => "",
            JitterShape::Normal => " distribution normal",
        };
        // Under jitter, `netem` lets packets overtake each other, unless it has a rate. The highest
        // rate suffices.
        let order = if link.jitter.reorders { "" } else { " rate 100gbit" };
        options.push(format!("{jitter}us{shape}{order}"));
    }
    let loss = link.loss.get();
    match link.loss_model {
        LossModel::GilbertElliott { to_bad, to_good, bad_loss } => {
            let [to_bad, to_good, bad_loss] =
                [to_bad, to_good, bad_loss].map(|chance| percent(chance.get()));
            options.push(format!("loss gemodel {to_bad} {to_good} {bad_loss} {}", percent(loss)));
        }
        // The same chain: a packet that does not share the previous fate draws its own.
        LossModel::Correlated(shared) if loss > 0.0 => {
            let own = 1.0 - shared.get() / 100.0;
            let (to_bad, to_good) = (percent(own * loss), percent(own * (100.0 - loss)));
            options.push(format!("loss gemodel {to_bad} {to_good} 100% 0%"));
        }
        LossModel::Independent if loss > 0.0 => {
            options.push(format!("loss random {}", percent(loss)));
        }
        LossModel::Independent | LossModel::Correlated(_) => {}
    }
    for (name, chance) in
        [("corrupt", link.corrupt), ("duplicate", link.duplicate), ("reorder", link.reorder)]
    {
        if chance.get() > 0.0 {
            options.push(format!("{name} {}", percent(chance.get())));
        }
    }
    options.join(" ")
}

/// The discipline that replaces `tbf`'s own queue.
fn queue(link: &LinkConfig, rate: BitRate) -> Option<String> {
    let ecn = if link.ecn { " ecn" } else { "" };
    match link.queue {
        Discipline::DropTail => None,
        Discipline::Red => {
            let RedParameters { min_bytes, max_bytes, burst, average_packet, .. } =
                RedParameters::new(link.queue_bytes);
            let (limit, bits) = (link.queue_bytes, rate.bits_per_second());
            Some(format!(
                "red limit {limit} min {min_bytes} max {max_bytes} avpkt {average_packet} burst {burst} adaptive \
                 bandwidth {bits}bit harddrop{ecn}"
            ))
        }
        Discipline::CoDel(codel) => {
            let room = link.queue_bytes.div_ceil(FULL_FRAME);
            let limit = link.queue_packets.map_or(room, |packets| packets.min(room));
            let [target, interval] = [codel.target, codel.interval].map(|time| time.as_micros());
            let ecn = if link.ecn { "ecn" } else { "noecn" };
            Some(format!("codel limit {limit} target {target}us interval {interval}us {ecn}"))
        }
    }
}

/// A share with at most as many digits as `tc` keeps.
fn percent(value: f64) -> String {
    format!("{}%", (value * 1e6).round() / 1e6)
}

fn burst(rate: BitRate) -> u64 {
    LEAST_BURST.max(rate.bits_per_second() / 8 / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Direction, Scenario};

    fn lines(interface: &str, link: &LinkConfig) -> Vec<String> {
        commands(interface, link).unwrap()
    }

    #[test]
    fn the_papers_upload_in_tc_words() {
        let scenario = Scenario::load("upload-paper").unwrap();
        assert_eq!(
            lines("near", &scenario.near.link(Direction::ToReceiver)),
            [
                "tc qdisc add dev near root handle 1: netem limit 100000 delay 1000us loss random 1%",
                "tc qdisc add dev near parent 1:1 handle 2: tbf rate 100000000bit burst 12500 limit 65000",
            ]
        );
        assert_eq!(
            lines("far", &scenario.far.link(Direction::ToSender)),
            [
                "tc qdisc add dev far root handle 1: netem limit 100000 delay 25000us",
                "tc qdisc add dev far parent 1:1 handle 2: tbf rate 10000000bit burst 3028 limit 65000",
            ]
        );
    }

    #[test]
    fn only_necessary_disciplines_are_requested() {
        let mut scenario = Scenario::with(
            "upload-paper",
            &["near.delay_ms=0", "near.loss_percent=0", "far.rate_mbit=unlimited"],
        )
        .unwrap();
        assert_eq!(
            lines("near", &scenario.near.link(Direction::ToReceiver)),
            ["tc qdisc add dev near root handle 1: tbf rate 100000000bit burst 12500 limit 65000"]
        );
        assert_eq!(
            lines("far", &scenario.far.link(Direction::ToReceiver)),
            ["tc qdisc add dev far root handle 1: netem limit 100000 delay 25000us"]
        );
        scenario.apply(&["near.rate_mbit=unlimited"]).unwrap();
        assert!(lines("near", &scenario.near.link(Direction::ToReceiver)).is_empty());
    }

    fn near(settings: &[&str]) -> LinkConfig {
        let mut scenario = Scenario::with("upload-paper", &["near.loss_percent=0"]).unwrap();
        scenario.apply(settings).unwrap();
        scenario.near.link(Direction::ToReceiver)
    }

    #[test]
    fn each_feature_has_its_words() {
        for (settings, expected) in [
            (
                &["near.jitter_ms=0.5", "near.reorder_percent=3"][..],
                "netem limit 100000 delay 1000us 500us rate 100gbit reorder 3%",
            ),
            (
                &["near.jitter_ms=2", "near.jitter_reorders=on"],
                "netem limit 100000 delay 1000us 2000us",
            ),
            (
                &["near.jitter_ms=2", "near.jitter_shape=normal"],
                "netem limit 100000 delay 1000us 2000us distribution normal rate 100gbit",
            ),
            (
                &["near.loss_percent=0.1", "near.bad_enter_percent=1", "near.bad_leave_percent=20"],
                "netem limit 100000 delay 1000us loss gemodel 1% 20% 100% 0.1%",
            ),
            (
                // The loss after a loss: 0.3 + 0.7 x 0.02.
                &["near.loss_percent=2", "near.loss_correlation_percent=30"],
                "netem limit 100000 delay 1000us loss gemodel 1.4% 68.6% 100% 0%",
            ),
            (
                &["near.corrupt_percent=1", "near.duplicate_percent=2"],
                "netem limit 100000 delay 1000us corrupt 1% duplicate 2%",
            ),
        ] {
            assert_eq!(
                lines("near", &near(settings))[0],
                format!("tc qdisc add dev near root handle 1: {expected}")
            );
        }
    }

    #[test]
    fn time_changes_the_loss_and_nothing_else() {
        let link = near(&["near.delay_ms=0", "near.outages_ms=5+5", "near.reorder_percent=0"]);
        let netem = "dev near root handle 1: netem limit 100000 delay 0us";
        assert_eq!(lines("near", &link)[0], format!("tc qdisc add {netem}"));
        assert_eq!(change("near", &link, None), format!("qdisc change {netem}"));
        let bursts = ["near.delay_ms=0", "near.bad_enter_percent=1", "near.bad_leave_percent=20"];
        let link = near(&[&bursts[..], &["near.outages_ms=5+5"]].concat());
        assert_eq!(
            [None, Percent::new(100.0)].map(|loss| change("near", &link, loss)),
            ["loss gemodel 1% 20% 100% 0%", "loss random 100%"]
                .map(|loss| format!("qdisc change {netem} {loss}"))
        );
    }

    #[test]
    fn queues_stand_below_the_rate() {
        let red = ["near.queue=red", "near.queue_bytes=260000", "near.overhead_bytes=24"];
        assert_eq!(
            lines("near", &near(&red))[1..],
            [
                "tc qdisc add dev near parent 1:1 handle 2: tbf rate 100000000bit burst 12500 limit 260000 overhead 24",
                "tc qdisc add dev near parent 2:1 handle 3: red limit 260000 min 21666 max 65000 avpkt 1000 burst 36 \
                 adaptive bandwidth 100000000bit harddrop",
            ]
        );
        let codel = ["near.queue=codel", "near.ecn=on", "near.delay_ms=0", "near.queue_packets=40"];
        assert_eq!(
            lines("near", &near(&codel)),
            [
                "tc qdisc add dev near root handle 1: tbf rate 100000000bit burst 12500 limit 65000",
                "tc qdisc add dev near parent 1:1 handle 2: codel limit 40 target 5000us interval 100000us ecn",
            ]
        );
    }

    #[test]
    fn an_unsupported_setting_is_named() {
        let error = |settings: &[&str]| commands("near", &near(settings)).unwrap_err().to_string();
        assert_eq!(
            error(&["near.good_ms=5", "near.bad_ms=5", "near.bad_rate_percent=50"]),
            "tc does not support near.bad_rate_percent; set it to 100, or use --backend user or \
             --backend sim"
        );
        assert!(
            error(&["near.mtu_bytes=1400"])
                .starts_with("tc does not support near.mtu_bytes; set it to unlimited")
        );
        assert!(
            error(&["near.policer_mbit=9"])
                .starts_with("tc does not support near.policer_mbit; leave the policer out")
        );
        let packets = error(&["near.queue_packets=40"]);
        assert!(
            packets.starts_with("tc does not support near.queue_packets beside queue_bytes;"),
            "{packets}"
        );
    }
}
