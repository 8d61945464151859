//! A flow that the agent only watches, to record what the link does to its packets.

use std::time::{Duration, Instant};

use sidekick_protocol::{Protect, Sender, Terms};

use super::super::report::Totals;
use super::{HelpedFlow, KEEP};
use crate::trace::Recorder;

/// Lists of what passed the proxy: one for so many packets, each of which three lists name, or
/// after this time. They cost 0.7 % of a flow of full packets.
const EVERY: u8 = 20;
const WINDOW: u8 = 3 * EVERY;
const LONGEST: Duration = Duration::from_millis(20);

/// A quACK so often, of so many sums. Nothing waits for one, so packets may be late.
const INTERVAL: Duration = Duration::from_millis(30);
const THRESHOLD: u8 = 40;
const LATE_PACKETS: u32 = 64;

/// The terms of a flow that is only watched.
pub(super) fn terms(terms: Terms) -> Terms {
    Terms { threshold: THRESHOLD, every: Some(INTERVAL), ..terms }
}

/// Lets a sender wait for packets that are late, and report as often if nothing is lost.
pub(super) fn wait(sender: &mut Sender) {
    sender.set_packet_threshold(LATE_PACKETS);
    sender.set_frugal(None);
}

impl HelpedFlow {
    /// Goes on to watch under other terms, or on another path.
    pub(super) fn watch_on(&mut self) {
        if self.watch.is_some() {
            wait(&mut self.resender.sender);
        }
    }

    /// Asks for lists of what passes the proxy towards this host.
    pub(in super::super) fn watch(&mut self, now: Instant) {
        self.resender.sender.want_copies(KEEP, now);
    }

    /// Notes a packet of the program that left.
    pub(in super::super) fn watch_leaving(
        &mut self,
        bytes: usize,
        to: &mut Recorder,
        now: Instant,
    ) {
        if let Some(watch) = &mut self.watch {
            watch.on_left(self.resender.sent().saturating_sub(1), bytes, to, now);
        }
    }

    /// Notes a packet that arrived.
    pub(in super::super) fn watch_arriving(
        &mut self,
        payload: &[u8],
        to: &mut Recorder,
        now: Instant,
    ) {
        self.watch_message(to, now);
        self.note_packet(now);
        self.resender.wake(now);
        let Some(watch) = &mut self.watch else { return };
        let sender = &mut self.resender.sender;
        // Each pays for lists.
        sender.on_arrival(payload);
        sender.on_received(payload.len(), now);
        if let Some(identifier) = self.position.of_copy(payload) {
            sender.on_progress(identifier, now);
            watch.on_arrival(identifier, payload.len(), to, now);
        }
    }

    /// Records what an input of the sender showed.
    pub(in super::super) fn record(
        &mut self,
        to: &mut Recorder,
        totals: &mut Totals,
        now: Instant,
    ) {
        let Some(watch) = &mut self.watch else { return };
        let begins = self.resender.observe(|name, is_lost| {
            totals.lost += u64::from(is_lost);
            watch.on_fate(name, is_lost, to);
        });
        totals.flows_assisted += u64::from(begins);
        let is_reported = self.resender.has_session();
        let sender = &mut self.resender.sender;
        if let Some(took) = sender.latest_near_rtt() {
            watch.on_round_trip(took, to, now);
        }
        watch.settle_left(is_reported, to, Some(now));
        sender.set_fetching(false);
        sender.protect(Some(Protect::lists(EVERY, WINDOW, LONGEST)), now);
        if let Some(list) = sender.take_list() {
            watch.on_list(list.first, list.identifiers(), to, now);
        }
    }

    /// Notes a message of a proxy.
    pub(in super::super) fn watch_message(&mut self, to: &mut Recorder, now: Instant) {
        let near = self.resender.sender.near_rtt();
        if let Some(watch) = &mut self.watch {
            watch.on_heard(near.unwrap_or_default(), to, now);
        }
    }

    /// Records what lists showed, because another session begins them.
    pub(in super::super) fn record_lists(&mut self, to: &mut Recorder) {
        if let Some(watch) = &mut self.watch {
            watch.end_lists(to);
        }
    }

    /// Records what is known of the flow's packets, because it ends.
    pub(in super::super) fn record_end(&mut self, to: &mut Recorder) {
        if let Some(watch) = &mut self.watch {
            watch.end_lists(to);
            watch.settle_left(self.resender.has_session(), to, None);
        }
    }
}
