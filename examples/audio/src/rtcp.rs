//! The RTCP of a call: reports and BYE (RFC 3550), NACKs (RFC 4585), round-trip times and
//! duplicates (RFC 3611). The `rtcp-types` crate reads and writes the packets.
//!
//! Reports are compound packets with a CNAME. NACKs and reports of duplicates are sent alone (RFC
//! 5506), because they are smaller.

use crate::end::Refused;
use crate::session::cname;
use rtcp_types::prelude::*;
use rtcp_types::{
    Bye, Compound, DelaySinceLastReceiverReport, DelaySinceLastReceiverReportBlock, DuplicateRle,
    Nack, Packet, ReceiverReferenceTime, ReceiverReport, ReportBlock, ReportBlockBuilder, RleChunk,
    RtcpParseError, Sdes, SdesChunk, SdesItem, SenderReportBuilder, TransportFeedback, Xr, XrBlock,
};
use std::collections::BTreeSet;

/// The most packets that a feedback packet names.
pub(crate) const MAX_NAMED: usize = 64;
/// The most sequence numbers that are read from a NACK or a report of duplicates.
const MAX_READ: usize = 1024;

/// The part of a participant's RTCP that a call uses. SSRCs are of the participant that sent it, or
/// whose packets or clock it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A participant's clock: a sender's (RFC 3550, section 6.4.1) or a receiver's (RFC 3611,
    /// section 4.4).
    Clock { ssrc: u32, ntp: u64 },
    /// The packets that a sender sent so far (RFC 3550, section 6.4.1).
    Sent { ssrc: u32, packets: u32 },
    /// The answer to a sender's or a receiver's clock.
    Echo(Echo),
    /// A NACK: the sequence numbers of missing packets (RFC 4585, section 6.2.1).
    Missing { ssrc: u32, sequences: Vec<u16> },
    /// The numbers of packets that arrived more than once (RFC 3611, section 4.2).
    Duplicates { ssrc: u32, sequences: Vec<u16> },
    /// A participant leaves (RFC 3550, section 6.6).
    Bye { ssrc: u32 },
}

/// The answer to a participant's clock: LSR and DLSR (RFC 3550, section 6.4.1), or LRR and DLRR
/// (RFC 3611, section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Echo {
    /// The participant.
    pub(crate) ssrc: u32,
    /// The middle of its timestamp, or 0.
    pub(crate) last: u32,
    /// The time since its arrival, in units of 1/65536 s.
    pub(crate) delay: u32,
}

fn written(packet: &impl RtcpPacketWriter) -> Vec<u8> {
    // Neither can fail, because every count and length is small.
    let mut out = vec![0; packet.calculate_size().unwrap_or(0)];
    let _ = packet.write_into(&mut out);
    out
}

fn name(ssrc: u32) -> rtcp_types::SdesBuilder<'static> {
    let item = SdesItem::builder(SdesItem::CNAME, &cname(ssrc)).into_owned();
    Sdes::builder().add_chunk(SdesChunk::builder(ssrc).add_item(item))
}

/// The sender report of `ssrc`, with the answer to a receiver's clock, and a BYE of those that
/// leave.
pub(crate) fn sender_report(
    ssrc: u32,
    report: SenderReportBuilder,
    answer: Option<Echo>,
    leaving: &[u32],
) -> Vec<u8> {
    let mut compound = Compound::builder().add_packet(report).add_packet(name(ssrc));
    if let Some(answer) = answer {
        let block = DelaySinceLastReceiverReportBlock::builder()
            .ssrc(answer.ssrc)
            .last_receiver_report(answer.last)
            .delay_since_last_receiver_report_timestamp(answer.delay);
        let answer = DelaySinceLastReceiverReport::builder().add_block(block);
        compound = compound.add_packet(Xr::builder().sender_ssrc(ssrc).add_block(answer));
    }
    if !leaving.is_empty() {
        compound = compound
            .add_packet(leaving.iter().fold(Bye::builder(), |bye, ssrc| bye.add_source(*ssrc)));
    }
    written(&compound)
}

/// A receiver report with its clock; or with its BYE, if there is none.
pub(crate) fn receiver_report(ssrc: u32, block: ReportBlockBuilder, ntp: Option<u64>) -> Vec<u8> {
    let report = ReceiverReport::builder(ssrc).add_report_block(block);
    let compound = Compound::builder().add_packet(report).add_packet(name(ssrc));
    let Some(ntp) = ntp else {
        return written(&compound.add_packet(Bye::builder().add_source(ssrc)));
    };
    let clock = ReceiverReferenceTime::builder().ntp_timestamp(ntp);
    written(&compound.add_packet(Xr::builder().sender_ssrc(ssrc).add_block(clock)))
}

/// A NACK to `media`, for at most [`MAX_NAMED`] packets.
pub(crate) fn nack(ssrc: u32, media: u32, missing: &[u16]) -> Vec<u8> {
    let named =
        missing.iter().take(MAX_NAMED).fold(Nack::builder(), |nack, s| nack.add_rtp_sequence(*s));
    written(&TransportFeedback::builder_owned(named).sender_ssrc(ssrc).media_ssrc(media))
}

/// A report that a packet of `media` arrived again.
pub(crate) fn duplicate(ssrc: u32, media: u32, sequence: u16) -> Vec<u8> {
    let block = DuplicateRle::builder()
        .ssrc(media)
        .begin(sequence)
        .end(sequence.wrapping_add(1))
        // A run of zeros. Zero means a packet with duplicates.
        .add_chunk(RleChunk::SkipLength(1));
    written(&Xr::builder().sender_ssrc(ssrc).add_block(block))
}

/// Reads the items of a datagram, and ignores what a call does not use. It is malformed if it is
/// not RTCP.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<Item>, Refused> {
    items(bytes).map_err(|_| Refused::Malformed)
}

fn items(bytes: &[u8]) -> Result<Vec<Item>, RtcpParseError> {
    let mut items = Vec::new();
    for packet in Compound::parse(bytes)? {
        match packet? {
            Packet::Sr(report) => {
                let ssrc = report.ssrc();
                items.push(Item::Clock { ssrc, ntp: report.ntp_timestamp() });
                items.push(Item::Sent { ssrc, packets: report.packet_count() });
                items.extend(report.report_blocks().map(|block| answer(&block)));
            }
            Packet::Rr(report) => items.extend(report.report_blocks().map(|block| answer(&block))),
            Packet::Bye(bye) => items.extend(bye.ssrcs().map(|ssrc| Item::Bye { ssrc })),
            Packet::TransportFeedback(feedback) => {
                if let Ok(nack) = feedback.parse_fci::<Nack<'_>>() {
                    let sequences = nack.entries().take(MAX_READ).collect();
                    items.push(Item::Missing { ssrc: feedback.media_ssrc(), sequences });
                }
            }
            Packet::Xr(report) => {
                let from = report.sender_ssrc();
                items.extend(report.block_iter().flat_map(|block| extended(from, &block)));
            }
            _ => {}
        }
    }
    Ok(items)
}

fn answer(block: &ReportBlock<'_>) -> Item {
    Item::Echo(Echo {
        ssrc: block.ssrc(),
        last: block.last_sender_report_timestamp(),
        delay: block.delay_since_last_sender_report_timestamp(),
    })
}

fn extended(from: u32, block: &XrBlock<'_>) -> Vec<Item> {
    if let Ok(clock) = block.parse_into::<ReceiverReferenceTime<'_>>() {
        return vec![Item::Clock { ssrc: from, ntp: clock.ntp_timestamp() }];
    }
    if let Ok(answers) = block.parse_into::<DelaySinceLastReceiverReport<'_>>() {
        let answers = answers.block_iter().take(MAX_NAMED).map(|answer| {
            Item::Echo(Echo {
                ssrc: answer.ssrc(),
                last: answer.last_receiver_report(),
                delay: answer.delay_since_last_receiver_report_timestamp(),
            })
        });
        return answers.collect();
    }
    if let Ok(runs) = block.parse_into::<DuplicateRle<'_>>() {
        return vec![Item::Duplicates { ssrc: runs.media_ssrc(), sequences: duplicated(&runs) }];
    }
    Vec::new()
}

/// The sequence numbers whose bit is zero. The crate's iterator returns those whose bit is one, as
/// in a report of losses. A thinned report does not name each packet, and is ignored.
fn duplicated(runs: &DuplicateRle<'_>) -> Vec<u16> {
    let once: BTreeSet<_> = runs.sequence_iter().collect();
    let total = if runs.thinning() == 0 { runs.end().wrapping_sub(runs.begin()) } else { 0 };
    let all = (0..total).map(|at| runs.begin().wrapping_add(at));
    all.filter(|sequence| !once.contains(sequence)).take(MAX_READ).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rtcp_types::SenderReport;

    const CLOCK: u64 = 2 << 32 | 3;

    fn senders(answer: Option<Echo>, leaving: &[u32]) -> Vec<u8> {
        let report = SenderReport::builder(1).ntp_timestamp(CLOCK).packet_count(5);
        sender_report(1, report, answer, leaving)
    }

    fn receivers(ntp: Option<u64>) -> Vec<u8> {
        let block = ReportBlock::builder(1)
            .last_sender_report_timestamp(6)
            .delay_since_last_sender_report_timestamp(7);
        receiver_report(9, block, ntp)
    }

    #[test]
    fn what_is_written_reads_back() {
        let sent = [Item::Clock { ssrc: 1, ntp: CLOCK }, Item::Sent { ssrc: 1, packets: 5 }];
        let answer = Echo { ssrc: 9, last: 10, delay: 11 };
        let leaving = [Item::Echo(answer), Item::Bye { ssrc: 1 }, Item::Bye { ssrc: 2 }];
        let received = Item::Echo(Echo { ssrc: 1, last: 6, delay: 7 });
        let missing = vec![7, 8, 65_535];
        let twice = |sequence| Item::Duplicates { ssrc: 1, sequences: vec![sequence] };
        // The packet types, with a name behind each report (RFC 3550, section 6.1).
        for (bytes, kinds, items) in [
            (senders(None, &[]), [200, 202], sent.to_vec()),
            (senders(Some(answer), &[1, 2]), [200, 202], [&sent[..], &leaving].concat()),
            (
                receivers(Some(77)),
                [201, 202],
                vec![received.clone(), Item::Clock { ssrc: 9, ntp: 77 }],
            ),
            (receivers(None), [201, 202], vec![received, Item::Bye { ssrc: 9 }]),
            (nack(9, 1, &missing), [205, 0], vec![Item::Missing { ssrc: 1, sequences: missing }]),
            (duplicate(9, 1, 7), [207, 0], vec![twice(7)]),
            (duplicate(9, 1, 65_535), [207, 0], vec![twice(65_535)]),
        ] {
            assert_eq!(parse(&bytes), Ok(items));
            let length = 4 * (usize::from(bytes[3]) + 1);
            assert_eq!([bytes[1], bytes.get(length + 1).copied().unwrap_or(0)], kinds);
        }
        // FMT 1 (RFC 4585, section 6.2.1).
        assert_eq!((nack(9, 1, &[7, 8])[0] & 0x1f, nack(9, 1, &[7, 8]).len()), (1, 16));
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
        // Five without, one with, fourteen without, and the rest up to the end.
        let sequences = std::iter::once(65_535).chain(14..30).collect();
        assert_eq!(parse(&bytes), Ok(vec![Item::Duplicates { ssrc: 1, sequences }]));
    }

    #[test]
    fn truncated_packets_are_refused() {
        let bytes = senders(None, &[1]);
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
}
