//! What an observer may use, and what it has done.

use super::shard::Shard;
use crate::keys::SecretKey;
use std::time::Duration;
use thiserror::Error;

/// More sessions than this no observer can number.
pub(super) const MAX_SESSIONS: usize = 1 << 20;

/// How long a session may wait for its first sealed message (SPEC.md, section 6.2).
pub(super) const PROOF_TIMEOUT: Duration = Duration::from_secs(5);

/// The limits of an [`Observer`](super::Observer), and its key.
#[derive(Clone, Debug)]
pub struct ObserverConfig {
    /// The static key by which senders know the proxy again; without one it draws a key, which
    /// lasts as long as itself.
    pub key: Option<SecretKey>,
    /// Most sessions at once, 1 to 1,048,576.
    pub max_sessions: usize,
    /// Most sessions of one source at once, at least 1: of an IPv4 address, or of a /64 of IPv6.
    pub max_sessions_per_source: usize,
    /// Power sums kept for a session, 1 to 255: as many as a poll may ask for.
    pub kept_sums: u8,
    /// The largest threshold granted, 1 to `kept_sums`.
    pub max_threshold: u8,
    /// The shortest interval between timed quACKs that is granted.
    pub min_every: Duration,
    /// A session ends when its sender was not heard for this long; a sender polls at least every 20
    /// s while it sends.
    pub idle_timeout: Duration,
    /// Which of the sources this observer serves, where there are more observers than one.
    pub shard: Shard,
}

impl Default for ObserverConfig {
    fn default() -> Self {
        Self {
            key: None,
            max_sessions: 1024,
            max_sessions_per_source: 64,
            kept_sums: 128,
            max_threshold: 40,
            min_every: Duration::from_millis(1),
            idle_timeout: Duration::from_secs(60),
            shard: Shard::default(),
        }
    }
}

/// A limit of [`ObserverConfig`] that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// `max_sessions` or `max_sessions_per_source` is 0, or `max_sessions` is more than can be
    /// numbered.
    #[error("between 1 and {MAX_SESSIONS} sessions must be allowed")]
    Sessions,
    /// `max_threshold` or `kept_sums` is 0, or the first exceeds the second.
    #[error("the largest threshold must be at least 1 and at most the number of sums kept")]
    Threshold,
}

impl ObserverConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if !(1..=MAX_SESSIONS).contains(&self.max_sessions) || self.max_sessions_per_source == 0 {
            return Err(ConfigError::Sessions);
        }
        if self.max_threshold == 0 || self.max_threshold > self.kept_sums {
            return Err(ConfigError::Threshold);
        }
        Ok(())
    }
}

/// Counters since the observer began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObserverStats {
    /// Datagrams added to a session's sums.
    pub counted: u64,
    /// Datagrams of a session's flow that did not count.
    pub ignored: u64,
    /// Markers answered.
    pub markers: u64,
    /// Markers not answered, because their addresses cannot be those of a flow on their interface.
    pub markers_refused: u64,
    /// Markers not answered, because there were too many from their source, or from all.
    pub markers_deferred: u64,
    /// Datagrams at the proxy's port that were no message, or one that only a proxy sends.
    pub malformed: u64,
    /// Datagrams at the proxy's port of another version of the protocol.
    pub other_version: u64,
    /// Sealed datagrams that did not come from the session's sender, handshakes that failed, and
    /// replays.
    pub forged: u64,
    /// HELLOs refused.
    pub refused: u64,
    /// HELLOs received.
    pub hellos: u64,
    /// Of these, those without a cookie that proves anything: they were sent one.
    pub unproven: u64,
    /// HELLOs not taken up, because there were too many at once.
    pub handshakes_deferred: u64,
    /// Polls answered.
    pub polls: u64,
    /// quACKs sent.
    pub quacks_sent: u64,
    /// quACKs not sent, because the session had used up its share of bytes (SPEC.md, section 6.7).
    pub quacks_withheld: u64,
    /// Epochs begun unasked, because packets were lost to the observer
    /// ([`Observer::missed`](super::Observer::missed)) or came on another interface.
    pub epochs_unasked: u64,
    /// Bytes of messages sent.
    pub bytes_sent: u64,
    /// Sessions opened.
    pub sessions_opened: u64,
    /// Sessions ended by the idle timeout.
    pub sessions_expired: u64,
}
