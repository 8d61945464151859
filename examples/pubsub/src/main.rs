//! `pubsub`: publish and subscribe over HTTP/3 or MQTT 5, with or without a Sidekick proxy's help.
//!
//! The broker runs on quinn, without Sidekick. Publishers and subscribers run on quiche with
//! the plugin, in both protocols. So a measurement compares protocols, not stacks.
//!
//! | file | what it does |
//! |---|---|
//! | `cli.rs`, `limits.rs` | the command line, and the broker's limits |
//! | `topic.rs`, `name.rs`, `outbox.rs` | topics, names, and a publisher's unacknowledged messages |
//! | `frame.rs` | the bodies of HTTP/3 |
//! | `mqtt.rs`, `mqtt/` | MQTT 5 at both ends |
//! | `broker.rs`, `broker/` | the connections of the broker, and its topics |
//! | `client.rs`, `client/` | the publisher and the subscriber |
//!
//! `topic.rs`, `frame.rs`, `outbox.rs` and `mqtt/` do no I/O.

mod broker;
mod cli;
mod client;
mod frame;
mod limits;
mod mqtt;
mod name;
mod outbox;
mod topic;

use std::process::ExitCode;

use clap::Parser as _;
use h3_client::program;

use cli::{Cli, Command, PROGRAM};

fn main() -> ExitCode {
    program::exit(PROGRAM, run(Cli::parse()))
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Broker(broker) => broker::run(broker),
        Command::Publish(cli) => {
            program::log();
            let (client, source) = cli.plan()?;
            program::run(PROGRAM, async |stop| client::publish::run(client, source, stop).await)
        }
        Command::Subscribe(cli) => {
            program::log();
            let (client, from, count) = (cli.client.plan()?, cli.from, cli.count);
            program::run(PROGRAM, async |stop| {
                client::subscribe::run(client, from, count, stop).await
            })
        }
    }
}
