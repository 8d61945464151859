//! A network of an agent and a proxy, in virtual time.

#[path = "../../../../tests/common/frames.rs"]
pub(in crate::agent) mod frames;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashSet};

use sidekick_protocol::{Addresses, MAX_DATAGRAM_LEN, Observer, ObserverConfig, Payload, Route};

use crate::agent::flows::*;
pub(super) use crate::agent::virtual_host::packet;
use crate::packet::{Datagram, Link, parse};
use crate::runtime::clock;

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const PROXY: &str = "192.0.2.254:5252";
pub(super) const AGENT: &str = "192.0.2.1:6000";

pub(super) fn flow(port: u16) -> Flow {
    let (source, destination) = (([192, 0, 2, 1], port), ([198, 51, 100, 7], 443));
    Flow { source: source.into(), destination: destination.into() }
}

/// A payload that looks encrypted, behind a short header of QUIC.
pub(in crate::agent) fn encrypted(number: u64) -> Vec<u8> {
    let mut payload = vec![0x40; 200];
    frames::fill(&mut payload[1..], number);
    payload
}

/// The links of the agent's interfaces, by their numbers.
pub(super) const LINKS: [Link; 3] = [Link::Ip, Link::Ethernet, Link::Ip];

/// A frame of the flow on an interface, as a capture shows it.
pub(super) fn framed(interface: u32, flow: Flow, payload: &[u8]) -> Vec<u8> {
    let number = u8::try_from(interface).unwrap();
    let header = [&[2, 0, 0, 0, 0, number, 4, 0, 0, 0, 0, number][..], &[0x08, 0x00]].concat();
    let header = if link(interface) == Link::Ip { Vec::new() } else { header };
    [header, packet(flow, payload)].concat()
}

pub(super) fn link(interface: u32) -> Link {
    LINKS[usize::try_from(interface).unwrap()]
}

/// A frame with one datagram.
pub(super) fn passing(interface: u32, frame: &[u8]) -> Passing<'_> {
    let link = link(interface);
    let datagram = parse(link, frame, frame.len()).unwrap();
    Passing { interface, link, datagram, each: None, frame }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Arrival {
    /// A datagram of a flow, at the proxy.
    Data([SocketAddr; 2], Vec<u8>),
    /// A datagram to this host, from the first address to the second.
    Here([SocketAddr; 2], Vec<u8>),
    ToProxy(Vec<u8>),
    ToAgent(Vec<u8>),
    /// A frame at the end of the interface's local queue, where a capture shows it.
    Leaving(u32, Vec<u8>),
    /// An answer along the path of a flow from this source.
    AlongPath([SocketAddr; 2], Vec<u8>),
}

/// A near segment between an agent and a proxy.
pub(super) struct Net {
    pub(super) now: Instant,
    pub(super) agent: Agent,
    pub(super) proxy: Observer,
    pub(super) delay: Duration,
    /// The delay that the segment adds to data.
    pub(super) queue: Duration,
    /// A leaving frame waits this long before a capture shows it.
    pub(super) local_queue: Duration,
    /// The interfaces that show what leaves, in this order. The programs' packets leave by the
    /// first.
    pub(super) shown_on: Vec<u32>,
    pub(super) loss_percent: u64,
    /// The share of packets that passed, and that the proxy claims it did not see.
    pub(super) denied_percent: u64,
    /// The share of packets that the next two overtake, which leave a millisecond apart.
    pub(super) overtaken_percent: u64,
    /// The state of a Lehmer generator, which chooses the losses.
    pub(super) random: u64,
    pub(super) in_flight: BinaryHeap<Reverse<(Instant, u64, Arrival)>>,
    pub(super) order: u64,
    /// Payloads that passed the proxy.
    pub(super) passed: BTreeSet<Vec<u8>>,
    pub(super) next: u64,
    /// Messages of the proxy.
    pub(super) answers: u64,
    /// Payloads that this host got, in order.
    pub(super) received: Vec<Vec<u8>>,
    pub(super) programs: HashSet<Flow>,
    /// What waits in the queue, by number, if arriving packets pass one.
    pub(super) queued: Option<Vec<(u32, Vec<u8>)>>,
    /// The most that waited there.
    pub(super) most_waiting: usize,
}

impl Net {
    pub(super) fn new(limits: Limits, delay: Duration, loss_percent: u64) -> Self {
        let config = ObserverConfig { keep_bytes: 64 << 20, ..ObserverConfig::default() };
        let mut proxy = Observer::new(config, [7; 32]).unwrap();
        proxy.set_addresses(Addresses::announcing(0, PROXY.parse().unwrap()));
        let mut seed = 0;
        let agent = Agent::new(limits, vec![6000], move || {
            seed += 1;
            Some([seed; 32])
        });
        Self {
            now: clock(),
            agent,
            proxy,
            delay,
            queue: Duration::ZERO,
            local_queue: Duration::ZERO,
            shown_on: vec![0],
            loss_percent,
            denied_percent: 0,
            overtaken_percent: 0,
            random: 9,
            in_flight: BinaryHeap::new(),
            order: 0,
            passed: BTreeSet::new(),
            next: 0,
            answers: 0,
            received: Vec::new(),
            programs: HashSet::new(),
            queued: None,
            most_waiting: 0,
        }
    }

    pub(super) fn launch(&mut self, extra: Duration, arrival: Arrival) {
        self.random = self.random * 48_271 % 0x7fff_ffff;
        if self.random % 100 < self.loss_percent {
            return;
        }
        self.order += 1;
        self.in_flight.push(Reverse((self.now + self.delay + extra, self.order, arrival)));
    }

    /// A program sends a datagram, which the agent captures.
    pub(super) fn send(&mut self, flow: Flow, payload: &[u8]) {
        self.programs.insert(flow);
        let interface = self.shown_on[0];
        self.leave(interface, framed(interface, flow, payload));
        self.drain();
    }

    /// A frame leaves by an interface, now or behind the local queue.
    pub(super) fn leave(&mut self, interface: u32, frame: Vec<u8>) {
        if self.local_queue.is_zero() {
            self.left(interface, &frame);
        } else {
            self.order += 1;
            let arrival = Arrival::Leaving(interface, frame);
            self.in_flight.push(Reverse((self.now + self.local_queue, self.order, arrival)));
        }
    }

    /// A frame is on the wire.
    pub(super) fn left(&mut self, interface: u32, frame: &[u8]) {
        let Datagram { flow, payload, .. } = passing(interface, frame).datagram;
        self.agent.on_leaving(passing(interface, frame), self.now);
        for other in self.shown_on.clone() {
            if other != interface {
                let frame = framed(other, flow, payload);
                self.agent.on_leaving(passing(other, &frame), self.now);
            }
        }
        let ends = [flow.source, flow.destination];
        let late = self.random / 100 % 100 < self.overtaken_percent;
        let extra = if late { 5 * MS / 2 } else { Duration::ZERO };
        self.launch(self.queue + extra, Arrival::Data(ends, payload.to_vec()));
    }

    /// A datagram of the flow that looks encrypted, different from all others.
    pub(super) fn send_next(&mut self, flow: Flow) -> Vec<u8> {
        self.next += 1;
        let payload = encrypted(self.next);
        self.send(flow, &payload);
        payload
    }

    /// The receiver answers the flow.
    pub(super) fn answer(&mut self, flow: Flow, payload: &[u8]) {
        self.arriving(flow.reversed(), payload);
        self.drain();
    }

    /// The agent captures a datagram that arrives.
    pub(super) fn arriving(&mut self, flow: Flow, payload: &[u8]) {
        let interface = self.shown_on[0];
        let frame = framed(interface, flow, payload);
        self.agent.on_arriving(passing(interface, &frame), self.now);
    }

    /// Sends what both sides have ready.
    pub(super) fn drain(&mut self) {
        while let Some((to, buffer)) = self.agent.pop() {
            match to {
                To::Proxy { proxy, .. } => {
                    assert_eq!(proxy.to_string(), PROXY);
                    self.launch(Duration::ZERO, Arrival::ToProxy(buffer.clone()));
                }
                To::Interface(number) => {
                    assert!(self.shown_on.contains(&number), "{number}");
                    let Datagram { flow, payload, .. } = passing(number, &buffer).datagram;
                    assert!(self.programs.contains(&flow), "a flow of its own");
                    // The header is that of this interface's link.
                    assert_eq!(buffer[..6], framed(number, flow, payload)[..6]);
                    self.leave(number, buffer.clone());
                }
                To::SecondUplink(proxy) => panic!("there is no second uplink to {proxy}"),
                To::Queued(id) => {
                    let queued = self.queued.as_mut().unwrap();
                    let at = queued.iter().position(|(other, _)| *other == id).unwrap();
                    self.received.push(queued.remove(at).1);
                }
                To::Host => {
                    let datagram = parse(Link::Ip, &buffer, buffer.len()).unwrap();
                    assert!(self.programs.contains(&datagram.flow.reversed()), "to a program");
                    self.received.push(datagram.payload.to_vec());
                }
            }
            self.agent.give_back(buffer);
        }
        let mut out = [0; MAX_DATAGRAM_LEN];
        while let Some(transmit) = self.proxy.poll_transmit(&mut out) {
            let message = out[..transmit.size].to_vec();
            self.answers += 1;
            let arrival = match transmit.route {
                Route::Path { source, .. } => {
                    Arrival::AlongPath([source, transmit.destination], message)
                }
                _ => Arrival::ToAgent(message),
            };
            self.launch(Duration::ZERO, arrival);
        }
    }

    pub(super) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let arrival = self.in_flight.peek().map(|Reverse((at, ..))| *at);
            let timers = [self.agent.poll_timeout(), self.proxy.poll_timeout(), arrival];
            let next = timers.into_iter().flatten().min().filter(|at| *at <= until);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            let now = self.now;
            if self.agent.poll_timeout().is_some_and(|at| at <= now) {
                self.agent.on_timeout(now);
            }
            if self.proxy.poll_timeout().is_some_and(|at| at <= now) {
                self.proxy.on_timeout(now);
            }
            while let Some(Reverse((at, ..))) = self.in_flight.peek()
                && *at <= now
                && let Some(Reverse((_, _, arrival))) = self.in_flight.pop()
            {
                self.arrive(arrival);
            }
            self.drain();
        }
        self.now = until;
    }

    pub(super) fn arrive(&mut self, arrival: Arrival) {
        let now = self.now;
        match arrival {
            Arrival::Leaving(interface, frame) => self.left(interface, &frame),
            Arrival::Data([source, destination], payload) => {
                let flow = Flow { source, destination };
                if self.random / 7 % 100 >= self.denied_percent {
                    self.proxy.observe(&flow, 0, Payload::whole(&payload), now);
                }
                self.passed.insert(payload);
            }
            Arrival::Here([source, destination], payload) => {
                let flow = Flow { source, destination };
                self.arriving(flow, &payload);
                let Some(queued) = &mut self.queued else {
                    self.received.push(payload);
                    return;
                };
                let id = u32::try_from(self.order).unwrap();
                let packet = packet(flow, &payload);
                queued.push((id, payload));
                self.agent.on_queued(id, &packet, now);
                self.drain();
                let waiting = self.queued.as_ref().map_or(0, Vec::len);
                self.most_waiting = self.most_waiting.max(waiting);
            }
            Arrival::ToProxy(message) => {
                let agent: SocketAddr = AGENT.parse().unwrap();
                let _ = self.proxy.handle_input(agent, &message, now);
            }
            Arrival::ToAgent(message) => {
                self.agent.on_message(PROXY.parse().unwrap(), &message, now);
            }
            Arrival::AlongPath([source, destination], message) => {
                self.arriving(Flow { source, destination }, &message);
            }
        }
    }

    /// The flow sends this many datagrams, one each millisecond, after the agent has found the
    /// proxy. Returns how many did not pass the proxy.
    pub(super) fn stream(&mut self, flow: Flow, count: usize) -> usize {
        let mut sent = Vec::new();
        for _ in 0..count {
            sent.push(self.send_next(flow));
            self.run(MS);
        }
        self.run(100 * MS);
        sent.iter().filter(|payload| !self.passed.contains(*payload)).count()
    }
}

pub(super) fn limits() -> Limits {
    Limits {
        sender: SenderConfig::default(),
        filter: Filter::default(),
        min_packets: 8,
        max_flows: 4,
        memory: 1 << 20,
        idle_timeout: Duration::from_secs(30),
        delivers: true,
        in_order: false,
        upload_parity: false,
        second_uplink: None,
    }
}
