//! What the loop does for a Sidekick, if it has one.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use quiche::Connection;

/// The sender's side of Sidekick for one connection.
pub(crate) trait Help {
    /// The socket for the proxy's messages, to wait for.
    fn socket(&self) -> Option<BorrowedFd<'_>>;
    /// Reads the socket and serves timers, before the connection sends.
    fn receive(&mut self, conn: &mut Connection);
    /// After all that the connection had to send was sent. Returns whether it has more.
    fn on_sent(&mut self, conn: &mut Connection) -> bool;
    /// When [`receive`](Self::receive) has something to do, if nothing happens before.
    fn deadline(&self) -> Option<Instant>;
    /// What came of it so far.
    fn helped(&self) -> Helped;
}

/// What came of the help.
pub(crate) struct Helped {
    pub(crate) assisted: bool,
    pub(crate) assistance: String,
    pub(crate) lost_early: u64,
    pub(crate) spurious: u64,
    pub(crate) socket_errors: u64,
}

/// Makes the help for a new connection, if it is to have any.
pub(crate) type Helper<'a> = &'a dyn Fn(&mut Connection) -> std::io::Result<Option<Box<dyn Help>>>;
