//! The agent beside a proxy, in virtual time.

mod arriving;
mod named;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashSet};

use proptest::prelude::*;
use sidekick_protocol::{Addresses, MAX_DATAGRAM_LEN, Observer, ObserverConfig, Payload, Route};

use super::*;
use crate::packet::{Datagram, Link, parse};
use crate::runtime::clock;

const MS: Duration = Duration::from_millis(1);
const PROXY: &str = "192.0.2.254:5252";
const AGENT: &str = "192.0.2.1:6000";

fn flow(port: u16) -> Flow {
    let (source, destination) = (([192, 0, 2, 1], port), ([198, 51, 100, 7], 443));
    Flow { source: source.into(), destination: destination.into() }
}

/// A packet of the flow, as a capture shows it.
fn packet(flow: Flow, payload: &[u8]) -> Vec<u8> {
    let (SocketAddr::V4(from), SocketAddr::V4(to)) = (flow.source, flow.destination) else {
        panic!("{flow:?}")
    };
    let len = |headers: usize| u16::try_from(headers + payload.len()).unwrap().to_be_bytes();
    let mut packet = vec![0x45, 0, len(28)[0], len(28)[1], 0, 0, 0x40, 0, 64, 17, 0, 0];
    packet.extend(from.ip().octets().into_iter().chain(to.ip().octets()));
    packet.extend(from.port().to_be_bytes().into_iter().chain(to.port().to_be_bytes()));
    packet.extend([len(8)[0], len(8)[1], 0, 0]);
    packet.extend(payload);
    packet
}

/// The links of the agent's interfaces, by their numbers.
const LINKS: [Link; 3] = [Link::Ip, Link::Ethernet, Link::Ip];

/// A frame of the flow on an interface, as a capture shows it.
fn framed(interface: u32, flow: Flow, payload: &[u8]) -> Vec<u8> {
    let number = u8::try_from(interface).unwrap();
    let header = [&[2, 0, 0, 0, 0, number, 4, 0, 0, 0, 0, number][..], &[0x08, 0x00]].concat();
    let header = if link(interface) == Link::Ip { Vec::new() } else { header };
    [header, packet(flow, payload)].concat()
}

fn link(interface: u32) -> Link {
    LINKS[usize::try_from(interface).unwrap()]
}

/// A frame with one datagram.
fn passing(interface: u32, frame: &[u8]) -> Passing<'_> {
    let link = link(interface);
    let datagram = parse(link, frame, frame.len()).unwrap();
    Passing { interface, link, datagram, each: None, frame }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Arrival {
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
struct Net {
    now: Instant,
    agent: Agent,
    proxy: Observer,
    delay: Duration,
    /// What the segment adds to the delay of data.
    queue: Duration,
    /// What is sent waits so long before a capture shows it.
    local_queue: Duration,
    /// The interfaces that show what leaves, in this order. The programs' packets leave by the
    /// first.
    shown_on: Vec<u32>,
    loss_percent: u64,
    /// So many packets are overtaken by two that leave a millisecond apart.
    overtaken_percent: u64,
    /// A generator of Lehmer's: enough to choose losses.
    random: u64,
    in_flight: BinaryHeap<Reverse<(Instant, u64, Arrival)>>,
    order: u64,
    /// Payloads that passed the proxy.
    passed: BTreeSet<Vec<u8>>,
    next: u64,
    /// Payloads that this host got, in order.
    received: Vec<Vec<u8>>,
    /// Flows of the programs.
    programs: HashSet<Flow>,
}

impl Net {
    fn new(limits: Limits, delay: Duration, loss_percent: u64) -> Self {
        let config = ObserverConfig { keep_bytes: 64 << 20, ..ObserverConfig::default() };
        let mut proxy = Observer::new(config, [7; 32]).unwrap();
        proxy.set_addresses(Addresses::announcing(0, PROXY.parse().unwrap()));
        let mut seed = 0;
        let agent = Agent::new(limits, 6000, move || {
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
            overtaken_percent: 0,
            random: 9,
            in_flight: BinaryHeap::new(),
            order: 0,
            passed: BTreeSet::new(),
            next: 0,
            received: Vec::new(),
            programs: HashSet::new(),
        }
    }

    fn launch(&mut self, extra: Duration, arrival: Arrival) {
        self.random = self.random * 48_271 % 0x7fff_ffff;
        if self.random % 100 < self.loss_percent {
            return;
        }
        self.order += 1;
        self.in_flight.push(Reverse((self.now + self.delay + extra, self.order, arrival)));
    }

    /// A program sends a datagram, which the agent captures.
    fn send(&mut self, flow: Flow, payload: &[u8]) {
        self.programs.insert(flow);
        let interface = self.shown_on[0];
        self.leave(interface, framed(interface, flow, payload));
        self.drain();
    }

    /// A frame leaves by an interface, now or behind the local queue.
    fn leave(&mut self, interface: u32, frame: Vec<u8>) {
        if self.local_queue.is_zero() {
            self.left(interface, &frame);
        } else {
            self.order += 1;
            let arrival = Arrival::Leaving(interface, frame);
            self.in_flight.push(Reverse((self.now + self.local_queue, self.order, arrival)));
        }
    }

    /// A frame is on the wire.
    fn left(&mut self, interface: u32, frame: &[u8]) {
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

    /// A datagram of the flow, different from all others.
    fn send_next(&mut self, flow: Flow) -> Vec<u8> {
        self.next += 1;
        let mut payload = vec![0x40; 200];
        payload[192..]
            .copy_from_slice(&self.next.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        self.send(flow, &payload);
        payload
    }

    /// The receiver answers the flow.
    fn answer(&mut self, flow: Flow, payload: &[u8]) {
        self.arriving(flow.reversed(), payload);
        self.drain();
    }

    /// The agent captures a datagram that arrives.
    fn arriving(&mut self, flow: Flow, payload: &[u8]) {
        let interface = self.shown_on[0];
        let frame = framed(interface, flow, payload);
        self.agent.on_arriving(passing(interface, &frame), self.now);
    }

    /// Sends what both sides have ready.
    fn drain(&mut self) {
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
            let arrival = match transmit.route {
                Route::Path { source, .. } => {
                    Arrival::AlongPath([source, transmit.destination], message)
                }
                _ => Arrival::ToAgent(message),
            };
            self.launch(Duration::ZERO, arrival);
        }
    }

    fn run(&mut self, time: Duration) {
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

    fn arrive(&mut self, arrival: Arrival) {
        let now = self.now;
        match arrival {
            Arrival::Leaving(interface, frame) => self.left(interface, &frame),
            Arrival::Data([source, destination], payload) => {
                let flow = Flow { source, destination };
                self.proxy.observe(&flow, 0, Payload::whole(&payload), now);
                self.passed.insert(payload);
            }
            Arrival::Here([source, destination], payload) => {
                self.arriving(Flow { source, destination }, &payload);
                self.received.push(payload);
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

    /// The flow sends a datagram each millisecond, after the agent has found the proxy. Returns
    /// how many of so many did not pass.
    fn stream(&mut self, flow: Flow, count: usize) -> usize {
        let mut sent = Vec::new();
        for _ in 0..count {
            sent.push(self.send_next(flow));
            self.run(MS);
        }
        self.run(100 * MS);
        sent.iter().filter(|payload| !self.passed.contains(*payload)).count()
    }
}

fn limits() -> Limits {
    Limits {
        sender: SenderConfig::default(),
        filter: Filter::default(),
        min_packets: 8,
        max_flows: 4,
        memory: 1 << 20,
        idle_timeout: Duration::from_secs(30),
        delivers: true,
    }
}

#[test]
fn what_the_near_segment_lost_is_sent_again() {
    let mut net = Net::new(limits(), MS, 0);
    assert_eq!(net.stream(flow(4000), 100), 0);
    assert_eq!(net.agent.counts().1, 1, "assisted");
    net.loss_percent = 10;
    let missing = net.stream(flow(4000), 2000);
    let totals = net.agent.totals();
    // A repair may be lost, too, and the repair of that.
    assert!(missing <= 4, "{missing} of 2000, {totals:?}");
    assert!((150..350).contains(&totals.lost), "{totals:?}");
    // Of the first hundred with losses, each leaves twice.
    assert!((totals.lost + 1..totals.lost + 40).contains(&totals.resent), "{totals:?}");
    assert!(totals.quacks > 1000, "{totals:?}");
    assert_eq!(totals.flows, 1);
    let [report] = &net.agent.flows(9, |_| "eth0".to_owned(), net.now)[..] else { panic!() };
    assert_eq!((report.state.as_str(), report.near_rtt_ms), ("helped", Some(2.0)));
}

#[test]
fn a_flow_may_change_its_interface() {
    let mut net = Net::new(limits(), MS, 0);
    for interface in [1, 0, 1, 2] {
        net.shown_on = vec![interface];
        let before = net.agent.totals();
        // What the old interface showed is too recent, then the agent looks for the proxy.
        net.stream(flow(4000), 300);
        net.loss_percent = 10;
        let missing = net.stream(flow(4000), 500);
        net.loss_percent = 0;
        let (totals, counts) = (net.agent.totals(), net.agent.counts());
        assert_eq!((totals.flows, counts.1), (1, 1), "{totals:?}");
        assert!(missing <= 3, "{missing} by {interface}: {totals:?}");
        assert!(totals.resent > before.resent + 20, "{totals:?}");
        assert!(totals.seen_twice <= before.seen_twice + 100, "{totals:?}");
    }
}

#[test]
fn a_repair_that_waits_in_the_local_queue_is_not_lost() {
    let mut net = Net::new(limits(), MS, 0);
    net.local_queue = 10 * MS;
    net.stream(flow(4000), 300);
    net.loss_percent = 5;
    let missing = net.stream(flow(4000), 4000);
    let totals = net.agent.totals();
    assert!(missing <= 4, "{missing}: {totals:?}");
    // Of these losses, some are of repairs.
    assert!((150..300).contains(&totals.lost), "{totals:?}");
    assert!(totals.resent >= totals.lost - missing as u64, "{totals:?}");
    assert!(totals.resent * 5 <= totals.lost * 6, "{totals:?}");
    // Help begins with the eighth.
    assert_eq!((totals.captured, totals.sent), (4300, 4293), "{totals:?}");
}

#[test]
fn a_packet_that_two_interfaces_show_is_one() {
    let configured = SenderConfig::of(PROXY.parse().unwrap());
    for sender in [SenderConfig::default(), configured] {
        for shown_on in [[1, 2], [2, 1]] {
            let mut net = Net::new(Limits { sender: sender.clone(), ..limits() }, MS, 0);
            net.shown_on = shown_on.to_vec();
            net.stream(flow(4000), 300);
            net.loss_percent = 10;
            let missing = net.stream(flow(4000), 1000);
            let totals = net.agent.totals();
            assert_eq!(net.agent.counts().1, 1, "{totals:?}");
            assert!(missing <= 3, "{missing}: {totals:?}");
            let counted = (totals.captured, totals.seen_twice, totals.sent);
            assert_eq!(counted, (2 * 1300, 1300, 1293), "{totals:?}");
        }
    }
}

#[test]
fn nothing_lost_costs_markers_and_messages_alone() {
    let mut net = Net::new(limits(), MS, 0);
    net.stream(flow(4000), 1000);
    let totals = net.agent.totals();
    assert_eq!((totals.lost, totals.resent), (0, 0));
    assert!(totals.markers <= 6 && totals.messages < 40, "{totals:?}");
}

#[test]
fn a_repair_that_would_be_late_is_not_sent() {
    for (near, whole, repairs) in [(2, 100, true), (6, 100, true), (7, 100, false)] {
        let mut net = Net::new(limits(), near * MS, 0);
        net.send(flow(4000), &[&[0xc3, 0, 0, 0, 1, 8][..], &[5; 1194]].concat());
        net.run(whole * MS);
        net.answer(flow(4000), &[0x40; 50]);
        net.stream(flow(4000), 300);
        let handshake = net.agent.totals().resent;
        net.loss_percent = 5;
        net.stream(flow(4000), 1000);
        let totals = net.agent.totals();
        assert!(totals.lost > 20, "{totals:?}");
        assert_eq!(totals.resent > handshake, repairs, "{near} of {whole}: {totals:?}");
        assert_eq!(totals.withheld_far > 0, !repairs, "{near} of {whole}: {totals:?}");
    }
}

/// An Initial packet of QUIC (RFC 9000, section 17.2.2), with this end.
fn initial(end: u8) -> Vec<u8> {
    [&[0xc3, 0, 0, 0, 1, 8][..], &[5; 1190], &[end; 4]].concat()
}

#[test]
fn a_handshake_that_no_proxy_counted_is_sent_again() {
    for lost in [0, 100] {
        let mut net = Net::new(limits(), MS, 0);
        for number in [1, 2] {
            // The marker behind it arrives.
            net.loss_percent = lost;
            net.programs.insert(flow(4000));
            net.leave(0, framed(0, flow(4000), &initial(number)));
            net.loss_percent = 0;
            net.drain();
        }
        // The marker, its answer, and the repair.
        net.run(4 * MS);
        assert!([1, 2].iter().all(|number| net.passed.contains(&initial(*number))), "{lost} %");
        net.run(500 * MS);
        assert_eq!(net.agent.totals().resent, 2, "once, whether or not they were lost");
    }
    // Without a proxy there is nothing to repeat for.
    let mut net = Net::new(limits(), MS, 100);
    net.send(flow(4000), &initial(1));
    net.run(500 * MS);
    assert_eq!(net.agent.totals().resent, 0);
}

#[test]
fn the_round_trip_shows_while_a_flow_is_helped_too() {
    // The milliseconds from one Initial packet to the next, and from that to the answer. The proxy
    // is too far away for a round trip of less than 48 ms.
    for (apart, answer, repairs) in [
        (0, 20, false),
        (0, 60, true),
        // The first one was lost.
        (1000, 20, false),
        (1000, 60, true),
        // It was not: the answer to the second one cannot be here before the proxy's.
        (300, 1, true),
    ] {
        let mut net = Net::new(limits(), 3 * MS, 0);
        net.send(flow(4000), &initial(1));
        net.run(apart * MS);
        net.send(flow(4000), &initial(2));
        assert_eq!(net.agent.counts().0, 1, "helped from its first packet on");
        net.run(answer * MS);
        net.answer(flow(4000), &[0x40; 50]);
        net.stream(flow(4000), 300);
        let handshake = net.agent.totals().resent;
        net.loss_percent = 5;
        net.stream(flow(4000), 500);
        let totals = net.agent.totals();
        let case = format!("{apart} {answer}: {totals:?}");
        assert!(totals.lost > 10, "{case}");
        let repaired = totals.resent > handshake;
        assert_eq!((repaired, totals.withheld_far > 0), (repairs, !repairs), "{case}");
    }
}

#[test]
fn a_round_trip_below_that_of_the_proxy_is_none() {
    let mut net = Net::new(limits(), 3 * MS, 0);
    net.send(flow(4000), &initial(1));
    net.run(MS);
    net.answer(flow(4000), &[0x40; 50]);
    net.stream(flow(4000), 300);
    net.loss_percent = 5;
    net.stream(flow(4000), 500);
    let totals = net.agent.totals();
    assert!(totals.resent > 10 && totals.withheld_far == 0, "{totals:?}");
    let [report] = &net.agent.flows(9, |_| String::new(), net.now)[..] else { panic!() };
    assert_eq!((report.near_rtt_ms, report.rtt_ms), (Some(6.0), None));
}

#[test]
fn a_flow_that_began_before_the_agent_shows_no_round_trip() {
    let mut net = Net::new(limits(), MS, 0);
    // What arrives next may answer what left long before.
    net.send_next(flow(4000));
    net.run(MS);
    net.answer(flow(4000), &[0x40; 50]);
    net.stream(flow(4000), 300);
    net.loss_percent = 5;
    net.stream(flow(4000), 500);
    let totals = net.agent.totals();
    assert!(totals.resent > 20 && totals.withheld_far == 0, "{totals:?}");
}

#[test]
fn losses_of_a_queue_are_left_to_the_flow() {
    let mut net = Net::new(limits(), MS, 0);
    net.stream(flow(4000), 300);
    // The queue grows to 30 ms, then loses packets.
    for step in 0..300 {
        net.queue = MS * step.min(30);
        net.send_next(flow(4000));
        net.run(MS);
    }
    net.loss_percent = 5;
    net.stream(flow(4000), 500);
    let totals = net.agent.totals();
    assert!(totals.withheld_congested > 10, "{totals:?}");
    assert_eq!(totals.resent, 0, "{totals:?}");
}

#[test]
fn on_a_link_that_reorders_only_losses_are_repaired() {
    let mut net = Net::new(limits(), MS, 0);
    net.stream(flow(4000), 300);
    net.overtaken_percent = 20;
    net.stream(flow(4000), 1000);
    let before = net.agent.totals();
    assert!((64..128).contains(&before.lost), "{before:?}");
    assert!(before.turned_up * 4 >= before.lost * 3, "{before:?}");
    net.stream(flow(4000), 2000);
    let after = net.agent.totals();
    assert!(after.resent <= before.resent + 20, "{before:?} {after:?}");
    net.loss_percent = 5;
    let missing = net.stream(flow(4000), 2000);
    let totals = net.agent.totals();
    assert!(missing <= 4, "{missing}: {totals:?}");
    // What is lost does not turn up.
    assert!(totals.turned_up <= after.turned_up + 20, "{after:?} {totals:?}");
}

#[test]
fn a_queue_that_stays_ends_the_help_for_a_while() {
    let mut net = Net::new(limits(), MS, 0);
    net.stream(flow(4000), 300);
    // It may be the proxy's messages that wait.
    net.queue = 40 * MS;
    net.delay = 20 * MS;
    net.stream(flow(4000), 3000);
    let [report] = &net.agent.flows(9, |_| String::new(), net.now)[..] else { panic!() };
    assert!(report.state.contains("without help for a while"), "{report:?}");
    let quacks = net.agent.totals().quacks;
    net.stream(flow(4000), 2000);
    assert_eq!(net.agent.totals().quacks, quacks, "the proxy is silent");
    (net.queue, net.delay) = (Duration::ZERO, MS);
    net.stream(flow(4000), 9000);
    let [report] = &net.agent.flows(9, |_| String::new(), net.now)[..] else { panic!() };
    assert_eq!(report.state, "helped");
}

#[test]
fn a_program_with_its_own_sender_is_left_alone() {
    let mut net = Net::new(limits(), MS, 0);
    net.stream(flow(4000), 100);
    let mut sender = Sender::new(SenderConfig::default(), [3; 32]);
    sender.start(flow(4000), net.now);
    sender.on_timeout(net.now);
    let mut marker = [0; MAX_DATAGRAM_LEN];
    let size = sender.poll_transmit(&mut marker).unwrap().size;
    net.send(flow(4000), &marker[..size]);
    let before = net.agent.totals();
    net.loss_percent = 10;
    net.stream(flow(4000), 300);
    assert_eq!((net.agent.totals().sent, net.agent.counts().0), (before.sent, 0));
}

#[test]
fn the_datagrams_of_a_merged_frame_are_told_apart() {
    let mut net = Net::new(limits(), MS, 0);
    net.stream(flow(4000), 100);
    let payload: Vec<u8> =
        (0..25_000_u32).flat_map(|i| (i * 77).to_be_bytes()).take(3500).collect();
    let frame = packet(flow(4000), &payload);
    let datagram = parse(Link::Ip, &frame, frame.len()).unwrap();
    let leaving =
        Passing { interface: 0, link: Link::Ip, datagram, each: Some(1200), frame: &frame };
    net.agent.on_leaving(leaving, net.now);
    // All three are lost. Later packets show that.
    let missing: Vec<_> = payload.chunks(1200).map(<[u8]>::to_vec).collect();
    net.stream(flow(4000), 20);
    assert!(missing.iter().all(|payload| net.passed.contains(payload)));
    assert_eq!(net.agent.totals().resent, 2 * 3, "the first are sent twice");
}

#[test]
fn a_million_flows_are_bounded() {
    let mut net = Net::new(limits(), MS, 0);
    for number in 0..1_000_000_u32 {
        let source = SocketAddr::from((std::net::Ipv4Addr::from(0x0a00_0000 + number), 4000));
        let flow = Flow { source, ..flow(4000) };
        let frame = packet(flow, &[0x40; 60]);
        for _ in 0..1 + number % 9 {
            net.agent.on_leaving(passing(0, &frame), net.now);
        }
        net.programs.insert(flow);
        net.drain();
        assert!(net.agent.flows.len() <= CANDIDATES + 4);
        assert!(net.agent.work.timers.len() <= 4);
        net.now += MS / 10;
    }
    assert_eq!(net.agent.counts().0, 4);
    net.run(Duration::from_secs(40));
    assert_eq!(net.agent.flows.len(), 0, "all were idle");
    assert!(net.agent.work.numbers.is_empty());
    net.run(Duration::from_secs(40));
    assert_eq!(net.agent.poll_timeout(), None, "nothing is left to do");
}

#[test]
fn a_flow_to_the_whole_network_gets_no_help() {
    let mut net = Net::new(limits(), MS, 0);
    let all = Flow { destination: ([192, 0, 2, 255], 27_036).into(), ..flow(4000) };
    for number in 0..100_u8 {
        let mut frame = framed(1, all, &[number; 60]);
        frame[..6].fill(0xff);
        net.agent.on_leaving(passing(1, &frame), net.now);
        net.run(MS);
        assert!(net.agent.pop().is_none());
    }
    assert_eq!((net.agent.totals().flows, net.agent.counts().0), (0, 0));
}

#[test]
fn copies_of_all_flows_together_are_bounded() {
    let memory = 20_000;
    let mut net = Net::new(Limits { memory, ..limits() }, MS, 0);
    let mut most = 0;
    for _ in 0..2000 {
        for port in 1..=4 {
            net.send_next(flow(port));
        }
        net.run(MS);
        let bytes = net.agent.counts().2;
        most = most.max(bytes);
        // A flow ends, and its copies with it.
        if net.next == 4000 {
            let mut marker = [0; MAX_DATAGRAM_LEN];
            let mut sender = Sender::new(SenderConfig::default(), [3; 32]);
            sender.start(flow(1), net.now);
            sender.on_timeout(net.now);
            let size = sender.poll_transmit(&mut marker).unwrap().size;
            net.send(flow(1), &marker[..size]);
        }
        assert_eq!(net.agent.work.memory as u64, net.agent.counts().2);
    }
    assert!((20_000 - 200..20_000 + 200).contains(&most), "{most}");
    assert_eq!(net.agent.counts().1, 3, "one has its own sender");
}

#[test]
fn a_flow_has_one_timer() {
    let mut net = Net::new(limits(), MS, 0);
    for _ in 0..15_000 / 20 {
        for port in 1..=4 {
            net.send_next(flow(port));
        }
        net.run(20 * MS);
        assert!(net.agent.work.timers.len() <= 4);
    }
    assert_eq!((net.agent.counts().1, net.agent.work.timers.len()), (4, 4));
}

#[test]
fn copies_are_kept_while_they_can_be_of_use() {
    // Without a proxy on the path, with one, and with one that does not answer.
    let configured = SenderConfig::of(PROXY.parse().unwrap());
    for (sender, answers, kept) in [
        (SenderConfig::default(), false, false),
        (SenderConfig::default(), true, true),
        (configured, false, false),
    ] {
        let mut net = Net::new(Limits { sender, ..limits() }, MS, 0);
        if !answers {
            net.loss_percent = 100;
        }
        for number in 0..5000 {
            net.send_next(flow(4000));
            net.run(MS);
            let bytes = net.agent.counts().2;
            // Of 200 ms, a packet each millisecond.
            assert!(bytes <= 201 * 200, "{bytes}");
            assert!(number < 4000 || (bytes > 0) == kept, "{bytes}");
        }
    }
}

#[test]
fn a_scan_of_the_network_keeps_no_flow_out() {
    let mut net = Net::new(limits(), MS, 0);
    let mut marker = [0; MAX_DATAGRAM_LEN];
    for number in 0..20_000_u32 {
        let source = SocketAddr::from((std::net::Ipv4Addr::from(0x0a00_0000 + number), 4000));
        let other = Flow { source, ..flow(4000) };
        net.agent.on_leaving(passing(0, &packet(other, &[0x40; 60])), net.now);
        // The program of each fourth one has its own sender.
        if number % 4 == 0 {
            let mut sender = Sender::new(SenderConfig::default(), [3; 32]);
            sender.start(other, net.now);
            sender.on_timeout(net.now);
            let size = sender.poll_transmit(&mut marker).unwrap().size;
            net.agent.on_leaving(passing(0, &packet(other, &marker[..size])), net.now);
        }
        assert!(net.agent.flows.len() <= CANDIDATES + 4);
        assert!(net.agent.unhelped.len() <= 2 * CANDIDATES);
        if number > 10_000 && number % 20 == 0 {
            net.send_next(flow(4000));
        }
        net.run(MS);
    }
    assert_eq!(net.agent.counts().1, 1);
    // Those that are left alone, and have packets, are still known.
    let alone = net.agent.flows.values().filter(|entry| matches!(entry, Entry::LeftAlone(_)));
    assert!(alone.count() >= 5000 / 4);
}

#[test]
fn the_port_of_the_agent_is_free_for_others() {
    let only = vec!["1-65535".parse().unwrap()];
    let filter = Filter { only, except: Vec::new() };
    let mut net = Net::new(Limits { filter, ..limits() }, MS, 0);
    let source = ([192, 0, 2, 9], 6000).into();
    net.stream(Flow { source, ..flow(4000) }, 100);
    assert_eq!(net.agent.counts().1, 1);
    let captured = net.agent.totals().captured;
    let own = Flow { source: AGENT.parse().unwrap(), destination: PROXY.parse().unwrap() };
    for number in 0..20 {
        net.agent.on_leaving(passing(0, &packet(own, &[number; 60])), net.now);
    }
    let totals = net.agent.totals();
    assert_eq!((totals.captured, totals.flows), (captured, 1));
}

#[test]
fn what_has_no_room_is_counted() {
    let mut net = Net::new(limits(), MS, 0);
    for number in 0..5000_u16 {
        let about = (0, flow(4000).source.ip());
        let message = number.to_be_bytes();
        net.agent.work.outbox.push_message(PROXY.parse().unwrap(), about, &message);
    }
    assert_eq!(net.agent.totals().unsent, 5000 - 4096);
    while let Some((_, buffer)) = net.agent.pop() {
        net.agent.give_back(buffer);
    }
    net.stream(flow(4000), 100);
    assert_eq!((net.agent.totals().unsent, net.agent.counts().1), (5000 - 4096, 1));
}

#[test]
fn a_silent_flow_makes_room_for_another() {
    let mut net = Net::new(limits(), MS, 0);
    for port in 1..=6 {
        net.stream(flow(port), 20);
    }
    assert_eq!((net.agent.counts().0, net.agent.totals().flows_refused), (4, 2));
    // Four flows are silent for less than the time after which they can be replaced.
    let silent = net.agent.helped().map(|helped| helped.last).min().unwrap();
    net.run(silent + REPLACED - net.now - MS);
    net.send_next(flow(6));
    assert!(net.agent.replaces_at.is_some());
    net.run(2 * MS);
    net.stream(flow(6), 20);
    let helped = net.agent.flows(9, |_| String::new(), net.now);
    assert!(helped.iter().any(|helped| helped.source.port() == 6), "{helped:?}");
    assert_eq!(helped.len(), 4);
}

proptest! {
    #[test]
    fn nothing_from_the_network_ends_the_agent(
        message in prop::collection::vec(any::<u8>(), 0..200),
        number in any::<bool>(),
        flip in 0_usize..1600,
    ) {
        let mut net = Net::new(limits(), MS, 0);
        net.stream(flow(4000), 40);
        let mut message = message;
        if let (true, Some(known)) = (number, net.agent.work.numbers.keys().next()) {
            let header: Vec<u8> = [0x13].into_iter().chain(known.to_be_bytes()).collect();
            message.splice(..0, header);
        }
        net.agent.on_message(PROXY.parse().unwrap(), &message, net.now);
        net.answer(flow(4000), &message);
        let answer = [&[6][..], &[0; 20], b"Sidekick", &message].concat();
        net.answer(flow(4000), &answer);
        let mut frame = packet(flow(4000), &message);
        let bit = flip % (frame.len() * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
        if let Ok(datagram) = parse(Link::Ip, &frame, frame.len()) {
            net.programs.insert(datagram.flow);
            let leaving =
                Passing { interface: 0, link: Link::Ip, datagram, each: Some(3), frame: &frame };
            net.agent.on_leaving(leaving, net.now);
        }
        net.drain();
        net.loss_percent = 10;
        let missing = net.stream(flow(4000), 200);
        prop_assert!(missing <= 4, "{} {:?}", missing, net.agent.totals());
    }
}
