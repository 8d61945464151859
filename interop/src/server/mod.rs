//! An HTTP/3 server on quiche alone, with one thread, one socket, and a loop. Cargo compiles it
//! twice, on stock quiche and on the hooked one. This module has the options, the interface between
//! the loop and a Sidekick, and the output at the end of a connection.
//!
//! | file | what it does |
//! |---|---|
//! | `serve.rs` | the loop, and the assignment of datagrams to connections |
//! | `service.rs` | a connection's requests |

pub(crate) mod serve;
pub(crate) mod service;

use clap::Args;
use quiche::Connection;
use serde::Serialize;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::Instant;

/// The options of every server of the matrix.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The address to listen on (UDP)
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: SocketAddr,
    /// The certificate, followed by its intermediates (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) cert: String,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) key: String,
    /// The directory of the files to serve
    #[arg(long, value_name = "DIR")]
    pub(crate) root: PathBuf,
    /// The length of this end's connection IDs
    #[arg(long, value_name = "BYTES", default_value_t = 16, value_parser = clap::value_parser!(u8).range(0..=20))]
    pub(crate) cid_length: u8,
    /// End after the first connection
    #[arg(long)]
    pub(crate) once: bool,
    /// Ignored: quiche follows the client's order
    #[arg(long, value_name = "NAME", hide = true)]
    pub(crate) cipher: Option<String>,
    /// Congestion control by quiche's name [default: the mode's own, otherwise cubic]
    #[arg(long, value_name = "NAME")]
    pub(crate) cc: Option<String>,
}

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

/// One JSON object on a line of standard output, with the field names of the client's report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    assisted: bool,
    assistance: String,
    packets: Packets,
    /// Errors that the network reported at the server's socket and at the adjacent one.
    socket_errors: u64,
}

#[derive(Debug, Serialize)]
struct Packets {
    sent: usize,
    lost_end_to_end: usize,
    lost_early: u64,
    spurious: u64,
}

impl Report {
    /// The connection's present assistance and packet counts. `errors` is the count of the server's
    /// socket.
    pub(crate) fn of(conn: &Connection, help: Option<&dyn Help>, errors: u64) -> Self {
        let off = Helped {
            assisted: false,
            assistance: "off".to_owned(),
            lost_early: 0,
            spurious: 0,
            socket_errors: 0,
        };
        let Helped { assisted, assistance, lost_early, spurious, socket_errors } =
            help.map_or(off, Help::helped);
        let stats = conn.stats();
        let packets =
            Packets { sent: stats.sent, lost_end_to_end: stats.lost, lost_early, spurious };
        Self { assisted, assistance, packets, socket_errors: errors + socket_errors }
    }

    pub(crate) fn print(&self) {
        if let Ok(line) = serde_json::to_string(self) {
            // If standard output is closed, the server continues to serve.
            let _ = writeln!(std::io::stdout(), "{line}");
        }
    }
}
