//! The second link of a session's sender (SPEC.md, section 6.11).

use super::*;
use crate::identify::{Filter, Identification};
use crate::wire::{Linked, Part, Relay, Relayed, SentList, Words};

const MS: Duration = Duration::from_millis(1);

/// Where the sender is on its second link.
fn second() -> SocketAddr {
    "203.0.113.9:6000".parse().unwrap()
}

fn all() -> Terms {
    Terms {
        identification: Identification { position: Position::End, filter: Filter::All },
        ..Terms::default()
    }
}

/// An observer that relays, with a session whose sender proved its path or its address alone.
fn relaying(terms: Terms, is_proven: bool) -> Bench {
    let config = ObserverConfig { orders: true, relays: true, ..Default::default() };
    let mut bench = bench(config);
    let accept =
        if is_proven { bench.hello_along_path_for(1, terms) } else { bench.hello(1, terms) };
    accept.unwrap();
    bench.poll(1, 1, 1).unwrap();
    while bench.next_sent().is_some() {}
    bench
}

/// A datagram that ends with its identifier.
fn datagram(identifier: u32) -> Vec<u8> {
    let mut datagram = vec![0x40; 1200];
    datagram.extend_from_slice(&identifier.to_be_bytes());
    datagram
}

impl Bench {
    fn by_second(&mut self, message: Message<'_>) -> Result<(), HandleError> {
        self.by_second_from(second(), message)
    }

    fn by_second_from(
        &mut self,
        from: SocketAddr,
        message: Message<'_>,
    ) -> Result<(), HandleError> {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let (session, seal) = self.seals.get_mut(&1).unwrap();
        let len = seal.seal(Link::Second, *session, &message, &mut buffer).unwrap();
        self.observer.handle_input(from, &buffer[..len], self.now)
    }

    /// The token of the waiting LINKED, which goes to this address, and what it says.
    fn linked(&mut self, to: SocketAddr) -> Option<(u16, Linked)> {
        let (transmit, bytes) = self.next_sent()?;
        assert_eq!(transmit.destination, to);
        let Datagram::Sealed { sequence, ciphertext, .. } = Datagram::parse(&bytes).unwrap() else {
            panic!("{bytes:?}")
        };
        assert_eq!(Link::of(sequence), Link::Second);
        let mut plain = Plain::default();
        let (_, seal) = self.seals.get_mut(&1).unwrap();
        let opened = seal.open(sequence, ciphertext, &mut plain).unwrap();
        let Message::Linked { token, linked } = opened else { panic!("{opened:?}") };
        Some((token, linked))
    }

    /// The waiting LINKED's proof.
    fn proof(&mut self, to: SocketAddr) -> Cookie {
        match self.linked(to) {
            Some((7, Linked::Proof(cookie))) => cookie,
            other => panic!("{other:?}"),
        }
    }

    /// Asks which RELAYs arrived.
    fn relayed(&mut self, cookie: Cookie) -> Relayed {
        // What gaps drew comes first.
        while self.next_sent().is_some() {}
        self.by_second(Message::Link { token: 7, cookie }).unwrap();
        match self.linked(second()) {
            Some((7, Linked::InForce(relayed))) => relayed,
            other => panic!("{other:?}"),
        }
    }

    fn link(&mut self) -> Cookie {
        let cookie = Cookie::NONE;
        assert_eq!(self.by_second(Message::Link { token: 7, cookie }), Err(HandleError::Unproven));
        let cookie = self.proof(second());
        self.relayed(cookie);
        cookie
    }

    /// Relays a datagram under the next number.
    fn relay(&mut self, datagram: &[u8]) -> Result<(), HandleError> {
        self.latest_relay = self.latest_relay.wrapping_add(1);
        self.relay_as(self.latest_relay, 0, datagram)
    }

    fn relay_as(&mut self, number: u16, wait_ms: u8, datagram: &[u8]) -> Result<(), HandleError> {
        let (front, back) = datagram.split_at(datagram.len() / 2);
        for (part, datagram) in [(Part::First, front), (Part::Second, back)] {
            let relay = Relay { number, part, class: 0xb8, wait_ms, datagram };
            self.by_second(Message::Relay(relay))?;
        }
        Ok(())
    }

    /// The identifiers of what leaves now, less 100,000.
    fn left(&mut self) -> Vec<u32> {
        let left = self.made().into_iter();
        left.map(|(_, it)| u32::from_be_bytes(*it.last_chunk().unwrap()) - 100_000).collect()
    }

    /// What leaves now, all made by the observer.
    fn made(&mut self) -> Vec<(u8, Vec<u8>)> {
        let released = std::iter::from_fn(|| self.observer.poll_release());
        released
            .map(|release| match release {
                Release::Made { flow, class, payload } => {
                    assert_eq!(flow, self.flow);
                    (class, payload)
                }
                Release::Held(name) => panic!("{name}"),
            })
            .collect()
    }

    /// Counts a datagram of the flow.
    fn count(&mut self, identifier: u32) {
        let datagram = datagram(identifier);
        let seen = self.observer.observe(&self.flow, 0, Payload::whole(&datagram), self.now);
        assert_eq!(seen, Observed::Counted);
    }
}

#[test]
fn a_second_link_needs_a_proof_of_its_address() {
    let mut bench = relaying(all(), true);
    assert_eq!(bench.relay(&datagram(7)), Err(HandleError::Unproven), "no LINK");
    let cookie = Cookie::NONE;
    assert_eq!(bench.by_second(Message::Link { token: 7, cookie }), Err(HandleError::Unproven));
    let cookie = bench.proof(second());
    // A cookie of another address proves nothing.
    let elsewhere: SocketAddr = "203.0.113.9:6001".parse().unwrap();
    let outcome = bench.by_second_from(elsewhere, Message::Link { token: 7, cookie });
    assert_eq!(outcome, Err(HandleError::Unproven));
    assert_ne!(bench.proof(elsewhere), cookie);
    assert_eq!(bench.relayed(cookie), Relayed::default());
    bench.relay(&datagram(7)).unwrap();
    assert_eq!(bench.made(), [(0xb8, datagram(7))]);
    // It ends by itself, and by the sender's word.
    bench.now += Duration::from_secs(10);
    assert_eq!(bench.relay(&datagram(8)), Err(HandleError::Unproven));
    bench.link();
    bench.send(1, Message::Link { token: 7, cookie }).unwrap();
    assert_eq!(bench.relay(&datagram(8)), Err(HandleError::Unproven));
    assert_eq!((bench.made(), bench.observer.stats().relays_refused), (vec![], 3));
}

#[test]
fn new_limits_keep_second_links() {
    let mut bench = relaying(all(), true);
    let limits = ObserverConfig { max_sessions: 7, ..Default::default() };
    bench.observer.reconfigure(limits).unwrap();
    bench.link();
    bench.relay(&datagram(7)).unwrap();
    assert_eq!(bench.made().len(), 1);
}

#[test]
fn a_second_link_has_no_other_messages() {
    let mut bench = relaying(all(), true);
    bench.link();
    for message in
        [Message::Poll(Poll { epoch: 1, token: 9, sums: 0 }), Message::NewEpoch { epoch: 1 }]
    {
        assert_eq!(bench.by_second(message), Err(HandleError::NotForLink));
    }
    assert_eq!(bench.next_sent(), None);
}

#[test]
fn without_a_proof_of_the_path_there_is_no_second_link() {
    let mut bench = relaying(all(), false);
    let cookie = Cookie::NONE;
    assert_eq!(bench.by_second(Message::Link { token: 7, cookie }), Err(HandleError::Unproven));
    assert_eq!(bench.next_sent(), None);
    assert_eq!(bench.relay(&datagram(7)), Err(HandleError::Unproven));
    assert_eq!(bench.made(), []);
}

#[test]
fn what_was_counted_or_does_not_count_is_not_relayed() {
    let quic = Identification { position: Position::End, filter: Filter::QuicShortHeader };
    let mut bench = relaying(Terms { identification: quic, ..all() }, true);
    bench.link();
    bench.count(7);
    assert_eq!(bench.relay(&datagram(7)), Err(HandleError::NotRelayed), "it passed");
    let long_header: Vec<u8> = [0xc0].into_iter().chain(datagram(8)).collect();
    assert_eq!(bench.relay(&long_header), Err(HandleError::NotRelayed));
    assert_eq!(bench.relay(&[0x40; 3]), Err(HandleError::NotRelayed), "no identifier");
    assert_eq!(bench.relay(&[0x40; 1473]), Err(HandleError::NotRelayed));
    assert_eq!(bench.made(), []);
    bench.relay(&datagram(8)).unwrap();
    assert_eq!(bench.made().len(), 1);
    // It was not counted, and the original, if it is late, is.
    bench.count(8);
}

#[test]
fn a_relayed_datagram_takes_its_place_in_the_order() {
    let mut bench = relaying(all(), true);
    bench.link();
    let list = |bench: &mut Bench, first, identifiers: &[u32]| {
        let identifiers = Words::new(identifiers);
        let list = SentList { first, gap_us: 40_000, wait_us: 16_000, identifiers };
        bench.send(1, Message::List(list)).unwrap();
    };
    let hold = |bench: &mut Bench, identifier: u32| {
        let flow = bench.flow;
        bench.observer.hold(identifier.into(), &flow, &datagram(identifier), bench.now)
    };
    list(&mut bench, 0, &[]);
    assert!(hold(&mut bench, 10));
    list(&mut bench, 0, &[10]);
    assert_eq!(bench.observer.poll_release(), Some(Release::Held(10)));
    assert!(hold(&mut bench, 12));
    list(&mut bench, 1, &[11, 12]);
    assert_eq!(bench.observer.poll_release(), None);
    bench.relay(&datagram(11)).unwrap();
    let payload = datagram(11);
    let made = Release::Made { flow: bench.flow, class: 0xb8, payload };
    assert_eq!(bench.observer.poll_release(), Some(made));
    assert_eq!(bench.observer.poll_release(), Some(Release::Held(12)));
}

/// The second link loses some, and others come out of order or twice.
#[test]
fn relayed_datagrams_wait_for_lower_numbers() {
    let mut bench = relaying(all(), true);
    let cookie = bench.link();
    let none: [u32; 0] = [];
    let relay = |bench: &mut Bench, number: u16, wait_ms| {
        let outcome = bench.relay_as(number, wait_ms, &datagram(100_000 + u32::from(number)));
        assert_eq!(outcome, Ok(()), "{number}");
        bench.left()
    };
    // The numbers begin anywhere, and begin again.
    assert_eq!(relay(&mut bench, 65_534, 100), [65_534]);
    assert_eq!(relay(&mut bench, 1, 100), none);
    assert_eq!(relay(&mut bench, 2, 100), none);
    let mut known = Relayed::default();
    assert_eq!([65_534, 1, 2].map(|number| known.note(number)), [true; 3]);
    assert_eq!(bench.relayed(cookie), known);
    assert_eq!(relay(&mut bench, 65_535, 100), [65_535]);
    assert_eq!(relay(&mut bench, 65_535, 100), none, "it arrived");
    assert_eq!(relay(&mut bench, 0, 100), [0, 1, 2]);
    assert_eq!([65_535, 0].map(|number| known.note(number)), [true; 2]);
    assert_eq!(bench.relayed(cookie), known);
    // They wait no longer than they say.
    assert_eq!(relay(&mut bench, 4, 100), none);
    bench.now += 99 * MS;
    bench.observer.on_timeout(bench.now);
    assert_eq!(bench.left(), none);
    assert_eq!(bench.observer.poll_timeout(), Some(bench.now + MS));
    bench.now += MS;
    bench.observer.on_timeout(bench.now);
    assert_eq!(bench.left(), [4]);
    assert_eq!(relay(&mut bench, 3, 100), [3], "late");
    // One that does not wait leaves at once.
    assert_eq!(relay(&mut bench, 6, 100), none);
    assert_eq!(relay(&mut bench, 8, 0), [8]);
    assert_eq!(relay(&mut bench, 9, 100), none);
    assert_eq!(relay(&mut bench, 5, 0), [5, 6]);
    assert_eq!(relay(&mut bench, 7, 100), [7, 9]);
    // Nor do they wait behind a leap, or for what may not pass.
    assert_eq!(relay(&mut bench, 300, 100), [300]);
    bench.count(100_301);
    assert_eq!(bench.relay_as(301, 100, &datagram(100_301)), Err(HandleError::NotRelayed));
    assert_eq!(relay(&mut bench, 302, 100), [302]);
    // The end of the session ends all waits.
    assert_eq!(relay(&mut bench, 304, 100), none);
    bench.send(1, Message::Bye).unwrap();
    assert_eq!(bench.left(), [304]);
}

#[test]
fn what_passes_while_it_waits_is_not_relayed() {
    let mut bench = relaying(all(), true);
    bench.link();
    for number in [1, 3, 4] {
        bench.relay_as(number, 100, &datagram(100_000 + u32::from(number))).unwrap();
    }
    bench.count(100_003);
    bench.relay_as(2, 100, &datagram(100_002)).unwrap();
    assert_eq!(bench.left(), [1, 2, 4]);
}

/// A gap draws a LINKED at once, but no second one before that left.
#[test]
fn a_gap_tells_the_sender_what_arrived() {
    let mut bench = relaying(all(), true);
    bench.link();
    let mut known = Relayed::default();
    for number in [1, 2, 4, 7] {
        bench.relay_as(number, 0, &datagram(100_000 + u32::from(number))).unwrap();
        known.note(number);
    }
    assert_eq!(bench.linked(second()), Some((0, Linked::InForce(known))));
    assert_eq!(bench.linked(second()), None);
    bench.relay_as(9, 0, &datagram(100_009)).unwrap();
    known.note(9);
    assert_eq!(bench.linked(second()), Some((0, Linked::InForce(known))));
}

/// A gap holds no more than so many, and no more sessions than there are places.
#[test]
fn waiting_relays_have_bounds() {
    let mut bench = relaying(all(), true);
    bench.link();
    (50_000..52_000).for_each(|identifier| bench.count(identifier));
    let relay = |bench: &mut Bench, number: u16| {
        bench.relay_as(number, 255, &datagram(100_000 + u32::from(number))).unwrap();
        bench.left().len()
    };
    assert_eq!(relay(&mut bench, 1), 1);
    let left: Vec<usize> = (3..600).map(|number| relay(&mut bench, number)).collect();
    assert!(left[..512].iter().all(|left| *left == 0));
    assert_eq!(left[512], 513, "the next one lets all go");
    assert!(left[513..].iter().all(|left| *left == 1), "and none waits for the gap again");
    // One more exists than sessions have one.
    let mut bench = relaying(all(), true);
    bench.link();
    let place = Arc::clone(&bench.observer.waiting_relays);
    let take = |places| (0..places).map(|_| Arc::clone(&place)).collect::<Vec<_>>();
    let others = take(63);
    assert_eq!(relay(&mut bench, 1), 1);
    assert_eq!(relay(&mut bench, 3), 1, "there is no place");
    drop(others);
    let others = take(62);
    assert_eq!(relay(&mut bench, 5), 0, "there is one");
    let more = take(9);
    assert_eq!(relay(&mut bench, 6), 0, "it has its place");
    assert_eq!(relay(&mut bench, 4), 3);
    assert_eq!(relay(&mut bench, 8), 1, "it gave it back");
    drop((others, more));
}

#[test]
fn relayed_datagrams_have_a_budget() {
    let mut bench = relaying(all(), true);
    bench.link();
    let relayed = |bench: &mut Bench, from: u32| {
        let taken = (from..from + 10_000).filter(|at| bench.relay(&datagram(*at)).is_ok()).count();
        let made = bench.made();
        assert_eq!(made.len(), taken);
        made.iter().map(|(_, payload)| payload.len()).sum::<usize>()
    };
    let first = relayed(&mut bench, 0);
    assert!((60_000..=64 << 10).contains(&first), "{first}");
    (50_000..50_100).for_each(|identifier| bench.count(identifier));
    let more = relayed(&mut bench, 60_000);
    assert!((119_000..=122_000).contains(&more), "{more} of 120,400 counted");
    // No more than 4 MiB are saved up.
    (100_000..110_000).for_each(|identifier| bench.count(identifier));
    bench.link();
    let most = relayed(&mut bench, 200_000);
    assert!((4_190_000..=4 << 20).contains(&most), "{most}");
    // Nor does another LINK begin a new one.
    bench.send(1, Message::Link { token: 7, cookie: Cookie::NONE }).unwrap();
    bench.link();
    assert_eq!(relayed(&mut bench, 300_000), 0);
}

/// Hosts at other addresses, with other keys, replays and altered messages, and a session that has
/// proved its address alone.
#[test]
fn hostile_relays_put_nothing_on_the_path() {
    let mut bench = relaying(all(), true);
    bench.link();
    let mut neighbour = relaying(all(), false);
    let mut numbers = Numbers::new([9; 32]);
    let mut sealed = [0; MAX_DATAGRAM_LEN];
    let payload = datagram(7);
    let (part, datagram) = (Part::Whole, &payload[..900]);
    let message = Message::Relay(Relay { number: 1, part, class: 0, wait_ms: 0, datagram });
    let (session, seal) = bench.seals.get_mut(&1).unwrap();
    let session = *session;
    let len = seal.seal(Link::Second, session, &message, &mut sealed).unwrap();
    let mut stranger = Seal::from_keys(&[3; 32], &[4; 32]);
    for attempt in 0..200_000_u32 {
        let mut forged = sealed;
        let from = SocketAddr::from((numbers.next_u32().to_be_bytes(), 6000));
        let len = match attempt % 4 {
            // Altered.
            0 => {
                let at = usize::try_from(numbers.next_u32()).unwrap() % len;
                forged[at] ^= 1 << (attempt / 4 % 8);
                len
            }
            // Another's seal.
            1 => stranger.seal(Link::Second, session, &message, &mut forged).unwrap(),
            // Of a session that did not prove its path.
            2 => {
                let message = if attempt % 8 == 2 {
                    Message::Link { token: 7, cookie: Cookie(numbers.array()) }
                } else {
                    message
                };
                assert!(neighbour.by_second_from(from, message).is_err());
                continue;
            }
            // Cut off.
            _ => len - 1 - usize::try_from(attempt / 4).unwrap() % (len - 1),
        };
        let outcome = bench.observer.handle_input(from, &forged[..len], bench.now);
        assert!(outcome.is_err(), "{attempt}: {outcome:?}");
        while bench.next_sent().is_some() {}
    }
    assert_eq!((bench.made(), neighbour.made()), (vec![], vec![]));
    // The message itself is good, once.
    bench.observer.handle_input(second(), &sealed[..len], bench.now).unwrap();
    assert_eq!(bench.made(), [(0, payload[..900].to_vec())]);
    let again = bench.observer.handle_input(second(), &sealed[..len], bench.now + MS);
    assert_eq!(again, Err(HandleError::Replay));
}
