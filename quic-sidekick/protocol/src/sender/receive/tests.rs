//! A client receives a stream of datagrams past a proxy that keeps copies, in virtual time.
#![allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]

mod answers;
mod in_order;
mod parity;
mod parts;
mod tails;

use crate::clock::Numbers;
use crate::observer::Peer;
use crate::sender::session::State;
use crate::sender::status::HandleError;
use crate::testing::{PEER, PROXY, key, proxy};
use crate::transmit::Route;
use crate::wire::discovery::{Answer, HANDLE_LEN};
use crate::wire::{
    Datagram, MAX_DATAGRAM_LEN, Message, Part, Range, Ranges, Repeat, Request, SessionNumber,
};
use crate::{Copied, Flow, Observer, ObserverConfig, Payload, Sender, SenderConfig};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const DELAY: Duration = Duration::from_millis(1);
const MS: Duration = Duration::from_millis(1);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A datagram of the reverse flow reaches the proxy.
    Pass(Vec<u8>),
    Arrive(Vec<u8>),
    Marker(Vec<u8>),
    Answer(Vec<u8>),
    ToProxy(Vec<u8>),
    ToSender(Vec<u8>),
}

/// The client, the proxy and the near segment between them.
struct Download {
    now: Instant,
    sender: Sender,
    proxy: Observer,
    flow: Flow,
    loss_percent: u32,
    /// The delay that the segment adds to every datagram.
    queue: Duration,
    /// The delay that it adds to the next datagrams of the reverse flow alone.
    late: Duration,
    random: Numbers,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    order: u64,
    /// When each datagram arrived, by its number.
    arrived: BTreeMap<u32, Instant>,
    highest: Option<u32>,
    /// Gaps that the client has not closed: the missing numbers.
    gaps: BTreeMap<u64, Vec<u32>>,
    next_gap: u64,
    /// Gaps that the proxy could not fill.
    unfilled: Vec<u64>,
    copies: u64,
    /// Datagrams that parity rebuilt.
    rebuilt: u64,
    /// Whether the proxy's datagrams along the path reach the sender.
    answers_arrive: bool,
    /// Whether the client requests copies.
    requests: bool,
    /// No message reaches the proxy.
    mute: bool,
    /// The length of each datagram.
    len: usize,
    /// Longer datagrams do not cross the near segment towards the sender.
    longest: usize,
    /// Of the copies, those that arrived in parts.
    joined: u64,
}

/// The datagram with this number, which is also its identifier.
fn datagram(number: u32) -> Vec<u8> {
    datagram_of(number, 1200)
}

fn datagram_of(number: u32, len: usize) -> Vec<u8> {
    let mut datagram = vec![number.to_be_bytes()[3]; len];
    datagram[len - 4..].copy_from_slice(&number.to_be_bytes());
    datagram
}

/// The sender's handle.
const HANDLE: [u8; HANDLE_LEN] = [7; HANDLE_LEN];

fn number(datagram: &[u8]) -> u32 {
    u32::from_be_bytes(*datagram.last_chunk().unwrap())
}

fn keeping() -> ObserverConfig {
    ObserverConfig { keep_bytes: 256 << 20, ..ObserverConfig::default() }
}

impl Download {
    fn new(config: ObserverConfig, seed: u64, loss_percent: u32) -> Self {
        let now = Instant::now();
        let flow = Flow {
            source: "192.0.2.1:4000".parse().unwrap(),
            destination: "198.51.100.7:443".parse().unwrap(),
        };
        let sender = SenderConfig { keep: Some(200 * MS), ..SenderConfig::default() };
        let mut sender = Sender::new(sender, key(seed));
        sender.set_adjacent_port(5000);
        sender.set_handle(HANDLE);
        sender.start(flow, now);
        let mut download = Self {
            now,
            sender,
            proxy: proxy(config, seed + 1),
            flow,
            loss_percent,
            queue: Duration::ZERO,
            late: Duration::ZERO,
            random: Numbers::new(key(!seed)),
            events: BinaryHeap::new(),
            order: 0,
            arrived: BTreeMap::new(),
            highest: None,
            gaps: BTreeMap::new(),
            next_gap: 0,
            unfilled: Vec::new(),
            copies: 0,
            rebuilt: 0,
            answers_arrive: true,
            requests: true,
            mute: false,
            len: 1200,
            longest: usize::MAX,
            joined: 0,
        };
        download.drain();
        download
    }

    fn schedule(&mut self, at: Instant, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    /// Lets a datagram cross the near segment.
    fn cross(&mut self, event: Event) {
        if let Event::Arrive(bytes) | Event::ToSender(bytes) = &event
            && bytes.len() > self.longest
        {
            return;
        }
        if self.random.next_u32() % 100 >= self.loss_percent {
            let late = if matches!(event, Event::Arrive(_)) { self.late } else { Duration::ZERO };
            self.schedule(self.now + DELAY + self.queue + late, event);
        }
    }

    fn drain(&mut self) {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        while let Some(transmit) = self.sender.poll_transmit(&mut buffer) {
            let bytes = buffer[..transmit.size].to_vec();
            self.cross(match transmit.route {
                Route::Path { .. } => Event::Marker(bytes),
                Route::Session | Route::SecondLink | Route::Stranger { .. } => {
                    Event::ToProxy(bytes)
                }
            });
        }
        while let Some(transmit) = self.proxy.poll_transmit(&mut buffer) {
            let bytes = buffer[..transmit.size].to_vec();
            self.cross(match transmit.route {
                Route::Path { source, .. } => {
                    assert_eq!(
                        (source, transmit.destination),
                        (self.flow.destination, self.flow.source)
                    );
                    // The handle identifies this connection on a socket that several share.
                    assert_eq!(Answer::parse(&bytes).unwrap().handle, HANDLE);
                    Event::Answer(bytes)
                }
                Route::Session | Route::SecondLink | Route::Stranger { .. } => {
                    assert_eq!(transmit.destination, PEER.parse::<SocketAddr>().unwrap());
                    Event::ToSender(bytes)
                }
            });
        }
    }

    fn handle_event(&mut self, event: Event) {
        let reverse = Flow { source: self.flow.destination, destination: self.flow.source };
        match event {
            Event::Pass(bytes) => {
                self.proxy.keep(&reverse, 0, &bytes, self.now);
                self.cross(Event::Arrive(bytes));
            }
            Event::Arrive(bytes) => {
                self.sender.on_arrival(&bytes);
                if bytes.len() > 1200 {
                    self.sender.on_received(bytes.len(), self.now);
                }
                self.receive(number(&bytes));
            }
            Event::Marker(bytes) => {
                self.proxy.observe(&self.flow, 0, Payload::whole(&bytes), self.now);
            }
            Event::Answer(_) if !self.answers_arrive => {}
            Event::Answer(bytes) => {
                let _ = self.sender.handle_on_path(&bytes, self.now);
            }
            Event::ToProxy(_) if self.mute => {}
            Event::ToProxy(bytes) => {
                let peer = Peer::from(PEER.parse::<SocketAddr>().unwrap());
                let _ = self.proxy.handle_input(peer, &bytes, self.now);
            }
            Event::ToSender(bytes) => {
                if let Ok(Some(copy)) =
                    self.sender.handle_input(PROXY.parse().unwrap(), &bytes, self.now)
                {
                    self.copies += 1;
                    self.joined += u64::from(matches!(copy, Copied::Joined(_)));
                    let copy = copy.bytes(&bytes);
                    assert_eq!(copy, datagram_of(number(copy), copy.len()));
                    self.receive(number(copy));
                }
                let mut rebuilt = Vec::new();
                while self.sender.next_rebuilt(&mut rebuilt, self.now) {
                    let number = number(&rebuilt);
                    assert_eq!(rebuilt, datagram_of(number, self.len));
                    self.rebuilt += 1;
                    self.receive(number);
                }
                let mut unfilled = Vec::new();
                self.sender.drain_unfilled(&mut unfilled);
                for gap in unfilled {
                    if self.gaps.remove(&gap).is_some() {
                        self.unfilled.push(gap);
                    }
                }
            }
        }
        self.drain();
    }

    /// A datagram arrives, original or copy.
    fn receive(&mut self, number: u32) {
        if self.arrived.contains_key(&number) {
            return;
        }
        self.arrived.insert(number, self.now);
        let filled = |missing: &mut Vec<u32>| missing.retain(|missing| *missing != number);
        self.gaps.values_mut().for_each(filled);
        let Self { gaps, sender, .. } = self;
        gaps.retain(|gap, missing| {
            if missing.is_empty() {
                sender.close_gap(*gap);
            }
            !missing.is_empty()
        });
        let expected = self.highest.map_or(0, |highest| highest + 1);
        if number > expected && self.requests {
            let gap = self.next_gap;
            self.next_gap += 1;
            self.gaps.insert(gap, (expected..number).collect());
            let until = self.now + 100 * MS;
            if !self.sender.request_copies(gap, self.highest, number, until, self.now) {
                self.gaps.remove(&gap);
            }
        }
        self.highest = self.highest.max(Some(number));
        self.sender.on_progress(self.highest.unwrap(), self.now);
    }

    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let timers = [event, self.sender.poll_timeout(), self.proxy.poll_timeout()];
            let Some(next) = timers.into_iter().flatten().min().filter(|at| *at <= end) else {
                break;
            };
            self.now = self.now.max(next);
            if event.is_some_and(|at| at <= self.now)
                && let Some(Reverse((_, _, event))) = self.events.pop()
            {
                self.handle_event(event);
            }
            self.sender.on_timeout(self.now);
            self.proxy.on_timeout(self.now);
            self.drain();
        }
        self.now = end;
    }

    /// Sends `count` datagrams of the reverse flow, one every `interval`, from `first` on. Those in
    /// `lost` do not reach the proxy.
    fn stream(&mut self, first: u32, count: u32, interval: Duration, lost: &[u32]) {
        for number in (first..first + count).filter(|number| !lost.contains(number)) {
            let at = self.now + interval * (number - first);
            self.schedule(at, Event::Pass(datagram_of(number, self.len)));
        }
    }
}

#[test]
fn every_datagram_that_passed_the_proxy_arrives() {
    for (loss_percent, most_ms) in [(0, 2), (4, 60), (15, 90), (30, 200)] {
        let mut slowest = Duration::ZERO;
        for seed in 0..20 {
            let mut download = Download::new(keeping(), seed, loss_percent);
            download.run(5000 * MS);
            assert!(download.sender.is_kept(), "seed {seed}, {loss_percent} %");
            let start = download.now;
            // At 30 %, all TAILs of the very last datagram may be lost.
            download.stream(0, 1010, MS, &[]);
            download.run(3000 * MS);
            let missing: Vec<_> =
                (0..1000).filter(|number| !download.arrived.contains_key(number)).collect();
            assert!(missing.is_empty(), "seed {seed}, {loss_percent} %: {missing:?}");
            assert!(download.unfilled.is_empty(), "seed {seed}, {loss_percent} %");
            for (number, at) in &download.arrived {
                slowest = slowest.max(*at - start - MS * *number - DELAY);
            }
            let copies = u32::try_from(download.copies).unwrap();
            // Each copy is lost as often as an original.
            assert!(
                copies * (100 - loss_percent) <= 1000 * loss_percent * 13 / 10 + 2000,
                "{copies}"
            );
        }
        assert!(slowest <= MS * most_ms, "{slowest:?} at {loss_percent} %");
    }
}

/// The copy arrives late, so the sender repeats its request, and then doubles it.
#[test]
fn both_messages_of_a_double_request_count() {
    let mut download = Download::new(keeping(), 6, 0);
    download.run(100 * MS);
    download.stream(0, 20, MS, &[]);
    download.run(100 * MS);
    let reverse = Flow { source: download.flow.destination, destination: download.flow.source };
    download.proxy.keep(&reverse, 0, &datagram(20), download.now);
    download.queue = 40 * MS;
    download.schedule(download.now, Event::Pass(datagram(21)));
    download.run(500 * MS);
    assert!(download.arrived.contains_key(&20));
    // Each request has one range. The proxy answers none once it no longer keeps the datagram.
    let stats = download.proxy.stats();
    let requests = stats.requests + stats.requests_unanswered;
    assert_eq!(download.sender.stats().repeats_requested, requests);
    assert!(requests >= 4, "two single requests and a double one: {requests}");
}

#[test]
fn a_datagram_lost_before_the_proxy_is_given_up_at_once() {
    let mut download = Download::new(keeping(), 5, 0);
    download.run(100 * MS);
    download.stream(0, 100, MS, &[10, 20, 21, 22, 60]);
    download.run(12 * MS);
    assert_eq!(download.gaps.len(), 1, "the sender requested it");
    download.run(2 * DELAY);
    assert_eq!(download.unfilled.len(), 1, "a near round trip later");
    download.run(200 * MS);
    assert_eq!((download.unfilled.len(), download.gaps.len()), (3, 0));
    assert_eq!(download.copies, 0);
}

/// A gap that waits for copies ends when the proxy drops them.
#[test]
fn a_proxy_that_stops_keeping_ends_the_waiting_gaps() {
    let mut download = Download::new(keeping(), 3, 0);
    download.run(100 * MS);
    let until = download.now + 100 * MS;
    assert!(download.sender.request_copies(9, Some(7000), 7002, until, download.now));
    download.gaps.insert(9, vec![7001]);
    download.drain();
    download.run(10 * MS);
    assert!(download.unfilled.is_empty() && download.sender.is_kept());
    download.proxy.reconfigure(ObserverConfig::default()).unwrap();
    download.drain();
    download.run(DELAY);
    assert_eq!((&download.unfilled[..], download.sender.is_kept()), (&[9][..], false));
    // The messages in flight arrive.
    download.run(DELAY);
    let requests = download.proxy.stats().requests_unanswered;
    download.run(1000 * MS);
    assert_eq!(download.proxy.stats().requests_unanswered, requests);
}

#[test]
fn a_proxy_that_keeps_nothing_reports_it() {
    let mut download = Download::new(ObserverConfig::default(), 3, 0);
    download.run(100 * MS);
    assert!(!download.sender.is_kept());
    download.stream(0, 100, MS, &[50]);
    download.run(200 * MS);
    assert_eq!((download.copies, download.gaps.len()), (0, 0));
    assert_eq!(download.proxy.copies_bytes(), 0);
}

/// The sender has proved its address. In the second case, it does not receive at the flow's port.
#[test]
fn only_the_receiver_of_the_flow_receives_copies() {
    for receives in [true, false] {
        let mut download = Download::new(keeping(), 3, 0);
        let config =
            SenderConfig { keep: Some(200 * MS), ..SenderConfig::of(PROXY.parse().unwrap()) };
        download.sender = Sender::new(config, key(9));
        download.sender.set_handle(HANDLE);
        download.sender.start(download.flow, download.now);
        download.proxy.set_addresses(crate::Addresses::default());
        download.events.clear();
        download.answers_arrive = receives;
        download.drain();
        download.run(2000 * MS);
        assert_eq!(download.proxy.stats().sessions_opened, 1);
        assert_eq!(download.sender.is_kept(), receives);
        assert_eq!(download.proxy.keeps_copies(), receives);
        assert!((1..=30).contains(&download.proxy.stats().keeps_unproven));
    }
}

#[test]
fn a_sender_that_wants_no_copies_asks_for_none() {
    // The call comes before the session begins, or during its handshake.
    for before in [true, false] {
        let mut download = Download::new(keeping(), 3, 0);
        let keep = Some(200 * MS);
        let config = SenderConfig { keep, ..SenderConfig::of(PROXY.parse().unwrap()) };
        download.sender = Sender::new(config, key(9));
        if before {
            download.sender.want_no_copies();
        }
        download.sender.start(download.flow, download.now);
        download.sender.want_no_copies();
        download.events.clear();
        download.drain();
        download.run(500 * MS);
        let stats = download.proxy.stats();
        assert_eq!((stats.sessions_opened, stats.keeps, stats.keeps_unproven), (1, 0, 0));
    }
}

#[test]
fn copies_can_be_wanted_later() {
    let mut download = Download::new(keeping(), 3, 0);
    let config = SenderConfig::of(PROXY.parse().unwrap());
    download.sender = Sender::new(config, key(9));
    download.sender.set_handle(HANDLE);
    download.sender.start(download.flow, download.now);
    download.events.clear();
    download.drain();
    download.run(500 * MS);
    let stats = download.proxy.stats();
    assert_eq!((stats.sessions_opened, stats.keeps_unproven), (1, 0));
    for _ in 0..3 {
        download.sender.want_copies(200 * MS, download.now);
        download.drain();
        download.run(50 * MS);
        assert!(download.sender.is_kept() && download.proxy.keeps_copies());
    }
    // A session asks once: by one KEEP without a proof, and two with it.
    let stats = download.proxy.stats();
    assert_eq!((stats.keeps_unproven, stats.keeps), (1, 2));
}

#[test]
fn a_queue_longer_than_the_interval_of_polls_is_measured() {
    let mut download = Download::new(keeping(), 3, 0);
    download.run(100 * MS);
    let near = download.sender.keeper_rtt().unwrap();
    // The host itself sends no packets whose reports would show the queue.
    for (queue, first) in [(20, 0), (45, 1000)] {
        download.queue = queue * MS;
        download.stream(first, 1000, MS, &[]);
        download.run(300 * MS);
        let measured = download.sender.keeper_rtt().unwrap();
        assert!(measured > near + queue * MS, "{measured:?} behind a queue of {queue} ms");
        assert!(download.sender.keeper_queue_grows());
        download.run(700 * MS);
    }
}

#[test]
fn copies_end_with_their_session() {
    let mut download = Download::new(keeping(), 3, 0);
    download.run(100 * MS);
    download.stream(0, 100, MS, &[]);
    download.run(100 * MS);
    assert!(download.proxy.copies_bytes() > 0 && download.proxy.keeps_copies());
    download.sender.stop();
    download.drain();
    download.run(10 * MS);
    assert_eq!((download.proxy.copies_bytes(), download.proxy.keeps_copies()), (0, false));
}
