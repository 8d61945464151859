//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use h3_server::identity;

use crate::limits::Limits;

/// Store files that are uploaded over HTTP/3 (PUT or POST /NAME), and return them (GET /NAME).
#[derive(Debug, Parser)]
#[command(
    name = "h3-upload-server",
    version,
    override_usage = "h3-upload-server --dir <DIR> --cert <FILE> --key <FILE> [OPTIONS]\n       \
                      h3-upload-server --dir <DIR> --self-signed <NAME_OR_IP> [OPTIONS]"
)]
pub(crate) struct Cli {
    /// The directory for the files; it must exist
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The address to listen on (UDP)
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:4433")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) identity: identity::Options,
    /// Drop a connection after this time without a packet
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) idle_timeout: u16,
    #[command(flatten)]
    pub(crate) limits: Limits,
}
