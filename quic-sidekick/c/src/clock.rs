//! The clock. As in quiche's own C interface, callers do not pass the time.

use std::time::Instant;

#[allow(clippy::disallowed_methods, reason = "the edge where time enters")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
