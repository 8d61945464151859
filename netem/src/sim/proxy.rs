//! The proxy: a router between the segments, and the observer that listens on its near interface.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use sidekick_protocol::wire::Quack;
use sidekick_protocol::{
    Addresses, Flow, MAX_DATAGRAM_LEN, Observed, Observer, ObserverConfig, Payload, Release, Route,
};

use super::chain::{Node, Outbox, Side};
use super::faults::{Copies, Egress, Lies, Power, Restarts, Schedule};
use super::packet::Packet;
use super::seed_bytes;
use crate::record::{FaultCounts, HEADERS, QuackStyles};
use crate::topology::UNUSED_ADDRESS;

/// The number of the proxy's only capturing interface.
const NEAR_INTERFACE: u32 = 0;

/// The memory for copies of packets.
const KEEP_BYTES: usize = 256 << 20;

pub(super) struct Proxy {
    address: SocketAddr,
    /// The seed and the name of the run's observers. `None` without an observer.
    seed: Option<(u64, &'static str)>,
    observer: Option<Observer>,
    /// The most bytes of parity, in percent of those that it protects.
    parity_percent: u8,
    /// Whether it puts flows in order, and what it holds for that.
    orders: bool,
    held: BTreeMap<u64, Packet>,
    latest_held: u64,
    /// The bytes that the observer sent, with their headers.
    spoken: u64,
    /// The number of bytes to the receiver after which the observer is killed.
    dies_after: Option<u64>,
    passed: u64,
    tally: Tally,
    restarts: Restarts,
    restarted: u64,
    lies: Lies,
    copies: Copies,
    egress: Egress,
}

impl Proxy {
    /// A host that routes between a sender and a receiver. With `observes`, it has an observer at
    /// `address`, with the faults of `schedule`. `seed` is that of the run. `observes` has the
    /// observer's own seed, and a text that distinguishes the observers of a run.
    pub(super) fn new(
        address: SocketAddr,
        seed: u64,
        observes: Option<(u64, &'static str)>,
        dies_after: Option<u64>,
        tally: Tally,
        schedule: &Schedule,
    ) -> Result<Self, String> {
        let mut proxy = Self {
            address,
            seed: observes,
            observer: None,
            parity_percent: ObserverConfig::default().parity_percent,
            orders: false,
            held: BTreeMap::new(),
            latest_held: 0,
            spoken: 0,
            dies_after,
            passed: 0,
            tally,
            restarts: Restarts::new(schedule),
            restarted: 0,
            lies: Lies::new(schedule.clone(), seed),
            copies: Copies::new(schedule.clone(), seed),
            egress: Egress::new(schedule.clone(), seed),
        };
        proxy.observer = proxy.observer()?;
        Ok(proxy)
    }

    /// The same host with another cap on parity, which may put flows in order.
    pub(super) fn with(mut self, parity_percent: u8, orders: bool) -> Result<Self, String> {
        (self.parity_percent, self.orders) = (parity_percent, orders);
        self.observer = self.observer()?;
        Ok(self)
    }

    /// A new observer without sessions.
    fn observer(&self) -> Result<Option<Observer>, String> {
        let purpose = |name: &str| match self.restarted {
            0 => name.to_owned(),
            number => format!("{name} {number}"),
        };
        let parity_percent = self.parity_percent;
        let config = ObserverConfig {
            keep_bytes: KEEP_BYTES,
            parity_percent,
            orders: self.orders,
            relays: true,
            ..ObserverConfig::default()
        };
        let observer = self
            .seed
            .map(|(seed, name)| Observer::new(config.clone(), seed_bytes(seed, &purpose(name))));
        let mut observer = observer.transpose().map_err(|error| error.to_string())?;
        if let Some(observer) = &mut observer {
            observer.set_addresses(Addresses::announcing(NEAR_INTERFACE, self.address));
        }
        Ok(observer)
    }

    /// Kills the observer, and starts a new one as the scenario demands.
    fn restart(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(power) = self.restarts.due(now) {
            self.observer = None;
            self.release(out);
            if power == Power::On && self.seed.is_some() {
                self.restarted += 1;
                // This cannot fail: the first observer had the same configuration.
                self.observer = self.observer().ok().flatten();
            }
        }
    }

    /// Lets the observer process a packet from the sender.
    fn observe(&mut self, packet: &Packet, now: Instant) {
        self.passed += packet.payload.len() as u64;
        if self.dies_after.is_some_and(|bytes| self.passed > bytes) {
            self.observer = None;
        }
        let Some(observer) = &mut self.observer else { return };
        let flow = Flow { source: packet.source, destination: packet.destination };
        let mut observe = |payload: Payload<'_>| {
            let seen = observer.observe(&flow, NEAR_INTERFACE, payload, now);
            if seen == Observed::Counted {
                self.tally.counted(now);
            }
            seen
        };
        let length = packet.payload.len();
        let another_name = self.lies.renames(&packet.payload, now);
        if self.lies.sees(now) {
            match another_name {
                Some(head) if observe(Payload::cut(&head, length)) == Observed::Counted => {
                    self.lies.on_renamed();
                }
                Some(_) => {}
                None => {
                    observe(Payload::whole(&packet.payload));
                }
            }
        }
        if let Some(invented) = self.lies.invents(now) {
            observe(Payload::cut(&invented, length));
        }
    }

    /// Passes a packet on, once those before it are here.
    fn pass(&mut self, packet: Packet, now: Instant, out: &mut Outbox) {
        let flow = Flow { source: packet.source, destination: packet.destination };
        self.latest_held += 1;
        let name = self.latest_held;
        let observer = self.observer.as_mut().filter(|_| self.orders && !packet.damaged);
        if observer.is_some_and(|it| it.hold(name, &flow, &packet.payload, now)) {
            self.held.insert(name, packet);
        } else {
            out.push((Side::Right, packet));
        }
    }

    /// Passes on what need not wait any longer.
    fn release(&mut self, out: &mut Outbox) {
        match &mut self.observer {
            Some(observer) => {
                while let Some(release) = observer.poll_release() {
                    let packet = match release {
                        Release::Held(name) => self.held.remove(&name),
                        Release::Made { flow: Flow { source, destination }, payload, .. } => {
                            Some(Packet::new(source, destination, &payload))
                        }
                    };
                    out.extend(packet.map(|packet| (Side::Right, packet)));
                }
            }
            None => {
                let held = std::mem::take(&mut self.held).into_values();
                out.extend(held.map(|packet| (Side::Right, packet)));
            }
        }
    }

    fn speak(&mut self, now: Instant, out: &mut Outbox) {
        self.release(out);
        let leave = &mut |packet| out.push((Side::Left, packet));
        self.egress.on_timeout(now, leave);
        let Some(observer) = &mut self.observer else { return };
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        loop {
            let sent = |observer: &Observer| {
                let stats = observer.stats();
                (stats.quacks_sent, stats.repeats_sent)
            };
            let (quacks, repeats) = sent(observer);
            let Some(transmit) = observer.poll_transmit(&mut buffer) else { break };
            self.spoken += transmit.size as u64 + HEADERS;
            let payload = buffer.get(..transmit.size).unwrap_or_default();
            // The answer to a marker must come along the path, so its source is the receiver's
            // address.
            let source = match transmit.route {
                Route::Path { source, .. } => source,
                Route::Session | Route::SecondLink | Route::Stranger { .. } => self.address,
            };
            let packet = Packet::new(source, transmit.destination, payload);
            // The messages are sealed, so only the observer's counts show which one is a quACK.
            let after = sent(observer);
            if after.1 > repeats {
                if !self.copies.loses_repeat(now) {
                    leave(packet);
                }
            } else if after.0 == quacks {
                leave(packet);
            } else {
                self.lies.on_quack();
                self.tally.sent(transmit.size, now);
                self.egress.push(packet, now, leave);
            }
        }
    }
}

impl Node for Proxy {
    fn receive(&mut self, from: Side, packet: Packet, now: Instant, out: &mut Outbox) {
        self.restart(now, out);
        match from {
            Side::Right => {
                if let Some(observer) = self.observer.as_mut().filter(|_| !packet.damaged) {
                    let flow = Flow { source: packet.source, destination: packet.destination };
                    let client = packet.destination.ip();
                    // The client may have flows outside the session. They count here, too.
                    let asked = observer.copy_clients().any(|asking| asking == client);
                    self.copies.keep(&packet.payload, asked, now, |copy| {
                        observer.keep(&flow, NEAR_INTERFACE, copy, now)
                    });
                }
                out.push((Side::Left, packet));
            }
            Side::Left if packet.destination == self.address => {
                let lost = self.copies.loses_message(now);
                if let Some(observer) = self.observer.as_mut().filter(|_| !packet.damaged && !lost)
                {
                    // The observer counts invalid messages.
                    let _ = observer.handle_input(packet.source, &packet.payload, now);
                }
            }
            // No host has this address.
            Side::Left if packet.destination.ip() == IpAddr::from(UNUSED_ADDRESS) => {}
            Side::Left => {
                self.observe(&packet, now);
                self.pass(packet, now, out);
            }
        }
        self.speak(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let observer = self.observer.as_ref().and_then(Observer::poll_timeout);
        let deadlines = [observer, self.egress.poll_timeout(), self.restarts.poll_timeout()];
        deadlines.into_iter().flatten().min()
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Outbox) {
        self.restart(now, out);
        if let Some(observer) = &mut self.observer {
            observer.on_timeout(now);
        }
        self.speak(now, out);
    }

    fn quack_styles(&self) -> Option<QuackStyles> {
        self.tally.styles()
    }

    fn spoken_bytes(&self) -> u64 {
        self.spoken
    }

    fn fault_counts(&self) -> FaultCounts {
        let restarts = FaultCounts { proxy_restarts: self.restarted, ..FaultCounts::default() };
        self.lies.counts + self.egress.counts + self.copies.counts + restarts
    }
}

/// Bytes of an identifier.
const IDENTIFIER: u64 = 4;
/// Bytes of a SHA-256.
const HASH: u64 = 32;

/// Counts the bytes of every way over one run.
#[derive(Debug)]
pub(super) struct Tally {
    /// The shortest time that a packet is in flight.
    in_flight: Duration,
    seen: VecDeque<Instant>,
    unreported: u64,
    styles: QuackStyles,
}

impl Tally {
    /// For a path with this round trip time while its queues are empty.
    pub(super) fn new(round_trip: Duration) -> Self {
        Self {
            in_flight: round_trip,
            seen: VecDeque::new(),
            unreported: 0,
            styles: QuackStyles::default(),
        }
    }

    pub(super) fn counted(&mut self, now: Instant) {
        self.seen.push_back(now);
        self.unreported += 1;
        self.styles.packets += 1;
    }

    /// Counts a quACK that the proxy sent in a datagram of `length` bytes. The other ways need the
    /// same bytes around their contents as a whole quACK has around its sums, with the seal. A
    /// short quACK saves 17 bytes. The other ways could save them as well.
    pub(super) fn sent(&mut self, length: usize, now: Instant) {
        while self.seen.front().is_some_and(|&at| at + self.in_flight < now) {
            self.seen.pop_front();
        }
        let frame = Quack::sealed_len(0) as u64;
        self.styles.messages += 1;
        self.styles.power_sums += length as u64;
        self.styles.echo_every += frame + self.unreported * IDENTIFIER;
        self.styles.echo_window += frame + self.seen.len() as u64 * IDENTIFIER;
        self.styles.hash_of_all += frame + HASH;
        self.unreported = 0;
    }

    /// The bytes so far; `None` if no quACK was sent.
    pub(super) fn styles(&self) -> Option<QuackStyles> {
        (self.styles.messages > 0).then_some(self.styles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use sidekick_protocol::{Assistance, Sender, SenderConfig};
    use std::time::Duration;

    const MS: Duration = Duration::from_millis(1);

    /// A sender and the proxy, with nothing between them.
    struct Near {
        now: Instant,
        sender: Sender,
        flow: Flow,
        adjacent: SocketAddr,
        proxy: Proxy,
        sent: u32,
        /// The number of packets that passed on to the receiver.
        passed: u32,
    }

    fn address() -> SocketAddr {
        ([10, 77, 1, 2], 5252).into()
    }

    #[allow(clippy::disallowed_methods, reason = "any instant will do for a start")]
    fn near(config: SenderConfig, adjacent_port: u16, events: &str) -> Near {
        let now = Instant::now();
        let mut scenario = Scenario::load("upload-paper").unwrap();
        scenario.set("faults.events", events).unwrap();
        let flow = Flow {
            source: ([10, 77, 1, 1], 40_000).into(),
            destination: ([10, 77, 2, 2], 4433).into(),
        };
        let schedule = Schedule::new(now, scenario.faults);
        let observes = Some((1, "observer"));
        let proxy = Proxy::new(address(), 1, observes, None, Tally::new(MS), &schedule).unwrap();
        let mut sender = Sender::new(config, [1; 32]);
        sender.set_adjacent_port(adjacent_port);
        sender.start(flow, now);
        let adjacent = ([10, 77, 1, 1], 50_000).into();
        Near { now, sender, flow, adjacent, proxy, sent: 0, passed: 0 }
    }

    impl Near {
        fn deliver(&mut self, out: Outbox) {
            for (side, packet) in out {
                match side {
                    Side::Right => self.passed += 1,
                    Side::Left if packet.destination == self.adjacent => {
                        let _ = self.sender.handle_input(packet.source, &packet.payload, self.now);
                    }
                    Side::Left => {
                        assert_eq!(
                            (packet.source, packet.destination),
                            (self.flow.destination, self.flow.source)
                        );
                        let _ = self.sender.handle_on_path(&packet.payload, self.now);
                    }
                }
            }
        }

        fn pass(&mut self, source: SocketAddr, destination: SocketAddr, payload: &[u8]) {
            let mut out = Outbox::new();
            self.proxy.receive(
                Side::Left,
                Packet::new(source, destination, payload),
                self.now,
                &mut out,
            );
            self.deliver(out);
        }

        fn talk(&mut self) {
            let mut buffer = [0; MAX_DATAGRAM_LEN];
            while let Some(transmit) = self.sender.poll_transmit(&mut buffer) {
                let source = match transmit.route {
                    Route::Path { source, .. } => source,
                    Route::Session | Route::SecondLink | Route::Stranger { .. } => self.adjacent,
                };
                self.pass(source, transmit.destination, &buffer[..transmit.size]);
            }
        }

        /// Sends `packets` packets, one each millisecond.
        fn stream(&mut self, packets: u32) {
            for _ in 0..packets {
                self.sent += 1;
                let mut datagram = [0x40; 1200];
                datagram[21..25]
                    .copy_from_slice(&self.sent.wrapping_mul(0x9e37_79b1).to_be_bytes());
                self.sender.on_sent(self.sent.into(), Payload::whole(&datagram), self.now);
                self.pass(self.flow.source, self.flow.destination, &datagram);
                self.now += MS;
                self.sender.on_timeout(self.now);
                let mut out = Outbox::new();
                self.proxy.on_timeout(self.now, &mut out);
                self.deliver(out);
                self.talk();
            }
        }
    }

    #[test]
    fn a_sender_finds_it_and_the_receiver_gets_the_marker_too() {
        for port in [50_000, 0] {
            let mut near = near(SenderConfig::default(), port, "none");
            near.stream(300);
            assert_eq!(near.sender.assistance(), Assistance::Assisted, "port {port}");
            assert_eq!(near.sender.proxy().map(|(proxy, _)| proxy), Some(address()));
            let stats = near.sender.stats();
            assert!(stats.markers > 0 && stats.early_lost == 0, "{stats:?}");
            assert_eq!(u64::from(near.passed), u64::from(near.sent) + stats.markers);
        }
    }

    #[test]
    fn faults_of_quacks_affect_and_count_only_quacks() {
        let mut near = near(SenderConfig::of(address()), 0, "quack-loss 100 at 0");
        near.stream(100);
        assert!(near.sender.granted().is_some());
        let (stats, lost) = (near.sender.stats(), near.proxy.fault_counts().quacks_lost);
        assert!(lost > 0 && stats.quacks_received == 0, "{lost}, {stats:?}");
        assert_eq!(near.proxy.quack_styles().unwrap().messages, lost);
    }

    #[test]
    fn garbage_declares_nothing_lost() {
        let mut near = near(SenderConfig::of(address()), 0, "proxy-lies garbage at 50");
        near.stream(500);
        let (stats, counts) = (near.sender.stats(), near.proxy.fault_counts());
        assert!(counts.quacks_falsified > 0 && stats.undecodable > 0, "{counts:?}, {stats:?}");
        assert_eq!((stats.early_lost, near.passed), (0, near.sent));
    }
}
