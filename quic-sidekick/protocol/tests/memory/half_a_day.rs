//! Twelve hours of virtual time with a proxy whose clients come and go.

use crate::allocator::held;
use sidekick_protocol::{
    Assistance, Flow, Lost, MAX_DATAGRAM_LEN, Observed, Observer, ObserverConfig, Payload, Route,
    SecretKey, Sender, SenderConfig,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const HALF_A_DAY: Duration = Duration::from_secs(12 * 3600);
/// The number of clients at a time.
const CLIENTS: usize = 24;
/// The near segment's one-way delay.
const DELAY: Duration = Duration::from_millis(10);
const MINUTE: Duration = Duration::from_secs(60);

/// Events. Those of the same instant happen in the order of their creation.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A client sends a packet.
    Send(usize, u64),
    /// The packet with this tag and identifier passes the proxy.
    Pass(usize, u64, u64, u32),
    /// A message reaches the proxy, or a client.
    ToProxy(usize, u64, Vec<u8>),
    ToClient(usize, u64, Vec<u8>),
    /// A client leaves, with a BYE or without, and another replaces it.
    Leave(usize, u64),
    /// The proxy reloads its configuration.
    Reload,
    /// The proxy is killed and restarted.
    Restart,
}

struct Client {
    /// The number of clients in this slot before it.
    number: u64,
    sender: Sender,
    flow: Flow,
    adjacent: SocketAddr,
    next_tag: u64,
    pace: Duration,
    /// When the latest packets were sent, and when the proxy counted them.
    sent: VecDeque<(u64, Instant, bool)>,
    counted: HashMap<u64, Instant>,
}

/// A pseudo-random generator (Vigna's SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    fn key(&mut self) -> [u8; 32] {
        let mut key = [0; 32];
        key.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&self.next().to_be_bytes()));
        key
    }
}

struct World {
    now: Instant,
    proxy: Observer,
    port: SocketAddr,
    /// The bytes that the proxy holds.
    held: isize,
    clients: Vec<Client>,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    order: u64,
    random: Random,
    /// Packets declared lost, packets that the near segment lost, and packets sent.
    declared: u64,
    lost: u64,
    sent: u64,
    /// Packets declared lost that the proxy had counted before its report.
    wrong: u64,
}

fn config() -> ObserverConfig {
    let key = Some(SecretKey([9; 32]));
    ObserverConfig { key, max_sessions: 4 * CLIENTS, ..ObserverConfig::default() }
}

impl World {
    #[allow(clippy::disallowed_methods, reason = "virtual time has to begin somewhere")]
    fn new() -> Self {
        let (proxy, held) = held(|| Observer::new(config(), [1; 32]).unwrap());
        let now = Instant::now();
        let mut world = Self {
            now,
            proxy,
            port: ([192, 0, 2, 254], 5252).into(),
            held,
            clients: Vec::new(),
            events: BinaryHeap::new(),
            order: 0,
            random: Random(7),
            declared: 0,
            lost: 0,
            sent: 0,
            wrong: 0,
        };
        for place in 0..CLIENTS {
            let client = world.new_client(place, 0);
            world.clients.push(client);
            world.schedule(place);
        }
        world.at(MINUTE, Event::Reload);
        world.at(31 * MINUTE, Event::Restart);
        world
    }

    fn at(&mut self, after: Duration, event: Event) {
        self.order += 1;
        self.events.push(Reverse((self.now + after, self.order, event)));
    }

    fn new_client(&mut self, place: usize, number: u64) -> Client {
        let ip = [10, 0, 0, u8::try_from(place).unwrap() + 1];
        let port = 4000 + u16::try_from(number % 20_000).unwrap();
        let flow = Flow { source: (ip, port).into(), destination: ([198, 51, 100, 7], 443).into() };
        let mut sender = Sender::new(SenderConfig::of(self.port), self.random.key());
        sender.start(flow, self.now);
        let pace = Duration::from_millis(400 + self.random.below(1600));
        let adjacent = (ip, 30_000 + port).into();
        let (sent, counted) = (VecDeque::new(), HashMap::new());
        Client { number, sender, flow, adjacent, next_tag: 0, pace, sent, counted }
    }

    /// Schedules the events of a new client.
    fn schedule(&mut self, place: usize) {
        let number = self.clients[place].number;
        let stay = Duration::from_secs(60 + self.random.below(20 * 60));
        self.at(Duration::ZERO, Event::Send(place, number));
        self.at(stay, Event::Leave(place, number));
        self.drain(place);
    }

    /// Whether the near segment loses a datagram, as it does two of a hundred.
    fn is_lost(&mut self) -> bool {
        self.random.below(100) < 2
    }

    fn drain(&mut self, place: usize) {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let mut lost = Vec::new();
        while let Some(transmit) = self.clients[place].sender.poll_transmit(&mut buffer) {
            assert_eq!((transmit.destination, transmit.route), (self.port, Route::Session));
            let number = self.clients[place].number;
            if !self.is_lost() {
                self.at(DELAY, Event::ToProxy(place, number, buffer[..transmit.size].to_vec()));
            }
        }
        let client = &mut self.clients[place];
        client.sender.drain_received(&mut lost);
        lost.clear();
        let mut lost = Vec::new();
        client.sender.drain_lost(&mut lost);
        for Lost { tag, .. } in lost {
            self.declared += 1;
            // The proxy's message arrived now, and left the proxy one delay earlier.
            let said = self.now - DELAY;
            self.wrong +=
                u64::from(client.counted.get(&tag).is_some_and(|counted| *counted <= said));
        }
    }

    fn with_proxy<T>(&mut self, work: impl FnOnce(&mut Observer) -> T) -> T {
        let proxy = &mut self.proxy;
        let (result, more) = held(|| work(proxy));
        self.held += more;
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        while let Some(transmit) = self.proxy.poll_transmit(&mut buffer) {
            let Some(place) =
                self.clients.iter().position(|client| client.adjacent == transmit.destination)
            else {
                continue;
            };
            let number = self.clients[place].number;
            if !self.is_lost() {
                self.at(DELAY, Event::ToClient(place, number, buffer[..transmit.size].to_vec()));
            }
        }
        result
    }

    fn handle(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Send(place, number) if self.clients[place].number == number => {
                let (identifier, gone) =
                    (u32::try_from(self.random.next() >> 32).unwrap(), self.is_lost());
                let client = &mut self.clients[place];
                let tag = client.next_tag;
                client.next_tag += 1;
                client.sent.push_back((tag, now, gone));
                if client.sent.len() > 4000 {
                    let forgotten = client.sent.pop_front().unwrap();
                    client.counted.remove(&forgotten.0);
                }
                client.sender.on_sent(tag, Payload::whole(&packet(identifier)), now);
                let pace = client.pace;
                self.at(pace, Event::Send(place, number));
                self.sent += 1;
                if gone {
                    self.lost += 1;
                } else {
                    self.at(DELAY, Event::Pass(place, number, tag, identifier));
                }
                self.drain(place);
            }
            Event::Pass(place, number, tag, identifier) => {
                let flow = self.clients[place].flow;
                if self.clients[place].number == number {
                    let payload = packet(identifier);
                    let seen = self
                        .with_proxy(|proxy| proxy.observe(&flow, 0, Payload::whole(&payload), now));
                    if seen == Observed::Counted {
                        self.clients[place].counted.insert(tag, now);
                    }
                }
            }
            Event::ToProxy(place, number, message) if self.clients[place].number == number => {
                let from = self.clients[place].adjacent;
                let _ = self.with_proxy(|proxy| proxy.handle_input(from, &message, now));
            }
            Event::ToClient(place, number, message) if self.clients[place].number == number => {
                let port = self.port;
                let _ = self.clients[place].sender.handle_input(port, &message, now);
                self.drain(place);
            }
            Event::Leave(place, number) if self.clients[place].number == number => {
                if self.random.below(2) == 0 {
                    self.clients[place].sender.stop();
                    let from = self.clients[place].adjacent;
                    let mut buffer = [0; MAX_DATAGRAM_LEN];
                    while let Some(transmit) = self.clients[place].sender.poll_transmit(&mut buffer)
                    {
                        let message = &buffer[..transmit.size];
                        let _ = self.with_proxy(|proxy| proxy.handle_input(from, message, now));
                    }
                }
                self.clients[place] = self.new_client(place, number + 1);
                self.schedule(place);
            }
            Event::Reload => {
                self.with_proxy(|proxy| proxy.reconfigure(config())).unwrap();
                self.at(MINUTE, Event::Reload);
            }
            Event::Restart => {
                let seed = self.random.key();
                let (fresh, more) = held(|| Observer::new(config(), seed).unwrap());
                let (_, less) = held(|| self.proxy = fresh);
                self.held += more + less;
                self.at(31 * MINUTE, Event::Restart);
            }
            _ => {}
        }
    }

    /// Advances the time by `duration`.
    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let clients =
                self.clients.iter().filter_map(|client| client.sender.poll_timeout()).min();
            let next = [event, clients, self.proxy.poll_timeout()].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            let now = self.now;
            if event == Some(next) {
                let Some(Reverse((_, _, event))) = self.events.pop() else { break };
                self.handle(event);
            }
            if self.proxy.poll_timeout().is_some_and(|at| at <= now) {
                self.with_proxy(|proxy| proxy.on_timeout(now));
            }
            for place in 0..CLIENTS {
                if self.clients[place].sender.poll_timeout().is_some_and(|at| at <= now) {
                    self.clients[place].sender.on_timeout(now);
                    self.drain(place);
                }
            }
        }
        self.now = end;
    }
}

fn packet(identifier: u32) -> [u8; 300] {
    let mut payload = [0x40; 300];
    payload[21..25].copy_from_slice(&identifier.to_be_bytes());
    payload
}

/// Memory depends only on the sessions that exist, and no packet that the proxy counted is declared
/// lost. Both hold however clients come and go, and however often the proxy restarts or reloads.
#[test]
fn after_half_a_day_memory_depends_on_sessions_alone() {
    let mut world = World::new();
    let empty = world.held;
    let (mut most, mut most_sessions) = (0, 0);
    let mut minutes = 0;
    while Duration::from_secs(60) * minutes < HALF_A_DAY {
        minutes += 1;
        world.run(MINUTE);
        let sessions = world.proxy.sessions();
        let each = (world.held - empty) / isize::try_from(sessions.max(1)).unwrap();
        (most, most_sessions) = (most.max(each), most_sessions.max(sessions));
        assert!(sessions <= 4 * CLIENTS);
        // A session uses less than three kilobytes beside the tables, in the last minute as in the
        // first.
        assert!(
            each < 3072,
            "minute {minutes}: {} bytes for {sessions} sessions",
            world.held - empty
        );
    }
    let assisted = world
        .clients
        .iter()
        .filter(|client| client.sender.assistance() == Assistance::Assisted)
        .count();
    let came: u64 = world.clients.iter().map(|client| client.number + 1).sum();
    println!(
        "{came} clients, {} packets sent, {} lost, {} declared lost, \
         at most {most_sessions} sessions of {most} bytes",
        world.sent, world.lost, world.declared
    );
    assert_eq!(world.wrong, 0, "packets were declared lost that had been counted");
    assert!(assisted >= CLIENTS - 2, "{assisted} are assisted");
    // The senders detect all losses but those in flight when a client left or the proxy restarted.
    assert!(
        world.declared * 100 > world.lost * 90,
        "{} of {} losses were found",
        world.declared,
        world.lost
    );
    assert!(came > 1000 && world.sent > 700_000, "{came} clients, {} packets", world.sent);
}
