//! One flow: what leaves to a peer, and what arrives from there.

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sidekick_protocol::policy::{
    KEEP, Leaving, Policy, RESTS, Resender, RoundTrip, Traits, Trusts, Withheld, is_initial,
};
use sidekick_protocol::repair::ReceiveRepair;
use sidekick_protocol::{
    Assistance, Delivery, InOrder, InOrderState, MAX_DATAGRAM_LEN, Position, Route, Sender,
    SenderConfig,
};

use crate::outbox::{Datagram, Marks, Outbox};

/// Packets end in an authentication tag, which differs in each.
const POSITION: Position = Position::End;

/// A flow that is helped.
#[derive(Debug)]
pub(crate) struct Flow {
    peer: SocketAddr,
    traits: Traits,
    pub(crate) resender: Resender,
    /// Arriving datagrams in order, by their numbers, and those of them that wait.
    order: InOrder<u64>,
    waiting: HashMap<u64, Datagram>,
    next_number: u64,
    /// The header fields of the latest datagrams that left and that arrived.
    leaving: Marks,
    arriving: Marks,
    /// When the latest datagram passed, in either direction.
    pub(crate) last: Instant,
    resent: u64,
    delivered: u64,
    /// The session numbers that the table has for this flow, and when its timer wakes it.
    pub(crate) numbers: Vec<u32>,
    pub(crate) armed: Option<Instant>,
    /// Scratch, kept to avoid allocation.
    rebuilt: Vec<u8>,
}

/// The help for the datagrams to and from one peer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FlowStatus {
    /// The peer's address.
    pub peer: SocketAddr,
    /// Whether a proxy reports the flow's datagrams.
    pub assistance: Assistance,
    /// Whether the help pauses, because a queue grew before the proxy for long.
    pub rests: bool,
    /// Why lost datagrams are not sent again now; `None` if they are.
    pub withheld: Option<Withheld>,
    /// What happens to arriving datagrams.
    pub arrivals: InOrderState,
    /// The proxy.
    pub proxy: Option<SocketAddr>,
    /// The round-trip time to the proxy, once measured.
    pub near_rtt: Option<Duration>,
    /// The whole path's round-trip time, if the flow showed it.
    pub rtt: Option<Duration>,
    /// Datagrams of the application that left.
    pub sent: u64,
    /// Losses of these before the proxy. The loss of a repair counts, too.
    pub lost: u64,
    /// Datagrams sent again.
    pub resent: u64,
    /// Arriving datagrams that were lost behind the proxy.
    pub missed: u64,
    /// Copies of these that the application got.
    pub delivered: u64,
}

impl fmt::Display for FlowStatus {
    /// Whether what leaves is helped, and if not, why.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.assistance, self.withheld) {
            _ if self.rests => f.write_str(RESTS),
            (Assistance::Assisted, None) => f.write_str("helped"),
            (Assistance::Assisted, Some(why)) => why.fmt(f),
            (other, _) => other.fmt(f),
        }
    }
}

impl Flow {
    /// A flow from `local` to `peer`, whose help begins now.
    pub(crate) fn begin(
        config: SenderConfig,
        traits: Traits,
        seed: [u8; 32],
        (local, peer): (SocketAddr, SocketAddr),
        round_trip: RoundTrip,
        (repair, is_clean): (ReceiveRepair, bool),
        now: Instant,
    ) -> Self {
        let flow = sidekick_protocol::Flow { source: local, destination: peer }.canonical();
        let mut sender = Sender::new(Policy::config(config, traits, POSITION), seed);
        if !traits.waits {
            sender.want_copies(KEEP, now);
        }
        Self {
            peer,
            traits,
            resender: Resender::start(sender, flow, Policy::new(round_trip), now),
            order: InOrder::new(repair, is_clean),
            waiting: HashMap::new(),
            next_number: 0,
            leaving: Marks::default(),
            arriving: Marks::default(),
            last: now,
            resent: 0,
            delivered: 0,
            numbers: Vec::new(),
            armed: None,
            rebuilt: Vec::new(),
        }
    }

    /// A datagram of the application left. `keeps` states whether there is memory for its copy.
    pub(crate) fn on_sent(&mut self, payload: &[u8], marks: Marks, keeps: bool, now: Instant) {
        (self.last, self.leaving) = (now, marks);
        let begins = is_initial(payload);
        let leaving = Leaving { is_quic: true, begins, spins: true, keeps, class: 0 };
        self.resender.on_sent(payload, leaving, now);
    }

    /// A datagram of the peer arrived. Returns true if the application gets it now. Otherwise this
    /// keeps a copy, and `outbox` has what the application gets instead.
    pub(crate) fn on_received(
        &mut self,
        payload: &[u8],
        marks: Marks,
        outbox: &mut Outbox,
        now: Instant,
    ) -> bool {
        self.last = now;
        // A copy must not repeat a mark of congestion.
        let ecn = if marks.ecn == Marks::CE { self.arriving.ecn } else { marks.ecn };
        self.arriving = Marks { ecn, ..marks };
        self.resender.policy.on_arriving(payload.len(), now);
        self.resender.wake(now);
        if self.traits.waits || !self.resender.has_session() && self.order.waiting() == 0 {
            return true;
        }
        let Resender { sender, policy, .. } = &mut self.resender;
        if let Some(whole) = policy.rtt(sender) {
            self.order.set_whole(whole);
        }
        self.order.set_acknowledged(policy.is_acknowledged());
        let number = self.next_number;
        self.next_number += 1;
        let identifier = POSITION.of_copy(payload);
        self.order.on_arrival(payload, identifier, number, sender, now);
        let first = self.order.poll_delivery().map(|delivery| delivery.datagram);
        let second = first.and_then(|_| self.order.poll_delivery());
        if first == Some(number) && second.is_none() && outbox.deliveries.is_empty() {
            return true;
        }
        self.waiting.insert(number, Datagram::new(self.peer, marks, payload));
        for datagram in first.into_iter().chain(second.map(|delivery| delivery.datagram)) {
            self.deliver(datagram, outbox);
        }
        self.deliver_all(outbox);
        false
    }

    /// A message of a proxy arrived. Returns false if it changed nothing.
    pub(crate) fn on_message(&mut self, from: SocketAddr, message: &[u8], now: Instant) -> bool {
        // An error changes only the sender's counters.
        let Ok(copied) = self.resender.sender.handle_input(from, message, now) else {
            return false;
        };
        if let Some(copied) = copied.filter(|_| !self.traits.waits) {
            self.on_copy(copied.bytes(message), now);
        }
        true
    }

    /// A copy arrived, or parity rebuilt one.
    fn on_copy(&mut self, copy: &[u8], now: Instant) {
        let Some(identifier) = POSITION.of_copy(copy) else { return };
        let number = self.next_number;
        self.next_number += 1;
        self.waiting.insert(number, Datagram::new(self.peer, self.arriving, copy));
        match self.order.on_copy(copy, identifier, number, &mut self.resender.sender, now) {
            Some(unwanted) => {
                self.waiting.remove(&unwanted);
            }
            None => self.delivered += 1,
        }
    }

    fn deliver(&mut self, number: u64, outbox: &mut Outbox) {
        outbox.deliveries.extend(self.waiting.remove(&number));
    }

    fn deliver_all(&mut self, outbox: &mut Outbox) {
        while let Some(Delivery { datagram, .. }) = self.order.poll_delivery() {
            self.deliver(datagram, outbox);
        }
    }

    /// Completes an input: repairs losses, delivers what need not wait any longer, and queues the
    /// messages that the sender has ready.
    pub(crate) fn settle(&mut self, trusts: &mut Trusts, outbox: &mut Outbox, now: Instant) {
        let (peer, marks) = (self.peer, self.leaving);
        let arrivals = (Some(self.order.state()), !self.traits.waits);
        let settled = self.resender.settle(self.traits, trusts, arrivals, now, |name, payload| {
            outbox.push(Datagram::new(peer, marks, payload), Some(name));
            true
        });
        if !self.traits.waits && (!settled.idle || self.order.waiting() > 0) {
            self.order.update(&mut self.resender.sender, now);
            let mut rebuilt = mem::take(&mut self.rebuilt);
            while self.order.next_rebuilt(&mut rebuilt, &mut self.resender.sender, now) {
                self.on_copy(&rebuilt, now);
            }
            self.rebuilt = rebuilt;
            self.deliver_all(outbox);
        }
        self.transmit(outbox);
    }

    /// A repair left under this name.
    pub(crate) fn on_resent(&mut self, name: u64, payload: &[u8], now: Instant) {
        self.resent += 1;
        self.resender.on_resent(name, payload, now);
    }

    /// Queues the messages and markers that the sender has ready.
    pub(crate) fn transmit(&mut self, outbox: &mut Outbox) {
        let mut message = [0; MAX_DATAGRAM_LEN];
        let marks = Marks { ecn: 0, ..self.leaving };
        while let Some(transmit) = self.resender.sender.poll_transmit(&mut message) {
            let message = message.get(..transmit.size).unwrap_or_default();
            match transmit.route {
                Route::Path { .. } => outbox.push(Datagram::new(self.peer, marks, message), None),
                Route::Session | Route::SecondLink | Route::Stranger { .. } => {
                    outbox.push_message(transmit.destination, marks, message);
                }
            }
        }
    }

    /// Serves the timers that are due.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        let sender = &mut self.resender.sender;
        if sender.poll_timeout().is_some_and(|due| due <= now) {
            sender.on_timeout(now);
        }
    }

    /// When the sender or the gate is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.resender.sender.poll_timeout().into_iter().chain(self.order.poll_timeout()).min()
    }

    /// Ends the help. The application gets what waits.
    pub(crate) fn end(&mut self, outbox: &mut Outbox, now: Instant) {
        self.resender.sender.stop();
        self.order.open(&mut self.resender.sender, now);
        self.deliver_all(outbox);
        self.transmit(outbox);
    }

    /// Whether the path to this host lately lost datagrams; `None` if too few arrived.
    pub(crate) fn is_lossy(&self, now: Instant) -> Option<bool> {
        self.order.is_lossy(now)
    }

    pub(crate) fn status(&self, now: Instant) -> FlowStatus {
        let Resender { sender, policy, .. } = &self.resender;
        FlowStatus {
            peer: self.peer,
            assistance: sender.assistance(),
            rests: policy.rests(),
            withheld: policy.withheld(self.traits, sender, now),
            arrivals: self.order.state(),
            proxy: sender.proxy().map(|(proxy, _)| proxy),
            near_rtt: sender.near_rtt(),
            rtt: policy.rtt(sender),
            sent: self.resender.sent(),
            lost: self.resender.lost(),
            resent: self.resent,
            missed: self.order.counters().missing,
            delivered: self.delivered,
        }
    }
}
