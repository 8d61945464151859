//! Capturing on one interface.
//!
//! [`Capture::open`] takes all the steps that can fail before the daemon reports that it is ready;
//! then a [`worker`](crate::worker) drains it. A packet costs no allocation, and with the ring no
//! system call.

mod bpf;
mod fanout;
mod portable;
mod ring;
pub mod settings;
mod socket;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use pnet_datalink::NetworkInterface;
use sidekick_protocol::{Flow, Payload, Seen};
use thiserror::Error;
use tracing::{debug, info, warn};

use crate::offload::{self, Merging};
use crate::packet::{self, Datagram, Link, Skip};
use portable::Portable;
use ring::{Memory, Ring};
use settings::{Backend, Settings};

/// Longest frame the kernel hands out: a merged frame of 64 KiB, its link header and tags, and the
/// virtio header.
const LONGEST_READ: usize = (1 << 16) + 256;
/// Frames that are handed on together.
pub const BATCH: usize = 32;

/// Why a capture cannot start, or has ended.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// No interface has this name.
    #[error("there is no interface {name} here; this machine has {available}")]
    NoSuchInterface {
        /// The name asked for.
        name: String,
        /// The names that exist, separated by commas.
        available: String,
    },
    /// The process may not open packet sockets.
    #[error(
        "capturing takes the CAP_NET_RAW capability: run as root, or grant it once with \
         `setcap cap_net_raw+ep {program}`"
    )]
    NotPermitted {
        /// The path of this program.
        program: String,
    },
    /// The interface carries neither Ethernet frames nor bare IP packets.
    #[error(
        "{name} has link type {hardware}, which is neither Ethernet nor bare IP: capture on another interface"
    )]
    UnsupportedLink {
        /// The interface.
        name: String,
        /// Its `ARPHRD_` number.
        hardware: u16,
    },
    /// The interface was removed while it was captured on.
    #[error("interface {name} has disappeared")]
    Gone {
        /// The interface.
        name: String,
    },
    /// The kernel fills no slot of the ring any more.
    #[error(
        "the ring of {name} is stuck, as Linux leaves it after a merged frame that it cannot describe; {}",
        offload::advice(name)
    )]
    Stuck {
        /// The interface.
        name: String,
    },
    /// Something else went wrong with the packet socket.
    #[error("capturing on {name} failed: {cause}")]
    Socket {
        /// The interface.
        name: String,
        /// What the system said.
        cause: io::Error,
    },
}

/// What one capture has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// UDP datagrams, those inside merged frames included.
    pub datagrams: u64,
    /// Merged frames that were split into their datagrams.
    pub split: u64,
    /// Merged frames that could not be split, and were therefore not counted at all.
    pub unsplit: u64,
    /// Fragments, which carry no identifier that could be relied on.
    pub fragments: u64,
    /// Frames whose headers contradict themselves.
    pub malformed: u64,
    /// Packets that the kernel had no room for, and those that were thrown away since it may have
    /// had none between them.
    pub dropped: u64,
}

impl Counters {
    /// Adds what was seen elsewhere.
    pub fn add(&mut self, other: &Self) {
        self.datagrams += other.datagrams;
        self.split += other.split;
        self.unsplit += other.unsplit;
        self.fragments += other.fragments;
        self.malformed += other.malformed;
        self.dropped += other.dropped;
    }
}

/// A frame as it was captured.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// What the kernel says of it.
    pub merging: Merging,
    /// Its first bytes: all, or as many as were kept.
    pub bytes: &'a [u8],
    /// Its length.
    pub len: usize,
}

/// What was taken of the frames that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// So many were handed on.
    Frames(usize),
    /// So many were thrown away: others are missing right before them, among them, or right after.
    Gap(usize),
}

/// What a capture tells, in the order in which it happened.
#[derive(Clone, Copy, Debug)]
pub enum Captured<'a> {
    /// Datagrams, none missing between them.
    Seen(&'a [Seen<'a>]),
    /// Datagrams that nobody saw: the kernel had no room for them, or could not say what they were.
    Missed,
}

/// Where frames come from: a packet socket that is read in one way or another.
pub trait Source: AsFd + Send {
    /// What it is called in logs and metrics.
    fn name(&self) -> &'static str;

    /// As many frames at most as can wait in it: who has drained so many has seen all that were
    /// there when he began.
    fn most_waiting(&self) -> usize;

    /// Hands on frames that wait, at most [`BATCH`] of them, in one piece. It never waits itself.
    ///
    /// # Errors
    /// When the socket says so; none was handed on then.
    fn drain(&mut self, all: &mut dyn FnMut(&[Frame<'_>])) -> io::Result<Drained>;

    /// The error that is pending on the socket, which this clears.
    fn take_error(&mut self) -> Errno;

    /// Asks the kernel for how many packets it had no room since the beginning. If they have become
    /// more, the next calls of [`drain`](Self::drain) throw away all frames that wait now: who asks
    /// clears the marks by which it could be told where among them the hole is.
    fn ask(&mut self) -> u64;

    /// What was last heard of that.
    fn dropped(&self) -> u64;

    /// Whether nothing will come any more, however many packets there are.
    fn is_stuck(&self) -> bool {
        false
    }
}

/// An open capture on one interface, or the share of one thread in it.
pub struct Capture {
    name: String,
    /// The kernel's number of the interface.
    index: u32,
    link: Link,
    source: Box<dyn Source>,
    counters: Counters,
    /// The interface is down; said once.
    down: bool,
    /// Frames that were thrown away.
    thrown_away: u64,
    /// Drops that were told.
    told: u64,
    /// Frames were thrown away after those that were handed on last.
    in_gap: bool,
    /// A frame was skipped that may have held datagrams.
    missed: bool,
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture")
            .field("name", &self.name)
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}

impl AsFd for Capture {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

impl Capture {
    /// Opens captures on the interface called `name`, one for each thread; the kernel hands each
    /// the packets of the sources that it serves.
    ///
    /// # Errors
    /// When there is no such interface, when the process lacks the privilege, and when the link
    /// type is not supported.
    pub fn open(name: &str, settings: Settings) -> Result<Vec<Self>, CaptureError> {
        let interface = find(name)?;
        let failed = |cause: io::Error| match cause.kind() {
            io::ErrorKind::PermissionDenied => CaptureError::NotPermitted { program: program() },
            _ => CaptureError::Socket { name: name.to_owned(), cause },
        };
        let mut captures = Vec::new();
        for thread in 0..settings.threads.max(1) {
            captures.push(Self::open_one(&interface, settings, thread == 0).map_err(|error| {
                match error {
                    Refused::Link(hardware) => {
                        CaptureError::UnsupportedLink { name: name.to_owned(), hardware }
                    }
                    Refused::System(error) => failed(error),
                }
            })?);
        }
        let sockets: Vec<_> = captures.iter().map(|capture| capture.source.as_fd()).collect();
        if !fanout::share(&sockets).map_err(failed)? {
            warn!(
                "this kernel also captures what leaves through {name}, where threads share it: one thread spares that"
            );
        }
        if let Some(Self { link, source, .. }) = captures.first() {
            info!("capturing on {name} by {}, whose packets begin with {link}", source.name());
        }
        Ok(captures)
    }

    /// `tell`: log what the operator should know of this interface.
    fn open_one(
        interface: &NetworkInterface,
        settings: Settings,
        tell: bool,
    ) -> Result<Self, Refused> {
        let name = &interface.name;
        let (socket, granted) = socket::open(settings.buffer)?;
        if tell && !granted.merging_told {
            warn!(
                "this kernel does not tell merged frames apart on {name}: {}",
                offload::advice(name)
            );
        }
        if tell && !granted.incoming_only {
            warn!(
                "this kernel also captures what leaves through {name}: packets may be seen twice"
            );
        }
        let ring = match settings.backend {
            Backend::Pnet => None,
            Backend::Ring => Some(Memory::under(&socket, settings.buffer)?),
            Backend::Auto if granted.merging_told && !socket::describes_merged_datagrams() => {
                if tell {
                    info!(
                        "no ring on {name}: this kernel is older than 6.2, and a merged frame would stop it"
                    );
                }
                None
            }
            Backend::Auto => Memory::under(&socket, settings.buffer)
                .inspect_err(|error| {
                    warn!("no ring on {name} ({error}): each packet takes system calls");
                })
                .ok(),
        };
        let receiver = socket::bind(&socket, interface, settings.promiscuous)?;
        let link = socket::link(&socket)?.map_err(Refused::Link)?;
        // The filter only saves work: without it the parser discards the same packets.
        if let Err(error) = socket::keep_udp(&socket, link) {
            debug!("no filter on {name}: {error}");
        }
        let source: Box<dyn Source> = match ring {
            Some(memory) => Box::new(Ring::new(socket, memory, granted.merging_told)),
            None => Box::new(Portable::new(socket, receiver, granted.merging_told)),
        };
        Ok(Self {
            name: name.clone(),
            index: interface.index,
            link,
            source,
            counters: Counters::default(),
            down: false,
            thrown_away: 0,
            told: 0,
            in_gap: false,
            missed: false,
        })
    }

    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How packets are captured: `ring` or `pnet`.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.source.name()
    }

    /// Whether the interface was up when that was seen last.
    #[must_use]
    pub fn is_up(&self) -> bool {
        !self.down
    }

    /// What has been seen until now.
    pub fn counters(&mut self) -> Counters {
        let dropped = self.source.ask() + self.thrown_away;
        Counters { dropped, ..self.counters }
    }

    /// Asks the kernel for drops; [`has_missed`](Self::has_missed) tells of them.
    pub fn ask(&mut self) {
        self.source.ask();
    }

    /// Whether datagrams were missed since this was told last, be it here or by
    /// [`drain`](Self::drain): all that is handed on next came after them.
    pub fn has_missed(&mut self) -> bool {
        let more = self.source.dropped() > self.told;
        self.told = self.source.dropped();
        std::mem::take(&mut self.missed) || more
    }

    /// As many frames at most as can wait: who has drained so many has seen all that were there
    /// when he began.
    #[must_use]
    pub fn most_waiting(&self) -> usize {
        self.source.most_waiting()
    }

    /// Hands on the datagrams of frames that wait, at most [`BATCH`] frames, and says how many were
    /// taken. Those of merged frames are handed on one by one, as they will be on the wire.
    ///
    /// # Errors
    /// Why nothing can be captured any more.
    pub fn drain(&mut self, all: &mut dyn FnMut(Captured<'_>)) -> Result<usize, CaptureError> {
        if self.has_missed() {
            all(Captured::Missed);
        }
        let Self { name, link, source, counters, .. } = self;
        let outcome = source.drain(&mut |frames| deliver(name, *link, frames, counters, all));
        match outcome {
            Ok(drained) => {
                let taken = match drained {
                    Drained::Frames(taken) => {
                        self.in_gap &= taken == 0;
                        taken
                    }
                    Drained::Gap(taken) => {
                        self.thrown_away += taken as u64;
                        // A gap is told once, and when it has grown: nothing is handed on before it
                        // ends.
                        if self.has_missed() || !self.in_gap {
                            all(Captured::Missed);
                        }
                        self.in_gap = true;
                        taken
                    }
                };
                if taken > 0 && self.down {
                    self.down = false;
                    info!("{} is up again", self.name);
                }
                Ok(taken)
            }
            Err(error) => {
                let errno = error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw);
                // A frame that cannot be described was taken all the same, and others may wait
                // behind it.
                self.recover(errno).map(|()| usize::from(errno == Errno::EINVAL))
            }
        }
    }

    /// To be called when the socket has an error to tell, and about every second.
    ///
    /// # Errors
    /// Why nothing can be captured any more.
    pub fn look_after(&mut self) -> Result<(), CaptureError> {
        self.source.ask();
        if self.source.is_stuck() {
            return Err(CaptureError::Stuck { name: self.name.clone() });
        }
        let errno = self.source.take_error();
        // Going down may be the first half of going away, and the second half is not always
        // reported.
        if errno as i32 == 0 && !self.down { Ok(()) } else { self.recover(errno) }
    }

    /// Decides whether the capture goes on after an error.
    fn recover(&mut self, errno: Errno) -> Result<(), CaptureError> {
        match errno {
            Errno::EINTR | Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM => Ok(()),
            // What a kernel before 6.2 answers for merged UDP datagrams, which its virtio header
            // cannot describe.
            Errno::EINVAL => {
                count_unsplit(&self.name, &mut self.counters);
                self.missed = true;
                Ok(())
            }
            Errno::ENETDOWN | Errno::ENODEV | Errno::ENXIO | Errno::UnknownErrno => {
                // By its number: an interface may be renamed while it is down.
                let interfaces = pnet_datalink::interfaces();
                match interfaces.iter().find(|interface| interface.index == self.index) {
                    None => Err(CaptureError::Gone { name: self.name.clone() }),
                    Some(interface) => {
                        if interface.is_up() && self.down {
                            self.down = false;
                            info!("{} is up again", self.name);
                        } else if !interface.is_up() && !self.down {
                            self.down = true;
                            warn!("{} is down: nothing is counted until it is up again", self.name);
                        }
                        Ok(())
                    }
                }
            }
            _ => Err(CaptureError::Socket { name: self.name.clone(), cause: errno.into() }),
        }
    }
}

/// Why a capture cannot be opened.
enum Refused {
    /// The link type has this number.
    Link(u16),
    System(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// Datagrams that are handed on together.
#[derive(Debug)]
pub struct Batch<'a> {
    seen: [Seen<'a>; BATCH],
    len: usize,
}

impl Default for Batch<'_> {
    fn default() -> Self {
        let nobody = SocketAddr::from(([0; 4], 0));
        let flow = Flow { source: nobody, destination: nobody };
        Self { seen: [Seen { flow, payload: Payload::whole(&[]) }; BATCH], len: 0 }
    }
}

impl<'a> Batch<'a> {
    /// Puts one in; false, and nothing done, if there is no room.
    pub fn push(&mut self, seen: Seen<'a>) -> bool {
        let place = self.seen.get_mut(self.len);
        self.len += usize::from(place.is_some());
        place.map(|place| *place = seen).is_some()
    }

    /// Those that are in.
    #[must_use]
    pub fn seen(&self) -> &[Seen<'a>] {
        self.seen.get(..self.len).unwrap_or_default()
    }

    /// Hands on those that are in, and takes them out.
    fn flush(&mut self, all: &mut dyn FnMut(Captured<'_>)) {
        if self.len > 0 {
            all(Captured::Seen(self.seen()));
            self.len = 0;
        }
    }
}

/// Parses frames and hands their datagrams on, in their order.
fn deliver(
    name: &str,
    link: Link,
    frames: &[Frame<'_>],
    counters: &mut Counters,
    all: &mut dyn FnMut(Captured<'_>),
) {
    let mut batch = Batch::default();
    for frame in frames {
        let Datagram { flow, payload, len } = match packet::parse(link, frame.bytes, frame.len) {
            Ok(datagram) => datagram,
            Err(Skip::NotUdp) => continue,
            Err(Skip::Fragment) => {
                counters.fragments += 1;
                continue;
            }
            Err(Skip::Malformed | Skip::Cut) => {
                counters.malformed += 1;
                continue;
            }
        };
        let mut hand_on = |payload| {
            counters.datagrams += 1;
            if !batch.push(Seen { flow, payload }) {
                batch.flush(all);
                batch.push(Seen { flow, payload });
            }
        };
        match frame.merging {
            Merging::Single => hand_on(Datagram { flow, payload, len }.payload()),
            // Of a train that was cut, nobody knows the end.
            Merging::Datagrams { each } if payload.len() == len => {
                payload.chunks(each.max(1)).for_each(|one| hand_on(Payload::whole(one)));
                counters.split += 1;
            }
            Merging::Fragments => counters.fragments += 1,
            Merging::Datagrams { .. } | Merging::Other => {
                count_unsplit(name, counters);
                batch.flush(all);
                all(Captured::Missed);
            }
        }
    }
    batch.flush(all);
}

/// Counts a merged frame whose datagrams are lost to the sums, and says once what to do about it.
fn count_unsplit(name: &str, counters: &mut Counters) {
    if counters.unsplit == 0 {
        warn!(
            "{name} delivers merged frames that this kernel cannot split, so their datagrams are not counted: {}",
            offload::advice(name)
        );
    }
    counters.unsplit += 1;
}

fn find(name: &str) -> Result<NetworkInterface, CaptureError> {
    let mut names = Vec::new();
    for interface in pnet_datalink::interfaces() {
        if interface.name == name {
            return Ok(interface);
        }
        names.push(interface.name);
    }
    let available = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Err(CaptureError::NoSuchInterface { name: name.to_owned(), available })
}

fn program() -> String {
    std::env::current_exe()
        .map_or_else(|_| "sidekick-proxy".to_owned(), |path| path.display().to_string())
}
