//! What the sender tells about itself.

use crate::terms::Terms;
use std::fmt;

/// Whether a flow is helped by a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assistance {
    /// Not yet: the proxy was asked and has not reported a packet.
    Seeking,
    /// The proxy reports the flow's packets.
    Assisted,
    /// No; the flow is carried as if there were no proxy.
    Unassisted(Reason),
}

/// Why a flow is not helped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Nothing answers at the proxy's address, or what answers has another key than the pinned one.
    NoAnswer,
    /// Nothing on the path answers markers.
    NotFound,
    /// The proxy answers, but sees none of the flow's packets.
    NotOnPath,
    /// The proxy said goodbye, or has stopped to answer.
    ProxyLost,
    /// The proxy has as many sessions as it may have.
    ProxyFull,
    /// The proxy cannot do what it was asked for.
    TermsRefused,
    /// The proxy counts the flow for somebody else, or holds it to be somebody else's.
    FlowTaken,
    /// The proxy's reports do not fit what was sent.
    Unintelligible,
    /// Too many packets were reported lost that the receiver had: the reports are not to be
    /// trusted.
    StoodDown,
}

impl fmt::Display for Assistance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seeking => f.write_str("unassisted: the proxy has not reported a packet yet"),
            Self::Assisted => f.write_str("assisted by the proxy"),
            Self::Unassisted(reason) => write!(f, "unassisted: {reason}"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAnswer => "the proxy does not answer, or has not the key that is asked for",
            Self::NotFound => "no proxy was found on the path",
            Self::NotOnPath => "the proxy answers, but does not see this connection's packets",
            Self::ProxyLost => "the proxy has stopped to answer",
            Self::ProxyFull => "the proxy serves as many connections as it may",
            Self::TermsRefused => "the proxy cannot do what it was asked for",
            Self::FlowTaken => "the proxy counts this connection for somebody else",
            Self::Unintelligible => "the proxy's reports do not fit what was sent",
            Self::StoodDown => "the proxy's reports were wrong too often",
        })
    }
}

/// Counters of a [`crate::Sender`] since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Packets declared lost on the near segment.
    pub early_lost: u64,
    /// Of these, packets that the receiver has acknowledged in their turn: they were not lost.
    pub spurious: u64,
    /// quACKs taken in.
    pub quacks_received: u64,
    /// Their bytes, without UDP and IP headers.
    pub quack_bytes: u64,
    /// quACKs that could not be decoded: too many packets missing for their sums, or another
    /// history than ours.
    pub undecodable: u64,
    /// Epochs begun.
    pub epochs: u64,
    /// Polls sent.
    pub polls: u64,
    /// Markers sent.
    pub markers: u64,
    /// Datagrams that were no message, or one that a proxy must not send.
    pub malformed: u64,
    /// Datagrams of another version of the protocol.
    pub other_version: u64,
    /// Datagrams that did not come from whom they pretended to: with a broken seal, or answers to
    /// what was not asked.
    pub forged: u64,
}

impl std::ops::AddAssign for SenderStats {
    fn add_assign(&mut self, other: Self) {
        let Self {
            early_lost,
            spurious,
            quacks_received,
            quack_bytes,
            undecodable,
            epochs,
            polls,
            markers,
            malformed,
            other_version,
            forged,
        } = other;
        self.early_lost += early_lost;
        self.spurious += spurious;
        self.quacks_received += quacks_received;
        self.quack_bytes += quack_bytes;
        self.undecodable += undecodable;
        self.epochs += epochs;
        self.polls += polls;
        self.markers += markers;
        self.malformed += malformed;
        self.other_version += other_version;
        self.forged += forged;
    }
}

/// Decides when reports are no longer to be believed (SPEC.md, section 7.6). Both counts are halved
/// now and then, so that a long good time is no credit for a bad one.
#[derive(Debug, Default)]
pub(super) struct Distrust {
    declared: u64,
    spurious: u64,
}

impl Distrust {
    pub(super) fn declared(&mut self, count: u64) {
        self.declared += count;
        while self.declared >= 256 {
            self.declared /= 2;
            self.spurious /= 2;
        }
    }

    pub(super) fn undecided(&mut self, count: u64) {
        self.declared = self.declared.saturating_sub(count);
    }

    /// True when of the recent losses more than 16, and more than one in four, were none: no longer
    /// reordering, but a proxy that errs or lies.
    pub(super) fn spurious(&mut self, count: u64) -> bool {
        self.spurious += count;
        self.spurious > 16 && self.spurious > self.declared / 4
    }
}

/// A proxy may lower terms, never raise them, and may not change what is counted.
pub(super) fn grants_no_more(asked: &Terms, granted: &Terms) -> bool {
    granted.threshold <= asked.threshold
        && granted.identification == asked.identification
        && granted.every.is_some() == asked.every.is_some()
        && granted.every >= asked.every
        && granted.every_packets.is_some() == asked.every_packets.is_some()
        && granted.every_packets >= asked.every_packets
}
