//! Opening the captures on an interface.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use pnet_datalink::NetworkInterface;
use tracing::{debug, info, warn};

use super::error::CaptureError;
use super::interface::Capture;
use super::portable::Portable;
use super::ring::{Memory, Ring};
use super::settings::{Backend, Settings};
use super::socket::Granted;
use super::source::{Holes, Source};
use super::{fanout, socket};
use crate::offload;
use crate::packet::Link;

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
    let captures = sources.into_iter();
    Ok(captures.map(|(link, source)| Capture::new(&interface, link, source)).collect())
}

/// A packet socket for copies, with the memory of its queue. It costs the kernel nothing for a
/// packet before [`ForCopies::bind`].
#[derive(Debug)]
pub(super) struct ForCopies(Unbound);

impl ForCopies {
    /// Whether a virtio header precedes each packet, also those that are sent by the socket.
    pub(super) fn has_vnet_header(&self) -> bool {
        self.0.granted.vnet_header
    }

    /// Opens one for the interface called `name`. That takes the kernel milliseconds.
    pub(super) fn open(name: &str, settings: Settings) -> Result<Self, CaptureError> {
        let unbound = find(name).and_then(|interface| {
            Unbound::open(&interface, settings, Purpose::Copies).map_err(|error| error.on(name))
        });
        unbound.map(Self)
    }

    /// Binds it to its interface at once. It receives nothing before it has a filter.
    pub(super) fn bind(self) -> Result<(NetworkInterface, Link, Box<dyn Source>), CaptureError> {
        let interface = self.0.interface.clone();
        let (link, source) = self.0.bind().map_err(|error| error.on(&interface.name))?;
        debug!("copying on {} by {}", interface.name, source.name());
        Ok((interface, link, source))
    }
}

/// What a packet socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// To count what arrives. `log`: whether to log what the operator should know of the interface.
    Counting { log: bool },
    /// To copy what travels towards clients.
    Copies,
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
        let (copies, log) =
            (purpose == Purpose::Copies, purpose == Purpose::Counting { log: true });
        let (socket, granted) = socket::open(settings.buffer, !copies)?;
        if copies {
            // Before the bind: otherwise all packets would arrive until there is another filter.
            socket::keep_nothing(&socket)?;
        }
        if log && !granted.vnet_header {
            warn!("this kernel does not mark merged frames on {name}: {}", offload::advice(name));
        }
        if log && !granted.incoming_only {
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
                    if copies {
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
            Purpose::Copies => Holes::Harmless,
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
        .map_or_else(|_| "sidekick-proxy".to_owned(), |path| path.display().to_string())
}
