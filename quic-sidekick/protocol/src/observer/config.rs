//! An observer's limits and counters.

use super::pool::BLOCK;
use super::shard::Shard;
use crate::keys::SecretKey;
use std::time::Duration;
use thiserror::Error;

/// The most sessions that an observer can have.
pub(super) const MAX_SESSIONS: usize = 1 << 20;

/// How long a session may wait for its first sealed message (SPEC.md, section 6.2).
pub(super) const PROOF_TIMEOUT: Duration = Duration::from_secs(5);

/// The limits of an [`Observer`](super::Observer), and its key.
#[derive(Clone, Debug)]
pub struct ObserverConfig {
    /// The static key, by which senders recognise the proxy. Without one the observer draws a key,
    /// which lasts as long as the observer.
    pub key: Option<SecretKey>,
    /// The most sessions, 1 to 1,048,576.
    pub max_sessions: usize,
    /// The most sessions of one source (an IPv4 address or an IPv6 /64), at least 1.
    pub max_sessions_per_source: usize,
    /// Power sums kept for a session, 1 to 255: the most that a poll may request.
    pub kept_sums: u8,
    /// The largest threshold granted, 1 to `kept_sums`.
    pub max_threshold: u8,
    /// The shortest interval between timed quACKs that is granted.
    pub min_every: Duration,
    /// The most bytes of memory for copies of datagrams, of all sessions together. The default is
    /// 0: the observer keeps none, since the caller must capture whole datagrams for them.
    pub keep_bytes: usize,
    /// The most of these bytes that one session can use. If this or `keep_bytes` is less than
    /// [`ObserverConfig::LEAST_KEEP_BYTES`], no session keeps copies.
    pub keep_bytes_per_session: usize,
    /// The most bytes of parity that a session sends, as a percentage of the bytes that it keeps;
    /// 0 for no parity. The first 16 KiB are free.
    pub parity_percent: u8,
    /// The caller holds the datagrams of flows, and passes them to [`super::Observer::hold`], so
    /// that they leave in the order in which their senders sent them.
    pub orders: bool,
    /// The caller can put datagrams on the path that come from a sender's second link.
    pub relays: bool,
    /// The longest datagram that the proxy's interfaces send, without the headers of UDP and IP. A
    /// longer copy is sent in two parts.
    pub longest_datagram: usize,
    /// A session ends when its sender is silent for this long. A sender polls at least every 20 s
    /// while it sends.
    pub idle_timeout: Duration,
    /// The share of sources that this observer serves, if there are several observers.
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
            keep_bytes: 0,
            keep_bytes_per_session: 4 << 20,
            parity_percent: 35,
            orders: false,
            relays: false,
            longest_datagram: usize::MAX,
            idle_timeout: Duration::from_secs(60),
            shard: Shard::default(),
        }
    }
}

/// An invalid limit in [`ObserverConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// `max_sessions` or `max_sessions_per_source` is out of range.
    #[error("the number of sessions must be between 1 and {MAX_SESSIONS}")]
    Sessions,
    /// `max_threshold` or `kept_sums` is 0, or the former exceeds the latter.
    #[error("the largest threshold must be between 1 and the number of sums kept")]
    Threshold,
}

impl ObserverConfig {
    /// With less `keep_bytes` or `keep_bytes_per_session` than this, no session keeps copies.
    pub const LEAST_KEEP_BYTES: usize = BLOCK;

    /// Whether there is enough memory for a session's copies.
    #[must_use]
    pub fn keeps_copies(&self) -> bool {
        self.copies_of_session() > 0
    }

    /// The most bytes of one session's copies: at least a block, or 0.
    pub(super) fn copies_of_session(&self) -> usize {
        let most = self.keep_bytes_per_session.min(self.keep_bytes);
        if most < BLOCK { 0 } else { most }
    }

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

/// Counters since the observer was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObserverStats {
    /// Datagrams added to a session's sums.
    pub counted: u64,
    /// Datagrams of a session's flow that did not count.
    pub ignored: u64,
    /// Markers answered.
    pub markers: u64,
    /// Markers not answered, because their addresses are impossible on their interface.
    pub markers_refused: u64,
    /// Markers not answered, because of the rate limits for their source or for all.
    pub markers_deferred: u64,
    /// Markers of another version of the protocol, which the observer does not answer.
    pub markers_other_version: u64,
    /// Malformed datagrams at the proxy's port, and messages that only a proxy sends.
    pub malformed: u64,
    /// Datagrams at the proxy's port of another version of the protocol.
    pub other_version: u64,
    /// Sealed datagrams that name no session, or that of a sender at another address. The observer
    /// queues UNKNOWN SESSION as the answer, if there is room.
    pub unknown_session: u64,
    /// Sealed datagrams that the session's sender did not seal, failed handshakes, and replays.
    pub forged: u64,
    /// HELLOs refused.
    pub refused: u64,
    /// HELLOs received.
    pub hellos: u64,
    /// Of these, HELLOs without a valid cookie, which RETRY answered.
    pub unproven: u64,
    /// HELLOs dropped by the rate limits on handshakes.
    pub handshakes_deferred: u64,
    /// Polls answered.
    pub polls: u64,
    /// quACKs sent.
    pub quacks_sent: u64,
    /// quACKs not sent, because they exceeded the session's budget (SPEC.md, section 6.7).
    pub quacks_withheld: u64,
    /// Epochs that the observer began by itself, because the system dropped packets
    /// ([`Observer::missed`](super::Observer::missed)) or packets moved to another interface.
    pub epochs_unasked: u64,
    /// Datagrams of which a copy was kept.
    pub kept: u64,
    /// The bytes of these datagrams.
    pub kept_bytes: u64,
    /// KEEPs with a proof, or to an observer that keeps no copies; KEPT answered them.
    pub keeps: u64,
    /// KEEPs without a proof that the sender receives the reverse flow. The first of each session
    /// has none.
    pub keeps_unproven: u64,
    /// Requests for copies of which a range was answered.
    pub requests: u64,
    /// Requests for copies dropped by a rate limit.
    pub requests_deferred: u64,
    /// Requests for copies without an answer: the session keeps none, or not the datagrams that the
    /// request names.
    pub requests_unanswered: u64,
    /// Copies sent.
    pub repeats_sent: u64,
    /// The bytes of these copies, with the headers of their messages.
    pub repeat_bytes: u64,
    /// Copies not sent: too old, repeated too often, or beyond the session's share.
    pub repeats_withheld: u64,
    /// PROTECTs of sessions that keep copies.
    pub protects: u64,
    /// PARITYs sent.
    pub parity_sent: u64,
    /// The bytes of these datagrams.
    pub parity_bytes: u64,
    /// Repair symbols not sent: their datagrams are too old, or they exceed the session's share.
    pub parity_withheld: u64,
    /// TAILs sent.
    pub tails_sent: u64,
    /// Lists of what senders sent, by which flows are put in order.
    pub lists: u64,
    /// Datagrams of such flows that were missing.
    pub order_missing: u64,
    /// Those of them whose repairs came too late to wait for.
    pub order_given_up: u64,
    /// Repair symbols of what senders sent, and parts of them.
    pub symbols: u64,
    /// Datagrams rebuilt from these.
    pub rebuilt: u64,
    /// Datagrams put on the path that came from second links.
    pub relayed: u64,
    /// Those that were not: no proof, no datagram of the flow that may be missing, or too many.
    pub relays_refused: u64,
    /// Bytes of messages sent.
    pub bytes_sent: u64,
    /// Sessions opened.
    pub sessions_opened: u64,
    /// Sessions ended by the idle timeout.
    pub sessions_expired: u64,
}
