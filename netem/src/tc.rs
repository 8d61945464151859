//! The kernel's links: `tc netem` for loss and delay, and `tbf` for the rate and its drop-tail
//! queue.
//!
//! As in the link model, a packet first meets loss, then the queue and the rate. A fixed delay
//! before or after the rate gives the same arrivals. The kernel draws its losses from its own
//! random numbers, so a seed does not repeat them.

use std::io;

use serde::Deserialize;

use crate::link::{LinkConfig, LinkCounters};
use crate::namespace::{Namespace, NamespaceError};
use crate::scenario::{Direction, Scenario};

mod commands;
mod timed;

use commands::commands;
pub(crate) use timed::Timed;

/// Why the kernel's links cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TcError {
    /// This kernel lacks a queueing discipline, or no queueing discipline has such a setting.
    #[error("{0}")]
    Beyond(String),
    /// `tc` failed for another reason.
    #[error(transparent)]
    Failed(#[from] NamespaceError),
    /// The statistics cannot be read.
    #[error("the lab cannot read the output of `tc -s -j qdisc show`")]
    Statistics(#[from] serde_json::Error),
}

/// Makes `interface` of `host` send like one direction of a link.
pub(crate) fn apply(host: &Namespace, interface: &str, link: &LinkConfig) -> Result<(), TcError> {
    for command in commands(interface, link)? {
        host.run(&command).map_err(|error| refused(error, &command))?;
    }
    Ok(())
}

/// Checks that `tc` has every setting of a scenario's links.
pub(crate) fn check(scenario: &Scenario) -> Result<(), TcError> {
    for (place, segment) in scenario.segments() {
        let segment = scenario.faults.first_stage(place, segment);
        for direction in [Direction::ToReceiver, Direction::ToSender] {
            commands(place.name(), &segment.link(direction))?;
        }
    }
    Ok(())
}

fn refused(error: NamespaceError, command: &str) -> TcError {
    match &error {
        NamespaceError::Tool { message, .. } if message.contains("qdisc kind is unknown") => {
            let named = commands::DISCIPLINES
                .iter()
                .find(|kind| command.split(' ').any(|word| word == **kind));
            let named = named.copied().unwrap_or("netem");
            TcError::Beyond(format!("this kernel has no sch_{named}; use --backend user"))
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

/// The packets that `interface` of `host` has sent and dropped.
pub(crate) fn counters(host: &Namespace, interface: &str) -> Result<LinkCounters, TcError> {
    Ok(read_counters(&host.run(&format!("tc -s -j qdisc show dev {interface}"))?)?)
}

/// Reads the output of `tc -s -j qdisc show dev X`.
fn read_counters(json: &str) -> Result<LinkCounters, serde_json::Error> {
    let disciplines: Vec<Statistics> = serde_json::from_str(json)?;
    let of_kind = |kind: &str| disciplines.iter().find(|discipline| discipline.kind == kind);
    let (netem, tbf) = (of_kind("netem"), of_kind("tbf"));
    let lost_queue = tbf.map_or(0, |tbf| tbf.drops);
    // netem's drops include those of the discipline below it.
    let lost_random = netem.map_or(0, |netem| netem.drops.saturating_sub(lost_queue));
    let Some(last) = netem.or(tbf).or(disciplines.first()) else {
        return Ok(LinkCounters::default());
    };
    let held = last.qlen;
    Ok(LinkCounters {
        packets: last.packets + lost_random + lost_queue + held,
        delivered: last.packets,
        delivered_bytes: last.bytes,
        lost_random,
        lost_queue,
        ..LinkCounters::default()
    })
}

/// Packets and bytes that have reached `interface` of `host`. Unlike [`counters`] it starts no
/// program, so a measurement can call it often.
pub(crate) fn received(host: &Namespace, interface: &str) -> Result<(u64, u64), TcError> {
    host.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev"))?
        .and_then(|table| {
            read_received(&table, interface).ok_or_else(|| io::ErrorKind::InvalidData.into())
        })
        .map_err(|source| {
            let what = format!("read what has reached the interface {interface} in /proc/net/dev");
            NamespaceError::Failed { what, source }.into()
        })
}

/// Reads the line of an interface in /proc/net/dev: bytes first, then packets.
fn read_received(table: &str, interface: &str) -> Option<(u64, u64)> {
    let (_, counts) = table
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == interface)?;
    let mut counts = counts.split_whitespace().map(str::parse);
    let (bytes, packets) = (counts.next()?.ok()?, counts.next()?.ok()?);
    Some((packets, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_counted_by_their_cause() {
        // From Linux 6.1 with iproute2 6.1, after 401 frames into a link. netem's numbers include
        // those of tbf below it.
        let json = r#"[
            {"kind":"netem","handle":"1:","root":true,"refcnt":2,"options":{"limit":100000,"delay":{"delay":0.05,
             "jitter":0,"correlation":0},"loss-random":{"loss":0.1,"correlation":0},"ecn":false,"gap":0},"bytes":4416,
             "packets":4,"drops":328,"overlimits":0,"requeues":0,"backlog":99498,"qlen":69},
            {"kind":"tbf","handle":"2:","parent":"1:1","options":{"rate":125000,"burst":3028,"lat":135776},"bytes":4416,
             "packets":4,"drops":298,"overlimits":626,"requeues":0,"backlog":18746,"qlen":13}
        ]"#;
        let counters = read_counters(json).unwrap();
        assert_eq!((counters.lost_random, counters.lost_queue), (30, 298));
        assert_eq!(
            (counters.packets, counters.delivered, counters.delivered_bytes),
            (401, 4, 4416)
        );
        assert_eq!(read_counters("[]").unwrap(), LinkCounters::default());
        assert!(read_counters("Error").is_err());
    }

    #[test]
    fn the_counts_of_an_interface_are_read_from_its_own_line() {
        let table = "Inter-|   Receive                            |  Transmit\n \
                     face |bytes    packets errs drop|bytes    packets errs drop\n    \
                     lo:       1       2    0    0        3       4    0    0\n   \
                     far: 2224181    1612    0    0   102856     780    0    0\n";
        assert_eq!(read_received(table, "far"), Some((1612, 2_224_181)));
        assert_eq!(read_received(table, "near"), None);
        assert_eq!(read_received("far: many", "far"), None);
    }

    #[test]
    fn each_link_of_a_scenario_is_checked() {
        let refused = |settings: &[&str]| {
            let scenario = Scenario::with("upload-paper", settings).unwrap();
            check(&scenario).map_err(|error| error.to_string())
        };
        assert_eq!(refused(&[]), Ok(()));
        let error = refused(&["far.retries=3"]).unwrap_err();
        assert!(error.starts_with("tc does not support far.retries; leave them out"), "{error}");
        assert_eq!(refused(&["faults.events=near-outage at 5 for 5"]), Ok(()));
    }

    #[test]
    fn a_missing_discipline_is_named() {
        let error = |message: &str| NamespaceError::Tool {
            command: "tc qdisc add".to_owned(),
            name: "sender",
            message: message.to_owned(),
        };
        let netem = "tc qdisc add dev near root netem";
        assert_eq!(
            refused(error("Error: Specified qdisc kind is unknown."), netem).to_string(),
            "this kernel has no sch_netem; use --backend user"
        );
        assert!(matches!(refused(error("Error: Exclusivity flag on."), netem), TcError::Failed(_)));
    }
}
