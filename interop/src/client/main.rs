//! `interop-client`: uploads and downloads with quiche and the plugin, on a loop of its own.
//!
//! | file | what it does |
//! |---|---|
//! | `cli.rs` | the command line |
//! | `session.rs` | one connection: quiche, its sockets, the help |
//! | `exchange.rs` | its requests and their answers |
//! | `report.rs` | the output |

mod cli;
#[path = "../endpoint/mod.rs"]
mod endpoint;
mod exchange;
mod report;
mod session;

use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use clap::Parser as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use cli::Cli;
use exchange::Exchange;
use report::Report;
use session::Session;

fn main() -> ExitCode {
    // Silent by default.
    let filter: Targets = std::env::var("RUST_LOG").unwrap_or_default().parse().unwrap_or_default();
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(std::io::stderr);
    tracing_subscriber::registry().with(filter).with(lines).init();
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interop-client: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let authority = format!("{}:{}", cli.name, cli.server.port());
    let mut exchange = Exchange::new(&cli.task, &authority, cli.migrate)?;
    let mut session = Session::new(cli, None)?;
    let mut took = session.run(&mut exchange, cli.resume)?;
    if cli.resume {
        let ticket = session.ticket().context("the server sent no session ticket")?.to_owned();
        let first = exchange.digest();
        exchange = Exchange::new(&cli.task, &authority, cli.migrate)?;
        session = Session::new(cli, Some(&ticket))?;
        took = session.run(&mut exchange, false)?;
        ensure!(
            exchange.digest().sha256() == first.sha256(),
            "the second answer differs from the first"
        );
    }
    Report::new(cli, &mut session, &exchange, took).print()
}
