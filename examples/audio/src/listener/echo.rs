//! The end-to-end round-trip time, by pings.

use std::time::{Duration, Instant};

/// From a pong to the next ping.
const INTERVAL: Duration = Duration::from_secs(1);
/// From a ping that stays unanswered to the next.
const RETRY: Duration = Duration::from_millis(250);
/// A longer round trip is not believed.
const MAX_RTT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Echo {
    initial: Duration,
    smoothed: Option<Duration>,
    latest: Duration,
    token: u32,
    sent: Option<Instant>,
    pub(super) ping_at: Option<Instant>,
}

impl Echo {
    /// `initial` is taken while nothing was measured.
    pub(super) fn new(initial: Duration) -> Self {
        Self { initial, smoothed: None, latest: Duration::ZERO, token: 0, sent: None, ping_at: None }
    }

    /// There is somebody to ping.
    pub(super) fn start(&mut self, now: Instant) {
        self.ping_at.get_or_insert(now);
    }

    /// The token of a ping to be sent `now`, if one is due.
    pub(super) fn ping(&mut self, now: Instant) -> Option<u32> {
        self.ping_at.filter(|at| *at <= now)?;
        self.token = self.token.wrapping_add(1);
        self.sent = Some(now);
        self.ping_at = Some(now + RETRY);
        Some(self.token)
    }

    pub(super) fn pong(&mut self, token: u32, now: Instant) {
        let Some(sent) = self.sent.take_if(|_| token == self.token) else { return };
        let sample = now.saturating_duration_since(sent).min(MAX_RTT);
        self.latest = sample;
        self.smoothed = Some(self.smoothed.map_or(sample, |smoothed| smoothed * 7 / 8 + sample / 8));
        self.ping_at = Some(now + INTERVAL);
    }

    pub(super) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// The round trip to reckon with.
    pub(super) fn rtt(&self) -> Duration {
        self.smoothed.map_or(self.initial, |smoothed| smoothed.max(self.latest))
    }

    /// How long to wait for what was asked for: 9/8 of the round trip (kTimeThreshold of RFC 9002, section 6.1.2).
    pub(super) fn patience(&self) -> Duration {
        (self.rtt() * 9 / 8).max(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    #[allow(clippy::disallowed_methods, reason = "virtual time has to begin somewhere")]
    fn only_the_last_ping_counts_and_only_once() {
        let start = Instant::now();
        let mut echo = Echo::new(100 * MS);
        assert_eq!(echo.ping(start), None, "nobody is there yet");
        echo.start(start);
        let first = echo.ping(start).unwrap();
        assert_eq!(echo.ping(start + 249 * MS), None);
        let second = echo.ping(start + 250 * MS).unwrap();
        echo.pong(first, start + 260 * MS);
        assert_eq!((echo.smoothed(), echo.rtt()), (None, 100 * MS));
        echo.pong(second, start + 302 * MS);
        echo.pong(second, start + 900 * MS);
        assert_eq!((echo.smoothed(), echo.patience()), (Some(52 * MS), Duration::from_micros(58_500)));
        assert_eq!(echo.ping_at, Some(start + 1302 * MS));
    }
}
