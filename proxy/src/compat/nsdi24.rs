//! The wire of the proxy that was published with "Sidekick: In-Network Assistance for Secure
//! End-to-End Transport Protocols" (NSDI '24).
//!
//! There are no sessions in it: the proxy counts what it captures, whatever the flow, and sends
//! quACKs to one configured address. Any UDP datagram at its own port makes it begin anew. Nothing
//! is authenticated.
//!
//! [`Observer`] is the state machine, without I/O and clock; [`wire`] is the message; [`Proxy`] is
//! what a [`worker`](crate::worker) drives.

mod proxy;
pub mod wire;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use sidekick_protocol::{Filter, Flow, Identification, Payload, Position};
use sidekick_quack::{PowerSums, ThresholdError};

pub use proxy::{Proxy, Settings};
use wire::Quack;

/// Every datagram counts that has an identifier: 32 bits, big-endian, that begin at byte 21 of the
/// payload.
pub const IDENTIFICATION: Identification =
    Identification { position: Position::Offset(21), filter: Filter::All };

/// When a quACK is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Every {
    /// After so many counted datagrams.
    Packets(NonZeroU32),
    /// After so many milliseconds, steadily, from the first datagram after the start or a reset.
    Millis(NonZeroU32),
}

/// What an [`Observer`] is told at the start.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Sums in each quACK: 1 to 255.
    pub threshold: u8,
    /// When a quACK is sent.
    pub every: Every,
    /// Where the proxy listens. Datagrams from and to it are not counted; if the address is
    /// unspecified, those from and to the port of any address.
    pub own: SocketAddr,
}

/// What an observer has done since it was made; resets do not touch it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Datagrams added to the sums.
    pub counted: u64,
    /// Datagrams that do not count: too short, or the proxy's own.
    pub ignored: u64,
    /// quACKs handed out for sending.
    pub quacks: u64,
    /// Their bytes, without UDP and IP headers.
    pub bytes: u64,
    /// Resets.
    pub resets: u64,
}

/// Counts datagrams and says when to send which quACK.
///
/// After each call of [`observe`](Self::observe) and [`on_timeout`](Self::on_timeout) ask
/// [`poll_transmit`](Self::poll_transmit) for a quACK, then arm a timer for
/// [`poll_timeout`](Self::poll_timeout). Nothing here allocates but [`new`](Self::new).
#[derive(Clone, Debug)]
pub struct Observer {
    config: Config,
    sums: PowerSums,
    /// The identifier counted last since the start or a reset.
    last: Option<u32>,
    /// Datagrams counted since the last quACK by number became due.
    unreported: u32,
    due: bool,
    /// Set with the first datagram after the start or a reset, if quACKs are sent by time.
    deadline: Option<Instant>,
    /// What is sent, kept for its memory.
    quack: Quack,
    stats: Stats,
}

impl Observer {
    /// An observer that has counted nothing.
    ///
    /// # Errors
    /// If the threshold is 0.
    pub fn new(config: Config) -> Result<Self, ThresholdError> {
        let threshold = usize::from(config.threshold);
        Ok(Self {
            config,
            sums: PowerSums::new(threshold)?,
            last: None,
            unreported: 0,
            due: false,
            deadline: None,
            quack: Quack { sums: vec![0; threshold], ..Quack::default() },
            stats: Stats::default(),
        })
    }

    /// A datagram with this payload was captured. Says whether it counts: its payload must be 25
    /// bytes at least, whatever is in them, and the proxy's own port must not be one of its ends.
    pub fn observe(&mut self, flow: &Flow, payload: Payload<'_>, now: Instant) -> bool {
        let identifier = IDENTIFICATION.identifier(payload);
        let counts =
            identifier.filter(|_| !self.is_own(flow.source) && !self.is_own(flow.destination));
        let Some(identifier) = counts else {
            self.stats.ignored += 1;
            return false;
        };
        self.sums.insert(identifier);
        self.last = Some(identifier);
        self.stats.counted += 1;
        match self.config.every {
            Every::Packets(number) => {
                self.unreported += 1;
                if self.unreported >= number.get() {
                    self.unreported = 0;
                    self.due = true;
                }
            }
            Every::Millis(interval) if self.deadline.is_none() => {
                self.deadline = now.checked_add(duration(interval));
            }
            Every::Millis(_) => {}
        }
        true
    }

    /// Begins anew: the sums and the count are 0, there is no last identifier, and neither a quACK
    /// that was due nor datagrams counted before lead to one.
    pub fn reset(&mut self) {
        self.sums.clear();
        self.last = None;
        self.unreported = 0;
        self.due = false;
        self.deadline = None;
        self.stats.resets += 1;
    }

    /// When [`on_timeout`](Self::on_timeout) has to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// Makes a quACK due if the deadline has come. The next lies on the same grid, however late the
    /// call comes: ticks that were missed are not made up for.
    ///
    /// Nothing is due before the first datagram after the start or a reset, for it would tell
    /// nothing. From then on every tick is a quACK, as the published proxy sends them, even if
    /// nothing new was counted: what a lost quACK said is said again.
    pub fn on_timeout(&mut self, now: Instant) {
        let (Some(deadline), Every::Millis(interval)) = (self.deadline, self.config.every) else {
            return;
        };
        let Some(late) = now.checked_duration_since(deadline) else { return };
        self.due = true;
        let interval = duration(interval);
        let into_the_next = late.as_nanos() % interval.as_nanos();
        let left = interval
            .saturating_sub(Duration::from_nanos(u64::try_from(into_the_next).unwrap_or(0)));
        self.deadline = now.checked_add(left);
    }

    /// Writes the quACK that is due, if one is, and gives its length. It reports all that was
    /// counted until now. `out` must have room for [`MAX_QUACK_LEN`](wire::MAX_QUACK_LEN) bytes; if
    /// it is too short, the quACK stays due.
    pub fn poll_transmit(&mut self, out: &mut [u8]) -> Option<usize> {
        if !self.due {
            return None;
        }
        self.sums.write_sums(&mut self.quack.sums);
        self.quack.last = self.last;
        self.quack.count = self.sums.count();
        let len = self.quack.emit(out)?;
        self.due = false;
        self.stats.quacks += 1;
        self.stats.bytes += len as u64;
        Some(len)
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    fn is_own(&self, end: SocketAddr) -> bool {
        let own = self.config.own;
        // quACKs leave from there and resets arrive there, and loopback shows both to the capture.
        end.port() == own.port()
            && (own.ip().is_unspecified() || own.ip().to_canonical() == end.ip())
    }
}

fn duration(millis: NonZeroU32) -> Duration {
    Duration::from_millis(millis.get().into())
}
