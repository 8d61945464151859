//! A near segment in virtual time, between a sender and an observer.

use crate::wire::MAX_DATAGRAM_LEN;
use crate::{
    Addresses, Flow, Lost, Observed, Observer, ObserverConfig, Payload, Route, Sender,
    SenderConfig, Store, clock::Numbers,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The impairments of the near segment, for data and messages alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Near {
    pub(crate) delay: Duration,
    /// Extra delay, uniform from 0 to this. It reorders packets if it exceeds their spacing.
    pub(crate) jitter: Duration,
    pub(crate) loss_percent: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Arrival {
    Data(u64, Vec<u8>),
    Marker(Vec<u8>),
    ToProxy(Vec<u8>),
    ToSender(Vec<u8>),
    AlongPath(Vec<u8>),
}

/// No tag, for comparisons.
pub(crate) const NONE: [u64; 0] = [];

/// The address of the proxy's port.
pub(crate) const PROXY: &str = "192.0.2.254:5252";
/// The sender's adjacent socket.
pub(crate) const PEER: &str = "192.0.2.1:5000";

pub(crate) struct Simulation {
    pub(crate) now: Instant,
    pub(crate) sender: Sender,
    pub(crate) proxy: Option<Observer>,
    pub(crate) near: Near,
    pub(crate) flow: Flow,
    /// Whether data passes the proxy.
    pub(crate) on_path: bool,
    /// The proxy's interface that captures the data.
    pub(crate) interface: u32,
    /// The adjacent socket, as the proxy sees it.
    pub(crate) peer: SocketAddr,
    /// The flow as the proxy sees it, if there is a NAT.
    pub(crate) translated: Option<Flow>,
    /// Whether the adjacent socket receives from the proxy before it sends there.
    pub(crate) open: bool,
    /// The adjacent socket has sent to the proxy, so a firewall admits the proxy's answers.
    sent_to_proxy: bool,
    random: Numbers,
    in_flight: BinaryHeap<Reverse<(Instant, u64, Arrival)>>,
    order: u64,
    next_tag: u64,
    /// The length of each packet, 29 bytes or more.
    pub(crate) packet_len: usize,
    /// Tags of packets that the near segment dropped, and of those that crossed it.
    pub(crate) dropped: BTreeSet<u64>,
    pub(crate) arrived: BTreeSet<u64>,
    /// When the proxy counted each packet.
    pub(crate) counted: BTreeMap<u64, Instant>,
    /// The percentage of datagrams that arrive twice, and of those that arrive with a wrong bit. It
    /// applies to data and messages alike. Data with a wrong bit is lost.
    pub(crate) duplicate_percent: u64,
    pub(crate) damage_percent: u64,
    /// Tags that the sender declared lost, each with the time since the packet was sent.
    pub(crate) declared: Vec<(u64, Duration)>,
    /// Tags that quACKs reported.
    pub(crate) received: BTreeSet<u64>,
    pub(crate) sent_at: Vec<Instant>,
    /// If set, the sender re-injects from it the datagrams that it declares lost.
    pub(crate) store: Option<Store>,
    pub(crate) resent: u64,
    /// The near segment drops this many of the next re-injections.
    pub(crate) lost_repairs: u32,
    /// Datagrams that arrived again after an earlier transmission had arrived.
    pub(crate) repeated: u64,
}

/// The key of a random generator, from a small number.
pub(crate) fn key(seed: u64) -> [u8; 32] {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key
}

/// A proxy with the address [`PROXY`].
pub(crate) fn proxy(config: ObserverConfig, seed: u64) -> Observer {
    let mut proxy = Observer::new(config, key(seed)).unwrap();
    proxy.set_addresses(Addresses::announcing(0, PROXY.parse().unwrap()));
    proxy
}

/// The default sender, configured with the proxy's address.
pub(crate) fn configured() -> SenderConfig {
    SenderConfig::of(PROXY.parse().unwrap())
}

/// Exchanges all waiting messages at one instant.
pub(crate) fn exchange(sender: &mut Sender, proxy: &mut Observer, peer: &str, now: Instant) {
    let mut buffer = [0; MAX_DATAGRAM_LEN];
    while let Some(transmit) = sender.poll_transmit(&mut buffer) {
        let message = &buffer[..transmit.size];
        let _ = proxy.handle_input(peer.parse::<SocketAddr>().unwrap(), message, now);
        while let Some(transmit) = proxy.poll_transmit(&mut buffer) {
            sender.handle_input(PROXY.parse().unwrap(), &buffer[..transmit.size], now).unwrap();
        }
    }
}

impl Simulation {
    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    pub(crate) fn new(
        config: SenderConfig,
        observer: ObserverConfig,
        near: Near,
        seed: u64,
    ) -> Self {
        let now = Instant::now();
        let flow = Flow {
            source: "192.0.2.1:4000".parse().unwrap(),
            destination: "198.51.100.7:443".parse().unwrap(),
        };
        let mut sender = Sender::new(config, key(seed));
        sender.set_adjacent_port(5000);
        sender.start(flow, now);
        let mut this = Self {
            now,
            sender,
            proxy: Some(proxy(observer, seed + 1)),
            near,
            flow,
            on_path: true,
            interface: 0,
            peer: PEER.parse().unwrap(),
            translated: None,
            open: true,
            sent_to_proxy: false,
            random: Numbers::new(key(seed ^ 0xdead_beef)),
            in_flight: BinaryHeap::new(),
            order: 0,
            next_tag: 0,
            packet_len: 300,
            dropped: BTreeSet::new(),
            arrived: BTreeSet::new(),
            counted: BTreeMap::new(),
            duplicate_percent: 0,
            damage_percent: 0,
            declared: Vec::new(),
            received: BTreeSet::new(),
            sent_at: Vec::new(),
            store: None,
            resent: 0,
            lost_repairs: 0,
            repeated: 0,
        };
        this.drain();
        this
    }

    fn lost(&mut self) -> bool {
        u64::from(self.random.next_u32()) % 100 < self.near.loss_percent
    }

    fn chance(&mut self, percent: u64) -> bool {
        percent > 0 && u64::from(self.random.next_u32()) % 100 < percent
    }

    fn launch(&mut self, mut arrival: Arrival) {
        if self.chance(self.duplicate_percent) {
            self.launch_once(arrival.clone());
        }
        if self.chance(self.damage_percent) {
            let bit = self.random.next_u32();
            let bytes = match &mut arrival {
                // The UDP checksum detects it.
                Arrival::Data(..) => return,
                Arrival::Marker(bytes)
                | Arrival::ToProxy(bytes)
                | Arrival::ToSender(bytes)
                | Arrival::AlongPath(bytes) => bytes,
            };
            let len = bytes.len();
            bytes[usize::try_from(bit / 8).unwrap() % len] ^= 1 << (bit % 8);
        }
        self.launch_once(arrival);
    }

    fn launch_once(&mut self, arrival: Arrival) {
        let jitter = u64::try_from(self.near.jitter.as_nanos()).unwrap();
        let extra = Duration::from_nanos(if jitter == 0 {
            0
        } else {
            u64::from(self.random.next_u32()) % jitter
        });
        self.order += 1;
        self.in_flight.push(Reverse((self.now + self.near.delay + extra, self.order, arrival)));
    }

    fn drain(&mut self) {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        while let Some(transmit) = self.sender.poll_transmit(&mut buffer) {
            if !self.lost() {
                let bytes = buffer[..transmit.size].to_vec();
                let proxy = transmit.destination;
                self.launch(match transmit.route {
                    Route::Session if proxy == PROXY.parse().unwrap() => Arrival::ToProxy(bytes),
                    // The answer to the marker was damaged, so it names another proxy.
                    Route::Session if self.damage_percent > 0 => continue,
                    Route::Path { source, .. } => {
                        assert_eq!(self.flow, Flow { source, destination: transmit.destination });
                        Arrival::Marker(bytes)
                    }
                    _ => panic!("a message to {proxy}"),
                });
            }
        }
        while let Some(transmit) =
            self.proxy.as_mut().and_then(|proxy| proxy.poll_transmit(&mut buffer))
        {
            if !self.lost() {
                let bytes = buffer[..transmit.size].to_vec();
                let to = transmit.destination;
                match transmit.route {
                    Route::Path { source, .. } => {
                        let seen = self.translated.unwrap_or(self.flow);
                        assert_eq!((source, to), (seen.destination, seen.source));
                        self.launch(Arrival::AlongPath(bytes));
                    }
                    _ if self.open || to == self.peer && self.sent_to_proxy => {
                        self.launch(Arrival::ToSender(bytes));
                    }
                    _ => {}
                }
            }
        }
        let mut received = Vec::new();
        self.sender.drain_received(&mut received);
        for tag in received {
            assert!(self.received.insert(tag), "{tag} was received twice");
        }
        let mut lost = Vec::new();
        self.sender.drain_lost(&mut lost);
        for Lost { tag, .. } in lost {
            let sent = self.sent_at[usize::try_from(tag).unwrap()];
            self.declared.push((tag, self.now - sent));
            let again = self.store.as_mut().and_then(|store| store.get_for_resend(tag, self.now));
            if let Some(datagram) = again.map(<[u8]>::to_vec) {
                self.resent += 1;
                let is_dropped = self.lost_repairs > 0;
                self.lost_repairs -= u32::from(is_dropped);
                self.transmit(tag, datagram, is_dropped.then_some(true));
            }
        }
    }

    /// Sends a data packet. `is_dropped` states whether the near segment drops it. If `None`,
    /// chance decides.
    pub(crate) fn send(&mut self, is_dropped: Option<bool>) -> u64 {
        let tag = self.next_tag;
        self.next_tag += 1;
        let mut datagram = vec![0x40; self.packet_len];
        let identifier = self.random.next_u32();
        datagram[21..25].copy_from_slice(&identifier.to_be_bytes());
        datagram[self.packet_len - 4..].copy_from_slice(&identifier.to_be_bytes());
        self.sent_at.push(self.now);
        if let Some(store) = &mut self.store {
            store.push_copy(tag, &datagram, self.now);
        }
        self.transmit(tag, datagram, is_dropped);
        self.drain();
        tag
    }

    fn transmit(&mut self, tag: u64, datagram: Vec<u8>, is_dropped: Option<bool>) {
        self.sender.on_sent(tag, Payload::whole(&datagram), self.now);
        let chance = self.lost();
        if is_dropped.unwrap_or(chance) {
            self.dropped.insert(tag);
        } else {
            self.launch(Arrival::Data(tag, datagram));
        }
    }

    /// Advances the time by `duration`.
    pub(crate) fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let arrival = self.in_flight.peek().map(|Reverse((at, ..))| *at);
            let proxy = self.proxy.as_ref().and_then(Observer::poll_timeout);
            let next = [arrival, self.sender.poll_timeout(), proxy].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            if arrival == Some(next)
                && let Some(Reverse((_, _, arrival))) = self.in_flight.pop()
            {
                self.arrive(arrival);
            }
            self.sender.on_timeout(self.now);
            if let Some(proxy) = &mut self.proxy {
                proxy.on_timeout(self.now);
            }
            self.drain();
            assert!(
                self.sender.poll_timeout().is_none_or(|at| at > self.now),
                "the sender's timeout does not advance"
            );
        }
        self.now = end;
    }

    /// The proxy's result for a datagram of the flow, if the flow passes a proxy.
    fn observe(&mut self, datagram: &[u8]) -> Option<Observed> {
        let flow = self.translated.unwrap_or(self.flow);
        let proxy = self.proxy.as_mut().filter(|_| self.on_path)?;
        Some(proxy.observe(&flow, self.interface, Payload::whole(datagram), self.now))
    }

    fn arrive(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Data(tag, datagram) => {
                self.repeated += u64::from(!self.arrived.insert(tag));
                if self.observe(&datagram) == Some(Observed::Counted) {
                    self.counted.entry(tag).or_insert(self.now);
                }
            }
            Arrival::Marker(datagram) => {
                let seen = self.observe(&datagram);
                assert!(
                    seen.is_none_or(|seen| seen == Observed::Marker) || self.damage_percent > 0
                );
            }
            Arrival::ToProxy(datagram) => {
                self.sent_to_proxy = true;
                if let Some(proxy) = &mut self.proxy {
                    let _ = proxy.handle_input(self.peer, &datagram, self.now);
                }
            }
            Arrival::ToSender(datagram) => {
                let _ = self.sender.handle_input(PROXY.parse().unwrap(), &datagram, self.now);
            }
            Arrival::AlongPath(datagram) => {
                let _ = self.sender.handle_on_path(&datagram, self.now);
            }
        }
    }

    /// Sends `packets`, one per `spacing`.
    pub(crate) fn stream(&mut self, packets: usize, spacing: Duration) {
        for _ in 0..packets {
            self.send(None);
            self.run(spacing);
        }
    }

    /// Tags that were declared lost although they arrived.
    pub(crate) fn false_alarms(&self) -> Vec<u64> {
        self.declared.iter().map(|(tag, _)| *tag).filter(|tag| self.arrived.contains(tag)).collect()
    }

    /// Lost packets from `from` on that the sender did not declare lost.
    pub(crate) fn overlooked(&self, from: u64) -> Vec<u64> {
        let declared: BTreeSet<u64> = self.declared.iter().map(|(tag, _)| *tag).collect();
        self.dropped.range(from..).filter(|tag| !declared.contains(tag)).copied().collect()
    }
}
