use super::*;
use crate::keys::{Initiator, Seal};
use crate::wire::discovery::{MARKER_LEN, Marker, Reply};
use crate::wire::{Accept, Cookie, ECHO_LEN, Hello, MAX_DATAGRAM_LEN, Pattern, Quack, Refusal};
use crate::{Position, Terms};
use proptest::prelude::*;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::time::Duration;

mod attacks;
mod churn;

const PEER: &str = "192.0.2.1:5000";

/// An observer, and the keys of those who speak to it.
struct Bench {
    observer: Observer,
    now: Instant,
    flow: Flow,
    /// By the number that the sender has chosen: the proxy's number, and the keys.
    seals: HashMap<u32, (SessionNumber, Seal)>,
    cookie: Cookie,
}

#[allow(clippy::disallowed_methods, reason = "virtual time has to begin somewhere")]
fn bench(config: ObserverConfig) -> Bench {
    let flow = Flow {
        source: "192.0.2.1:4000".parse().unwrap(),
        destination: "198.51.100.7:443".parse().unwrap(),
    };
    let mut observer = Observer::new(config, [5; 32]).unwrap();
    observer.set_addresses(Addresses::announcing(0, "192.0.2.254:5252".parse().unwrap()));
    Bench { observer, now: Instant::now(), flow, seals: HashMap::new(), cookie: Cookie::NONE }
}

fn peer() -> SocketAddr {
    PEER.parse().unwrap()
}

fn packet(identifier: u32) -> [u8; 300] {
    let mut payload = [0x41; 300];
    payload[21..25].copy_from_slice(&identifier.to_be_bytes());
    payload
}

impl Bench {
    /// The next datagram, as bytes.
    fn heard(&mut self) -> Option<(Transmit, Vec<u8>)> {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let transmit = self.observer.poll_transmit(&mut buffer)?;
        Some((transmit, buffer[..transmit.len].to_vec()))
    }

    fn hear_from(&mut self, from: SocketAddr, datagram: Datagram<'_>) -> Result<(), HandleError> {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let len = datagram.emit(&mut buffer).unwrap();
        self.observer.handle_input(from, &buffer[..len], self.now)
    }

    /// A HELLO, with a cookie that the observer gave before if there is one.
    fn hello_from(
        &mut self,
        from: SocketAddr,
        number: u32,
        terms: Terms,
    ) -> (Result<(), HandleError>, Initiator) {
        let (session, flow, pattern) = (SessionNumber(number), self.flow, Pattern::Unpinned);
        let (initiator, message) = Initiator::begin(None, session, &flow, &terms, [7; 32]).unwrap();
        let hello =
            Hello { session, flow, cookie: self.cookie, pattern, handshake: message.bytes() };
        (self.hear_from(from, Datagram::Hello(hello)), initiator)
    }

    /// Has the observer give a cookie for an address.
    fn take_cookie(&mut self, from: SocketAddr) {
        self.cookie = Cookie::NONE;
        let (outcome, _) = self.hello_from(from, 1, Terms::default());
        assert_eq!(outcome, Err(HandleError::Unproven));
        let (transmit, bytes) = self.heard().unwrap();
        let Datagram::Retry { cookie, .. } = Datagram::parse(&bytes).unwrap() else { panic!() };
        assert_eq!((transmit.to, transmit.from), (from, None));
        self.cookie = cookie;
    }

    /// Asks for a session of that number; `Err` when that is refused.
    fn hello(&mut self, number: u32, terms: Terms) -> Result<Accept, HandleError> {
        self.hello_of(peer(), number, terms)
    }

    fn hello_of(
        &mut self,
        from: SocketAddr,
        number: u32,
        terms: Terms,
    ) -> Result<Accept, HandleError> {
        self.take_cookie(from);
        let (outcome, initiator) = self.hello_from(from, number, terms);
        outcome.map(|()| self.accepted(number, initiator))
    }

    /// Asks for a session with the cookie of a marker's answer.
    fn hello_along_path(&mut self, number: u32) -> Result<Accept, HandleError> {
        let nonce = u8::try_from(number).unwrap();
        self.cookie = self.mark(nonce, Reply::Path).unwrap().1.cookie;
        let (outcome, initiator) = self.hello_from(peer(), number, Terms::default());
        outcome.map(|()| self.accepted(number, initiator))
    }

    /// Reads the ACCEPT that waits.
    fn accepted(&mut self, number: u32, mut initiator: Initiator) -> Accept {
        let (_, bytes) = self.heard().unwrap();
        let Datagram::Accept { session, handshake } = Datagram::parse(&bytes).unwrap() else {
            panic!()
        };
        assert_eq!(session, SessionNumber(number));
        let accept = initiator.read(handshake).unwrap();
        let (seal, key) = initiator.finish().unwrap();
        assert_eq!(key, self.observer.public_key());
        self.seals.insert(number, (accept.session, seal));
        accept
    }

    fn say_from(
        &mut self,
        from: SocketAddr,
        number: u32,
        message: Message<'_>,
    ) -> Result<(), HandleError> {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let (session, seal) = self.seals.get_mut(&number).unwrap();
        let len = seal.seal(*session, &message, &mut buffer).unwrap();
        self.observer.handle_input(from, &buffer[..len], self.now)
    }

    fn say(&mut self, number: u32, message: Message<'_>) -> Result<(), HandleError> {
        self.say_from(peer(), number, message)
    }

    fn poll(&mut self, number: u32, epoch: u16, token: u16) -> Result<(), HandleError> {
        self.say(number, Message::Poll(Poll { epoch, token, sums: 0 }))
    }

    /// A session at work.
    fn open(&mut self, number: u32, terms: Terms) -> Accept {
        let accept = self.hello(number, terms).unwrap();
        self.poll(number, 1, 1).unwrap();
        assert!(self.heard().is_some());
        accept
    }

    fn see(&mut self, identifier: u32, interface: u32) -> Observed {
        self.observer.observe(&self.flow, interface, Payload::whole(&packet(identifier)), self.now)
    }

    /// What the observer says next, if it says so to this session and under seal.
    fn with_message<R>(&mut self, number: u32, look: impl FnOnce(&Message<'_>) -> R) -> Option<R> {
        let (_, bytes) = self.heard()?;
        let Datagram::Sealed { session, sequence, ciphertext } = Datagram::parse(&bytes).unwrap()
        else {
            panic!("{bytes:?}")
        };
        assert_eq!(session, SessionNumber(number));
        let mut plain = Plain::default();
        let (_, seal) = self.seals.get_mut(&number).unwrap();
        Some(look(&seal.open(sequence, ciphertext, &mut plain).unwrap()))
    }

    fn with_quack<R>(&mut self, number: u32, look: impl FnOnce(&Quack<'_>) -> R) -> Option<R> {
        self.with_message(number, |message| match message {
            Message::Quack(quack) => look(quack),
            other => panic!("{other:?}"),
        })
    }

    /// Sends a marker through; its answer, as it goes out.
    fn mark(&mut self, nonce: u8, reply: Reply) -> Option<(Transmit, Answer)> {
        let mut buffer = [0; MARKER_LEN];
        Marker { handle: [3; 20], nonce: [nonce; 16], reply }.emit(&mut buffer).unwrap();
        let seen = self.observer.observe(&self.flow, 0, Payload::whole(&buffer), self.now);
        assert_eq!(seen, Observed::Marker);
        let (transmit, bytes) = self.heard()?;
        Some((transmit, Answer::parse(&bytes).unwrap()))
    }
}

#[test]
fn a_quack_is_the_power_sums_of_what_was_seen() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms::default());
    let ids = [7, 4_000_000_000, 4_294_967_293, 12];
    for id in ids {
        assert_eq!(b.see(id, 3), Observed::Counted);
    }
    assert_eq!(b.heard(), None, "not before 30 ms");
    assert_eq!(b.observer.poll_timeout(), Some(b.now + Duration::from_millis(30)));
    b.now += Duration::from_millis(30);
    b.observer.on_timeout(b.now);
    let p = 4_294_967_291u128;
    b.with_quack(1, |quack| {
        assert_eq!((quack.epoch, quack.first, quack.last, quack.count), (1, 7, 12, 4));
        assert_eq!((quack.age_us, quack.token), (30_000, 0));
        let sums: Vec<u32> = quack.sums.iter().collect();
        assert_eq!(sums.len(), 20);
        for (i, sum) in sums.iter().enumerate() {
            let expected = ids.iter().fold(0, |total: u128, id| {
                let power = (0..=i).fold(1, |power: u128, _| power * u128::from(*id) % p);
                (total + power) % p
            });
            assert_eq!(u128::from(*sum), expected, "power {}", i + 1);
        }
    })
    .expect("a quACK");
    assert_eq!(b.heard(), None);
}

/// On a machine with many addresses a sender is answered from the one that it spoke to last.
#[test]
fn answers_leave_from_where_the_sender_spoke_to() {
    let mut b = bench(ObserverConfig::default());
    let own = |last: u8| Some(IpAddr::from([192, 0, 2, last]));
    let mut cookie = Cookie::NONE;
    for address in [own(251), own(252)] {
        let (flow, session, pattern) = (b.flow, SessionNumber(1), Pattern::Unpinned);
        let (initiator, message) =
            Initiator::begin(None, session, &flow, &Terms::default(), [7; 32]).unwrap();
        let hello = Hello { session, flow, cookie, pattern, handshake: message.bytes() };
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let len = Datagram::Hello(hello).emit(&mut buffer).unwrap();
        let _ = b.observer.handle_input(
            Peer { address: peer(), local_ip: address },
            &buffer[..len],
            b.now,
        );
        let (transmit, bytes) = b.heard().unwrap();
        assert_eq!((transmit.to, transmit.local_ip), (peer(), address));
        match Datagram::parse(&bytes).unwrap() {
            Datagram::Retry { cookie: given, .. } => cookie = given,
            Datagram::Accept { handshake, .. } => {
                let mut initiator = initiator;
                let accept = initiator.read(handshake).unwrap();
                b.seals.insert(1, (accept.session, initiator.finish().unwrap().0));
            }
            other => panic!("{other:?}"),
        }
    }
    let (session, seal) = b.seals.get_mut(&1).unwrap();
    let mut buffer = [0; MAX_DATAGRAM_LEN];
    let poll = Message::Poll(Poll { epoch: 1, token: 1, sums: 0 });
    let len = seal.seal(*session, &poll, &mut buffer).unwrap();
    b.observer
        .handle_input(Peer { address: peer(), local_ip: own(253) }, &buffer[..len], b.now)
        .unwrap();
    assert_eq!(b.heard().unwrap().0.local_ip, own(253));
    b.observer.goodbye();
    assert_eq!(b.heard().unwrap().0.local_ip, own(253), "and so is the goodbye sent");
    assert_eq!(b.observer.statuses().count(), 0);
}

#[test]
fn a_session_says_how_it_stands() {
    let mut b = bench(ObserverConfig::default());
    b.hello(1, Terms::default()).unwrap();
    let status = |b: &Bench| b.observer.statuses().next().unwrap();
    assert!(!status(&b).confirmed);
    b.poll(1, 1, 1).unwrap();
    assert!(b.heard().is_some());
    let opened = b.now;
    b.now += Duration::from_secs(1);
    b.see(7, 0);
    b.see(9, 0);
    let now = status(&b);
    assert_eq!((now.flow, now.peer, now.confirmed, now.epoch), (b.flow, peer(), true, 1));
    assert_eq!((now.counted, now.ends, now.quacks), (2, Some((7, 9)), 1));
    assert_eq!((now.last_packet, now.last_heard), (Some(b.now), opened));
}

proptest! {
    /// Packets that are counted together are counted as one by one, also where a packet of the
    /// batch makes a quACK due.
    #[test]
    fn together_is_as_one_by_one(packets in prop::collection::vec((0u16..5, 0u32..40, 0u32..2, any::<u8>()), 1..200)) {
        let [mut together, mut single] = [(); 2].map(|()| {
            let mut b = bench(ObserverConfig::default());
            let terms = Terms { every_packets: NonZeroU16::new(3), ..Terms::default() };
            for port in 0..3 {
                b.flow.source.set_port(4000 + port);
                b.open(port.into(), terms);
            }
            b
        });
        let flow = |port: u16| Flow { source: ([192, 0, 2, 1], 4000 + port).into(), ..together.flow };
        let payloads: Vec<_> = packets.iter().map(|(_, id, _, first)| {
            let mut payload = packet(*id);
            payload[0] = *first;
            payload
        }).collect();
        let seen: Vec<_> = packets.iter().zip(&payloads)
            .map(|((port, ..), payload)| Seen { flow: flow(*port), payload: Payload::whole(payload) })
            .collect();
        let (mut one, mut other) = (Vec::new(), Vec::new());
        let mut out = [0; MAX_DATAGRAM_LEN];
        for interface in 0..2 {
            together.observer.observe_all(&seen, interface, together.now, |observer, observed| {
                let sent = std::iter::from_fn(|| observer.poll_transmit(&mut out)).count();
                one.push((observed, sent));
            });
            for Seen { flow, payload } in &seen {
                let observed = single.observer.observe(flow, interface, *payload, single.now);
                let sent = std::iter::from_fn(|| single.observer.poll_transmit(&mut out)).count();
                other.push((observed, sent));
            }
        }
        prop_assert_eq!(one, other);
        prop_assert_eq!(together.observer.stats(), single.observer.stats());
        let counted = |b: &Bench| b.observer.statuses().map(|s| (s.flow, s.counted, s.ends, s.quacks)).collect::<Vec<_>>();
        prop_assert_eq!(counted(&together), counted(&single));
        together.observer.table.check();
    }
}

/// Once the sender can know which packet the epoch begins with, what is due by the number of
/// packets is said in fewer bytes.
#[test]
fn what_the_sender_knows_is_left_out() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms { every_packets: NonZeroU16::new(1), every: None, ..Terms::default() });
    let mut counted = sidekick_quack::PowerSums::new(20).unwrap();
    for epoch in [1, 2] {
        counted.clear();
        for id in 0x7_0001..0x7_000a {
            b.see(id, 0);
            counted.insert(id);
            let whole = b.with_message(1, |message| match message {
                Message::Quack(quack) => {
                    assert_eq!((quack.epoch, quack.first, quack.last), (epoch, 0x7_0001, id));
                    true
                }
                Message::ShortQuack(quack) => {
                    assert_eq!((quack.count, quack.last), (9, 9));
                    assert!(quack.sums.iter().eq(counted.sums()));
                    false
                }
                other => panic!("{other:?}"),
            });
            assert_eq!(whole, Some(id < 0x7_0009), "packet {id:x} of epoch {epoch}");
        }
        // What was asked for has to say what it answers.
        b.poll(1, epoch, 5).unwrap();
        assert_eq!(b.with_quack(1, |quack| (quack.token, quack.count)), Some((5, 9)));
        b.say(1, Message::NewEpoch { epoch }).unwrap();
        b.with_message(1, |message| assert!(matches!(message, Message::Epoch { .. })));
    }
}

/// Where its system had no room for packets, an observer begins an epoch with the next that it
/// sees, and says so until the sender knows.
#[test]
fn missed_packets_begin_an_epoch() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms { every_packets: NonZeroU16::new(4), every: None, ..Terms::default() });
    let epoch = |b: &mut Bench| {
        b.with_message(1, |message| match message {
            Message::Epoch { epoch } => *epoch,
            other => panic!("{other:?}"),
        })
    };
    b.see(10, 3);
    b.observer.missed(4);
    b.see(11, 3);
    assert_eq!(b.heard(), None, "it counts on another interface");
    b.observer.missed(3);
    assert_eq!(b.observer.stats().epochs_unasked, 0, "nothing is said to who does not send");
    for id in 12..16 {
        assert_eq!(b.see(id, 3), Observed::Counted);
    }
    assert_eq!(epoch(&mut b), Some(2), "before it speaks of the epoch");
    let first = |b: &mut Bench| b.with_quack(1, |quack| (quack.epoch, quack.first, quack.count));
    assert_eq!(first(&mut b), Some((2, 12, 4)));
    // Whole ones only, and EPOCH again, until the sender speaks of it.
    for id in 16..64 {
        b.see(id, 3);
    }
    assert_eq!(first(&mut b), Some((2, 12, 52)), "of many only the last");
    for _ in 0..2 {
        assert_eq!(b.poll(1, 1, 9), Err(HandleError::WrongEpoch));
        assert_eq!(epoch(&mut b), Some(2));
    }
    b.poll(1, 2, 9).unwrap();
    assert_eq!(first(&mut b), Some((2, 12, 52)));
    assert_eq!(b.poll(1, 1, 9), Err(HandleError::WrongEpoch));
    assert_eq!(b.heard(), None, "a late one");
    // A sender that asks is told at once.
    b.observer.missed(3);
    b.observer.missed(3);
    assert_eq!(b.poll(1, 2, 9), Err(HandleError::WrongEpoch));
    assert_eq!(epoch(&mut b), Some(3));
    assert_eq!((b.heard(), b.observer.stats().epochs_unasked), (None, 2));
    b.poll(1, 3, 9).unwrap();
    assert_eq!(first(&mut b), Some((3, 0, 0)));
}

/// What a flow's packets were ignored on may take over, and what was ignored is missing then.
#[test]
fn another_interface_begins_another_epoch() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms { every_packets: NonZeroU16::new(5), every: None, ..Terms::default() });
    (1..=4).for_each(|id| assert_eq!(b.see(id, 3), Observed::Counted));
    (5..=9).for_each(|id| assert_eq!(b.see(id, 4), Observed::Ignored));
    b.now += Duration::from_secs(1);
    (10..=14).for_each(|id| assert_eq!(b.see(id, 4), Observed::Counted));
    assert_eq!(
        b.with_message(1, |message| matches!(message, Message::Epoch { epoch: 2 })),
        Some(true)
    );
    let told = b.with_quack(1, |quack| (quack.epoch, quack.first, quack.last, quack.count));
    assert_eq!(told, Some((2, 10, 14, 5)));
}

#[test]
fn other_limits_hold_for_what_begins_after_them() {
    let mut b = bench(ObserverConfig { max_sessions: 1, ..ObserverConfig::default() });
    let key = b.observer.public_key();
    b.open(1, Terms { every_packets: NonZeroU16::new(1), ..Terms::default() });
    assert_eq!(b.hello(2, Terms::default()).unwrap_err(), HandleError::Refused);
    b.heard();
    let wrong = ObserverConfig { max_sessions: 2, max_threshold: 0, ..ObserverConfig::default() };
    assert_eq!(b.observer.reconfigure(wrong), Err(ConfigError::Threshold));
    assert_eq!(
        b.hello(2, Terms::default()).unwrap_err(),
        HandleError::Refused,
        "nothing has changed"
    );
    b.heard();
    b.observer
        .reconfigure(ObserverConfig {
            max_sessions: 2,
            max_threshold: 3,
            ..ObserverConfig::default()
        })
        .unwrap();
    assert_eq!(b.hello(2, Terms::default()).unwrap().terms.threshold, 3);
    assert_eq!((b.observer.public_key(), b.observer.sessions()), (key, 2));
    b.see(7, 0);
    assert_eq!(
        b.with_quack(1, |quack| quack.sums.len()),
        Some(20),
        "a session is as it was agreed"
    );
}

/// The network may double a datagram, at once or a little later.
#[test]
fn a_doubled_datagram_counts_once() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms { every_packets: NonZeroU16::new(3), every: None, ..Terms::default() });
    let seen = [1, 1, 2, 1, 3].map(|id| b.see(id, 0) == Observed::Counted);
    assert_eq!(seen, [true, false, true, false, true]);
    assert_eq!(b.with_quack(1, |quack| quack.count), Some(3));
    // What is not QUIC may be repeated by its sender.
    let identification = crate::Identification { filter: crate::Filter::All, ..Default::default() };
    b.open(2, Terms { identification, ..Terms::default() });
    assert_eq!([5, 5].map(|id| b.see(id, 0)), [Observed::Counted; 2]);
}

#[test]
fn identifiers_may_stand_at_the_end() {
    let mut b = bench(ObserverConfig::default());
    let identification =
        crate::Identification { position: Position::End, filter: crate::Filter::All };
    b.open(1, Terms { identification, every_packets: NonZeroU16::new(1), ..Terms::default() });
    let (flow, now) = (b.flow, b.now);
    let seen = b.observer.observe(&flow, 0, Payload::whole(&[0x80, 0, 1, 2, 3, 4]), now);
    assert_eq!(seen, Observed::Counted);
    assert_eq!(b.with_quack(1, |quack| quack.last), Some(0x0102_0304));
}

#[test]
fn nothing_is_counted_before_the_sender_has_spoken_under_seal() {
    let mut b = bench(ObserverConfig::default());
    b.hello(1, Terms::default()).unwrap();
    assert_eq!(b.see(1, 0), Observed::NoSession);
    b.poll(1, 1, 1).unwrap();
    assert!(b.heard().is_some());
    assert_eq!(b.see(1, 0), Observed::Counted);
    // And those who do not are soon forgotten.
    b.hello(2, Terms::default()).unwrap();
    assert_eq!(b.observer.sessions(), 2);
    b.now += PROOF_TIMEOUT;
    b.observer.on_timeout(b.now);
    assert_eq!(b.observer.sessions(), 1);
}

#[test]
fn a_repeated_hello_is_answered_alike() {
    let mut b = bench(ObserverConfig::default());
    b.take_cookie(peer());
    let answers = [0, 1].map(|_| {
        assert_eq!(b.hello_from(peer(), 1, Terms::default()).0, Ok(()));
        b.heard().unwrap()
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(b.observer.sessions(), 1);
    b.open(2, Terms::default());
    assert_eq!(b.hello_from(peer(), 2, Terms::default()).0, Err(HandleError::Duplicate));
    assert_eq!((b.heard(), b.observer.sessions()), (None, 2));
}

#[test]
fn an_epoch_counts_on_the_first_interface_that_shows_the_flow() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms::default());
    assert_eq!(
        [b.see(1, 4), b.see(1, 5), b.see(2, 5), b.see(2, 4)].map(|o| o == Observed::Counted),
        [true, false, false, true]
    );
    let begun = |b: &mut Bench| {
        b.with_message(1, |message| match message {
            Message::Epoch { epoch } => *epoch,
            other => panic!("{other:?}"),
        })
    };
    b.say(1, Message::NewEpoch { epoch: 1 }).unwrap();
    assert_eq!(begun(&mut b), Some(2));
    assert_eq!([b.see(3, 5), b.see(3, 4)], [Observed::Counted, Observed::Ignored]);
    // The same request again changes nothing, and is answered again.
    assert_eq!(b.say(1, Message::NewEpoch { epoch: 1 }), Err(HandleError::WrongEpoch));
    assert_eq!(begun(&mut b), Some(2));
    assert_eq!(b.poll(1, 1, 8), Err(HandleError::WrongEpoch));
    b.say(1, Message::Poll(Poll { epoch: 2, token: 9, sums: 60 })).unwrap();
    let seen = b.with_quack(1, |quack| (quack.count, quack.first, quack.token, quack.sums.len()));
    assert_eq!(seen, Some((1, 3, 9, 60)));
}

#[test]
fn terms_are_lowered_to_the_limits() {
    let mut b = bench(ObserverConfig::default());
    let asked =
        Terms { threshold: 200, every: Some(Duration::from_micros(10)), ..Terms::default() };
    let accept = b.hello(1, asked).unwrap();
    assert_eq!((accept.terms.threshold, accept.terms.every), (40, Some(Duration::from_millis(1))));
    assert_eq!(accept.kept_sums, 128);
    let never = Terms { every: None, ..Terms::default() };
    assert_eq!(b.hello(2, never), Err(HandleError::Refused));
    let (_, bytes) = b.heard().unwrap();
    assert!(matches!(Datagram::parse(&bytes), Ok(Datagram::Refuse { why: Refusal::Terms, .. })));
}

#[test]
fn sessions_are_limited_for_all_and_for_one_source() {
    let mut b = bench(ObserverConfig {
        max_sessions: 3,
        max_sessions_per_source: 2,
        ..ObserverConfig::default()
    });
    let from = |host: u8| SocketAddr::from(([192, 0, 2, host], 5000));
    let outcomes = [(1, 1), (1, 2), (1, 3), (2, 4), (3, 5)].map(|(host, number)| {
        b.flow.source = SocketAddr::from(([192, 0, 2, host], 1000));
        let outcome = b.hello_of(from(host), number, Terms::default());
        if outcome.is_ok() {
            b.say_from(from(host), number, Message::Poll(Poll { epoch: 1, token: 1, sums: 0 }))
                .unwrap();
        }
        while b.heard().is_some() {}
        outcome.is_ok()
    });
    assert_eq!(outcomes, [true, true, false, true, false]);
    b.say_from(from(1), 1, Message::Bye).unwrap();
    b.flow.source = SocketAddr::from(([192, 0, 2, 1], 1000));
    assert!(b.hello_of(from(1), 6, Terms::default()).is_ok(), "a place is free again");
    assert_eq!(b.observer.sessions(), 3);
    b.now += Duration::from_secs(60);
    b.observer.on_timeout(b.now);
    assert_eq!((b.observer.sessions(), b.observer.poll_timeout()), (0, None));
}

/// Somebody has many addresses, and says nothing any more after his HELLOs.
#[test]
fn who_asks_and_says_nothing_keeps_nobody_out() {
    let mut b = bench(ObserverConfig { max_sessions: 50, ..ObserverConfig::default() });
    b.open(1, Terms::default());
    for host in 0..200u8 {
        let from = SocketAddr::from(([203, 0, 113, host], 5000));
        b.flow.source = SocketAddr::from(([203, 0, 113, host], 1000));
        b.hello_of(from, 1000 + u32::from(host), Terms::default()).unwrap();
        b.now += Duration::from_millis(5);
    }
    assert_eq!(b.observer.sessions(), 50);
    b.observer.table.check();
    b.flow.source = "192.0.2.1:4000".parse().unwrap();
    b.open(2, Terms::default());
    assert_eq!((b.poll(1, 1, 7), b.poll(2, 1, 7)), (Ok(()), Ok(())), "sessions at work stay");
}

#[test]
fn quacks_by_number_of_packets() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms { every_packets: NonZeroU16::new(2), every: None, ..Terms::default() });
    let reports: Vec<Option<u32>> = (0..6)
        .map(|id| {
            b.see(id, 0);
            b.with_quack(1, |quack| quack.count)
        })
        .collect();
    assert_eq!(reports, [None, Some(2), None, Some(4), None, Some(6)]);
}

#[test]
fn a_goodbye_goes_to_everybody() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms::default());
    b.hello(2, Terms::default()).unwrap();
    b.see(1, 0);
    b.observer.goodbye();
    assert_eq!(b.with_message(1, |message| *message == Message::Bye), Some(true));
    assert_eq!((b.heard(), b.observer.sessions()), (None, 0), "who has not spoken hears nothing");
    assert_eq!(b.see(2, 0), Observed::NoSession);
}

#[test]
fn a_marker_is_answered_as_it_asks() {
    let mut b = bench(ObserverConfig::default());
    let (transmit, answer) = b.mark(1, Reply::Path).unwrap();
    assert_eq!((transmit.to, transmit.from), (b.flow.source, Some(b.flow.destination)));
    assert_eq!((answer.flow, answer.handle, answer.nonce), (b.flow, [3; 20], [1; 16]));
    assert_eq!(answer.proxy, "192.0.2.254:5252".parse().unwrap());
    assert!(b.mark(1, Reply::Path).is_none(), "the same, captured on its way out");
    let (transmit, _) = b.mark(2, Reply::Adjacent(5000)).unwrap();
    assert_eq!((transmit.to, transmit.from), (peer(), None));
    // An IPv6 flow, and there is no IPv6 address of ours.
    let v6 = |host: &str| format!("[2001:db8::{host}]:443").parse().unwrap();
    b.flow = Flow { source: v6("1"), destination: v6("7") };
    assert!(b.mark(3, Reply::Path).is_none());
}

/// A NAT that has given the adjacent socket another port has done so to the flow: only a new
/// session can find it.
#[test]
fn a_session_is_with_the_address_that_asked_for_it() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms::default());
    let moved = "192.0.2.1:7777".parse().unwrap();
    let poll = Message::Poll(Poll { epoch: 1, token: 2, sums: 0 });
    assert_eq!(b.say_from(moved, 1, poll), Err(HandleError::UnknownSession));
    let (transmit, bytes) = b.heard().unwrap();
    assert_eq!(transmit.to, moved);
    assert!(matches!(Datagram::parse(&bytes), Ok(Datagram::UnknownSession { .. })));
    assert_eq!(b.poll(1, 1, 3), Ok(()), "and it goes on with the other");
}

/// SPEC.md, section 6.7.
#[test]
fn a_session_sends_no_more_than_its_share() {
    for len in [26, 60, 300, 1200] {
        let mut b = bench(ObserverConfig::default());
        b.open(
            1,
            Terms {
                every_packets: NonZeroU16::new(1),
                every: None,
                threshold: 40,
                ..Terms::default()
            },
        );
        let before = b.observer.stats().bytes_sent;
        let (mut seen, mut payload) = (0, packet(0).to_vec());
        payload.resize(len, 0);
        for id in 0..20_000u32 {
            payload[21..25].copy_from_slice(&id.to_be_bytes());
            let (flow, now) = (b.flow, b.now);
            b.observer.observe(&flow, 0, Payload::whole(&payload), now);
            seen += u64::try_from(len).unwrap();
            while b.heard().is_some() {}
        }
        let sent = b.observer.stats().bytes_sent - before;
        assert!(sent <= seen / 2 + u64::from(budget::GRANT), "{len}: {sent} bytes for {seen}");
        assert_eq!(
            b.observer.stats().quacks_withheld > 0,
            len < 110,
            "{len}: {:?}",
            b.observer.stats()
        );
    }
}
