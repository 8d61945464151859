//! The command line, of both servers.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

/// What every server of the matrix is told.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Where to listen (UDP)
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) listen: SocketAddr,
    /// The certificate, followed by its intermediates (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) cert: String,
    /// Its private key (PEM)
    #[arg(long, value_name = "FILE")]
    pub(crate) key: String,
    /// Where the files are that are served
    #[arg(long, value_name = "DIR")]
    pub(crate) root: PathBuf,
    /// The length of the connection IDs that this end chooses
    #[arg(long, value_name = "BYTES", default_value_t = 16, value_parser = clap::value_parser!(u8).range(0..=20))]
    pub(crate) cid_length: u8,
    /// End after the first connection
    #[arg(long)]
    pub(crate) once: bool,
    /// Heard and left to the client's order: quiche has no say in it
    #[arg(long, value_name = "NAME", hide = true)]
    pub(crate) cipher: Option<String>,
    /// Congestion control by quiche's name [default: cubic, or what --sidekick works with, where
    /// there is that]
    #[arg(long, value_name = "NAME")]
    pub(crate) cc: Option<String>,
}
