//! A sender and a proxy with a network between them that does what the input says: it loses, repeats, overtakes and
//! corrupts messages, makes some up, swallows packets, restarts the proxy and lets the time pass.
//!
//! Whatever happens, neither machine panics, spins or grows. While every message that arrives is one that was sent and the
//! proxy keeps its memory, no packet is declared lost that the proxy had counted.

#![no_main]
#![allow(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a fuzz target reports by panicking, and needs some instant"
)]

use libfuzzer_sys::fuzz_target;
use sidekick_protocol::{Flow, MAX_MESSAGE_LEN, Observer, ObserverConfig, Sender, SenderConfig};
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// More messages than a network would hold are forgotten, the oldest first.
const IN_FLIGHT: usize = 32;

struct World {
    now: Instant,
    sender: Sender,
    proxy: Observer,
    flow: Flow,
    peer: SocketAddr,
    restarts: u8,
    tag: u64,
    seen: BTreeSet<u64>,
    to_proxy: VecDeque<Vec<u8>>,
    to_sender: VecDeque<Vec<u8>>,
    /// Nothing was made up, and nothing forgotten.
    honest: bool,
}

impl World {
    fn new(settings: u8) -> Self {
        let now = Instant::now();
        let flow = Flow {
            source: "192.0.2.1:4000".parse().expect("an address"),
            destination: "198.51.100.7:443".parse().expect("an address"),
        };
        let config = SenderConfig {
            poll: settings & 1 == 0,
            packet_threshold: 1 + u32::from(settings >> 1 & 3),
            ..SenderConfig::default()
        };
        let mut sender = Sender::new(config, [settings; 32]);
        sender.start(flow, now);
        let mut world = Self {
            now,
            sender,
            proxy: Observer::new(ObserverConfig::default(), [0; 32]).expect("limits"),
            flow,
            peer: "192.0.2.1:5000".parse().expect("an address"),
            restarts: 0,
            tag: 0,
            seen: BTreeSet::new(),
            to_proxy: VecDeque::new(),
            to_sender: VecDeque::new(),
            honest: true,
        };
        world.drain();
        world
    }

    fn drain(&mut self) {
        let mut buffer = [0; MAX_MESSAGE_LEN];
        let mut messages = 0;
        while let Some(length) = self.sender.transmit(&mut buffer) {
            self.to_proxy.push_back(buffer[..length].to_vec());
            messages += 1;
        }
        while let Some((to, length)) = self.proxy.transmit(&mut buffer) {
            if to == self.peer {
                self.to_sender.push_back(buffer[..length].to_vec());
            }
            messages += 1;
        }
        assert!(messages < 8, "{messages} messages at once");
        for queue in [&mut self.to_proxy, &mut self.to_sender] {
            let too_many = queue.len().saturating_sub(IN_FLIGHT);
            queue.drain(..too_many);
        }
        let mut lost = Vec::new();
        self.sender.drain_lost(&mut lost);
        if self.honest {
            let counted: Vec<_> = lost.iter().filter(|tag| self.seen.contains(tag)).collect();
            assert!(counted.is_empty(), "{counted:?} were counted");
        }
    }

    fn send(&mut self, passes: u32) {
        let mut datagram = [0x40; 30];
        // Identifiers that do not repeat: an odd factor permutes them.
        let identifier = u32::try_from(self.tag).unwrap_or(0).wrapping_mul(0x9e37_79b1).wrapping_add(77);
        datagram[21..25].copy_from_slice(&identifier.to_be_bytes());
        self.sender.on_sent(self.tag, &datagram, datagram.len(), self.now);
        for _ in 0..passes {
            self.proxy.observe(&self.flow, 0, &datagram, datagram.len(), self.now);
            self.seen.insert(self.tag);
        }
        self.tag += 1;
    }

    fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        // A second has a few deadlines, not thousands.
        for _ in 0..5000 {
            let deadlines = [self.sender.next_deadline(), self.proxy.next_deadline()];
            let Some(next) = deadlines.into_iter().flatten().min().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            self.sender.on_deadline(self.now);
            self.proxy.on_deadline(self.now);
            self.drain();
            assert!(self.sender.next_deadline().is_none_or(|at| at > self.now), "the sender would spin");
            assert!(self.proxy.next_deadline().is_none_or(|at| at > self.now), "the proxy would spin");
        }
        self.now = end;
    }

    fn step(&mut self, [what, value]: [u8; 2], rest: &[u8]) {
        let pick = |length: usize| if length == 0 { 0 } else { usize::from(value) % length };
        match what % 16 {
            0..=3 => self.send(1),
            4 => self.send(0),
            // A datagram that the network repeats is counted twice, by which the proxy's sums are no longer the sender's.
            5 => self.send(2),
            6 | 7 => {
                if let Some(message) = self.to_proxy.pop_front() {
                    let _ = self.proxy.handle(self.peer, &message, self.now);
                }
            }
            8 | 9 => {
                if let Some(message) = self.to_sender.pop_front() {
                    let _ = self.sender.handle(&message, self.now);
                }
            }
            10 => {
                // Overtaken, and repeated.
                if let Some(message) = self.to_proxy.get(pick(self.to_proxy.len())) {
                    let _ = self.proxy.handle(self.peer, message, self.now);
                }
                if let Some(message) = self.to_sender.get(pick(self.to_sender.len())) {
                    let _ = self.sender.handle(message, self.now);
                }
            }
            11 => {
                self.to_proxy.pop_back();
                self.to_sender.pop_back();
            }
            12 => {
                // Corrupted.
                self.honest = false;
                let queue = if value & 1 == 0 { &mut self.to_proxy } else { &mut self.to_sender };
                if let Some(message) = queue.back_mut() {
                    let place = usize::from(value / 2) % message.len().max(1);
                    if let Some(byte) = message.get_mut(place) {
                        *byte ^= 1 << (value % 8);
                    }
                }
            }
            13 => {
                // Made up.
                self.honest = false;
                let length = usize::from(value).min(rest.len());
                let message = rest.get(..length).unwrap_or_default();
                let _ = self.proxy.handle(self.peer, message, self.now);
                let _ = self.sender.handle(message, self.now);
            }
            14 if value < 16 => {
                self.honest = false;
                self.restarts = self.restarts.wrapping_add(1);
                self.proxy = Observer::new(ObserverConfig::default(), [self.restarts; 32]).expect("limits");
            }
            14 if value < 20 => self.sender.on_spurious(u64::from(value) * 3),
            _ => self.pass(Duration::from_micros(1 << (value % 24))),
        }
        self.drain();
        assert!(self.proxy.sessions() <= ObserverConfig::default().max_sessions);
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
