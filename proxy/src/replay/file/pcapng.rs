//! The format of Wireshark: sections of blocks, which describe interfaces and contain packets.
//!
//! Names of fields and section numbers are those of
//! <https://datatracker.ietf.org/doc/html/draft-ietf-opsawg-pcapng>.

use std::ops::Range;
use std::time::Duration;

use pcap_parser::{
    EPB_MAGIC, IDB_MAGIC, InterfaceDescriptionBlock, OptionCode, SHB_MAGIC, SPB_MAGIC,
    parse_interfacedescriptionblock_be, parse_interfacedescriptionblock_le,
    parse_sectionheaderblock,
};

use super::input::{CAPACITY, Input};
use super::record::{Entry, Order, Problem, Record};

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
/// Longest block that the reader skips. Wireshark writes no longer ones. The reader parses blocks
/// of at most [`CAPACITY`] bytes.
const LONGEST_SKIPPED: usize = 16 << 20;
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

fn broken<T>(what: &'static str) -> Result<T, Problem> {
    Err(Problem::Broken(what))
}

impl Pcapng {
    /// Finds the next packet, and does not consume it. Or processes or skips another block.
    pub(super) fn record(&mut self, input: &mut Input) -> Result<Record, Problem> {
        let Some(&[a, b, c, d, e, f, g, h, i, j, k, l, ..]) = input.peek(HEAD_LEN + TAIL_LEN)?
        else {
            return Ok(if input.is_empty() { Record::End } else { Record::Truncated });
        };
        let kind = [a, b, c, d];
        if kind == MAGIC {
            // This block defines the byte order of the section, and of its own length.
            self.order = match [i, j, k, l] {
                LITTLE => Order::Little,
                BIG => Order::Big,
                _ => return broken("a section of unknown byte order"),
            };
        }
        let kind = self.order.u32(kind);
        let len = usize::try_from(self.order.u32([e, f, g, h])).unwrap_or(usize::MAX);
        if len < HEAD_LEN + TAIL_LEN || len % 4 != 0 {
            return broken("a block of impossible length");
        }
        let known = matches!(kind, SHB_MAGIC | IDB_MAGIC | EPB_MAGIC | PB_MAGIC | SPB_MAGIC);
        let limit = if known { CAPACITY } else { LONGEST_SKIPPED };
        if len > limit {
            return Err(Problem::TooLong { len: len as u64, limit });
        }
        if !known {
            return self.skip(input, len);
        }
        let Some(block) = input.peek(len)?.and_then(|bytes| bytes.get(..len)) else {
            return Ok(Record::Truncated);
        };
        let (body, tail) = block.split_at(len - TAIL_LEN);
        self.check_tail(tail, len)?;
        // The block is at least as long as its head and tail.
        let body = body.get(HEAD_LEN..).unwrap_or_default();
        match kind {
            SHB_MAGIC => self.section(block)?,
            IDB_MAGIC => self.interface(block)?,
            EPB_MAGIC => return self.enhanced(body, len),
            PB_MAGIC => return self.obsolete(body, len),
            _ => return self.simple(body, len),
        }
        input.consume(len);
        Ok(Record::Other)
    }

    /// Skips a block, which may be longer than the input's buffer.
    fn skip(&self, input: &mut Input, len: usize) -> Result<Record, Problem> {
        if !input.skip(len - TAIL_LEN)? {
            return Ok(Record::Truncated);
        }
        let Some(tail) = input.peek(TAIL_LEN)? else { return Ok(Record::Truncated) };
        self.check_tail(tail, len)?;
        input.consume(TAIL_LEN);
        Ok(Record::Other)
    }

    fn check_tail(&self, tail: &[u8], len: usize) -> Result<(), Problem> {
        match self.order.fields(tail) {
            Some([again]) if usize::try_from(again) == Ok(len) => Ok(()),
            _ => broken("a block with different lengths at its beginning and end"),
        }
    }

    /// Section Header Block (section 4.1). Earlier interfaces belong to the previous section.
    fn section(&mut self, block: &[u8]) -> Result<(), Problem> {
        let Ok((_, header)) = parse_sectionheaderblock(block) else {
            return broken("a section with an invalid header");
        };
        if header.major_version != VERSION {
            return broken("a section whose version is not 1");
        }
        self.interfaces.clear();
        Ok(())
    }

    /// Interface Description Block (section 4.2).
    fn interface(&mut self, block: &[u8]) -> Result<(), Problem> {
        let parsed = match self.order {
            Order::Little => parse_interfacedescriptionblock_le(block),
            Order::Big => parse_interfacedescriptionblock_be(block),
        };
        let Ok((_, description)) = parsed else {
            return broken("an interface with an invalid description");
        };
        let Some(units_per_second) = units_per_second(description.if_tsresol) else {
            return broken("an interface with a too short unit of time");
        };
        if self.interfaces.len() == MAX_INTERFACES {
            return broken("more than 65536 interfaces");
        }
        self.interfaces.push(Interface {
            // The field has 16 bits.
            link: description.linktype.0.cast_unsigned(),
            snap_len: description.snaplen,
            units_per_second,
            offset: self.time_offset(&description),
        });
        Ok(())
    }

    /// if_tsoffset. Pcap-parser reads it in one byte order only.
    fn time_offset(&self, description: &InterfaceDescriptionBlock<'_>) -> i64 {
        let option =
            description.options.iter().find(|option| option.code == OptionCode::IfTsoffset);
        let bytes = option.and_then(|option| option.value.first_chunk());
        bytes.map_or(0, |bytes| self.order.i64(*bytes))
    }

    /// Enhanced Packet Block (section 4.3).
    fn enhanced(&self, body: &[u8], record: usize) -> Result<Record, Problem> {
        let Some([interface, high, low, kept, len]) = self.order.fields(body) else {
            return broken("a packet without its header");
        };
        self.packet(interface, Some([high, low]), bytes_of(body, 20, kept)?, len, record)
    }

    /// The obsolete Packet Block: its interface has 16 bits, and the number of dropped packets
    /// follows.
    fn obsolete(&self, body: &[u8], record: usize) -> Result<Record, Problem> {
        let (Some([_, high, low, kept, len]), Some(interface)) =
            (self.order.fields(body), body.first_chunk())
        else {
            return broken("a packet without its header");
        };
        let interface = self.order.u16(*interface).into();
        self.packet(interface, Some([high, low]), bytes_of(body, 20, kept)?, len, record)
    }

    /// Simple Packet Block (section 4.4). It belongs to the first interface, whose description
    /// limits the kept bytes.
    fn simple(&self, body: &[u8], record: usize) -> Result<Record, Problem> {
        let Some([len]) = self.order.fields(body) else {
            return broken("a packet without its header");
        };
        let kept = match self.interfaces.first() {
            Some(&Interface { snap_len: limit @ 1.., .. }) => len.min(limit),
            _ => len,
        };
        self.packet(0, None, bytes_of(body, 4, kept)?, len, record)
    }

    fn packet(
        &self,
        interface: u32,
        time: Option<[u32; 2]>,
        bytes: Range<usize>,
        len: u32,
        record: usize,
    ) -> Result<Record, Problem> {
        let known = usize::try_from(interface).ok().and_then(|number| self.interfaces.get(number));
        let Some(description) = known else {
            return broken("a packet of an interface without description");
        };
        let time = time.map(|[high, low]| description.time(high, low));
        Ok(Record::Packet(Entry { interface, link: description.link, time, record, bytes, len }))
    }
}

/// The place of a packet's `kept` bytes in the block, `header` bytes after the beginning of its
/// body.
fn bytes_of(body: &[u8], header: usize, kept: u32) -> Result<Range<usize>, Problem> {
    let kept = usize::try_from(kept).unwrap_or(usize::MAX);
    match body.get(header..).is_some_and(|bytes| kept <= bytes.len()) {
        true => Ok(HEAD_LEN + header..HEAD_LEN + header + kept),
        false => broken("a packet that is longer than its block"),
    }
}
