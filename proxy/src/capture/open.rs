//! Opening the captures on an interface.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use nix::sys::socket::SockaddrStorage;
use pnet_datalink::NetworkInterface;
use tracing::{debug, info, warn};

use super::error::CaptureError;
use super::interface::Capture;
use super::portable::Portable;
use super::ring::{Memory, Ring};
use super::settings::{Backend, Direction, Settings};
use super::socket::Granted;
use super::source::{Holes, Source};
use super::{fanout, socket};
use crate::offload;
use crate::packet::Link;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Opens captures on the interface called `name`, one for each thread. The kernel gives each
/// capture the packets of the sources that its thread serves.
///
/// # Errors
/// When there is no such interface, when the process lacks the privilege, and when the link type is
/// not supported.
pub(crate) fn open(name: &str, settings: Settings) -> Result<Vec<Capture>, CaptureError> {
    let interface = find(name)?;
    let refused = |error: Refused| error.on(name);
    let mut sources = Vec::new();
    for thread in 0..settings.threads.max(1) {
        let purpose = Purpose::Counting { log: thread == 0 };
        let opened = Unbound::open(&interface, settings, purpose).and_then(Unbound::bind);
        sources.push(opened.map_err(refused)?);
    }
    let sockets: Vec<_> = sources.iter().map(|(_, source)| source.as_fd()).collect();
    if !fanout::share(&sockets).map_err(|error| refused(error.into()))? {
        warn!(
            "this kernel also captures what leaves through {name} if threads share the interface: \
             one thread avoids that"
        );
    }
    if let Some((link, source)) = sources.first() {
        info!("capturing on {name} by {}, whose packets begin with {link}", source.name());
    }
    let captures = sources.into_iter().enumerate().map(|(thread, (link, source))| {
        let capture = Capture::new(&interface, link, Direction::Arriving, source);
        if thread == 0 { capture } else { capture.silent() }
    });
    Ok(captures.collect())
}

/// A packet socket whose caller sets the filter, with the memory of its queue. It costs the kernel
/// nothing for a packet before [`Filtered::bind`].
#[derive(Debug)]
pub(super) struct Filtered(Unbound);

impl Filtered {
    /// Whether a virtio header precedes each packet, also those that are sent by the socket.
    pub(super) fn has_vnet_header(&self) -> bool {
        self.0.granted.vnet_header
    }

    /// Where it sends packets of IPv4, and of IPv6. Call it before [`Filtered::bind`].
    pub(super) fn link_addresses(&self) -> Result<[SockaddrStorage; 2], CaptureError> {
        let Unbound { interface, socket, .. } = &self.0;
        let address_for = |ethertype| {
            let address = socket::link_address(socket, interface, ethertype);
            address.map_err(|cause| Refused::System(cause).on(&interface.name))
        };
        Ok([address_for(IPV4)?, address_for(IPV6)?])
    }

    /// Opens one for the interface called `name`. That takes the kernel milliseconds.
    pub(super) fn open(
        name: &str,
        settings: Settings,
        purpose: Purpose,
    ) -> Result<Self, CaptureError> {
        let unbound = find(name).and_then(|interface| {
            Unbound::open(&interface, settings, purpose).map_err(|error| error.on(name))
        });
        unbound.map(Self)
    }

    /// Binds it to its interface. It receives nothing before it has a filter.
    pub(super) fn bind(self) -> Result<(NetworkInterface, Link, Box<dyn Source>), CaptureError> {
        let interface = self.0.interface.clone();
        let purpose = self.0.purpose;
        let (link, source) = self.0.bind().map_err(|error| error.on(&interface.name))?;
        let what = match purpose {
            Purpose::Copies => "copying",
            Purpose::Passing(Direction::Leaving) => "capturing what leaves",
            Purpose::Passing(Direction::Arriving) => "capturing what arrives",
            Purpose::Counting { .. } => "counting",
        };
        debug!("{what} on {} by {}", interface.name, source.name());
        Ok((interface, link, source))
    }
}

/// The purpose of a packet socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To count what arrives. `log`: whether to log what the operator should know of the interface.
    Counting { log: bool },
    /// To copy what travels towards clients.
    Copies,
    /// To pass what leaves or arrives to an agent.
    Passing(Direction),
}

impl Purpose {
    /// Whether its caller sets the filter. Such a socket receives nothing before.
    fn is_filtered(self) -> bool {
        matches!(self, Self::Copies | Self::Passing(_))
    }

    /// Whether to log what the operator should know of the interface, for each direction.
    fn logs(self) -> bool {
        matches!(self, Self::Counting { log: true } | Self::Passing(_))
    }

    /// Which packets it shows.
    fn direction(self) -> Direction {
        match self {
            Self::Counting { .. } => Direction::Arriving,
            Self::Copies => Direction::Leaving,
            Self::Passing(direction) => direction,
        }
    }
}

/// Why the proxy cannot capture on an interface.
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

impl Refused {
    /// The same as an error of the capture on this interface.
    fn on(self, name: &str) -> CaptureError {
        let name = name.to_owned();
        match self {
            Self::Link(hardware) => CaptureError::UnsupportedLink { name, hardware },
            Self::System(cause) if cause.kind() == io::ErrorKind::PermissionDenied => {
                CaptureError::NotPermitted { program: program() }
            }
            Self::System(cause) => CaptureError::Socket { name, cause },
        }
    }
}

/// The packet socket of one thread, before it is bound to its interface.
#[derive(Debug)]
struct Unbound {
    interface: NetworkInterface,
    socket: OwnedFd,
    granted: Granted,
    ring: Option<Memory>,
    promiscuous: bool,
    purpose: Purpose,
}

impl Unbound {
    fn open(
        interface: &NetworkInterface,
        settings: Settings,
        purpose: Purpose,
    ) -> Result<Self, Refused> {
        let name = &interface.name;
        let (log, filtered) = (purpose.logs(), purpose.is_filtered());
        let (socket, granted) = socket::open(settings.buffer, !filtered)?;
        if filtered {
            // Before the bind: otherwise all packets would arrive until there is another filter.
            socket::keep_nothing(&socket)?;
        }
        if log && !granted.vnet_header {
            let advice = offload::advice(name, purpose.direction());
            warn!("this kernel does not mark merged frames on {name}: {advice}");
        }
        if log && !filtered && !granted.incoming_only {
            warn!(
                "this kernel also captures what leaves through {name}: packets may be seen twice"
            );
        }
        let ring = match settings.backend {
            Backend::Pnet => None,
            Backend::Ring => Some(Memory::under(&socket, settings.buffer)?),
            Backend::Auto if granted.vnet_header && !socket::describes_merged_datagrams() => {
                if log {
                    info!(
                        "no ring on {name}: this kernel is older than 6.2, and a merged frame \
                         would stop it"
                    );
                }
                None
            }
            Backend::Auto => Memory::under(&socket, settings.buffer)
                .inspect_err(|error| {
                    if purpose == Purpose::Copies {
                        // It may be opened many times.
                        debug!("no ring for copies on {name} ({error})");
                    } else {
                        warn!("no ring on {name} ({error}): each packet takes system calls");
                    }
                })
                .ok(),
        };
        let (interface, promiscuous) = (interface.clone(), settings.promiscuous);
        Ok(Self { interface, socket, granted, ring, promiscuous, purpose })
    }

    fn bind(self) -> Result<(Link, Box<dyn Source>), Refused> {
        let Self { interface, socket, granted, ring, promiscuous, purpose } = self;
        let receiver = socket::bind(&socket, &interface, promiscuous)?;
        let link = socket::link(&socket)?.map_err(Refused::Link)?;
        let holes = match purpose {
            Purpose::Copies | Purpose::Passing(_) => Holes::Harmless,
            Purpose::Counting { .. } => {
                // The filter only saves work. Without it, the parser discards the same packets.
                if let Err(error) = socket::keep_udp(&socket, link) {
                    debug!("no filter on {}: {error}", interface.name);
                }
                Holes::Matter
            }
        };
        let source: Box<dyn Source> = match ring {
            Some(memory) => Box::new(Ring::new(socket, memory, granted.vnet_header, holes)),
            None => Box::new(Portable::new(socket, receiver, granted.vnet_header, holes)),
        };
        Ok((link, source))
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

/// The path of this program.
fn program() -> String {
    std::env::current_exe()
        .map_or_else(|_| "the program".to_owned(), |path| path.display().to_string())
}
