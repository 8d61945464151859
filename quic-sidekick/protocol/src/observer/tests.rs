use super::*;
use crate::wire::{MAX_MESSAGE_LEN, Quack};
use proptest::prelude::*;
use std::num::NonZeroU16;

const PEER: &str = "192.0.2.1:5000";

struct Bench {
    observer: Observer,
    now: Instant,
    flow: Flow,
}

#[allow(clippy::disallowed_methods, reason = "virtual time has to begin somewhere")]
fn bench(config: ObserverConfig) -> Bench {
    let flow =
        Flow { source: "192.0.2.1:4000".parse().unwrap(), destination: "198.51.100.7:443".parse().unwrap() };
    Bench { observer: Observer::new(config, [5; 32]).unwrap(), now: Instant::now(), flow }
}

fn peer() -> SocketAddr {
    PEER.parse().unwrap()
}

fn packet(identifier: u32) -> [u8; 25] {
    let mut head = [0x41; 25];
    head[21..].copy_from_slice(&identifier.to_be_bytes());
    head
}

impl Bench {
    fn say_from(&mut self, from: SocketAddr, session: u64, body: Body<'_>) -> Result<(), HandleError> {
        let mut buffer = [0; MAX_MESSAGE_LEN];
        let len = Message { session: SessionId(session), body }.emit(&mut buffer).unwrap();
        self.observer.handle(from, &buffer[..len], self.now)
    }

    fn say(&mut self, session: u64, body: Body<'_>) -> Result<(), HandleError> {
        self.say_from(peer(), session, body)
    }

    fn hello(&mut self, session: u64, terms: Terms) -> Result<(), HandleError> {
        let hello = Hello { source_port: self.flow.source.port(), destination: self.flow.destination, terms };
        self.say(session, Body::Hello(hello))
    }

    /// The next message, as bytes.
    fn heard(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        let mut buffer = [0; MAX_MESSAGE_LEN];
        let (to, len) = self.observer.transmit(&mut buffer)?;
        Some((to, buffer[..len].to_vec()))
    }

    fn accepted(&mut self) -> Accept {
        let (to, bytes) = self.heard().expect("an answer");
        assert_eq!(to, peer());
        match Message::parse(&bytes).unwrap().body {
            Body::Accept(accept) => accept,
            other => panic!("{other:?}"),
        }
    }

    fn open(&mut self, session: u64, terms: Terms) -> Accept {
        self.hello(session, terms).unwrap();
        let accept = self.accepted();
        self.say(session, Body::Poll(Poll { epoch: accept.epoch, token: 1, sums: 0 })).unwrap();
        assert!(self.heard().is_some());
        accept
    }

    fn see(&mut self, identifier: u32, interface: u32) -> Observed {
        let head = packet(identifier);
        self.observer.observe(&self.flow, interface, &head, 1200, self.now)
    }

    fn with_quack<R>(&mut self, look: impl FnOnce(&Quack<'_>) -> R) -> Option<R> {
        let (_, bytes) = self.heard()?;
        match Message::parse(&bytes).unwrap().body {
            Body::Quack(quack) => Some(look(&quack)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_quack_is_the_power_sums_of_what_was_seen() {
    let mut b = bench(ObserverConfig::default());
    let accept = b.open(1, Terms::default());
    let ids = [7, 4_000_000_000, 7, 12];
    for id in ids {
        assert_eq!(b.see(id, 3), Observed::Counted);
    }
    assert_eq!(b.heard(), None, "not before 30 ms");
    assert_eq!(b.observer.next_deadline(), Some(b.now + Duration::from_millis(30)));
    b.now += Duration::from_millis(30);
    b.observer.on_deadline(b.now);
    let p = 4_294_967_291u128;
    b.with_quack(|quack| {
        assert_eq!((quack.epoch, quack.first, quack.last, quack.count), (accept.epoch, 7, 12, 4));
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

#[test]
fn nothing_is_counted_before_the_sender_proved_its_address() {
    let mut b = bench(ObserverConfig::default());
    b.hello(1, Terms::default()).unwrap();
    let accept = b.accepted();
    assert_eq!(b.see(1, 0), Observed::NoSession);
    let wrong = Poll { epoch: accept.epoch ^ 2, token: 1, sums: 0 };
    assert_eq!(b.say(1, Body::Poll(wrong)), Err(HandleError::WrongEpoch));
    assert_eq!(b.see(1, 0), Observed::NoSession);
    let stranger = "203.0.113.9:5000".parse().unwrap();
    let right = Poll { epoch: accept.epoch, token: 1, sums: 0 };
    assert_eq!(b.say_from(stranger, 1, Body::Poll(right)), Err(HandleError::UnknownSession));
    assert_eq!(b.see(1, 0), Observed::NoSession);
    b.say(1, Body::Poll(right)).unwrap();
    assert_eq!(b.see(1, 0), Observed::Counted);
    // And unproven ones are soon forgotten.
    b.hello(2, Terms::default()).unwrap();
    assert_eq!(b.observer.sessions(), 2);
    b.now += PROOF_TIMEOUT;
    b.observer.on_deadline(b.now);
    assert_eq!(b.observer.sessions(), 1);
}

#[test]
fn an_epoch_counts_on_the_first_interface_that_shows_the_flow() {
    let mut b = bench(ObserverConfig::default());
    let accept = b.open(1, Terms::default());
    assert_eq!(
        [b.see(1, 4), b.see(1, 5), b.see(2, 5), b.see(2, 4)].map(|o| o == Observed::Counted),
        [true, false, false, true]
    );
    b.say(1, Body::NewEpoch { epoch: accept.epoch }).unwrap();
    let next = b.accepted();
    assert_ne!(next.epoch, accept.epoch);
    assert_eq!([b.see(3, 5), b.see(3, 4)], [Observed::Counted, Observed::Ignored]);
    // The same request again changes nothing, and is answered again.
    assert_eq!(b.say(1, Body::NewEpoch { epoch: accept.epoch }), Err(HandleError::WrongEpoch));
    assert_eq!(b.accepted(), next);
    b.say(1, Body::Poll(Poll { epoch: next.epoch, token: 9, sums: 60 })).unwrap();
    let seen = b.with_quack(|quack| (quack.count, quack.first, quack.token, quack.sums.len()));
    assert_eq!(seen, Some((1, 3, 9, 60)));
}

#[test]
fn terms_are_lowered_to_the_limits() {
    let mut b = bench(ObserverConfig::default());
    let asked = Terms { threshold: 200, every: Some(Duration::from_micros(10)), ..Terms::default() };
    b.hello(1, asked).unwrap();
    let accept = b.accepted();
    assert_eq!((accept.terms.threshold, accept.terms.every), (40, Some(Duration::from_millis(1))));
    assert_eq!(accept.kept_sums, 128);
    let never = Terms { every: None, ..Terms::default() };
    assert_eq!(b.hello(2, never), Err(HandleError::Refused));
    let (_, bytes) = b.heard().unwrap();
    assert_eq!(Message::parse(&bytes).unwrap().body, Body::Refuse(Refusal::Terms));
}

#[test]
fn sessions_are_limited_for_all_and_for_one_source() {
    let mut b =
        bench(ObserverConfig { max_sessions: 3, max_sessions_per_source: 2, ..ObserverConfig::default() });
    let hello = |port| {
        Body::Hello(Hello {
            source_port: port,
            destination: "198.51.100.7:443".parse().unwrap(),
            terms: Terms::default(),
        })
    };
    let from = |host: u8| SocketAddr::from(([192, 0, 2, host], 5000));
    let outcomes = [(1, 1), (1, 2), (1, 3), (2, 4), (3, 5)]
        .map(|(host, id)| b.say_from(from(host), id, hello(1000)).is_ok());
    assert_eq!(outcomes, [true, true, false, true, false]);
    b.say_from(from(1), 1, Body::Bye).unwrap();
    assert!(b.say_from(from(1), 6, hello(1000)).is_ok(), "a place is free again");
    assert_eq!(b.observer.sessions(), 3);
    b.now += Duration::from_secs(60);
    b.observer.on_deadline(b.now);
    assert_eq!((b.observer.sessions(), b.observer.next_deadline()), (0, None));
}

#[test]
fn quacks_by_number_of_packets() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms { every_packets: NonZeroU16::new(2), every: None, ..Terms::default() });
    let reports: Vec<Option<u32>> = (0..6)
        .map(|id| {
            b.see(id, 0);
            b.with_quack(|quack| quack.count)
        })
        .collect();
    assert_eq!(reports, [None, Some(2), None, Some(4), None, Some(6)]);
}

#[test]
fn a_goodbye_goes_to_everybody() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms::default());
    b.see(1, 0);
    b.observer.goodbye();
    let (to, bytes) = b.heard().unwrap();
    assert_eq!((to, Message::parse(&bytes).unwrap().body), (peer(), Body::Bye));
    assert_eq!((b.heard(), b.observer.sessions()), (None, 0));
    assert_eq!(b.see(2, 0), Observed::NoSession);
}

/// An answer is never longer than what provoked it, unless the address was proven.
#[test]
fn strangers_cannot_use_it_as_an_amplifier() {
    let mut b = bench(ObserverConfig { max_sessions: 1, ..ObserverConfig::default() });
    let requests = [
        Body::Poll(Poll { epoch: 1, token: 1, sums: 255 }),
        Body::NewEpoch { epoch: 1 },
        Body::Bye,
        Body::Hello(Hello { source_port: 1, destination: b.flow.destination, terms: Terms::default() }),
        Body::Hello(Hello { source_port: 2, destination: b.flow.destination, terms: Terms::default() }),
    ];
    for (id, body) in (0..).zip(requests) {
        let mut buffer = [0; MAX_MESSAGE_LEN];
        let len = Message { session: SessionId(id), body }.emit(&mut buffer).unwrap();
        let _ = b.observer.handle(peer(), &buffer[..len], b.now);
        let answers: usize = std::iter::from_fn(|| b.heard()).map(|(_, bytes)| bytes.len()).sum();
        assert!(answers <= len, "{body:?}: {answers} bytes for {len}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Hello(u8, u8),
    Poll(u8, bool),
    NewEpoch(u8, bool),
    Bye(u8),
    See(u32, u8),
    Bytes(Vec<u8>),
    Wait(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0u8..6, 0u8..3).prop_map(|(id, port)| Step::Hello(id, port)),
        (0u8..6, any::<bool>()).prop_map(|(id, right)| Step::Poll(id, right)),
        (0u8..6, any::<bool>()).prop_map(|(id, right)| Step::NewEpoch(id, right)),
        (0u8..6).prop_map(Step::Bye),
        (any::<u32>(), 0u8..3).prop_map(|(id, port)| Step::See(id, port)),
        prop::collection::vec(any::<u8>(), 0..60).prop_map(Step::Bytes),
        (0u32..20_000_000).prop_map(Step::Wait),
    ]
}

proptest! {
    /// Whatever is said in whatever order: the tables agree with each other and the limits hold.
    #[test]
    fn any_sequence_keeps_the_limits(steps in prop::collection::vec(step(), 1..200)) {
        let mut b = bench(ObserverConfig { max_sessions: 4, ..ObserverConfig::default() });
        let mut epochs = [1u32; 6];
        for step in steps {
            let _ = match step {
                Step::Hello(id, port) => {
                    b.flow.source.set_port(4000 + u16::from(port));
                    b.hello(id.into(), Terms::default())
                }
                Step::Poll(id, right) => {
                    let epoch = if right { epochs[usize::from(id)] } else { 1 };
                    b.say(id.into(), Body::Poll(Poll { epoch, token: 4, sums: 99 }))
                }
                Step::NewEpoch(id, right) => {
                    let epoch = if right { epochs[usize::from(id)] } else { 1 };
                    b.say(id.into(), Body::NewEpoch { epoch })
                }
                Step::Bye(id) => b.say(id.into(), Body::Bye),
                Step::See(id, port) => {
                    b.flow.source.set_port(4000 + u16::from(port));
                    b.see(id, 0);
                    Ok(())
                }
                Step::Bytes(bytes) => b.observer.handle(peer(), &bytes, b.now),
                Step::Wait(us) => {
                    b.now += Duration::from_micros(us.into());
                    b.observer.on_deadline(b.now);
                    Ok(())
                }
            };
            while let Some((_, bytes)) = b.heard() {
                let message = Message::parse(&bytes).unwrap();
                if let Body::Accept(accept) = message.body {
                    epochs[usize::try_from(message.session.0).unwrap()] = accept.epoch;
                }
            }
            b.observer.table.check();
            prop_assert!(b.observer.sessions() <= 4);
            prop_assert_eq!(b.observer.next_deadline().is_none(), b.observer.sessions() == 0);
            prop_assert!(b.observer.next_deadline().is_none_or(|at| at > b.now));
        }
    }
}
