//! What the loop does for a Sidekick, if it has one.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use quiche::Connection;

use super::report::Helped;
use crate::endpoint::sockets::Socket;

/// The sender's side of Sidekick for one connection.
pub(crate) trait Help {
    /// Where the proxy's messages come in.
    fn socket(&self) -> &Socket;
    /// Takes in what has come there.
    fn receive(&mut self, conn: &mut Connection) -> io::Result<()>;
    /// After everything that the connection had to send was sent. True if it may have more.
    fn on_sent(&mut self, conn: &mut Connection) -> bool;
    /// When [`on_timeout`](Self::on_timeout) is due.
    fn deadline(&self) -> Option<Instant>;
    /// Does what is due.
    fn on_timeout(&mut self, conn: &mut Connection);
    /// What it has come to so far.
    fn helped(&self) -> Helped;
}

/// Gives a new connection its help, which is at this address, if it is to have any.
pub(crate) type Helper<'a> =
    &'a dyn Fn(&mut Connection, SocketAddr) -> io::Result<Option<Box<dyn Help>>>;
