//! Fields that several datagrams share: addresses, flows and terms.

use super::cursor::{Reader, Writer};
use super::{BufferTooShort, ParseError};
use crate::clock::micros;
use crate::identify::{Filter, Flow, Identification, Position};
use crate::terms::Terms;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::time::Duration;

/// The offset that stands for the payload's last four bytes.
const AT_END: u16 = 0xffff;
/// The offset that stands for a hash of the whole payload.
const WHOLE: u16 = 0xfffe;

/// `value`, or an error if it is 0.
pub(super) fn nonzero<T: PartialEq + From<u8>>(
    value: T,
    field: &'static str,
) -> Result<T, ParseError> {
    if value == T::from(0) { Err(ParseError::Field(field)) } else { Ok(value) }
}

/// The address family of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    fn of(ip: IpAddr) -> Self {
        if ip.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    fn read(r: &mut Reader<'_>) -> Result<Self, ParseError> {
        match r.u8()? {
            4 => Ok(Self::V4),
            6 => Ok(Self::V6),
            _ => Err(ParseError::Field("address family")),
        }
    }

    fn write(self, w: &mut Writer<'_>) -> Result<(), BufferTooShort> {
        w.put(&[match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }])
    }

    fn address(self, r: &mut Reader<'_>, port: &'static str) -> Result<SocketAddr, ParseError> {
        let ip: IpAddr = match self {
            Self::V4 => r.array::<4>()?.into(),
            Self::V6 => r.array::<16>()?.into(),
        };
        Ok(SocketAddr::new(ip, nonzero(r.u16()?, port)?))
    }
}

fn write_bare(w: &mut Writer<'_>, address: SocketAddr) -> Result<(), BufferTooShort> {
    match address.ip() {
        IpAddr::V4(ip) => w.put(&ip.octets())?,
        IpAddr::V6(ip) => w.put(&ip.octets())?,
    }
    w.put(&address.port().to_be_bytes())
}

/// Reads one family byte, then both endpoints.
pub(super) fn read_flow(r: &mut Reader<'_>) -> Result<Flow, ParseError> {
    let family = Family::read(r)?;
    Ok(Flow {
        source: family.address(r, "source port")?,
        destination: family.address(r, "destination port")?,
    })
}

/// Writes a flow. If its endpoints differ in family, the IPv4 one becomes IPv4-mapped.
pub(super) fn write_flow(w: &mut Writer<'_>, flow: &Flow) -> Result<(), BufferTooShort> {
    let ends = [flow.source, flow.destination];
    let v4 = ends.iter().all(SocketAddr::is_ipv4);
    if v4 { Family::V4 } else { Family::V6 }.write(w)?;
    for end in ends {
        match end.ip() {
            IpAddr::V4(ip) if !v4 => {
                write_bare(w, SocketAddr::new(ip.to_ipv6_mapped().into(), end.port()))?;
            }
            _ => write_bare(w, end)?,
        }
    }
    Ok(())
}

pub(super) fn read_address(
    r: &mut Reader<'_>,
    port: &'static str,
) -> Result<SocketAddr, ParseError> {
    Family::read(r)?.address(r, port)
}

pub(super) fn write_address(w: &mut Writer<'_>, address: SocketAddr) -> Result<(), BufferTooShort> {
    Family::of(address.ip()).write(w)?;
    write_bare(w, address)
}

pub(super) fn read_terms(r: &mut Reader<'_>) -> Result<Terms, ParseError> {
    let threshold = nonzero(r.u8()?, "threshold")?;
    let every_packets = NonZeroU16::new(r.u16()?);
    let every = r.u32()?;
    let position = match r.u16()? {
        AT_END => Position::End,
        WHOLE => Position::Whole,
        offset if offset <= Position::MAX_OFFSET => Position::Offset(offset),
        _ => return Err(ParseError::Field("identifier offset")),
    };
    let filter = match r.u8()? {
        0 => Filter::All,
        1 => Filter::QuicShortHeader,
        _ => return Err(ParseError::Field("filter")),
    };
    let every = (every != 0).then(|| Duration::from_micros(every.into()));
    Ok(Terms {
        threshold,
        every_packets,
        every,
        identification: Identification { position, filter },
    })
}

pub(super) fn write_terms(w: &mut Writer<'_>, terms: &Terms) -> Result<(), BufferTooShort> {
    w.put(&[terms.threshold])?;
    w.put(&terms.every_packets.map_or(0, NonZeroU16::get).to_be_bytes())?;
    w.put(&terms.every.map_or(0, |every| micros(every).max(1)).to_be_bytes())?;
    let offset = match terms.identification.position {
        Position::Offset(offset) => offset,
        Position::End => AT_END,
        Position::Whole => WHOLE,
    };
    w.put(&offset.to_be_bytes())?;
    w.put(&[match terms.identification.filter {
        Filter::All => 0,
        Filter::QuicShortHeader => 1,
    }])
}
