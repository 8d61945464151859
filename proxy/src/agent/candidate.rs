//! Flows with too few packets to be helped. This module does no I/O.

use std::time::{Duration, Instant};

use sidekick_protocol::policy::RoundTrip;

use super::kind::{Classifier, Kind};

/// A bridge and its port, or a bond and its member, show each packet twice. So a packet on another
/// interface counts as a duplicate, until the flow's own interface has shown none for this long.
pub(super) const MOVED: Duration = Duration::from_millis(100);
/// The least UDP payload of a client's first packet (RFC 9000, section 14.1).
const FIRST: usize = 1200;

/// The state of a flow that the agent does not help yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) classifier: Classifier,
    /// Packets that left since it was last refused.
    pub(super) packets: u32,
    /// The kind of arriving packets, and their number since the flow was last refused.
    pub(super) arriving: Classifier,
    pub(super) arrived: u32,
    begun: Instant,
    /// Its packets of both directions.
    passed: u32,
    pub(super) last: Instant,
    /// The flow had enough packets, but the agent had no room.
    pub(super) was_refused: bool,
    /// The interface by which its last packet left, and when.
    seen: Option<(u32, Instant)>,
    pub(super) round_trip: RoundTrip,
    /// Its first packet certainly begins a QUIC connection.
    begins: bool,
    /// It had enough packets, but its program may not bear what the agent sends.
    pub(super) was_left: bool,
}

impl Candidate {
    /// A flow without any packet.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            classifier: Classifier::default(),
            packets: 0,
            arriving: Classifier::default(),
            arrived: 0,
            begun: now,
            passed: 0,
            last: now,
            was_refused: false,
            seen: None,
            round_trip: RoundTrip::default(),
            begins: false,
            was_left: false,
        }
    }

    /// Its packets in a second, of both directions. Those of a burst count as those of `least`.
    pub(super) fn rate(&self, now: Instant, least: Duration) -> f64 {
        let time = now.saturating_duration_since(self.begun).max(least);
        f64::from(self.passed) / time.as_secs_f64()
    }

    /// Notes a packet that leaves by an interface. Returns false if it duplicates a packet of
    /// another interface.
    pub(super) fn note(&mut self, interface: u32, payload: &[u8], now: Instant) -> bool {
        if self.seen.is_some_and(|(by, seen)| by != interface && now < seen + MOVED) {
            return false;
        }
        self.seen = Some((interface, now));
        self.classifier.note(payload);
        let kind = self.classifier.kind;
        self.round_trip.on_leaving(payload, kind.begins_with(payload), kind.spins(), now);
        if self.packets == 0 {
            self.begins = kind == Kind::Quic && kind.begins_with(payload) && payload.len() >= FIRST;
        }
        self.packets += 1;
        self.passed = self.passed.saturating_add(1);
        self.last = now;
        true
    }

    /// Whether packets only arrive. The host may not have asked for them.
    pub(super) fn only_arrives(&self) -> bool {
        self.seen.is_none()
    }

    /// The interface by which its last packet left.
    pub(super) fn interface(&self) -> Option<u32> {
        self.seen.map(|(interface, _)| interface)
    }

    /// When its last packet left.
    pub(super) fn left(&self) -> Option<Instant> {
        self.seen.map(|(_, at)| at)
    }

    /// Notes a packet that arrives.
    pub(super) fn note_arriving(&mut self, payload: &[u8], now: Instant) {
        self.arriving.note(payload);
        self.round_trip.on_arriving(now);
        self.arrived += 1;
        self.passed = self.passed.saturating_add(1);
        self.last = now;
    }

    /// Whether it has enough packets to be helped. Losses of a QUIC handshake cost the most, so
    /// help begins with its first packet, or with the second if the first might be of another
    /// protocol. Arriving packets count if the agent can repair their losses.
    pub(super) fn is_worth_it(&self, min_packets: u32) -> bool {
        let few = match self.classifier.kind {
            Kind::Quic if self.begins => 1,
            Kind::Quic => 2,
            _ => u32::MAX,
        };
        let arriving = self.arriving.kind;
        let repairs = arriving.is_numbered() || arriving == Kind::MpegTs;
        self.packets >= min_packets.min(few) || (repairs && self.arrived >= min_packets)
    }

    /// Whether its program may read what the agent sends as data: its packets are neither
    /// encrypted, nor of a protocol that bears this, nor the control packets of a call that
    /// arrives. Anyone can send packets that arrive, so these alone show nothing.
    pub(super) fn is_plain(&self) -> bool {
        let is_call = self.arriving.kind.is_numbered() && self.classifier.is_control();
        !self.classifier.kind.is_robust() && !is_call
    }

    /// Whether its packets may end alike, in one of the directions.
    pub(super) fn may_end_alike(&self) -> bool {
        self.classifier.may_end_alike()
            || self.arriving.kind.is_numbered() && self.arriving.may_end_alike()
    }
}
