//! Capture files: pcap and pcapng.
//!
//! The reader streams a file through a buffer of constant size, and allocates nothing for a packet.
//! Pcap-parser reads the files' headers and the descriptions of interfaces. The reader itself reads
//! the few fixed fields before each packet. It trusts no length in a file: each has a bound.

mod input;
mod link;
mod pcap;
mod pcapng;
mod record;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use thiserror::Error;

use crate::packet::{self, Datagram, Link, Skip};
use input::Input;
use link::Shape;
use pcap::Pcap;
use pcapng::Pcapng;
use record::{Problem, Record};

/// Why a capture file cannot be read, or not to its end.
#[derive(Debug, Error)]
pub(crate) enum FileError {
    /// The file cannot be opened.
    #[error("cannot open {file}: {cause}")]
    Open {
        /// The file's name.
        file: String,
        /// The error of the system.
        cause: io::Error,
    },
    /// The file cannot be read.
    #[error("reading {file} failed at byte {offset}: {cause}")]
    Read {
        /// The file's name.
        file: String,
        /// The bytes read before.
        offset: u64,
        /// The error of the system.
        cause: io::Error,
    },
    /// The file does not begin as a capture file does.
    #[error("{file} is not a capture file: it is neither pcap nor pcapng")]
    NotACapture {
        /// The file's name.
        file: String,
    },
    /// The file is compressed.
    #[error("{file} is compressed: decompress it first to pcap or pcapng, or pipe it in as `-`")]
    Compressed {
        /// The file's name.
        file: String,
    },
    /// The file ends within its header.
    #[error("{file} ends within its header, and contains no packet")]
    NoHeader {
        /// The file's name.
        file: String,
    },
    /// The file has packets of an unsupported link type.
    #[error(
        "{file} has packets of link type {link} (packet {packet} is the first); {}",
        link::SUPPORTED
    )]
    UnsupportedLink {
        /// The file's name.
        file: String,
        /// The number of the link type, a `LINKTYPE_`.
        link: u32,
        /// The number of the first packet of that type, from 1.
        packet: u64,
    },
    /// A packet or block is too long.
    #[error(
        "{file} is broken at byte {offset}, after {packets} packets: a packet or block has {len} \
         bytes, and the limit is {limit}"
    )]
    TooLong {
        /// The file's name.
        file: String,
        /// Where the packet or block begins in the file.
        offset: u64,
        /// The number of packets before it.
        packets: u64,
        /// Its length.
        len: u64,
        /// The limit.
        limit: u64,
    },
    /// The file contradicts itself or the format.
    #[error("{file} is broken at byte {offset}, after {packets} packets: {what}")]
    Broken {
        /// The file's name.
        file: String,
        /// Where the invalid block begins in the file.
        offset: u64,
        /// The number of packets before it.
        packets: u64,
        /// What is wrong.
        what: &'static str,
    },
}

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
    pub(crate) fn open(path: &Path) -> Result<Self, FileError> {
        if path == Path::new("-") {
            return Self::read("standard input".to_owned(), Box::new(io::stdin()));
        }
        let file = path.display().to_string();
        match File::open(path) {
            Ok(source) => Self::read(file, Box::new(source)),
            Err(cause) => Err(FileError::Open { file, cause }),
        }
    }

    /// Reads the header of `source`, which errors call `name`.
    ///
    /// # Errors
    /// As [`CaptureFile::open`].
    pub(crate) fn read(name: String, source: Box<dyn Read + Send>) -> Result<Self, FileError> {
        let mut input = Input::new(source);
        let magic = match input.peek(4) {
            Ok(Some(&[a, b, c, d, ..])) => [a, b, c, d],
            Ok(_) => return Err(FileError::NoHeader { file: name }),
            Err(cause) => return Err(FileError::Read { file: name, offset: 0, cause }),
        };
        let format = match magic {
            pcapng::MAGIC => Format::Pcapng(Pcapng::default()),
            // gzip, zstd, xz and lz4.
            [0x1f, 0x8b, ..]
            | [0x28, 0xb5, 0x2f, 0xfd]
            | [0xfd, b'7', b'z', b'X']
            | [0x04, 0x22, 0x4d, 0x18] => {
                return Err(FileError::Compressed { file: name });
            }
            _ if pcap::is_one(magic) => Format::Pcap(Pcap::default()),
            _ => return Err(FileError::NotACapture { file: name }),
        };
        let mut file = Self { name, input, format, packets: 0, ended: false, truncated: false };
        let header = match &mut file.format {
            Format::Pcap(pcap) => pcap.header(&mut file.input),
            Format::Pcapng(pcapng) => pcapng.record(&mut file.input),
        };
        match header {
            Ok(Record::Truncated | Record::End) => {
                return Err(FileError::NoHeader { file: file.name });
            }
            Ok(_) => {}
            Err(problem) => return Err(file.error(problem, 0)),
        }
        if let Format::Pcap(pcap) = &file.format
            && Shape::of(pcap.link()).is_none()
        {
            return Err(FileError::UnsupportedLink {
                file: file.name,
                link: pcap.link(),
                packet: 1,
            });
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
    pub(crate) fn next(&mut self) -> Result<Option<Frame<'_>>, FileError> {
        let entry = loop {
            if self.ended {
                return Ok(None);
            }
            let at = self.input.offset();
            let record = match &mut self.format {
                Format::Pcap(pcap) => pcap.record(&mut self.input),
                Format::Pcapng(pcapng) => pcapng.record(&mut self.input),
            };
            match record {
                Ok(Record::Packet(entry)) => break entry,
                Ok(Record::Other) => {}
                Ok(Record::End) => self.ended = true,
                Ok(Record::Truncated) => {
                    self.ended = true;
                    self.truncated = true;
                }
                Err(problem) => {
                    self.ended = true;
                    return Err(self.error(problem, at));
                }
            }
        };
        let Some(shape) = Shape::of(entry.link) else {
            self.ended = true;
            let (file, packet) = (self.name.clone(), self.packets + 1);
            return Err(FileError::UnsupportedLink { file, link: entry.link, packet });
        };
        self.packets += 1;
        let bytes = self.input.consume(entry.record).get(entry.bytes).unwrap_or_default();
        // A few programs write a smaller length than that of the bytes that follow.
        let len = usize::try_from(entry.len).unwrap_or(usize::MAX);
        let bytes = bytes.get(..len).unwrap_or(bytes);
        let (link, bytes, len) = shape.unwrap(bytes, len);
        Ok(Some(Frame { interface: entry.interface, link, time: entry.time, bytes, len }))
    }

    /// The error for a problem with the record at `offset`.
    fn error(&self, problem: Problem, offset: u64) -> FileError {
        let (file, packets) = (self.name.clone(), self.packets);
        match problem {
            Problem::Read(cause) => FileError::Read { file, offset, cause },
            Problem::TooLong { len, limit } => {
                FileError::TooLong { file, offset, packets, len, limit: limit as u64 }
            }
            Problem::Broken(what) => FileError::Broken { file, offset, packets, what },
        }
    }
}

#[cfg(test)]
mod tests;
