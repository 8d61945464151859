//! Where time enters: C hands none over, as it does not to quiche's own functions.

use std::time::Instant;

#[allow(clippy::disallowed_methods, reason = "the edge where time enters")]
pub(crate) fn now() -> Instant {
    Instant::now()
}
