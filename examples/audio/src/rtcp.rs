//! The RTCP of a call: reports and BYE (RFC 3550), NACKs (RFC 4585), round-trip times and
//! duplicates (RFC 3611). The `rtcp-types` crate reads and writes the packets.
//!
//! Reports are compound packets with a CNAME. NACKs and reports of duplicates are sent alone (RFC
//! 5506), because they are smaller.

use crate::session::cname;
use rtcp_types::prelude::*;
use rtcp_types::{
    Bye, Compound, DelaySinceLastReceiverReport, DelaySinceLastReceiverReportBlock, DuplicateRle,
    Nack, Packet, ReceiverReferenceTime, ReceiverReport, ReportBlock, RleChunk, RtcpParseError,
    Sdes, SdesChunk, SdesItem, SenderReport, TransportFeedback, Xr, XrBlock,
};
use thiserror::Error;

/// The most packets that a feedback packet names.
pub const MAX_NAMED: usize = 64;
/// The most sequence numbers that are read from a NACK or a report of duplicates.
const MAX_READ: usize = 1024;

/// Why bytes are not RTCP.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("malformed RTCP: {0}")]
pub struct RtcpError(#[from] RtcpParseError);

/// The part of a participant's RTCP that a call uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A sender report (RFC 3550, section 6.4.1).
    Sender {
        /// The sender.
        ssrc: u32,
        /// Its clock.
        ntp: u64,
        /// The packets that it sent so far.
        packets: u32,
    },
    /// A report block about a sender (RFC 3550, section 6.4.1).
    Reception(Reception),
    /// A receiver's clock (RFC 3611, section 4.4).
    Reference {
        /// The receiver.
        ssrc: u32,
        /// The time.
        ntp: u64,
    },
    /// The answer to an [`Item::Reference`] (RFC 3611, section 4.5).
    Held(Held),
    /// A NACK: missing packets (RFC 4585, section 6.2.1).
    Missing {
        /// Their sender.
        ssrc: u32,
        /// Their sequence numbers.
        sequences: Vec<u16>,
    },
    /// Packets that arrived more than once (RFC 3611, section 4.2).
    Duplicates {
        /// Their sender.
        ssrc: u32,
        /// Their sequence numbers.
        sequences: Vec<u16>,
    },
    /// A participant leaves (RFC 3550, section 6.6).
    Bye {
        /// The participant.
        ssrc: u32,
    },
}

/// A report block about a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reception {
    /// The sender.
    pub ssrc: u32,
    /// The share of packets lost since the last report, in 256ths.
    pub fraction_lost: u8,
    /// The packets lost in total, 24 bits.
    pub lost: u32,
    /// The highest sequence number, with its rollovers in the upper 16 bits.
    pub highest: u32,
    /// Interarrival jitter in units of the media's clock.
    pub jitter: u32,
    /// The middle of the last sender report's timestamp, or 0.
    pub last_report: u32,
    /// The time since its arrival, in units of 1/65536 s.
    pub delay: u32,
}

/// The answer to a receiver's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The receiver.
    pub ssrc: u32,
    /// The middle of its timestamp.
    pub last: u32,
    /// The time since its arrival, in units of 1/65536 s.
    pub delay: u32,
}

/// The contents of a sender report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SenderInfo {
    pub(crate) ssrc: u32,
    pub(crate) ntp: u64,
    pub(crate) timestamp: u32,
    pub(crate) packets: u32,
    pub(crate) octets: u32,
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

/// A sender report, with the answer to a receiver's clock, and a BYE of those that leave.
pub(crate) fn sender_report(sender: &SenderInfo, held: Option<Held>, leaving: &[u32]) -> Vec<u8> {
    let report = SenderReport::builder(sender.ssrc)
        .ntp_timestamp(sender.ntp)
        .rtp_timestamp(sender.timestamp)
        .packet_count(sender.packets)
        .octet_count(sender.octets);
    let mut compound = Compound::builder().add_packet(report).add_packet(name(sender.ssrc));
    if let Some(held) = held {
        let block = DelaySinceLastReceiverReportBlock::builder()
            .ssrc(held.ssrc)
            .last_receiver_report(held.last)
            .delay_since_last_receiver_report_timestamp(held.delay);
        let answer = DelaySinceLastReceiverReport::builder().add_block(block);
        compound = compound.add_packet(Xr::builder().sender_ssrc(sender.ssrc).add_block(answer));
    }
    if !leaving.is_empty() {
        compound = compound
            .add_packet(leaving.iter().fold(Bye::builder(), |bye, ssrc| bye.add_source(*ssrc)));
    }
    written(&compound)
}

/// A receiver report with its clock, or with its BYE.
pub(crate) fn receiver_report(ssrc: u32, reception: &Reception, ntp: u64, leaves: bool) -> Vec<u8> {
    let block = ReportBlock::builder(reception.ssrc)
        .fraction_lost(reception.fraction_lost)
        .cumulative_lost(reception.lost)
        .extended_sequence_number(reception.highest)
        .interarrival_jitter(reception.jitter)
        .last_sender_report_timestamp(reception.last_report)
        .delay_since_last_sender_report_timestamp(reception.delay);
    let report = ReceiverReport::builder(ssrc).add_report_block(block);
    let compound = Compound::builder().add_packet(report).add_packet(name(ssrc));
    if leaves {
        return written(&compound.add_packet(Bye::builder().add_source(ssrc)));
    }
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

/// Reads the items of a datagram, and ignores what a call does not use.
///
/// # Errors
/// [`RtcpError`] if it is not RTCP.
pub fn parse(bytes: &[u8]) -> Result<Vec<Item>, RtcpError> {
    let mut items = Vec::new();
    for packet in Compound::parse(bytes)? {
        match packet? {
            Packet::Sr(report) => {
                let (ssrc, ntp) = (report.ssrc(), report.ntp_timestamp());
                items.push(Item::Sender { ssrc, ntp, packets: report.packet_count() });
                items.extend(report.report_blocks().map(|block| reception(&block)));
            }
            Packet::Rr(report) => {
                items.extend(report.report_blocks().map(|block| reception(&block)));
            }
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

fn reception(block: &ReportBlock<'_>) -> Item {
    Item::Reception(Reception {
        ssrc: block.ssrc(),
        fraction_lost: block.fraction_lost(),
        lost: block.cumulative_lost(),
        highest: block.extended_sequence_number(),
        jitter: block.interarrival_jitter(),
        last_report: block.last_sender_report_timestamp(),
        delay: block.delay_since_last_sender_report_timestamp(),
    })
}

fn extended(from: u32, block: &XrBlock<'_>) -> Vec<Item> {
    if let Ok(clock) = block.parse_into::<ReceiverReferenceTime<'_>>() {
        return vec![Item::Reference { ssrc: from, ntp: clock.ntp_timestamp() }];
    }
    if let Ok(answers) = block.parse_into::<DelaySinceLastReceiverReport<'_>>() {
        let held = answers.block_iter().take(MAX_NAMED).map(|answer| {
            Item::Held(Held {
                ssrc: answer.ssrc(),
                last: answer.last_receiver_report(),
                delay: answer.delay_since_last_receiver_report_timestamp(),
            })
        });
        return held.collect();
    }
    if let Ok(runs) = block.parse_into::<DuplicateRle<'_>>() {
        return vec![Item::Duplicates { ssrc: runs.media_ssrc(), sequences: duplicated(&runs) }];
    }
    Vec::new()
}

/// The sequence numbers whose bit is zero. The crate's iterator returns those whose bit is one, as
/// in a report of losses.
fn duplicated(runs: &DuplicateRle<'_>) -> Vec<u16> {
    let mut sequences = Vec::new();
    let total = usize::from(runs.end().wrapping_sub(runs.begin()));
    let mut passed = 0_usize;
    for chunk in runs.chunk_iter() {
        let (length, doubled): (usize, &dyn Fn(usize) -> bool) = match &chunk {
            RleChunk::SkipLength(length) => ((*length).into(), &|_| true),
            RleChunk::RunLength(length) => ((*length).into(), &|_| false),
            RleChunk::BitVector(bits) => (15, &move |at| (bits >> (14 - at)) & 1 == 0),
            RleChunk::Null => (0, &|_| false),
        };
        for at in 0..length.min(total.saturating_sub(passed)) {
            if sequences.len() >= MAX_READ {
                return sequences;
            }
            if doubled(at) {
                let offset = u16::try_from(passed + at).unwrap_or(u16::MAX);
                sequences.push(runs.begin().wrapping_add(offset << runs.thinning().min(15)));
            }
        }
        passed += length;
    }
    sequences
}

#[cfg(test)]
mod tests;
