//! Two segments in virtual time: a talker, a proxy between them, and a listener. The proxy helps
//! the end whose configuration asks for it.

use audio::source::random_bytes;
use audio::srtp::is_rtcp;
use audio::{End as _, Handled, Listener, ListenerConfig, Session, Talker, TalkerConfig, rtp};
use rtc_srtp::context::Context;
use rtc_srtp::protection_profile::ProtectionProfile;
use sidekick_protocol::{Addresses, Flow, MAX_DATAGRAM_LEN, Observer, ObserverConfig, Payload};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub(crate) const MS: Duration = Duration::from_millis(1);
/// The type of a PARITY, in the low half of a message's first byte (SPEC.md, section 6).
const PARITY: u8 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    ProxyOnTheWay,
    ProxyOnTheWayBack,
    ProxyItself,
    Listener,
    Talker,
    /// The adjacent socket of the end that the proxy helps.
    Adjacent,
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
    /// A PARITY of the proxy.
    Parity,
}

pub(crate) struct Path<L> {
    pub(crate) now: Instant,
    began: Instant,
    pub(crate) talker: Talker,
    pub(crate) listener: Listener,
    proxy: Observer,
    /// The one-way delays between the talker and the proxy, and between the proxy and the listener.
    delays: [Duration; 2],
    /// That between the proxy and the end that it helps.
    near: Duration,
    /// The adjacent socket of that end.
    adjacent: SocketAddr,
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
            u16::from_be_bytes(*rtp::content(&packet).unwrap().first_chunk().unwrap())
        } else {
            header.sequence
        };
        // No call here is long enough for numbers to wrap.
        Some(number.checked_sub(*self.first.get_or_insert(number)).unwrap().into())
    }
}

/// The flow from the talker to the listener.
fn flow() -> Flow {
    Flow {
        source: "192.0.2.1:4000".parse().unwrap(),
        destination: "198.51.100.7:5004".parse().unwrap(),
    }
}

fn reverse() -> Flow {
    Flow { source: flow().destination, destination: flow().source }
}

pub(crate) fn proxy() -> SocketAddr {
    "192.0.2.254:5252".parse().unwrap()
}

impl<L: FnMut(Passing) -> bool> Path<L> {
    #[allow(clippy::disallowed_methods, reason = "virtual time has to begin somewhere")]
    pub(crate) fn new(
        talks: TalkerConfig,
        listens: ListenerConfig,
        delays: [Duration; 2],
        loses: L,
    ) -> Self {
        let now = Instant::now();
        let (near, helped) = match listens.protected {
            Some(_) => (delays[1], flow().destination),
            None => (delays[0], flow().source),
        };
        let observes = ObserverConfig {
            keep_bytes: 1 << 24,
            parity_percent: 200,
            ..ObserverConfig::default()
        };
        let mut proxy = Observer::new(observes, [9; 32]).unwrap();
        proxy.set_addresses(Addresses::announcing(0, self::proxy()));
        let session = talks.session.clone();
        let mut talker = Talker::new(talks, random_bytes(1, 240), now).unwrap();
        talker.follow(flow(), now);
        Self {
            now,
            began: now,
            wiretap: Wiretap::new(&session, talker.sources().rtx),
            talker,
            listener: Listener::new(listens, session).unwrap(),
            proxy,
            delays,
            near,
            adjacent: SocketAddr::new(helped.ip(), 5000),
            loses,
            in_flight: BinaryHeap::new(),
            order: 0,
            attempts: BTreeMap::new(),
            backs: 0,
        }
    }

    fn launch(&mut self, delay: Duration, to: Stop, datagram: &[u8]) {
        self.order += 1;
        self.in_flight.push(Reverse((self.now + delay, self.order, to, datagram.to_vec())));
    }

    /// Serves all timers, and takes what waits to be sent.
    fn serve(&mut self) {
        self.talker.on_timeout(self.now);
        self.listener.on_timeout(self.now);
        self.proxy.on_timeout(self.now);
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
            self.launch(self.delays[0], Stop::ProxyOnTheWay, &datagram);
        }
        while self.listener.poll_transmit(&mut datagram, self.now) {
            self.backs += 1;
            if !(self.loses)(Passing::Back(self.backs - 1)) {
                self.launch(self.delays[1], Stop::ProxyOnTheWayBack, &datagram);
            }
        }
        let mut message = [0; MAX_DATAGRAM_LEN];
        while let Some((to, len)) = self
            .talker
            .transmit_to_proxy(&mut message)
            .or_else(|| self.listener.transmit_to_proxy(&mut message))
        {
            assert_eq!(to, proxy());
            self.launch(self.near, Stop::ProxyItself, &message[..len]);
        }
        while let Some(transmit) = self.proxy.poll_transmit(&mut message) {
            let message = &message[..transmit.size];
            if transmit.destination == flow().destination {
                self.launch(self.near, Stop::Listener, message);
            } else if message[0] & 0x0f != PARITY || !(self.loses)(Passing::Parity) {
                self.launch(self.near, Stop::Adjacent, message);
            }
        }
    }

    fn arrive(&mut self, at: Stop, datagram: &[u8]) {
        let now = self.now;
        match at {
            Stop::ProxyOnTheWay => {
                self.proxy.observe(&flow(), 0, Payload::whole(datagram), now);
                self.proxy.keep(&flow(), 0, datagram, now);
                if let Some(sequence) = self.wiretap.sequence(datagram) {
                    let attempt = self.attempts[&sequence] - 1;
                    if (self.loses)(Passing::Far { sequence, attempt }) {
                        return;
                    }
                }
                self.launch(self.delays[1], Stop::Listener, datagram);
            }
            Stop::ProxyOnTheWayBack => {
                self.proxy.observe(&reverse(), 0, Payload::whole(datagram), now);
                self.launch(self.delays[0], Stop::Talker, datagram);
            }
            Stop::ProxyItself => {
                // The proxy refuses a HELLO without a cookie, and messages after a BYE.
                let _ = self.proxy.handle_input(self.adjacent, datagram, now);
            }
            Stop::Listener => {
                if self.listener.handle_input(datagram, now).unwrap() == Handled::New {
                    self.listener.follow(reverse(), now);
                }
            }
            // After the listener has confirmed the end, the talker ignores datagrams.
            Stop::Talker => assert_eq!(self.talker.handle_input(datagram, now), Ok(Handled::New)),
            Stop::Adjacent => {
                let _ = self.talker.handle_proxy(proxy(), datagram, now);
                let _ = self.listener.handle_proxy(proxy(), datagram, now);
            }
        }
    }

    /// Continues to the next time at which something happens, unless it is after `until`.
    fn advance(&mut self, until: Instant) -> bool {
        let arrival = self.in_flight.peek().map(|Reverse((at, ..))| *at);
        let timers =
            [self.talker.poll_timeout(), self.listener.poll_timeout(), self.proxy.poll_timeout()];
        let next = timers.into_iter().chain([arrival]).flatten().min();
        let Some(next) = next.filter(|next| *next <= until) else { return false };
        assert!(next > self.now || arrival == Some(next), "a timeout is due again at once");
        self.now = self.now.max(next);
        if arrival == Some(next)
            && let Some(Reverse((_, _, stop, datagram))) = self.in_flight.pop()
        {
            self.arrive(stop, &datagram);
        }
        true
    }

    /// Runs until both ends have finished. Fails if that takes an hour of virtual time.
    pub(crate) fn run(&mut self) {
        let until = self.began + 3_600_000 * MS;
        self.serve();
        while !(self.talker.is_finished() && self.listener.is_finished()) {
            assert!(self.advance(until), "the call does not end");
            self.serve();
        }
    }

    /// Runs until this time after the beginning.
    pub(crate) fn run_until(&mut self, time: Duration) {
        let until = self.began + time;
        self.serve();
        while self.advance(until) {
            self.serve();
        }
        self.now = until;
    }
}
