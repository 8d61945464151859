//! Capturing on one interface, through pnet.
//!
//! [`Capture::open`] takes all the steps that can fail before the daemon reports that it is ready;
//! [`Capture::run`] is the thread's body. Per packet it costs the two system calls pnet makes (poll, then
//! receive) and no allocation.

mod queue;
mod socket;

use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use nix::errno::Errno;
use pnet_datalink::{Channel, Config, DataLinkReceiver, NetworkInterface};
use sidekick_protocol::Flow;
use thiserror::Error;
use tracing::{debug, info, warn};

use crate::offload::{self, Merging};
use crate::packet::{self, Link, Skip};
pub use queue::Queue;

/// Longest frame the kernel hands out: a merged frame of 64 KiB, its link header and tags, and the virtio
/// header.
const LONGEST_READ: usize = (1 << 16) + 256;
/// How often a silent capture looks whether its interface still exists. Packets do not wait for it.
const LIVENESS_INTERVAL: Duration = Duration::from_secs(1);

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
    /// Something else went wrong with the packet socket.
    #[error("capturing on {name} failed: {cause}")]
    Socket {
        /// The interface.
        name: String,
        /// What the system said.
        cause: io::Error,
    },
}

/// What one capture has seen; written by its thread, read by any.
#[derive(Debug, Default)]
pub struct Counters {
    /// UDP datagrams, those inside merged frames included.
    pub datagrams: AtomicU64,
    /// Merged frames that were split into their datagrams.
    pub split: AtomicU64,
    /// Merged frames that could not be split, and were therefore not counted at all.
    pub unsplit: AtomicU64,
    /// Fragments, which carry no identifier that could be relied on.
    pub fragments: AtomicU64,
    /// Frames whose headers contradict themselves.
    pub malformed: AtomicU64,
}

fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

/// An open capture on one interface.
pub struct Capture {
    name: String,
    /// The kernel's number of the interface.
    index: u32,
    link: Link,
    merging_told: bool,
    receiver: Box<dyn DataLinkReceiver>,
    /// A second handle on pnet's socket, for its options.
    control: OwnedFd,
    queue: Arc<Queue>,
    /// The interface is down; said once.
    down: bool,
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture").field("name", &self.name).field("link", &self.link).finish_non_exhaustive()
    }
}

impl Capture {
    /// Opens a capture on the interface called `name`; with `promiscuous`, also of frames meant for other
    /// machines.
    ///
    /// # Errors
    /// When there is no such interface, when the process lacks the privilege, and when the link type is not
    /// supported.
    pub fn open(name: &str, promiscuous: bool) -> Result<Self, CaptureError> {
        let interface = find(name)?;
        let failed = |cause: io::Error| match cause.kind() {
            io::ErrorKind::PermissionDenied => CaptureError::NotPermitted { program: program() },
            _ => CaptureError::Socket { name: name.to_owned(), cause },
        };
        let (control, granted) = socket::open().map_err(failed)?;
        if !granted.merging_told {
            warn!("this kernel does not tell merged frames apart on {name}: {}", offload::advice(name));
        }
        if !granted.incoming_only {
            warn!("this kernel also captures what leaves through {name}: packets may be seen twice");
        }
        let config = Config {
            read_buffer_size: LONGEST_READ,
            write_buffer_size: 0,
            read_timeout: Some(LIVENESS_INTERVAL),
            promiscuous,
            socket_fd: Some(control.try_clone().map_err(failed)?.into_raw_fd()),
            ..Config::default()
        };
        let receiver = match pnet_datalink::channel(&interface, config).map_err(failed)? {
            Channel::Ethernet(_, receiver) => receiver,
            _ => return Err(failed(io::ErrorKind::Unsupported.into())),
        };
        let link = socket::link(&control)
            .map_err(failed)?
            .map_err(|hardware| CaptureError::UnsupportedLink { name: name.to_owned(), hardware })?;
        // The filter only saves work: without it the parser discards the same packets.
        if let Err(error) = socket::keep_udp(&control, link) {
            debug!("no filter on {name}: {error}");
        }
        info!("capturing on {name}, whose packets begin with {link}");
        Ok(Self {
            name: name.to_owned(),
            index: interface.index,
            link,
            merging_told: granted.merging_told,
            receiver,
            queue: Arc::new(Queue::new(control.try_clone().map_err(failed)?)),
            control,
            down: false,
        })
    }

    /// The interface's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What waits to be captured, and what had no room to.
    #[must_use]
    pub fn queue(&self) -> Arc<Queue> {
        Arc::clone(&self.queue)
    }

    /// Captures until it no longer can, and returns why.
    ///
    /// `each` is given the flow, the payload, and the length of the datagrams the payload consists of:
    /// shorter than the payload only for a merged frame.
    pub fn run(mut self, counters: &Counters, mut each: impl FnMut(&Flow, &[u8], usize)) -> CaptureError {
        let queue = self.queue();
        loop {
            let error = match self.receiver.next() {
                Ok(read) => {
                    let told = if self.merging_told {
                        offload::split_header(read)
                    } else {
                        Some((Merging::Single, read))
                    };
                    if let Some((merging, frame)) = told {
                        deliver(&self.name, self.link, merging, frame, counters, &mut each);
                    }
                    queue.delivered();
                    if self.down {
                        self.down = false;
                        info!("{} is up again", self.name);
                    }
                    continue;
                }
                Err(error) => error,
            };
            if let Err(end) = self.recover(&error, counters) {
                queue.end();
                return end;
            }
        }
    }

    /// Decides whether the capture goes on after the receiver reported `error`.
    fn recover(&mut self, error: &io::Error, counters: &Counters) -> Result<(), CaptureError> {
        let errno = match error.raw_os_error() {
            Some(code) => Errno::from_raw(code),
            None if error.kind() == io::ErrorKind::TimedOut => Errno::ETIMEDOUT,
            // pnet saw an error event but did not ask which; asking clears it, so that poll can wait again.
            None => socket::pending_error(&self.control),
        };
        match errno {
            Errno::EINTR | Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM => Ok(()),
            // Going down may be the first half of going away, and the second half is not always reported.
            Errno::ETIMEDOUT if !self.down => Ok(()),
            Errno::ETIMEDOUT | Errno::ENETDOWN | Errno::ENODEV | Errno::ENXIO => {
                // By its number: an interface may be renamed while it is down.
                if !pnet_datalink::interfaces().iter().any(|interface| interface.index == self.index) {
                    return Err(CaptureError::Gone { name: self.name.clone() });
                }
                if !self.down {
                    self.down = true;
                    warn!("{} is down: nothing is counted until it is up again", self.name);
                }
                Ok(())
            }
            // What a kernel before 6.2 answers for merged UDP datagrams, which its virtio header cannot
            // describe.
            Errno::EINVAL if self.merging_told => {
                count_unsplit(&self.name, counters);
                // It was taken from the queue all the same.
                self.queue.delivered();
                Ok(())
            }
            _ => Err(CaptureError::Socket { name: self.name.clone(), cause: errno.into() }),
        }
    }
}

/// Parses one frame and hands its datagrams on.
fn deliver(
    name: &str,
    link: Link,
    merging: Merging,
    frame: &[u8],
    counters: &Counters,
    each: &mut impl FnMut(&Flow, &[u8], usize),
) {
    let datagram = match packet::parse(link, frame, frame.len()) {
        Ok(datagram) => datagram,
        Err(Skip::NotUdp) => return,
        Err(Skip::Fragment) => return count(&counters.fragments, 1),
        // Frames are captured whole, so that none is cut.
        Err(Skip::Malformed | Skip::Cut) => return count(&counters.malformed, 1),
    };
    let len = datagram.len;
    match merging {
        Merging::Single => {
            count(&counters.datagrams, 1);
            each(&datagram.flow, datagram.payload, len);
        }
        Merging::Datagrams { each: size } => {
            count(&counters.split, 1);
            count(&counters.datagrams, len.div_ceil(size) as u64);
            each(&datagram.flow, datagram.payload, size);
        }
        Merging::Fragments => count(&counters.fragments, 1),
        Merging::Other => count_unsplit(name, counters),
    }
}

/// Counts a merged frame whose datagrams are lost to the sums, and says once what to do about it.
fn count_unsplit(name: &str, counters: &Counters) {
    if counters.unsplit.fetch_add(1, Relaxed) == 0 {
        warn!(
            "{name} delivers merged frames that this kernel cannot split, so their datagrams are not counted: {}",
            offload::advice(name)
        );
    }
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
    std::env::current_exe().map_or_else(|_| "sidekick-proxy".to_owned(), |path| path.display().to_string())
}
