//! The published proxy's state machine as a [`worker`](crate::worker) drives it.
//!
//! Captured datagrams and resets arrive on two sockets. A datagram that arrives at the same time as
//! a reset may be counted before or after it.

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Result, bail};
use sidekick_protocol::{MAX_DATAGRAM_LEN, ObserverConfig, Peer, Route, Seen, Transmit};
use sidekick_quack::ThresholdError;
use tracing::debug;

use super::observer::{Config, Observer};
use super::settings::Settings;
use super::wire::MAX_QUACK_LEN;
use crate::engine::ProtocolEngine;
use crate::summary::Summary;

/// The worker's buffer has room for every quACK.
const _: () = assert!(MAX_QUACK_LEN <= MAX_DATAGRAM_LEN);

/// One observer, and the destination of its quACKs.
#[derive(Debug)]
pub(crate) struct Engine {
    observer: Observer,
    quack_to: SocketAddr,
}

impl Engine {
    /// An engine for a proxy that sends quACKs and receives resets at `local_address`.
    ///
    /// # Errors
    /// If the threshold is 0.
    pub(crate) fn new(
        local_address: SocketAddr,
        settings: Settings,
    ) -> Result<Self, ThresholdError> {
        let Settings { quack_to, interval, threshold } = settings;
        let observer = Observer::new(Config { threshold, interval, local_address })?;
        Ok(Self { observer, quack_to })
    }
}

impl ProtocolEngine for Engine {
    fn observe(
        &mut self,
        seen: &[Seen<'_>],
        _: u32,
        now: Instant,
        mut transmit: impl FnMut(&mut Self),
    ) {
        for Seen { flow, payload } in seen {
            if self.observer.observe(flow, *payload, now) {
                transmit(self);
            }
        }
    }

    /// Every message is a reset, whatever its bytes are.
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
        let size = self.observer.poll_transmit(out)?;
        let (destination, route) = (self.quack_to, Route::Session);
        Some(Transmit { destination, source_ip: None, size, route })
    }

    /// Fails: the configuration file has no settings for this wire format.
    fn reload(&mut self, _limits: ObserverConfig) -> Result<()> {
        bail!("the settings of --compat cannot change while the proxy runs")
    }

    /// Does nothing: this wire format has no BYE.
    fn close(&mut self) {}

    fn totals(&self) -> Summary {
        let stats = self.observer.stats();
        Summary {
            counted: stats.counted,
            ignored: stats.ignored,
            quacks: stats.quacks,
            bytes: stats.bytes,
            resets: stats.resets,
            ..Summary::default()
        }
    }

    fn open_sessions(&self) -> Option<usize> {
        None
    }
}
