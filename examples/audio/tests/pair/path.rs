//! Two segments in virtual time: a talker, a proxy between them if there is one, and a listener.

use audio::source::RandomBytes;
use audio::srtp::is_rtcp;
use audio::talker::sender_config;
use audio::{Listener, ListenerConfig, Reinject, Session, Talker, TalkerConfig, rtp};
use rtc_srtp::context::Context;
use rtc_srtp::protection_profile::ProtectionProfile;
use sidekick_protocol::{Flow, MAX_DATAGRAM_LEN, Observer, ObserverConfig, Payload, SenderConfig};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

pub(crate) const MS: Duration = Duration::from_millis(1);
const NEAR: Duration = MS;
const FAR: Duration = Duration::from_millis(25);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    ProxyOnTheWay,
    ProxyItself,
    Listener,
    Talker,
    TalkersAdjacentSocket,
}

/// The time, the order, the place and the content of an arrival.
type Arrival = (Instant, u64, Stop, Vec<u8>);

/// A datagram that the path may lose.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Passing {
    /// On the near segment: a packet of the stream, sent for the n-th time (from 0).
    Near { sequence: u32, attempt: u32 },
    /// On the far segment, likewise.
    Far { sequence: u32, attempt: u32 },
    /// Anything from the listener to the talker: the n-th (from 0).
    Back(u32),
}

pub(crate) struct Path<L> {
    pub(crate) now: Instant,
    pub(crate) talker: Talker,
    pub(crate) listener: Listener,
    proxy: Option<Observer>,
    flow: Flow,
    loses: L,
    in_flight: BinaryHeap<Reverse<Arrival>>,
    order: u64,
    /// Decrypts retransmissions, to identify the packets that they repeat.
    wiretap: Wiretap,
    attempts: BTreeMap<u32, u32>,
    backs: u32,
}

struct Wiretap {
    context: Context,
    rtx: u32,
    first: Option<u16>,
}

impl Wiretap {
    fn new(session: &Session, rtx: u32) -> Self {
        let provider = rtc_srtp::crypto::default_provider().unwrap();
        let (key, salt) = (session.key.key(), session.key.salt());
        let profile = ProtectionProfile::Aes128CmHmacSha1_80;
        let context = Context::new(key, salt, profile, None, None, provider.crypto()).unwrap();
        Self { context, rtx, first: None }
    }

    /// The place in the stream of the packet that this datagram carries, if it carries one.
    fn sequence(&mut self, datagram: &[u8]) -> Option<u32> {
        if is_rtcp(datagram) {
            return None;
        }
        let header = rtp::header(datagram).unwrap();
        let number = if header.ssrc == self.rtx {
            let packet = self.context.decrypt_rtp(datagram).unwrap();
            u16::from_be_bytes(*rtp::parse(&packet).unwrap().1.first_chunk().unwrap())
        } else {
            header.sequence
        };
        // No call here is long enough for numbers to wrap.
        Some(number.checked_sub(*self.first.get_or_insert(number)).unwrap().into())
    }
}

pub(crate) fn flow() -> Flow {
    Flow {
        source: "192.0.2.1:4000".parse().unwrap(),
        destination: "198.51.100.7:5004".parse().unwrap(),
    }
}

/// The proxy's address.
fn proxy() -> SocketAddr {
    "192.0.2.254:5252".parse().unwrap()
}

/// Help as in the paper: a quACK of 8 sums every 2 packets.
pub(crate) fn every_two_packets(poll: bool) -> Reinject {
    let mut sender = SenderConfig { poll, ..sender_config(proxy()) };
    (sender.terms.every_packets, sender.terms.every) = (NonZeroU16::new(2), None);
    sender.terms.threshold = 8;
    Reinject { sender, flow: flow(), seed: [7; 32] }
}

impl<L: FnMut(Passing) -> bool> Path<L> {
    #[allow(clippy::disallowed_methods, reason = "virtual time has to begin somewhere")]
    pub(crate) fn new(config: TalkerConfig, loses: L) -> Self {
        let now = Instant::now();
        let proxy = config
            .reinject
            .as_ref()
            .map(|_| Observer::new(ObserverConfig::default(), [9; 32]).unwrap());
        let session = config.session.clone();
        let talker = Talker::new(config, Box::new(RandomBytes::new(1, 240)), now).unwrap();
        Self {
            now,
            wiretap: Wiretap::new(&session, talker.sources().rtx),
            talker,
            listener: Listener::new(ListenerConfig::default(), session).unwrap(),
            proxy,
            flow: flow(),
            loses,
            in_flight: BinaryHeap::new(),
            order: 0,
            attempts: BTreeMap::new(),
            backs: 0,
        }
    }

    fn launch(&mut self, delay: Duration, to: Stop, datagram: Vec<u8>) {
        self.order += 1;
        self.in_flight.push(Reverse((self.now + delay, self.order, to, datagram)));
    }

    fn drain(&mut self) {
        let mut datagram = Vec::new();
        while self.talker.poll_transmit(&mut datagram, self.now) {
            if let Some(sequence) = self.wiretap.sequence(&datagram) {
                let attempts = self.attempts.entry(sequence).or_default();
                let attempt = *attempts;
                *attempts += 1;
                if (self.loses)(Passing::Near { sequence, attempt }) {
                    continue;
                }
            }
            self.launch(NEAR, Stop::ProxyOnTheWay, datagram.clone());
        }
        while self.listener.poll_transmit(&mut datagram, self.now) {
            self.backs += 1;
            if !(self.loses)(Passing::Back(self.backs - 1)) {
                self.launch(NEAR + FAR, Stop::Talker, datagram.clone());
            }
        }
        let mut message = [0; MAX_DATAGRAM_LEN];
        while let Some((to, len)) = self.talker.transmit_to_proxy(&mut message) {
            assert_eq!(to, proxy());
            self.launch(NEAR, Stop::ProxyItself, message[..len].to_vec());
        }
        while let Some(transmit) =
            self.proxy.as_mut().and_then(|proxy| proxy.poll_transmit(&mut message))
        {
            self.launch(NEAR, Stop::TalkersAdjacentSocket, message[..transmit.size].to_vec());
        }
    }

    fn arrive(&mut self, at: Stop, datagram: &[u8]) {
        let now = self.now;
        match at {
            Stop::ProxyOnTheWay => {
                if let Some(proxy) = &mut self.proxy {
                    proxy.observe(&self.flow, 0, Payload::whole(datagram), now);
                }
                if let Some(sequence) = self.wiretap.sequence(datagram) {
                    let attempt = self.attempts[&sequence] - 1;
                    if (self.loses)(Passing::Far { sequence, attempt }) {
                        return;
                    }
                }
                self.launch(FAR, Stop::Listener, datagram.to_vec());
            }
            Stop::ProxyItself => {
                let from: SocketAddr = "192.0.2.1:5000".parse().unwrap();
                let proxy = self.proxy.as_mut().unwrap();
                // The proxy refuses a HELLO without a cookie, and messages after a BYE.
                let _ = proxy.handle_input(from, datagram, now);
            }
            Stop::Listener => {
                self.listener.handle_input(datagram, now).unwrap();
            }
            // After the listener has confirmed the end, the talker ignores datagrams.
            Stop::Talker => self.talker.handle_input(datagram, now).unwrap(),
            Stop::TalkersAdjacentSocket => {
                let _ = self.talker.handle_proxy(proxy(), datagram, now);
            }
        }
    }

    /// Runs until both ends have finished. Fails if that takes an hour of virtual time.
    pub(crate) fn run(&mut self) {
        let until = self.now + 3_600_000 * MS;
        loop {
            self.talker.on_timeout(self.now);
            self.listener.on_timeout(self.now);
            if let Some(proxy) = &mut self.proxy {
                proxy.on_timeout(self.now);
            }
            self.drain();
            if self.talker.is_finished() && self.listener.is_finished() {
                return;
            }
            let arrival = self.in_flight.peek().map(|Reverse((at, ..))| *at);
            let proxy = self.proxy.as_ref().and_then(Observer::poll_timeout);
            let deadlines =
                [arrival, self.talker.poll_timeout(), self.listener.poll_timeout(), proxy];
            let next = deadlines.into_iter().flatten().min().expect("neither end has a deadline");
            assert!(next <= until, "the call does not end");
            assert!(next > self.now || arrival == Some(next), "a timeout is due again at once");
            self.now = self.now.max(next);
            if arrival == Some(next)
                && let Some(Reverse((_, _, stop, datagram))) = self.in_flight.pop()
            {
                self.arrive(stop, &datagram);
                self.drain();
            }
        }
    }
}
