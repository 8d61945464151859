//! Flows with a steady interval (SPEC.md, sections 6.4 and 7.4).

use super::*;
use crate::testing::{NONE, Near, Simulation, configured};
use crate::{ObserverConfig, Store, Terms};
use std::num::NonZeroU16;

const MS: Duration = Duration::from_millis(1);
const INTERVAL: Duration = Duration::from_millis(20);

fn near(delay: Duration) -> Near {
    Near { delay, jitter: Duration::ZERO, loss_percent: 0 }
}

/// A call with a quACK for each packet, or with reports of silence.
fn call(steady: bool, near: Near, seed: u64) -> Simulation {
    let every_packets = NonZeroU16::new(1);
    let terms = Terms { threshold: 2, every_packets, every: None, ..Terms::default() };
    let steady = steady.then_some(INTERVAL);
    let config = SenderConfig { terms, packet_threshold: 1, steady, ..configured() };
    let mut s = Simulation::new(config, ObserverConfig::default(), near, seed);
    s.store = Some(Store::new(1 << 20, Duration::from_secs(1)));
    s.stream(20, INTERVAL);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    s
}

#[test]
fn an_overdue_packet_is_sent_again_before_the_next_is_due() {
    let mut s = call(true, near(MS), 1);
    for _ in 0..20 {
        s.stream(5, INTERVAL);
        let quacks = s.sender.stats().quacks_received;
        let lost = s.send(Some(true));
        s.run(7 * MS);
        let (tag, after) = s.declared.pop().unwrap();
        assert_eq!(tag, lost);
        // At first, 2 ms pass until the packet is overdue, and then a round trip. Many repairs make
        // the flow look less steady.
        assert!((4 * MS..6 * MS).contains(&after), "{after:?}");
        assert!(s.arrived.contains(&lost));
        s.run(13 * MS);
        let more = s.sender.stats().quacks_received - quacks;
        assert!(more <= 3, "{more} quACKs");
    }
    assert_eq!((s.false_alarms(), s.sender.stats().epochs), (vec![], 1));
}

#[test]
fn every_loss_is_repaired_in_time_for_few_messages() {
    for (seed, loss_percent) in (0..24).zip([0, 3, 10, 30].into_iter().cycle()) {
        let messages = [true, false].map(|steady| {
            let mut s = call(steady, near(MS), seed);
            let from = s.send(Some(false));
            s.near.loss_percent = loss_percent;
            let before = s.proxy.as_ref().unwrap().stats().quacks_sent + s.sender.stats().polls;
            let mut late = 0;
            for _ in 0..1500 {
                let tag = s.send(None);
                s.run(INTERVAL);
                late += usize::from(!s.arrived.contains(&tag));
            }
            let (sent, asked) = (s.proxy.as_ref().unwrap().stats(), s.sender.stats());
            let messages = sent.quacks_sent + asked.polls - before;
            s.near.loss_percent = 0;
            s.stream(100, INTERVAL);
            let what = format!("seed {seed}, {loss_percent} %, {messages} messages, {late} late");
            println!("{steady}: {what}");
            assert_eq!(s.overlooked(from), NONE, "{what}");
            assert_eq!(s.sender.stats().turned_up, 0, "{what}");
            assert!(loss_percent > 10 || late <= 15, "{what}");
            messages
        });
        let share = [0.06, 0.25, 0.7, 1.2][usize::try_from(seed % 4).unwrap()];
        let [steady, plain] = messages.map(|messages| messages as f64);
        assert!(steady <= share * plain, "{loss_percent} %: {messages:?}");
    }
}

/// On a long near segment, the next packets arrive before a repair, so the proxy does not detect
/// that a repair is lost.
#[test]
fn a_repair_that_is_lost_is_sent_again() {
    for (delay, lost_repairs, most) in [(MS, 3, 20), (30 * MS, 1, 260)] {
        let mut s = call(true, near(delay), 5);
        s.lost_repairs = lost_repairs;
        let lost = s.send(Some(true));
        let begun = s.now;
        s.run(INTERVAL - MS);
        while !s.arrived.contains(&lost) {
            assert!(s.now < begun + most * MS, "{delay:?}");
            s.run(MS);
            if (s.now - begun).as_millis().is_multiple_of(20) {
                s.send(Some(false));
            }
        }
        assert_eq!(s.resent, u64::from(lost_repairs) + 1);
        s.stream(40, INTERVAL);
        assert_eq!((s.repeated, s.sender.stats().epochs), (0, 1), "{delay:?}");
    }
}

/// The proxy may mistake a second packet, such as a report of the stream, for the lost one.
#[test]
fn a_packet_whose_neighbour_arrives_is_not_overlooked() {
    for gap in [0, 1, 9] {
        for first in [true, false] {
            let mut s = call(true, near(MS), 8);
            let one = s.send(Some(first));
            s.run(gap * MS);
            let other = s.send(Some(!first));
            s.run(INTERVAL - (gap + 1) * MS);
            let lost = if first { one } else { other };
            assert!(s.arrived.contains(&lost), "{gap} ms, {first}");
        }
    }
}

#[test]
fn a_proxy_that_falls_silent_is_detected() {
    for (steady, delay) in [(true, MS), (true, 30 * MS), (false, MS), (false, 30 * MS)] {
        let mut s = call(steady, near(delay), 4);
        s.stream(100, INTERVAL);
        s.proxy = None;
        s.stream(48, INTERVAL);
        assert_eq!(s.sender.assistance(), Assistance::Assisted);
        s.stream(52, INTERVAL);
        assert_ne!(s.sender.assistance(), Assistance::Assisted, "{steady}, {delay:?}");
    }
}

/// Packets that the proxy's own system drops have passed the near segment.
#[test]
fn silence_is_not_reported_where_the_proxy_missed_packets() {
    let mut s = call(true, near(MS), 9);
    for _ in 0..10 {
        s.proxy.as_mut().unwrap().missed(s.interface);
        s.on_path = false;
        s.stream(1, INTERVAL);
        s.on_path = true;
        s.stream(60, INTERVAL);
        assert_eq!(s.false_alarms(), NONE);
    }
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    let lost = s.send(Some(true));
    s.run(INTERVAL);
    assert_eq!(s.overlooked(lost), NONE);
}

/// No proxy watches such a flow, so its sender polls as before.
#[test]
fn a_flow_with_too_long_an_interval_is_not_steady() {
    let messages = |steady| {
        let mut s = call(false, near(MS), 10);
        s.sender.set_steady(steady);
        let lost = s.send(Some(true));
        s.run(INTERVAL);
        assert_eq!(s.overlooked(lost), NONE, "{steady:?}");
        s.stream(10, INTERVAL);
        (s.sender.stats().polls, s.sender.stats().quacks_received)
    };
    assert_eq!(messages(Some(1001 * MS)), messages(None));
    assert_ne!(messages(Some(INTERVAL)), messages(None));
}

#[test]
fn a_flow_that_is_no_longer_steady_is_reported_by_the_terms() {
    let mut s = call(true, near(MS), 6);
    let quacks = |s: &Simulation| s.sender.stats().quacks_received;
    let before = quacks(&s);
    s.stream(50, INTERVAL);
    assert_eq!(quacks(&s), before + 2);
    s.sender.set_steady(None);
    let before = quacks(&s);
    s.stream(50, INTERVAL);
    assert!(quacks(&s) >= before + 50);
    // On a path with strong jitter, false reports soon end.
    let mut s = call(true, Near { jitter: 8 * MS, ..near(20 * MS) }, 7);
    s.stream(2000, INTERVAL);
    let spurious = s.repeated;
    assert!(spurious <= 60, "{spurious} of 2000 packets sent again without need");
    assert_eq!(s.sender.stats().epochs, 1);
}

/// The time until the sender detects the loss of a packet.
fn detected_after(s: &mut Simulation) -> Duration {
    let lost = s.send(Some(true));
    s.run(200 * MS);
    let [.., (tag, after)] = s.declared[..] else { panic!("nothing was declared lost") };
    assert_eq!(tag, lost);
    after
}

#[test]
fn a_lone_packet_is_polled_for_at_once_where_others_were_lost() {
    let mut s = assisted(Near { delay: 10 * MS, ..super::near(0) }, 8);
    s.stream(50, 200 * MS);
    let first = detected_after(&mut s);
    assert!((41 * MS..45 * MS).contains(&first), "{first:?}");
    for _ in 0..3 {
        let soon = detected_after(&mut s);
        assert!((21 * MS..23 * MS).contains(&soon), "{soon:?}");
    }
    // Ten seconds without a loss end the early polls.
    s.stream(51, 200 * MS);
    let late = detected_after(&mut s);
    assert!((41 * MS..45 * MS).contains(&late), "{late:?}");
}

/// The sender delays a POLL by more than jitter usually delays a packet, even where the jitter has
/// just begun. A false loss ends the early polls.
#[test]
fn jitter_makes_few_lone_packets_look_lost() {
    for seed in 0..20 {
        let mut s = assisted(Near { delay: 10 * MS, ..super::near(0) }, seed);
        s.stream(300, 50 * MS);
        s.near.jitter = 4 * MS;
        for _ in 0..100 {
            s.send(Some(true));
            s.run(50 * MS);
            s.stream(10, 50 * MS);
        }
        let alarms = s.false_alarms();
        assert!(alarms.len() <= 2, "seed {seed}: {alarms:?}");
    }
}
