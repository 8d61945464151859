//! The plugin in the server's loop.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use quic_sidekick::{Assistance, Config, MAX_DATAGRAM_LEN, Mode, Sidekick};
use quiche::Connection;

use crate::endpoint::sockets::{DATAGRAM, Socket, now};
use crate::server::help::Help;
use crate::server::report::Helped;

/// A connection's help, with an adjacent socket of its own.
pub(crate) struct Sidekicked {
    sidekick: Sidekick,
    adjacent: Socket,
    buffer: Vec<u8>,
}

impl Sidekicked {
    pub(crate) fn attach(
        conn: &mut Connection,
        local: SocketAddr,
        mode: Mode,
        proxy: Option<SocketAddr>,
    ) -> io::Result<Option<Box<dyn Help>>> {
        let adjacent = Socket::bind(SocketAddr::new(local.ip(), 0))?;
        let mut sidekick = Sidekick::new(Config { proxy, ..Config::discover(mode) });
        sidekick.set_adjacent_port(adjacent.local_addr()?.port());
        sidekick.attach(conn);
        Ok(Some(Box::new(Self { sidekick, adjacent, buffer: vec![0; DATAGRAM] })))
    }

    fn speak(&mut self) {
        let mut message = [0; MAX_DATAGRAM_LEN];
        while let Some((len, proxy)) = self.sidekick.send(&mut message) {
            self.adjacent.send(message.get(..len).unwrap_or_default(), proxy);
        }
    }
}

impl Help for Sidekicked {
    fn socket(&self) -> &Socket {
        &self.adjacent
    }

    fn receive(&mut self, conn: &mut Connection) -> io::Result<()> {
        while let Some((len, from)) = self.adjacent.receive(&mut self.buffer)? {
            self.sidekick.recv(self.buffer.get(..len).unwrap_or_default(), from, conn, now());
        }
        Ok(())
    }

    fn on_sent(&mut self, conn: &mut Connection) -> bool {
        let again = self.sidekick.on_sent(conn, now());
        self.speak();
        again
    }

    fn deadline(&self) -> Option<Instant> {
        self.sidekick.timeout_instant()
    }

    fn on_timeout(&mut self, conn: &mut Connection) {
        self.sidekick.on_timeout(conn, now());
        self.speak();
    }

    fn helped(&self) -> Helped {
        let status = self.sidekick.status();
        Helped {
            assisted: status.assistance == Assistance::Assisted,
            assistance: status.assistance.to_string(),
            lost_early: status.stats.early_lost,
            spurious: status.stats.spurious,
            socket_errors: self.adjacent.errors(),
        }
    }
}

impl Drop for Sidekicked {
    fn drop(&mut self) {
        self.sidekick.stop();
        self.speak();
    }
}
