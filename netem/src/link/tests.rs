use super::*;
use crate::units::{BitRate, Percent};
use proptest::prelude::*;

mod features;

/// A packet with a number, which records what the link did to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Packet {
    pub(super) number: usize,
    pub(super) bytes: u64,
    pub(super) capable: bool,
    pub(super) marked: bool,
    pub(super) corrupted: bool,
}

impl Packet {
    fn new(number: usize, bytes: u64) -> Self {
        Self { number, bytes, ..Self::default() }
    }
}

impl Frame for Packet {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn ecn(&self) -> Ecn {
        if self.capable { Ecn::Ect0 } else { Ecn::NotEct }
    }

    fn mark_ce(&mut self) {
        self.marked = true;
    }

    fn corrupt(&mut self, _: u64) {
        self.corrupted = true;
    }
}

fn config(delay_ms: u64, mbit: Option<f64>, loss: f64, queue_bytes: u64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(delay_ms),
        rate: mbit.map(|mbit| BitRate::from_mbit(mbit).unwrap()),
        loss: Percent::new(loss).unwrap(),
        queue_bytes,
        ..LinkConfig::default()
    }
}

/// Pushes packets numbered from 0, and pops at every deadline. Returns `(number, arrival)` of each
/// packet that arrives.
fn carry(
    config: LinkConfig,
    seed: u64,
    packets: &[(Duration, u64)],
) -> (Vec<(usize, Duration)>, LinkCounters) {
    let mut link: Link<Packet> = Link::new(config, seed, 0);
    let mut arrived = Vec::new();
    for (number, &(now, bytes)) in packets.iter().enumerate() {
        while let Some(deadline) = link.poll_timeout().filter(|&deadline| deadline <= now) {
            arrived.push((link.pop(now).unwrap().number, deadline));
        }
        link.push(now, Packet::new(number, bytes));
    }
    while let Some(deadline) = link.poll_timeout() {
        assert!(
            link.pop(deadline - Duration::from_nanos(1)).is_none(),
            "a packet came before its deadline"
        );
        arrived.push((link.pop(deadline).unwrap().number, deadline));
    }
    (arrived, link.counters())
}

/// A slow version of the same: for each packet, it searches the whole history, in nanoseconds.
fn oracle(
    config: LinkConfig,
    lost: &[bool],
    packets: &[(Duration, u64)],
) -> Vec<(usize, Duration)> {
    let bits_per_second = config.rate.map(BitRate::bits_per_second);
    let mut accepted: Vec<(u128, u128, u64, usize)> = Vec::new();
    for (number, &(now, bytes)) in packets.iter().enumerate() {
        let now = now.as_nanos();
        if lost[number] {
            continue;
        }
        let busy_until = accepted.iter().map(|&(_, end, _, _)| end).max().unwrap_or(0);
        let backlog: u64 = accepted
            .iter()
            .filter(|&&(start, ..)| start > now)
            .map(|&(_, _, bytes, _)| bytes)
            .sum();
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
        .map(|(_, end, _, number)| {
            (number, Duration::from_nanos(u64::try_from(end + delay).unwrap()))
        })
        .collect()
}

/// The packets of the first `count` that the seed loses, by a link that only loses packets.
fn losses(loss: f64, seed: u64, count: usize) -> Vec<bool> {
    let mut link = Link::new(config(0, None, loss, 0), seed, 0);
    (0..count)
        .map(|_| link.push(Duration::ZERO, Packet::new(0, 1)) == Verdict::LostAtRandom)
        .collect()
}

#[test]
fn a_lone_packet_takes_its_transmission_and_the_delay() {
    // 1,250 bytes at 10 Mbit/s take 1 ms.
    let (arrived, _) =
        carry(config(25, Some(10.0), 0.0, 65_000), 1, &[(Duration::from_millis(3), 1250)]);
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
    let (arrived, counters) =
        carry(config(1, Some(8.0), 100.0, 2000), 1, &[(Duration::ZERO, 1000); 9]);
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
        assert!(
            (lost - expected).abs() < 5.0 * sigma,
            "seed {seed}: {lost} lost, expected {expected}"
        );
    }
}

#[test]
fn streams_of_one_seed_differ() {
    let fates = |stream| {
        let mut link = Link::new(config(0, None, 50.0, 0), 7, stream);
        (0..64).map(|_| link.push(Duration::ZERO, Packet::new(0, 1))).collect::<Vec<_>>()
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
        let (arrived, counters) = carry(config.clone(), seed, &packets);
        let lost = losses(config.loss.get(), seed, packets.len());
        prop_assert_eq!(&arrived, &oracle(config.clone(), &lost, &packets));
        prop_assert_eq!(counters.lost_random, lost.iter().filter(|&&lost| lost).count() as u64);
    }

    #[test]
    fn packets_are_conserved_and_keep_their_order(config in any_config(), packets in traffic(), seed: u64) {
        let (arrived, counters) = carry(config.clone(), seed, &packets);
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
        // Between any two arrivals, at most the packets after the first fit: each ends its
        // transmission there.
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
        prop_assert_eq!(carry(config.clone(), seed, &packets), carry(config, seed, &packets));
    }
}
