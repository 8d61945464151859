use super::*;
use proptest::prelude::*;

const INFO: SenderInfo =
    SenderInfo { ssrc: 1, ntp: 2 << 32 | 3, timestamp: 4, packets: 5, octets: 6 };

#[test]
fn a_senders_report_reads_back() {
    let held = Held { ssrc: 9, last: 10, delay: 11 };
    let sender = Item::Sender { ssrc: 1, ntp: 2 << 32 | 3, packets: 5 };
    assert_eq!(parse(&sender_report(&INFO, None, &[])), Ok(vec![sender.clone()]));
    let bytes = sender_report(&INFO, Some(held), &[1, 2]);
    let leaving = [Item::Bye { ssrc: 1 }, Item::Bye { ssrc: 2 }];
    assert_eq!(parse(&bytes), Ok([&[sender, Item::Held(held)][..], &leaving].concat()));
    // PT 200, and a name behind it (RFC 3550, section 6.1).
    assert_eq!((bytes[1], bytes[28 + 1]), (200, 202));
}

#[test]
fn a_receivers_report_reads_back() {
    let reception = Reception {
        ssrc: 1,
        fraction_lost: 2,
        lost: 3,
        highest: 4,
        jitter: 5,
        last_report: 6,
        delay: 7,
    };
    let bytes = receiver_report(9, &reception, 77, false);
    let clock = Item::Reference { ssrc: 9, ntp: 77 };
    assert_eq!(parse(&bytes), Ok(vec![Item::Reception(reception), clock]));
    assert_eq!(bytes[1], 201);
    let bytes = receiver_report(9, &reception, 77, true);
    assert_eq!(parse(&bytes), Ok(vec![Item::Reception(reception), Item::Bye { ssrc: 9 }]));
}

#[test]
fn feedback_reads_back_and_is_short() {
    let bytes = nack(9, 1, &[7, 8, 65_535]);
    // PT 205, FMT 1 (RFC 4585, section 6.2.1).
    assert_eq!((bytes[0] & 0x1f, bytes[1], bytes.len()), (1, 205, 20));
    assert_eq!(parse(&bytes), Ok(vec![Item::Missing { ssrc: 1, sequences: vec![7, 8, 65_535] }]));
    for sequence in [0, 7, 65_535] {
        let bytes = duplicate(9, 1, sequence);
        assert_eq!((bytes[1], bytes.len()), (207, 24));
        assert_eq!(
            parse(&bytes),
            Ok(vec![Item::Duplicates { ssrc: 1, sequences: vec![sequence] }])
        );
    }
}

#[test]
fn every_kind_of_duplicate_run_is_parsed() {
    let block = DuplicateRle::builder()
        .ssrc(1)
        .begin(65_530)
        .end(30)
        .add_chunk(RleChunk::RunLength(5))
        .add_chunk(RleChunk::BitVector(0b0011_1111_1111_1111))
        .add_chunk(RleChunk::SkipLength(100));
    let bytes = written(&Xr::builder().sender_ssrc(9).add_block(block));
    let Item::Duplicates { sequences, .. } = &parse(&bytes).unwrap()[0] else {
        panic!("{bytes:?}")
    };
    // Five without, one with, fourteen without, and the rest up to the end.
    let wanted: Vec<u16> = std::iter::once(65_535).chain(14..30).collect();
    assert_eq!(sequences, &wanted);
}

#[test]
fn truncated_packets_are_refused() {
    let bytes = sender_report(&INFO, None, &[1]);
    for len in 0..bytes.len() {
        // A shorter compound packet is one, too.
        let whole = [28, bytes.len() - 8].contains(&len);
        assert_eq!(parse(&bytes[..len]).is_ok(), whole, "{len}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), count in 0x80_u8..0xa0, kind in 200_u8..208) {
        let _ = parse(&bytes);
        let words = u16::try_from(bytes.len() / 4).unwrap();
        bytes.truncate(usize::from(words) * 4);
        if let Some(header) = bytes.first_chunk_mut::<4>() {
            let [high, low] = (words - 1).to_be_bytes();
            *header = [count, kind, high, low];
        }
        if let Ok(items) = parse(&bytes) {
            prop_assert!(items.len() <= 120);
        }
    }
}
