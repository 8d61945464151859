//! The parts of a raw quiche loop around its connections, for both ends.

pub(crate) mod digest;
pub(crate) mod outbox;
pub(crate) mod random;
pub(crate) mod sockets;

use std::time::Duration;

/// The idle timeout of a connection.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The flow control window, in bytes: ample for 10 Mbit/s and a long round trip.
pub(crate) const WINDOW: u64 = 4 << 20;
