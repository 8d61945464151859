//! The plugin in the server's loop.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use quic_sidekick::{Assistance, Config, Driver, Mode};
use quiche::Connection;

use crate::endpoint::sockets::now;
use crate::server::{Help, Helped};

/// A connection's help, with its own adjacent socket.
pub(crate) struct Sidekicked {
    driver: Driver,
}

impl Sidekicked {
    pub(crate) fn attach(
        conn: &mut Connection,
        mode: Mode,
        proxy: Option<SocketAddr>,
    ) -> io::Result<Option<Box<dyn Help>>> {
        let mut driver = Driver::new(Config { proxy, ..Config::discover(mode) });
        driver.attach(conn)?;
        Ok(Some(Box::new(Self { driver })))
    }
}

impl Help for Sidekicked {
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.driver.socket().map(AsFd::as_fd)
    }

    fn receive(&mut self, conn: &mut Connection) {
        self.driver.receive(conn, now());
    }

    fn on_sent(&mut self, conn: &mut Connection) -> bool {
        self.driver.on_sent(conn, now())
    }

    fn deadline(&self) -> Option<Instant> {
        self.driver.poll_timeout()
    }

    fn helped(&self) -> Helped {
        let status = self.driver.status();
        Helped {
            assisted: status.assistance == Assistance::Assisted,
            assistance: status.assistance.to_string(),
            lost_early: status.stats.early_lost,
            spurious: status.stats.spurious,
            socket_errors: self.driver.socket_errors(),
        }
    }
}

impl Drop for Sidekicked {
    fn drop(&mut self) {
        self.driver.stop();
    }
}
