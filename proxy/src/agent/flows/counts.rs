//! What an agent reports about its flows.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::super::flow::HelpedFlow;
use super::super::report::{FlowReport, Totals};
use super::{Agent, Entry, Limits};

/// How long the state of flows without a proxy mentions answers along other paths.
const STRAYS: Duration = Duration::from_secs(300);

impl Agent {
    pub(in super::super) fn totals(&self) -> Totals {
        let mut totals = self.common.totals;
        totals.unsent += self.common.outbox.refused;
        for helped in self.helped() {
            totals.add(helped.sender.stats());
        }
        totals
    }

    pub(in super::super) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn helped(&self) -> impl Iterator<Item = &HelpedFlow> {
        self.flows.values().filter_map(|entry| match entry {
            Entry::Helped(helped) => Some(&**helped),
            _ => None,
        })
    }

    /// Flows that are helped, flows that a proxy reports, and bytes of copies.
    pub(in super::super) fn counts(&self) -> (usize, usize, u64) {
        let assisted = |helped: &&HelpedFlow| helped.is_assisted();
        let memory = self.helped().map(|helped| helped.memory() as u64).sum();
        (self.helped, self.helped().filter(assisted).count(), memory)
    }

    /// The busiest of the helped flows, at most `most`, in any order, because packets wait
    /// meanwhile. `name` returns the name of an interface.
    pub(in super::super) fn flows(
        &self,
        most: usize,
        name: impl Fn(u32) -> String,
        now: Instant,
    ) -> Vec<FlowReport> {
        let mut helped: Vec<_> = self.helped().collect();
        if most < helped.len() {
            helped.select_nth_unstable_by_key(most, |helped| Reverse(helped.sent));
            helped.truncate(most);
        }
        let strays = self.stray.is_some_and(|at| now < at + STRAYS);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let described = helped.into_iter().map(|helped| FlowReport {
            source: helped.flow.source,
            destination: helped.flow.destination,
            interface: name(helped.interface()),
            kind: helped.kind().to_string(),
            state: helped.state(strays, now),
            arrivals: helped.arrivals(self.limits.delivers, now),
            assisted: helped.is_assisted(),
            proxy: helped.sender.proxy().map(|(address, _)| address),
            proxy_key: helped.sender.proxy().map(|(_, key)| key.to_string()),
            near_rtt_ms: helped.sender.near_rtt().map(ms),
            near_rtt_most_ms: helped.near_most().map(ms),
            rtt_ms: helped.rtt().map(ms),
            sent: helped.sent,
            lost: helped.lost,
            resent: helped.resent,
            missed: helped.received().0,
            delivered: helped.received().1,
            last_packet_ago: now.saturating_duration_since(helped.last).as_secs_f64(),
        });
        described.collect()
    }
}
