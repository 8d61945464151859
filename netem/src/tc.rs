//! Links made by the kernel: `tc netem` for loss and delay, `tbf` for the rate and its drop-tail queue.
//!
//! As in the link model, a packet first meets loss, then the queue and the rate; the fixed delay may stand on either
//! side of the rate without a difference to arrivals. The kernel draws its losses from its own random numbers, so that a
//! seed does not repeat them.

use serde::Deserialize;

use crate::link::{LinkConfig, LinkCounters};
use crate::namespace::{Namespace, NamespaceError};
use crate::units::BitRate;

/// Packets that `netem` may hold during their delay. It is not the queue of the scenario and must never fill.
const DELAY_LINE_PACKETS: u32 = 100_000;

/// What `tbf` may send at once: a large frame and a little, or a millisecond's worth, whichever is more. Less costs
/// throughput when the kernel's timer is late.
const LEAST_BURST: u64 = 3_028;

/// Why the kernel's links could not be had.
#[derive(Debug, thiserror::Error)]
pub enum TcError {
    /// The kernel knows no such queueing discipline.
    #[error("this kernel has no sch_{0}; use --backend user")]
    NoDiscipline(&'static str),
    /// `tc` failed otherwise.
    #[error(transparent)]
    Failed(#[from] NamespaceError),
    /// The statistics cannot be read.
    #[error("`tc -s -j qdisc show` printed what the lab cannot read")]
    Statistics(#[from] serde_json::Error),
}

/// The arguments of `tc`, one list a call, that make `interface` send like one direction of a link.
pub fn commands(interface: &str, link: &LinkConfig) -> Vec<Vec<String>> {
    let words = |text: String| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut commands = Vec::new();
    let mut place = "root handle 1:";
    if needs_netem(link) {
        let delay = link.delay.as_nanos().div_ceil(1000);
        let loss = link.loss.get();
        let loss = if loss > 0.0 { format!("loss random {loss}%") } else { String::new() };
        commands.push(words(format!(
            "qdisc add dev {interface} {place} netem limit {DELAY_LINE_PACKETS} delay {delay}us {loss}"
        )));
        place = "parent 1:1 handle 2:";
    }
    if let Some(rate) = link.rate {
        let bits = rate.bits_per_second();
        let (burst, limit) = (burst(rate), link.queue_bytes);
        commands.push(words(format!(
            "qdisc add dev {interface} {place} tbf rate {bits}bit burst {burst} limit {limit}"
        )));
    }
    commands
}

/// Whether the link has what only `netem` can do.
pub fn needs_netem(link: &LinkConfig) -> bool {
    link.loss.get() > 0.0 || !link.delay.is_zero()
}

fn burst(rate: BitRate) -> u64 {
    LEAST_BURST.max(rate.bits_per_second() / 8 / 1000)
}

/// Makes `interface` of `host` send like one direction of a link.
///
/// # Errors
///
/// [`TcError::NoDiscipline`] where the kernel lacks what the link needs.
pub fn apply(host: &Namespace, interface: &str, link: &LinkConfig) -> Result<(), TcError> {
    for command in commands(interface, link) {
        let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        host.run("tc", &arguments).map_err(|error| refused(error, &command))?;
    }
    Ok(())
}

fn refused(error: NamespaceError, command: &[String]) -> TcError {
    match &error {
        NamespaceError::Tool { message, .. } if message.contains("qdisc kind is unknown") => {
            let netem = command.iter().any(|word| word == "netem");
            TcError::NoDiscipline(if netem { "netem" } else { "tbf" })
        }
        _ => error.into(),
    }
}

#[derive(Deserialize)]
struct Statistics {
    kind: String,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    packets: u64,
    #[serde(default)]
    drops: u64,
    #[serde(default)]
    qlen: u64,
}

/// What `interface` of `host` has sent and dropped so far.
///
/// # Errors
///
/// [`TcError`] when `tc` cannot be asked.
pub fn counters(host: &Namespace, interface: &str) -> Result<LinkCounters, TcError> {
    Ok(read_counters(&host.run("tc", &["-s", "-j", "qdisc", "show", "dev", interface])?)?)
}

/// Reads the answer of `tc -s -j qdisc show dev X`.
fn read_counters(json: &str) -> Result<LinkCounters, serde_json::Error> {
    let disciplines: Vec<Statistics> = serde_json::from_str(json)?;
    let of_kind = |kind: &str| disciplines.iter().find(|discipline| discipline.kind == kind);
    let (netem, tbf) = (of_kind("netem"), of_kind("tbf"));
    let lost_queue = tbf.map_or(0, |tbf| tbf.drops);
    // netem counts the drops of what it feeds among its own.
    let lost_random = netem.map_or(0, |netem| netem.drops.saturating_sub(lost_queue));
    let Some(last) = netem.or(tbf).or(disciplines.first()) else { return Ok(LinkCounters::default()) };
    let held = last.qlen;
    Ok(LinkCounters {
        packets: last.packets + lost_random + lost_queue + held,
        delivered: last.packets,
        delivered_bytes: last.bytes,
        lost_random,
        lost_queue,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Direction, Scenario};

    fn lines(interface: &str, link: &LinkConfig) -> Vec<String> {
        commands(interface, link).iter().map(|command| format!("tc {}", command.join(" "))).collect()
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
    fn only_what_a_link_needs_is_asked_for() {
        let mut scenario = Scenario::load("upload-paper").unwrap();
        scenario.apply(&["near.delay_ms=0", "near.loss_percent=0", "far.rate_mbit=unlimited"]).unwrap();
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

    #[test]
    fn drops_are_told_apart_by_their_cause() {
        let json = r#"[
            {"kind":"netem","handle":"1:","root":true,"bytes":90000,"packets":90,"drops":7,"qlen":3},
            {"kind":"tbf","handle":"2:","parent":"1:1","bytes":90000,"packets":90,"drops":2,"qlen":1}
        ]"#;
        let counters = read_counters(json).unwrap();
        assert_eq!((counters.lost_random, counters.lost_queue), (5, 2));
        assert_eq!((counters.packets, counters.delivered, counters.delivered_bytes), (100, 90, 90_000));
        assert_eq!(read_counters("[]").unwrap(), LinkCounters::default());
        assert!(read_counters("Error").is_err());
    }

    #[test]
    fn a_missing_discipline_is_named() {
        let error = |message: &str| NamespaceError::Tool {
            command: "tc qdisc add".to_owned(),
            name: "sender",
            message: message.to_owned(),
        };
        let netem = ["netem".to_owned()];
        assert_eq!(
            refused(error("Error: Specified qdisc kind is unknown."), &netem).to_string(),
            "this kernel has no sch_netem; use --backend user"
        );
        assert!(matches!(refused(error("Error: Exclusivity flag on."), &netem), TcError::Failed(_)));
    }
}
