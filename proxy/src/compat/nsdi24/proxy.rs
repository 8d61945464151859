//! The edge around the [`Observer`](super::Observer): threads, the clock and the socket.
//!
//! As in [`runtime`](crate::runtime), the thread that captured a datagram sends the quACK it makes due, one
//! thread meets the deadlines, and one listens for resets. Captures and resets come over two sockets, so a
//! datagram that is under way while a reset arrives may fall on either side of it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use sidekick_protocol::Flow;
use sidekick_quack::ThresholdError;
use tracing::{debug, warn};

use super::wire::MAX_QUACK_LEN;
use super::{Config, Every, Observer};
use crate::cli::Options;
use crate::daemon::Service;
use crate::port::Port;
use crate::runtime::{clock, wait_until};
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

/// The running proxy.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    quack_to: SocketAddr,
    state: Mutex<State>,
    /// Wakes the thread that waits for deadlines when an earlier one is set.
    alarm: Condvar,
}

#[derive(Debug)]
struct State {
    observer: Observer,
    /// When the thread that waits for deadlines will wake by itself.
    wakes_at: Option<Instant>,
    /// quACKs the network would not take.
    unsent: u64,
    closed: bool,
    out: [u8; MAX_QUACK_LEN],
}

impl Proxy {
    /// A proxy that sends from `port`, and is reset there.
    ///
    /// # Errors
    /// If the threshold is 0.
    pub fn new(port: Port, settings: Settings) -> Result<Self, ThresholdError> {
        let Settings { quack_to, every, threshold } = settings;
        let state = State {
            observer: Observer::new(Config { threshold, every, own: port.address() })?,
            wakes_at: None,
            unsent: 0,
            closed: false,
            out: [0; MAX_QUACK_LEN],
        };
        Ok(Self { port, quack_to, state: Mutex::new(state), alarm: Condvar::new() })
    }

    fn send_due(&self, state: &mut State) {
        let Some(len) = state.observer.transmit(&mut state.out) else { return };
        let Some(message) = state.out.get(..len) else { return };
        if let Err(error) = self.port.send(message, self.quack_to, None) {
            if state.unsent == 0 {
                warn!("cannot send to {}: {error} (said once; the summary counts these)", self.quack_to);
            }
            state.unsent += 1;
        }
    }

    /// Sends the quACK whose time has come, and sees that the next deadline will be met.
    fn settle(&self, state: &mut State, now: Instant) {
        state.observer.on_deadline(now);
        self.send_due(state);
        let Some(deadline) = state.observer.next_deadline() else { return };
        if state.wakes_at.is_none_or(|at| deadline < at) {
            // Noted here too, so that the packets until that thread has the lock do not wake it again.
            state.wakes_at = Some(deadline);
            self.alarm.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic ends the whole daemon (see `main`), so a poisoned lock is only ever seen on the way out.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Service for Proxy {
    /// There is no file for this wire.
    fn reload(&self, _options: &Options) -> anyhow::Result<()> {
        anyhow::bail!("this wire takes its settings from the command line")
    }

    fn captured(&self, _interface: u32, flow: &Flow, payload: &[u8], each: usize) {
        let now = clock();
        let mut state = self.lock();
        if state.closed {
            return;
        }
        // A merged frame may hold enough datagrams for more than one quACK. An empty payload gives no chunk: it
        // has no identifier either.
        for payload in payload.chunks(each.max(1)) {
            if state.observer.observe(flow, payload, now) {
                self.send_due(&mut state);
            }
        }
        self.settle(&mut state, now);
    }

    fn listen(&self) -> io::Result<()> {
        let mut receiver = self.port.receiver();
        // Whatever the datagram says, it is a reset; the rest of a longer one is cut off.
        let mut buffer = [0; 1];
        loop {
            let arrival = receiver.receive(&mut buffer)?;
            let mut state = self.lock();
            if state.closed {
                return Ok(());
            }
            state.observer.reset();
            debug!("reset by {}", arrival.from);
        }
    }

    fn keep_time(&self) {
        let mut state = self.lock();
        while !state.closed {
            let now = clock();
            self.settle(&mut state, now);
            state.wakes_at = state.observer.next_deadline();
            let at = state.wakes_at;
            state = wait_until(&self.alarm, state, at, now);
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.alarm.notify_all();
    }

    fn totals(&self) -> Summary {
        let state = self.lock();
        let stats = state.observer.stats();
        Summary {
            counted: stats.counted,
            ignored: stats.ignored,
            quacks: stats.quacks,
            bytes: stats.bytes,
            resets: Some(stats.resets),
            unsent: state.unsent,
            ..Summary::default()
        }
    }

    fn open_sessions(&self) -> Option<usize> {
        None
    }

    fn address(&self) -> SocketAddr {
        self.port.address()
    }
}
