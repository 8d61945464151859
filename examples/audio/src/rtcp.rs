//! RTCP as the two ends of a call speak it: reports and goodbyes (RFC 3550), NACKs (RFC 4585),
//! round trips and duplicates (RFC 3611). The `rtcp-types` crate reads and writes the packets; here
//! is which of them, and what they say.
//!
//! Reports are compound packets with the name of who speaks. NACKs and duplicates go alone (RFC
//! 5506), so that they cost the way back as little as can be.

use crate::session::cname;
use rtcp_types::prelude::*;
use rtcp_types::{
    Bye, Compound, DelaySinceLastReceiverReport, DelaySinceLastReceiverReportBlock, DuplicateRle,
    Nack, Packet, ReceiverReferenceTime, ReceiverReport, ReportBlock, RleChunk, RtcpParseError,
    Sdes, SdesChunk, SdesItem, SenderReport, TransportFeedback, Xr, XrBlock,
};
use thiserror::Error;

/// A feedback packet names no more packets than this.
pub const MAX_NAMED: usize = 64;
/// Of either sort no more are read from one datagram.
const MAX_READ: usize = 1024;

/// Why bytes are no RTCP.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("malformed RTCP: {0}")]
pub struct RtcpError(#[from] RtcpParseError);

/// What a participant says in RTCP, as far as a call needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A sender's report (RFC 3550, section 6.4.1).
    Sender {
        /// Who sends.
        ssrc: u32,
        /// Its clock.
        ntp: u64,
        /// Packets that it has sent so far.
        packets: u32,
    },
    /// What is received of a sender (RFC 3550, section 6.4.1): a report block.
    Reception(Reception),
    /// A receiver's clock (RFC 3611, section 4.4).
    Reference {
        /// Whose.
        ssrc: u32,
        /// What it shows.
        ntp: u64,
    },
    /// The answer to a [`Item::Reference`] (RFC 3611, section 4.5).
    Held(Held),
    /// Packets that are missing (RFC 4585, section 6.2.1).
    Missing {
        /// Whose packets.
        ssrc: u32,
        /// Their sequence numbers.
        sequences: Vec<u16>,
    },
    /// Packets that came more than once (RFC 3611, section 4.2).
    Duplicates {
        /// Whose packets.
        ssrc: u32,
        /// Their sequence numbers.
        sequences: Vec<u16>,
    },
    /// A participant leaves (RFC 3550, section 6.6).
    Bye {
        /// Who.
        ssrc: u32,
    },
}

/// What is received of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reception {
    /// Of whom.
    pub ssrc: u32,
    /// Packets lost since the last report, of 256.
    pub fraction_lost: u8,
    /// Packets lost altogether, 24 bits.
    pub lost: u32,
    /// The highest sequence number, with its rollovers in the upper 16 bits.
    pub highest: u32,
    /// Interarrival jitter in units of the media's clock.
    pub jitter: u32,
    /// The middle of the last sender report's timestamp; 0 if there was none.
    pub last_report: u32,
    /// Time since that came, in units of 1/65536 s.
    pub delay: u32,
}

/// A receiver's clock comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Whose clock.
    pub ssrc: u32,
    /// The middle of what it showed.
    pub last: u32,
    /// Time since that came, in units of 1/65536 s.
    pub delay: u32,
}

/// What a sender tells of itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SenderInfo {
    pub(crate) ssrc: u32,
    pub(crate) ntp: u64,
    pub(crate) timestamp: u32,
    pub(crate) packets: u32,
    pub(crate) octets: u32,
}

fn written(packet: &impl RtcpPacketWriter) -> Vec<u8> {
    // Neither can fail: every count and length here is small.
    let mut out = vec![0; packet.calculate_size().unwrap_or(0)];
    let _ = packet.write_into(&mut out);
    out
}

fn name(ssrc: u32) -> rtcp_types::SdesBuilder<'static> {
    let item = SdesItem::builder(SdesItem::CNAME, &cname(ssrc)).into_owned();
    Sdes::builder().add_chunk(SdesChunk::builder(ssrc).add_item(item))
}

/// A sender's report, with the answer to a receiver's clock if there is one; and the end of those
/// who leave.
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

/// A receiver's report with its clock, or with its goodbye.
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

/// Asks `media` for packets, no more than [`MAX_NAMED`] of them.
pub(crate) fn nack(ssrc: u32, media: u32, missing: &[u16]) -> Vec<u8> {
    let named =
        missing.iter().take(MAX_NAMED).fold(Nack::builder(), |nack, s| nack.add_rtp_sequence(*s));
    written(&TransportFeedback::builder_owned(named).sender_ssrc(ssrc).media_ssrc(media))
}

/// Tells that a packet of `media` came once more.
pub(crate) fn duplicate(ssrc: u32, media: u32, sequence: u16) -> Vec<u8> {
    let block = DuplicateRle::builder()
        .ssrc(media)
        .begin(sequence)
        .end(sequence.wrapping_add(1))
        // A run of zeros: a zero stands for a packet with duplicates.
        .add_chunk(RleChunk::SkipLength(1));
    written(&Xr::builder().sender_ssrc(ssrc).add_block(block))
}

/// Reads one datagram's RTCP. What is in it beside [`Item`] is left out.
///
/// # Errors
/// [`RtcpError`] when it is none.
pub fn parse(bytes: &[u8]) -> Result<Vec<Item>, RtcpError> {
    let mut said = Vec::new();
    for packet in Compound::parse(bytes)? {
        match packet? {
            Packet::Sr(report) => {
                let (ssrc, ntp) = (report.ssrc(), report.ntp_timestamp());
                said.push(Item::Sender { ssrc, ntp, packets: report.packet_count() });
                said.extend(report.report_blocks().map(|block| reception(&block)));
            }
            Packet::Rr(report) => {
                said.extend(report.report_blocks().map(|block| reception(&block)));
            }
            Packet::Bye(bye) => said.extend(bye.ssrcs().map(|ssrc| Item::Bye { ssrc })),
            Packet::TransportFeedback(feedback) => {
                if let Ok(nack) = feedback.parse_fci::<Nack<'_>>() {
                    let sequences = nack.entries().take(MAX_READ).collect();
                    said.push(Item::Missing { ssrc: feedback.media_ssrc(), sequences });
                }
            }
            Packet::Xr(report) => {
                let from = report.sender_ssrc();
                said.extend(report.block_iter().flat_map(|block| extended(from, &block)));
            }
            _ => {}
        }
    }
    Ok(said)
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

/// The sequence numbers whose bit is zero. (The crate's own iterator gives those whose bit is one,
/// as a report of losses wants it.)
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
