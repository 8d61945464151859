//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

use crate::limits::Limits;

/// Store files that are uploaded over HTTP/3 (PUT or POST /NAME).
#[derive(Debug, Parser)]
#[command(name = "h3-upload-server", version)]
pub(crate) struct Cli {
    /// Where to put the files; it must exist
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Where to listen (UDP)
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:4433")]
    pub(crate) listen: SocketAddr,
    /// The server's certificate, followed by its intermediates (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Make up a certificate for this name or address; may be given several times
    #[arg(long, value_name = "NAME_OR_IP", conflicts_with_all = ["cert", "key"])]
    pub(crate) self_signed: Vec<String>,
    /// Write the made-up root certificate here, for the client's --cafile
    #[arg(long, value_name = "FILE", requires = "self_signed")]
    pub(crate) write_ca: Option<PathBuf>,
    /// Give up a connection that has been silent for this long
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) idle_timeout: u16,
    #[command(flatten)]
    pub(crate) limits: Limits,
}
