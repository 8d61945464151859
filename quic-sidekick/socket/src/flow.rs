//! One flow: what leaves to a peer, and what arrives from there.

use std::collections::HashMap;
use std::fmt;
use std::iter;
use std::mem;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sidekick_protocol::policy::{
    self, KEEP, MAX_AGE, Policy, RESTS, RoundTrip, STORE, Traits, Trust, Trusts, UNCOUNTED,
    Withheld, is_initial,
};
use sidekick_protocol::{
    Assistance, Delivery, InOrder, InOrderState, Lost, MAX_DATAGRAM_LEN, Payload, Position, Route,
    Sender, SenderConfig, Store,
};

use crate::flows::{Datagram, Marks, Outbox};

/// Packets end in an authentication tag, which differs in each.
const POSITION: Position = Position::End;
/// The first bits of a long header (RFC 9000, section 17.2).
const LONG: u8 = 0xc0;

/// A flow that is helped.
#[derive(Debug)]
pub(crate) struct Flow {
    peer: SocketAddr,
    flow: sidekick_protocol::Flow,
    traits: Traits,
    policy: Policy,
    pub(crate) sender: Sender,
    store: Store,
    /// Whether the loss of datagrams that leave now can be detected.
    pub(crate) has_session: bool,
    was_assisted: bool,
    /// The tags of the handshake's datagrams that left before a proxy counted the flow.
    uncounted: Vec<u64>,
    /// How many more such datagrams may be sent again.
    uncounted_left: usize,
    next_tag: u64,
    /// Arriving datagrams in order, by their numbers, and those of them that wait.
    order: InOrder<u64>,
    waiting: HashMap<u64, Datagram>,
    next_number: u64,
    /// The header fields of the latest datagrams that left and that arrived.
    leaving: Marks,
    arriving: Marks,
    /// When the latest datagram passed, in either direction.
    pub(crate) last: Instant,
    sent: u64,
    lost: u64,
    resent: u64,
    delivered: u64,
    /// The session numbers that the table has for this flow, and when its timer wakes it.
    pub(crate) numbers: Vec<u32>,
    pub(crate) armed: Option<Instant>,
    /// Scratch, kept to avoid allocation.
    found_lost: Vec<Lost>,
    scratch: Vec<u64>,
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
        is_clean: bool,
        now: Instant,
    ) -> Self {
        let flow = sidekick_protocol::Flow { source: local, destination: peer }.canonical();
        let mut sender = Sender::new(Policy::config(config, traits, POSITION), seed);
        sender.start(flow, now);
        if !traits.waits {
            sender.want_copies(KEEP, now);
        }
        Self {
            peer,
            flow,
            traits,
            policy: Policy::new(round_trip),
            sender,
            store: Store::new(STORE, MAX_AGE),
            has_session: false,
            was_assisted: false,
            uncounted: Vec::new(),
            uncounted_left: UNCOUNTED,
            next_tag: 0,
            order: InOrder::new(is_clean),
            waiting: HashMap::new(),
            next_number: 0,
            leaving: Marks::default(),
            arriving: Marks::default(),
            last: now,
            sent: 0,
            lost: 0,
            resent: 0,
            delivered: 0,
            numbers: Vec::new(),
            armed: None,
            found_lost: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// A datagram of the application left. `keeps` states whether there is memory for its copy.
    pub(crate) fn on_sent(&mut self, payload: &[u8], marks: Marks, keeps: bool, now: Instant) {
        (self.last, self.leaving) = (now, marks);
        self.sent += 1;
        self.policy.on_leaving(payload, is_initial(payload), true, now);
        self.wake(now);
        self.sender.on_sent(self.next_tag, Payload::whole(payload), now);
        let is_uncounted = !self.was_assisted
            && self.uncounted_left > 0
            && payload.first().is_some_and(|first| first & LONG == LONG);
        if keeps && (self.has_session || is_uncounted) {
            self.store.push_copy(self.next_tag, payload, now);
            if is_uncounted {
                self.uncounted.push(self.next_tag);
                self.uncounted_left -= 1;
            }
        }
        self.next_tag += 1;
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
        self.policy.on_arriving(now);
        self.wake(now);
        if self.traits.waits || !self.has_session && self.order.waiting() == 0 {
            return true;
        }
        if let Some(whole) = self.policy.rtt(&self.sender) {
            self.order.set_whole(whole);
        }
        let number = self.next_number;
        self.next_number += 1;
        let identifier = POSITION.of_copy(payload);
        self.order.on_arrival(payload, identifier, number, &mut self.sender, now);
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
        let Ok(copied) = self.sender.handle_input(from, message, now) else { return false };
        if let Some(copied) = copied.filter(|_| !self.traits.waits) {
            self.on_copy(copied.bytes(message), now);
        }
        true
    }

    /// A proxy's copy arrived.
    fn on_copy(&mut self, copy: &[u8], now: Instant) {
        let Some(identifier) = POSITION.of_copy(copy) else { return };
        let number = self.next_number;
        self.next_number += 1;
        self.waiting.insert(number, Datagram::new(self.peer, self.arriving, copy));
        match self.order.on_copy(identifier, number, &mut self.sender, now) {
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

    /// Asks a proxy for help again after a pause.
    fn wake(&mut self, now: Instant) {
        if self.policy.wake(now) {
            self.sender.start(self.flow, now);
        }
    }

    /// Completes an input: repairs losses, delivers what need not wait any longer, and queues the
    /// messages that the sender has ready.
    pub(crate) fn settle(&mut self, trusts: &mut Trusts, outbox: &mut Outbox, now: Instant) {
        self.policy.note_queue(&mut self.sender, now);
        let assistance = self.sender.assistance();
        self.was_assisted |= assistance == Assistance::Assisted;
        let has_proxy = !matches!(assistance, Assistance::Unassisted(_));
        let had_session = self.has_session;
        self.has_session = has_proxy && self.sender.session_numbers().next().is_some();
        if self.has_session {
            // No quACK will report whether they arrived.
            for tag in mem::take(&mut self.uncounted) {
                self.repair(tag, iter::once(policy::last_name(tag)), None, outbox, now);
            }
        }
        // Without a session nothing is reported lost, and nothing waits: the stack's datagrams cost
        // little then.
        if had_session || self.has_session || self.order.waiting() > 0 {
            self.scratch.clear();
            self.sender.drain_received(&mut self.scratch);
            self.repair_lost(trusts, outbox, now);
            if !self.traits.waits {
                self.order.update(&mut self.sender, now);
                self.deliver_all(outbox);
            }
        } else {
            // What left meanwhile is no news of the next proxy.
            self.policy.report(&mut self.sender, trusts, 0, now);
        }
        self.transmit(outbox);
    }

    /// Sends lost datagrams again, if nothing speaks against it.
    fn repair_lost(&mut self, trusts: &mut Trusts, outbox: &mut Outbox, now: Instant) {
        let mut lost = mem::take(&mut self.found_lost);
        self.sender.drain_lost(&mut lost);
        lost.retain(|lost| !policy::is_last(lost.tag));
        let count = lost.len() as u64;
        self.lost += count;
        if count > 0 {
            self.policy.judge(self.traits, &mut self.sender);
        }
        let mut trust = self.policy.report(&mut self.sender, trusts, count, now);
        let withheld = self.policy.withheld(self.traits, &self.sender, now);
        self.sender.set_fetching(policy::may_fetch(withheld, Some(self.order.state())));
        let repairs = withheld.is_none() && self.traits.minds_order;
        self.policy.order(repairs, &lost, &mut self.sender, now);
        for Lost { tag, congestion, .. } in lost.drain(..) {
            if withheld.is_none() && !congestion {
                let names = policy::names(tag, self.traits);
                self.repair(tag, names, trust.as_deref_mut(), outbox, now);
            }
        }
        self.found_lost = lost;
    }

    /// Queues a datagram to be sent again, once for each of these names.
    fn repair(
        &mut self,
        tag: u64,
        names: impl Iterator<Item = u64>,
        mut trust: Option<&mut Trust>,
        outbox: &mut Outbox,
        now: Instant,
    ) {
        for name in names {
            let Some(payload) = self.store.get_for_resend(tag, now) else { return };
            let len = payload.len();
            if trust.as_mut().is_some_and(|trust| !trust.spend(name, len)) {
                self.store.refund(len);
                return;
            }
            outbox.push(Datagram::new(self.peer, self.leaving, payload), Some(name));
        }
    }

    /// A repair left under this name.
    pub(crate) fn on_resent(&mut self, name: u64, payload: &[u8], now: Instant) {
        self.resent += 1;
        self.policy.on_repaired();
        // The proxy counts it as another datagram.
        self.sender.on_sent(name, Payload::whole(payload), now);
    }

    /// Queues the messages and markers that the sender has ready.
    pub(crate) fn transmit(&mut self, outbox: &mut Outbox) {
        let mut message = [0; MAX_DATAGRAM_LEN];
        let marks = Marks { ecn: 0, ..self.leaving };
        while let Some(transmit) = self.sender.poll_transmit(&mut message) {
            let message = message.get(..transmit.size).unwrap_or_default();
            match transmit.route {
                Route::Path { .. } => outbox.push(Datagram::new(self.peer, marks, message), None),
                Route::Session | Route::Stranger { .. } => {
                    outbox.push_message(transmit.destination, marks, message);
                }
            }
        }
    }

    /// Serves the timers that are due.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        if self.sender.poll_timeout().is_some_and(|due| due <= now) {
            self.sender.on_timeout(now);
        }
    }

    /// When the sender or the gate is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.sender.poll_timeout().into_iter().chain(self.order.poll_timeout()).min()
    }

    /// Ends the help. The application gets what waits.
    pub(crate) fn end(&mut self, outbox: &mut Outbox, now: Instant) {
        self.sender.stop();
        self.order.open(&mut self.sender, now);
        self.deliver_all(outbox);
        self.transmit(outbox);
    }

    /// Drops copies that are too old to be sent again. Returns the bytes of the others.
    pub(crate) fn expire(&mut self, now: Instant) -> usize {
        self.store.expire(now);
        self.store.bytes()
    }

    /// Bytes of copies.
    pub(crate) fn memory(&self) -> usize {
        self.store.bytes()
    }

    /// Whether the path to this host lately lost datagrams; `None` if too few arrived.
    pub(crate) fn is_lossy(&self, now: Instant) -> Option<bool> {
        self.order.is_lossy(now)
    }

    pub(crate) fn status(&self, now: Instant) -> FlowStatus {
        FlowStatus {
            peer: self.peer,
            assistance: self.sender.assistance(),
            rests: self.policy.rests(),
            withheld: self.policy.withheld(self.traits, &self.sender, now),
            arrivals: self.order.state(),
            proxy: self.sender.proxy().map(|(proxy, _)| proxy),
            near_rtt: self.sender.near_rtt(),
            rtt: self.policy.rtt(&self.sender),
            sent: self.sent,
            lost: self.lost,
            resent: self.resent,
            missed: self.order.counters().missing,
            delivered: self.delivered,
        }
    }
}
