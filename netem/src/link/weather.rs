//! What time does to a link: it fades, and hands over from one station to the next.
//!
//! Both directions of a segment share their weather, because they share the air. So it follows from
//! the seed and from time, and not from the packets that pass.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::of_segment;
use crate::units::{Percent, unit_interval};

/// A link that is good and bad by turns, for times with an exponential distribution. In the good
/// state it loses packets by its loss model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fading {
    /// The mean time in the good state.
    pub good: Duration,
    /// The mean time in the bad state.
    pub bad: Duration,
    /// The chance of a packet to be lost in the bad state.
    pub loss: Percent,
    /// The rate in the bad state, as a share of the link's. Above 0.
    pub rate: Percent,
}

/// Outages at a fixed interval, after each of which the delay is another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handovers {
    /// From the beginning of one to that of the next. The first begins within this time.
    pub every: Duration,
    /// The shortest and the longest outage. All lengths between them are as likely.
    pub outage: (Duration, Duration),
    /// The most that is added to the link's delay until the next handover. All shares of it are as
    /// likely.
    pub delay: Duration,
}

/// One handover.
#[derive(Clone, Copy, Debug)]
struct Handover {
    from: Duration,
    outage: Duration,
    /// Added to the delay from now on.
    delay: Duration,
}

/// The past and the near future of a link's weather. Times may be asked for in any order.
#[derive(Debug)]
pub(super) struct Weather {
    fades: ChaCha8Rng,
    hands_over: ChaCha8Rng,
    /// The ends of good and bad times, by turns.
    turns: Vec<Duration>,
    handovers: Vec<Handover>,
}

impl Weather {
    /// The weather of the segment with this stream.
    pub(super) fn of_segment(seed: u64, stream: u64) -> Self {
        Self::new(seed, [7, 8].map(|cause| of_segment(stream, cause)))
    }

    fn new(seed: u64, streams: [u64; 2]) -> Self {
        let [fades, hands_over] = streams.map(|stream| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(stream);
            random
        });
        Self { fades, hands_over, turns: Vec::new(), handovers: Vec::new() }
    }

    /// Whether the link is in its bad state at a time.
    pub(super) fn is_bad(&mut self, fading: Fading, at: Duration) -> bool {
        self.turn_of(fading, at).0
    }

    /// Whether the link is in its bad state at a time, and when that state ends.
    pub(super) fn turn_of(&mut self, fading: Fading, at: Duration) -> (bool, Duration) {
        if self.turns.is_empty() {
            // The first state is as likely as at any other time: a bad one follows a good one of no
            // length.
            let share = fading.bad.as_secs_f64() / (fading.good + fading.bad).as_secs_f64();
            let begins_bad = unit_interval(self.fades.next_u64()) < share;
            let first = if begins_bad { Duration::ZERO } else { self.turn(fading.good) };
            self.turns.push(first);
        }
        while let Some(&end) = self.turns.last().filter(|end| **end <= at) {
            let is_good = self.turns.len().is_multiple_of(2);
            let next = self.turn(if is_good { fading.good } else { fading.bad });
            self.turns.push(end + next);
        }
        let turn = self.turns.partition_point(|end| *end <= at);
        (!turn.is_multiple_of(2), self.turns.get(turn).copied().unwrap_or(at))
    }

    fn turn(&mut self, mean: Duration) -> Duration {
        mean.mul_f64(exponential(&mut self.fades)).max(Duration::from_nanos(1))
    }

    /// Whether a handover interrupts the link at a time, and what the handovers so far add to the
    /// delay.
    pub(super) fn handover(&mut self, handovers: Handovers, at: Duration) -> (bool, Duration) {
        while self.handovers.last().is_none_or(|last| last.from <= at) {
            let mut share = || unit_interval(self.hands_over.next_u64());
            let (shortest, longest) = handovers.outage;
            let (phase, length, delay) = (share(), share(), share());
            let next = Handover {
                from: match self.handovers.last() {
                    Some(last) => last.from + handovers.every,
                    None => handovers.every.mul_f64(phase),
                },
                outage: shortest + (longest - shortest).mul_f64(length),
                delay: handovers.delay.mul_f64(delay),
            };
            self.handovers.push(next);
        }
        let begun = self.handovers.partition_point(|handover| handover.from <= at);
        let latest = begun.checked_sub(1).and_then(|place| self.handovers.get(place));
        latest.map_or((false, Duration::ZERO), |latest| {
            (at < latest.from + latest.outage, latest.delay)
        })
    }
}

/// A deviate with an exponential distribution of mean 1, by von Neumann's method ("Various
/// Techniques Used in Connection with Random Digits", 1951). It only compares, so every machine
/// draws the same number to the last bit.
fn exponential(random: &mut impl Rng) -> f64 {
    let mut whole = 0.0;
    loop {
        let first = unit_interval(random.next_u64());
        let (mut last, mut falls) = (first, true);
        loop {
            let next = unit_interval(random.next_u64());
            if next >= last {
                break;
            }
            (last, falls) = (next, !falls);
        }
        if falls {
            return whole + first;
        }
        whole += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn percent(value: f64) -> Percent {
        Percent::new(value).unwrap()
    }

    fn weather(seed: u64) -> Weather {
        Weather::new(seed, [70, 80])
    }

    #[test]
    fn exponential_times_have_their_mean_and_their_tail() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let drawn: Vec<f64> = (0..100_000).map(|_| exponential(&mut random)).collect();
        // Five standard deviations of the mean, and of the share above two.
        let mean = drawn.iter().sum::<f64>() / 1e5;
        assert!((mean - 1.0).abs() < 5.0 / 1e5_f64.sqrt(), "{mean}");
        let (tail, expected) =
            (drawn.iter().filter(|&&one| one > 2.0).count() as f64 / 1e5, (-2.0_f64).exp());
        assert!((tail - expected).abs() < 5.0 * (expected / 1e5).sqrt(), "{tail}");
    }

    /// What is bad depends on time alone: on neither the order nor the number of questions.
    #[test]
    fn the_bad_state_has_its_share_of_time_and_its_length() {
        let fading =
            Fading { good: ms(180), bad: ms(20), loss: percent(100.0), rate: percent(100.0) };
        let mut one = weather(1);
        let states: Vec<bool> = (0..4_000_000).map(|at| one.is_bad(fading, ms(at) / 4)).collect();
        let share = states.iter().filter(|bad| **bad).count() as f64 / 4e6;
        assert!((share - 0.1).abs() < 0.01, "{share}");
        let begun = states.windows(2).filter(|pair| !pair[0] && pair[1]).count() as f64;
        // A quarter of a millisecond is too coarse for the shortest ones.
        let mean = share * 1e6 / begun;
        assert!((18.0..23.0).contains(&mean), "{mean} ms");
        let mut other = weather(1);
        for at in [900_000_usize, 5, 77_777, 500_000] {
            assert_eq!(other.is_bad(fading, ms(at as u64)), states[at * 4], "{at}");
        }
        let bad_at_first =
            (0..2000).filter(|&seed| weather(seed).is_bad(fading, Duration::ZERO)).count();
        assert!((130..270).contains(&bad_at_first), "a tenth begins bad: {bad_at_first}");
    }

    #[test]
    fn handovers_interrupt_and_change_the_delay() {
        let handovers = Handovers { every: ms(15_000), outage: (ms(50), ms(300)), delay: ms(10) };
        let mut weather = weather(5);
        let seen: Vec<_> = (0..300_000).map(|at| weather.handover(handovers, ms(at))).collect();
        let begin: Vec<usize> =
            (1..seen.len()).filter(|&at| seen[at].0 && !seen[at - 1].0).collect();
        assert!((19..=20).contains(&begin.len()), "{begin:?}");
        assert!(begin.windows(2).all(|pair| pair[1] - pair[0] == 15_000), "{begin:?}");
        for &at in &begin {
            let length = seen[at..].iter().take_while(|(out, _)| *out).count();
            assert!((50..=301).contains(&length), "{length} ms");
            // The delay is another afterwards, and then stays.
            assert_ne!(seen[at].1, seen[at - 1].1);
            assert!(seen[at..].iter().take(14_000).all(|one| one.1 == seen[at].1));
            assert!(seen[at].1 <= ms(10));
        }
        assert_eq!(weather.handover(handovers, ms(0)).1, ms(0), "none before");
    }
}
