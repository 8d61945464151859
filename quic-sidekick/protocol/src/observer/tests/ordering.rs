//! The order of a flow's datagrams (SPEC.md, section 6.10).

use super::*;
use crate::wire::{SentList, Words};

const MS: Duration = Duration::from_millis(1);

/// An observer that puts flows in order, with a session.
fn ordering() -> Bench {
    let mut bench = bench(ObserverConfig { orders: true, ..Default::default() });
    assert!(bench.hello(1, Terms::default()).unwrap().orders);
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

    fn released(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.observer.poll_release()).collect()
    }

    fn pass_time(&mut self, time: Duration) {
        self.now += time;
        self.observer.on_timeout(self.now);
    }
}

#[test]
fn a_held_datagram_leaves_in_time() {
    let mut bench = ordering();
    assert!(!bench.hold(1), "no list yet");
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
    assert_eq!((stats.lists, stats.order_missing, stats.order_given_up), (2, 5, 1));
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
