//! All flows of a socket, without I/O.

use std::collections::hash_map::Entry as Place;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use foldhash::quality::RandomState;
use sidekick_protocol::Sender;
use sidekick_protocol::policy::{Named, RoundTrip, Trusts, is_initial};
use sidekick_protocol::repair::ReceiveRepair;

use crate::Config;
use crate::flow::{Flow, FlowStatus};
use crate::outbox::{Datagram, Marks, Outbox};

/// Most flows that are helped at a time, and most that may be. Datagrams of others pass without
/// help.
const PEERS: usize = 1024;
/// A flow of which no datagram passed for this time is forgotten; and one without help.
const IDLE: Duration = Duration::from_secs(60);
const STRANGER_IDLE: Duration = Duration::from_secs(3);
/// How often idle peers and old copies are dropped.
const SWEEP: Duration = Duration::from_secs(1);
/// The help for a flow that the peer began waits until so many datagrams left: anyone can make a
/// server answer a few.
const STRANGERS: u32 = 8;
/// Most bytes of copies, of all flows together.
const MEMORY: usize = 64 << 20;
/// A flow that begins within this time after others arrived without a loss expects none.
const CLEAN: Duration = Duration::from_secs(60);

/// What becomes of a datagram that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The application gets it now.
    Passes,
    /// It was a proxy's, or it waits for those before it. The application gets what
    /// [`Flows::poll_delivery`] returns.
    Taken,
}

/// A peer.
#[derive(Debug)]
enum Entry {
    /// It began the flow, and few datagrams have left.
    Stranger {
        left: u32,
        round_trip: Box<RoundTrip>,
        last: Instant,
    },
    Helped(Box<Flow>),
}

/// All flows of a socket: the help without its I/O.
///
/// Call [`on_sent`](Self::on_sent) for the datagrams of the application that left, and
/// [`on_received`](Self::on_received) for each that arrives; [`on_timeout`](Self::on_timeout) at
/// [`poll_timeout`](Self::poll_timeout). After each of these, or after several at one time, call
/// [`transmit`](Self::transmit), and then pass what [`poll_delivery`](Self::poll_delivery) returns
/// to the application.
///
/// A message of a proxy reports what left before. So a caller with threads holds a lock from the
/// system's call that sends or receives until the call here.
pub struct Flows {
    config: Config,
    local: SocketAddr,
    random: Box<dyn FnMut() -> Option<[u8; 32]> + Send>,
    peers: HashMap<SocketAddr, Entry, RandomState>,
    /// Those of them that are helped.
    helped: usize,
    common: Common,
    sweep_at: Option<Instant>,
    /// Proxies that answers have named.
    named: Named,
    /// Bytes of copies.
    memory: usize,
    /// Until then, a new flow expects no losses of what arrives: others lately had none.
    clean_until: Option<Instant>,
    /// The flow of the latest datagrams that arrived, while more may follow.
    unsettled: Option<SocketAddr>,
}

/// What all flows of a socket share.
#[derive(Debug, Default)]
struct Common {
    /// The flow of a session's number.
    numbers: HashMap<u32, SocketAddr>,
    /// When each flow with a deadline is due.
    timers: BTreeSet<(Instant, SocketAddr)>,
    trusts: Trusts,
    outbox: Outbox,
}

impl Common {
    /// Completes an input of a flow, and sets its timer.
    fn settle(&mut self, flow: &mut Flow, key: SocketAddr, now: Instant) {
        flow.settle(&mut self.trusts, &mut self.outbox, now);
        if !flow.resender.sender.session_numbers().eq(flow.numbers.iter().copied()) {
            self.forget_numbers(flow, key);
            flow.numbers.clear();
            flow.numbers.extend(flow.resender.sender.session_numbers());
            self.numbers.extend(flow.numbers.iter().map(|number| (*number, key)));
        }
        self.arm(flow, key);
    }

    /// Sets a flow's timer, unless an earlier one wakes it.
    fn arm(&mut self, flow: &mut Flow, key: SocketAddr) {
        if let Some(due) = flow.poll_timeout()
            && flow.armed.is_none_or(|armed| due < armed)
        {
            if let Some(armed) = flow.armed.replace(due) {
                self.timers.remove(&(armed, key));
            }
            self.timers.insert((due, key));
        }
    }

    fn forget_numbers(&mut self, flow: &Flow, key: SocketAddr) {
        for number in &flow.numbers {
            if self.numbers.get(number) == Some(&key) {
                self.numbers.remove(number);
            }
        }
    }

    /// Ends a flow.
    fn end(&mut self, flow: &mut Flow, key: SocketAddr, now: Instant) {
        flow.end(&mut self.outbox, now);
        self.forget_numbers(flow, key);
        if let Some(at) = flow.armed {
            self.timers.remove(&(at, key));
        }
    }
}

impl fmt::Debug for Flows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flows").field("local", &self.local).finish_non_exhaustive()
    }
}

fn key(peer: SocketAddr) -> SocketAddr {
    SocketAddr::new(peer.ip().to_canonical(), peer.port())
}

impl Flows {
    /// No flows yet, of a socket at `local`, whose address may be unspecified. `random` draws the
    /// secrets of a flow; one without secrets gets no help.
    pub fn new(
        config: Config,
        local: SocketAddr,
        random: impl FnMut() -> Option<[u8; 32]> + Send + 'static,
    ) -> Self {
        Self {
            config,
            local,
            random: Box::new(random),
            peers: HashMap::default(),
            helped: 0,
            common: Common {
                outbox: Outbox { maps: local.is_ipv6(), ..Outbox::default() },
                ..Common::default()
            },
            sweep_at: None,
            named: Named::default(),
            memory: 0,
            clean_until: None,
            unsettled: None,
        }
    }

    /// Datagrams of the application left, one or some at once.
    pub fn on_sent<'a>(
        &mut self,
        peer: SocketAddr,
        marks: Marks,
        datagrams: impl IntoIterator<Item = &'a [u8]>,
        now: Instant,
    ) {
        let key = key(peer);
        let mut datagrams = datagrams.into_iter();
        match self.peers.get_mut(&key) {
            Some(Entry::Helped(_)) => {}
            Some(Entry::Stranger { left, round_trip, last }) => {
                *last = now;
                for payload in datagrams.by_ref() {
                    *left += 1;
                    round_trip.on_leaving(payload, is_initial(payload), true, now);
                    if *left >= STRANGERS {
                        break;
                    }
                }
                if *left < STRANGERS {
                    return;
                }
                let round_trip = **round_trip;
                self.begin(peer, marks, round_trip, now);
            }
            None => self.begin(peer, marks, RoundTrip::default(), now),
        }
        if let Some(Entry::Helped(flow)) = self.peers.get_mut(&key) {
            let others = self.memory.saturating_sub(flow.resender.memory());
            for payload in datagrams {
                flow.on_sent(payload, marks, others + flow.resender.memory() < MEMORY, now);
                if flow.resender.has_session() {
                    // Each datagram of a batch is in several lists, since any may be lost.
                    flow.transmit(&mut self.common.outbox);
                }
            }
            self.memory = others + flow.resender.memory();
            self.common.settle(flow, key, now);
        }
    }

    /// A datagram arrived.
    pub fn on_received(
        &mut self,
        peer: SocketAddr,
        marks: Marks,
        payload: &[u8],
        now: Instant,
    ) -> Arrival {
        let key = key(peer);
        // Without the number of a session, what looks like a message may be another peer's: anyone
        // can name its address as that of a proxy.
        if let Some(number) = Sender::session_number(payload)
            && self.common.outbox.proxies.contains(&key)
            && let Some(flow) = self.common.numbers.get(&number).copied()
            && let Some(Entry::Helped(helped)) = self.peers.get_mut(&flow)
        {
            if helped.on_message(key, payload, now) {
                self.named.on_answer(key.ip(), now);
            }
            // The next message of a batch would replace what this one brought.
            self.common.settle(helped, flow, now);
            return Arrival::Taken;
        }
        let has_room = self.peers.len() - self.helped < PEERS;
        let entry = match self.peers.entry(key) {
            Place::Occupied(entry) => entry.into_mut(),
            Place::Vacant(_) if !has_room => return Arrival::Passes,
            Place::Vacant(entry) => {
                self.sweep_at.get_or_insert(now + SWEEP);
                let round_trip = Box::default();
                entry.insert(Entry::Stranger { left: 0, round_trip, last: now })
            }
        };
        match entry {
            Entry::Helped(flow) if Sender::is_answer(payload) => {
                let (about, chosen) = ((key.ip(), payload), self.config.sender());
                // The socket knows no addresses of this machine. If the sender does not ask the
                // proxy, nothing changes.
                let _ =
                    self.named.introduce(&mut flow.resender.sender, &chosen, |_| false, about, now);
                self.common.settle(flow, key, now);
                Arrival::Taken
            }
            Entry::Helped(flow) => {
                let passes = flow.on_received(payload, marks, &mut self.common.outbox, now);
                if let Some(is_lossy) = flow.is_lossy(now) {
                    self.clean_until = (!is_lossy).then(|| now + CLEAN);
                }
                if self.unsettled != Some(key) {
                    self.settle_rest(now);
                    self.unsettled = Some(key);
                }
                if passes { Arrival::Passes } else { Arrival::Taken }
            }
            Entry::Stranger { round_trip, last, .. } => {
                *last = now;
                round_trip.on_arriving(now);
                Arrival::Passes
            }
        }
    }

    /// Begins the help for a flow, if there is room.
    fn begin(&mut self, peer: SocketAddr, marks: Marks, round_trip: RoundTrip, now: Instant) {
        if self.helped >= PEERS {
            return;
        }
        let Some(seed) = (self.random)() else { return };
        let (config, traits) = (self.config.sender(), self.config.traits);
        let local = marks.local.map_or(self.local, |ip| (ip, self.local.port()).into());
        let is_clean = self.clean_until.is_some_and(|until| now < until);
        let order = (ReceiveRepair::beside(self.helped), is_clean);
        let flow = Flow::begin(config, traits, seed, (local, peer), round_trip, order, now);
        self.peers.insert(key(peer), Entry::Helped(Box::new(flow)));
        self.helped += 1;
        self.sweep_at.get_or_insert(now + SWEEP);
    }

    fn settle_rest(&mut self, now: Instant) {
        if let Some(key) = self.unsettled.take()
            && let Some(Entry::Helped(flow)) = self.peers.get_mut(&key)
        {
            self.common.settle(flow, key, now);
        }
    }

    /// Sends what is ready. `send` returns whether the system took the datagram; one that it did
    /// not take is lost.
    pub fn transmit(&mut self, now: Instant, mut send: impl FnMut(&Datagram) -> bool) {
        self.settle_rest(now);
        while let Some((datagram, name)) = self.common.outbox.leaving.pop_front() {
            let key = key(datagram.peer);
            if send(&datagram)
                && let Some(name) = name
                && let Some(Entry::Helped(flow)) = self.peers.get_mut(&key)
            {
                flow.on_resent(name, &datagram.payload, now);
                self.common.arm(flow, key);
            }
        }
    }

    /// The next datagram for the application, in order. A caller that has not passed one on yet for
    /// which [`Arrival::Passes`] was returned does that before.
    pub fn poll_delivery(&mut self) -> Option<Datagram> {
        self.common.outbox.deliveries.pop_front()
    }

    /// The same, without taking it.
    #[must_use]
    pub fn peek_delivery(&self) -> Option<&Datagram> {
        self.common.outbox.deliveries.front()
    }

    /// Lets a datagram wait behind the others that [`Flows::poll_delivery`] returns.
    pub fn push_delivery(&mut self, datagram: Datagram) {
        self.common.outbox.deliveries.push_back(datagram);
    }

    /// When [`Flows::on_timeout`] is due. Like the other queries, it knows all inputs only after
    /// [`Flows::transmit`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.common.timers.first().map(|(at, _)| *at).into_iter().chain(self.sweep_at).min()
    }

    /// Serves the timers that are due at `now`.
    pub fn on_timeout(&mut self, now: Instant) {
        while let Some((at, _)) = self.common.timers.first()
            && *at <= now
            && let Some((_, key)) = self.common.timers.pop_first()
        {
            if let Some(Entry::Helped(flow)) = self.peers.get_mut(&key) {
                flow.armed = None;
                flow.on_timeout(now);
                self.common.settle(flow, key, now);
            }
        }
        if self.sweep_at.is_some_and(|at| at <= now) {
            self.sweep(now);
        }
    }

    /// Drops old copies and idle peers.
    fn sweep(&mut self, now: Instant) {
        let mut memory = 0;
        let Self { peers, helped, common, .. } = self;
        peers.retain(|key, entry| match entry {
            Entry::Stranger { last, .. } => now < *last + STRANGER_IDLE,
            Entry::Helped(flow) if now < flow.last + IDLE => {
                flow.resender.expire(now);
                memory += flow.resender.memory();
                true
            }
            Entry::Helped(flow) => {
                common.end(flow, *key, now);
                *helped -= 1;
                false
            }
        });
        self.memory = memory;
        self.sweep_at = (!self.peers.is_empty()).then(|| now + SWEEP);
    }

    /// Ends the help for all peers. Call it before the socket closes, and then
    /// [`Flows::transmit`], so that proxies learn of it.
    pub fn close(&mut self, now: Instant) {
        for (key, entry) in self.peers.drain() {
            if let Entry::Helped(mut flow) = entry {
                self.common.end(&mut flow, key, now);
            }
        }
        (self.sweep_at, self.helped, self.memory) = (None, 0, 0);
    }

    /// The flows that are helped, in no particular order.
    pub fn status(&self, now: Instant) -> impl Iterator<Item = FlowStatus> + '_ {
        self.peers.values().filter_map(move |entry| match entry {
            Entry::Helped(flow) => Some(flow.status(now)),
            Entry::Stranger { .. } => None,
        })
    }
}
