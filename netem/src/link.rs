//! One direction of an emulated link, without I/O and without a clock.
//!
//! A packet meets, in this order: random loss, a drop-tail byte queue in front of a rate limit, and a delay. The caller
//! passes the time with each call, as a [`Duration`] since any fixed start:
//!
//! 1. [`Link::push`] when a packet reaches the link; a dropped packet comes straight back as a [`Verdict`];
//! 2. [`Link::next_deadline`] says when the next packet leaves;
//! 3. [`Link::pop`] yields the packets that are due, oldest first, until it returns `None`.
//!
//! Time must not run backwards. The fate of the n-th packet under random loss depends on the seed and n alone, so that
//! two runs with one seed lose the same packets in the same order.

use std::collections::VecDeque;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::Serialize;

use crate::units::{BitRate, Percent};

/// What one direction of a link does to packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkConfig {
    /// Time from the end of a packet's transmission to its arrival.
    pub delay: Duration,
    /// Transmission rate; `None` is no limit.
    pub rate: Option<BitRate>,
    /// Chance of each packet to be lost at random.
    pub loss: Percent,
    /// Bytes that may wait for transmission, the packet in transmission not counted.
    pub queue_bytes: u64,
}

/// What became of a packet that was pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It will arrive.
    Accepted,
    /// Lost at random.
    LostAtRandom,
    /// The queue was full.
    QueueFull,
}

/// Counts of one direction of a link. Bytes are those of whole frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkCounters {
    /// Packets that reached the link.
    pub packets: u64,
    /// Packets that left it at the other end.
    pub delivered: u64,
    /// Bytes of the delivered packets.
    pub delivered_bytes: u64,
    /// Packets lost at random.
    pub lost_random: u64,
    /// Packets dropped by a full queue.
    pub lost_queue: u64,
}

impl LinkCounters {
    /// Packets that the link dropped, whatever the cause.
    pub fn lost(&self) -> u64 {
        self.lost_random + self.lost_queue
    }
}

#[derive(Debug)]
struct InFlight<P> {
    arrival: Duration,
    bytes: u64,
    packet: P,
}

/// One direction of an emulated link that carries packets of type `P`.
#[derive(Debug)]
pub struct Link<P> {
    config: LinkConfig,
    random: ChaCha8Rng,
    /// When the transmitter has sent all that it accepted.
    idle_at: Duration,
    /// Start of transmission and size of each packet that may still be waiting.
    waiting: VecDeque<(Duration, u64)>,
    waiting_bytes: u64,
    in_flight: VecDeque<InFlight<P>>,
    counters: LinkCounters,
}

impl<P> Link<P> {
    /// A link whose random losses follow from `seed` and `stream`: links of one run share the seed and differ in the
    /// stream.
    pub fn new(config: LinkConfig, seed: u64, stream: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(stream);
        Self {
            config,
            random,
            idle_at: Duration::ZERO,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            in_flight: VecDeque::new(),
            counters: LinkCounters::default(),
        }
    }

    /// Takes a packet of `bytes` bytes that reaches the link at `now`.
    pub fn push(&mut self, now: Duration, bytes: u64, packet: P) -> Verdict {
        self.counters.packets += 1;
        // One draw a packet, also when nothing can be lost: the n-th packet's fate then hangs on nothing but n.
        let lost = self.config.loss.strikes(self.random.next_u64());
        if lost {
            self.counters.lost_random += 1;
            return Verdict::LostAtRandom;
        }
        self.start_transmissions(now);
        let start = self.idle_at.max(now);
        if start > now {
            if self.waiting_bytes + bytes > self.config.queue_bytes {
                self.counters.lost_queue += 1;
                return Verdict::QueueFull;
            }
            self.waiting.push_back((start, bytes));
            self.waiting_bytes += bytes;
        }
        let transmission = self.config.rate.map_or(Duration::ZERO, |rate| rate.time_for(bytes));
        self.idle_at = start + transmission;
        self.in_flight.push_back(InFlight { arrival: self.idle_at + self.config.delay, bytes, packet });
        Verdict::Accepted
    }

    /// When the next packet arrives at the other end; `None` when the link is empty.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.in_flight.front().map(|next| next.arrival)
    }

    /// The oldest packet, if it has arrived by `now`.
    pub fn pop(&mut self, now: Duration) -> Option<P> {
        if self.next_deadline()? > now {
            return None;
        }
        let next = self.in_flight.pop_front()?;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += next.bytes;
        Some(next.packet)
    }

    /// The counts so far.
    pub fn counters(&self) -> LinkCounters {
        self.counters
    }

    /// Packets accepted and not yet popped.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn start_transmissions(&mut self, now: Duration) {
        while let Some(&(start, bytes)) = self.waiting.front() {
            if start > now {
                break;
            }
            self.waiting.pop_front();
            self.waiting_bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config(delay_ms: u64, mbit: Option<f64>, loss: f64, queue_bytes: u64) -> LinkConfig {
        LinkConfig {
            delay: Duration::from_millis(delay_ms),
            rate: mbit.map(|mbit| BitRate::from_mbit(mbit).unwrap()),
            loss: Percent::new(loss).unwrap(),
            queue_bytes,
        }
    }

    /// Pushes packets numbered from 0 and returns `(number, arrival)` of each that arrives, popping on the way.
    fn carry(
        config: LinkConfig,
        seed: u64,
        packets: &[(Duration, u64)],
    ) -> (Vec<(usize, Duration)>, LinkCounters) {
        let mut link = Link::new(config, seed, 0);
        let mut arrived = Vec::new();
        for (number, &(now, bytes)) in packets.iter().enumerate() {
            while let Some(deadline) = link.next_deadline().filter(|&deadline| deadline <= now) {
                arrived.push((link.pop(now).unwrap(), deadline));
            }
            link.push(now, bytes, number);
        }
        while let Some(deadline) = link.next_deadline() {
            assert!(
                link.pop(deadline - Duration::from_nanos(1)).is_none(),
                "a packet came before its deadline"
            );
            arrived.push((link.pop(deadline).unwrap(), deadline));
        }
        (arrived, link.counters())
    }

    /// The same, the slow way: for each packet the whole history is searched again, in nanoseconds.
    fn oracle(config: LinkConfig, lost: &[bool], packets: &[(Duration, u64)]) -> Vec<(usize, Duration)> {
        let bits_per_second = config.rate.map(BitRate::bits_per_second);
        let mut accepted: Vec<(u128, u128, u64, usize)> = Vec::new();
        for (number, &(now, bytes)) in packets.iter().enumerate() {
            let now = now.as_nanos();
            if lost[number] {
                continue;
            }
            let busy_until = accepted.iter().map(|&(_, end, _, _)| end).max().unwrap_or(0);
            let backlog: u64 =
                accepted.iter().filter(|&&(start, ..)| start > now).map(|&(_, _, bytes, _)| bytes).sum();
            if busy_until > now && backlog + bytes > config.queue_bytes {
                continue;
            }
            let start = busy_until.max(now);
            let transmission = bits_per_second
                .map_or(0, |rate| (u128::from(bytes) * 8_000_000_000).div_ceil(u128::from(rate)));
            accepted.push((start, start + transmission, bytes, number));
        }
        let delay = config.delay.as_nanos();
        accepted
            .into_iter()
            .map(|(_, end, _, number)| (number, Duration::from_nanos(u64::try_from(end + delay).unwrap())))
            .collect()
    }

    /// Which of the first `count` packets the seed loses, found with a link that does nothing else.
    fn losses(loss: f64, seed: u64, count: usize) -> Vec<bool> {
        let mut link = Link::new(config(0, None, loss, 0), seed, 0);
        (0..count).map(|_| link.push(Duration::ZERO, 1, ()) == Verdict::LostAtRandom).collect()
    }

    #[test]
    fn a_lone_packet_takes_its_transmission_and_the_delay() {
        // 1,250 bytes at 10 Mbit/s are 1 ms.
        let (arrived, _) = carry(config(25, Some(10.0), 0.0, 65_000), 1, &[(Duration::from_millis(3), 1250)]);
        assert_eq!(arrived, [(0, Duration::from_millis(3 + 1 + 25))]);
    }

    #[test]
    fn the_queue_drops_the_tail_and_not_the_packet_in_transmission() {
        let burst = [(Duration::ZERO, 1000); 5];
        let (arrived, counters) = carry(config(0, Some(8.0), 0.0, 2000), 1, &burst);
        let ms = Duration::from_millis;
        assert_eq!(arrived, [(0, ms(1)), (1, ms(2)), (2, ms(3))]);
        assert_eq!((counters.packets, counters.lost_queue, counters.lost_random), (5, 2, 0));
    }

    #[test]
    fn a_lost_packet_takes_no_room_and_no_time() {
        let (arrived, counters) = carry(config(1, Some(8.0), 100.0, 2000), 1, &[(Duration::ZERO, 1000); 9]);
        assert!(arrived.is_empty());
        assert_eq!((counters.lost_random, counters.lost_queue), (9, 0));
    }

    #[test]
    fn the_loss_share_is_within_its_binomial_bounds() {
        for (seed, percent) in [(1_u64, 1.0), (2, 3.6), (3, 15.0), (4, 50.0)] {
            let count = 100_000_usize;
            let lost = losses(percent, seed, count).iter().filter(|&&lost| lost).count() as f64;
            let chance = percent / 100.0;
            let expected = count as f64 * chance;
            let sigma = (expected * (1.0 - chance)).sqrt();
            assert!((lost - expected).abs() < 5.0 * sigma, "seed {seed}: {lost} lost, expected {expected}");
        }
    }

    #[test]
    fn streams_of_one_seed_differ() {
        let fates = |stream| {
            let mut link = Link::new(config(0, None, 50.0, 0), 7, stream);
            (0..64).map(|_| link.push(Duration::ZERO, 1, ())).collect::<Vec<_>>()
        };
        assert_ne!(fates(0), fates(1));
        assert_eq!(fates(2), fates(2));
    }

    prop_compose! {
        fn traffic()(gaps in prop::collection::vec((0_u64..3_000_000, 40_u64..1600), 1..300)) -> Vec<(Duration, u64)> {
            let mut now = Duration::ZERO;
            gaps.into_iter().map(|(gap, bytes)| { now += Duration::from_nanos(gap); (now, bytes) }).collect()
        }
    }

    prop_compose! {
        fn any_config()(
            delay_ms in 0_u64..60,
            mbit in prop::option::of(0.5_f64..200.0),
            loss in prop_oneof![Just(0.0), 0.0_f64..100.0],
            queue_bytes in 0_u64..20_000,
        ) -> LinkConfig {
            config(delay_ms, mbit, loss, queue_bytes)
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_oracle(config in any_config(), packets in traffic(), seed: u64) {
            let (arrived, counters) = carry(config, seed, &packets);
            let lost = losses(config.loss.get(), seed, packets.len());
            prop_assert_eq!(&arrived, &oracle(config, &lost, &packets));
            prop_assert_eq!(counters.lost_random, lost.iter().filter(|&&lost| lost).count() as u64);
        }

        #[test]
        fn packets_are_conserved_and_keep_their_order(config in any_config(), packets in traffic(), seed: u64) {
            let (arrived, counters) = carry(config, seed, &packets);
            prop_assert_eq!(counters.packets, packets.len() as u64);
            prop_assert_eq!(counters.packets, counters.delivered + counters.lost());
            prop_assert_eq!(counters.delivered, arrived.len() as u64);
            prop_assert_eq!(counters.delivered_bytes, arrived.iter().map(|&(n, _)| packets[n].1).sum::<u64>());
            prop_assert!(arrived.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1));
        }

        #[test]
        fn no_window_carries_more_than_the_rate(mbit in 0.5_f64..200.0, packets in traffic(), seed: u64) {
            let config = config(5, Some(mbit), 2.0, 30_000);
            let rate = u128::from(config.rate.unwrap().bits_per_second());
            let (arrived, _) = carry(config, seed, &packets);
            // Between any two arrivals fit at most the packets after the first: each ends its own transmission there.
            for (first, &(_, from)) in arrived.iter().enumerate() {
                let mut bits = 0_u128;
                for &(number, until) in &arrived[first + 1..] {
                    bits += u128::from(packets[number].1) * 8;
                    let window = (until - from).as_nanos();
                    prop_assert!(bits * 1_000_000_000 <= rate * window, "{} bits in {} ns", bits, window);
                }
            }
        }

        #[test]
        fn a_seed_gives_one_run(config in any_config(), packets in traffic(), seed: u64) {
            prop_assert_eq!(carry(config, seed, &packets), carry(config, seed, &packets));
        }
    }
}
