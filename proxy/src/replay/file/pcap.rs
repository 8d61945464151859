//! The classic format: a header, then packets.
//!
//! <https://datatracker.ietf.org/doc/html/draft-ietf-opsawg-pcap>

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use pcap_parser::parse_pcap_header;

use super::record::{Entry, Input, Order, Record};

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
    /// The unit of the fraction of a second.
    unit: Duration,
    header_len: usize,
    /// The link type of all packets.
    pub(super) link: u32,
}

impl Pcap {
    /// Reads the file's header.
    pub(super) fn header(&mut self, input: &mut Input) -> Result<Record> {
        if !input.fill(FILE_HEADER_LEN)? {
            return Ok(input.end());
        }
        let Ok((_, header)) = parse_pcap_header(&input.record) else {
            bail!("the header is invalid");
        };
        ensure!(header.version_major == VERSION, "the version is not 2");
        let is_fine = header.is_nanosecond_precision();
        let is_modified = header.is_modified_format();
        *self = Self {
            order: if header.is_bigendian() { Order::Big } else { Order::Little },
            unit: if is_fine { Duration::from_nanos(1) } else { Duration::from_micros(1) },
            header_len: if is_modified { MODIFIED_PACKET_HEADER_LEN } else { PACKET_HEADER_LEN },
            link: header.network.0.cast_unsigned() & LINK_MASK,
        };
        Ok(Record::Other)
    }

    /// Reads the next packet.
    pub(super) fn record(&self, input: &mut Input) -> Result<Record> {
        let is_whole = input.fill(self.header_len)?;
        let header = self.order.fields(&input.record).filter(|_| is_whole);
        let Some([seconds, fraction, kept, len]) = header else { return Ok(input.end()) };
        let kept = usize::try_from(kept).unwrap_or(usize::MAX);
        let end = kept.saturating_add(self.header_len);
        if !input.fill(end)? {
            return Ok(input.end());
        }
        let time = Duration::from_secs(seconds.into()) + self.unit * fraction;
        let bytes = self.header_len..end;
        Ok(Record::Packet(Entry { interface: 0, link: self.link, time: Some(time), bytes, len }))
    }
}
