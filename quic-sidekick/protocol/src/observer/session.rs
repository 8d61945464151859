//! A session: a flow's counter, secured for the flow's sender.

use super::flow_counter::{FlowCounter, Withheld};
use super::keeping::Keeping;
use super::ordering::Ordering;
use super::second_link::SecondLink;
use crate::identify::Flow;
use crate::identify::Position;
use crate::keys::{Link, Seal};
use crate::terms::Terms;
use crate::transmit::{Route, Transmit};
use crate::wire::{ECHO_LEN, Message, SessionNumber};
use sidekick_quack::MAX_THRESHOLD;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// A session's peer and terms.
#[derive(Debug)]
pub(super) struct Agreement {
    /// The destination of quACKs.
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
    /// Datagrams of the reverse flow that were kept; `None` if the session keeps none.
    pub kept: Option<u64>,
    /// When the latest packet was counted in this epoch.
    pub last_packet: Option<Instant>,
    /// When the sender's last authentic message arrived.
    pub last_heard: Instant,
}

/// A session: a counter, secured for its sender. The fields that each packet needs come first.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Session {
    /// A sealed message arrived, so the sender receives at `peer`. Nothing is counted before.
    pub(super) confirmed: bool,
    pub(super) counter: FlowCounter,
    pub(super) agreed: Agreement,
    /// The local address that the sender sends to.
    pub(super) local_ip: Option<IpAddr>,
    /// When the sender's last authentic message arrived.
    pub(super) last_heard: Instant,
    /// quACKs sent.
    pub(super) quacks: u64,
    /// The sequence number of the latest SCHEDULE that held.
    pub(super) latest_schedule: u32,
    /// The sender proved that it receives the reverse flow, by a KEEP.
    pub(super) receives: bool,
    /// Copies of the reverse flow, if the sender asked for them and the observer keeps any.
    pub(super) keeping: Option<Box<Keeping>>,
    /// The order in which datagrams leave, while the sender sends lists.
    pub(super) ordering: Option<Box<Ordering>>,
    /// The sender's second link.
    pub(super) second: Option<Box<SecondLink>>,
}

impl Session {
    /// A session without packets, or `None` if `kept_sums` is 0.
    pub(super) fn new(agreed: Agreement, now: Instant) -> Option<Self> {
        Some(Self {
            confirmed: false,
            counter: FlowCounter::new(&agreed.terms, agreed.kept_sums)?,
            agreed,
            local_ip: None,
            last_heard: now,
            quacks: 0,
            latest_schedule: 0,
            receives: false,
            keeping: None,
            ordering: None,
            second: None,
        })
    }

    /// Whether the sender proved that it is the flow's source. Who merely shares an address with
    /// that must not have datagrams put on its path.
    pub(super) fn speaks_for_source(&self) -> bool {
        self.agreed.path_proven || self.receives
    }

    /// Whether the observer may put datagrams on the path that it rebuilt. Their ends must identify
    /// them.
    pub(super) fn may_rebuild(&self) -> bool {
        let identification = self.agreed.terms.identification;
        identification.position == Position::End && self.speaks_for_source()
    }

    /// A datagram of `size` bytes to the session's sender.
    pub(super) fn transmit(&self, size: usize) -> Transmit {
        let (destination, source_ip) = (self.agreed.peer, self.local_ip);
        Transmit { destination, source_ip, size, route: Route::Session }
    }

    /// The same by this link. What is to go by a link that the sender uses no longer is not sent.
    pub(super) fn transmit_by(&self, link: Link, size: usize) -> Option<Transmit> {
        match link {
            Link::First => Some(self.transmit(size)),
            Link::Second => Some(self.second.as_ref()?.transmit(size)),
        }
    }

    pub(super) fn status(&self) -> SessionStatus {
        SessionStatus {
            flow: self.agreed.flow,
            peer: self.agreed.peer,
            confirmed: self.confirmed,
            terms: self.agreed.terms,
            epoch: self.counter.epoch,
            counted: self.counter.counted(),
            quacks: self.quacks,
            kept: self.keeping.as_ref().map(|keeping| keeping.copies.passed()),
            ends: self.counter.ends(),
            last_packet: self.counter.last_at,
            last_heard: self.last_heard,
        }
    }

    /// Begins an epoch that the sender did not request, and returns the session's number.
    #[cold]
    pub(super) fn begin_unasked(&mut self) -> SessionNumber {
        self.counter.begin_unasked();
        self.agreed.number
    }

    /// Writes a sealed quACK of all packets counted so far, if one waits. Returns [`Withheld`] if
    /// the budget is exhausted.
    pub(super) fn emit_quack(&mut self, out: &mut [u8]) -> Result<Option<usize>, Withheld> {
        let mut words = [0; MAX_THRESHOLD];
        let Some(message) = self.counter.take_quack(&mut words)? else { return Ok(None) };
        Ok(self.agreed.seal.seal(Link::First, self.agreed.peer_number, &message, out))
    }

    /// Writes a sealed message.
    pub(super) fn emit(
        &mut self,
        link: Link,
        message: &Message<'_>,
        out: &mut [u8],
    ) -> Option<usize> {
        self.agreed.seal.seal(link, self.agreed.peer_number, message, out)
    }
}
