//! Twelve hours of virtual time with a proxy that people come to and leave.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

#[path = "../../quack/tests/support/allocator.rs"]
mod allocator;

use allocator::held;
use sidekick_protocol::{
    Assistance, Flow, MAX_DATAGRAM_LEN, Observed, Observer, ObserverConfig, Payload, SecretKey,
    Sender, SenderConfig, Target,
};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const HALF_A_DAY: Duration = Duration::from_secs(12 * 3600);
/// People at a time.
const PEOPLE: usize = 24;
/// One way on the near segment.
const DELAY: Duration = Duration::from_millis(10);
const MINUTE: Duration = Duration::from_secs(60);

/// What happens, and when; events of the same instant happen in the order in which they were made.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Somebody sends a packet.
    Send(usize, u64),
    /// The packet with this tag and identifier passes the proxy.
    Pass(usize, u64, u64, u32),
    /// A message reaches the proxy, or somebody.
    ToProxy(usize, u64, Vec<u8>),
    ToPerson(usize, u64, Vec<u8>),
    /// Somebody leaves, with a goodbye or without, and another comes.
    Leave(usize, u64),
    /// The proxy reads its configuration anew.
    Reload,
    /// The proxy is killed and started.
    Restart,
}

struct Person {
    /// Of how many in this place it is.
    number: u64,
    sender: Sender,
    flow: Flow,
    adjacent: SocketAddr,
    next_tag: u64,
    pace: Duration,
    /// When the latest packets were sent, and when the proxy counted those that it counted.
    sent: VecDeque<(u64, Instant, bool)>,
    counted: HashMap<u64, Instant>,
}

/// A generator of numbers that need only look random (Vigna's SplitMix64).
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

struct Town {
    now: Instant,
    proxy: Observer,
    port: SocketAddr,
    /// Bytes that the proxy holds.
    held: isize,
    people: Vec<Person>,
    events: BinaryHeap<Reverse<(Instant, u64, Event)>>,
    order: u64,
    random: Random,
    /// Packets declared lost, packets that the near segment lost, and those sent.
    declared: u64,
    lost: u64,
    sent: u64,
    /// Of these declared, the ones that the proxy had counted before it said so.
    wrong: u64,
}

fn config() -> ObserverConfig {
    let key = Some(SecretKey([9; 32]));
    ObserverConfig { key, max_sessions: 4 * PEOPLE, ..ObserverConfig::default() }
}

impl Town {
    #[allow(clippy::disallowed_methods, reason = "virtual time has to begin somewhere")]
    fn new() -> Self {
        let (proxy, held) = held(|| Observer::new(config(), [1; 32]).unwrap());
        let now = Instant::now();
        let mut town = Self {
            now,
            proxy,
            port: ([192, 0, 2, 254], 5252).into(),
            held,
            people: Vec::new(),
            events: BinaryHeap::new(),
            order: 0,
            random: Random(7),
            declared: 0,
            lost: 0,
            sent: 0,
            wrong: 0,
        };
        for place in 0..PEOPLE {
            let person = town.newcomer(place, 0);
            town.people.push(person);
            town.settle_in(place);
        }
        town.at(MINUTE, Event::Reload);
        town.at(31 * MINUTE, Event::Restart);
        town
    }

    fn at(&mut self, after: Duration, event: Event) {
        self.order += 1;
        self.events.push(Reverse((self.now + after, self.order, event)));
    }

    fn newcomer(&mut self, place: usize, number: u64) -> Person {
        let ip = [10, 0, 0, u8::try_from(place).unwrap() + 1];
        let port = 4000 + u16::try_from(number % 20_000).unwrap();
        let flow = Flow { source: (ip, port).into(), destination: ([198, 51, 100, 7], 443).into() };
        let mut sender = Sender::new(SenderConfig::of(self.port), self.random.key());
        sender.start(flow, self.now);
        let pace = Duration::from_millis(400 + self.random.below(1600));
        let adjacent = (ip, 30_000 + port).into();
        let (sent, counted) = (VecDeque::new(), HashMap::new());
        Person { number, sender, flow, adjacent, next_tag: 0, pace, sent, counted }
    }

    /// What somebody who has just come will do.
    fn settle_in(&mut self, place: usize) {
        let number = self.people[place].number;
        let stay = Duration::from_secs(60 + self.random.below(20 * 60));
        self.at(Duration::ZERO, Event::Send(place, number));
        self.at(stay, Event::Leave(place, number));
        self.speak(place);
    }

    /// Who is lost on the near segment: two of a hundred.
    fn is_lost(&mut self) -> bool {
        self.random.below(100) < 2
    }

    fn speak(&mut self, place: usize) {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let mut lost = Vec::new();
        while let Some((target, len)) = self.people[place].sender.poll_transmit(&mut buffer) {
            assert_eq!(target, Target::Proxy(self.port));
            let number = self.people[place].number;
            if !self.is_lost() {
                self.at(DELAY, Event::ToProxy(place, number, buffer[..len].to_vec()));
            }
        }
        let person = &mut self.people[place];
        person.sender.drain_received(&mut lost);
        lost.clear();
        person.sender.drain_lost(&mut lost);
        for tag in lost {
            self.declared += 1;
            // What the proxy said reached the sender now, and was said so much earlier.
            let said = self.now - DELAY;
            self.wrong +=
                u64::from(person.counted.get(&tag).is_some_and(|counted| *counted <= said));
        }
    }

    fn proxy_does<T>(&mut self, work: impl FnOnce(&mut Observer) -> T) -> T {
        let proxy = &mut self.proxy;
        let (result, more) = held(|| work(proxy));
        self.held += more;
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        while let Some(transmit) = self.proxy.poll_transmit(&mut buffer) {
            let Some(place) = self.people.iter().position(|person| person.adjacent == transmit.to)
            else {
                continue;
            };
            let number = self.people[place].number;
            if !self.is_lost() {
                self.at(DELAY, Event::ToPerson(place, number, buffer[..transmit.len].to_vec()));
            }
        }
        result
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Send(place, number) if self.people[place].number == number => {
                let (identifier, gone) =
                    (u32::try_from(self.random.next() >> 32).unwrap(), self.is_lost());
                let person = &mut self.people[place];
                let tag = person.next_tag;
                person.next_tag += 1;
                person.sent.push_back((tag, now, gone));
                if person.sent.len() > 4000 {
                    let forgotten = person.sent.pop_front().unwrap();
                    person.counted.remove(&forgotten.0);
                }
                person.sender.on_sent(tag, Payload::whole(&packet(identifier)), now);
                let pace = person.pace;
                self.at(pace, Event::Send(place, number));
                self.sent += 1;
                if gone {
                    self.lost += 1;
                } else {
                    self.at(DELAY, Event::Pass(place, number, tag, identifier));
                }
                self.speak(place);
            }
            Event::Pass(place, number, tag, identifier) => {
                let flow = self.people[place].flow;
                if self.people[place].number == number {
                    let payload = packet(identifier);
                    let seen = self
                        .proxy_does(|proxy| proxy.observe(&flow, 0, Payload::whole(&payload), now));
                    if seen == Observed::Counted {
                        self.people[place].counted.insert(tag, now);
                    }
                }
            }
            Event::ToProxy(place, number, message) if self.people[place].number == number => {
                let from = self.people[place].adjacent;
                let _ = self.proxy_does(|proxy| proxy.handle_input(from, &message, now));
            }
            Event::ToPerson(place, number, message) if self.people[place].number == number => {
                let port = self.port;
                let _ = self.people[place].sender.handle_input(port, &message, now);
                self.speak(place);
            }
            Event::Leave(place, number) if self.people[place].number == number => {
                if self.random.below(2) == 0 {
                    self.people[place].sender.stop();
                    let from = self.people[place].adjacent;
                    let mut buffer = [0; MAX_DATAGRAM_LEN];
                    while let Some((_, len)) = self.people[place].sender.poll_transmit(&mut buffer)
                    {
                        let _ =
                            self.proxy_does(|proxy| proxy.handle_input(from, &buffer[..len], now));
                    }
                }
                self.people[place] = self.newcomer(place, number + 1);
                self.settle_in(place);
            }
            Event::Reload => {
                self.proxy_does(|proxy| proxy.reconfigure(config())).unwrap();
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

    /// Lets the time pass.
    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let event = self.events.peek().map(|Reverse((at, ..))| *at);
            let people = self.people.iter().filter_map(|person| person.sender.poll_timeout()).min();
            let next = [event, people, self.proxy.poll_timeout()].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            let now = self.now;
            if event == Some(next) {
                let Some(Reverse((_, _, event))) = self.events.pop() else { break };
                self.happen(event);
            }
            if self.proxy.poll_timeout().is_some_and(|at| at <= now) {
                self.proxy_does(|proxy| proxy.on_timeout(now));
            }
            for place in 0..PEOPLE {
                if self.people[place].sender.poll_timeout().is_some_and(|at| at <= now) {
                    self.people[place].sender.on_timeout(now);
                    self.speak(place);
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

/// Memory goes with the sessions that there are and with nothing else, and no packet that the proxy
/// has counted is called lost, whoever comes or leaves and however often the proxy is started or
/// reads its configuration.
#[test]
fn half_a_day_leaves_nothing_behind() {
    let mut town = Town::new();
    let empty = town.held;
    let (mut most, mut most_sessions) = (0, 0);
    let mut minutes = 0;
    while Duration::from_secs(60) * minutes < HALF_A_DAY {
        minutes += 1;
        town.run(MINUTE);
        let sessions = town.proxy.sessions();
        let each = (town.held - empty) / isize::try_from(sessions.max(1)).unwrap();
        (most, most_sessions) = (most.max(each), most_sessions.max(sessions));
        assert!(sessions <= 4 * PEOPLE);
        // A session takes less than three kilobytes beside the tables, in the last minute as in the
        // first.
        assert!(
            each < 3072,
            "minute {minutes}: {} bytes for {sessions} sessions",
            town.held - empty
        );
    }
    let assisted = town
        .people
        .iter()
        .filter(|person| person.sender.assistance() == Assistance::Assisted)
        .count();
    let came: u64 = town.people.iter().map(|person| person.number + 1).sum();
    println!(
        "{came} people, {} packets sent, {} lost, {} declared lost, \
         at most {most_sessions} sessions of {most} bytes",
        town.sent, town.lost, town.declared
    );
    assert_eq!(town.wrong, 0, "packets were declared lost that had been counted");
    assert!(assisted >= PEOPLE - 2, "{assisted} are assisted");
    // What was lost is found, but for what was on its way when somebody left or the proxy was
    // started.
    assert!(
        town.declared * 100 > town.lost * 90,
        "{} of {} losses were found",
        town.declared,
        town.lost
    );
    assert!(came > 1000 && town.sent > 700_000, "{came} people, {} packets", town.sent);
}
