//! The sender's status and counters.

use crate::terms::Terms;
use crate::wire::ParseError;
use std::fmt;
use thiserror::Error;

/// Whether a proxy assists a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assistance {
    /// Not yet: the sender seeks a proxy, and none has reported a packet.
    Seeking,
    /// The proxy reports the flow's packets.
    Assisted,
    /// No: the flow proceeds as without a proxy.
    Unassisted(Reason),
}

/// Why no proxy assists a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Nothing answers at the proxy's address, or the proxy there does not hold the pinned key.
    NoAnswer,
    /// No proxy on the path answers markers.
    NotFound,
    /// The proxy answers, but does not see the flow's packets.
    NotOnPath,
    /// The proxy ended the session, or stopped answering.
    ProxyLost,
    /// The system refused the socket for messages to proxies, or that socket failed.
    NoSocket,
    /// The proxy has reached its limit of sessions.
    ProxyFull,
    /// The proxy cannot grant the requested terms.
    TermsRefused,
    /// The proxy counts the flow for another sender, or requires a proof that the flow is ours.
    FlowTaken,
    /// The proxy's reports do not match the packets sent.
    Unintelligible,
    /// The receiver acknowledged too many of the packets that the sender declared lost. The reports
    /// are not trustworthy.
    StoodDown,
}

impl fmt::Display for Assistance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seeking => f.write_str("not assisted yet: no proxy has reported a packet"),
            Self::Assisted => f.write_str("assisted by the proxy"),
            Self::Unassisted(reason) => write!(f, "unassisted: {reason}"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoAnswer => {
                "the proxy does not answer (a firewall, a wrong address, another version), or does \
                 not hold the pinned key"
            }
            Self::NotFound => "no proxy was found on the path",
            Self::NotOnPath => "the proxy answers, but does not see this connection's packets",
            Self::ProxyLost => "the proxy ended the session, or stopped answering",
            Self::NoSocket => {
                "the system refused the socket for messages to the proxy, or it failed"
            }
            Self::ProxyFull => "the proxy has reached a limit of its sessions",
            Self::TermsRefused => "the proxy cannot grant the requested terms",
            Self::FlowTaken => "the proxy counts this connection for another sender",
            Self::Unintelligible => {
                "the proxy's reports do not match the packets sent: the path before it reorders, \
                 duplicates or alters them"
            }
            Self::StoodDown => {
                "packets that the proxy had missed arrived too often: the path reorders them"
            }
        })
    }
}

/// Counters of a [`crate::Sender`] since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Packets declared lost on the near segment.
    pub early_lost: u64,
    /// Of these, packets that the receiver acknowledged as original transmissions.
    pub spurious: u64,
    /// Of these, packets that the proxy reported later: other packets had overtaken them. The count
    /// can be too low, because reports do not show which transmission of a datagram arrived.
    pub turned_up: u64,
    /// quACKs processed.
    pub quacks_received: u64,
    /// Bytes of these quACKs, without UDP and IP headers.
    pub quack_bytes: u64,
    /// quACKs that did not decode: they have too few sums for the missing packets, or their sums do
    /// not match the packets sent.
    pub undecodable: u64,
    /// Epochs begun.
    pub epochs: u64,
    /// Polls sent.
    pub polls: u64,
    /// Polls answered. Of those that were not, a part or its answer was lost on the near segment.
    pub polls_answered: u64,
    /// Ranges of datagrams of the reverse flow that the sender requested, including repetitions.
    pub repeats_requested: u64,
    /// Copies of such datagrams that arrived.
    pub repeats_received: u64,
    /// The bytes of these copies and of parity, without UDP and IP headers.
    pub added_bytes: u64,
    /// PARITYs that arrived.
    pub parity_received: u64,
    /// Messages with parity of what left, whole or in part.
    pub parity_sent: u64,
    /// Of these, PARITYs that contradict earlier ones.
    pub parity_false: u64,
    /// Markers sent.
    pub markers: u64,
    /// Malformed datagrams, and messages that a proxy must not send.
    pub malformed: u64,
    /// Datagrams of another version of the protocol.
    pub other_version: u64,
    /// Datagrams that are not authentic: with an invalid seal, or an answer without a matching
    /// query.
    pub forged: u64,
}

impl std::ops::AddAssign for SenderStats {
    fn add_assign(&mut self, other: Self) {
        *self = Self {
            early_lost: self.early_lost + other.early_lost,
            spurious: self.spurious + other.spurious,
            turned_up: self.turned_up + other.turned_up,
            quacks_received: self.quacks_received + other.quacks_received,
            quack_bytes: self.quack_bytes + other.quack_bytes,
            undecodable: self.undecodable + other.undecodable,
            epochs: self.epochs + other.epochs,
            polls: self.polls + other.polls,
            polls_answered: self.polls_answered + other.polls_answered,
            repeats_requested: self.repeats_requested + other.repeats_requested,
            repeats_received: self.repeats_received + other.repeats_received,
            added_bytes: self.added_bytes + other.added_bytes,
            parity_received: self.parity_received + other.parity_received,
            parity_sent: self.parity_sent + other.parity_sent,
            parity_false: self.parity_false + other.parity_false,
            markers: self.markers + other.markers,
            malformed: self.malformed + other.malformed,
            other_version: self.other_version + other.other_version,
            forged: self.forged + other.forged,
        };
    }
}

/// Decides when reports are no longer trustworthy (SPEC.md, section 7.6). It halves both counts
/// each time that of declared losses reaches 256, so a long good period does not offset a bad one.
#[derive(Debug, Default)]
pub(super) struct Distrust {
    declared: u64,
    spurious: u64,
}

impl Distrust {
    pub(super) fn record_declared(&mut self, count: u64) {
        self.declared += count;
        while self.declared >= 256 {
            self.declared /= 2;
            self.spurious /= 2;
        }
    }

    pub(super) fn record_undecided(&mut self, count: u64) {
        self.declared = self.declared.saturating_sub(count);
    }

    /// Counts spurious losses. Returns true if they are more than 16, and more than a quarter of
    /// the recent losses. Then the cause is not reordering, but a proxy that errs or lies.
    pub(super) fn record_spurious(&mut self, count: u64) -> bool {
        self.spurious += count;
        self.spurious > 16 && self.spurious > self.declared / 4
    }
}

/// Whether the granted terms do not exceed the requested ones, and count the same packets.
pub(super) fn grants_no_more(asked: &Terms, granted: &Terms) -> bool {
    granted.threshold <= asked.threshold
        && granted.identification == asked.identification
        && granted.every.is_some() == asked.every.is_some()
        && granted.every >= asked.every
        && granted.every_packets.is_some() == asked.every_packets.is_some()
        && granted.every_packets >= asked.every_packets
}

/// Why a datagram changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandleError {
    /// It is not a message.
    #[error("malformed: {0}")]
    Malformed(#[from] ParseError),
    /// It is a message that only a sender sends.
    #[error("a message that only a sender sends")]
    NotForSender,
    /// Its source is not the address of a proxy in use.
    #[error("not from a proxy in use")]
    Stranger,
    /// It belongs to another session, or to none.
    #[error("not of this session")]
    OtherSession,
    /// The proxy made neither its seal nor its handshake message.
    #[error("not authentic")]
    Forged,
    /// It belongs to another epoch, or is older than the sender's state.
    #[error("outdated")]
    Outdated,
    /// It names an address that the sender does not ask for help (SPEC.md, section 9.3).
    #[error("names an address that is not asked")]
    NotAsked,
    /// Its contents are invalid: it grants more than requested, or a sum is out of range.
    #[error("invalid contents")]
    Impossible,
}
