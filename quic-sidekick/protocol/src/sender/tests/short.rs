//! Handling of short quACKs (SPEC.md, sections 6.4 and 7.2).

use super::*;
use crate::sender::history::History;
use crate::testing::{Near, Simulation, configured};
use crate::wire::{Message, Quack, ShortQuack, Words, low};
use crate::{ObserverConfig, Terms};
use proptest::prelude::*;
use sidekick_quack::PowerSums;
use std::num::NonZeroU16;

const MS: Duration = Duration::from_millis(1);

fn simulation(loss_percent: u64, every_packets: u16, poll: bool, seed: u64) -> Simulation {
    let terms =
        Terms { every_packets: NonZeroU16::new(every_packets), every: None, ..Terms::default() };
    let near = Near { delay: 5 * MS, jitter: Duration::ZERO, loss_percent };
    Simulation::new(
        SenderConfig { terms, poll, ..configured() },
        ObserverConfig::default(),
        near,
        seed,
    )
}

#[test]
fn every_loss_is_detected_with_a_quack_per_few_packets() {
    for (seed, loss_percent) in (0..60).zip([0, 2, 10, 20].into_iter().cycle()) {
        for (every_packets, poll) in [(1, true), (2, true), (2, false), (8, false)] {
            let mut s = simulation(0, every_packets, poll, seed);
            s.stream(100, MS);
            s.near.loss_percent = loss_percent;
            let from = s.send(Some(false));
            s.stream(1500, MS);
            s.near.loss_percent = 0;
            s.stream(100, MS);
            assert_eq!(s.false_alarms(), [0; 0], "seed {seed}");
            let stats = s.sender.stats();
            // The end-to-end mechanism covers the packets before a new epoch.
            if stats.epochs == 1 {
                assert_eq!(s.overlooked(from), [0; 0], "seed {seed}");
            }
            assert!(stats.quacks_received > 100, "seed {seed}: {stats:?}");
            if loss_percent == 0 {
                let whole = Quack::sealed_len(20) as u64;
                let each = stats.quack_bytes / stats.quacks_received;
                assert!(each < whole - 15, "seed {seed}: {each} bytes of {whole}");
            }
        }
    }
}

/// The first power sums of the identifiers, and their count.
fn sums_of(identifiers: &[u32], sums: usize) -> (Vec<u32>, u32) {
    let mut counted = PowerSums::new(sums).unwrap();
    counted.insert_many(identifiers);
    (counted.sums().collect(), counted.count())
}

#[test]
fn without_the_epochs_first_packet_the_sender_polls() {
    let mut s = simulation(0, 2, false, 1);
    s.run(30 * MS);
    // From now on the network drops the proxy's quACKs.
    let identifiers: Vec<u32> = (0..40)
        .map(|_| {
            s.send(Some(true));
            s.sender.history().pending.back().unwrap().identifier
        })
        .collect();
    let now = s.now;
    let polls = s.sender.stats().polls;
    let (sums, _) = sums_of(&identifiers, 4);
    let short = ShortQuack { count: 40, last: low(identifiers[39]), sums: Words::new(&sums) };
    let sender = &mut s.sender;
    for sequence in 100..110 {
        let outcome = sender.inject(Message::ShortQuack(short), sequence, 50, now + 100 * MS);
        assert_eq!(outcome, Err(HandleError::Outdated));
    }
    assert_eq!((sender.stats().polls, sender.history().pending.len()), (polls + 1, 40));
    let token = sender.established().unwrap().queue.poll.as_ref().unwrap().token;
    let (first, last) = (identifiers[0], identifiers[39]);
    let quack =
        Quack { epoch: 1, token, age_us: 9, first, last, count: 40, sums: Words::new(&sums) };
    sender.inject(Message::Quack(quack), 110, 50, now + 110 * MS).unwrap();
    assert!(sender.history().is_empty());
    // Later packets may be reported in short.
    let payload = [7; 40];
    s.sender.on_sent(1000, Payload::whole(&payload), now + 120 * MS);
    let (sums, _) = sums_of(&[&identifiers[..], &[0x0707_0707]].concat(), 4);
    let short = ShortQuack { count: 41, last: 0x0707, sums: Words::new(&sums) };
    let sender = &mut s.sender;
    sender.inject(Message::ShortQuack(short), 111, 50, now + 130 * MS).unwrap();
    assert!(sender.history().is_empty());
}

#[test]
fn a_late_short_quack_of_the_epoch_before_is_ignored() {
    let mut s = simulation(0, 2, true, 2);
    s.stream(100, MS);
    s.run(50 * MS);
    let now = s.now;
    let sender = &mut s.sender;
    let epoch = &sender.established().unwrap().epoch;
    let (epoch, newest) = (epoch.number, epoch.sequence.unwrap());
    let short = Message::ShortQuack(ShortQuack { count: 7, last: 8, sums: Words::new(&[9; 20]) });
    sender.established().unwrap().renew(now);
    assert_eq!(
        sender.inject(short, newest + 5, 50, now),
        Err(HandleError::Outdated),
        "its epoch is unknown"
    );
    sender.inject(Message::Epoch { epoch: epoch + 1 }, newest + 10, 20, now).unwrap();
    let undecodable = sender.stats().undecodable;
    // It does not trigger a poll for the epoch's first packet, either.
    let (polls, later) = (sender.stats().polls, now + 1000 * MS);
    assert_eq!(sender.inject(short, newest + 7, 50, later), Err(HandleError::Outdated));
    assert_eq!((sender.stats().undecodable, sender.stats().polls), (undecodable, polls));
    assert_eq!(sender.inject(short, newest + 11, 50, later), Err(HandleError::Outdated));
    assert_eq!(sender.stats().polls, polls + 1, "a quACK of this epoch triggers one");
}

/// The sender has given up the quACK's last packet. Half its identifier matches a pending packet
/// that is far too late for the count.
#[test]
fn an_ambiguous_short_quack_triggers_a_poll() {
    for poll in [false, true] {
        let mut s = simulation(0, 2, poll, 3);
        s.stream(100, MS);
        s.run(50 * MS);
        let sender = &mut s.sender;
        let settled = sender.established().unwrap().reconciler.aligned_count().unwrap();
        assert!(sender.history().is_empty());
        for index in 0..50 {
            sender.history().push(index, index.into(), s.now);
        }
        let (polls, epochs) = (sender.stats().polls, sender.stats().epochs);
        let short = ShortQuack { count: low(settled) + 1, last: 40, sums: Words::new(&[5; 20]) };
        let later = s.now + 100 * MS;
        for sequence in 1000..1010 {
            let outcome = sender.inject(Message::ShortQuack(short), sequence, 50, later);
            assert_eq!(outcome, Err(HandleError::Outdated));
        }
        assert_eq!((sender.stats().polls, sender.stats().undecodable), (polls + 1, 0));
        assert_eq!(
            (sender.stats().epochs, sender.history().pending.len()),
            (epochs, 50),
            "the sender gives up nothing for it"
        );
    }
}

proptest! {
    /// Any packets may share the low half of their identifiers. The candidates include all packets
    /// that a quACK counts, and no more others than its sums can identify.
    #[test]
    fn half_an_identifier_names_the_right_packet(
        ids in prop::collection::vec(0u32..6, 1..60),
        lost in prop::collection::vec(any::<bool>(), 60),
        last in any::<prop::sample::Index>(),
        sums in 1usize..20,
        lead in 0usize..3,
    ) {
        #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
        let now = Instant::now();
        let mut history = History::default();
        // Packets from before the epoch.
        for _ in 0..lead {
            history.push(6, 0, now);
        }
        for (index, low) in (0u32..).zip(&ids) {
            history.push(index << 16 | low, index.into(), now);
        }
        let last = last.index(ids.len());
        let counted = (0..=last).filter(|index| *index == last || !lost[*index]).count();
        prop_assume!(last + 1 - counted <= sums);
        let more = u32::try_from(counted).unwrap();
        let meant = history.ending(u16::try_from(ids[last]).unwrap(), more, sums, lead).unwrap();
        let position = history.pending.iter().position(|entry| entry.identifier == meant).unwrap();
        let position = position - lead;
        prop_assert!(position >= last, "{position} instead of {last}");
        prop_assert!(position + 1 - counted <= sums);
    }
}
