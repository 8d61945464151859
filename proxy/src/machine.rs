//! What a worker drives: the part that differs with the wire that is spoken, without I/O and clock.

use std::time::Instant;

use anyhow::Result;
use sidekick_protocol::{
    Addresses, Observed, Observer, ObserverConfig, Peer, Seen, SessionStatus, Transmit,
};
use tracing::debug;

use crate::summary::Summary;

/// A state machine that counts packets and speaks about them.
pub trait Machine: Send + 'static {
    /// These datagrams were captured on the interface that the daemon numbers `interface`, in this
    /// order. `after` is called when something may wait to be sent.
    fn observe(
        &mut self,
        seen: &[Seen<'_>],
        interface: u32,
        now: Instant,
        after: impl FnMut(&mut Self),
    );

    /// Packets were lost to the capture on this interface, after all that was observed and before
    /// what is observed next.
    fn missed(&mut self, _interface: u32) {}

    /// A datagram came to the proxy's own port. What was captured before it has been observed.
    fn handle_input(&mut self, from: Peer, message: &[u8], now: Instant);

    /// When [`Machine::on_timeout`] wants to be called.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Does what is due.
    fn on_timeout(&mut self, now: Instant);

    /// Writes the next datagram that waits, and says where it goes.
    fn poll_transmit(&mut self, out: &mut [u8]) -> Option<Transmit>;

    /// Takes over what may change while it runs.
    ///
    /// # Errors
    /// Why not; nothing has changed then.
    fn reload(&mut self, limits: ObserverConfig) -> Result<()>;

    /// These are the machine's addresses now.
    fn set_addresses(&mut self, _addresses: &Addresses) {}

    /// The end is near: says goodbye by [`Machine::poll_transmit`] where the wire has one, and does
    /// nothing after.
    fn goodbye(&mut self);

    /// What it counted; the fields that belong to the captures and the sockets are 0.
    fn totals(&self) -> Summary;

    /// The sessions that are open now, if there are sessions.
    fn open_sessions(&self) -> Option<usize>;

    /// How sessions stand, `most` of them at most.
    fn sessions(&self, _most: usize) -> Vec<SessionStatus> {
        Vec::new()
    }
}

impl Machine for Observer {
    fn observe(
        &mut self,
        seen: &[Seen<'_>],
        interface: u32,
        now: Instant,
        mut after: impl FnMut(&mut Self),
    ) {
        self.observe_all(seen, interface, now, |observer, observed| {
            if matches!(observed, Observed::Counted | Observed::Marker) {
                after(observer);
            }
        });
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

    fn goodbye(&mut self) {
        Self::goodbye(self);
    }

    fn totals(&self) -> Summary {
        let stats = self.stats();
        Summary {
            counted: stats.counted,
            ignored: stats.ignored,
            quacks: stats.quacks_sent,
            bytes: stats.bytes_sent,
            sessions: stats.sessions_opened,
            expired: stats.sessions_expired,
            refused: stats.refused,
            malformed: stats.malformed,
            other_version: stats.other_version,
            forged: stats.forged,
            markers: stats.markers,
            markers_refused: stats.markers_refused,
            markers_deferred: stats.markers_deferred,
            deferred: stats.handshakes_deferred,
            withheld: stats.quacks_withheld,
            epochs: stats.epochs_unasked,
            ..Summary::default()
        }
    }

    fn open_sessions(&self) -> Option<usize> {
        Some(Self::sessions(self))
    }

    fn sessions(&self, most: usize) -> Vec<SessionStatus> {
        self.statuses().take(most).collect()
    }
}
