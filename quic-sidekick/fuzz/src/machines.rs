//! A sender and a proxy, with a network that the input controls. It loses, repeats, reorders and
//! corrupts messages, forges some, and changes their source. It drops, delays and invents packets,
//! rebinds addresses, restarts the proxy and advances the time. The sender knows the proxy's
//! address, or must discover it. It may also receive the reverse flow, and request any copies of
//! it.
//!
//! For any input, neither state machine panics, spins or grows, and the proxy sends little more
//! than it saw. While no packet reaches the proxy late, no packet that passed it is declared lost.
//! Each copy is a datagram that passed, goes to the receiver that proved itself, and is neither too
//! old nor repeated too often. All copies together stay within their share and their memory.

#![no_main]
#![allow(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a fuzz target reports by panicking, and needs some instant"
)]

use libfuzzer_sys::fuzz_target;
use sidekick_protocol::wire::discovery::Answer;
use sidekick_protocol::wire::{Datagram, Part, Repeat, SessionNumber};
use sidekick_protocol::{
    Addresses, Fate, Flow, MAX_DATAGRAM_LEN, Observed, Observer, ObserverConfig, Payload, Position,
    Protect, Route, SecretKey, Sender, SenderConfig,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

/// The most messages in flight. The oldest are dropped.
const IN_FLIGHT: usize = 32;

const SENDER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const FLOW_PORT: u16 = 4000;
const ADJACENT_PORT: u16 = 5000;
/// Bytes that a session may send before it saw any (SPEC.md, section 6.7), and its BYE.
const GRANT: usize = 16 * 1024 + 26;
/// Bytes of copies that a session may send before it kept any (section 6.8).
const COPIES_GRANT: usize = 64 * 1024;
/// The longest datagram that is kept, how often it may be repeated, and the oldest copy.
const MAX_KEPT_LEN: usize = 1472;
const MAX_REPEATS: u32 = 16;
/// The most datagrams of parity at once: those that may wait, each with a list of its own.
const MAX_PARITY: usize = 256;
/// The bytes of parity that a session may send before anything passed.
const PARITY_GRANT: usize = 16 << 10;
const MAX_AGE: Duration = Duration::from_secs(1);
/// The most requests that a sender makes at once, each of them twice. The most copies that leave at
/// once: a burst of 24 KiB, in which no copy counts for less than 256 bytes.
const MAX_REQUESTS: usize = 2 * 32;
const MAX_COPIES: usize = 24 * 1024 / 256;
/// The proxy's memory for copies, and a session's share of it.
const KEEP_BYTES: usize = 1 << 20;
const KEEP_BYTES_PER_SESSION: usize = 256 << 10;

/// A datagram in flight between the two, other than the flow's packets.
#[derive(Clone)]
enum Message {
    /// Between the adjacent socket and the proxy's port.
    Beside(Vec<u8>),
    /// Along the flow's path: a marker, or an answer to one.
    OnPath(Vec<u8>),
}

impl Message {
    fn bytes(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Beside(bytes) | Self::OnPath(bytes) => bytes,
        }
    }
}

struct World {
    now: Instant,
    sender: Sender,
    proxy: Observer,
    proxy_config: ObserverConfig,
    proxy_address: SocketAddr,
    /// The flow as the sender sees it.
    flow: Flow,
    /// The flow as the proxy sees it.
    seen_flow: Flow,
    /// The adjacent socket, as the proxy sees it.
    peer: SocketAddr,
    restarts: u8,
    tag: u64,
    /// Packets that passed the proxy without delay, as packets of the sender's flow.
    passed: BTreeSet<u64>,
    /// No packet reached the proxy late. If an epoch begins with a late packet, packets of the
    /// previous epoch can seem to belong to it.
    in_order: bool,
    /// Packets still in flight to the proxy.
    held: VecDeque<[u8; 30]>,
    to_proxy: VecDeque<Message>,
    to_sender: VecDeque<Message>,
    /// Bytes of the flow that this proxy saw, and of messages that it received.
    flow_bytes: usize,
    heard_bytes: usize,
    reverse: Reverse,
}

/// The reverse flow.
#[derive(Default)]
struct Reverse {
    /// The number of datagrams so far, which their identifiers follow from.
    datagrams: u32,
    /// The datagrams that this proxy kept, by identifier.
    kept: BTreeMap<u32, Kept>,
    kept_bytes: usize,
    /// The bytes of copies that this proxy sent.
    copied_bytes: usize,
    /// The bytes of parity that this proxy sent.
    parity_bytes: usize,
    /// An answer to a KEEP arrived, so the sender can prove that it receives.
    proven: bool,
    /// The number of the sender's latest session, as its peer knows it.
    session: u32,
    gaps: u64,
    unfilled: Vec<u64>,
}

struct Kept {
    len: usize,
    at: Instant,
    repeats: u32,
}

/// A datagram of the reverse flow, if `len` has room for its identifier.
fn reverse_datagram(identifier: u32, len: usize) -> Vec<u8> {
    let mut datagram = vec![identifier.to_be_bytes()[3]; len];
    if let Some(end) = datagram.last_chunk_mut() {
        *end = identifier.to_be_bytes();
    }
    datagram
}

/// An odd factor permutes the identifiers, so that none repeats.
fn reverse_identifier(number: u32) -> u32 {
    number.wrapping_mul(0x9e37_79b1).wrapping_add(5)
}

fn packet(tag: u64) -> [u8; 30] {
    let mut datagram = [0x40; 30];
    // An odd factor permutes the identifiers, so that none repeats.
    let identifier = u32::try_from(tag).unwrap_or(0).wrapping_mul(0x9e37_79b1).wrapping_add(77);
    datagram[21..25].copy_from_slice(&identifier.to_be_bytes());
    datagram[26..].copy_from_slice(&identifier.to_be_bytes());
    datagram
}

impl World {
    fn new(settings: u8) -> Self {
        let now = Instant::now();
        let flow = Flow {
            source: (SENDER, FLOW_PORT).into(),
            destination: "198.51.100.7:443".parse().expect("an address"),
        };
        let proxy_address = "192.0.2.254:5252".parse().expect("an address");
        let key = SecretKey([3; 32]);
        let on = |bit: u8| settings >> bit & 1 == 1;
        let mut config = SenderConfig {
            proxy: (!on(3)).then_some(proxy_address),
            key: on(4).then(|| key.public()),
            poll: !on(0),
            packet_threshold: 1 + u32::from(settings >> 1 & 3),
            steady: (settings % 3 == 2).then(|| Duration::from_millis(1 << (settings % 11))),
            sparse: (settings % 7 != 6).then(|| Duration::from_millis(1 << (settings % 9))),
            frugal: (settings % 4 == 1).then_some(u32::from(settings)),
            keep: (settings % 5 != 4).then(|| Duration::from_millis(1 << (settings % 13))),
            ..SenderConfig::default()
        };
        if on(6) {
            config.terms.identification.position = Position::End;
        }
        let mut sender = Sender::new(config, [settings; 32]);
        if !on(5) {
            sender.set_adjacent_port(ADJACENT_PORT);
        }
        sender.set_handle([settings; 20]);
        sender.start(flow, now);
        let proxy_config = ObserverConfig {
            key: Some(key),
            keep_bytes: if settings % 11 == 10 { 0 } else { KEEP_BYTES },
            keep_bytes_per_session: KEEP_BYTES_PER_SESSION,
            ..ObserverConfig::default()
        };
        let mut world = Self {
            now,
            sender,
            proxy: Observer::new(proxy_config.clone(), [0; 32]).expect("limits"),
            proxy_config,
            proxy_address,
            flow,
            seen_flow: flow,
            peer: (SENDER, ADJACENT_PORT).into(),
            restarts: 0,
            tag: 0,
            passed: BTreeSet::new(),
            in_order: true,
            held: VecDeque::new(),
            to_proxy: VecDeque::new(),
            to_sender: VecDeque::new(),
            flow_bytes: 0,
            heard_bytes: 0,
            reverse: Reverse::default(),
        };
        world.proxy.set_addresses(Addresses::announcing(0, proxy_address));
        if on(7) {
            world.rebind(FLOW_PORT + 1);
        }
        world.drain();
        // The search for proxies begins with a deadline.
        world.advance(Duration::ZERO);
        world
    }

    fn drain(&mut self) {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let (mut messages, mut requests, mut copies, mut parity) = (0, 0, 0, 0);
        while let Some(transmit) = self.sender.poll_transmit(&mut buffer) {
            let bytes = buffer[..transmit.size].to_vec();
            match transmit.route {
                Route::Path { .. } => self.to_proxy.push_back(Message::OnPath(bytes)),
                _ if transmit.destination == self.proxy_address => {
                    self.to_proxy.push_back(Message::Beside(bytes));
                }
                // A corrupted answer named another proxy, which does not exist.
                _ => {}
            }
            requests += 1;
        }
        while let Some(transmit) = self.proxy.poll_transmit(&mut buffer) {
            let bytes = buffer[..transmit.size].to_vec();
            let to = transmit.destination;
            if let Ok(Datagram::Repeat(copy)) = Datagram::parse(&bytes) {
                self.check_copy(&copy, to);
                copies += 1;
            } else if let Ok(Datagram::Parity(_)) = Datagram::parse(&bytes) {
                assert!(self.reverse.proven, "the session has proven nothing");
                assert_eq!(to.ip(), SENDER, "parity for another host");
                self.reverse.parity_bytes += bytes.len();
                parity += 1;
            } else {
                messages += 1;
            }
            match transmit.route {
                Route::Path { source, .. } => {
                    assert_eq!((source, to.ip()), (self.flow.destination, SENDER.into()));
                    // Datagrams to a port that the NAT changed do not arrive.
                    if to == self.seen_flow.source {
                        self.to_sender.push_back(Message::OnPath(bytes));
                    }
                }
                _ if to == self.peer => {
                    if let Ok(Datagram::Sealed { session, .. }) = Datagram::parse(&bytes) {
                        self.reverse.session = session.0;
                    }
                    self.to_sender.push_back(Message::Beside(bytes));
                }
                _ => {}
            }
        }
        // A sender that fetches copies may have many ranges to request, and a proxy may have no
        // datagram for each.
        let most = if self.sender.is_kept() { 16 + MAX_REQUESTS } else { 16 };
        assert!(messages < 16, "{messages} messages of the proxy at once");
        assert!(requests < most, "{requests} messages of the sender at once");
        assert!(copies <= MAX_COPIES, "{copies} copies at once");
        assert!(parity <= MAX_PARITY, "{parity} datagrams of parity at once");
        for queue in [&mut self.to_proxy, &mut self.to_sender] {
            let too_many = queue.len().saturating_sub(IN_FLIGHT);
            queue.drain(..too_many);
        }
        let mut lost = Vec::new();
        self.sender.drain_lost(&mut lost);
        if self.in_order {
            let passed: Vec<_> =
                lost.iter().filter(|lost| self.passed.contains(&lost.tag)).collect();
            assert!(passed.is_empty(), "{passed:?} passed by the proxy");
        }

        let stats = self.proxy.stats();
        let granted =
            usize::try_from(stats.sessions_opened).unwrap_or(usize::MAX).saturating_mul(GRANT);
        let Reverse { kept_bytes, copied_bytes, parity_bytes, .. } = self.reverse;
        let share = self.flow_bytes / 2 + 2 * self.heard_bytes + kept_bytes / 2;
        assert!(
            stats.bytes_sent
                <= (granted.saturating_add(share + copied_bytes + parity_bytes)) as u64,
            "{stats:?} of {share} bytes"
        );
        let granted = usize::try_from(stats.sessions_opened).unwrap_or(usize::MAX);
        let granted = granted.saturating_mul(COPIES_GRANT);
        assert!(
            copied_bytes <= granted.saturating_add(kept_bytes),
            "{copied_bytes} bytes of copies of {kept_bytes}"
        );
        let opened = usize::try_from(stats.sessions_opened).unwrap_or(usize::MAX);
        let percent = usize::from(self.proxy_config.parity_percent);
        assert!(
            parity_bytes <= opened.saturating_mul(PARITY_GRANT) + kept_bytes * percent / 100,
            "{parity_bytes} bytes of parity of {kept_bytes}"
        );
        assert!(self.proxy.copies_bytes() <= self.proxy_config.keep_bytes);
        assert!(self.proxy.sessions() <= self.proxy_config.max_sessions);
        self.sender.drain_unfilled(&mut self.reverse.unfilled);
        let gaps = usize::try_from(self.reverse.gaps).unwrap_or(usize::MAX);
        assert!(self.reverse.unfilled.len() <= gaps, "each gap is given up once");
    }

    /// A copy is a datagram that passed not long ago, and goes to the host that proved itself.
    fn check_copy(&mut self, copy: &Repeat<'_>, to: SocketAddr) {
        assert!(self.reverse.proven, "the session has proven nothing");
        assert_eq!(to.ip(), SENDER, "a copy for another host");
        self.reverse.copied_bytes += copy.datagram.len() + 10;
        if copy.part == Part::First {
            // The second part has the identifier.
            return;
        }
        let identifier = copy.datagram.last_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        let kept = identifier.and_then(|identifier| self.reverse.kept.get_mut(&identifier));
        let kept = kept.expect("a copy of a datagram that did not pass");
        kept.repeats += 1;
        assert!(kept.repeats <= MAX_REPEATS && self.now - kept.at < MAX_AGE);
        let expected = reverse_datagram(identifier.unwrap_or_default(), kept.len);
        let half = expected.len() / 2;
        let rest = if copy.part == Part::Second { &expected[half..] } else { &expected[..] };
        assert_eq!(copy.datagram, rest);
    }

    /// A datagram of the reverse flow passes the proxy. Returns its identifier.
    fn pass(&mut self, interface: u32, len: usize) -> u32 {
        self.reverse.datagrams += 1;
        let identifier = reverse_identifier(self.reverse.datagrams);
        let datagram = reverse_datagram(identifier, len);
        let flow = Flow { source: self.flow.destination, destination: self.seen_flow.source };
        if self.proxy.keep(&flow, interface, &datagram, self.now) {
            assert!((4..=MAX_KEPT_LEN).contains(&len), "{len} bytes");
            self.reverse.kept.insert(identifier, Kept { len, at: self.now, repeats: 0 });
            self.reverse.kept_bytes += len;
        }
        identifier
    }

    /// The sender requests what passed between two datagrams, which may not exist.
    fn request(&mut self, after: Option<u8>, before: u8) {
        let identifier =
            |back: u8| reverse_identifier(self.reverse.datagrams.wrapping_sub(back.into()));
        let gap = self.reverse.gaps;
        let missing = u64::from(after.unwrap_or(1).wrapping_sub(before));
        let (after, before) = (after.map(identifier), identifier(before));
        self.sender.on_missing(gap, missing * missing, self.now);
        let asked = if missing.is_multiple_of(3) {
            self.sender.ask_about(gap, after, before, self.now)
        } else {
            let until = self.now + Duration::from_millis(missing);
            self.sender.request_copies(gap, after, before, until, self.now)
        };
        let loss = self.sender.reverse_near_loss();
        assert!((0.0..=1.0).contains(&loss.rate) && (0.0..=1.0).contains(&loss.congestion));
        if asked {
            self.reverse.gaps += 1;
        } else {
            self.sender.on_fate(gap, Fate::Unknown);
        }
    }

    /// An event of the reverse flow.
    fn step_reverse(&mut self, value: u8, rest: &[u8]) {
        let [first, second, third] = *rest.first_chunk().unwrap_or(&[0; 3]);
        match value {
            32..80 => {
                let identifier = self.pass(0, 30);
                self.sender.on_arrival(&reverse_datagram(identifier, 30));
                self.sender.on_received(usize::from(first) * 6, self.now);
                self.sender.on_progress(identifier, self.now);
            }
            80..112 => {
                // Lost before the sender.
                self.pass(0, 1200);
            }
            112..120 => {
                self.pass(1, 30);
            }
            120..136 => {
                self.pass(0, usize::from(first) * 6);
            }
            136..144 => {
                for _ in 0..first {
                    self.pass(0, 1000);
                }
            }
            144..176 => self.request((first & 1 == 0).then_some(second), third),
            176..184 => {
                for before in 0..first {
                    self.request(Some(before.wrapping_add(second)), before);
                }
            }
            184..192 => {
                let gap = u64::from(first);
                self.reverse.unfilled.retain(|unfilled| *unfilled != gap);
                self.sender.close_gap(gap);
                self.sender.on_late(gap, self.now);
                let fate = if second == 0 { Fate::Elsewhere } else { Fate::Lost(third.into()) };
                self.sender.on_fate(gap, fate);
            }
            192..200 => self.sender.set_fetching(value & 1 == 0),
            200..208 => self.sender.on_progress(u32::from(first), self.now),
            208..232 => {
                // A forged copy, perhaps with the right numbers.
                let [number, index, total] = [first.max(1), second, third];
                let session = SessionNumber(self.reverse.session);
                let range = value & 15;
                let part = [Part::Whole, Part::First, Part::Second][usize::from(second) % 3];
                if index < total {
                    let datagram = &[value; 40];
                    let number = number.into();
                    let copy = Repeat { session, number, range, index, total, part, datagram };
                    let mut buffer = [0; MAX_DATAGRAM_LEN];
                    let len = Datagram::Repeat(copy).emit(&mut buffer).expect("room");
                    let forged = Message::Beside(buffer[..len].to_vec());
                    self.deliver_to_sender(self.proxy_address, &forged);
                }
            }
            232..236 => self.proxy.missed(value.into()),
            236..248 => {
                let share = f64::from(first) / 255.0;
                let flush = Duration::from_micros(u64::from(third) * 100);
                let wanted = (first > 0).then(|| Protect::of(share, second, flush));
                self.sender.protect(wanted, self.now);
            }
            _ => self.proxy.missed(0),
        }
    }

    /// Captures a packet of the flow at the proxy.
    fn capture(&mut self, interface: u32, datagram: &[u8]) -> Observed {
        self.flow_bytes += datagram.len();
        self.proxy.observe(&self.seen_flow, interface, Payload::whole(datagram), self.now)
    }

    fn send(&mut self, passes: u32) {
        let datagram = packet(self.tag);
        self.sender.on_sent(self.tag, Payload::whole(&datagram), self.now);
        for _ in 0..passes {
            let seen = self.capture(0, &datagram);
            // Packets of a flow that a NAT changed do not belong to the session until the sender
            // learns of the change.
            if seen == Observed::Counted || self.seen_flow == self.flow {
                self.passed.insert(self.tag);
            }
        }
        self.tag += 1;
    }

    fn deliver_to_proxy(&mut self, from: SocketAddr, mut message: Message) {
        self.heard_bytes += message.bytes().len();
        match message {
            Message::Beside(bytes) => {
                let _ = self.proxy.handle_input(from, &bytes, self.now);
            }
            Message::OnPath(bytes) => {
                self.proxy.observe(&self.seen_flow, 0, Payload::whole(&bytes), self.now);
            }
        }
    }

    fn deliver_to_sender(&mut self, from: SocketAddr, message: &Message) {
        match message {
            Message::Beside(bytes) => {
                if let Ok(Some(copy)) = self.sender.handle_input(from, bytes, self.now) {
                    // The transport authenticates it.
                    let copy = copy.bytes(bytes);
                    let identifier = copy.last_chunk().expect("an identifier");
                    let identifier = u32::from_be_bytes(*identifier);
                    if copy == reverse_datagram(identifier, copy.len()) {
                        self.sender.on_progress(identifier, self.now);
                    }
                }
                let mut rebuilt = Vec::new();
                while self.sender.next_rebuilt(&mut rebuilt, self.now) {
                    assert!((4..=MAX_KEPT_LEN).contains(&rebuilt.len()), "{rebuilt:?}");
                }
            }
            // The flow's socket passes datagrams that look like answers to the sender, and all
            // others to the transport.
            Message::OnPath(bytes) if Answer::is_one(bytes) => {
                self.reverse.proven = true;
                let _ = self.sender.handle_on_path(bytes, self.now);
            }
            Message::OnPath(_) => {}
        }
    }

    /// The NAT assigns another port from now on.
    fn rebind(&mut self, port: u16) {
        self.seen_flow.source.set_port(port);
        self.peer.set_port(port.wrapping_add(ADJACENT_PORT - FLOW_PORT));
    }

    fn restart(&mut self) {
        self.restarts = self.restarts.wrapping_add(1);
        let seed = [self.restarts; 32];
        self.proxy = Observer::new(self.proxy_config.clone(), seed).expect("limits");
        self.proxy.set_addresses(Addresses::announcing(0, self.proxy_address));
        (self.flow_bytes, self.heard_bytes) = (0, 0);
        let reverse = &mut self.reverse;
        (reverse.kept_bytes, reverse.copied_bytes, reverse.proven) = (0, 0, false);
        reverse.parity_bytes = 0;
        reverse.kept.clear();
    }

    fn advance(&mut self, duration: Duration) {
        let end = self.now + duration;
        // A second contains a few deadlines, not thousands.
        for _ in 0..5000 {
            let deadlines = [self.sender.poll_timeout(), self.proxy.poll_timeout()];
            let Some(next) = deadlines.into_iter().flatten().min().filter(|next| *next <= end)
            else {
                break;
            };
            self.now = self.now.max(next);
            self.sender.on_timeout(self.now);
            self.proxy.on_timeout(self.now);
            self.drain();
            assert!(
                self.sender.poll_timeout().is_none_or(|at| at > self.now),
                "the sender would spin"
            );
            assert!(
                self.proxy.poll_timeout().is_none_or(|at| at > self.now),
                "the proxy would spin"
            );
        }
        self.now = end;
    }

    fn step(&mut self, [what, value]: [u8; 2], rest: &[u8]) {
        let pick = |length: usize| if length == 0 { 0 } else { usize::from(value) % length };
        let elsewhere: SocketAddr = match value % 4 {
            0 => (SENDER, ADJACENT_PORT + 7).into(),
            1 => (Ipv4Addr::new(203, 0, 113, 9), ADJACENT_PORT).into(),
            2 => (SENDER.to_ipv6_mapped(), ADJACENT_PORT).into(),
            _ => self.proxy_address,
        };
        match what % 19 {
            0..=3 => self.send(1),
            4 => self.send(0),
            5 if value & 1 == 0 => {
                // The proxy counts a datagram that the network repeats twice, so its sums no longer
                // match the sender's.
                self.send(2);
            }
            5 => {
                // Captured on its way in and on its way out.
                self.send(1);
                assert_ne!(self.capture(1, &packet(self.tag - 1)), Observed::Counted);
            }
            6 | 7 => {
                if let Some(message) = self.to_proxy.pop_front() {
                    self.deliver_to_proxy(self.peer, message);
                }
            }
            8 | 9 => {
                if let Some(message) = self.to_sender.pop_front() {
                    self.deliver_to_sender(self.proxy_address, &message);
                }
            }
            10 => {
                // Reordered or repeated.
                if let Some(message) = self.to_proxy.get(pick(self.to_proxy.len())).cloned() {
                    self.deliver_to_proxy(self.peer, message);
                }
                if let Some(message) = self.to_sender.get(pick(self.to_sender.len())).cloned() {
                    self.deliver_to_sender(self.proxy_address, &message);
                }
            }
            11 => {
                self.to_proxy.pop_back();
                self.to_sender.pop_back();
            }
            12 => {
                // Corrupted.
                let queue = if value & 1 == 0 { &mut self.to_proxy } else { &mut self.to_sender };
                if let Some(message) = queue.back_mut() {
                    let bytes = message.bytes();
                    let place = usize::from(value / 2) % bytes.len().max(1);
                    if let Some(byte) = bytes.get_mut(place) {
                        *byte ^= 1 << (value % 8);
                    }
                }
            }
            13 => {
                // Forged.
                let length = usize::from(value).min(rest.len());
                let bytes = rest.get(..length).unwrap_or_default().to_vec();
                for message in [Message::Beside(bytes.clone()), Message::OnPath(bytes)] {
                    self.deliver_to_sender(self.proxy_address, &message);
                    self.deliver_to_proxy(self.peer, message);
                }
            }
            14 if value < 16 => self.restart(),
            14 if value < 20 => self.sender.on_spurious(u64::from(value) * 3),
            14 if value < 24 => self.rebind(FLOW_PORT + u16::from(value % 4)),
            14 if value < 28 => {
                // The connection migrates. A NAT that knew the old port keeps the new one.
                self.flow.source.set_port(FLOW_PORT + 8 + u16::from(value % 4));
                self.seen_flow = self.flow;
                self.sender.start(self.flow, self.now);
            }
            14 if value < 30 => self.proxy.close(),
            14 if value < 32 => self.sender.stop(),
            14 => self.step_reverse(value, rest),
            16 => {
                // From another address.
                if let Some(message) = self.to_proxy.get(pick(self.to_proxy.len())).cloned() {
                    self.deliver_to_proxy(elsewhere, message);
                }
                if let Some(message) = self.to_sender.get(pick(self.to_sender.len())).cloned() {
                    self.deliver_to_sender(elsewhere, &message);
                }
            }
            17 if value & 1 == 0 => {
                // A delayed packet, which may be declared lost.
                self.held.push_back(packet(self.tag));
                self.send(0);
            }
            17 => {
                if let Some(datagram) = self.held.pop_front() {
                    self.in_order = false;
                    self.capture(0, &datagram);
                }
            }
            18 => {
                // Invented, or a replay of the sender's.
                let tag = self.tag.checked_sub(u64::from(value) + 1);
                self.in_order &= tag.is_none();
                self.capture(0, &packet(tag.unwrap_or(u32::MAX.into())));
            }
            _ => self.advance(Duration::from_micros(1 << (value % 24))),
        }
        self.drain();
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&settings, steps)) = data.split_first() else { return };
    let mut world = World::new(settings);
    let mut rest = steps;
    while let Some((&step, after)) = rest.split_first_chunk() {
        rest = after;
        world.step(step, rest);
    }
});
