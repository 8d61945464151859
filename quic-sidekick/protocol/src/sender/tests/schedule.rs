//! Fewer quACKs while nothing is lost (SPEC.md, sections 6.4 and 7.4).

use super::*;
use crate::testing::{NONE, Near, Simulation, configured};
use crate::{ObserverConfig, Store, Terms};
use std::num::NonZeroU16;

const MS: Duration = Duration::from_millis(1);
const EVERY: Duration = Duration::from_millis(5);
const SPARSE: Duration = Duration::from_millis(20);
const NEAR: Near =
    Near { delay: Duration::from_millis(5), jitter: Duration::ZERO, loss_percent: 0 };

fn config(every_packets: u16) -> SenderConfig {
    let every_packets = NonZeroU16::new(every_packets);
    let terms = Terms { every_packets, every: Some(EVERY), ..Terms::default() };
    SenderConfig { terms, ..configured() }
}

/// A flow with a packet each millisecond, after the time in which its quACKs become fewer.
fn flow(config: SenderConfig, seed: u64) -> Simulation {
    let mut s = Simulation::new(config, ObserverConfig::default(), NEAR, seed);
    s.store = Some(Store::new(1 << 20, Duration::from_secs(1)));
    s.stream(2500, MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    s
}

/// The quACKs that the sender receives while it sends `packets` packets.
fn quacks(s: &mut Simulation, packets: usize) -> u64 {
    let before = s.sender.stats().quacks_received;
    s.stream(packets, MS);
    s.sender.stats().quacks_received - before
}

/// The most POLLs for all sums while the sender sends `packets` packets (SPEC.md, section 7.5).
fn polls_for_sums(packets: u64) -> u64 {
    1 + packets / 1440
}

#[test]
fn fewer_quacks_leave_while_nothing_is_lost() {
    // The first packet after a quACK arrives up to 1 ms later, then the interval passes.
    for (every_packets, dense, sparse) in [(0, 240..=300, 45..=50), (2, 740..=760, 61..=63)] {
        let mut s = Simulation::new(config(every_packets), ObserverConfig::default(), NEAR, 1);
        s.stream(100, MS);
        let often = quacks(&mut s, 1500);
        assert!(dense.contains(&often), "{often} quACKs");
        s.stream(900, MS);
        let polls = s.sender.stats().polls;
        for _ in 0..5 {
            let few = quacks(&mut s, 1000);
            assert!(sparse.contains(&few), "{few} quACKs");
        }
        let polls = s.sender.stats().polls - polls;
        assert!(polls <= polls_for_sums(5000), "{polls} polls");
        assert_eq!((s.declared.len(), s.sender.stats().epochs), (0, 1));
    }
}

#[test]
fn a_first_loss_after_a_quiet_time_is_repaired_soon_and_quacks_are_frequent_again() {
    for every_packets in [0, 2] {
        for (phase, seed) in (0..20).zip(100..) {
            let mut s = flow(config(every_packets), seed);
            s.stream(phase, MS);
            let lost = s.send(Some(true));
            s.run(MS);
            let dense = quacks(&mut s, 60);
            // The time is that to the quACK, a round trip, and a millisecond until the proxy counts
            // the next packet.
            let within = SPARSE + 2 * NEAR.delay + 2 * MS;
            let (tag, after) = s.declared.pop().unwrap();
            assert!(tag == lost && after <= within, "{after:?} after {phase} packets");
            assert!(s.arrived.contains(&lost));
            assert!(dense >= 6, "{dense} quACKs");
            let dense = quacks(&mut s, 1000);
            assert!(dense >= 160, "{dense} quACKs");
            assert_eq!((s.false_alarms(), s.repeated), (vec![], 0));
        }
    }
}

/// Each loss while quACKs are fewer delays the next such time.
#[test]
fn a_flow_with_losses_now_and_then_waits_longer() {
    let mut s = flow(config(0), 3);
    for quiet in [4000, 8000, 16_000] {
        s.send(Some(true));
        s.run(MS);
        s.stream(quiet - 500, MS);
        assert!(quacks(&mut s, 400) >= 60, "{quiet}");
        s.stream(500, MS);
        assert!(quacks(&mut s, 400) <= 20, "{quiet}");
    }
}

#[test]
fn quacks_stay_frequent_at_one_percent_loss() {
    for seed in 0..4 {
        let mut s = flow(config(0), 4 + seed);
        let from = s.send(Some(false));
        s.near.loss_percent = 1;
        s.stream(1000, MS);
        for _ in 0..20 {
            let dense = quacks(&mut s, 1000);
            assert!(dense >= 160, "{dense} quACKs");
        }
        s.near.loss_percent = 0;
        s.stream(100, MS);
        assert_eq!(s.overlooked(from), NONE);
    }
}

#[test]
fn few_messages_accompany_a_frugal_senders_packets() {
    let terms = Terms { every: Some(MS), ..Terms::default() };
    let config = SenderConfig { terms, frugal: Some(8), packet_threshold: 1, ..configured() };
    for (spacing, most) in [(MS, 20), (20 * MS, 20), (200 * MS, 400)] {
        let mut s = Simulation::new(config.clone(), ObserverConfig::default(), NEAR, 1);
        s.store = Some(Store::new(1 << 20, Duration::from_secs(1)));
        s.stream(100, spacing);
        let count = |s: &Simulation| {
            let stats = s.sender.stats();
            stats.polls + stats.quacks_received
        };
        let before = count(&s);
        s.stream(1000, spacing);
        let quiet = count(&s) - before;
        assert!(quiet <= most, "{spacing:?}: {quiet} for 1000 packets");
        // The first loss shows late, and the others in time to be repaired.
        let from = s.send(Some(true));
        s.run(spacing);
        s.stream(400, spacing);
        s.near.loss_percent = 2;
        s.stream(400, spacing);
        s.near.loss_percent = 0;
        s.stream(400, spacing);
        assert_eq!(s.overlooked(from), NONE, "{spacing:?}");
        assert!(count(&s) - before > 400, "{spacing:?}: reports came often");
    }
}

/// The network may drop the request for the terms.
#[test]
fn the_return_to_the_terms_is_repeated_until_its_answer() {
    for seed in 0..20 {
        let mut s = flow(config(0), 20 + seed);
        s.near.loss_percent = 50;
        s.stream(400, MS);
        s.near.loss_percent = 0;
        s.stream(300, MS);
        let dense = quacks(&mut s, 1000);
        assert!(dense >= 160, "seed {seed}: {dense} quACKs");
    }
}

/// If a sender does not poll, the time until it detects the silence depends on the present
/// interval.
#[test]
fn a_proxy_that_falls_silent_while_quacks_are_few_is_detected() {
    for poll in [true, false] {
        let mut s = flow(SenderConfig { poll, ..config(0) }, 6);
        s.stream(1000, MS);
        assert_eq!(s.sender.assistance(), Assistance::Assisted);
        s.proxy = None;
        s.stream(900, MS);
        assert_eq!(s.sender.assistance(), Assistance::Assisted);
        s.stream(300, MS);
        assert_ne!(s.sender.assistance(), Assistance::Assisted);
    }
}

#[test]
fn a_new_epoch_begins_with_frequent_quacks() {
    let mut s = flow(config(0), 7);
    assert!(quacks(&mut s, 400) <= 20);
    s.proxy.as_mut().unwrap().missed(0);
    s.stream(50, MS);
    assert_eq!(s.sender.stats().epochs, 2);
    assert!(quacks(&mut s, 1000) >= 160);
}

#[test]
fn quacks_are_not_fewer_where_that_is_off_or_gains_nothing() {
    let terms = |every| Terms { every_packets: NonZeroU16::new(2), every, ..Terms::default() };
    let with = |every| SenderConfig { terms: terms(every), ..config(0) };
    for config in [
        SenderConfig { sparse: None, ..config(0) },
        SenderConfig { sparse: Some(9 * MS), ..config(0) },
        with(None),
        with(Some(MS)),
        with(Some(11 * MS)),
    ] {
        let mut s = Simulation::new(config, ObserverConfig::default(), NEAR, 8);
        s.stream(1000, MS);
        let polls = s.sender.stats().polls;
        let before = quacks(&mut s, 1000);
        s.stream(2000, MS);
        let after = quacks(&mut s, 1000);
        assert!(after + 2 >= before, "{before}, then {after}");
        let polls = s.sender.stats().polls - polls;
        assert!(polls <= polls_for_sums(4000), "{polls} polls");
    }
}

/// A caller may measure the path's round trip, or need each quACK.
#[test]
fn the_longest_interval_can_change() {
    let mut s = flow(config(0), 9);
    for (longest, fewest, most) in [(Some(10), 83, 100), (Some(20), 83, 100), (None, 160, 200)] {
        s.sender.set_sparse(longest.map(|longest| longest * MS));
        s.stream(100, MS);
        let quacks = quacks(&mut s, 1000);
        assert!((fewest..=most).contains(&quacks), "{longest:?}: {quacks} quACKs");
    }
}

/// A quACK of two sums decodes only among few packets.
#[test]
fn quacks_stay_frequent_at_high_rates() {
    for (packets_per_ms, is_sparse) in [(1, true), (10, false)] {
        let terms = Terms { threshold: 2, ..config(0).terms };
        let config = SenderConfig { terms, ..config(0) };
        let mut s = Simulation::new(config, ObserverConfig::default(), NEAR, 11);
        let gap = MS / packets_per_ms;
        s.stream(3000 * packets_per_ms as usize, gap);
        let before = s.sender.stats().quacks_received;
        s.stream(1000 * packets_per_ms as usize, gap);
        let quacks = s.sender.stats().quacks_received - before;
        assert_eq!(quacks <= 55, is_sparse, "{packets_per_ms} packets a ms: {quacks} quACKs");
    }
}

#[test]
fn a_call_follows_the_schedule_of_steady_flows() {
    let mut s = flow(config(2), 10);
    let call = 20 * MS;
    s.sender.set_steady(Some(call));
    s.stream(50, call);
    let before = s.sender.stats();
    s.stream(500, call);
    let after = s.sender.stats();
    assert!(after.quacks_received - before.quacks_received <= 30);
    assert!(after.polls - before.polls <= polls_for_sums(500));
    // No packet was lost meanwhile.
    s.sender.set_steady(None);
    s.stream(10, call);
    assert!(quacks(&mut s, 1000) <= 63);
}
