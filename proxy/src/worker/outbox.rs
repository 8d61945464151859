//! How datagrams leave a worker.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use nix::errno::Errno;
use sidekick_protocol::{Flow, MAX_DATAGRAM_LEN, Observer, Route, Transmit};
use tracing::warn;

use crate::addresses::Egress;
use crate::packet_info::PacketInfo;
use crate::port::Port;
use crate::raw_socket::RawSocket;

/// The sockets that all workers share.
#[derive(Debug)]
pub struct Sockets {
    /// The proxy's own port.
    pub port: Port,
    /// For answers to markers, which come from the address of the flow's receiver, and for
    /// datagrams that parity rebuilt.
    pub raw: RawSocket,
}

/// Sends what an observer has to send.
pub(super) struct Outbox {
    sockets: Arc<Sockets>,
    /// By which interface answers leave, for each interface with a capture.
    pub(super) egress: Vec<Egress>,
    errors: SendErrors,
    buffer: [u8; MAX_DATAGRAM_LEN],
}

/// Datagrams that the system did not accept.
#[derive(Debug, Default)]
struct SendErrors(u64);

impl SendErrors {
    /// Counts an error, and logs the first.
    fn add(&mut self, destination: SocketAddr, error: &io::Error) {
        if self.0 == 0 {
            warn!(
                "cannot send to {destination}: {error} (logged once; the metrics and the summary \
                 count these)"
            );
        }
        self.0 += 1;
    }
}

impl Outbox {
    pub(super) fn new(sockets: Arc<Sockets>) -> Self {
        Self {
            sockets,
            egress: Vec::new(),
            errors: SendErrors::default(),
            buffer: [0; MAX_DATAGRAM_LEN],
        }
    }

    /// The proxy's own port.
    pub(super) fn port(&self) -> &Port {
        &self.sockets.port
    }

    /// How many datagrams the system did not accept.
    pub(super) fn unsent(&self) -> u64 {
        self.errors.0
    }

    /// Sends a datagram of a flow to the flow's receiver, as if its source had.
    pub(super) fn send_along(&mut self, flow: &Flow, class: u8, datagram: &[u8]) {
        let Flow { source, destination } = *flow;
        let sent = self.sockets.raw.send(datagram, class, (source, destination), None);
        if let Err(error) = sent {
            self.errors.add(destination, &error);
        }
    }

    /// Sends all datagrams that the observer has ready.
    pub(super) fn send_all(&mut self, observer: &mut Observer) {
        while let Some(transmit) = observer.poll_transmit(&mut self.buffer) {
            if let Err(error) = self.send(&transmit) {
                self.errors.add(transmit.destination, &error);
            }
        }
    }

    fn send(&self, transmit: &Transmit) -> io::Result<()> {
        let Transmit { destination, source_ip, size, route } = *transmit;
        let message = self.buffer.get(..size).unwrap_or_default();
        let Sockets { port, raw } = &*self.sockets;
        // The source that the raw socket writes.
        let (source, interface) = match route {
            Route::Session | Route::SecondLink => (None, None),
            // The kernel keeps a datagram to a stranger until ARP fails, and charges its memory to
            // the socket. The port's memory is for sessions.
            Route::Stranger { interface } => {
                (port.local_address(source_ip).filter(|_| !is_scoped(destination)), interface)
            }
            Route::Path { source, interface } => (Some(source), interface),
        };
        // If the interface is gone, the answer has no other way.
        let interface = interface.map(|number| self.egress(number)).transpose()?.flatten();
        match source {
            Some(source) => raw.send(message, 0, (source, destination), interface),
            None => port.send(message, destination, PacketInfo { source: source_ip, interface }),
        }
    }

    /// The kernel's index of the interface by which answers leave, if the table of routes does not
    /// decide.
    fn egress(&self, interface: u32) -> io::Result<Option<u32>> {
        let egress = self.egress.iter().find(|egress| egress.interface == interface);
        Ok(egress.ok_or(Errno::ENODEV)?.index)
    }
}

/// Whether an address is valid only together with its interface, which the raw socket does not
/// know.
fn is_scoped(address: SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local())
}
