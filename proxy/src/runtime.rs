//! The system functions that every thread of the proxy uses: the clock, and starting another
//! thread.

use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};

/// The current time. This is the only place of the crate that reads the monotonic clock.
#[allow(clippy::disallowed_methods, reason = "the threads are the edge where time enters")]
pub(crate) fn clock() -> Instant {
    Instant::now()
}

/// Starts a thread that lasts as long as the program.
pub(crate) fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new().name(name).spawn(body).context("cannot start a thread")?;
    Ok(())
}
