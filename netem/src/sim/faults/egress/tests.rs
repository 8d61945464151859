use super::*;
use crate::scenario::Scenario;
use crate::sim::faults::tests::schedule;

fn egress(events: &str, seed: u64) -> (Egress, Instant) {
    let (schedule, start) = schedule(&Scenario::load("upload-paper").unwrap(), events);
    (Egress::new(schedule, seed), start)
}

/// A quACK with its number. The proxy's messages are sealed, so any bytes serve.
fn quack(number: u32) -> Packet {
    let payload = [number.to_be_bytes(), *b"quAC", *b"K is", *b"seal"].concat();
    Packet::new(([10, 77, 1, 2], 5252).into(), ([10, 77, 1, 1], 50_000).into(), &payload)
}

/// The numbers of the quACKs that leave, with their times in ms. The proxy sends `count` quACKs,
/// one every 10 ms.
fn leaving(events: &str, count: u32) -> (Vec<(u128, u32)>, FaultCounts) {
    let (mut egress, start) = egress(events, 1);
    let mut left = Vec::new();
    let number =
        |packet: Packet| packet.payload.first_chunk().copied().map(u32::from_be_bytes).unwrap();
    let mut sent = 0;
    loop {
        let next = (sent < count).then(|| start + Duration::from_millis(u64::from(sent) * 10));
        let Some(now) = next.into_iter().chain(egress.poll_timeout()).min() else { break };
        let leave = &mut |packet| left.push(((now - start).as_millis(), number(packet)));
        egress.on_timeout(now, leave);
        if next == Some(now) {
            egress.push(quack(sent), now, leave);
            sent += 1;
        }
    }
    (left, egress.counts)
}

#[test]
fn without_faults_everything_leaves_at_once() {
    let (left, counts) = leaving("proxy-restart at 0", 5);
    assert_eq!(left, [(0, 0), (10, 1), (20, 2), (30, 3), (40, 4)]);
    assert_eq!(counts, FaultCounts::default());
}

#[test]
fn quacks_are_lost_doubled_swapped_and_late_during_the_event() {
    assert_eq!(leaving("quack-loss 100 at 10 for 20", 4).0, [(0, 0), (30, 3)]);
    assert_eq!(
        leaving("quack-duplicate 100 at 10 for 10", 3).0,
        [(0, 0), (10, 1), (10, 1), (20, 2)]
    );
    assert_eq!(leaving("quack-reorder 100 at 0", 4).0, [(10, 1), (10, 0), (30, 3), (30, 2)]);
    assert_eq!(leaving("quack-reorder 100 at 0", 1).0, [(100, 0)], "no quACK overtakes it");
    assert_eq!(leaving("quack-delay 25 at 0 for 20", 3).0, [(20, 2), (25, 0), (35, 1)]);
}

#[test]
fn shares_are_as_configured() {
    let events =
        "quack-loss 20 at 0; quack-duplicate 10 at 0; quack-reorder 10 at 0; quack-corrupt 5 at 0";
    let (mut egress, now) = egress(events, 1);
    for number in 0..10_000 {
        egress.push(quack(number), now, &mut |_| {});
    }
    let FaultCounts { quacks_lost, quacks_duplicated, quacks_reordered, quacks_corrupted, .. } =
        egress.counts;
    assert!((1900..2100).contains(&quacks_lost), "{quacks_lost}");
    assert!((700..900).contains(&quacks_duplicated), "{quacks_duplicated}");
    assert!((350..450).contains(&quacks_corrupted), "{quacks_corrupted}");
    assert!((600..900).contains(&quacks_reordered), "{quacks_reordered}");
}

#[test]
fn one_fault_does_not_change_the_luck_of_another() {
    let lost = |events| {
        let (mut egress, now) = egress(events, 7);
        let gone = |number| {
            let before = egress.counts.quacks_lost;
            egress.push(quack(number), now, &mut |_| {});
            egress.counts.quacks_lost > before
        };
        (0..200).map(gone).collect::<Vec<_>>()
    };
    let alone = lost("quack-loss 30 at 0");
    assert!(alone.contains(&true));
    assert_eq!(
        alone,
        lost(
            "quack-loss 30 at 0; quack-corrupt 50 at 0; quack-duplicate 40 at 0; quack-reorder 9 at 0"
        )
    );
}

#[test]
fn damage_is_one_bit_that_no_checksum_finds() {
    let (mut egress, now) = egress("quack-corrupt 100 at 0", 1);
    let mut places = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        let leave = &mut |packet: Packet| {
            assert!(!packet.damaged);
            let bytes = packet.payload.iter().zip(quack(1).payload).enumerate();
            let differing = bytes.filter(|(_, (got, sent))| *got != sent);
            let bits: Vec<_> =
                differing.map(|(place, (got, sent))| (place, (got ^ sent).count_ones())).collect();
            assert!(matches!(bits[..], [(_, 1)]), "{bits:?}");
            places.extend(bits);
        };
        egress.push(quack(1), now, leave);
    }
    assert_eq!(places.len(), quack(1).payload.len(), "any byte may be hit");
}
