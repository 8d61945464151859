//! The interface between the loop and a Sidekick.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use quiche::Connection;

/// The sender's side of Sidekick for one connection.
pub(crate) trait Help {
    /// The adjacent socket, to wait for.
    fn socket(&self) -> Option<BorrowedFd<'_>>;
    /// Reads the socket and serves timers, before the connection sends.
    fn receive(&mut self, conn: &mut Connection);
    /// Records sent packets, after the loop sent all of them. Returns whether the connection has
    /// more to send.
    fn on_sent(&mut self, conn: &mut Connection) -> bool;
    /// When [`receive`](Self::receive) is due, if nothing happens before.
    fn deadline(&self) -> Option<Instant>;
    /// The status and the counters.
    fn helped(&self) -> Helped;
}

/// The status and the counters of the help.
pub(crate) struct Helped {
    pub(crate) assisted: bool,
    pub(crate) assistance: String,
    pub(crate) lost_early: u64,
    pub(crate) spurious: u64,
    pub(crate) socket_errors: u64,
}

/// Makes the help for a new connection; `None` for a server without a mode.
pub(crate) type Helper<'a> = &'a dyn Fn(&mut Connection) -> std::io::Result<Option<Box<dyn Help>>>;
