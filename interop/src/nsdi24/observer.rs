//! The state machine of the published proxy, without I/O and clock.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use sidekick_protocol::{Filter, Flow, Identification, Payload, Position};
use sidekick_quack::{PowerSums, ThresholdError};

use crate::wire::Quack;

/// The observer counts every datagram with an identifier: 32 bits, big-endian, from byte 21 of the
/// payload on.
const IDENTIFICATION: Identification =
    Identification { position: Position::Offset(21), filter: Filter::All };

/// When the proxy sends a quACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interval {
    /// After this many counted datagrams.
    Packets(NonZeroU32),
    /// Once per this many milliseconds, from the first datagram after the start or a reset on.
    Millis(NonZeroU32),
}

/// Counts datagrams and writes quACKs.
///
/// After each call of [`observe`](Self::observe) and [`on_timeout`](Self::on_timeout), call
/// [`poll_transmit`](Self::poll_transmit), then arm a timer for
/// [`poll_timeout`](Self::poll_timeout). Only [`new`](Self::new) allocates.
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    interval: Interval,
    /// Where the proxy listens. The observer does not count datagrams from and to this address. If
    /// the address is unspecified, this applies to the port at any address.
    local: SocketAddr,
    sums: PowerSums,
    /// The last identifier counted since the start or a reset.
    last: Option<u32>,
    /// Datagrams counted since the last quACK by number became due.
    unreported: u32,
    due: bool,
    /// Set by the first datagram after the start or a reset, if the interval is one of time.
    deadline: Option<Instant>,
    /// The quACK to send. The field keeps its memory.
    quack: Quack,
}

impl Observer {
    /// An observer that has counted nothing, with `threshold` sums in each quACK.
    ///
    /// # Errors
    /// If the threshold is 0.
    pub(crate) fn new(
        threshold: u8,
        interval: Interval,
        local: SocketAddr,
    ) -> Result<Self, ThresholdError> {
        let threshold = usize::from(threshold);
        Ok(Self {
            interval,
            local,
            sums: PowerSums::new(threshold)?,
            last: None,
            unreported: 0,
            due: false,
            deadline: None,
            quack: Quack { sums: vec![0; threshold], ..Quack::default() },
        })
    }

    /// Counts a captured datagram, and returns whether it counts. A datagram counts if its payload
    /// has at least 25 bytes, and if it neither comes from the proxy nor goes to it.
    pub(crate) fn observe(&mut self, flow: &Flow, payload: Payload<'_>, now: Instant) -> bool {
        let identifier = IDENTIFICATION.identifier(payload);
        let counts =
            identifier.filter(|_| !self.is_local(flow.source) && !self.is_local(flow.destination));
        let Some(identifier) = counts else { return false };
        self.sums.insert(identifier);
        self.last = Some(identifier);
        match self.interval {
            Interval::Packets(number) => {
                self.unreported += 1;
                if self.unreported >= number.get() {
                    self.unreported = 0;
                    self.due = true;
                }
            }
            Interval::Millis(interval) if self.deadline.is_none() => {
                self.deadline = now.checked_add(duration(interval));
            }
            Interval::Millis(_) => {}
        }
        true
    }

    /// Resets the sums, the count and the last identifier. It also cancels a due quACK: datagrams
    /// from before the reset cause none.
    pub(crate) fn reset(&mut self) {
        self.sums.clear();
        self.last = None;
        self.unreported = 0;
        self.due = false;
        self.deadline = None;
    }

    /// When to call [`on_timeout`](Self::on_timeout).
    #[must_use]
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// Makes a quACK due if the deadline has passed. The next deadline lies on the same grid,
    /// however late the call is: the observer skips missed ticks.
    ///
    /// Before the first datagram after the start or a reset, no quACK is due. From then on the
    /// observer sends one at every tick, as the published proxy does, even if it has counted
    /// nothing new. So a later quACK repeats what a lost one reported.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        let (Some(deadline), Interval::Millis(interval)) = (self.deadline, self.interval) else {
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

    /// Writes the due quACK, if there is one, and returns its length. The quACK reports all
    /// datagrams counted until now. If `out` is shorter than
    /// [`MAX_QUACK_LEN`](crate::wire::MAX_QUACK_LEN), the quACK may stay due.
    pub(crate) fn poll_transmit(&mut self, out: &mut [u8]) -> Option<usize> {
        if !self.due {
            return None;
        }
        self.sums.write_sums(&mut self.quack.sums);
        self.quack.last = self.last;
        self.quack.count = self.sums.count();
        let len = self.quack.emit(out)?;
        self.due = false;
        Some(len)
    }

    fn is_local(&self, end: SocketAddr) -> bool {
        // On loopback, the capture sees the proxy's own quACKs and the resets.
        end.port() == self.local.port()
            && (self.local.ip().is_unspecified() || self.local.ip().to_canonical() == end.ip())
    }
}

fn duration(millis: NonZeroU32) -> Duration {
    Duration::from_millis(millis.get().into())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
