//! A listener's configuration.

use super::parity::Protected;
use crate::end::{ConfigError, MAX_PLAYOUT_LIMIT};
use std::time::Duration;

/// A listener's limits, and whether it plays.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// The assumed round-trip time until it is measured. The default is 100 ms.
    pub initial_rtt: Duration,
    /// How long a missing packet delays later ones before it is skipped, 1 ms to 60 s. The default
    /// is 1 s.
    pub playout_limit: Duration,
    /// The silence after which the stream is over. The default is 10 s.
    pub idle_timeout: Duration,
    /// Whether the caller plays what [`crate::Listener::next_frame`] returns. Otherwise contents
    /// are dropped. The default is false.
    pub plays: bool,
    /// Determines the SSRC. Must be random, except in a simulation that repeats itself.
    pub identity: [u8; 32],
    /// Parity from a proxy near the listener. The default is none.
    pub protected: Option<Protected>,
}

impl Default for ListenerConfig {
    fn default() -> Self {
        Self {
            initial_rtt: Duration::from_millis(100),
            playout_limit: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(10),
            plays: false,
            identity: [1; 32],
            protected: None,
        }
    }
}

impl ListenerConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let range = Duration::from_millis(1)..=MAX_PLAYOUT_LIMIT;
        if !range.contains(&self.playout_limit) {
            return Err(ConfigError::PlayoutLimit);
        }
        let wrong = |protected: &Protected| !(protected.share > 0.0 && protected.share <= 1.0);
        if self.protected.as_ref().is_some_and(wrong) {
            return Err(ConfigError::Share);
        }
        Ok(())
    }
}
