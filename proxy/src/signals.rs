//! Signals, taken one by one by a thread of their own.

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};

/// The signals that end the daemon or have it read its configuration, blocked in all threads that
/// begin from now on.
#[derive(Debug)]
pub(crate) struct Signals(SigSet);

impl Signals {
    /// Blocks them in this thread: to be called while there is no other.
    ///
    /// # Errors
    /// When the system does not allow it.
    pub(crate) fn block() -> Result<Self, Errno> {
        let set = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
        set.thread_block()?;
        Ok(Self(set))
    }

    /// Waits for them, and gives each to `take`, until that says that nobody wants any more.
    pub(crate) fn each(&self, mut take: impl FnMut(Signal) -> bool) {
        loop {
            match self.0.wait() {
                Ok(signal) if !take(signal) => return,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return,
            }
        }
    }
}
