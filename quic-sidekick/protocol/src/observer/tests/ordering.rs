//! The order of a flow's datagrams (SPEC.md, section 6.10).

use super::*;
use crate::identify::{Filter, Identification, Position};
use crate::wire::{Part, SentList, SentSymbol, Words};
use sidekick_parity::Encoder;

const MS: Duration = Duration::from_millis(1);

/// An observer that puts flows in order, with a session.
fn ordering() -> Bench {
    ordering_by(Terms::default())
}

/// The same, with these terms.
fn ordering_by(terms: Terms) -> Bench {
    begun(terms, true)
}

/// The same, with or without a proof that the sender is on the flow's path.
fn begun(terms: Terms, is_proven: bool) -> Bench {
    let mut bench = bench(ObserverConfig { orders: true, ..Default::default() });
    let accept =
        if is_proven { bench.hello_along_path_for(1, terms) } else { bench.hello(1, terms) };
    assert!(accept.unwrap().orders);
    bench.send(1, Message::Poll(Poll { epoch: 1, token: 1, sums: 0 })).unwrap();
    while bench.next_sent().is_some() {}
    bench
}

impl Bench {
    /// Lets a datagram arrive, whose name is its identifier. Returns whether it waits, or has
    /// waited.
    fn hold(&mut self, identifier: u32) -> bool {
        self.observer.hold(identifier.into(), &self.flow, &packet(identifier), self.now)
    }

    /// Lists datagrams whose identifiers are their positions.
    fn list(&mut self, identifiers: std::ops::Range<u32>, gap: Duration, wait: Duration) {
        let us = |time: Duration| u16::try_from(time.as_micros()).unwrap();
        let first = identifiers.start;
        let identifiers: Vec<_> = identifiers.collect();
        let identifiers = Words::new(&identifiers);
        let list = SentList { first, gap_us: us(gap), wait_us: us(wait), identifiers };
        self.send(1, Message::List(list)).unwrap();
    }

    /// Begins an order, of which this datagram is the first.
    fn begin_with(&mut self, identifier: u32, hold: fn(&mut Self, u32) -> bool) {
        self.list(0..0, 40 * MS, 16 * MS);
        assert!(hold(self, identifier));
        self.list(identifier..identifier + 1, 40 * MS, 16 * MS);
        assert_eq!(self.released(), [u64::from(identifier)]);
    }

    /// The names of what leaves; that of a rebuilt datagram is its identifier.
    fn released(&mut self) -> Vec<u64> {
        let released = std::iter::from_fn(|| self.observer.poll_release());
        released
            .map(|release| match release {
                Release::Held(name) => name,
                Release::Made { flow, payload, .. } => {
                    assert_eq!(flow, self.flow);
                    let identifier = sidekick_parity::identifier(&payload).unwrap();
                    assert_eq!(payload, ended(identifier));
                    identifier.into()
                }
            })
            .collect()
    }

    /// Lets a datagram arrive that ends with its identifier.
    fn hold_ended(&mut self, identifier: u32) -> bool {
        let name = identifier.into();
        self.observer.hold(name, &self.flow, &ended(identifier), self.now)
    }

    /// Sends parts of the repair symbol of these datagrams.
    fn repair(&mut self, number: u16, of: std::ops::Range<u32>, parts: &[Part]) {
        let mut symbol = [0; sidekick_parity::MAX_SYMBOL_LEN];
        let datagrams: Vec<_> = of.clone().map(ended).collect();
        let each = datagrams.iter().map(Vec::as_slice);
        let len = Encoder::new().encode(number, of.start, each, &mut symbol).unwrap();
        let (front, back) = symbol[..len].split_at(len / 2);
        let (first, count) = (of.start, u8::try_from(of.len()).unwrap());
        for part in parts.iter().copied() {
            let symbol = match part {
                Part::Whole => &symbol[..len],
                Part::First => front,
                Part::Second => back,
            };
            let message = SentSymbol { number, first, count, part, symbol };
            self.send(1, Message::Symbol(message)).unwrap();
        }
    }

    fn pass_time(&mut self, time: Duration) {
        self.now += time;
        self.observer.on_timeout(self.now);
    }
}

#[test]
fn a_held_datagram_leaves_in_time() {
    let mut bench = ordering();
    assert!(!bench.hold(0), "no list yet");
    bench.begin_with(1, Bench::hold);
    bench.list(2..5, 17 * MS, 3 * MS);
    assert!(bench.released().is_empty());
    // The third is missing, and the fifth is in no list.
    assert!([2, 4, 5].into_iter().all(|identifier| bench.hold(identifier)));
    assert_eq!(bench.released(), [2]);
    bench.pass_time(16 * MS);
    assert!(bench.released().is_empty());
    assert!(bench.hold(3), "the repair");
    assert_eq!(bench.released(), [3, 4, 5]);
    bench.list(5..8, 17 * MS, 3 * MS);
    bench.hold(7);
    let due = bench.observer.poll_timeout().unwrap();
    assert!(due <= bench.now + 17 * MS);
    bench.pass_time(17 * MS);
    assert_eq!(bench.released(), [7]);
    bench.hold(6);
    assert_eq!(bench.released(), [6], "too late to wait for");
    let stats = bench.observer.stats();
    assert_eq!((stats.lists, stats.order_missing, stats.order_given_up), (4, 5, 1));
}

#[test]
fn what_waited_leaves_at_the_pace_at_which_it_came() {
    // Ten leave at once, with those that are due within half a millisecond. The tenth may be a copy
    // that came later than those behind it.
    let (spacing, most) = (MS / 10, 10 + 7);
    for copies in [&[2][..], &[11, 2], &[7, 2], &[50, 2]] {
        let mut bench = ordering();
        bench.begin_with(1, Bench::hold);
        let began = bench.now;
        for identifier in 2..103 {
            bench.pass_time(spacing);
            if !copies.contains(&identifier) {
                bench.hold(identifier);
            }
            bench.list(identifier..identifier + 1, 17 * MS, 3 * MS);
        }
        assert!(bench.released().is_empty());
        copies.iter().for_each(|copy| assert!(bench.hold(*copy)));
        let (mut all, mut steps) = (bench.released(), 0);
        assert!(all.len() <= most, "{copies:?}: {all:?}");
        while all.len() < 101 {
            let due = bench.observer.poll_timeout().unwrap();
            bench.pass_time(due.saturating_duration_since(bench.now));
            let step = bench.released();
            assert!(step.len() <= most, "{copies:?}: {step:?}");
            all.extend(step);
            steps += 1;
        }
        assert!(all.into_iter().eq(2..103));
        assert!(steps > 5, "{copies:?}: {steps} steps");
        assert!(bench.now <= began + 2 * 101 * spacing, "{copies:?}: {:?}", bench.now - began);
    }
}

/// The session's end, or the order's, waits for no step.
#[test]
fn at_the_end_of_the_order_all_leaves_at_once() {
    let mut bench = ordering();
    bench.begin_with(1, Bench::hold);
    for identifier in 3..103 {
        bench.pass_time(MS / 10);
        bench.hold(identifier);
        bench.list(identifier - 1..identifier + 1, 17 * MS, 3 * MS);
    }
    bench.hold(2);
    let before = bench.released();
    assert!(before.len() < 40, "{before:?}");
    bench.pass_time(Duration::from_secs(1));
    let all: Vec<_> = before.into_iter().chain(bench.released()).collect();
    assert_eq!(all, Vec::from_iter(2..103));
    assert!(!bench.hold(103));
}

#[test]
fn the_order_ends_a_second_after_the_last_list() {
    let mut bench = ordering();
    bench.list(1..3, 17 * MS, 3 * MS);
    assert!(bench.hold(1));
    bench.pass_time(999 * MS);
    assert!(bench.hold(9));
    bench.pass_time(MS);
    assert_eq!(bench.released(), [1, 9]);
    assert!(!bench.hold(10));
    // Times of 0 let everything pass at once, and so does the end of the session.
    bench.list(20..22, 17 * MS, 3 * MS);
    bench.hold(21);
    assert!(bench.released().is_empty());
    bench.list(0..0, Duration::ZERO, Duration::ZERO);
    assert_eq!(bench.released(), [21]);
    bench.list(22..24, 17 * MS, 3 * MS);
    bench.hold(23);
    assert!(bench.released().is_empty());
    bench.send(1, Message::Bye).unwrap();
    assert_eq!(bench.released(), [23]);
}

/// Terms by which a datagram's end identifies it.
fn by_ends() -> Terms {
    let identification = Identification { position: Position::End, filter: Filter::All };
    Terms { identification, ..Terms::default() }
}

/// A datagram that ends with its identifier. Their lengths differ.
fn ended(identifier: u32) -> Vec<u8> {
    let mut datagram = vec![0x40; 800 + identifier as usize % 50];
    datagram.extend(identifier.to_be_bytes());
    datagram
}

#[test]
fn parity_rebuilds_what_the_near_segment_lost() {
    for parts in [
        &[Part::Whole][..],
        &[Part::First, Part::Second],
        &[Part::Second, Part::First],
        &[Part::First, Part::First, Part::Second],
    ] {
        let mut bench = ordering_by(by_ends());
        bench.begin_with(1, Bench::hold_ended);
        bench.list(1..6, 40 * MS, 16 * MS);
        assert!([3, 4, 5].into_iter().all(|identifier| bench.hold_ended(identifier)));
        assert!(bench.released().is_empty());
        bench.repair(7, 1..6, parts);
        assert_eq!(bench.released(), [2, 3, 4, 5], "{parts:?}");
        assert_eq!(bench.observer.stats().rebuilt, 1);
    }
}

#[test]
fn half_a_repair_symbol_rebuilds_nothing() {
    let mut bench = ordering_by(by_ends());
    bench.begin_with(1, Bench::hold_ended);
    bench.list(1..4, 40 * MS, 16 * MS);
    assert!(bench.hold_ended(3));
    // Halves of two repair symbols are none.
    bench.repair(7, 1..4, &[Part::First]);
    bench.repair(8, 1..4, &[Part::Second]);
    assert!(bench.released().is_empty());
    // Too long for one.
    let symbol = &[1; SentSymbol::MAX_LEN];
    for part in [Part::First, Part::Second] {
        let message = SentSymbol { number: 9, first: 1, count: 3, part, symbol };
        bench.send(1, Message::Symbol(message)).unwrap();
    }
    bench.pass_time(40 * MS);
    assert_eq!(bench.released(), [3]);
    let stats = bench.observer.stats();
    assert_eq!((stats.symbols, stats.rebuilt, stats.order_given_up), (4, 0, 1));
}

/// Equations cost more than the messages that hold them.
#[test]
fn a_flood_of_parity_is_not_read() {
    let mut bench = ordering_by(by_ends());
    bench.begin_with(1, Bench::hold_ended);
    bench.list(1..4, 40 * MS, 16 * MS);
    (0..256).for_each(|_| bench.repair(6, 1..2, &[Part::Whole]));
    // Each arrival pays for four.
    assert!(bench.hold_ended(3));
    (0..4).for_each(|_| bench.repair(6, 1..2, &[Part::Whole]));
    bench.repair(7, 1..4, &[Part::Whole]);
    bench.pass_time(40 * MS);
    assert_eq!(bench.observer.stats().rebuilt, 0);
    bench.list(4..7, 40 * MS, 16 * MS);
    assert!([4, 6].into_iter().all(|identifier| bench.hold_ended(identifier)));
    bench.repair(8, 4..7, &[Part::Whole]);
    assert_eq!(bench.observer.stats().rebuilt, 1);
}

#[test]
fn parity_without_a_list_or_of_hashes_rebuilds_nothing() {
    let mut bench = ordering_by(by_ends());
    bench.repair(7, 1..4, &[Part::Whole]);
    assert!(!bench.hold_ended(1), "without a list nothing waits");
    let whole = Identification { position: Position::Whole, filter: Filter::All };
    let mut bench = ordering_by(Terms { identification: whole, ..Terms::default() });
    bench.list(1..4, 40 * MS, 16 * MS);
    bench.repair(7, 1..4, &[Part::Whole]);
    bench.pass_time(56 * MS);
    assert!(bench.released().is_empty());
}

/// The first LIST follows what it lists, and so does one after the last order has ended.
#[test]
fn what_passed_before_the_order_is_not_missing() {
    let mut bench = ordering_by(by_ends());
    for first in [1, 101] {
        assert!(!bench.hold_ended(first), "no order yet");
        bench.list(first..first + 8, 40 * MS, 16 * MS);
        bench.repair(7, first..first + 1, &[Part::Whole]);
        bench.repair(8, first..first + 8, &[Part::Whole]);
        assert!(bench.released().is_empty(), "nothing is there twice");
        // Nor does what follows wait.
        assert!([9, 10].into_iter().all(|next| bench.hold_ended(first + next)));
        bench.list(first..first + 12, 40 * MS, 16 * MS);
        assert_eq!(bench.released(), [first + 9, first + 10].map(u64::from));
        assert_eq!(bench.observer.stats().rebuilt, 0);
        bench.pass_time(1001 * MS);
    }
}

/// Else who shares an address with the flow's source could send in its name.
#[test]
fn without_a_proof_of_the_path_nothing_is_rebuilt_and_nothing_waits() {
    let mut bench = begun(by_ends(), false);
    bench.list(0..0, 40 * MS, 16 * MS);
    assert!([1, 3].into_iter().all(|identifier| bench.hold_ended(identifier)));
    bench.list(1..4, 40 * MS, 16 * MS);
    bench.repair(7, 1..4, &[Part::Whole]);
    assert_eq!(bench.released(), [1, 3]);
    bench.hold_ended(5);
    bench.list(1..6, 40 * MS, 16 * MS);
    assert_eq!((bench.released(), bench.observer.stats().rebuilt), (vec![5], 0));
}

/// A place is free again once a flow's order ends, or its sender turns out to send no parity.
#[test]
fn few_sessions_rebuild_at_a_time() {
    let places = |bench: &Bench| Arc::strong_count(&bench.observer.rebuilding) - 1;
    let mut bench = ordering_by(by_ends());
    bench.list(1..40, 40 * MS, 16 * MS);
    assert_eq!(places(&bench), 1);
    (1..4).for_each(|round| bench.list(40 * round..40 * round + 40, 40 * MS, 16 * MS));
    assert_eq!(places(&bench), 0, "none came");
    bench.repair(7, 150..160, &[Part::Whole]);
    assert_eq!(places(&bench), 1);
    bench.pass_time(1001 * MS);
    assert_eq!(places(&bench), 0);
    let taken = vec![Arc::clone(&bench.observer.rebuilding); 128];
    bench.begin_with(200, Bench::hold_ended);
    bench.hold_ended(202);
    bench.list(200..203, 40 * MS, 16 * MS);
    bench.repair(7, 200..203, &[Part::Whole]);
    assert_eq!(bench.released(), [202], "without a place nothing waits");
    drop(taken);
    bench.repair(8, 200..203, &[Part::Whole]);
    assert_eq!(places(&bench), 1);
    bench.list(200..206, 40 * MS, 16 * MS);
    bench.hold_ended(205);
    assert!(bench.released().is_empty());
    bench.repair(9, 203..206, &[Part::Whole]);
    bench.repair(10, 203..206, &[Part::Whole]);
    assert_eq!(bench.released(), [203, 204, 205]);
}

#[test]
fn an_observer_that_holds_nothing_ignores_lists() {
    let mut bench = bench(ObserverConfig::default());
    assert!(!bench.hello(1, Terms::default()).unwrap().orders);
    bench.list(1..3, 17 * MS, 3 * MS);
    assert!(!bench.hold(2));
}

proptest! {
    /// Whatever lists say, each datagram leaves once, and no later than they allow.
    #[test]
    fn every_held_datagram_leaves_once(
        steps in prop::collection::vec((0_u8..4, 0_u32..40, 0_u64..8), 1..200),
    ) {
        let mut bench = ordering();
        let (gap, wait) = (10 * MS, 3 * MS);
        let mut waiting: HashMap<u64, Instant> = HashMap::new();
        let mut latest = 1000_u64;
        for (what, number, ms) in steps {
            match what {
                0 => bench.list(number..number + 12, gap, wait),
                1 => {
                    latest += 1;
                    let payload = packet(number);
                    if bench.observer.hold(latest, &bench.flow, &payload, bench.now) {
                        waiting.insert(latest, bench.now);
                    }
                }
                _ => (0..ms).for_each(|_| bench.pass_time(MS)),
            }
            for name in bench.released() {
                prop_assert!(waiting.remove(&name).is_some(), "{} left twice", name);
            }
            let oldest = waiting.values().min().copied().unwrap_or(bench.now);
            prop_assert!(bench.now <= oldest + gap + wait + 2 * MS);
        }
        bench.send(1, Message::Bye).unwrap();
        prop_assert_eq!(bench.released().len(), waiting.len());
    }
}
