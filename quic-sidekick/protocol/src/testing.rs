//! A near segment in virtual time, with a sender at one end and an observer at the other.

use crate::wire::MAX_MESSAGE_LEN;
use crate::{Flow, Observer, ObserverConfig, Sender, SenderConfig, clock::Numbers};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::{Duration, Instant};

/// What the near segment does to each datagram, data and messages alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Near {
    pub(crate) delay: Duration,
    /// Extra delay, drawn evenly from 0 to this: more than the packets' spacing reorders them.
    pub(crate) jitter: Duration,
    pub(crate) loss_percent: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Arrival {
    Data(u64, Vec<u8>),
    ToProxy(Vec<u8>),
    ToSender(Vec<u8>),
}

pub(crate) struct Simulation {
    pub(crate) now: Instant,
    pub(crate) sender: Sender,
    pub(crate) proxy: Option<Observer>,
    pub(crate) near: Near,
    pub(crate) flow: Flow,
    /// Whether data passes by the proxy.
    pub(crate) on_path: bool,
    /// On which of the proxy's interfaces it comes in.
    pub(crate) interface: u32,
    random: Numbers,
    in_flight: BinaryHeap<Reverse<(Instant, u64, Arrival)>>,
    order: u64,
    next_tag: u64,
    /// Tags of packets that the near segment swallowed, and that reached its other end.
    pub(crate) swallowed: BTreeSet<u64>,
    pub(crate) arrived: BTreeSet<u64>,
    /// Tags that the sender declared lost, with the time since the packet was sent.
    pub(crate) declared: Vec<(u64, Duration)>,
    sent_at: Vec<Instant>,
}

/// A generator's key from a small number.
pub(crate) fn key(seed: u64) -> [u8; 32] {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    key
}

impl Simulation {
    #[allow(clippy::disallowed_methods, reason = "virtual time has to begin somewhere")]
    pub(crate) fn new(config: SenderConfig, observer: ObserverConfig, near: Near, seed: u64) -> Self {
        let now = Instant::now();
        let flow = Flow {
            source: "192.0.2.1:4000".parse().unwrap(),
            destination: "198.51.100.7:443".parse().unwrap(),
        };
        let mut sender = Sender::new(config, key(seed));
        sender.start(flow, now);
        let mut this = Self {
            now,
            sender,
            proxy: Some(Observer::new(observer, key(seed + 1)).unwrap()),
            near,
            flow,
            on_path: true,
            interface: 0,
            random: Numbers::new(key(seed ^ 0xdead_beef)),
            in_flight: BinaryHeap::new(),
            order: 0,
            next_tag: 0,
            swallowed: BTreeSet::new(),
            arrived: BTreeSet::new(),
            declared: Vec::new(),
            sent_at: Vec::new(),
        };
        this.drain();
        this
    }

    fn lost(&mut self) -> bool {
        self.random.next_u64() % 100 < self.near.loss_percent
    }

    fn launch(&mut self, arrival: Arrival) {
        let jitter = u64::try_from(self.near.jitter.as_nanos()).unwrap();
        let extra = Duration::from_nanos(if jitter == 0 { 0 } else { self.random.next_u64() % jitter });
        self.order += 1;
        self.in_flight.push(Reverse((self.now + self.near.delay + extra, self.order, arrival)));
    }

    fn drain(&mut self) {
        let mut buffer = [0; MAX_MESSAGE_LEN];
        while let Some(len) = self.sender.transmit(&mut buffer) {
            if !self.lost() {
                self.launch(Arrival::ToProxy(buffer[..len].to_vec()));
            }
        }
        while let Some((_, len)) = self.proxy.as_mut().and_then(|proxy| proxy.transmit(&mut buffer)) {
            if !self.lost() {
                self.launch(Arrival::ToSender(buffer[..len].to_vec()));
            }
        }
        let mut lost = Vec::new();
        self.sender.drain_lost(&mut lost);
        for tag in lost {
            let sent = self.sent_at[usize::try_from(tag).unwrap()];
            self.declared.push((tag, self.now - sent));
        }
    }

    /// Sends one data packet; `swallow` decides its fate, or chance does.
    pub(crate) fn send(&mut self, swallow: Option<bool>) -> u64 {
        let tag = self.next_tag;
        self.next_tag += 1;
        let mut datagram = vec![0x40; 30];
        let identifier = self.random.next_u32();
        datagram[21..25].copy_from_slice(&identifier.to_be_bytes());
        self.sent_at.push(self.now);
        self.sender.on_sent(tag, &datagram, datagram.len(), self.now);
        let chance = self.lost();
        if swallow.unwrap_or(chance) {
            self.swallowed.insert(tag);
        } else {
            self.launch(Arrival::Data(tag, datagram));
        }
        self.drain();
        tag
    }

    /// Lets the time pass.
    pub(crate) fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let arrival = self.in_flight.peek().map(|Reverse((at, ..))| *at);
            let proxy = self.proxy.as_ref().and_then(Observer::next_deadline);
            let next = [arrival, self.sender.next_deadline(), proxy].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            if arrival == Some(next)
                && let Some(Reverse((_, _, arrival))) = self.in_flight.pop()
            {
                self.arrive(arrival);
            }
            self.sender.on_deadline(self.now);
            if let Some(proxy) = &mut self.proxy {
                proxy.on_deadline(self.now);
            }
            self.drain();
            assert!(self.sender.next_deadline().is_none_or(|at| at > self.now), "the sender would spin");
        }
        self.now = end;
    }

    fn arrive(&mut self, arrival: Arrival) {
        let peer = "192.0.2.1:5000".parse().unwrap();
        match arrival {
            Arrival::Data(tag, datagram) => {
                self.arrived.insert(tag);
                if let Some(proxy) = self.proxy.as_mut().filter(|_| self.on_path) {
                    proxy.observe(&self.flow, self.interface, &datagram, datagram.len(), self.now);
                }
            }
            Arrival::ToProxy(datagram) => {
                if let Some(proxy) = &mut self.proxy {
                    let _ = proxy.handle(peer, &datagram, self.now);
                }
            }
            Arrival::ToSender(datagram) => {
                let _ = self.sender.handle(&datagram, self.now);
            }
        }
    }

    /// A steady flow of `packets`, one every `spacing`.
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

    /// Swallowed packets from `from` on that nobody declared.
    pub(crate) fn overlooked(&self, from: u64) -> Vec<u64> {
        let declared: BTreeSet<u64> = self.declared.iter().map(|(tag, _)| *tag).collect();
        self.swallowed.range(from..).filter(|tag| !declared.contains(tag)).copied().collect()
    }
}
