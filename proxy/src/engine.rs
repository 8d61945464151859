//! The state machine of a wire format, without I/O and clock. A worker drives it.

use std::net::IpAddr;
use std::time::Instant;

use anyhow::Result;
use sidekick_protocol::{
    Addresses, Observed, Observer, ObserverConfig, Peer, Seen, SessionStatus, Transmit,
};
use tracing::debug;

use crate::summary::Summary;

/// The copies that an engine holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopiesHeld {
    /// Bytes of memory that hold copies.
    pub bytes: usize,
    /// Sessions that keep copies.
    pub sessions: usize,
}

/// A state machine that counts packets and reports them.
pub trait ProtocolEngine: Send + 'static {
    /// Counts datagrams that were captured on an interface, in this order. `interface` is the
    /// daemon's number of it. Calls `transmit` whenever a datagram may have made a message due, so
    /// that the message leaves before the next datagram is counted.
    fn observe(
        &mut self,
        seen: &[Seen<'_>],
        interface: u32,
        now: Instant,
        transmit: impl FnMut(&mut Self),
    );

    /// Keeps copies of datagrams towards clients that asked for copies.
    fn keep(&mut self, _seen: &[Seen<'_>], _interface: u32, _now: Instant) {}

    /// Whether sessions may keep copies.
    fn may_keep_copies(&self) -> bool {
        false
    }

    /// Whether a session keeps copies.
    fn keeps_copies(&self) -> bool {
        false
    }

    /// Sets whether the caller passes such datagrams to [`ProtocolEngine::keep`] at present. Call
    /// [`ProtocolEngine::poll_transmit`] then.
    fn set_copying(&mut self, _copying: bool) {}

    /// The addresses of the clients to which such datagrams travel.
    fn copy_clients(&self) -> impl ExactSizeIterator<Item = IpAddr> {
        std::iter::empty()
    }

    /// A version number that changes whenever these addresses change.
    fn copy_clients_version(&self) -> u64 {
        0
    }

    /// Notes that the capture on this interface missed packets, after all observed datagrams and
    /// before the next.
    fn missed(&mut self, _interface: u32) {}

    /// Handles a datagram that arrived at the proxy's own port. All packets that were captured
    /// before it are observed.
    fn handle_input(&mut self, from: Peer, message: &[u8], now: Instant);

    /// When to call [`ProtocolEngine::on_timeout`].
    fn poll_timeout(&self) -> Option<Instant>;

    /// Serves the timers that are due.
    fn on_timeout(&mut self, now: Instant);

    /// Writes the next datagram to send, and returns where to send it.
    fn poll_transmit(&mut self, out: &mut [u8]) -> Option<Transmit>;

    /// Applies limits to future sessions and markers. The memory for copies changes at once.
    ///
    /// # Errors
    /// Why the limits are impossible. Nothing has changed then.
    fn reload(&mut self, limits: ObserverConfig) -> Result<()>;

    /// Replaces the machine's addresses.
    fn set_addresses(&mut self, _addresses: &Addresses) {}

    /// Queues a BYE to each sender, if the wire format has one. The engine does nothing else
    /// from then on.
    fn close(&mut self);

    /// The engine's totals. The fields of the captures and the sockets are 0.
    fn totals(&self) -> Summary;

    /// The number of open sessions, if the wire format has sessions.
    fn open_sessions(&self) -> Option<usize>;

    /// The memory that holds copies now, and the sessions that keep some.
    fn copies(&self) -> CopiesHeld {
        CopiesHeld::default()
    }

    /// The status of open sessions, at most `most` of them.
    fn sessions(&self, _most: usize) -> Vec<SessionStatus> {
        Vec::new()
    }
}

impl ProtocolEngine for Observer {
    fn observe(
        &mut self,
        seen: &[Seen<'_>],
        interface: u32,
        now: Instant,
        mut transmit: impl FnMut(&mut Self),
    ) {
        self.observe_all(seen, interface, now, |observer, observed| {
            if matches!(observed, Observed::Counted | Observed::Marker) {
                transmit(observer);
            }
        });
    }

    fn keep(&mut self, seen: &[Seen<'_>], interface: u32, now: Instant) {
        self.keep_all(seen, interface, now);
    }

    fn may_keep_copies(&self) -> bool {
        Self::may_keep_copies(self)
    }

    fn keeps_copies(&self) -> bool {
        Self::keeps_copies(self)
    }

    fn set_copying(&mut self, copying: bool) {
        Self::set_copying(self, copying);
    }

    fn copy_clients(&self) -> impl ExactSizeIterator<Item = IpAddr> {
        Self::copy_clients(self)
    }

    fn copy_clients_version(&self) -> u64 {
        Self::copy_clients_version(self)
    }

    fn missed(&mut self, interface: u32) {
        Self::missed(self, interface);
    }

    fn handle_input(&mut self, from: Peer, message: &[u8], now: Instant) {
        if let Err(error) = Self::handle_input(self, from, message, now) {
            debug!("{} bytes from {}: {error}", message.len(), from.address);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Self::poll_timeout(self)
    }

    fn on_timeout(&mut self, now: Instant) {
        Self::on_timeout(self, now);
    }

    fn poll_transmit(&mut self, out: &mut [u8]) -> Option<Transmit> {
        Self::poll_transmit(self, out)
    }

    fn reload(&mut self, limits: ObserverConfig) -> Result<()> {
        Ok(self.reconfigure(limits)?)
    }

    fn set_addresses(&mut self, addresses: &Addresses) {
        Self::set_addresses(self, addresses.clone());
    }

    fn close(&mut self) {
        Self::close(self);
    }

    fn totals(&self) -> Summary {
        Summary::of(self.stats())
    }

    fn open_sessions(&self) -> Option<usize> {
        Some(Self::sessions(self))
    }

    fn copies(&self) -> CopiesHeld {
        CopiesHeld { bytes: self.copies_bytes(), sessions: self.keeping_sessions() }
    }

    fn sessions(&self, most: usize) -> Vec<SessionStatus> {
        self.statuses().take(most).collect()
    }
}
