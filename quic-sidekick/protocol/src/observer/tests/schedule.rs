//! quACKs that leave less often than the terms require, because their sender asked for it.

use super::*;
use crate::wire::{Schedule, Timing};

const MS: Duration = Duration::from_millis(1);

/// A session with a packet each millisecond.
struct Paced {
    bench: Bench,
    next: u32,
}

impl Paced {
    fn new(every_packets: u16, every: Option<Duration>) -> Self {
        let mut bench = bench(ObserverConfig::default());
        let every_packets = NonZeroU16::new(every_packets);
        bench.open(1, Terms { every_packets, every, ..Terms::default() });
        Self { bench, next: 0 }
    }

    /// Asks for other quACKs, and receives the answer.
    fn pace(&mut self, epoch: u16, every_packets: u16, every_ms: u32) -> Result<(), HandleError> {
        let timing = Timing { every_packets, every: every_ms * MS, ..Timing::default() };
        self.bench.send(1, Message::Schedule(Schedule { epoch, token: 9, timing }))?;
        let count = self.bench.with_quack(1, |quack| (quack.token, quack.count));
        assert_eq!(count, Some((9, self.next)));
        Ok(())
    }

    /// The number of quACKs that leave while this many packets come.
    fn quacks(&mut self, packets: u32) -> usize {
        let mut quacks = 0;
        for _ in 0..packets {
            self.bench.now += MS;
            self.bench.observer.on_timeout(self.bench.now);
            self.next += 1;
            self.bench.capture(self.next, 0);
            quacks += std::iter::from_fn(|| self.bench.next_sent()).count();
        }
        quacks
    }
}

#[test]
fn quacks_leave_as_often_as_their_sender_asks() {
    let mut timed = Paced::new(0, Some(5 * MS));
    for (every_ms, quacks) in [(0, 119), (20, 29), (10, 59), (0, 119), (20, 29)] {
        timed.pace(1, 0, every_ms).unwrap();
        assert_eq!(timed.quacks(600), quacks, "{every_ms} ms");
    }
    let mut counted = Paced::new(2, None);
    for (every_packets, quacks) in [(16, 37), (8, 75), (0, 300)] {
        counted.pace(1, every_packets, 0).unwrap();
        assert_eq!(counted.quacks(600), quacks, "{every_packets} packets");
    }
}

#[test]
fn the_latest_request_holds_whatever_the_order_of_arrival() {
    let schedule = |timing| Message::Schedule(Schedule { epoch: 1, token: 9, timing });
    let terms = schedule(Timing::default());
    let fewer = schedule(Timing { every: 20 * MS, ..Timing::default() });
    let steady = schedule(Timing { every_packets: 100, interval: MS, ..Timing::default() });
    for (messages, quacks) in [
        ([fewer, terms], 119),
        ([terms, fewer], 29),
        ([steady, terms], 119),
        ([terms, steady], 6),
        ([steady, fewer], 29),
        ([fewer, steady], 6),
    ] {
        let mut timed = Paced::new(0, Some(5 * MS));
        timed.bench.send_reversed(1, &messages);
        while timed.bench.next_sent().is_some() {}
        assert_eq!(timed.quacks(600), quacks, "{messages:?}");
    }
}

/// A sender cannot get quACKs more often than the terms allow.
#[test]
fn quacks_never_leave_more_often_than_the_terms_allow() {
    let mut timed = Paced::new(0, Some(5 * MS));
    timed.pace(1, 1, 1).unwrap();
    assert_eq!(timed.quacks(600), 119);
    let mut counted = Paced::new(4, None);
    counted.pace(1, 1, 1).unwrap();
    assert_eq!(counted.quacks(600), 150);
}

#[test]
fn a_schedule_lasts_until_the_epoch_ends() {
    let mut paced = Paced::new(4, Some(5 * MS));
    assert_eq!(paced.pace(2, 16, 20), Err(HandleError::WrongEpoch));
    assert_eq!(paced.quacks(60), 15);
    paced.pace(1, 16, 20).unwrap();
    assert_eq!(paced.quacks(160), 10);
    // A timed quACK waits.
    paced.quacks(3);
    paced.bench.send(1, Message::NewEpoch { epoch: 1 }).unwrap();
    assert!(paced.bench.next_sent().is_some());
    assert_eq!(paced.quacks(60), 15);
}
