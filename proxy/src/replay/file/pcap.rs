//! The classic format: a header, then packets.
//!
//! <https://datatracker.ietf.org/doc/html/draft-ietf-opsawg-pcap>

use std::time::Duration;

use pcap_parser::parse_pcap_header;

use super::input::{CAPACITY, Input};
use super::record::{Entry, Order, Problem, Record};

const FILE_HEADER_LEN: usize = 24;
const PACKET_HEADER_LEN: usize = 16;
/// In the format that some Linux distributions once used.
const MODIFIED_PACKET_HEADER_LEN: usize = 24;
/// The only major version.
const VERSION: u16 = 2;
/// The bits of the link type in its field. The other bits describe a frame check sequence, which
/// follows the packet as padding does.
const LINK_MASK: u32 = 0x03ff_ffff;

/// Whether a file with these first bytes has this format: with microseconds, with nanoseconds, or
/// modified.
pub(super) fn is_one(magic: [u8; 4]) -> bool {
    matches!(
        u32::from_be_bytes(magic),
        0xa1b2_c3d4 | 0xd4c3_b2a1 | 0xa1b2_3c4d | 0x4d3c_b2a1 | 0x34cd_b2a1
    )
}

/// The contents of the file's header.
#[derive(Debug, Default)]
pub(super) struct Pcap {
    order: Order,
    nanoseconds: bool,
    modified: bool,
    link: u32,
}

impl Pcap {
    /// Reads the file's header.
    pub(super) fn header(&mut self, input: &mut Input) -> Result<Record, Problem> {
        let Some(bytes) = input.peek(FILE_HEADER_LEN)? else { return Ok(Record::Truncated) };
        let Ok((_, header)) = parse_pcap_header(bytes) else {
            return Err(Problem::Broken("the header is invalid"));
        };
        if header.version_major != VERSION {
            return Err(Problem::Broken("the version is not 2"));
        }
        *self = Self {
            order: if header.is_bigendian() { Order::Big } else { Order::Little },
            nanoseconds: header.is_nanosecond_precision(),
            modified: header.is_modified_format(),
            link: header.network.0.cast_unsigned() & LINK_MASK,
        };
        input.consume(FILE_HEADER_LEN);
        Ok(Record::Other)
    }

    /// The link type of all packets.
    pub(super) fn link(&self) -> u32 {
        self.link
    }

    /// Finds the next packet, and does not consume it.
    pub(super) fn record(&self, input: &mut Input) -> Result<Record, Problem> {
        let header_len = if self.modified { MODIFIED_PACKET_HEADER_LEN } else { PACKET_HEADER_LEN };
        let header = input.peek(header_len)?.and_then(|bytes| self.order.fields(bytes));
        let Some([seconds, fraction, kept, len]) = header else {
            return Ok(if input.is_empty() { Record::End } else { Record::Truncated });
        };
        let record = usize::try_from(kept).unwrap_or(usize::MAX).saturating_add(header_len);
        if record > CAPACITY {
            return Err(Problem::TooLong { len: record as u64, limit: CAPACITY });
        }
        if input.peek(record)?.is_none() {
            return Ok(Record::Truncated);
        }
        let fraction = if self.nanoseconds {
            Duration::from_nanos(fraction.into())
        } else {
            Duration::from_micros(fraction.into())
        };
        Ok(Record::Packet(Entry {
            interface: 0,
            link: self.link,
            time: Some(Duration::from_secs(seconds.into()) + fraction),
            record,
            bytes: header_len..record,
            len,
        }))
    }
}
