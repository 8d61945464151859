//! Gaps against a model that keeps every number.
#![allow(clippy::disallowed_methods, reason = "any instant will do to begin with")]

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const LIMIT: Duration = Duration::from_millis(50);

/// A model of the module, number by number.
#[derive(Default)]
struct Model {
    next: u64,
    /// Each missing number, with its gap.
    missing: BTreeMap<u64, u64>,
    found: BTreeMap<u64, Instant>,
    arrived: BTreeSet<u64>,
    acknowledged: BTreeSet<u64>,
}

impl Model {
    /// The numbers that may be acknowledged now for the first time.
    fn release(&mut self) -> Vec<u64> {
        let earliest = self.missing.keys().next().copied().unwrap_or(u64::MAX);
        let all = self.arrived.range(..earliest).copied();
        let new: Vec<_> = all.filter(|number| !self.acknowledged.contains(number)).collect();
        self.acknowledged.extend(&new);
        new
    }

    fn forget(&mut self, gap: u64) {
        self.missing.retain(|_, of| *of != gap);
        self.found.remove(&gap);
    }
}

#[test]
fn missing_numbers_determine_which_acknowledgements_wait() {
    let start = Instant::now();
    for seed in 0..40 {
        let (mut gaps, mut model) = (Gaps::default(), Model::default());
        let (mut random, mut next_id, mut previous) = (seed, 0, None);
        for step in 0..3000_u64 {
            let now = start + Duration::from_millis(step);
            let mut events = Vec::new();
            let draw = random_number(&mut random);
            // Expiry comes first, as in an event loop.
            gaps.expire(LIMIT, now, |event| events.push(event));
            let late = model.found.iter().filter(|(_, found)| **found + LIMIT <= now);
            for gap in late.map(|(gap, _)| *gap).collect::<Vec<_>>() {
                model.forget(gap);
            }
            match draw % 16 {
                0 => {
                    if let Some(&gap) = model.found.keys().nth(index(draw % 7)) {
                        gaps.release(gap, GapEnd::Released, now, |event| events.push(event));
                        model.forget(gap);
                    }
                }
                1..=5 if !model.missing.is_empty() => {
                    let place = index(draw / 16) % model.missing.len();
                    let number = *model.missing.keys().nth(place).unwrap();
                    arrive(&mut gaps, number, &mut next_id, &mut previous, now, &mut events);
                    let gap = model.missing.remove(&number).unwrap();
                    if !model.missing.values().any(|of| *of == gap) {
                        model.found.remove(&gap);
                    }
                    model.arrived.insert(number);
                }
                kind => {
                    let skipped = if kind == 6 { draw / 16 % 5 } else { 0 };
                    let number = model.next + skipped;
                    let gap = next_id;
                    arrive(&mut gaps, number, &mut next_id, &mut previous, now, &mut events);
                    if skipped > 0 {
                        model.missing.extend((model.next..number).map(|missing| (missing, gap)));
                        model.found.insert(gap, now);
                        let [.., GapEvent::Found(found)] = events[..] else { panic!("{events:?}") };
                        assert_eq!((found.missing, found.before), (skipped, identifier_of(number)));
                        let before = model.next.checked_sub(1).map(identifier_of);
                        assert_eq!(found.after, before);
                    }
                    model.next = number + 1;
                    model.arrived.insert(number);
                }
            }
            let mut released = Vec::new();
            while let Some(packet) = gaps.pop_released() {
                released.push(packet.packet_number);
            }
            // The connection acknowledged at once the packets that `arrive` did not hold.
            let at_once = |number: &u64| !released.contains(number);
            let (expected, open) = (model.release(), model.found.len());
            let waited: Vec<_> = expected.iter().copied().filter(|number| !at_once(number)).collect();
            assert_eq!(released, waited, "seed {seed}, step {step}");
            assert!(expected.iter().filter(|number| at_once(number)).count() <= 1);
            let all: BTreeSet<_> = gaps.intervals.iter().map(|interval| interval.gap).collect();
            assert_eq!(all.len(), open, "seed {seed}, step {step}");
            let held = model.arrived.difference(&model.acknowledged).copied();
            assert!(gaps.held.iter().map(|packet| packet.packet_number).eq(held));
        }
        assert!(next_id > 50, "{next_id} gaps");
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

/// The identifier of the datagram with the packet of this number.
fn identifier_of(packet_number: u64) -> u32 {
    u32::try_from(packet_number).unwrap()
}

fn arrive(
    gaps: &mut Gaps,
    number: u64,
    next_id: &mut u64,
    previous: &mut Option<u32>,
    now: Instant,
    events: &mut Vec<GapEvent>,
) {
    let identifier = identifier_of(number);
    let arrival = Arrival { packet_number: number, identifier, previous: *previous, now };
    gaps.arrive(arrival, next_id, |event| events.push(event));
    *previous = Some(identifier);
    if gaps.must_wait(number) {
        let packet = Held { packet_number: number, received: now, ack_eliciting: true };
        gaps.hold(packet, now, |event| events.push(event));
    }
}

/// Vigna's SplitMix64.
fn random_number(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[test]
fn memory_is_bounded() {
    let (mut gaps, now, mut next_id, mut previous) = (Gaps::default(), Instant::now(), 0, None);
    let mut events = Vec::new();
    for number in 1..20_000 {
        // Every other number is missing.
        arrive(&mut gaps, 2 * number, &mut next_id, &mut previous, now, &mut events);
        assert!(gaps.intervals.len() <= MAX_INTERVALS && gaps.held.len() <= MAX_HELD);
        while gaps.pop_released().is_some() {}
    }
    let given_up = |event: &&GapEvent| matches!(event, GapEvent::Closed { end: GapEnd::Expired, .. });
    assert_eq!(events.iter().filter(given_up).count(), 19_999 - MAX_INTERVALS);
    // One gap in front of many packets.
    let (mut gaps, mut events) = (Gaps::default(), Vec::new());
    for number in 1..10_000 {
        arrive(&mut gaps, number, &mut next_id, &mut previous, now, &mut events);
        assert!(gaps.held.len() <= MAX_HELD);
        while gaps.pop_released().is_some() {}
    }
    assert!(matches!(events[..], [GapEvent::Found(_), GapEvent::Closed { end: GapEnd::Expired, .. }]));
}

#[test]
fn the_nearest_missing_number_is_found() {
    let (now, mut random) = (Instant::now(), 5);
    for _ in 0..2000 {
        let (mut gaps, mut next_id, mut previous, mut events) = (Gaps::default(), 0, None, Vec::new());
        let (mut missing, mut next) = (BTreeSet::new(), 0);
        for _ in 0..20 {
            let skipped = random_number(&mut random) % 40;
            missing.extend(next..next + skipped);
            arrive(&mut gaps, next + skipped, &mut next_id, &mut previous, now, &mut events);
            next += skipped + 1;
        }
        let to = random_number(&mut random) % (next + 20);
        let span = 1 << (random_number(&mut random) % 8);
        let low = random_number(&mut random) % span;
        let distances = missing.iter().filter(|number| **number % span == low);
        let expected = distances.map(|number| number.abs_diff(to)).min();
        let found = gaps.missing_like(to, low, span);
        assert!(found.is_none_or(|number| number % span == low && missing.contains(&number)));
        assert_eq!(found.map(|number| number.abs_diff(to)), expected);
    }
}
