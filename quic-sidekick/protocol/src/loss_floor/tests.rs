//! A sender whose load varies as BBR2's does, over links whose losses are known.

use super::links::{BYTES, Link, USUAL, limited, load, outages, random};
use super::*;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const MS: Duration = Duration::from_millis(1);

#[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
fn start() -> Instant {
    Instant::now()
}

/// The losses in the run's second half, and how many of them the controller hears.
#[derive(Debug)]
struct Heard {
    packets: u32,
    lost: u32,
    congestion: u32,
}

impl Heard {
    fn share(&self) -> f64 {
        f64::from(self.congestion) / f64::from(self.lost.max(1))
    }
}

/// Sends for this many seconds over a link. What is lost is sent again, by its own tag or by one
/// out of the others' range.
fn send(link: Link, tolerated: f32, seconds: f64, seed: u64) -> Heard {
    send_at(load, link, tolerated, seconds, seed)
}

/// The same at this load, as a part of the usual one.
fn send_at(
    load: impl Fn(f64) -> f64,
    mut link: Link,
    tolerated: f32,
    seconds: f64,
    seed: u64,
) -> Heard {
    let mut random = ChaCha20Rng::seed_from_u64(seed);
    let repetition = if seed.is_multiple_of(2) { 0 } else { 1 << 63 };
    let (begun, mut floor) = (start(), LossFloor::new(tolerated));
    let (mut at, mut number, mut last_report) = (0.0, 0_u32, 0.0);
    let (mut waiting, mut heard) = (Vec::new(), Heard { packets: 0, lost: 0, congestion: 0 });
    while at < seconds {
        at += 1.0 / (USUAL * load(at));
        let now = begun + Duration::from_secs_f64(at);
        number += 1;
        floor.on_sent(number.into(), BYTES, now);
        let counts = at > seconds / 2.0;
        heard.packets += u32::from(counts);
        let (is_lost, queue) = link(&mut random, at);
        if is_lost {
            waiting.push(Lost::new(number.into(), now, number));
            heard.lost += u32::from(counts);
        } else if at - last_report > 0.005 {
            last_report = at;
            floor.on_queue(queue, now);
            floor.judge(&mut waiting, now + 2 * MS);
            floor.on_reported(now, 2 * MS, now + 2 * MS);
            let congestion = waiting.iter().filter(|lost| lost.congestion).count();
            for lost in waiting.drain(..) {
                floor.on_sent(lost.tag | repetition, BYTES, now + 2 * MS);
            }
            heard.congestion += if counts { u32::try_from(congestion).unwrap() } else { 0 };
        }
    }
    heard
}

#[test]
fn random_losses_are_no_congestion_at_any_rate() {
    for share in [0.01, 0.04, 0.08, 0.15, 0.3] {
        for seed in 0..5 {
            for tolerated in [0.0, 0.008] {
                let heard = send(random(share), tolerated, 10.0, seed);
                // BBR2 ignores 2 % of the packets. Another controller ignores nothing.
                let most: f64 = if tolerated > 0.0 { 0.016 } else { 0.001 };
                let share_of_all = f64::from(heard.congestion) / f64::from(heard.packets);
                assert!(share_of_all <= most.max(0.02 * share), "{share} seed {seed}: {heard:?}");
            }
        }
    }
}

#[test]
fn bursts_and_outages_are_no_congestion() {
    for (share, mean) in [(0.02, 5.0), (0.05, 5.0), (0.05, 20.0), (0.1, 200.0)] {
        for seed in 0..5 {
            let heard = send(outages(share, mean), 0.0, 20.0, seed);
            assert!(heard.share() < 0.2, "{share} by {mean}, seed {seed}: {heard:?}");
        }
    }
}

#[test]
fn the_losses_of_a_full_queue_or_a_policer_are_congestion() {
    // The last queue delays by 0.1 s. A policer's bucket is a queue that nobody waits in.
    for room in [2.0, 5.0, 20.0, 100.0] {
        for is_policer in [false, true] {
            for tolerated in [0.0, 0.008] {
                let mut queue = limited(0.9 * USUAL, room, 0.0);
                let link: Link = Box::new(move |random, at| {
                    let (lost, delay) = queue(random, at);
                    (lost, if is_policer { Duration::ZERO } else { delay })
                });
                let heard = send(link, tolerated, 20.0, 1);
                assert!(heard.lost > 50, "{heard:?}");
                assert!(heard.share() > 0.5, "{room} {is_policer} {tolerated}: {heard:?}");
            }
        }
    }
}

/// A queue that was overrun says nothing about what finds it empty, at a load that is little lower.
#[test]
fn past_an_empty_queue_the_losses_are_random() {
    let load = |at: f64| match at {
        early if early < 1.0 => 0.2 + 0.8 * early,
        overrun if overrun < 1.3 => 2.4,
        _ => 1.8,
    };
    let heard = |seed| send_at(load, limited(2.0 * USUAL, 20.0, 0.04), 0.0, 4.0, seed);
    let heard: Vec<Heard> = (0..10).map(heard).collect();
    let lost: u32 = heard.iter().map(|heard| heard.lost).sum();
    let congestion: u32 = heard.iter().map(|heard| heard.congestion).sum();
    assert!(lost > 1000 && f64::from(congestion) < 0.03 * f64::from(lost), "{heard:?}");
}

/// Only what waits behind the packets of others is sent at a lower load; or the near segment delays
/// by up to 2 ms by chance, so that the queue seems empty now and then; or it delays for a while,
/// whatever the load is; or a slow start overruns a queue before that is longer than the policer's.
#[test]
fn a_policer_is_congestion_where_the_queue_is_empty_or_seems_so() {
    type Queue = fn(f64, u32) -> Duration;
    let slow_at_first = |at: f64| if at % 2.0 < 1.0 { 0.6 } else { 1.0 };
    let others: Queue = |at, _| if at % 2.0 < 1.0 { 20 * MS } else { Duration::ZERO };
    let noise: Queue = |_, random| Duration::from_micros(u64::from(random % 2000));
    let at_times: Queue = |at, _| if at % 0.13 < 0.05 { 5 * MS } else { Duration::ZERO };
    for (rate, queue) in [(0.9, others), (0.9, noise), (0.9, at_times)] {
        for seed in 0..5 {
            let mut policer = limited(rate * USUAL, 20.0, 0.0);
            let link: Link =
                Box::new(move |random, at| (policer(random, at).0, queue(at, random.next_u32())));
            let heard = send_at(slow_at_first, link, 0.0, 20.0, seed);
            assert!(heard.lost > 50 && heard.share() > 0.5, "{rate}, seed {seed}: {heard:?}");
        }
    }
    for seed in 0..5 {
        let overrun = |at: f64| if (0.7..1.0).contains(&at) { 3.0 } else { load(at) };
        let mut queue = limited(1.5 * USUAL, 20.0, 0.0);
        let mut policer = limited(0.9 * USUAL, 5.0, 0.0);
        let link: Link = Box::new(move |random, at| {
            let (lost, delay) = queue(random, at);
            (lost || policer(random, at).0, if delay < MS { Duration::ZERO } else { delay })
        });
        let heard = send_at(overrun, link, 0.0, 4.0, seed);
        assert!(heard.lost > 50 && heard.share() > 0.5, "overrun, seed {seed}: {heard:?}");
    }
}

#[test]
fn of_a_mixture_the_excess_is_congestion() {
    for seed in 0..5 {
        let heard = send(limited(USUAL * 0.98, 5.0, 0.04), 0.0, 80.0, seed);
        let random = 0.04 * f64::from(heard.packets);
        let excess = f64::from(heard.lost) - random;
        let heard_of_it = f64::from(heard.congestion) / excess;
        assert!((0.4..3.0).contains(&heard_of_it), "seed {seed}: {heard:?}, {excess} in excess");
    }
}

/// A slow start fills the queue, and the controller then sends little. Before, a loss at this load
/// was congestion because those at higher loads had been.
#[test]
fn after_an_overload_random_losses_are_random() {
    let overload = |then: f64| {
        move |at: f64| match at {
            at if at < 0.7 => (2.0_f64).powf(at * 10.0 - 5.0),
            at if at < 1.2 => 4.0,
            _ => then * load(at),
        }
    };
    for seed in 0..5 {
        for tolerated in [0.0, 0.008] {
            let send =
                |then| send_at(overload(then), limited(USUAL, 20.0, 0.04), tolerated, 8.0, seed);
            let (low, high) = (send(0.1), send(1.3));
            assert!(low.lost > 10 && low.share() < 0.2, "{tolerated}, seed {seed}: {low:?}");
            assert!(high.share() > 0.5, "{tolerated}, seed {seed}: {high:?}");
        }
    }
}

/// A policer slightly below the usual load.
#[test]
fn a_small_excess_is_congestion() {
    for seed in 0..5 {
        let heard = send(limited(0.97 * USUAL, 5.0, 0.0), 0.0, 20.0, seed);
        assert!(heard.lost > 50 && heard.share() > 0.5, "seed {seed}: {heard:?}");
    }
}

#[test]
fn shorter_queues_tell_for_a_while_what_is_random() {
    let (now, mut floor) = (start(), LossFloor::new(0.0));
    let mut pass = |range: std::ops::Range<u32>, queue, is_lost: &dyn Fn(u32) -> bool| {
        for number in range {
            let now = now + number * MS;
            floor.on_sent(number.into(), BYTES, now);
            floor.on_queue(queue, now);
            if is_lost(number) {
                floor.judge(&mut [Lost::new(number.into(), now, number)], now + 2 * MS);
            }
            floor.on_reported(now, 2 * MS, now + 2 * MS);
        }
        let last = now + 4000 * MS;
        (floor.tells(last), floor.tells(last + TOLD + TOLD))
    };
    let every_25th = |number: u32| number.is_multiple_of(25);
    assert_eq!(pass(0..2000, Duration::ZERO, &every_25th), (false, false), "no shorter queue");
    assert_eq!(pass(2000..4000, 20 * MS, &every_25th), (true, false));
    let outage: Vec<Lost> =
        (4000..4010).map(|number| Lost::new(number.into(), now + number * MS, number)).collect();
    outage.iter().for_each(|lost| {
        floor.on_sent(lost.tag, BYTES, lost.sent);
    });
    floor.judge(&mut outage.clone(), now + 4012 * MS);
    assert!(!floor.tells(now + 4012 * MS), "a queue may have dropped these");
}

#[test]
fn what_a_controller_ignores_is_not_hidden_from_it() {
    let heard = send(random(0.004), 0.008, 20.0, 1);
    assert!(heard.share() > 0.9, "{heard:?}");
}

#[test]
fn a_clause_says_what_happens_to_losses() {
    let clause = |rate, congestion| NearLoss { rate, congestion }.to_string();
    assert_eq!(clause(0.0, 0.0), "nothing is lost");
    assert_eq!(clause(0.041, 0.0), "4.1 % are lost at any load: repaired");
    assert_eq!(clause(0.2, 1.0), "20.0 % are lost by congestion: left to the controller");
    assert_eq!(
        clause(0.06, 0.5),
        "6.0 % are lost, 50 % of them by congestion: these are left to the controller"
    );
}
