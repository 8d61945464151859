//! The clients: a publisher and a subscriber, over HTTP/3 or MQTT.

mod connection;
mod patience;
mod printer;
pub(crate) mod publish;
pub(crate) mod source;
mod stream;
pub(crate) mod subscribe;

use std::time::SystemTime;

use h3_client::report::{self, Common, Measured};
use hdrhistogram::Histogram;
use serde::Serialize;
use thiserror::Error;
use tokio::sync::oneshot;

use crate::cli::{Client, Protocol};
use crate::name::{PublisherName, Secret};
use crate::topic::Message;
use connection::Connection;
use patience::Patience;

/// The present time, in microseconds since 1970.
#[allow(clippy::disallowed_methods, reason = "a program's edge: it reads the real clock")]
fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// A signal ended the client.
#[derive(Debug, thiserror::Error)]
#[error("stopped")]
struct Stopped;

/// The result of `future`, or [`Stopped`] if `stop` fires first.
async fn unless<T>(
    stop: &mut oneshot::Receiver<()>,
    future: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    tokio::select! {
        result = future => result,
        _ = stop => Err(Stopped.into()),
    }
}

/// A client's part that depends on its role.
trait Task {
    /// Its role on the next connection.
    fn role(&mut self) -> Role;

    /// Uses one connection until all is done. An error is the end of the connection.
    async fn exchange(
        &mut self,
        connection: &mut Connection,
        patience: &mut Patience,
    ) -> anyhow::Result<()>;
}

/// The last connection of a client that is done.
#[derive(Debug)]
struct Done {
    measured: Measured,
    /// Connections after the first.
    reconnections: u64,
}

/// Lets `task` use one connection after another until it is done. When `stop` fires, it closes the
/// connection and returns an error.
async fn run(
    client: &Client,
    task: &mut impl Task,
    stop: &mut oneshot::Receiver<()>,
) -> anyhow::Result<Done> {
    let name = PublisherName::random()?;
    let mut patience = Patience::new(client.reconnect, client.plan.quiet);
    let mut reconnections = 0;
    loop {
        let attempt = async {
            // Before the handshake there is no connection to close.
            let mut connection = unless(stop, Connection::open(client, &name, task.role())).await?;
            patience.found();
            let ended = unless(stop, task.exchange(&mut connection, &mut patience)).await;
            connection.close(ended).await
        };
        match attempt.await {
            Ok(measured) => return Ok(Done { measured, reconnections }),
            Err(error) if error.is::<Stopped>() => return Err(error),
            Err(error) => unless(stop, patience.pause(error)).await?,
        }
        reconnections += 1;
    }
}

/// The report of a client.
#[derive(Debug, Serialize)]
struct Report<'a, T> {
    topic: &'a str,
    protocol: Protocol,
    #[serde(flatten)]
    own: T,
    reconnections: u64,
    #[serde(flatten)]
    common: Common,
}

/// Shows the report of a client that is done, or its summary.
fn show(client: &Client, done: &Done, own: impl Serialize, summary: &str) -> anyhow::Result<()> {
    let common = Common::new(&client.plan, &done.measured);
    // Lines about the connection, if the user asked for help with it.
    let details = match client.plan.assistance {
        Some(_) => format!("\n{}{}", common.packets(), common.help()),
        None => String::new(),
    };
    let (topic, protocol) = (client.topic.as_str(), client.protocol);
    let report = Report { topic, protocol, own, reconnections: done.reconnections, common };
    report::show(&client.plan, &report, &format!("{summary}{details}"))
}

/// A number of messages.
fn messages(count: u64) -> String {
    match count {
        1 => "1 message".to_owned(),
        _ => format!("{count} messages"),
    }
}

/// The longest latency, in microseconds: a day. Longer ones count as this.
const LONGEST_LATENCY: u64 = 86_400_000_000;

/// Latencies, with three significant digits.
#[derive(Debug)]
struct Latencies(Histogram<u64>);

/// Latencies of a report, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Percentiles {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Latencies {
    fn new() -> anyhow::Result<Self> {
        Ok(Self(Histogram::new_with_bounds(1, LONGEST_LATENCY, 3)?))
    }

    /// Adds a latency in microseconds.
    fn add(&mut self, microseconds: u64) {
        self.0.saturating_record(microseconds);
    }

    /// `None` without a latency. Also returns the same in words.
    fn report(&self) -> (Option<Percentiles>, String) {
        if self.0.is_empty() {
            return (None, "an unknown time".to_owned());
        }
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1e3;
        let [p50, p99, max] = [at(0.5), at(0.99), self.0.max() as f64 / 1e3];
        let words = format!("{p50:.1} ms (median), {p99:.1} ms (99 %), {max:.1} ms at most");
        (Some(Percentiles { p50, p99, max }), words)
    }
}

/// The longest message that a client accepts or sends, in bytes. Brokers allow fewer by default.
pub(crate) const LONGEST_MESSAGE: usize = 16 << 20;

/// A position in a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of the next message; `None` to begin with the last value.
    pub(crate) from: Option<u64>,
    /// The life of the broker to which the number belongs.
    pub(crate) instance: Option<u64>,
}

/// The role of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// A publisher whose name belongs to this secret.
    Publisher(Secret),
    /// A subscriber that begins at this position.
    Subscriber(Place),
}

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The broker accepted the subscriber, which begins at this position.
    Began(Place),
    /// The broker has all messages up to this number of the publisher's.
    Acknowledged(u64),
    /// A message. Other MQTT brokers do not number messages.
    Message(Message),
    /// The broker no longer has this many messages.
    Missed(u64),
}

/// Why a client ends a connection.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{reason}")]
pub(crate) struct Refused {
    pub(crate) reason: String,
    /// Whether the broker has reached a limit. It may not have detected yet that this client's
    /// former connection is lost. Otherwise a new connection would fail, too: the broker refuses,
    /// or speaks another protocol, or this program cannot read its input or write its output.
    pub(crate) busy: bool,
}

/// A refusal of every connection.
impl From<String> for Refused {
    fn from(reason: String) -> Self {
        Self { reason, busy: false }
    }
}
