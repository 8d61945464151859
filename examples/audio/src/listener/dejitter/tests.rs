use super::*;
use crate::testing::{self, MS};
use proptest::prelude::*;

const LIMIT: Duration = Duration::from_secs(1);

fn start() -> (Dejitter, Instant) {
    (Dejitter::new(LIMIT, true).unwrap(), testing::start())
}

/// The longest wait, and the number of packets that waited, if packets arrive a millisecond apart
/// in this order. By the definition, a packet is playable when it and every packet before it have
/// arrived.
fn waits(order: &[u32]) -> (u64, usize) {
    let arrived = |sequence: u32| order.iter().position(|&s| s == sequence).unwrap();
    let all = (0..u32::try_from(order.len()).unwrap()).map(|sequence| {
        let playable = (0..=sequence).map(arrived).max().unwrap();
        u64::try_from(playable - arrived(sequence)).unwrap()
    });
    let waits: Vec<_> = all.collect();
    (*waits.iter().max().unwrap(), waits.iter().filter(|wait| **wait > 0).count())
}

proptest! {
    #[test]
    fn waits_are_those_of_the_definition(order in Just((0..60_u32).collect::<Vec<_>>()).prop_shuffle()) {
        let (mut dejitter, mut now) = start();
        for &sequence in &order {
            prop_assert_eq!(dejitter.arrive(sequence, &[7], now), Arrival::Accepted);
            prop_assert_eq!(dejitter.arrive(sequence, &[7], now), Arrival::Duplicate);
            now += MS;
        }
        let (longest, waited) = waits(&order);
        prop_assert_eq!((dejitter.played, dejitter.late, dejitter.missing.len()), (60, 0, 0));
        prop_assert_eq!(dejitter.waits_us.max() / 1000, longest);
        let zero = dejitter.waits_us.count_at(0);
        prop_assert_eq!(usize::try_from(zero).unwrap(), 60 - waited);
    }

    #[test]
    fn each_packet_is_played_or_late_whatever_arrives(
        steps in proptest::collection::vec((0..20_000_u32, 0..400_u32), 1..300),
    ) {
        let (mut dejitter, mut now) = start();
        let mut last = 0;
        for (step, wait) in steps {
            // Some packets are far off. The buffer accepts them only in pairs.
            let sequence = if step % 7 == 0 { step } else { last + step % 5 };
            for sequence in [sequence, sequence + 1] {
                dejitter.arrive(sequence, &[7], now);
            }
            last = dejitter.end;
            now += wait * MS;
            dejitter.on_timeout(now);
            prop_assert!(dejitter.deadline().is_none_or(|deadline| deadline > now));
            let known = u64::from(dejitter.end);
            let waiting = dejitter.waiting.len() + dejitter.missing.len();
            let waiting = u64::try_from(waiting).unwrap();
            prop_assert!(waiting <= WINDOW.into());
            prop_assert_eq!(dejitter.played + dejitter.late + waiting, known);
        }
    }
}

#[test]
fn missing_packets_are_skipped_in_order() {
    let (mut dejitter, now) = start();
    dejitter.arrive(1, &[7], now);
    dejitter.arrive(3, &[7], now + 20 * MS);
    dejitter.on_timeout(now + LIMIT - MS);
    assert_eq!((dejitter.played, dejitter.late), (0, 0));
    dejitter.on_timeout(now + LIMIT);
    assert_eq!((dejitter.played, dejitter.late), (1, 1));
    assert_eq!(dejitter.deadline(), Some(now + LIMIT + 20 * MS));
    assert_eq!(dejitter.arrive(0, &[7], now + LIMIT), Arrival::TooLate);
    assert_eq!(dejitter.arrive(0, &[7], now + LIMIT), Arrival::Duplicate);
    dejitter.on_timeout(now + LIMIT + 20 * MS);
    assert_eq!((dejitter.played, dejitter.late), (2, 2));
    assert!((999_000..1_001_000).contains(&dejitter.waits_us.max()));
}

#[test]
fn a_leap_needs_two_packets_in_a_row() {
    let (mut dejitter, now) = start();
    dejitter.arrive(0, &[7], now);
    for stray in [WINDOW + 1, u32::MAX, WINDOW + 9, u32::MAX] {
        assert_eq!(dejitter.arrive(stray, &[7], now), Arrival::Implausible);
    }
    assert_eq!(dejitter.arrive(1, &[7], now), Arrival::Accepted);
    assert_eq!(dejitter.arrive(9000, &[7], now), Arrival::Implausible);
    assert_eq!(dejitter.arrive(9001, &[7], now), Arrival::Accepted);
    assert_eq!((dejitter.played, dejitter.late), (3, 8999));
}

#[test]
fn the_end_is_accepted_once_and_only_near_the_last_arrival() {
    let (mut dejitter, now) = start();
    for sequence in 0..10 {
        dejitter.arrive(sequence, &[7], now);
    }
    assert!(!dejitter.ends(9, now), "there was a tenth packet");
    assert!(!dejitter.ends(11 + WINDOW, now));
    assert!(dejitter.ends(12, now) && dejitter.ends(12, now) && !dejitter.ends(13, now));
    assert_eq!(dejitter.arrive(12, &[7], now), Arrival::Implausible);
    assert_eq!(dejitter.missing.keys().copied().collect::<Vec<_>>(), [10, 11]);
    dejitter.on_timeout(now + LIMIT);
    assert!(dejitter.is_complete());
    assert_eq!((dejitter.played, dejitter.late), (10, 2));
}
