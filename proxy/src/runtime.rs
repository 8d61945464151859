//! The threads' meeting place: one observer behind one lock.
//!
//! A capture thread that sees a packet takes the lock, counts the packet and, if that makes a quACK due,
//! sends the quACK itself before it lets go. The alternative, a channel to a thread that owns the observer,
//! would add a wake-up of that thread (tens of microseconds, more on a busy machine) to every packet; the
//! lock is held for well under a microsecond unless a quACK leaves or a handshake is answered, of which the
//! observer takes on a few hundred a second at most. One more thread sleeps until the next deadline, one
//! listens on the port: it lets the packets that came before a session's message be counted before it.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sidekick_protocol::observer::ConfigError;
use sidekick_protocol::{
    Flow, MAX_DATAGRAM_LEN, Observed, Observer, ObserverConfig, Payload, PublicKey, Transmit,
};
use tracing::{debug, warn};

use crate::capture::Queue;
use crate::cli::Options;
use crate::daemon::{self, Service};
use crate::path::PathSocket;
use crate::port::Port;
use crate::summary::Summary;

/// Longer than any message, so that one cut to this length is still seen to be too long.
const RECEIVE_LEN: usize = 2048;

/// How long a session's message waits for the packets before it, on all interfaces. A capture that is farther behind is overloaded: the
/// message is dropped, and its sender will repeat it.
const PATIENCE: Duration = Duration::from_millis(100);

/// What the proxy speaks through, and what it listens to.
#[derive(Debug)]
pub struct Sockets {
    /// Its own port.
    pub port: Port,
    /// For answers to markers, along the path that these came.
    pub path: PathSocket,
    /// Of every capture.
    pub queues: Vec<Arc<Queue>>,
}

/// The running proxy.
#[derive(Debug)]
pub struct Proxy {
    sockets: Sockets,
    state: Mutex<State>,
    /// Wakes the thread that waits for deadlines when an earlier one is set.
    alarm: Condvar,
}

#[derive(Debug)]
struct State {
    observer: Observer,
    own_addresses: OwnAddresses,
    /// When the thread that waits for deadlines will wake by itself.
    wakes_at: Option<Instant>,
    /// Messages the network would not take.
    unsent: u64,
    /// Messages that came too long before the packets before them.
    late: u64,
    closed: bool,
    out: [u8; MAX_DATAGRAM_LEN],
}

/// The address each peer speaks to, where the port has many. Bounded; a peer that finds no room is answered
/// from the address the kernel picks, which is the right one on most machines.
#[derive(Debug)]
struct OwnAddresses {
    by_peer: HashMap<SocketAddr, (IpAddr, Instant)>,
    capacity: usize,
    keep: Duration,
}

impl OwnAddresses {
    fn remember(&mut self, peer: SocketAddr, own: IpAddr, now: Instant) {
        if self.by_peer.len() >= self.capacity && !self.by_peer.contains_key(&peer) {
            let keep = self.keep;
            self.by_peer.retain(|_, (_, heard)| now.saturating_duration_since(*heard) < keep);
            // Forged HELLOs must not keep out who comes later; who is active is remembered again with its next message.
            let oldest = self.by_peer.iter().min_by_key(|(_, (_, heard))| *heard).map(|(peer, _)| *peer);
            if let Some(oldest) = oldest.filter(|_| self.by_peer.len() >= self.capacity) {
                self.by_peer.remove(&oldest);
            }
        }
        self.by_peer.insert(peer, (own, now));
    }

    fn of(&self, peer: SocketAddr) -> Option<IpAddr> {
        self.by_peer.get(&peer).map(|(own, _)| *own)
    }
}

/// The only clock of this crate.
#[allow(clippy::disallowed_methods, reason = "the daemon is the edge where time enters")]
pub(crate) fn clock() -> Instant {
    Instant::now()
}

/// Lets go of a service's state until `at`, if there is such a time, or until its alarm. It is `now`.
pub(crate) fn wait_until<'a, S>(
    alarm: &Condvar,
    state: MutexGuard<'a, S>,
    at: Option<Instant>,
    now: Instant,
) -> MutexGuard<'a, S> {
    match at {
        Some(at) => {
            let waited = alarm.wait_timeout(state, at.saturating_duration_since(now));
            waited.unwrap_or_else(PoisonError::into_inner).0
        }
        None => alarm.wait(state).unwrap_or_else(PoisonError::into_inner),
    }
}

impl Proxy {
    /// A proxy that is reached from each interface at the addresses that are given with the
    /// interface's number; without any it cannot be discovered. `seed` must be random: it makes keys and cookies.
    ///
    /// # Errors
    /// When a limit in `config` cannot be.
    pub fn new(
        sockets: Sockets,
        config: ObserverConfig,
        announced: &[(u32, SocketAddr)],
        seed: [u8; 32],
    ) -> Result<Self, ConfigError> {
        let own_addresses = OwnAddresses {
            by_peer: HashMap::new(),
            capacity: config.max_sessions,
            keep: config.idle_timeout,
        };
        let mut observer = Observer::new(config, seed)?;
        for (interface, address) in announced {
            observer.announce(*interface, *address);
        }
        let state = State {
            observer,
            own_addresses,
            wakes_at: None,
            unsent: 0,
            late: 0,
            closed: false,
            out: [0; MAX_DATAGRAM_LEN],
        };
        Ok(Self { sockets, state: Mutex::new(state), alarm: Condvar::new() })
    }

    /// The key by which senders know this proxy.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        self.lock().observer.public_key()
    }
}

impl Service for Proxy {
    fn captured(&self, interface: u32, flow: &Flow, payload: &[u8], each: usize) {
        let now = clock();
        let mut state = self.lock();
        if state.closed {
            return;
        }
        let mut touched = false;
        // An empty payload gives no chunk: it has no identifier either.
        for payload in payload.chunks(each.max(1)) {
            touched |=
                state.observer.observe(flow, interface, Payload::whole(payload), now) != Observed::NoSession;
        }
        if touched {
            self.settle(&mut state, now, None);
        }
    }

    fn listen(&self) -> io::Result<()> {
        let mut receiver = self.sockets.port.receiver();
        let mut buffer = [0; RECEIVE_LEN];
        let mut patience = PATIENCE;
        loop {
            let arrival = receiver.receive(&mut buffer)?;
            let message = buffer.get(..arrival.len).unwrap_or_default();
            let mut state = self.lock();
            if state.observer.asks_for_a_report(arrival.from, message) {
                drop(state);
                let until = clock() + patience;
                let caught_up = |queue: &Arc<Queue>| queue.catch_up(until.saturating_duration_since(clock()));
                let in_time = self.sockets.queues.iter().all(caught_up);
                // One capture that is overloaded shall not hold up everybody's messages more than once.
                patience = if in_time { PATIENCE } else { Duration::ZERO };
                state = self.lock();
                if !in_time {
                    state.late += 1;
                    continue;
                }
            }
            if state.closed {
                return Ok(());
            }
            let now = clock();
            match (state.observer.handle(arrival.from, message, now), arrival.to) {
                (Ok(()), Some(own)) => state.own_addresses.remember(arrival.from, own, now),
                (Ok(()), None) => {}
                (Err(error), _) => debug!("{} bytes from {}: {error}", arrival.len, arrival.from),
            }
            self.settle(&mut state, now, arrival.to.map(|own| (arrival.from, own)));
        }
    }

    fn keep_time(&self) {
        let mut state = self.lock();
        while !state.closed {
            let now = clock();
            self.settle(&mut state, now, None);
            state.wakes_at = state.observer.next_deadline();
            let at = state.wakes_at;
            state = wait_until(&self.alarm, state, at, now);
        }
    }

    fn reload(&self, options: &Options) -> anyhow::Result<()> {
        let announced = daemon::announced(options, self.address());
        let mut state = self.lock();
        let config = options.observer();
        let (capacity, keep) = (config.max_sessions, config.idle_timeout);
        state.observer.reconfigure(config)?;
        (state.own_addresses.capacity, state.own_addresses.keep) = (capacity, keep);
        for (interface, address) in announced {
            state.observer.announce(interface, address);
        }
        Ok(())
    }

    fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.observer.goodbye();
        self.send_waiting(&mut state, None);
        self.alarm.notify_all();
    }

    fn totals(&self) -> Summary {
        let state = self.lock();
        let stats = state.observer.stats();
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
            deferred: stats.handshakes_deferred,
            withheld: stats.quacks_withheld,
            unsent: state.unsent,
            late: state.late,
            ..Summary::default()
        }
    }

    fn open_sessions(&self) -> Option<usize> {
        Some(self.lock().observer.sessions())
    }

    fn ready(&self) -> String {
        format!(", public key {}", self.public_key())
    }

    fn address(&self) -> SocketAddr {
        self.sockets.port.address()
    }
}

impl Proxy {
    /// After every event: do what is due, send what waits, and see that the next deadline will be met.
    /// `spoken_to`: a peer and the address of ours that it has just used.
    fn settle(&self, state: &mut State, now: Instant, spoken_to: Option<(SocketAddr, IpAddr)>) {
        if state.observer.next_deadline().is_some_and(|deadline| deadline <= now) {
            state.observer.on_deadline(now);
        }
        self.send_waiting(state, spoken_to);
        let Some(deadline) = state.observer.next_deadline() else { return };
        if state.wakes_at.is_none_or(|at| deadline < at) {
            // Noted here too, so that the packets until that thread has the lock do not wake it again.
            state.wakes_at = Some(deadline);
            self.alarm.notify_one();
        }
    }

    fn send_waiting(&self, state: &mut State, spoken_to: Option<(SocketAddr, IpAddr)>) {
        while let Some(Transmit { to, from, len }) = state.observer.transmit(&mut state.out) {
            let Some(message) = state.out.get(..len) else { continue };
            let sent = match from {
                Some(receiver) => self.sockets.path.send(message, receiver, to),
                None => {
                    let own = match spoken_to {
                        Some((peer, own)) if peer == to => Some(own),
                        _ => state.own_addresses.of(to),
                    };
                    self.sockets.port.send(message, to, own)
                }
            };
            if let Err(error) = sent {
                if state.unsent == 0 {
                    warn!("cannot send to {to}: {error} (said once; the summary counts these)");
                }
                state.unsent += 1;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic ends the whole daemon (see `main`), so a poisoned lock is only ever seen on the way out.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_bounded_and_forget_the_silent() {
        let (start, keep) = (clock(), Duration::from_secs(60));
        let mut own = OwnAddresses { by_peer: HashMap::new(), capacity: 2, keep };
        let peer = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let address = |last| IpAddr::from([10, 0, 0, last]);
        own.remember(peer(1), address(1), start);
        own.remember(peer(2), address(2), start + keep / 2);
        own.remember(peer(2), address(4), start + keep / 2);
        assert_eq!(own.of(peer(2)), Some(address(4)), "a known peer may change");
        own.remember(peer(3), address(3), start + keep / 2);
        assert_eq!(
            (own.of(peer(1)), own.of(peer(3))),
            (None, Some(address(3))),
            "the one silent longest gives way"
        );
        own.remember(peer(4), address(1), start + 2 * keep);
        assert_eq!((own.of(peer(2)), own.of(peer(3)), own.of(peer(4))), (None, None, Some(address(1))));
        assert_eq!(own.by_peer.len(), 1, "all who were silent for long are forgotten at once");
    }
}
