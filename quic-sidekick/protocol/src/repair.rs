//! How a client repairs what it receives past a lossy near segment: by which means, how long what
//! follows a gap waits, and how much parity it asks for.
//!
//! A [`Planner`] decides, from the round trips and from what [`Protection`] knows of the losses. It
//! does no I/O, and knows no transport.

mod plan;
mod protection;

pub(crate) use plan::{FAR_AWAY, MOSTLY, NEAR_PART, longest_hold, parity_hold};
pub use plan::{Plan, Planner, RoundTrips};
pub use protection::{ParityState, Protection};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

const MOST_PROTECTED: usize = 128;

/// How a proxy repairs what the client receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReceiveRepair {
    /// Requests while the proxy is near, and both where it is far away.
    #[default]
    Auto,
    /// The proxy repeats what the client lacks, a near round trip later.
    Requests,
    /// The proxy adds parity, from which the client rebuilds at once what it lacks.
    Parity,
    /// Parity, and requests for what it cannot rebuild.
    Both,
}

impl ReceiveRepair {
    /// For one more flow beside so many others. Parity takes up to half a megabyte of each, so only
    /// the first 128 have it.
    #[must_use]
    pub fn beside(others: usize) -> Self {
        if others < MOST_PROTECTED { Self::Auto } else { Self::Requests }
    }

    /// All of them.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Requests, Self::Parity, Self::Both];
}

impl fmt::Display for ReceiveRepair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Requests => "requests",
            Self::Parity => "parity",
            Self::Both => "both",
        })
    }
}

/// The text is not the name of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected one of auto, requests, parity, both")]
pub struct ParseRepairError;

impl FromStr for ReceiveRepair {
    type Err = ParseRepairError;

    fn from_str(text: &str) -> Result<Self, ParseRepairError> {
        Self::ALL.into_iter().find(|repair| repair.to_string() == text).ok_or(ParseRepairError)
    }
}

/// Why received datagrams are not repaired at present, or how they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveState {
    /// The mode does not ask for it, or this end is the server.
    Off,
    /// No proxy keeps copies, or not yet.
    NotKept,
    /// A queue grows on the near segment: losses are congestion, and the server must hear of them.
    Congested,
    /// The proxy is too far away: a repair would hold acknowledgements for too long.
    TooFar,
    /// The configuration wants parity alone, and the proxy sends none.
    NoParity,
    /// A little parity shows that the near segment loses nothing. Acknowledgements behind a gap
    /// wait until parity shows the cause, unless the far segment loses datagrams.
    Watching,
    /// Losses on the near segment are repaired by requests.
    Repairing,
    /// The proxy is far away, and its parity repairs losses. Requests follow where parity does not
    /// suffice, if they are worth the wait.
    Protected,
}

impl fmt::Display for ReceiveState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "this end does not repair what it receives",
            Self::NotKept => "no proxy keeps copies of what is received",
            Self::Congested => "a queue grows on the near segment",
            Self::TooFar => "the proxy is too far away",
            Self::NoParity => "the proxy sends no parity",
            Self::Watching => "the near segment loses nothing",
            Self::Repairing => "the proxy repeats what the near segment loses",
            Self::Protected => "the proxy's parity replaces what the near segment loses",
        })
    }
}
