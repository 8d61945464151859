//! Random early detection (Floyd and Jacobson 1993), adaptive (Floyd, Gummadi and Shenker 2001).
//! The parameters and details, in bytes, are those of Linux' `sch_red`.

use std::time::Duration;

use rand_chacha::rand_core::Rng;

use crate::units::{BitRate, unit_interval};

/// The assumed size of a packet.
const AVERAGE_PACKET: u64 = 1000;
/// The initial drop probability at the upper threshold.
const FIRST_MAX_P: f64 = 0.02;
/// The interval between adaptations of the drop probability.
const ADAPT_EVERY: Duration = Duration::from_millis(500);
/// Above the first bound, the drop probability may fall. Below the second, it may rise.
const MAX_P_RANGE: (f64, f64) = (0.01, 0.5);
/// The slowest average has a weight of 2^-31.
const MOST_HALVINGS: u32 = 31;

/// The parameters that RED derives from the limit of its queue, by the defaults of `tc`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedParameters {
    /// RED drops no packet below this average queue in bytes. It is a third of the upper threshold.
    pub min_bytes: u64,
    /// RED drops every packet above this average queue in bytes. It is a quarter of the limit.
    pub max_bytes: u64,
    /// The packets of a burst that may pass while the average is still low.
    pub burst: u64,
    /// The assumed size of a packet, in bytes.
    pub average_packet: u64,
    /// The weight of the newest queue length in the average.
    pub weight: f64,
}

impl RedParameters {
    /// The smallest limit in bytes that gives parameters. Below it, the lower threshold is less
    /// than one packet.
    pub const LEAST_QUEUE_BYTES: u64 = 12 * AVERAGE_PACKET;

    /// The parameters of a queue with this limit.
    pub fn new(queue_bytes: u64) -> Self {
        let max_bytes = queue_bytes / 4;
        let min_bytes = max_bytes / 3;
        let burst = ((2 * min_bytes + max_bytes) / (3 * AVERAGE_PACKET)).max(1);
        Self {
            min_bytes,
            max_bytes,
            burst,
            average_packet: AVERAGE_PACKET,
            weight: weight(min_bytes, burst),
        }
    }
}

/// The largest power of one half with which a burst passes before the average reaches the lower
/// threshold. It solves equation 3 of Floyd and Jacobson, section 6, as `tc` does.
fn weight(min_bytes: u64, burst: u64) -> f64 {
    let needed = (burst + 1) as f64 - min_bytes as f64 / AVERAGE_PACKET as f64;
    let mut weight = 0.5;
    for _ in 1..MOST_HALVINGS {
        if needed <= (1.0 - power(1.0 - weight, burst)) / weight {
            break;
        }
        weight /= 2.0;
    }
    weight
}

/// A power by squaring. It uses only products, so every machine has the same result to the last
/// bit.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RedVerdict {
    Pass,
    /// The average is between the thresholds, and chance decides to drop or mark the packet.
    Early,
    /// The average is above the upper threshold: drop.
    Forced,
}

#[derive(Debug)]
pub(super) struct Red {
    parameters: RedParameters,
    /// The transmission time of an average packet. Without a rate, there is no queue, and RED does
    /// not use this time.
    packet_time: Duration,
    average: f64,
    max_p: f64,
    /// Packets since the last drop, while the average is between the thresholds. `None` while it is
    /// not.
    count: Option<u64>,
    /// Uniform over [0, 1). RED drops a packet when the count times the probability reaches it, so
    /// the gaps between drops are uniform, not geometric (section 4 of the paper).
    target: f64,
    next_adaptation: Duration,
}

impl Red {
    /// A queue that drains at `rate`.
    pub(super) fn new(queue_bytes: u64, rate: Option<BitRate>) -> Self {
        Self {
            parameters: RedParameters::new(queue_bytes),
            packet_time: rate.map_or(Duration::ZERO, |rate| rate.time_for(AVERAGE_PACKET)),
            average: 0.0,
            max_p: FIRST_MAX_P,
            count: None,
            target: 0.0,
            next_adaptation: ADAPT_EVERY,
        }
    }

    /// Applies another limit and another rate. The average does not change.
    pub(super) fn retune(&mut self, queue_bytes: u64, rate: Option<BitRate>) {
        let Self { parameters, packet_time, .. } = Self::new(queue_bytes, rate);
        (self.parameters, self.packet_time) = (parameters, packet_time);
    }

    /// Judges a packet that reaches a queue of `backlog` bytes, without the packet itself.
    /// `idle_since` is the time at which the queue became empty.
    pub(super) fn judge(
        &mut self,
        now: Duration,
        backlog: u64,
        idle_since: Option<Duration>,
        random: &mut impl Rng,
    ) -> RedVerdict {
        self.adapt(now, idle_since);
        self.average = match idle_since {
            Some(since) => self.after_idling(now.saturating_sub(since)),
            None => self.average + self.parameters.weight * (backlog as f64 - self.average),
        };
        let (least, most) = (self.parameters.min_bytes as f64, self.parameters.max_bytes as f64);
        if self.average < least {
            self.count = None;
            return RedVerdict::Pass;
        }
        if self.average >= most {
            self.count = None;
            return RedVerdict::Forced;
        }
        let Some(count) = self.count else {
            self.count = Some(0);
            self.target = unit_interval(random.next_u64());
            return RedVerdict::Pass;
        };
        let count = count + 1;
        let probability = self.max_p * (self.average - least) / (most - least);
        if probability * (count as f64) < self.target {
            self.count = Some(count);
            return RedVerdict::Pass;
        }
        self.count = Some(0);
        self.target = unit_interval(random.next_u64());
        RedVerdict::Early
    }

    /// The average after an idle time. It decays as if small packets had found an empty queue
    /// during this time.
    fn after_idling(&self, idle: Duration) -> f64 {
        let packets = idle.as_nanos().checked_div(self.packet_time.as_nanos());
        let packets =
            packets.map_or(u64::MAX, |packets| u64::try_from(packets).unwrap_or(u64::MAX));
        self.average * power(1.0 - self.parameters.weight, packets)
    }

    /// Keeps the average near the middle of the thresholds. Every half second, the probability
    /// rises a little, or falls by a tenth.
    fn adapt(&mut self, now: Duration, idle_since: Option<Duration>) {
        let (least, most) = (self.parameters.min_bytes as f64, self.parameters.max_bytes as f64);
        let (low, high) = (least + 0.4 * (most - least), least + 0.6 * (most - least));
        while self.next_adaptation <= now {
            let idle = idle_since.and_then(|since| self.next_adaptation.checked_sub(since));
            let average = idle.map_or(self.average, |idle| self.after_idling(idle));
            if average > high && self.max_p <= MAX_P_RANGE.1 {
                self.max_p += (self.max_p / 4.0).min(0.01);
            } else if average < low && self.max_p >= MAX_P_RANGE.0 {
                self.max_p *= 0.9;
            }
            self.next_adaptation += ADAPT_EVERY;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    fn red(queue_bytes: u64, mbit: f64) -> (Red, ChaCha8Rng) {
        (Red::new(queue_bytes, BitRate::from_mbit(mbit)), ChaCha8Rng::seed_from_u64(11))
    }

    #[test]
    fn the_parameters_of_the_papers_topology() {
        // The limit is 4 x bdp, and bdp is 65,000 bytes.
        let parameters = RedParameters::new(260_000);
        assert_eq!(
            (parameters.min_bytes, parameters.max_bytes, parameters.burst),
            (21_666, 65_000, 36)
        );
        assert_eq!(parameters.weight, 1.0 / 32.0);
    }

    #[test]
    fn the_weight_is_the_largest_that_lets_the_burst_pass() {
        for queue_bytes in (12_000..2_000_000).step_by(7919) {
            let RedParameters { min_bytes, burst, weight, .. } = RedParameters::new(queue_bytes);
            // The average after each packet of a burst that finds a queue of 1, 2, 3... packets.
            let average = |weight: f64| {
                (1..=burst)
                    .fold(0.0, |average: f64, queue| average + weight * (queue as f64 - average))
            };
            let threshold = min_bytes as f64 / 1000.0;
            // tc expects one packet less than the paper does.
            assert!(
                average(weight) <= threshold - 1.0 + weight + 1e-9 || average(weight) <= threshold,
                "{queue_bytes}"
            );
            if weight < 0.5 {
                assert!(average(2.0 * weight) > threshold - 1.0 - 1e-9, "{queue_bytes}");
            }
        }
    }

    #[test]
    fn the_probability_follows_the_curve() {
        // At a constant queue length, the average converges. The gaps between drops are uniform,
        // and drops come at p / (1 + p) ... 2p. The mean gap is (1 + 1/p) / 2.
        for backlog in [32_500, 43_333, 60_666] {
            let (mut red, mut random) = red(260_000, 10.0);
            let share = (backlog as f64 - 21_666.0) / (65_000.0 - 21_666.0);
            let now = Duration::from_millis(1);
            let mut drops = 0_u32;
            let count = 400_000;
            for number in 0..count + 2000 {
                let verdict = red.judge(now, backlog, None, &mut random);
                drops += u32::from(verdict == RedVerdict::Early && number >= 2000);
            }
            let p: f64 = FIRST_MAX_P * share;
            let gap = (1.0 + 1.0 / p) / 2.0;
            let expected = f64::from(count) / gap;
            // The variance of a uniform gap is at most a third of the square of its mean.
            let sigma = (expected / 3.0).sqrt();
            assert!(
                (f64::from(drops) - expected).abs() < 5.0 * sigma,
                "{share}: {drops}, expected {expected}"
            );
        }
    }

    #[test]
    fn below_it_passes_all_and_above_none() {
        let (mut red, mut random) = red(260_000, 10.0);
        let now = Duration::from_millis(1);
        assert!((0..1000).all(|_| red.judge(now, 21_000, None, &mut random) == RedVerdict::Pass));
        let last = (0..1000).map(|_| red.judge(now, 66_000, None, &mut random)).last();
        assert_eq!(last, Some(RedVerdict::Forced));
        // Five idle seconds count as many small packets.
        let later = now + Duration::from_secs(5);
        assert_eq!(red.judge(later, 0, Some(now), &mut random), RedVerdict::Pass);
    }

    proptest! {
        #[test]
        fn it_agrees_with_the_recursion_written_out(
            events in prop::collection::vec((0_u64..200_000, 0_u64..200_000, prop::option::of(0_u64..100_000)), 1..400)
        ) {
            let (mut red, mut random) = red(260_000, 10.0);
            let mut oracle_random = random.clone();
            let draw = |random: &mut ChaCha8Rng| (random.next_u64() >> 11) as f64 / 2_f64.powi(53);
            let (mut average, mut max_p, mut count, mut target) = (0.0_f64, 0.02_f64, -1_i64, 0.0);
            let (least, most, weight) = (21_666.0, 65_000.0, 1.0 / 32.0);
            let mut now_us = 0;
            let mut tick_us = 500_000;
            for (gap_us, backlog, idle_us) in events {
                now_us += gap_us;
                let idle_from = idle_us.map(|idle| now_us - idle.min(gap_us));
                // 1,000 bytes at 10 Mbit/s take 800 µs.
                let decayed = |average: f64, at: u64| match idle_from {
                    Some(from) if at >= from => (0..(at - from) / 800).fold(average, |average, _| average * (1.0 - weight)),
                    _ => average,
                };
                while tick_us <= now_us {
                    let seen = decayed(average, tick_us);
                    if seen > least + 0.6 * (most - least) && max_p <= 0.5 {
                        max_p += f64::min(0.01, max_p / 4.0);
                    } else if seen < least + 0.4 * (most - least) && max_p >= 0.01 {
                        max_p *= 0.9;
                    }
                    tick_us += 500_000;
                }
                average = match idle_from {
                    Some(_) => decayed(average, now_us),
                    None => average * (1.0 - weight) + weight * backlog as f64,
                };
                let expected = if average < least {
                    count = -1;
                    RedVerdict::Pass
                } else if average >= most {
                    count = -1;
                    RedVerdict::Forced
                } else {
                    count += 1;
                    let p = max_p * (average - least) / (most - least);
                    if count == 0 {
                        target = draw(&mut oracle_random);
                        RedVerdict::Pass
                    } else if p * count as f64 >= target {
                        count = 0;
                        target = draw(&mut oracle_random);
                        RedVerdict::Early
                    } else {
                        RedVerdict::Pass
                    }
                };
                let verdict = red.judge(
                    Duration::from_micros(now_us),
                    backlog,
                    idle_from.map(Duration::from_micros),
                    &mut random,
                );
                prop_assert!((red.average - average).abs() <= 1e-6 * average.max(1.0));
                prop_assert!((red.max_p - max_p).abs() < 1e-9);
                prop_assert_eq!(verdict, expected);
            }
        }
    }
}
