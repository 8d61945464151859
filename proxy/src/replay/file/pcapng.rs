//! The format of Wireshark: sections of blocks, which describe interfaces and contain packets.
//!
//! Names of fields and section numbers are those of
//! <https://datatracker.ietf.org/doc/html/draft-ietf-opsawg-pcapng>.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use pcap_parser::{
    EPB_MAGIC, IDB_MAGIC, InterfaceDescriptionBlock, OptionCode, SHB_MAGIC, SPB_MAGIC,
    parse_interfacedescriptionblock_be, parse_interfacedescriptionblock_le,
    parse_sectionheaderblock,
};

use super::record::{Entry, Input, Order, Record};

/// The type of a Section Header Block, the same in both byte orders.
pub(super) const MAGIC: [u8; 4] = SHB_MAGIC.to_be_bytes();
/// The Byte-Order Magic of a little-endian section.
const LITTLE: [u8; 4] = [0x4d, 0x3c, 0x2b, 0x1a];
const BIG: [u8; 4] = [0x1a, 0x2b, 0x3c, 0x4d];
/// The obsolete Packet Block (appendix A).
const PB_MAGIC: u32 = 2;
/// The only major version.
const VERSION: u16 = 1;

/// Bytes of the block type and the length, which come first.
const HEAD_LEN: usize = 8;
/// Bytes of the repeated length, which comes last.
const TAIL_LEN: usize = 4;
/// Most interfaces of a section: an obsolete Packet Block can name no more.
const MAX_INTERFACES: usize = 1 << 16;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The definitions of the blocks up to here.
#[derive(Debug, Default)]
pub(super) struct Pcapng {
    /// The byte order of the section.
    order: Order,
    /// The interfaces of the section, by number.
    interfaces: Vec<Interface>,
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link: u32,
    /// Most bytes of a packet that the capture kept; 0 for no limit.
    snap_len: u32,
    units_per_second: u64,
    /// The offset of all times, in seconds.
    offset: i64,
}

impl Interface {
    fn time(&self, high: u32, low: u32) -> Duration {
        let units = u64::from(high) << 32 | u64::from(low);
        let (seconds, fraction) = (units / self.units_per_second, units % self.units_per_second);
        let nanos = fraction.checked_mul(NANOS_PER_SECOND).map_or_else(
            || {
                u128::from(fraction) * u128::from(NANOS_PER_SECOND)
                    / u128::from(self.units_per_second)
            },
            |product| u128::from(product / self.units_per_second),
        );
        // The fraction is less than a second.
        let nanos = u32::try_from(nanos).unwrap_or(0);
        Duration::new(seconds.saturating_add_signed(self.offset), nanos)
    }
}

/// if_tsresol (section 4.2): a power of ten, or of two if the highest bit is set. `None` for more
/// than 64 bits.
fn units_per_second(resolution: u8) -> Option<u64> {
    match resolution {
        0..0x80 => 10_u64.checked_pow(resolution.into()),
        _ => 1_u64.checked_shl((resolution & 0x7f).into()),
    }
}

/// Why a packet is too short for the fixed fields of its block.
const NO_HEADER: &str = "a packet without its header";

impl Pcapng {
    /// Reads the next block: a packet, or another one, which it processes or skips.
    pub(super) fn record(&mut self, input: &mut Input) -> Result<Record> {
        input.fill(HEAD_LEN + TAIL_LEN)?;
        let Some(&[a, b, c, d, e, f, g, h, i, j, k, l]) = input.record.first_chunk() else {
            return Ok(input.end());
        };
        let kind = [a, b, c, d];
        if kind == MAGIC {
            // This block defines the byte order of the section, and of its own length.
            self.order = match [i, j, k, l] {
                LITTLE => Order::Little,
                BIG => Order::Big,
                _ => bail!("a section of unknown byte order"),
            };
        }
        let len = usize::try_from(self.order.u32([e, f, g, h])).unwrap_or(usize::MAX);
        ensure!(len >= HEAD_LEN + TAIL_LEN && len % 4 == 0, "a block of impossible length");
        if !input.fill(len)? {
            return Ok(input.end());
        }
        let block = &input.record[..];
        let (body, tail) = block.split_last_chunk().unwrap_or((block, &[0; TAIL_LEN]));
        ensure!(*tail == [e, f, g, h], "a block with different lengths at its beginning and end");
        let body = body.get(HEAD_LEN..).unwrap_or_default();
        let packet = match self.order.u32(kind) {
            EPB_MAGIC => self.enhanced(body)?,
            PB_MAGIC => self.obsolete(body)?,
            SPB_MAGIC => self.simple(body)?,
            SHB_MAGIC => return self.section(block),
            IDB_MAGIC => return self.interface(block),
            _ => return Ok(Record::Other),
        };
        Ok(Record::Packet(packet))
    }

    /// Section Header Block (section 4.1). Earlier interfaces belong to the previous section.
    fn section(&mut self, block: &[u8]) -> Result<Record> {
        let Ok((_, header)) = parse_sectionheaderblock(block) else {
            bail!("a section with an invalid header");
        };
        ensure!(header.major_version == VERSION, "a section whose version is not 1");
        self.interfaces.clear();
        Ok(Record::Other)
    }

    /// Interface Description Block (section 4.2).
    fn interface(&mut self, block: &[u8]) -> Result<Record> {
        let parsed = match self.order {
            Order::Little => parse_interfacedescriptionblock_le(block),
            Order::Big => parse_interfacedescriptionblock_be(block),
        };
        let Ok((_, description)) = parsed else {
            bail!("an interface with an invalid description");
        };
        let units_per_second = units_per_second(description.if_tsresol)
            .context("an interface with a too short unit of time")?;
        ensure!(self.interfaces.len() < MAX_INTERFACES, "more than 65536 interfaces");
        self.interfaces.push(Interface {
            // The field has 16 bits.
            link: description.linktype.0.cast_unsigned(),
            snap_len: description.snaplen,
            units_per_second,
            offset: self.time_offset(&description),
        });
        Ok(Record::Other)
    }

    /// if_tsoffset. Pcap-parser reads it in one byte order only.
    fn time_offset(&self, description: &InterfaceDescriptionBlock<'_>) -> i64 {
        let option =
            description.options.iter().find(|option| option.code == OptionCode::IfTsoffset);
        let bytes = option.and_then(|option| option.value.first_chunk());
        bytes.map_or(0, |bytes| match self.order {
            Order::Little => i64::from_le_bytes(*bytes),
            Order::Big => i64::from_be_bytes(*bytes),
        })
    }

    /// Enhanced Packet Block (section 4.3).
    fn enhanced(&self, body: &[u8]) -> Result<Entry> {
        let [interface, high, low, kept, len] = self.order.fields(body).context(NO_HEADER)?;
        self.packet(interface, Some([high, low]), (20, kept), len, body)
    }

    /// The obsolete Packet Block: its interface has 16 bits, and the number of dropped packets
    /// follows.
    fn obsolete(&self, body: &[u8]) -> Result<Entry> {
        let [both, high, low, kept, len] = self.order.fields(body).context(NO_HEADER)?;
        let interface = match self.order {
            Order::Little => both & 0xffff,
            Order::Big => both >> 16,
        };
        self.packet(interface, Some([high, low]), (20, kept), len, body)
    }

    /// Simple Packet Block (section 4.4). It belongs to the first interface, whose description
    /// limits the kept bytes.
    fn simple(&self, body: &[u8]) -> Result<Entry> {
        let [len] = self.order.fields(body).context(NO_HEADER)?;
        let kept = match self.interfaces.first() {
            Some(&Interface { snap_len: limit @ 1.., .. }) => len.min(limit),
            _ => len,
        };
        self.packet(0, None, (4, kept), len, body)
    }

    /// The packet whose `kept` bytes begin `header` bytes after the beginning of a block's body.
    fn packet(
        &self,
        interface: u32,
        time: Option<[u32; 2]>,
        (header, kept): (usize, u32),
        len: u32,
        body: &[u8],
    ) -> Result<Entry> {
        let kept = usize::try_from(kept).unwrap_or(usize::MAX);
        let has_them = body.get(header..).is_some_and(|bytes| kept <= bytes.len());
        ensure!(has_them, "a packet that is longer than its block");
        let known = usize::try_from(interface).ok().and_then(|number| self.interfaces.get(number));
        let description = known.context("a packet of an interface without description")?;
        let time = time.map(|[high, low]| description.time(high, low));
        let begin = HEAD_LEN + header;
        Ok(Entry { interface, link: description.link, time, bytes: begin..begin + kept, len })
    }
}
