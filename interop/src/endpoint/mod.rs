//! What a raw quiche loop needs around its connections, at either end.

pub(crate) mod digest;
pub(crate) mod outbox;
pub(crate) mod random;
pub(crate) mod sockets;

use std::time::Duration;

/// A connection that has been silent for so long has failed.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Room for 10 Mbit/s and a long round trip, several times over.
pub(crate) const WINDOW: u64 = 4 << 20;
