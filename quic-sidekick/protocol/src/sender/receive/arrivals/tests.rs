//! What arrives over links whose losses are known, behind a far segment that loses some, too.

use super::*;
use crate::loss_floor::links::{BYTES, Link, USUAL, limited, load, outages, random};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

const MS: Duration = Duration::from_millis(1);
/// A copy arrives so long after its gap was found.
const COPY: Duration = Duration::from_millis(5);

#[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
fn start() -> Instant {
    Instant::now()
}

/// Gaps in a run's second half.
#[derive(Debug, Default)]
struct Seen {
    /// Those with a loss of the near segment, and those without.
    near: u32,
    far: u32,
    /// Those of either kind that are called congestion.
    near_congestion: u32,
    far_congestion: u32,
    /// Those of the near segment for which acknowledgements wait.
    waits: u32,
}

/// Receives for this many seconds over two links. The peer skips a number after each so many
/// packets.
fn receive(far: Link, near: Link, skip: u64, seconds: f64, seed: u64) -> (Seen, Arrivals) {
    let (mut far, mut near) = (far, near);
    let mut random = ChaCha20Rng::seed_from_u64(seed);
    let (begun, mut arrivals) = (start(), Arrivals::default());
    let (mut at, mut seen) = (0.0, Seen::default());
    let (mut missing, mut missing_near) = (0, 0);
    let mut asked: VecDeque<(Instant, u64, u32)> = VecDeque::new();
    let mut segment = Near { rtt: 4 * MS, queue: Duration::ZERO };
    for number in 0.. {
        at += 1.0 / (USUAL * load(at));
        if at > seconds {
            break;
        }
        let now = begun + Duration::from_secs_f64(at);
        while let Some((_, gap, near)) = asked.pop_front_if(|(due, ..)| *due <= now) {
            arrivals.on_fate(gap, if near > 0 { Fate::Lost(near) } else { Fate::Elsewhere });
        }
        missing += u64::from(skip > 0 && number % skip == 0);
        if far(&mut random, at).0 {
            missing += 1;
            continue;
        }
        let (is_lost, queue) = near(&mut random, at);
        if is_lost {
            (missing, missing_near) = (missing + 1, missing_near + 1);
            continue;
        }
        segment.queue = queue;
        if missing > 0 {
            let waits = arrivals.waits();
            let congestion = arrivals.on_missing(number, missing, segment, now);
            if congestion {
                arrivals.on_fate(number, Fate::Unknown);
            } else {
                asked.push_back((now + COPY, number, missing_near));
            }
            if at > seconds / 2.0 {
                let is_near = missing_near > 0;
                seen.near += u32::from(is_near);
                seen.far += u32::from(!is_near);
                seen.near_congestion += u32::from(is_near && congestion);
                seen.far_congestion += u32::from(!is_near && congestion);
                seen.waits += u32::from(is_near && waits && !congestion);
            }
            (missing, missing_near) = (0, 0);
        }
        arrivals.on_received(BYTES, || segment, now);
    }
    (seen, arrivals)
}

#[test]
fn random_losses_of_arrivals_are_repaired() {
    for share in [0.01, 0.04, 0.15, 0.3] {
        for seed in 0..5 {
            let (seen, _) = receive(random(0.0), random(share), 0, 20.0, seed);
            assert!(seen.near_congestion <= 1 + seen.near / 200, "{share} seed {seed}: {seen:?}");
            assert_eq!(
                seen.waits + seen.near_congestion,
                seen.near,
                "{share} seed {seed}: {seen:?}"
            );
        }
    }
}

#[test]
fn the_server_hears_of_a_full_queue() {
    for room in [5.0, 20.0, 100.0] {
        for seed in 0..5 {
            let (seen, _) = receive(random(0.0), limited(0.9 * USUAL, room, 0.0), 0, 20.0, seed);
            assert!(seen.near > 30, "{room} seed {seed}: {seen:?}");
            assert!(2 * seen.near_congestion > seen.near, "{room} seed {seed}: {seen:?}");
        }
    }
}

/// The load steps up by a quarter, over a policer that has dropped nothing before.
#[test]
fn the_first_losses_of_a_policer_are_heard() {
    let mut policer = limited(1.1 * USUAL, 5.0, 0.0);
    let link: Link = Box::new(move |random, at| (policer(random, at).0, Duration::ZERO));
    let (seen, arrivals) = receive(random(0.0), link, 0, 20.0, 1);
    assert!(seen.near > 10 && 2 * seen.near_congestion > seen.near, "{seen:?}");
    let NearLoss { rate, congestion } = arrivals.latest();
    assert!(rate > 0.0 && congestion.is_finite(), "{arrivals:?}");
}

/// Bursts fill a short queue for less time than a sample of the near RTT takes. Only lists show it.
#[test]
fn lists_show_the_queue_of_a_burst() {
    for listed in [false, true] {
        let (mut arrivals, begun) = (Arrivals::default(), start());
        let segment = Near { rtt: 4 * MS, queue: Duration::ZERO };
        let (mut lost, mut congestion) = (0, 0);
        for number in 0..10_000 {
            let now = begun + number * MS;
            let is_burst = number % 80 < 16;
            if is_burst && number % 8 == 7 {
                continue;
            }
            if matches!(number % 80, 8 | 16) {
                let is_heard = arrivals.on_missing(number.into(), 1, segment, now);
                arrivals.on_fate(number.into(), Fate::Lost(1));
                lost += u32::from(number > 5000);
                congestion += u32::from(number > 5000 && is_heard);
            }
            arrivals.on_received(BYTES, || segment, now);
            if listed && number % 4 == 3 {
                arrivals.on_queue(if is_burst { 2 * MS } else { Duration::ZERO }, now);
            }
        }
        let is_found = 2 * congestion > lost;
        assert!(lost > 100 && is_found == listed, "{listed}: {congestion} of {lost}");
    }
}

/// How many of 50 answers are called congestion. They have up to eight copies, of which the near
/// segment loses this share.
fn congested_answers(arrivals: &mut Arrivals, share: f64) -> u32 {
    let mut link = random(share);
    let mut random = ChaCha20Rng::seed_from_u64(1);
    let mut congested = 0;
    for copies in (2..=8).cycle().take(50) {
        let mut lost = 0;
        for _ in 0..copies {
            lost += 1;
            if !link(&mut random, 0.0).0 {
                congested += u32::from(arrivals.on_copies(lost - 1, 1));
                lost = 0;
            }
        }
        congested += u32::from(arrivals.on_copies(lost, 0));
    }
    congested
}

#[test]
fn copies_that_are_lost_more_often_than_originals_are_congestion() {
    for share in [0.01, 0.04, 0.2] {
        let (_, mut arrivals) = receive(random(0.0), random(share), 0, 20.0, 1);
        assert_eq!(congested_answers(&mut arrivals, share), 0, "{share}");
        assert!(congested_answers(&mut arrivals, share + 0.4) > 1, "{share}");
    }
}

/// Without an answer about any gap, the losses may all be elsewhere.
#[test]
fn losses_of_unknown_fate_are_no_evidence() {
    let (mut arrivals, begun) = (Arrivals::default(), start());
    let segment = Near { rtt: 4 * MS, queue: Duration::ZERO };
    let mut now = begun;
    for number in 0..6000 {
        let is_fast = number % 2000 >= 1000;
        now += if is_fast { MS } else { 2 * MS };
        if is_fast && number % 5 < 2 {
            continue;
        }
        if is_fast && number % 5 == 2 {
            assert!(!arrivals.on_missing(number, 2, segment, now), "{number}: {arrivals:?}");
            arrivals.on_fate(number, Fate::Unknown);
        }
        arrivals.on_received(BYTES, || segment, now);
    }
    assert!(arrivals.latest().rate < 0.01, "{arrivals:?}");
}

#[test]
fn outages_of_arrivals_are_no_congestion() {
    for seed in 0..5 {
        let (seen, _) = receive(random(0.0), outages(0.05, 20.0), 0, 20.0, seed);
        assert!(seen.near > 10 && 5 * seen.near_congestion < seen.near, "seed {seed}: {seen:?}");
    }
}

#[test]
fn losses_elsewhere_are_no_evidence() {
    // The far segment loses more where more is sent.
    for seed in 0..5 {
        let far = limited(0.9 * USUAL, 20.0, 0.0);
        let (seen, arrivals) = receive(far, random(0.04), 0, 20.0, seed);
        assert!(seen.far > 100, "seed {seed}: {seen:?}");
        assert!(20 * seen.near_congestion <= seen.near, "seed {seed}: {seen:?}");
        assert!(arrivals.near_share.is_some_and(|share| share < 0.9), "seed {seed}: {arrivals:?}");
    }
}

#[test]
fn numbers_that_the_peer_skips_do_not_delay_acknowledgements() {
    let (_, arrivals) = receive(random(0.0), random(0.0), 100, 10.0, 1);
    assert!(!arrivals.waits(), "{arrivals:?}");
    assert!(arrivals.latest().rate < 0.001, "{arrivals:?}");
    // A few losses suffice to wait again.
    let (seen, _) = receive(random(0.0), random(0.01), 100, 20.0, 1);
    assert!(10 * seen.waits > 9 * seen.near, "{seen:?}");
}

#[test]
fn late_datagrams_are_no_losses() {
    let (mut arrivals, begun) = (Arrivals::default(), start());
    let segment = Near { rtt: 4 * MS, queue: Duration::ZERO };
    for number in 0..2000 {
        let now = begun + number * MS;
        arrivals.on_received(BYTES, || segment, now);
        if number % 10 == 0 {
            let gap = number.into();
            assert!(!arrivals.on_missing(gap, 1, segment, now));
            // Every other one is late only after its copy.
            if number % 20 == 0 {
                arrivals.on_fate(gap, Fate::Lost(1));
            }
            arrivals.on_late(gap, now + 2 * MS);
            arrivals.on_fate(gap, Fate::Lost(1));
        }
    }
    assert!(arrivals.latest().rate < 0.001, "{arrivals:?}");
    let now = begun + 3000 * MS;
    arrivals.on_missing(1 << 40, 1, segment, now);
    let wait = arrivals.request_at(1 << 40, 100 * MS, now) - now;
    assert!((2 * MS..3 * MS).contains(&wait), "{wait:?}");
    assert_eq!(arrivals.request_at(1 << 40, MS, now), now + MS, "at most");
}

#[test]
fn memory_is_bounded() {
    let (mut arrivals, now) = (Arrivals::default(), start());
    arrivals.on_received(BYTES, Near::default, now);
    for gap in 0..10_000 {
        arrivals.on_missing(gap, 1 + gap % MOST_MISSING, Near::default(), now);
        arrivals.on_missing(gap, u64::MAX - gap, Near::default(), now);
        assert!(arrivals.gaps.len() <= MAX_GAPS && arrivals.lost.len() <= 512);
    }
    assert_eq!(arrivals.gaps.len(), MAX_GAPS);
}
