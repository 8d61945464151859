//! How patient a listener is, and what it plays.

use crate::error::{ConfigError, MAX_PLAYOUT_LIMIT};
use std::time::Duration;

/// How patient a listener is, and what it plays.
#[derive(Clone, Copy, Debug)]
pub struct ListenerConfig {
    /// The round-trip time to reckon with until it was measured. The default is 100 ms.
    pub initial_rtt: Duration,
    /// How long a missing packet holds up those behind it before it is passed over, 1 ms to 60 s.
    /// The default is 1 s.
    pub playout_limit: Duration,
    /// A stream of which nothing was heard for so long is over. The default is 10 s.
    pub idle_timeout: Duration,
    /// Whether [`crate::Listener::next_frame`] is called for what is to be played; else contents
    /// are dropped. The default is that they are.
    pub plays: bool,
    /// What the listener's SSRC follows from: draw it at random, unless a simulation is to repeat
    /// itself.
    pub identity: [u8; 32],
}

impl Default for ListenerConfig {
    fn default() -> Self {
        Self {
            initial_rtt: Duration::from_millis(100),
            playout_limit: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(10),
            plays: false,
            identity: [1; 32],
        }
    }
}

impl ListenerConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let range = Duration::from_millis(1)..=MAX_PLAYOUT_LIMIT;
        if range.contains(&self.playout_limit) { Ok(()) } else { Err(ConfigError::PlayoutLimit) }
    }
}
