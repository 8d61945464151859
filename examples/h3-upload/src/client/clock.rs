//! The clock of the programs.

use std::time::Instant;

/// The present time.
#[allow(clippy::disallowed_methods, reason = "a program's edge: it reads the real clock")]
#[must_use]
pub fn now() -> Instant {
    Instant::now()
}
