//! The command line.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::ensure;
use bytes::Bytes;
use clap::{Args, Parser, Subcommand, ValueEnum};
use h3_client::options::{Options, Plan, Trust};
use h3_client::target::{Target, parse_url};
use h3_server::identity;
use serde::Serialize;
use url::Url;

use crate::client::LONGEST_MESSAGE;
use crate::client::source::Source;
use crate::limits::Limits;
use crate::name::TopicName;

/// The program's name, for its messages.
pub(crate) const PROGRAM: &str = "pubsub";

/// The examples at the end of the help.
const ABOUT: &str = "\
Publish messages to topics and subscribe to them, over HTTP/3 or MQTT 5, and the broker between.

To try it on one machine:
    pubsub broker --self-signed localhost --write-ca ca.pem
    pubsub subscribe --ca ca.pem house/kitchen
    pubsub publish --ca ca.pem house/kitchen '21.5 degrees'
With --sidekick auto, a Sidekick proxy on the path of a publisher or a subscriber helps.";

const QLOG: &str = "Write the events of the latest connection and the proxy to FILE, for qvis and \
                    other readers of qlog";
const STALL_TIMEOUT: &str = "A publisher reconnects after this many seconds without an \
                             acknowledgement, and waits as long for the text of a refusal";

#[derive(Debug, Parser)]
#[command(name = PROGRAM, version, about = ABOUT, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Broker(BrokerCli),
    Publish(PublishCli),
    Subscribe(SubscribeCli),
}

/// Keep topics, and serve their publishers and subscribers
///
/// The broker speaks HTTP/3 and MQTT 5 over QUIC, at one UDP port and about the same topics. It
/// keeps them in memory: a topic's last value, and its latest messages for subscribers that
/// reconnect or are slow. Anyone who can reach it may publish and subscribe.
#[derive(Debug, Args)]
pub(crate) struct BrokerCli {
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

/// Publish a message, each line of standard input, or generated messages
///
/// A message counts as published once the broker has acknowledged it. After a lost connection the
/// publisher reconnects, and sends unacknowledged messages again. The broker drops those that it
/// already has.
#[derive(Debug, Args)]
pub(crate) struct PublishCli {
    #[command(flatten)]
    client: ClientCli,
    /// The message [default: each line of standard input is a message]
    #[arg(conflicts_with = "count")]
    message: Option<String>,
    /// Publish N generated messages, for measurements
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// The time between generated messages; 0 for as fast as possible
    #[arg(long, value_name = "MS", default_value_t = 100, requires = "count")]
    interval: u32,
    /// The size of a generated message
    #[arg(long, value_name = "BYTES", default_value_t = 100, requires = "count")]
    size: usize,
}

/// Print the messages of a topic as they arrive
///
/// The broker sends the last value at once. A topic without messages is not an error: the
/// subscriber waits. After a lost connection it reconnects and resumes where it was. If the broker
/// no longer has some messages, the subscriber reports how many.
#[derive(Debug, Args)]
pub(crate) struct SubscribeCli {
    #[command(flatten)]
    pub(crate) client: ClientCli,
    /// Begin with the message of this number, or the oldest after it that the broker has [default:
    /// with the last value]
    #[arg(long, value_name = "SEQUENCE")]
    pub(crate) from: Option<u64>,
    /// End after N messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

/// The options of both kinds of client. It replaces the help of some options that it shares with
/// other programs.
#[derive(Debug, Args)]
#[command(
    mut_arg("insecure", |arg| arg.hide(true)),
    mut_arg("json", |arg| arg.help("Print JSON on standard output: messages, and at the end a summary")),
    mut_arg("quiet", |arg| arg.help("Show only messages and errors")),
    mut_arg("qlog", |arg| arg.help(QLOG)),
    mut_arg("stall_timeout", |arg| arg.help(STALL_TIMEOUT))
)]
pub(crate) struct ClientCli {
    /// The topic, such as house/kitchen/temperature
    #[arg(value_parser = TopicName::new)]
    topic: TopicName,
    /// The broker
    #[arg(long, value_name = "URL", default_value = "https://localhost:4433/", value_parser = parse_url)]
    broker: Url,
    /// The protocol
    #[arg(long, value_enum, default_value_t = Protocol::Http3)]
    protocol: Protocol,
    /// Try for this many seconds to reach a lost broker again; 0 does not retry
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    reconnect: u32,
    #[command(flatten)]
    options: Options,
}

/// The protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    /// HTTP/3
    Http3,
    /// MQTT 5 over a QUIC stream
    Mqtt,
}

/// A checked command line of a client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) topic: TopicName,
    pub(crate) protocol: Protocol,
    pub(crate) reconnect: Duration,
    pub(crate) plan: Plan,
}

impl PublishCli {
    /// Checks the command line.
    pub(crate) fn plan(self) -> anyhow::Result<(Client, Source)> {
        let repeated = |message, count, every| Source::Repeated { message, count, every };
        let source = match (self.message, self.count) {
            (Some(message), _) => repeated(Bytes::from(message), 1, Duration::ZERO),
            (None, Some(count)) => {
                ensure!(
                    self.size <= LONGEST_MESSAGE,
                    "--size is {LONGEST_MESSAGE} at most: no broker accepts more"
                );
                // Digits, so that a subscriber's output is readable.
                let digits: Vec<_> =
                    b"0123456789".iter().copied().cycle().take(self.size).collect();
                repeated(digits.into(), count, Duration::from_millis(self.interval.into()))
            }
            (None, None) => Source::Lines,
        };
        Ok((self.client.plan()?, source))
    }
}

impl ClientCli {
    /// Checks the command line.
    pub(crate) fn plan(self) -> anyhow::Result<Client> {
        let plan = self.options.plan(PROGRAM, Target::new(&self.broker, self.topic.path())?)?;
        ensure!(
            plan.trust != Trust::Any,
            "pubsub always checks the broker's certificate: name its root with --ca FILE instead \
             of --insecure"
        );
        let reconnect = Duration::from_secs(self.reconnect.into());
        Ok(Client { topic: self.topic, protocol: self.protocol, reconnect, plan })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(arguments: &[&str]) -> anyhow::Result<Source> {
        let cli = Cli::try_parse_from(["pubsub", "publish"].iter().chain(arguments))?;
        let Command::Publish(publish) = cli.command else { panic!("{cli:?}") };
        Ok(publish.plan()?.1)
    }

    #[test]
    fn a_message_comes_from_one_place() {
        let repeated = |message: &'static str, count| {
            let message = Bytes::from_static(message.as_bytes());
            Source::Repeated { message, count, every: Duration::ZERO }
        };
        assert_eq!(publish(&["a", "21.5"]).unwrap(), repeated("21.5", 1));
        assert_eq!(publish(&["a"]).unwrap(), Source::Lines);
        let arguments = ["a", "--count", "3", "--interval", "0", "--size", "12"];
        assert_eq!(publish(&arguments).unwrap(), repeated("012345678901", 3));
        assert!(publish(&["a", "21.5", "--count", "3"]).is_err());
        assert!(publish(&["a", "--size", "3"]).is_err());
        assert!(publish(&["a", "--count", "1", "--size", "99999999"]).is_err());
        assert!(publish(&["a/#"]).unwrap_err().to_string().contains("wildcard"));
    }

    #[test]
    fn the_certificate_is_always_checked() {
        assert!(publish(&["a", "b", "--insecure"]).unwrap_err().to_string().contains("--ca"));
    }

    #[test]
    fn every_command_has_its_help() {
        use clap::CommandFactory as _;
        Cli::command().debug_assert();
        for command in Cli::command().get_subcommands() {
            assert!(command.get_long_about().is_some(), "{}", command.get_name());
        }
        let mut command = Cli::command();
        let help = command.find_subcommand_mut("publish").unwrap().render_help().to_string();
        assert!(help.contains("A publisher reconnects") && help.contains("[alias: --ca]"));
        assert!(!help.contains("--insecure") && !help.contains("of the file moves"), "{help}");
    }
}
