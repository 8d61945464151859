//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand};
use quic_sidekick::Mode;

/// Put or get a file over HTTP/3 with quiche and a Sidekick, on a loop of its own, and print one
/// JSON object.
///
/// It does what an application's client seldom does, such as changing its port in the middle, to
/// test whether servers support it.
#[derive(Debug, Parser)]
#[command(name = "interop-client", version)]
pub(crate) struct Cli {
    /// The server's address
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) server: SocketAddr,
    /// The name in its certificate
    #[arg(long, value_name = "NAME")]
    pub(crate) name: String,
    /// The root certificate that signed it (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) cafile: String,

    /// How to use a proxy's reports [default: no proxy]
    #[arg(long, value_name = "MODE")]
    pub(crate) sidekick: Option<Mode>,
    /// The proxy [default: any that is discovered on the path]
    #[arg(long, value_name = "ADDR:PORT", requires = "sidekick")]
    pub(crate) proxy: Option<SocketAddr>,
    /// Congestion control by quiche's name [default: the mode's own, otherwise cubic]
    #[arg(long, value_name = "NAME")]
    pub(crate) cc: Option<String>,

    /// The largest UDP payload to send
    #[arg(long, value_name = "BYTES", default_value_t = 1350, value_parser = clap::value_parser!(u16).range(1200..=1452))]
    pub(crate) payload: u16,
    /// The length of this end's connection IDs
    #[arg(long, value_name = "BYTES", default_value_t = 16, value_parser = clap::value_parser!(u8).range(0..=20))]
    pub(crate) cid_length: u8,
    /// Repeat the task on a second connection, with the request in 0-RTT
    #[arg(long)]
    pub(crate) resume: bool,
    /// Change the port in the middle
    #[arg(long)]
    pub(crate) migrate: bool,
    /// Count the server's key updates
    #[arg(long)]
    pub(crate) count_key_updates: bool,

    #[command(subcommand)]
    pub(crate) task: Task,
}

/// The request to the server.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Task {
    /// Upload FILE; the server must answer with {"bytes": N, "sha256": "HEX"}
    Put {
        /// The file
        file: PathBuf,
    },
    /// Download /NAME
    Get {
        /// The file's name on the server
        name: String,
        /// The number of requests
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
        times: u32,
        /// The most simultaneous requests
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
        at_once: u32,
    },
}

impl Cli {
    /// The congestion controller, by quiche's name.
    pub(crate) fn controller(&self) -> &str {
        let own = self.sidekick.and_then(Mode::congestion_control);
        self.cc.as_deref().or(own).unwrap_or("cubic")
    }
}
