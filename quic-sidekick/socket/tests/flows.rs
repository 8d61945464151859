//! The flows of a socket and the protocol's own proxy, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sidekick_protocol::{
    Addresses, Flow, MAX_DATAGRAM_LEN, Observer, ObserverConfig, Payload, Route, Sender,
};
use sidekick_socket::{
    Arrival, Assistance, Config, Datagram, FlowStatus, Flows, Marks, Reason, Withheld,
};

const MS: Duration = Duration::from_millis(1);
const PROXY: &str = "192.0.2.254:5252";
const LOCAL: &str = "192.0.2.1:4000";
/// One way on each segment.
const NEAR: Duration = MS;
const FAR: Duration = Duration::from_millis(30);

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn peer(number: u16) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, 7], 443 + number))
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// At the proxy's host, on the way to this address.
    Outward(SocketAddr, Vec<u8>),
    /// At this host, from this address.
    Inward(SocketAddr, Vec<u8>),
    /// At a peer.
    AtPeer(SocketAddr, Vec<u8>),
    /// At the proxy's host, on the way here from a peer.
    Back(SocketAddr, Vec<u8>),
}

/// A socket's flows, a near segment, a proxy, and peers that answer each datagram.
struct Net {
    now: Instant,
    flows: Flows,
    proxy: Option<Observer>,
    /// Every so many datagrams, the near segment loses one, out and in. It counts data and messages
    /// apart.
    loses: [u32; 2],
    passed: [[u32; 2]; 2],
    /// The proxy counts only one of so many datagrams, and lies about the others.
    lies: u32,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    order: u64,
    /// How often each datagram reached a peer, by its number.
    arrived: BTreeMap<u64, u32>,
    /// What the application got, in order, and how much of it at once.
    got: Vec<Datagram>,
    at_once: usize,
    sent: u64,
    start: Instant,
    /// How often the host takes what has arrived.
    batch: Duration,
}

/// A datagram with this number: a client's Initial, or one with a short header.
fn datagram(number: u64) -> Vec<u8> {
    let mut payload = vec![if number == 0 { 0xc3 } else { 0x41 }, 0, 0, 0, 1, 8];
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    payload.extend(mixed.iter().cycle().take(150));
    payload.extend(number.to_be_bytes());
    payload
}

fn number(payload: &[u8]) -> u64 {
    u64::from_be_bytes(*payload.last_chunk().unwrap())
}

impl Net {
    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn new(config: Config) -> Self {
        let mut seed = [7_u8; 32];
        let random = move || {
            seed[0] = seed[0].wrapping_add(1);
            Some(seed)
        };
        let terms = ObserverConfig { keep_bytes: 64 << 20, ..ObserverConfig::default() };
        let mut proxy = Observer::new(terms, [2; 32]).unwrap();
        proxy.set_addresses(Addresses::announcing(0, address(PROXY)));
        let now = Instant::now();
        Self {
            now,
            start: now,
            batch: Duration::ZERO,
            flows: Flows::new(config, address(LOCAL), random),
            proxy: Some(proxy),
            loses: [0; 2],
            passed: [[0; 2]; 2],
            lies: 0,
            events: BinaryHeap::new(),
            order: 0,
            arrived: BTreeMap::new(),
            got: Vec::new(),
            at_once: 0,
            sent: 0,
        }
    }

    fn schedule(&mut self, after: Duration, event: Event) {
        self.order += 1;
        self.events.push(Reverse((self.now + after, self.order, event)));
    }

    /// Something arrives near the host, which takes it with the rest of its batch.
    fn arrive(&mut self, from: SocketAddr, payload: Vec<u8>) {
        let at = (self.now + NEAR - self.start).as_nanos();
        let wait = at.next_multiple_of(self.batch.as_nanos().max(1)) - at;
        let wait = Duration::from_nanos(wait.try_into().unwrap());
        self.schedule(NEAR + wait, Event::Inward(from, payload));
    }

    /// Whether more of a batch arrives now.
    fn more_arrives(&self) -> bool {
        let next = self.events.peek();
        next.is_some_and(|Reverse((at, _, event))| {
            *at == self.now && matches!(event, Event::Inward(..))
        })
    }

    /// Whether the near segment loses the next datagram out (0) or in (1).
    fn loses(&mut self, way: usize, is_message: bool) -> bool {
        let passed = &mut self.passed[usize::from(is_message)][way];
        *passed += 1;
        self.loses[way] > 0 && passed.is_multiple_of(self.loses[way])
    }

    fn leave(&mut self, to: SocketAddr, payload: Vec<u8>) {
        if !self.loses(0, to == address(PROXY)) {
            self.schedule(NEAR, Event::Outward(to, payload));
        }
    }

    fn send(&mut self, to: SocketAddr, payload: &[u8]) {
        self.leave(to, payload.to_vec());
        self.flows.on_sent(to, Marks::default(), [payload], self.now);
        self.flush();
    }

    /// Takes all that the flows have ready.
    fn flush(&mut self) {
        let mut out = Vec::new();
        self.flows.transmit(self.now, |datagram| {
            out.push(datagram.clone());
            true
        });
        out.into_iter().for_each(|datagram| self.leave(datagram.peer, datagram.payload));
        self.got.extend(std::iter::from_fn(|| self.flows.poll_delivery()));
    }

    fn proxy_speaks(&mut self) {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        while let Some(transmit) = self.proxy.as_mut().and_then(|it| it.poll_transmit(&mut buffer))
        {
            let from = match transmit.route {
                Route::Path { source, .. } => source,
                Route::Session | Route::SecondLink | Route::Stranger { .. } => address(PROXY),
            };
            if !self.loses(1, true) {
                self.arrive(from, buffer[..transmit.size].to_vec());
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let (local, now) = (address(LOCAL), self.now);
        match event {
            Event::Outward(to, message) if to == address(PROXY) => {
                if let Some(proxy) = &mut self.proxy {
                    let _ = proxy.handle_input(local, &message, now);
                }
            }
            Event::Outward(to, payload) => {
                let counts = self.lies == 0 || !number(&payload).is_multiple_of(self.lies.into());
                let flow = Flow { source: local, destination: to };
                if let Some(proxy) = self.proxy.as_mut().filter(|_| counts) {
                    proxy.observe(&flow, 0, Payload::whole(&payload), now);
                }
                self.schedule(FAR, Event::AtPeer(to, payload));
            }
            Event::AtPeer(at, payload) if !Sender::is_marker(&payload) => {
                *self.arrived.entry(number(&payload)).or_default() += 1;
                self.schedule(FAR, Event::Back(at, payload));
            }
            Event::AtPeer(..) => {}
            Event::Back(from, payload) => {
                let flow = Flow { source: from, destination: local };
                if let Some(proxy) = &mut self.proxy {
                    proxy.keep(&flow, 0, &payload, now);
                }
                if !self.loses(1, false) {
                    self.arrive(from, payload);
                }
            }
            Event::Inward(from, payload) => {
                let marks = Marks { ecn: 2, local: None };
                if self.flows.on_received(from, marks, &payload, now) == Arrival::Passes {
                    self.at_once += 1;
                    self.got.push(Datagram { peer: from, marks, payload });
                }
                if !self.more_arrives() {
                    self.flush();
                }
            }
        }
        self.proxy_speaks();
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let proxy = self.proxy.as_ref().and_then(Observer::poll_timeout);
            let flows = self.flows.poll_timeout();
            let Some(next) = [event, proxy, flows].into_iter().flatten().min() else { break };
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            if event == Some(next) {
                let Some(Reverse((_, _, event))) = self.events.pop() else { break };
                self.handle(event);
            } else if proxy == Some(next) {
                self.proxy.iter_mut().for_each(|proxy| proxy.on_timeout(next));
                self.proxy_speaks();
            } else {
                self.flows.on_timeout(self.now);
                self.flush();
            }
        }
        self.now = end;
    }

    /// Sends so many datagrams, one a millisecond, and waits for the answers.
    fn stream(&mut self, datagrams: u64) {
        for _ in 0..datagrams {
            self.send(peer(0), &datagram(self.sent));
            self.sent += 1;
            self.run(MS);
        }
        self.run(2 * (NEAR + FAR) + 50 * MS);
    }

    fn status(&self) -> FlowStatus {
        self.flows.status(self.now).next().unwrap()
    }

    /// The numbers that the application got, in order.
    fn numbers(&self) -> Vec<u64> {
        self.got.iter().map(|datagram| number(&datagram.payload)).collect()
    }
}

fn found() -> Net {
    let mut net = Net::new(Config::default());
    net.stream(100);
    assert_eq!(net.status().assistance, Assistance::Assisted, "{:?}", net.status());
    net
}

#[test]
fn what_is_lost_before_the_proxy_is_sent_again() {
    let mut net = found();
    net.loses = [10, 0];
    net.stream(3000);
    let missing = (0..net.sent).filter(|number| !net.arrived.contains_key(number)).count();
    // The first losses after a time without one are found late.
    assert!(missing <= 10, "{missing} missing, {:?}", net.status());
    let status = net.status();
    assert!((250..450).contains(&status.resent), "{status:?}");
    assert_eq!(status.to_string(), "helped");
    assert_eq!(status.rtt, Some(2 * (NEAR + FAR)));
    assert!(net.arrived.values().filter(|times| **times > 1).count() < 10, "repairs of no loss");
}

#[test]
fn what_arrives_is_in_order_and_complete() {
    let mut net = found();
    net.loses = [0, 10];
    net.stream(3000);
    let (numbers, status) = (net.numbers(), net.status());
    assert!(numbers.len() + 3 >= usize::try_from(net.sent).unwrap(), "{}", numbers.len());
    // The first loss after a time without one is found late.
    let falls = numbers.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!(falls <= 2, "{falls} late of {}", numbers.len());
    assert!(status.delivered > 250 && status.missed >= status.delivered, "{status:?}");
    assert!(net.got.iter().all(|datagram| datagram.marks.ecn == 2));
    let messages = net.got.iter().filter(|datagram| datagram.peer != peer(0));
    assert_eq!(messages.count(), 0);
}

/// Many datagrams and lists arrive together, before a `transmit`.
#[test]
fn batches_are_in_order_and_complete() {
    let mut net = found();
    net.batch = 4 * MS;
    net.loses = [0, 10];
    for _ in 0..500 {
        for _ in 0..8 {
            net.send(peer(0), &datagram(net.sent));
            net.sent += 1;
        }
        net.run(MS);
    }
    net.run(2 * (NEAR + FAR) + 50 * MS);
    let (numbers, status) = (net.numbers(), net.status());
    assert!(numbers.len() + 10 >= usize::try_from(net.sent).unwrap(), "{}", numbers.len());
    let falls = numbers.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert!(falls <= 10, "{falls} late of {}", numbers.len());
    assert!(status.delivered > 250 && status.missed >= status.delivered, "{status:?}");
}

#[test]
fn without_losses_all_passes_at_once() {
    let mut net = found();
    // The first datagrams wait for their lists, because the first loss costs the most.
    net.stream(500);
    let before = (net.at_once, net.got.len());
    net.stream(1000);
    assert_eq!((net.at_once - before.0, net.got.len() - before.1), (1000, 1000));
    assert_eq!(net.status().resent, 1, "the Initial, which left before the proxy counted");
}

#[test]
fn without_a_proxy_it_is_a_plain_socket() {
    let mut net = Net::new(Config::default());
    net.proxy = None;
    net.loses = [10, 10];
    net.stream(3000);
    let status = net.status();
    assert_eq!(status.assistance, Assistance::Unassisted(Reason::NotFound));
    assert_eq!((net.at_once, status.resent), (net.got.len(), 0));
    let markers = net.passed[0][0] - u32::try_from(net.sent).unwrap();
    assert_eq!(markers, 7, "ever less often");
}

#[test]
fn a_proxy_that_dies_costs_little() {
    let mut net = found();
    net.loses = [20, 20];
    net.stream(500);
    net.proxy = None;
    net.stream(5000);
    let (arrived, sent) = (net.arrived.len(), usize::try_from(net.sent).unwrap());
    assert!(arrived > sent * 94 / 100 && net.got.len() > sent * 89 / 100, "{}", net.got.len());
    let late = net.at_once;
    net.stream(100);
    assert!(net.at_once - late >= 90, "{:?}", net.status());
    assert!(matches!(net.status().assistance, Assistance::Unassisted(_)), "{:?}", net.status());
}

#[test]
fn a_proxy_that_lies_is_not_believed() {
    let mut net = found();
    net.lies = 8;
    net.stream(6000);
    let status = net.status();
    assert_eq!(status.withheld, Some(Withheld::Unbelieved), "{status:?}");
    assert!(status.resent < 6000 / 8, "{status:?}");
}

#[test]
fn a_proxy_that_floods_is_not_in_the_way() {
    let mut net = found();
    for number in 0..100_000_u32 {
        let message = [&[0x13][..], &number.to_be_bytes(), &[9; 40]].concat();
        net.flows.on_received(address(PROXY), Marks::default(), &message, net.now);
    }
    net.loses = [10, 0];
    net.stream(1000);
    let missing = (0..net.sent).filter(|number| !net.arrived.contains_key(number)).count();
    assert!(missing <= 10, "{missing} missing, {:?}", net.status());
}

#[test]
fn peers_are_bounded_and_forgotten() {
    let mut net = Net::new(Config::default());
    net.proxy = None;
    for number in 0..3000 {
        net.flows.on_sent(peer(number), Marks::default(), [&datagram(0)[..]], net.now);
        net.flows.on_received(peer(number + 5000), Marks::default(), &datagram(1), net.now);
    }
    assert_eq!(net.flows.status(net.now).count(), 1024);
    net.run(Duration::from_secs(61));
    assert_eq!(net.flows.status(net.now).count(), 0);
    assert_eq!(net.flows.poll_timeout(), None);
}

#[test]
fn a_peer_that_begins_gets_help_once_it_proves_real() {
    let mut net = Net::new(Config::default());
    for number in 1..9 {
        net.flows.on_received(peer(0), Marks::default(), &datagram(number), net.now);
        assert_eq!(net.flows.status(net.now).count(), 0, "{number}");
        net.send(peer(0), &datagram(number));
    }
    assert_eq!(net.flows.status(net.now).count(), 1);
}

#[test]
fn another_address_of_the_peer_is_another_flow() {
    let mut net = found();
    net.send(peer(1), &datagram(5000));
    net.run(200 * MS);
    for number in 5001..5200 {
        net.send(peer(1), &datagram(number));
        net.run(MS);
    }
    assert!(net.flows.status(net.now).all(|flow| flow.assistance == Assistance::Assisted));
    assert_eq!(net.flows.status(net.now).count(), 2);
}

#[test]
fn only_messages_of_sessions_are_taken_out() {
    let mut net = found();
    // The first byte is that of a message, as of a packet without the fixed bit (RFC 9287).
    let alike = [&[0x13, 0, 0, 1, 2][..], &[9; 40]].concat();
    let marks = Marks::default();
    net.handle(Event::Inward(peer(0), alike.clone()));
    net.run(50 * MS);
    assert!(net.got.iter().any(|datagram| datagram.payload == alike));
    // A peer can name the address of another one as that of a proxy.
    assert_eq!(net.flows.on_received(address(PROXY), marks, &alike, net.now), Arrival::Passes);
}

#[test]
fn at_the_end_the_application_gets_what_waits() {
    let mut net = Net::new(Config::default());
    net.loses = [0, 7];
    for number in 0..200 {
        net.send(peer(0), &datagram(number));
        net.run(MS);
    }
    let before = net.got.len();
    net.flows.close(net.now);
    net.flush();
    let rest = net.got.len() - before;
    assert!(rest < 20, "{rest}");
    assert_eq!((net.flows.poll_timeout(), net.flows.status(net.now).count()), (None, 0));
    net.run(10 * MS);
    assert_eq!(net.proxy.map(|proxy| proxy.sessions()), Some(0), "a BYE");
}
