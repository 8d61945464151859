//! The output at the end of a connection.

use std::io::Write as _;

use quiche::Connection;
use serde::Serialize;

use super::help::{Help, Helped};

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
