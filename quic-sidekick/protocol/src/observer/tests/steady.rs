//! Flows with a steady interval: the observer reports overdue packets, and a pause causes few
//! reports.

use super::*;
use crate::wire::{Schedule, Timing};

const MS: Duration = Duration::from_millis(1);
const INTERVAL: Duration = Duration::from_millis(20);
/// The packets between two quACKs of a flow that lacks none.
const EVERY: u16 = 25;

/// A session that watches a flow, with a quACK for each packet otherwise.
struct Call {
    bench: Bench,
    next: u32,
}

impl Call {
    fn new(interval: Duration) -> Self {
        let mut bench = bench(ObserverConfig::default());
        let every_packets = NonZeroU16::new(1);
        bench.open(1, Terms { threshold: 2, every_packets, every: None, ..Terms::default() });
        let mut call = Self { bench, next: 0 };
        call.steady(1, interval).unwrap();
        assert_eq!(call.bench.with_quack(1, |quack| quack.token), Some(9));
        call
    }

    fn steady(&mut self, epoch: u16, interval: Duration) -> Result<(), HandleError> {
        let every_packets = if interval.is_zero() { 0 } else { EVERY };
        let timing = Timing { every_packets, interval, ..Timing::default() };
        self.bench.send(1, Message::Schedule(Schedule { epoch, token: 9, timing }))
    }

    fn packet(&mut self) {
        self.next += 1;
        self.bench.capture(self.next, 0);
    }

    /// Lets time pass. Returns when quACKs left, after the beginning.
    fn run(&mut self, time: Duration) -> Vec<Duration> {
        let (begun, end) = (self.bench.now, self.bench.now + time);
        let mut sent = self.drain(begun);
        while let Some(at) = self.bench.observer.poll_timeout().filter(|at| *at < end) {
            self.bench.now = at;
            self.bench.observer.on_timeout(at);
            sent.extend(self.drain(begun));
        }
        self.bench.now = end;
        sent
    }

    fn drain(&mut self, begun: Instant) -> Vec<Duration> {
        let sent = std::iter::from_fn(|| self.bench.next_sent()).count();
        vec![self.bench.now - begun; sent]
    }

    /// Sends packets, one after each of these times. Returns the number of quACKs.
    fn stream(&mut self, gaps: impl IntoIterator<Item = Duration>) -> usize {
        let mut quacks = 0;
        for gap in gaps {
            quacks += self.run(gap).len();
            self.packet();
        }
        quacks + self.drain(self.bench.now).len()
    }

    fn regular(&mut self, packets: usize) -> usize {
        self.stream(std::iter::repeat_n(INTERVAL, packets))
    }
}

#[test]
fn only_an_overdue_packet_is_reported() {
    let mut call = Call::new(INTERVAL);
    assert_eq!(call.regular(usize::from(EVERY) - 1), 0);
    assert_eq!(call.regular(1), 1, "one quACK for that many packets");
    assert_eq!(call.regular(3), 0);
    // Each of these reports may be lost. More would be useless: the next packet is due.
    assert_eq!(call.run(39 * MS), [22, 26, 30, 34, 38].map(|ms| ms * MS));
    call.packet();
    assert_eq!(call.run(MS).len(), 1, "the first packet after a pause");
    assert_eq!(call.stream([19 * MS]), 0);
    assert_eq!(call.regular(usize::from(EVERY) - 2), 0);
}

#[test]
fn a_report_of_silence_is_whole_and_has_its_age() {
    let mut call = Call::new(INTERVAL);
    call.regular(10);
    call.bench.now += 22 * MS;
    call.bench.observer.on_timeout(call.bench.now);
    let report = call.bench.with_quack(1, |quack| (quack.last, quack.count, quack.age_us));
    assert_eq!(report, Some((10, 10, 22_000)));
}

#[test]
fn a_talker_that_pauses_causes_no_storm() {
    let mut call = Call::new(INTERVAL);
    call.regular(100);
    assert_eq!(call.run(Duration::from_secs(20)).len(), 5, "the end of a talk");
    call.packet();
    assert_eq!(call.regular(3), 1);
    // Comfort noise: a packet each 400 ms.
    let noise = || std::iter::repeat_n(400 * MS, 4);
    let reports = 5 + 2 + 1;
    assert_eq!(call.stream(noise()), reports + 4, "each pause has fewer reports");
    for _ in 0..10 {
        assert_eq!(call.stream(noise()), 4, "then the terms hold");
    }
    // The talk goes on.
    assert_eq!(call.regular(4), 3);
    assert_eq!(call.regular(usize::from(EVERY) - 2), 0);
    assert_eq!(call.run(39 * MS).len(), 5);
}

#[test]
fn other_intervals_and_jitter_are_followed() {
    for interval in [10, 20, 60].map(|ms| ms * MS) {
        let mut call = Call::new(interval);
        // Each packet is early or late by up to a tenth of the interval.
        let gaps = (0..500).map(|packet: u32| interval * (90 + packet * 7919 % 21) / 100);
        let quacks = call.stream(gaps);
        let usual = 500 / usize::from(EVERY);
        assert!((usual..=usual + 5).contains(&quacks), "{interval:?}: {quacks} quACKs");
    }
}

/// A sender that is wrong, or a flow that is not steady, costs little more than without a watch.
#[test]
fn an_unsteady_flow_gets_the_quacks_of_the_terms() {
    // Before the flow is known not to be steady, eight packets draw two reports of silence each.
    for gap in [1, 5, 23, 25, 29, 35, 60, 700].map(|ms| ms * MS) {
        let mut call = Call::new(INTERVAL);
        let quacks = call.stream(std::iter::repeat_n(gap, 1000));
        assert!(quacks <= 1000 + 16, "{gap:?}: {quacks} quACKs");
    }
    let mut call = Call::new(INTERVAL);
    let gaps = (0..1000).map(|packet: u32| MS * (packet * 7919 % 101));
    let quacks = call.stream(gaps);
    assert!(quacks <= 1000 + 400, "{quacks} quACKs of random gaps");
}

#[test]
fn a_watch_lasts_until_it_is_ended_or_the_epoch_is() {
    for ended in [0, 1_000_001] {
        let mut call = Call::new(INTERVAL);
        assert_eq!(call.steady(2, INTERVAL), Err(HandleError::WrongEpoch));
        // A repeated request is answered, and changes nothing else.
        call.regular(10);
        call.steady(1, INTERVAL).unwrap();
        assert_eq!(call.run(MS).len(), 1);
        assert_eq!(call.stream([19 * MS]), 0);
        call.steady(1, Duration::from_micros(ended)).unwrap();
        assert_eq!(call.run(MS).len(), 1);
        assert_eq!(call.regular(10), 10);
        assert_eq!(call.run(Duration::from_secs(1)).len(), 0);
    }
    let mut call = Call::new(INTERVAL);
    call.bench.send(1, Message::NewEpoch { epoch: 1 }).unwrap();
    assert_eq!(call.run(MS).len(), 1);
    assert_eq!(call.regular(10), 10);
}

#[test]
fn a_timed_quack_waits_until_the_watch_ends() {
    let mut call = Call::new(INTERVAL);
    let mut bench = bench(ObserverConfig::default());
    bench.open(1, Terms::default());
    call.bench = bench;
    assert_eq!(call.regular(30), 14, "one after 30 ms");
    call.steady(1, INTERVAL).unwrap();
    call.run(MS);
    assert_eq!(call.regular(usize::from(EVERY) - 1), 0);
    assert_eq!(call.regular(1), 1, "the terms have no number of packets, but the watch has");
}
