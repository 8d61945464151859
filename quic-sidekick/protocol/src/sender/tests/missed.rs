//! Packets that the proxy's system drops before the proxy observes them are not lost. The proxy
//! detects such drops.

use super::*;
use crate::testing::{NONE, Near, Simulation, configured};
use crate::wire::{Message, Quack, Words};
use crate::{ObserverConfig, Terms};
use std::num::NonZeroU16;

const MS: Duration = Duration::from_millis(1);

/// An assisted flow, with quACKs by time or by number of packets.
fn assisted(every_packets: Option<NonZeroU16>, loss_percent: u64, seed: u64) -> Simulation {
    let every = every_packets.is_none().then_some(30 * MS);
    let terms = Terms { every, every_packets, ..Terms::default() };
    let near = Near { delay: 2 * MS, jitter: Duration::ZERO, loss_percent: 0 };
    let config = SenderConfig { terms, ..configured() };
    let mut s = Simulation::new(config, ObserverConfig::default(), near, seed);
    s.stream(500, MS);
    assert_eq!(s.sender.assistance(), Assistance::Assisted);
    s.near.loss_percent = loss_percent;
    s
}

/// Sends `packets` that the proxy does not observe. `reported`: its system reports them as dropped.
fn pass_unseen(s: &mut Simulation, packets: usize, reported: bool) {
    s.run(50 * MS);
    if reported {
        s.proxy.as_mut().unwrap().missed(s.interface);
    }
    s.on_path = false;
    s.stream(packets, MS);
    s.run(3 * MS);
    s.on_path = true;
}

#[test]
fn packets_that_a_proxy_reports_dropped_are_not_declared_lost() {
    for every_packets in [None, NonZeroU16::new(2), NonZeroU16::new(32)] {
        for packets in [1, 3, 20, 150] {
            for seed in 0..24 {
                let loss_percent = seed % 4 * 10;
                let what = format!("{packets} packets, every {every_packets:?}, seed {seed}");
                let mut s = assisted(every_packets, loss_percent, seed);
                for _ in 0..3 {
                    pass_unseen(&mut s, packets, true);
                    s.stream(300, MS);
                }
                assert_eq!(s.false_alarms(), NONE, "{what}");
                // Assistance continues afterwards.
                s.near.loss_percent = 0;
                s.stream(2000, MS);
                assert_eq!(s.sender.assistance(), Assistance::Assisted, "{what}");
                let lost = s.send(Some(true));
                s.stream(100, MS);
                assert_eq!(s.overlooked(lost), NONE, "{what}");
                assert_eq!(s.false_alarms(), NONE, "{what}");
            }
        }
    }
}

/// After an empty quACK, the sender is certain about the first packets of a flow. Drops in the
/// proxy's system end that certainty.
#[test]
fn first_packets_that_a_proxy_reports_dropped_are_not_declared_lost() {
    for (reported, false_alarms) in [(true, 0), (false, 3)] {
        let near = Near { delay: 2 * MS, jitter: Duration::ZERO, loss_percent: 0 };
        let mut s = Simulation::new(configured(), ObserverConfig::default(), near, 1);
        pass_unseen(&mut s, 3, reported);
        s.stream(300, MS);
        assert_eq!(s.false_alarms().len(), false_alarms, "{reported}");
        let epochs = s.proxy.as_ref().unwrap().stats().epochs_unasked;
        assert_eq!(epochs, u64::from(reported));
    }
}

/// Without a report of the drops, the packets look lost.
#[test]
fn packets_that_a_proxy_drops_without_a_report_are_declared_lost() {
    let mut s = assisted(None, 0, 1);
    pass_unseen(&mut s, 5, false);
    s.stream(300, MS);
    assert_eq!(s.false_alarms().len(), 5);
    assert_eq!(s.sender.stats().epochs, 1);
}

/// The answer to the sender's next poll announces the new epoch at the latest.
#[test]
fn an_epoch_whose_announcement_was_lost_is_announced_again() {
    let mut s = assisted(None, 0, 1);
    s.run(50 * MS);
    s.proxy.as_mut().unwrap().missed(0);
    s.near.loss_percent = 100;
    for _ in 0..3 {
        // Messages are lost, but no packets.
        s.send(Some(false));
        s.run(MS);
    }
    assert_eq!(s.proxy.as_ref().unwrap().stats().epochs_unasked, 1);
    assert_eq!(s.sender.stats().epochs, 1);
    s.near.loss_percent = 0;
    s.stream(300, MS);
    assert_eq!((s.sender.stats().epochs, s.sender.assistance()), (2, Assistance::Assisted));
    assert_eq!(s.proxy.as_ref().unwrap().stats().epochs_unasked, 1);
    assert_eq!(s.false_alarms(), NONE);
}

/// Endless epochs are useless, whichever side begins them.
#[test]
fn a_proxy_that_only_begins_epochs_is_given_up() {
    let mut s = assisted(None, 0, 1);
    s.proxy = None;
    let mut begun = 0;
    while s.sender.assistance() == Assistance::Assisted {
        let Some(session) = s.sender.established() else { break };
        let (epoch, now) = (session.epoch.number + 1, s.now);
        begun += 1;
        s.sender.inject(Message::Epoch { epoch }, (1 << 20) + begun, 40, now).unwrap();
        s.sender.settle(now);
        s.run(100 * MS);
        assert!(begun < 100);
    }
    assert_eq!(s.sender.assistance(), Assistance::Unassisted(Reason::Unintelligible));
    assert!(begun > 20, "{begun}: not at once");
    assert_eq!(s.declared, []);
}

/// A flood at the proxy causes gap after gap, with no quACK between them.
#[test]
fn gaps_in_quick_succession_do_not_end_the_assistance() {
    for every_packets in [None, NonZeroU16::new(32)] {
        for apart in [2, 5, 9, 14, 40] {
            let mut s = assisted(every_packets, 0, 1);
            for _ in 0..12 {
                s.proxy.as_mut().unwrap().missed(s.interface);
                s.on_path = false;
                s.stream(2, MS);
                s.run(3 * MS);
                s.on_path = true;
                s.stream(apart, MS);
                assert_eq!(
                    s.sender.assistance(),
                    Assistance::Assisted,
                    "{apart} ms, {every_packets:?}"
                );
            }
            s.stream(300, MS);
            assert_eq!(s.false_alarms(), NONE, "{apart} ms, {every_packets:?}");
            let lost = s.send(Some(true));
            s.stream(100, MS);
            assert_eq!(s.overlooked(lost), NONE, "{apart} ms, {every_packets:?}");
        }
    }
}

/// A late announcement, and messages from before a newer one, belong to no current epoch.
#[test]
fn an_epoch_never_goes_back() {
    let mut s = assisted(None, 0, 1);
    s.proxy = None;
    let now = s.now;
    let mut inject = |message: Message<'_>, sequence: u32| {
        s.sender.inject(message, (1 << 20) + sequence, 40, now)
    };
    let epoch = |epoch| Message::Epoch { epoch };
    assert_eq!(inject(epoch(1), 1), Err(HandleError::Outdated));
    assert_eq!(inject(epoch(3), 5), Ok(()));
    assert_eq!(inject(epoch(2), 6), Err(HandleError::Outdated));
    assert_eq!(inject(epoch(3), 7), Err(HandleError::Outdated));
    let quack = Quack {
        epoch: 2,
        token: 0,
        age_us: 0,
        first: 0,
        last: 0,
        count: 0,
        sums: Words::new(&[0]),
    };
    assert_eq!(inject(Message::Quack(quack), 8), Err(HandleError::Outdated));
    assert_eq!(inject(Message::Quack(Quack { epoch: 3, ..quack }), 9), Ok(()));
    // This quACK serves as the announcement, which was lost.
    let wrong = Quack { epoch: 5, sums: Words::new(&[u32::MAX]), ..quack };
    assert_eq!(inject(Message::Quack(wrong), 10), Err(HandleError::Impossible));
    assert_eq!(inject(Message::Quack(Quack { epoch: 5, ..quack }), 10), Ok(()));
    assert_eq!(inject(epoch(5), 11), Err(HandleError::Outdated));
    assert_eq!(inject(epoch(6), 12), Ok(()));
}

/// A flow begins after the session, like the requests of a connection. The empty quACK shows that
/// the proxy counts, so the sender can declare the first packets lost.
#[test]
fn the_first_packets_after_an_empty_quack_are_declared_lost() {
    let near = Near { delay: 2 * MS, jitter: Duration::ZERO, loss_percent: 0 };
    for (lost, followers) in [(1, 1), (1, 5), (3, 5), (5, 1)] {
        let mut s = Simulation::new(configured(), ObserverConfig::default(), near, 1);
        s.run(50 * MS);
        let first: Vec<_> = (0..lost).map(|_| s.send(Some(true))).collect();
        for _ in 0..followers {
            s.send(Some(false));
        }
        s.run(60 * MS);
        for packet in first {
            assert_eq!(s.overlooked(packet), NONE, "{lost} lost, {followers} after them");
        }
        assert_eq!(s.false_alarms(), NONE, "{lost} lost, {followers} after them");
    }
}
