//! A session: the proxy's state for one sender's flow.

use super::budget::Budget;
use super::duplicates::Duplicates;
use crate::clock::micros;
use crate::flow::Flow;
use crate::identify::{Filter, Identification, Payload};
use crate::keys::Seal;
use crate::terms::Terms;
use crate::transmit::{Route, Transmit};
use crate::wire::{ECHO_LEN, Message, Quack, SessionNumber, ShortQuack, Sums, low};
use sidekick_quack::{MAX_THRESHOLD, PowerSums};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// An interface that captures none of the flow's packets for this long no longer carries the flow.
const REBIND: Duration = Duration::from_secs(1);
/// The number of whole quACKs before the first short one of an epoch: enough for the sender to
/// receive one of them.
const WHOLE_FIRST: u8 = 8;

/// A waiting quACK.
#[derive(Clone, Copy, Debug)]
struct Request {
    /// The token of the poll to answer, or 0.
    token: u16,
    /// The number of sums, 0 for the threshold.
    sums: u8,
    /// When it fell due. The caller sends it right after.
    at: Instant,
}

/// A session's peer and terms.
#[derive(Debug)]
pub(super) struct Agreement {
    /// Where quACKs go.
    pub(super) peer: SocketAddr,
    /// The session's number at the sender.
    pub(super) peer_number: SessionNumber,
    /// The session's number at this observer.
    pub(super) number: SessionNumber,
    pub(super) flow: Flow,
    /// The sender proved that it receives along the path, not only at the source's address.
    pub(super) path_proven: bool,
    pub(super) terms: Terms,
    pub(super) kept_sums: u8,
    pub(super) seal: Seal,
    /// The HELLO's echo.
    pub(super) echo: [u8; ECHO_LEN],
    /// The second handshake message, for retransmissions until the session is confirmed.
    pub(super) answer: Box<[u8]>,
}

/// The status of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// The flow that it counts.
    pub flow: Flow,
    /// Where its quACKs go.
    pub peer: SocketAddr,
    /// Whether a sealed message of the sender arrived. Nothing is counted before.
    pub confirmed: bool,
    /// The terms granted.
    pub terms: Terms,
    /// The epoch, from 1.
    pub epoch: u16,
    /// Packets counted in this epoch, modulo 2^32.
    pub counted: u32,
    /// The identifiers of the epoch's first packet and of its latest, if there is one.
    pub ends: Option<(u32, u32)>,
    /// quACKs sent.
    pub quacks: u64,
    /// When the latest packet was counted in this epoch.
    pub last_packet: Option<Instant>,
    /// When the sender's last authentic message arrived.
    pub last_heard: Instant,
}

/// A session. The fields that each packet needs come first, on as few cache lines as possible.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Session {
    /// A sealed message arrived, so the sender receives at `peer`. Nothing is counted before.
    pub(super) confirmed: bool,
    /// The system dropped packets after those that the epoch counted.
    pub(super) missed: bool,
    rule: Identification,
    /// The interface that captures this epoch's packets.
    interface: Option<u32>,
    every_packets: u32,
    /// Packets that no quACK has reported.
    unreported: u32,
    /// Identifiers of the epoch's first packet and of the latest.
    first: u32,
    last: u32,
    pub(super) budget: Budget,
    /// When the latest packet of this epoch was counted.
    last_at: Option<Instant>,
    /// When the timed quACK falls due; `None` while every packet is reported.
    pub(super) quack_due: Option<Instant>,
    duplicates: Duplicates,
    sums: PowerSums,
    pub(super) agreed: Agreement,
    /// The local address that the sender sends to.
    pub(super) local_ip: Option<IpAddr>,
    pub(super) epoch: u16,
    /// When the sender's last authentic message arrived.
    pub(super) last_heard: Instant,
    /// The observer began the epoch by itself, and the sender has not polled in it yet.
    pub(super) unasked: bool,
    /// Whole quACKs of this epoch, at most [`WHOLE_FIRST`].
    whole: u8,
    /// The quACK that waits to be sent.
    request: Option<Request>,
    /// quACKs sent.
    pub(super) quacks: u64,
}

impl Session {
    /// A session without packets, or `None` if `kept_sums` is 0.
    pub(super) fn new(agreed: Agreement, now: Instant) -> Option<Self> {
        Some(Self {
            epoch: 1,
            local_ip: None,
            confirmed: false,
            missed: false,
            interface: None,
            last_heard: now,
            quack_due: None,
            budget: Budget::default(),
            sums: PowerSums::new(usize::from(agreed.kept_sums)).ok()?,
            duplicates: Duplicates::default(),
            rule: agreed.terms.identification,
            every_packets: agreed.terms.every_packets.map_or(u32::MAX, |n| n.get().into()),
            first: 0,
            last: 0,
            last_at: None,
            unreported: 0,
            unasked: false,
            whole: 0,
            request: None,
            quacks: 0,
            agreed,
        })
    }

    /// A datagram of `size` bytes to the session's sender.
    pub(super) fn transmit(&self, size: usize) -> Transmit {
        Transmit {
            destination: self.agreed.peer,
            source_ip: self.local_ip,
            size,
            route: Route::Session,
        }
    }

    pub(super) fn status(&self) -> SessionStatus {
        SessionStatus {
            flow: self.agreed.flow,
            peer: self.agreed.peer,
            confirmed: self.confirmed,
            terms: self.agreed.terms,
            epoch: self.epoch,
            counted: self.sums.count(),
            quacks: self.quacks,
            ends: self.last_at.map(|_| (self.first, self.last)),
            last_packet: self.last_at,
            last_heard: self.last_heard,
        }
    }

    /// Binds the epoch to `interface` if it is bound to none. Returns whether it is bound to this
    /// one.
    #[inline]
    fn bind(&mut self, interface: u32) -> bool {
        *self.interface.get_or_insert(interface) == interface
    }

    /// Whether the epoch lacks packets: the system dropped them, or `interface` captured them while
    /// the epoch counted on another, which has been idle since.
    #[inline]
    pub(super) fn lacks_packets(&self, interface: u32, now: Instant) -> bool {
        self.missed || self.interface.is_some_and(|bound| bound != interface) && self.is_idle(now)
    }

    fn is_idle(&self, now: Instant) -> bool {
        self.last_at.is_none_or(|at| now.saturating_duration_since(at) >= REBIND)
    }

    /// Prefetches the cache lines that counting a datagram needs. The value depends on all of them.
    #[inline]
    pub(super) fn touch(&self) -> u32 {
        self.unreported ^ self.sums.count()
    }

    /// The identifier of a datagram, if it counts.
    #[inline]
    pub(super) fn identifier(&self, payload: Payload<'_>) -> Option<u32> {
        self.rule.identifier(payload)
    }

    /// Prefetches the identifier's slot among the duplicates. The value depends on it.
    #[inline]
    pub(super) fn touch_duplicates(&self, identifier: u32) -> u32 {
        self.duplicates.peek(identifier)
    }

    /// Records a packet. Returns true if the network duplicated it. QUIC never sends the same bytes
    /// twice; another protocol may, so only QUIC packets are checked.
    #[inline]
    fn record_duplicate(&mut self, identifier: u32) -> bool {
        let quic = self.rule.filter == Filter::QuicShortHeader;
        quic && self.duplicates.record(identifier)
    }

    /// Counts a packet of `len` bytes that `interface` captured.
    #[inline]
    pub(super) fn count(
        &mut self,
        identifier: u32,
        len: usize,
        interface: u32,
        now: Instant,
    ) -> Count {
        if !self.bind(interface) || self.record_duplicate(identifier) {
            return Count::Not;
        }
        if self.last_at.is_none() {
            self.first = identifier;
        }
        self.budget.seen(len);
        self.sums.insert(identifier);
        self.last = identifier;
        self.last_at = Some(now);
        self.unreported = self.unreported.saturating_add(1);
        if self.unreported >= self.every_packets {
            return Count::WithReport;
        }
        if self.quack_due.is_none()
            && let Some(every) = self.agreed.terms.every
        {
            self.quack_due = Some(now + every);
            return Count::WithDeadline;
        }
        Count::Silently
    }

    /// Whether this epoch has counted packets of this interface.
    pub(super) fn counts_on(&self, interface: u32) -> bool {
        self.interface == Some(interface) && self.last_at.is_some()
    }

    /// Begins an epoch that the sender did not request, and returns the session's number.
    #[cold]
    pub(super) fn begin_unasked(&mut self) -> SessionNumber {
        self.begin_epoch();
        self.unasked = true;
        self.agreed.number
    }

    pub(super) fn begin_epoch(&mut self) {
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        self.sums.clear();
        self.duplicates.clear();
        (self.first, self.last, self.last_at) = (0, 0, None);
        (self.unreported, self.whole) = (0, 0);
        self.quack_due = None;
        self.interface = None;
        self.request = None;
        (self.missed, self.unasked) = (false, false);
    }

    /// Requests a quACK. Returns true if one waited already, which now answers the newer poll.
    pub(super) fn request_quack(&mut self, token: u16, sums: u8, now: Instant) -> bool {
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

    pub(super) fn drop_request(&mut self) {
        self.request = None;
    }

    /// Writes a quACK of all packets counted so far, if one waits. Returns [`Withheld`] if the
    /// budget is exhausted.
    pub(super) fn emit_quack(&mut self, out: &mut [u8]) -> Result<Option<usize>, Withheld> {
        let Some(request) = self.request.take() else { return Ok(None) };
        let wanted = if request.sums == 0 { self.agreed.terms.threshold } else { request.sums };
        let age = self.last_at.map_or(0, |at| micros(request.at.saturating_duration_since(at)));
        let mut words = [0; MAX_THRESHOLD];
        let wanted = usize::from(wanted).min(self.budget.sums());
        let wanted = words.get_mut(..wanted).unwrap_or_default();
        let written = self.sums.write_sums(wanted);
        let short = (request.token, age) == (0, 0) && self.whole == WHOLE_FIRST && !self.unasked;
        let len = if short { ShortQuack::sealed_len(written) } else { Quack::sealed_len(written) };
        if written == 0 || !self.budget.spend(len) {
            return Err(Withheld);
        }
        let sums = Sums::new(wanted.get(..written).unwrap_or_default());
        let (last, count) = (self.last, self.sums.count());
        let message = if short {
            Message::ShortQuack(ShortQuack { count: low(count), last: low(last), sums })
        } else {
            if count > 0 && self.whole < WHOLE_FIRST {
                self.whole += 1;
            }
            let (epoch, token) = (self.epoch, request.token);
            Message::Quack(Quack {
                epoch,
                token,
                age_us: age,
                first: self.first,
                last,
                count,
                sums,
            })
        };
        Ok(self.agreed.seal.seal(self.agreed.peer_number, &message, out))
    }

    /// Writes a sealed message.
    pub(super) fn emit(&mut self, message: &Message<'_>, out: &mut [u8]) -> Option<usize> {
        self.agreed.seal.seal(self.agreed.peer_number, message, out)
    }
}

/// The outcome of counting a packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    /// It does not count.
    Not,
    /// It was counted.
    Silently,
    /// It was counted, and set the deadline of a quACK.
    WithDeadline,
    /// It was counted, and a quACK is due.
    WithReport,
}

/// The quACK exceeds the session's budget.
#[derive(Debug)]
pub(super) struct Withheld;
