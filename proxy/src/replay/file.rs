//! Capture files: pcap and pcapng.
//!
//! A file is read as a stream through a buffer that never grows, and nothing is allocated for a
//! packet. The files' headers and the descriptions of interfaces are read by pcap-parser; the few
//! fixed fields before each packet are read in place. All lengths in a file are hostile: none is
//! waited for, skipped or believed beyond a bound.

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

/// Why a capture file cannot be read, or cannot be read on.
#[derive(Debug, Error)]
pub(crate) enum FileError {
    /// The file cannot be opened.
    #[error("cannot open {file}: {cause}")]
    Open {
        /// The file's name.
        file: String,
        /// What the system said.
        cause: io::Error,
    },
    /// The file cannot be read.
    #[error("reading {file} failed at byte {offset}: {cause}")]
    Read {
        /// The file's name.
        file: String,
        /// How many bytes of it were read before.
        offset: u64,
        /// What the system said.
        cause: io::Error,
    },
    /// It does not begin as a capture file does.
    #[error("{file} is no capture file: it is neither pcap nor pcapng")]
    NotACapture {
        /// The file's name.
        file: String,
    },
    /// It is compressed.
    #[error(
        "{file} is compressed, and only pcap and pcapng are read: decompress it first, or pipe it in as `-`"
    )]
    Compressed {
        /// The file's name.
        file: String,
    },
    /// It ends before its header does.
    #[error("{file} ends within its header, so that no packet is in it")]
    NoHeader {
        /// The file's name.
        file: String,
    },
    /// Its packets begin with something else than the headers that are known here.
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
    /// A block claims to be longer than any should be.
    #[error(
        "{file} is broken at byte {offset}, behind {packets} packets: a packet or block of {len} bytes, and at most \
         {limit} are read"
    )]
    TooLong {
        /// The file's name.
        file: String,
        /// Where in the file it begins.
        offset: u64,
        /// How many packets go before it.
        packets: u64,
        /// The length that it says it has.
        len: u64,
        /// The most that is read of its kind.
        limit: u64,
    },
    /// What the file says contradicts itself or the format.
    #[error("{file} is broken at byte {offset}, behind {packets} packets: {what}")]
    Broken {
        /// The file's name.
        file: String,
        /// Where in the file the block begins that makes no sense.
        offset: u64,
        /// How many packets go before it.
        packets: u64,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// A packet of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    /// The number of the interface that it was captured on: in pcapng that of its section,
    /// otherwise 0.
    pub interface: u32,
    /// What `bytes` begin with. `None` if they are neither an Ethernet nor an IP header, but of
    /// another protocol.
    pub link: Option<Link>,
    /// When it was captured, since the beginning of 1970 (UTC). Simple Packet Blocks do not say.
    pub time: Option<Duration>,
    /// Its first bytes, or all. Headers that the capture has put before the packet are not among
    /// them.
    pub bytes: &'a [u8],
    /// Bytes that it had, never less than are here.
    pub len: usize,
}

impl<'a> Frame<'a> {
    /// Finds the UDP datagram in it.
    ///
    /// # Errors
    /// [`Skip`] says why there is none.
    #[inline]
    pub(crate) fn datagram(&self) -> Result<Datagram<'a>, Skip> {
        packet::parse(self.link.ok_or(Skip::NotUdp)?, self.bytes, self.len)
    }
}

/// A capture file that is read from its beginning to its end.
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
    /// When it cannot be read, is no capture file, or a pcap file of a link type that is not known
    /// here.
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

    /// Begins to read `source`, which errors call `name`.
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

    /// How many packets it has given.
    #[must_use]
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// Whether the file ended in the middle of a packet, as that of a capture does that was killed.
    /// Known once [`CaptureFile::next`] has given `None`.
    #[must_use]
    pub(crate) fn truncated(&self) -> bool {
        self.truncated
    }

    /// The next packet; `None` at the file's end. Behind an error there is nothing more.
    ///
    /// # Errors
    /// When the file cannot be read on, and when it has a packet of a link type that is not known
    /// here.
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
        // A few writers say that a packet was shorter than what they have of it.
        let len = usize::try_from(entry.len).unwrap_or(usize::MAX);
        let bytes = bytes.get(..len).unwrap_or(bytes);
        let (link, bytes, len) = shape.unwrap(bytes, len);
        Ok(Some(Frame { interface: entry.interface, link, time: entry.time, bytes, len }))
    }

    /// What there is to say about a problem with what begins at `offset`.
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
