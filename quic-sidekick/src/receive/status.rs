//! The status of the help for received datagrams, for the application.

use sidekick_protocol::NearLoss;
pub use sidekick_protocol::repair::{ParseRepairError, ReceiveRepair, ReceiveState};
use std::time::Duration;

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
