//! Capture files: pcap and pcapng.
//!
//! The reader streams a file record by record, and allocates nothing for a packet: Pcap-parser
//! reads the files' headers and the descriptions of interfaces, the reader itself the few fixed
//! fields before each packet. It trusts no length in a file: each has a bound.

mod link;
mod pcap;
mod pcapng;
mod record;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail, ensure};

use crate::packet::{self, Datagram, Link, Skip};
use link::Shape;
use pcap::Pcap;
use pcapng::Pcapng;
use record::{Input, Record};

/// A packet of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// The number of the capturing interface: in pcapng the number in its section, otherwise 0.
    pub interface: u32,
    /// The first header of `bytes`. `None` if that is neither an Ethernet nor an IP header.
    pub link: Option<Link>,
    /// The time of the capture, since the beginning of 1970 (UTC). Simple Packet Blocks have none.
    pub time: Option<Duration>,
    /// The packet's first bytes, or all, without headers that the capturing program added.
    pub bytes: &'a [u8],
    /// The packet's length on the wire, at least that of `bytes`.
    pub len: usize,
}

impl<'a> Frame<'a> {
    /// Finds the UDP datagram in the packet.
    ///
    /// # Errors
    /// [`Skip`] says why there is none.
    #[inline]
    pub(crate) fn datagram(&self) -> Result<Datagram<'a>, Skip> {
        packet::parse(self.link.ok_or(Skip::NotUdp)?, self.bytes, self.len)
    }
}

/// A capture file, read from its beginning to its end.
#[derive(Debug)]
pub(crate) struct CaptureFile {
    name: String,
    input: Input,
    format: Format,
    packets: u64,
    ended: bool,
    truncated: bool,
}

#[derive(Debug)]
enum Format {
    Pcap(Pcap),
    Pcapng(Pcapng),
}

impl CaptureFile {
    /// Opens the file at `path`, or standard input for `-`, and reads its header.
    ///
    /// # Errors
    /// When the file cannot be read, is not a capture file, or is a pcap file of an unsupported
    /// link type.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Self::read("standard input".to_owned(), Box::new(io::stdin()));
        }
        let file = path.display().to_string();
        match File::open(path) {
            Ok(source) => Self::read(file, Box::new(source)),
            Err(cause) => bail!("cannot open {file}: {cause}"),
        }
    }

    /// Reads the header of `source`, which errors call `name`.
    ///
    /// # Errors
    /// As [`CaptureFile::open`].
    pub(crate) fn read(name: String, source: Box<dyn Read + Send>) -> Result<Self> {
        let (mut input, format) = (Input::new(source), Format::Pcapng(Pcapng::default()));
        let begins = input.fill(4);
        let magic = input.record.first_chunk::<4>().copied();
        let mut file = Self { name, input, format, packets: 0, ended: false, truncated: false };
        begins.map_err(|cause| file.error(&cause))?;
        let name = &file.name;
        match magic {
            // gzip, zstd, xz and lz4.
            Some(
                [0x1f, 0x8b, ..]
                | [0x28, 0xb5, 0x2f, 0xfd]
                | [0xfd, b'7', b'z', b'X']
                | [0x04, 0x22, 0x4d, 0x18],
            ) => bail!(
                "{name} is compressed: decompress it first to pcap or pcapng, or pipe it in as `-`"
            ),
            Some(magic) if pcap::is_one(magic) => file.format = Format::Pcap(Pcap::default()),
            Some(magic) => ensure!(
                magic == pcapng::MAGIC,
                "{name} is not a capture file: it is neither pcap nor pcapng"
            ),
            None => {}
        }
        let header = match &mut file.format {
            Format::Pcap(pcap) => pcap.header(&mut file.input),
            Format::Pcapng(pcapng) => pcapng.record(&mut file.input),
        };
        let header = header.map_err(|cause| file.error(&cause))?;
        if matches!(header, Record::Truncated | Record::End) {
            bail!("{} ends within its header, and contains no packet", file.name);
        }
        if let Format::Pcap(pcap) = &file.format {
            file.shape(pcap.link)?;
        }
        Ok(file)
    }

    /// The number of packets read so far.
    #[must_use]
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// Whether the file ended within a packet, as after the capturing program was killed. Known
    /// once [`CaptureFile::next`] has returned `None`.
    #[must_use]
    pub(crate) fn truncated(&self) -> bool {
        self.truncated
    }

    /// The next packet; `None` at the file's end. After an error there are no more packets.
    ///
    /// # Errors
    /// When the file cannot be read further, or has a packet of an unsupported link type.
    #[allow(
        clippy::should_implement_trait,
        reason = "an iterator cannot lend the buffer to its items"
    )]
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>> {
        if self.ended {
            return Ok(None);
        }
        // After an error.
        self.ended = true;
        let entry = loop {
            self.input.next_record();
            let record = match &mut self.format {
                Format::Pcap(pcap) => pcap.record(&mut self.input),
                Format::Pcapng(pcapng) => pcapng.record(&mut self.input),
            };
            match record.map_err(|cause| self.error(&cause))? {
                Record::Packet(entry) => break entry,
                Record::Other => {}
                end @ (Record::End | Record::Truncated) => {
                    self.truncated = matches!(end, Record::Truncated);
                    return Ok(None);
                }
            }
        };
        let shape = self.shape(entry.link)?;
        self.ended = false;
        self.packets += 1;
        let bytes = self.input.record.get(entry.bytes).unwrap_or_default();
        // A few programs write a smaller length than that of the bytes that follow.
        let len = usize::try_from(entry.len).unwrap_or(usize::MAX);
        let bytes = bytes.get(..len).unwrap_or(bytes);
        let (link, bytes, len) = shape.unwrap(bytes, len);
        Ok(Some(Frame { interface: entry.interface, link, time: entry.time, bytes, len }))
    }

    /// The shape of the next packet, which has this link type.
    fn shape(&self, link: u32) -> Result<Shape> {
        let (name, packet) = (&self.name, self.packets + 1);
        Shape::of(link).with_context(|| {
            format!(
                "{name} has packets of link type {link} (packet {packet} is the first); {}",
                link::SUPPORTED
            )
        })
    }

    /// The error for what is wrong with the current record, or with reading it.
    fn error(&self, cause: &Error) -> Error {
        let (name, offset, packets) = (&self.name, self.input.offset, self.packets);
        if cause.is::<io::Error>() {
            anyhow!("reading {name} failed at byte {offset}: {cause}")
        } else {
            anyhow!("{name} is broken at byte {offset}, after {packets} packets: {cause}")
        }
    }
}

#[cfg(test)]
mod tests;
