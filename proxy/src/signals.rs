//! Signals, which a thread of their own receives one by one.

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};

/// The signals that end the daemon, or make it reread its configuration. All threads that start
/// later block them.
#[derive(Debug)]
pub(crate) struct Signals(SigSet);

impl Signals {
    /// Blocks the signals in this thread. Call this before any other thread starts.
    ///
    /// # Errors
    /// When the system does not allow it.
    pub(crate) fn block() -> Result<Self, Errno> {
        let set = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
        set.thread_block()?;
        Ok(Self(set))
    }

    /// Waits for signals, and passes each to `handle` until that returns false.
    pub(crate) fn each(&self, mut handle: impl FnMut(Signal) -> bool) {
        loop {
            match self.0.wait() {
                Ok(signal) if !handle(signal) => return,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return,
            }
        }
    }
}
