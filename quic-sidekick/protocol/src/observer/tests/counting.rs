//! The packets that a session counts, and its quACKs about them.

use super::*;
use crate::allowance::INITIAL_ALLOWANCE;

#[test]
fn a_quack_holds_the_power_sums_of_the_packets() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms::default());
    let ids = [7, 4_000_000_000, 4_294_967_293, 12];
    for id in ids {
        assert_eq!(b.capture(id, 3), Observed::Counted);
    }
    assert_eq!(b.next_sent(), None, "not before 30 ms");
    assert_eq!(b.observer.poll_timeout(), Some(b.now + Duration::from_millis(30)));
    b.now += Duration::from_millis(30);
    b.observer.on_timeout(b.now);
    let p = 4_294_967_291u128;
    b.with_quack(1, |quack| {
        assert_eq!((quack.epoch, quack.first, quack.last, quack.count), (1, 7, 12, 4));
        assert_eq!((quack.age_us, quack.token), (30_000, 0));
        let sums: Vec<u32> = quack.sums.iter().collect();
        assert_eq!(sums.len(), 20);
        for (i, sum) in sums.iter().enumerate() {
            let expected = ids.iter().fold(0, |total: u128, id| {
                let power = (0..=i).fold(1, |power: u128, _| power * u128::from(*id) % p);
                (total + power) % p
            });
            assert_eq!(u128::from(*sum), expected, "power {}", i + 1);
        }
    })
    .expect("a quACK");
    assert_eq!(b.next_sent(), None);
}

proptest! {
    /// Observing packets in a batch equals observing them one by one, also if a packet of the batch
    /// triggers a quACK.
    #[test]
    fn observing_a_batch_equals_observing_each(
        packets in prop::collection::vec((0u16..5, 0u32..40, 0u32..2, any::<u8>()), 1..200),
    ) {
        let [mut together, mut single] = [(); 2].map(|()| {
            let mut b = bench(ObserverConfig::default());
            let terms = Terms { every_packets: NonZeroU16::new(3), ..Terms::default() };
            for port in 0..3 {
                b.flow.source.set_port(4000 + port);
                b.open(port.into(), terms);
            }
            b
        });
        let flow = |port: u16| {
            Flow { source: ([192, 0, 2, 1], 4000 + port).into(), ..together.flow }
        };
        let payloads: Vec<_> = packets.iter().map(|(_, id, _, first)| {
            let mut payload = packet(*id);
            payload[0] = *first;
            payload
        }).collect();
        let seen: Vec<_> = packets.iter().zip(&payloads)
            .map(|((port, ..), payload)| (flow(*port), Payload::whole(payload)))
            .map(|(flow, payload)| Seen { flow, payload })
            .collect();
        let (mut one, mut other) = (Vec::new(), Vec::new());
        let mut out = [0; MAX_DATAGRAM_LEN];
        for interface in 0..2 {
            together.observer.observe_all(&seen, interface, together.now, |observer, observed| {
                let sent = std::iter::from_fn(|| observer.poll_transmit(&mut out)).count();
                one.push((observed, sent));
            });
            for Seen { flow, payload } in &seen {
                let observed = single.observer.observe(flow, interface, *payload, single.now);
                let sent = std::iter::from_fn(|| single.observer.poll_transmit(&mut out)).count();
                other.push((observed, sent));
            }
        }
        prop_assert_eq!(one, other);
        prop_assert_eq!(together.observer.stats(), single.observer.stats());
        let counted = |b: &Bench| {
            let statuses = b.observer.statuses();
            statuses.map(|s| (s.flow, s.counted, s.ends, s.quacks)).collect::<Vec<_>>()
        };
        prop_assert_eq!(counted(&together), counted(&single));
        together.observer.table.check();
    }
}

/// A quACK that is due by the number of packets is short once the sender knows the epoch's first
/// packet.
#[test]
fn a_short_quack_omits_fields_that_the_sender_knows() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms { every_packets: NonZeroU16::new(1), every: None, ..Terms::default() });
    let mut counted = sidekick_quack::PowerSums::new(20).unwrap();
    for epoch in [1, 2] {
        counted.clear();
        for id in 0x7_0001..0x7_000a {
            b.capture(id, 0);
            counted.insert(id);
            let whole = b.with_message(1, |message| match message {
                Message::Quack(quack) => {
                    assert_eq!((quack.epoch, quack.first, quack.last), (epoch, 0x7_0001, id));
                    true
                }
                Message::ShortQuack(quack) => {
                    assert_eq!((quack.count, quack.last), (9, 9));
                    assert!(quack.sums.iter().eq(counted.sums()));
                    false
                }
                other => panic!("{other:?}"),
            });
            assert_eq!(whole, Some(id < 0x7_0009), "packet {id:x} of epoch {epoch}");
        }
        // The answer to a poll is a whole quACK, with the poll's token.
        b.poll(1, epoch, 5).unwrap();
        assert_eq!(b.with_quack(1, |quack| (quack.token, quack.count)), Some((5, 9)));
        b.send(1, Message::NewEpoch { epoch }).unwrap();
        b.with_message(1, |message| assert!(matches!(message, Message::Epoch { .. })));
    }
}

/// The network may duplicate a datagram, at once or later.
#[test]
fn a_duplicated_datagram_counts_once() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms { every_packets: NonZeroU16::new(3), every: None, ..Terms::default() });
    let seen = [1, 1, 2, 1, 3].map(|id| b.capture(id, 0) == Observed::Counted);
    assert_eq!(seen, [true, false, true, false, true]);
    assert_eq!(b.with_quack(1, |quack| quack.count), Some(3));
    // The sender of another protocol may repeat datagrams.
    let identification = crate::Identification { filter: crate::Filter::All, ..Default::default() };
    b.open(2, Terms { identification, ..Terms::default() });
    assert_eq!([5, 5].map(|id| b.capture(id, 0)), [Observed::Counted; 2]);
}

#[test]
fn an_identifier_may_be_the_last_four_bytes() {
    let mut b = bench(ObserverConfig::default());
    let identification =
        crate::Identification { position: Position::End, filter: crate::Filter::All };
    b.open(1, Terms { identification, every_packets: NonZeroU16::new(1), ..Terms::default() });
    let (flow, now) = (b.flow, b.now);
    let seen = b.observer.observe(&flow, 0, Payload::whole(&[0x80, 0, 1, 2, 3, 4]), now);
    assert_eq!(seen, Observed::Counted);
    assert_eq!(b.with_quack(1, |quack| quack.last), Some(0x0102_0304));
    // The capture kept too little of this packet. The sender must not take it for lost.
    let cut = Payload::cut(&[0x80; 40], 2000);
    assert_eq!(b.observer.observe(&flow, 0, cut, now), Observed::Ignored);
    assert_eq!(b.poll(1, 1, 9), Err(HandleError::WrongEpoch));
    assert_eq!(b.observer.stats().epochs_unasked, 1);
}

#[test]
fn quacks_by_number_of_packets() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms { every_packets: NonZeroU16::new(2), every: None, ..Terms::default() });
    let reports: Vec<Option<u32>> = (0..6)
        .map(|id| {
            b.capture(id, 0);
            b.with_quack(1, |quack| quack.count)
        })
        .collect();
    assert_eq!(reports, [None, Some(2), None, Some(4), None, Some(6)]);
}

/// SPEC.md, section 6.4.
#[test]
fn a_poll_for_few_sums_shortens_no_quack_that_is_due() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms { every_packets: NonZeroU16::new(2), every: None, ..Terms::default() });
    let poll = |token, sums| Message::Poll(Poll { epoch: 1, token, sums });
    let mut identifiers = 0..;
    let mut quack_of = |packets, polls: &[u8]| {
        for identifier in identifiers.by_ref().take(packets) {
            assert_eq!(b.capture(identifier, 0), Observed::Counted);
        }
        for (token, sums) in (7..).zip(polls) {
            b.send(1, poll(token, *sums)).unwrap();
        }
        b.with_quack(1, |quack| (quack.token, quack.sums.len())).unwrap()
    };
    assert_eq!(quack_of(1, &[1]), (7, 1));
    assert_eq!(quack_of(2, &[1]), (7, 20), "a quACK was due");
    assert_eq!(quack_of(1, &[3, 1]), (8, 3));
    assert_eq!(quack_of(1, &[0, 1]), (8, 20));
}

/// SPEC.md, section 6.7.
#[test]
fn a_session_stays_within_its_budget() {
    for len in [26, 60, 300, 1200] {
        let mut b = bench(ObserverConfig::default());
        b.open(
            1,
            Terms {
                every_packets: NonZeroU16::new(1),
                every: None,
                threshold: 40,
                ..Terms::default()
            },
        );
        let before = b.observer.stats().bytes_sent;
        let (mut seen, mut payload) = (0, packet(0).to_vec());
        payload.resize(len, 0);
        for id in 0..20_000u32 {
            payload[21..25].copy_from_slice(&id.to_be_bytes());
            let (flow, now) = (b.flow, b.now);
            b.observer.observe(&flow, 0, Payload::whole(&payload), now);
            seen += u64::try_from(len).unwrap();
            while b.next_sent().is_some() {}
        }
        let sent = b.observer.stats().bytes_sent - before;
        assert!(sent <= seen / 2 + INITIAL_ALLOWANCE as u64, "{len}: {sent} bytes for {seen}");
        assert_eq!(
            b.observer.stats().quacks_withheld > 0,
            len < 110,
            "{len}: {:?}",
            b.observer.stats()
        );
    }
}
