//! The command line, of both servers.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

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
