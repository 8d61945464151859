//! The status of the help for received datagrams, for the application.

use sidekick_protocol::NearLoss;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use thiserror::Error;

/// How a proxy repairs what the connection receives.
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

/// The state and the counters of the help for received datagrams.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Received {
    /// Whether they are repaired at present, and if not, why.
    pub state: ReceiveState,
    /// Gaps in the packet numbers that were to be repaired.
    pub gaps: u64,
    /// Of these, gaps that closed while the connection waited: by copies, by parity, or by packets
    /// that were only late.
    pub filled: u64,
    /// Datagrams that parity rebuilt, some of them in these gaps.
    pub rebuilt: u64,
    /// Gaps that were left to the server, because their losses are congestion.
    pub congestion: u64,
    /// How the near segment loses datagrams.
    pub near_loss: NearLoss,
    /// The median, the 99th percentile and the maximum of the times for which acknowledgements
    /// waited, of the latest thousand gaps.
    pub held: [Duration; 3],
}
