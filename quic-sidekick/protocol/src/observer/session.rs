//! What the proxy keeps for one sender's flow.

use crate::clock::micros;
use crate::wire::{Body, Message, Quack, SessionId, Sums};
use crate::{Flow, Terms};
use sidekick_quack::{MAX_THRESHOLD, PowerSums};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// An interface that shows none of the flow's packets for this long is no longer the one on which they come in.
const REBIND: Duration = Duration::from_secs(1);

/// What a waiting quACK shall say.
#[derive(Clone, Copy, Debug)]
struct Request {
    /// The token of the poll that it answers, or 0.
    token: u32,
    /// The number of sums, 0 for the threshold.
    sums: u8,
    /// When it was asked for; the caller sends it right after.
    at: Instant,
}

#[derive(Debug)]
pub(super) struct Session {
    /// Where quACKs go.
    pub(super) peer: SocketAddr,
    pub(super) id: SessionId,
    pub(super) flow: Flow,
    pub(super) terms: Terms,
    pub(super) epoch: u32,
    /// The sender has repeated the epoch: it receives at `peer`. Nothing is counted before.
    pub(super) confirmed: bool,
    /// Where this epoch's packets are captured.
    pub(super) interface: Option<u32>,
    /// When the sender was last heard at the proxy's own port.
    pub(super) last_heard: Instant,
    /// When the timed quACK falls due; none while everything was reported.
    pub(super) quack_due: Option<Instant>,
    sums: PowerSums,
    first: u32,
    last: u32,
    last_at: Option<Instant>,
    /// Packets that no quACK has reported.
    unreported: u32,
    sequence: u32,
    /// A quACK waits to be sent.
    request: Option<Request>,
}

impl Session {
    /// `None` when no sums can be kept at all.
    pub(super) fn new(
        peer: SocketAddr,
        id: SessionId,
        flow: Flow,
        terms: Terms,
        kept_sums: u8,
        epoch: u32,
        now: Instant,
    ) -> Option<Self> {
        Some(Self {
            peer,
            id,
            flow,
            terms,
            epoch,
            confirmed: false,
            interface: None,
            last_heard: now,
            quack_due: None,
            sums: PowerSums::new(usize::from(kept_sums)).ok()?,
            first: 0,
            last: 0,
            last_at: None,
            unreported: 0,
            sequence: 0,
            request: None,
        })
    }

    pub(super) fn kept_sums(&self) -> u8 {
        u8::try_from(self.sums.threshold()).unwrap_or(u8::MAX)
    }

    /// Whether packets of this interface count. An interface that has shown nothing for a while gives way to another.
    pub(super) fn is_bound_to(&mut self, interface: u32, now: Instant) -> bool {
        let idle = self.last_at.is_none_or(|at| now.saturating_duration_since(at) >= REBIND);
        if self.interface.is_none() || idle {
            self.interface = Some(interface);
        }
        self.interface == Some(interface)
    }

    /// Counts a packet; true if a quACK is due by the number of packets.
    pub(super) fn count(&mut self, identifier: u32, now: Instant) -> bool {
        if self.sums.count() == 0 && self.last_at.is_none() {
            self.first = identifier;
        }
        self.sums.insert(identifier);
        self.last = identifier;
        self.last_at = Some(now);
        self.unreported = self.unreported.saturating_add(1);
        if self.quack_due.is_none() {
            self.quack_due = self.terms.every.map(|every| now + every);
        }
        self.terms.every_packets.is_some_and(|n| self.unreported >= u32::from(n.get()))
    }

    pub(super) fn begin_epoch(&mut self, epoch: u32, now: Instant) {
        self.epoch = epoch;
        self.sums.clear();
        (self.first, self.last, self.last_at) = (0, 0, None);
        self.unreported = 0;
        self.quack_due = None;
        self.interface = None;
        self.request = None;
        self.last_heard = now;
    }

    /// Notes that a quACK shall go out; true if one waited already, which now answers the newer poll.
    pub(super) fn request_quack(&mut self, token: u32, sums: u8, now: Instant) -> bool {
        self.quack_due = None;
        self.unreported = 0;
        let waiting = self.request;
        self.request = Some(match waiting {
            Some(old) => Request {
                token: if token == 0 { old.token } else { token },
                sums: sums.max(old.sums),
                at: now,
            },
            None => Request { token, sums, at: now },
        });
        waiting.is_some()
    }

    pub(super) fn forget_request(&mut self) {
        self.request = None;
    }

    /// Writes a quACK of everything counted so far, if one waits.
    pub(super) fn emit_quack(&mut self, out: &mut [u8]) -> Option<usize> {
        let request = self.request.take()?;
        let wanted = if request.sums == 0 { self.terms.threshold } else { request.sums };
        self.sequence = self.sequence.wrapping_add(1);
        let age = self.last_at.map_or(0, |at| micros(request.at.saturating_duration_since(at)));
        let mut words = [0; MAX_THRESHOLD];
        let wanted = words.get_mut(..usize::from(wanted)).unwrap_or_default();
        let written = self.sums.write_sums(wanted);
        let quack = Quack {
            epoch: self.epoch,
            sequence: self.sequence,
            token: request.token,
            age_us: age,
            first: self.first,
            last: self.last,
            count: self.sums.count(),
            sums: Sums::new(wanted.get(..written).unwrap_or_default()),
        };
        Message { session: self.id, body: Body::Quack(quack) }.emit(out).ok()
    }
}
