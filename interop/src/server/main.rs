//! `interop-server`: the server of the matrix on the hooked quiche. A proxy can help its sending.

#[path = "../endpoint/mod.rs"]
mod endpoint;
#[path = "mod.rs"]
mod server;
mod sidekicked;

use std::process::ExitCode;

use clap::Parser;
use quic_sidekick::Mode;

use server::Options;

/// An HTTP/3 server on quiche with the hook. It answers PUT and POST with the body's length and
/// hash, and GET with a file
#[derive(Debug, Parser)]
#[command(name = "interop-server", version)]
struct Cli {
    #[command(flatten)]
    options: Options,
    /// How to use a proxy's reports [default: no proxy]
    #[arg(long, value_name = "MODE")]
    sidekick: Option<Mode>,
    /// The proxy [default: any that is discovered on the path]
    #[arg(long, value_name = "ADDR:PORT", requires = "sidekick")]
    proxy: Option<std::net::SocketAddr>,
}

fn main() -> ExitCode {
    let mut cli = Cli::parse();
    let own = cli.sidekick.and_then(Mode::congestion_control);
    cli.options.cc = cli.options.cc.or(own.map(str::to_owned));
    let (mode, proxy) = (cli.sidekick, cli.proxy);
    let helper: server::Helper<'_> = &|conn| match mode {
        Some(mode) => sidekicked::Sidekicked::attach(conn, mode, proxy),
        None => Ok(None),
    };
    match server::serve::serve(&cli.options, helper) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interop-server: {error:#}");
            ExitCode::FAILURE
        }
    }
}
