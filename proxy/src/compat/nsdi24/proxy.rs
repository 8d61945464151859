//! The [`Observer`](super::Observer) as a [`worker`](crate::worker) drives it.
//!
//! Captures and resets come over two sockets, so a datagram that is under way while a reset arrives
//! may fall on either side of it.

use std::net::SocketAddr;
use std::time::Instant;

use sidekick_protocol::{Peer, Seen, Transmit};
use sidekick_quack::ThresholdError;
use tracing::debug;

use super::{Config, Every, Observer};
use crate::cli::Options;
use crate::machine::Machine;
use crate::summary::Summary;

/// What the operator decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where quACKs are sent.
    pub quack_to: SocketAddr,
    /// When they are sent.
    pub every: Every,
    /// Sums in each: 1 to 255.
    pub threshold: u8,
}

/// The published proxy's part: one observer, and one address that its quACKs go to.
#[derive(Debug)]
pub struct Proxy {
    observer: Observer,
    quack_to: SocketAddr,
}

impl Proxy {
    /// A proxy that sends from `own`, and is reset there.
    ///
    /// # Errors
    /// If the threshold is 0.
    pub fn new(own: SocketAddr, settings: Settings) -> Result<Self, ThresholdError> {
        let Settings { quack_to, every, threshold } = settings;
        Ok(Self { observer: Observer::new(Config { threshold, every, own })?, quack_to })
    }
}

impl Machine for Proxy {
    fn observe(
        &mut self,
        seen: &[Seen<'_>],
        _: u32,
        now: Instant,
        mut after: impl FnMut(&mut Self),
    ) {
        for Seen { flow, payload } in seen {
            if self.observer.observe(flow, *payload, now) {
                after(self);
            }
        }
    }

    /// Whatever it says, it is a reset.
    fn handle_input(&mut self, from: Peer, _message: &[u8], _now: Instant) {
        self.observer.reset();
        debug!("reset by {}", from.address);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.observer.poll_timeout()
    }

    fn on_timeout(&mut self, now: Instant) {
        self.observer.on_timeout(now);
    }

    fn poll_transmit(&mut self, out: &mut [u8]) -> Option<Transmit> {
        let len = self.observer.poll_transmit(out)?;
        Some(Transmit {
            to: self.quack_to,
            local_ip: None,
            from: None,
            interface: None,
            in_session: true,
            len,
        })
    }

    /// There is no file for this wire.
    fn reload(&mut self, _options: &Options) -> anyhow::Result<()> {
        anyhow::bail!("this wire takes its settings from the command line")
    }

    /// There is no goodbye in this wire.
    fn goodbye(&mut self) {}

    fn totals(&self) -> Summary {
        let stats = self.observer.stats();
        Summary {
            counted: stats.counted,
            ignored: stats.ignored,
            quacks: stats.quacks,
            bytes: stats.bytes,
            resets: Some(stats.resets),
            ..Summary::default()
        }
    }

    fn open_sessions(&self) -> Option<usize> {
        None
    }
}
