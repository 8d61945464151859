use super::*;
use crate::keys::{Initiator, Seal};
use crate::wire::discovery::{Answer, MARKER_LEN, Marker, Reply};
use crate::wire::{Accept, Cookie, ECHO_LEN, Hello, MAX_DATAGRAM_LEN, Pattern, Quack, Refusal};
use crate::{Flow, Payload, Position, Route, Terms, Transmit};
use proptest::prelude::*;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::time::Duration;

mod attacks;
mod churn;
mod copies;

const PEER: &str = "192.0.2.1:5000";

/// An observer, and the keys of its peers.
struct Bench {
    observer: Observer,
    now: Instant,
    flow: Flow,
    /// By the sender's session number: the proxy's number and the keys.
    seals: HashMap<u32, (SessionNumber, Seal)>,
    cookie: Cookie,
}

#[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
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
    /// The next datagram that the observer sends, as bytes.
    fn next_sent(&mut self) -> Option<(Transmit, Vec<u8>)> {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let transmit = self.observer.poll_transmit(&mut buffer)?;
        Some((transmit, buffer[..transmit.size].to_vec()))
    }

    fn receive_from(
        &mut self,
        from: SocketAddr,
        datagram: Datagram<'_>,
    ) -> Result<(), HandleError> {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let len = datagram.emit(&mut buffer).unwrap();
        self.observer.handle_input(from, &buffer[..len], self.now)
    }

    /// Sends a HELLO, with the observer's cookie if there is one.
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
        (self.receive_from(from, Datagram::Hello(hello)), initiator)
    }

    /// Obtains a cookie for an address.
    fn obtain_cookie(&mut self, from: SocketAddr) {
        self.cookie = Cookie::NONE;
        let (outcome, _) = self.hello_from(from, 1, Terms::default());
        assert_eq!(outcome, Err(HandleError::Unproven));
        let (transmit, bytes) = self.next_sent().unwrap();
        let Datagram::Retry { cookie, .. } = Datagram::parse(&bytes).unwrap() else { panic!() };
        let route = Route::Stranger { interface: None };
        assert_eq!((transmit.destination, transmit.route), (from, route));
        self.cookie = cookie;
    }

    /// Requests a session with this number. Returns `Err` if the observer refuses it.
    fn hello(&mut self, number: u32, terms: Terms) -> Result<Accept, HandleError> {
        self.hello_of(peer(), number, terms)
    }

    fn hello_of(
        &mut self,
        from: SocketAddr,
        number: u32,
        terms: Terms,
    ) -> Result<Accept, HandleError> {
        self.obtain_cookie(from);
        let (outcome, initiator) = self.hello_from(from, number, terms);
        outcome.map(|()| self.accepted(number, initiator))
    }

    /// Requests a session with the cookie of a marker's answer.
    fn hello_along_path(&mut self, number: u32) -> Result<Accept, HandleError> {
        let nonce = u8::try_from(number).unwrap();
        self.cookie = self.mark(nonce, Reply::Path).unwrap().1.cookie;
        let (outcome, initiator) = self.hello_from(peer(), number, Terms::default());
        outcome.map(|()| self.accepted(number, initiator))
    }

    /// Reads the waiting ACCEPT.
    fn accepted(&mut self, number: u32, mut initiator: Initiator) -> Accept {
        let (_, bytes) = self.next_sent().unwrap();
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

    fn send_from(
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

    fn send(&mut self, number: u32, message: Message<'_>) -> Result<(), HandleError> {
        self.send_from(peer(), number, message)
    }

    fn poll(&mut self, number: u32, epoch: u16, token: u16) -> Result<(), HandleError> {
        self.send(number, Message::Poll(Poll { epoch, token, sums: 0 }))
    }

    /// Opens and confirms a session.
    fn open(&mut self, number: u32, terms: Terms) -> Accept {
        let accept = self.hello(number, terms).unwrap();
        self.poll(number, 1, 1).unwrap();
        assert!(self.next_sent().is_some());
        accept
    }

    fn capture(&mut self, identifier: u32, interface: u32) -> Observed {
        self.observer.observe(&self.flow, interface, Payload::whole(&packet(identifier)), self.now)
    }

    /// Passes the observer's next message to `look`, if it is a sealed one of this session.
    fn with_message<R>(&mut self, number: u32, look: impl FnOnce(&Message<'_>) -> R) -> Option<R> {
        let (_, bytes) = self.next_sent()?;
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

    /// Captures a marker, and returns its answer.
    fn mark(&mut self, nonce: u8, reply: Reply) -> Option<(Transmit, Answer)> {
        let mut buffer = [0; MARKER_LEN];
        Marker { handle: [3; 20], nonce: [nonce; 16], reply }.emit(&mut buffer).unwrap();
        let seen = self.observer.observe(&self.flow, 0, Payload::whole(&buffer), self.now);
        assert_eq!(seen, Observed::Marker);
        let (transmit, bytes) = self.next_sent()?;
        Some((transmit, Answer::parse(&bytes).unwrap()))
    }
}

#[test]
fn a_quack_holds_the_power_sums_of_the_packets() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms::default());
    let ids = [7, 4_000_000_000, 4_294_967_293, 12];
    for id in ids {
        assert_eq!(b.capture(id, 3), Observed::Counted);
    }
    assert_eq!(b.next_sent(), None, "not before 30 ms");
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
    assert_eq!(b.next_sent(), None);
}

/// A proxy with several addresses answers from the one that the sender used last.
#[test]
fn answers_leave_from_the_address_that_the_sender_used() {
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
        let (transmit, bytes) = b.next_sent().unwrap();
        assert_eq!((transmit.destination, transmit.source_ip), (peer(), address));
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
    assert_eq!(b.next_sent().unwrap().0.source_ip, own(253));
    b.observer.close();
    assert_eq!(b.next_sent().unwrap().0.source_ip, own(253), "the BYE, too");
    assert_eq!(b.observer.statuses().count(), 0);
}

#[test]
fn a_session_reports_its_status() {
    let mut b = bench(ObserverConfig::default());
    b.hello(1, Terms::default()).unwrap();
    let status = |b: &Bench| b.observer.statuses().next().unwrap();
    assert!(!status(&b).confirmed);
    b.poll(1, 1, 1).unwrap();
    assert!(b.next_sent().is_some());
    let opened = b.now;
    b.now += Duration::from_secs(1);
    b.capture(7, 0);
    b.capture(9, 0);
    let now = status(&b);
    assert_eq!((now.flow, now.peer, now.confirmed, now.epoch), (b.flow, peer(), true, 1));
    assert_eq!((now.counted, now.ends, now.quacks), (2, Some((7, 9)), 1));
    assert_eq!((now.last_packet, now.last_heard), (Some(b.now), opened));
}

proptest! {
    /// Observing packets in a batch equals observing them one by one, also if a packet of the batch
    /// triggers a quACK.
    #[test]
    fn observing_a_batch_equals_observing_each(
        packets in prop::collection::vec((0u16..5, 0u32..40, 0u32..2, any::<u8>()), 1..200),
    ) {
        let [mut together, mut single] = [(); 2].map(|()| {
            let mut b = bench(ObserverConfig::default());
            let terms = Terms { every_packets: NonZeroU16::new(3), ..Terms::default() };
            for port in 0..3 {
                b.flow.source.set_port(4000 + port);
                b.open(port.into(), terms);
            }
            b
        });
        let flow = |port: u16| {
            Flow { source: ([192, 0, 2, 1], 4000 + port).into(), ..together.flow }
        };
        let payloads: Vec<_> = packets.iter().map(|(_, id, _, first)| {
            let mut payload = packet(*id);
            payload[0] = *first;
            payload
        }).collect();
        let seen: Vec<_> = packets.iter().zip(&payloads)
            .map(|((port, ..), payload)| (flow(*port), Payload::whole(payload)))
            .map(|(flow, payload)| Seen { flow, payload })
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
        let counted = |b: &Bench| {
            let statuses = b.observer.statuses();
            statuses.map(|s| (s.flow, s.counted, s.ends, s.quacks)).collect::<Vec<_>>()
        };
        prop_assert_eq!(counted(&together), counted(&single));
        together.observer.table.check();
    }
}

/// A quACK that is due by the number of packets is short once the sender knows the epoch's first
/// packet.
#[test]
fn a_quack_omits_what_the_sender_knows() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms { every_packets: NonZeroU16::new(1), every: None, ..Terms::default() });
    let mut counted = sidekick_quack::PowerSums::new(20).unwrap();
    for epoch in [1, 2] {
        counted.clear();
        for id in 0x7_0001..0x7_000a {
            b.capture(id, 0);
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
        // The answer to a poll is a whole quACK, with the poll's token.
        b.poll(1, epoch, 5).unwrap();
        assert_eq!(b.with_quack(1, |quack| (quack.token, quack.count)), Some((5, 9)));
        b.send(1, Message::NewEpoch { epoch }).unwrap();
        b.with_message(1, |message| assert!(matches!(message, Message::Epoch { .. })));
    }
}

/// After the system dropped packets, the observer begins an epoch with the next packet, and
/// announces it until the sender knows.
#[test]
fn dropped_packets_begin_an_epoch() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms { every_packets: NonZeroU16::new(4), every: None, ..Terms::default() });
    let epoch = |b: &mut Bench| {
        b.with_message(1, |message| match message {
            Message::Epoch { epoch } => *epoch,
            other => panic!("{other:?}"),
        })
    };
    b.capture(10, 3);
    b.observer.missed(4);
    b.capture(11, 3);
    assert_eq!(b.next_sent(), None, "it counts on another interface");
    b.observer.missed(3);
    assert_eq!(b.observer.stats().epochs_unasked, 0, "no message without a packet");
    for id in 12..16 {
        assert_eq!(b.capture(id, 3), Observed::Counted);
    }
    assert_eq!(epoch(&mut b), Some(2), "before the sender polls in the epoch");
    let first = |b: &mut Bench| b.with_quack(1, |quack| (quack.epoch, quack.first, quack.count));
    assert_eq!(first(&mut b), Some((2, 12, 4)));
    // Only whole quACKs, and EPOCH again, until the sender polls in the epoch.
    for id in 16..64 {
        b.capture(id, 3);
    }
    assert_eq!(first(&mut b), Some((2, 12, 52)), "only the last of several");
    for _ in 0..2 {
        assert_eq!(b.poll(1, 1, 9), Err(HandleError::WrongEpoch));
        assert_eq!(epoch(&mut b), Some(2));
    }
    b.poll(1, 2, 9).unwrap();
    assert_eq!(first(&mut b), Some((2, 12, 52)));
    assert_eq!(b.poll(1, 1, 9), Err(HandleError::WrongEpoch));
    assert_eq!(b.next_sent(), None, "a late request");
    // A poll triggers the announcement at once.
    b.observer.missed(3);
    b.observer.missed(3);
    assert_eq!(b.poll(1, 2, 9), Err(HandleError::WrongEpoch));
    assert_eq!(epoch(&mut b), Some(3));
    assert_eq!((b.next_sent(), b.observer.stats().epochs_unasked), (None, 2));
    b.poll(1, 3, 9).unwrap();
    assert_eq!(first(&mut b), Some((3, 0, 0)));
}

/// Another interface can replace the bound one. The packets ignored there are then missing.
#[test]
fn another_interface_begins_another_epoch() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms { every_packets: NonZeroU16::new(5), every: None, ..Terms::default() });
    (1..=4).for_each(|id| assert_eq!(b.capture(id, 3), Observed::Counted));
    (5..=9).for_each(|id| assert_eq!(b.capture(id, 4), Observed::Ignored));
    b.now += Duration::from_secs(1);
    (10..=14).for_each(|id| assert_eq!(b.capture(id, 4), Observed::Counted));
    assert_eq!(
        b.with_message(1, |message| matches!(message, Message::Epoch { epoch: 2 })),
        Some(true)
    );
    let reported = b.with_quack(1, |quack| (quack.epoch, quack.first, quack.last, quack.count));
    assert_eq!(reported, Some((2, 10, 14, 5)));
}

#[test]
fn new_limits_apply_to_new_sessions() {
    let mut b = bench(ObserverConfig { max_sessions: 1, ..ObserverConfig::default() });
    let key = b.observer.public_key();
    b.open(1, Terms { every_packets: NonZeroU16::new(1), ..Terms::default() });
    assert_eq!(b.hello(2, Terms::default()).unwrap_err(), HandleError::Refused);
    b.next_sent();
    let wrong = ObserverConfig { max_sessions: 2, max_threshold: 0, ..ObserverConfig::default() };
    assert_eq!(b.observer.reconfigure(wrong), Err(ConfigError::Threshold));
    assert_eq!(
        b.hello(2, Terms::default()).unwrap_err(),
        HandleError::Refused,
        "the limits are unchanged"
    );
    b.next_sent();
    b.observer
        .reconfigure(ObserverConfig {
            max_sessions: 2,
            max_threshold: 3,
            ..ObserverConfig::default()
        })
        .unwrap();
    assert_eq!(b.hello(2, Terms::default()).unwrap().terms.threshold, 3);
    assert_eq!((b.observer.public_key(), b.observer.sessions()), (key, 2));
    b.capture(7, 0);
    assert_eq!(
        b.with_quack(1, |quack| quack.sums.len()),
        Some(20),
        "an existing session keeps its terms"
    );
}

/// The network may duplicate a datagram, at once or later.
#[test]
fn a_duplicated_datagram_counts_once() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms { every_packets: NonZeroU16::new(3), every: None, ..Terms::default() });
    let seen = [1, 1, 2, 1, 3].map(|id| b.capture(id, 0) == Observed::Counted);
    assert_eq!(seen, [true, false, true, false, true]);
    assert_eq!(b.with_quack(1, |quack| quack.count), Some(3));
    // The sender of another protocol may repeat datagrams.
    let identification = crate::Identification { filter: crate::Filter::All, ..Default::default() };
    b.open(2, Terms { identification, ..Terms::default() });
    assert_eq!([5, 5].map(|id| b.capture(id, 0)), [Observed::Counted; 2]);
}

#[test]
fn an_identifier_may_be_the_last_four_bytes() {
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
fn nothing_is_counted_before_the_first_sealed_message() {
    let mut b = bench(ObserverConfig::default());
    b.hello(1, Terms::default()).unwrap();
    assert_eq!(b.capture(1, 0), Observed::NoSession);
    b.poll(1, 1, 1).unwrap();
    assert!(b.next_sent().is_some());
    assert_eq!(b.capture(1, 0), Observed::Counted);
    // An unconfirmed session soon ends.
    b.hello(2, Terms::default()).unwrap();
    assert_eq!(b.observer.sessions(), 2);
    b.now += PROOF_TIMEOUT;
    b.observer.on_timeout(b.now);
    assert_eq!(b.observer.sessions(), 1);
}

#[test]
fn a_repeated_hello_gets_the_same_answer() {
    let mut b = bench(ObserverConfig::default());
    b.obtain_cookie(peer());
    let answers = [0, 1].map(|_| {
        assert_eq!(b.hello_from(peer(), 1, Terms::default()).0, Ok(()));
        b.next_sent().unwrap()
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(b.observer.sessions(), 1);
    b.open(2, Terms::default());
    assert_eq!(b.hello_from(peer(), 2, Terms::default()).0, Err(HandleError::Duplicate));
    assert_eq!((b.next_sent(), b.observer.sessions()), (None, 2));
}

#[test]
fn an_epoch_counts_on_the_first_interface_that_shows_the_flow() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms::default());
    assert_eq!(
        [b.capture(1, 4), b.capture(1, 5), b.capture(2, 5), b.capture(2, 4)]
            .map(|o| o == Observed::Counted),
        [true, false, false, true]
    );
    let begun = |b: &mut Bench| {
        b.with_message(1, |message| match message {
            Message::Epoch { epoch } => *epoch,
            other => panic!("{other:?}"),
        })
    };
    b.send(1, Message::NewEpoch { epoch: 1 }).unwrap();
    assert_eq!(begun(&mut b), Some(2));
    assert_eq!([b.capture(3, 5), b.capture(3, 4)], [Observed::Counted, Observed::Ignored]);
    // A repeated request changes nothing, and gets the same answer.
    assert_eq!(b.send(1, Message::NewEpoch { epoch: 1 }), Err(HandleError::WrongEpoch));
    assert_eq!(begun(&mut b), Some(2));
    assert_eq!(b.poll(1, 1, 8), Err(HandleError::WrongEpoch));
    b.send(1, Message::Poll(Poll { epoch: 2, token: 9, sums: 60 })).unwrap();
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
    let (_, bytes) = b.next_sent().unwrap();
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
            b.send_from(from(host), number, Message::Poll(Poll { epoch: 1, token: 1, sums: 0 }))
                .unwrap();
        }
        while b.next_sent().is_some() {}
        outcome.is_ok()
    });
    assert_eq!(outcomes, [true, true, false, true, false]);
    b.send_from(from(1), 1, Message::Bye).unwrap();
    b.flow.source = SocketAddr::from(([192, 0, 2, 1], 1000));
    assert!(b.hello_of(from(1), 6, Terms::default()).is_ok(), "a session ended");
    assert_eq!(b.observer.sessions(), 3);
    b.now += Duration::from_secs(60);
    b.observer.on_timeout(b.now);
    assert_eq!((b.observer.sessions(), b.observer.poll_timeout()), (0, None));
}

/// A peer with many addresses sends HELLOs and no sealed message.
#[test]
fn unconfirmed_sessions_do_not_exclude_others() {
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
    assert_eq!((b.poll(1, 1, 7), b.poll(2, 1, 7)), (Ok(()), Ok(())), "confirmed sessions stay");
}

#[test]
fn quacks_by_number_of_packets() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms { every_packets: NonZeroU16::new(2), every: None, ..Terms::default() });
    let reports: Vec<Option<u32>> = (0..6)
        .map(|id| {
            b.capture(id, 0);
            b.with_quack(1, |quack| quack.count)
        })
        .collect();
    assert_eq!(reports, [None, Some(2), None, Some(4), None, Some(6)]);
}

#[test]
fn every_confirmed_session_ends_with_a_bye() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms::default());
    b.hello(2, Terms::default()).unwrap();
    b.capture(1, 0);
    b.observer.close();
    assert_eq!(b.with_message(1, |message| *message == Message::Bye), Some(true));
    assert_eq!(
        (b.next_sent(), b.observer.sessions()),
        (None, 0),
        "no BYE for an unconfirmed session"
    );
    assert_eq!(b.capture(2, 0), Observed::NoSession);
}

#[test]
fn a_marker_is_answered_the_requested_way() {
    let mut b = bench(ObserverConfig::default());
    let (transmit, answer) = b.mark(1, Reply::Path).unwrap();
    let route = Route::Path { source: b.flow.destination, interface: Some(0) };
    assert_eq!((transmit.destination, transmit.route), (b.flow.source, route));
    assert_eq!((answer.flow, answer.handle, answer.nonce), (b.flow, [3; 20], [1; 16]));
    assert_eq!(answer.proxy, "192.0.2.254:5252".parse().unwrap());
    assert!(b.mark(1, Reply::Path).is_none(), "the same, captured on its way out");
    let (transmit, _) = b.mark(2, Reply::Adjacent(5000)).unwrap();
    let route = Route::Stranger { interface: Some(0) };
    assert_eq!((transmit.destination, transmit.route), (peer(), route));
    // An IPv6 flow, while the proxy has no IPv6 address.
    let v6 = |host: &str| format!("[2001:db8::{host}]:443").parse().unwrap();
    b.flow = Flow { source: v6("1"), destination: v6("7") };
    assert!(b.mark(3, Reply::Path).is_none());
}

/// A NAT that gave the adjacent socket another port did the same to the flow: only a new session
/// can learn it.
#[test]
fn a_session_is_bound_to_its_senders_address() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms::default());
    let moved = "192.0.2.1:7777".parse().unwrap();
    let poll = Message::Poll(Poll { epoch: 1, token: 2, sums: 0 });
    assert_eq!(b.send_from(moved, 1, poll), Err(HandleError::UnknownSession));
    let (transmit, bytes) = b.next_sent().unwrap();
    assert_eq!(transmit.destination, moved);
    assert!(matches!(Datagram::parse(&bytes), Ok(Datagram::UnknownSession { .. })));
    assert_eq!(b.poll(1, 1, 3), Ok(()), "the session continues at its address");
}

/// SPEC.md, section 6.7.
#[test]
fn a_session_stays_within_its_budget() {
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
            while b.next_sent().is_some() {}
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
