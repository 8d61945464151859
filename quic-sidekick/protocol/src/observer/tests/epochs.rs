//! When an epoch begins, and on which interface it counts.

use super::*;

/// After the system dropped packets, the observer begins an epoch with the next packet, and
/// announces it until the sender knows.
#[test]
fn dropped_packets_begin_an_epoch() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms { every_packets: NonZeroU16::new(4), every: None, ..Terms::default() });
    let epoch = |b: &mut Bench| {
        b.with_message(1, |message| match message {
            Message::Epoch { epoch } => *epoch,
            other => panic!("{other:?}"),
        })
    };
    b.capture(10, 3);
    b.observer.missed(4);
    b.capture(11, 3);
    assert_eq!(b.next_sent(), None, "it counts on another interface");
    b.observer.missed(3);
    assert_eq!(b.observer.stats().epochs_unasked, 0, "no message without a packet");
    for id in 12..16 {
        assert_eq!(b.capture(id, 3), Observed::Counted);
    }
    assert_eq!(epoch(&mut b), Some(2), "before the sender polls in the epoch");
    let first = |b: &mut Bench| b.with_quack(1, |quack| (quack.epoch, quack.first, quack.count));
    assert_eq!(first(&mut b), Some((2, 12, 4)));
    // Only whole quACKs, and EPOCH again, until the sender polls in the epoch.
    for id in 16..64 {
        b.capture(id, 3);
    }
    assert_eq!(first(&mut b), Some((2, 12, 52)), "only the last of several");
    for _ in 0..2 {
        assert_eq!(b.poll(1, 1, 9), Err(HandleError::WrongEpoch));
        assert_eq!(epoch(&mut b), Some(2));
    }
    b.poll(1, 2, 9).unwrap();
    assert_eq!(first(&mut b), Some((2, 12, 52)));
    assert_eq!(b.poll(1, 1, 9), Err(HandleError::WrongEpoch));
    assert_eq!(b.next_sent(), None, "a late request");
    // A poll triggers the announcement at once.
    b.observer.missed(3);
    b.observer.missed(3);
    assert_eq!(b.poll(1, 2, 9), Err(HandleError::WrongEpoch));
    assert_eq!(epoch(&mut b), Some(3));
    assert_eq!((b.next_sent(), b.observer.stats().epochs_unasked), (None, 2));
    b.poll(1, 3, 9).unwrap();
    assert_eq!(first(&mut b), Some((3, 0, 0)));
}

/// Another interface can replace the bound one. The packets ignored there are then missing.
#[test]
fn another_interface_begins_another_epoch() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms { every_packets: NonZeroU16::new(5), every: None, ..Terms::default() });
    (1..=4).for_each(|id| assert_eq!(b.capture(id, 3), Observed::Counted));
    (5..=9).for_each(|id| assert_eq!(b.capture(id, 4), Observed::Ignored));
    b.now += Duration::from_secs(1);
    (10..=14).for_each(|id| assert_eq!(b.capture(id, 4), Observed::Counted));
    assert_eq!(
        b.with_message(1, |message| matches!(message, Message::Epoch { epoch: 2 })),
        Some(true)
    );
    let reported = b.with_quack(1, |quack| (quack.epoch, quack.first, quack.last, quack.count));
    assert_eq!(reported, Some((2, 10, 14, 5)));
}

#[test]
fn an_epoch_counts_on_the_first_interface_that_shows_the_flow() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms::default());
    assert_eq!(
        [b.capture(1, 4), b.capture(1, 5), b.capture(2, 5), b.capture(2, 4)]
            .map(|o| o == Observed::Counted),
        [true, false, false, true]
    );
    let begun = |b: &mut Bench| {
        b.with_message(1, |message| match message {
            Message::Epoch { epoch } => *epoch,
            other => panic!("{other:?}"),
        })
    };
    b.send(1, Message::NewEpoch { epoch: 1 }).unwrap();
    assert_eq!(begun(&mut b), Some(2));
    assert_eq!([b.capture(3, 5), b.capture(3, 4)], [Observed::Counted, Observed::Ignored]);
    // A repeated request changes nothing, and gets the same answer.
    assert_eq!(b.send(1, Message::NewEpoch { epoch: 1 }), Err(HandleError::WrongEpoch));
    assert_eq!(begun(&mut b), Some(2));
    assert_eq!(b.poll(1, 1, 8), Err(HandleError::WrongEpoch));
    b.send(1, Message::Poll(Poll { epoch: 2, token: 9, sums: 60 })).unwrap();
    let seen = b.with_quack(1, |quack| (quack.count, quack.first, quack.token, quack.sums.len()));
    assert_eq!(seen, Some((1, 3, 9, 60)));
}
