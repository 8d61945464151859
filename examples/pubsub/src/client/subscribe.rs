//! `pubsub subscribe`.

use std::time::Duration;

use h3_client::report::{self, Common, Measured};
use h3_client::words::say;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::codec::{Event, Place, Refused, Role};
use super::connection::Connection;
use super::patience::Patience;
use super::printer::{Line, Printer};
use super::publish::{details, messages};
use super::{Latencies, Percentiles, Stopped, latency, wall_clock};
use crate::cli::{PROGRAM, Subscribe};
use crate::name::PublisherName;

/// How long the last lines may take after an error or a signal.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The report of a subscriber.
#[derive(Debug, Serialize)]
struct Report<'a> {
    topic: &'a str,
    protocol: &'a str,
    received: u64,
    missed: u64,
    reconnections: u64,
    /// From the publication of a message to its arrival, by the clocks of both ends.
    latency_ms: Option<Percentiles>,
    #[serde(flatten)]
    common: Common,
}

/// A subscriber, over all its connections.
struct Subscriber<'a> {
    subscribe: &'a Subscribe,
    name: PublisherName,
    printer: Printer,
    /// When the broker first accepted it, in microseconds since 1970.
    began: Option<u64>,
    place: Place,
    received: u64,
    missed: u64,
    reconnections: u64,
    latencies: Latencies,
    patience: Patience,
}

/// Prints the messages of a topic. When `stop` fires, it closes the connection and returns an
/// error.
pub(crate) async fn run(
    subscribe: Subscribe,
    mut stop: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    let plan = &subscribe.client.plan;
    let topic = subscribe.client.topic.as_str();
    let mut subscriber = Subscriber {
        subscribe: &subscribe,
        name: PublisherName::random()?,
        printer: Printer::start(topic.to_owned(), plan.json)?,
        began: None,
        place: Place { from: subscribe.from, instance: None },
        received: 0,
        missed: 0,
        reconnections: 0,
        latencies: Latencies::new()?,
        patience: Patience::new(subscribe.client.reconnect, plan.quiet),
    };
    let measured = match subscriber.receive(&mut stop).await {
        Ok(measured) => measured,
        Err(error) => {
            // The client prints what has arrived. But the reader of standard output may be stuck.
            let _ = timeout(LAST_LINES, subscriber.printer.end()).await;
            return Err(error);
        }
    };
    let report = Report {
        topic,
        protocol: subscribe.client.protocol.name(),
        received: subscriber.received,
        missed: subscriber.missed,
        reconnections: subscriber.reconnections,
        latency_ms: subscriber.latencies.percentiles(),
        common: Common::new(plan, &measured),
    };
    // The last line after all others.
    tokio::select! {
        printed = subscriber.printer.end() => printed?,
        _ = stop => return Err(Stopped.into()),
    }
    let summary = format!(
        "{} received from {topic}, {} missed; latency {}{}",
        messages(report.received),
        report.missed,
        latency(report.latency_ms),
        details(plan, &report.common),
    );
    report::show(plan, &report, &summary)
}

impl Subscriber<'_> {
    /// Receives, and reconnects when necessary.
    async fn receive(&mut self, stop: &mut oneshot::Receiver<()>) -> anyhow::Result<Measured> {
        loop {
            let error = match self.attempt(stop).await {
                Err(error) if !error.is::<Stopped>() => error,
                ended => return ended,
            };
            tokio::select! {
                pause = self.patience.pause(error) => pause?,
                _ = &mut *stop => return Err(Stopped.into()),
            }
            self.reconnections += 1;
        }
    }

    /// Receives over one connection until that ends, or enough has arrived.
    async fn attempt(&mut self, stop: &mut oneshot::Receiver<()>) -> anyhow::Result<Measured> {
        let client = &self.subscribe.client;
        let connection =
            Connection::open(client, &self.name, Role::Subscriber(self.place), stop).await?;
        self.patience.found();
        connection.carry(async |connection| self.exchange(connection).await, stop).await
    }

    async fn exchange(&mut self, connection: &mut Connection) -> anyhow::Result<()> {
        let plan = &self.subscribe.client.plan;
        let mut events = Vec::new();
        loop {
            let turned = tokio::select! {
                turned = connection.turn(&mut events) => turned,
                failed = self.printer.failed() => {
                    // A new connection would not help.
                    Err(Refused::from(format!("{failed:#}")).into())
                }
            };
            // Messages before an error count, too.
            for event in events.drain(..) {
                let line = match event {
                    Event::Began(place) => self.began(place),
                    Event::Message { sequence, time, payload } => {
                        let latency = self.message(sequence, time);
                        let latency_ms = latency.map(|latency| latency as f64 / 1e3);
                        Some(Line::Message { sequence, latency_ms, payload })
                    }
                    Event::Missed(count) => {
                        self.missed(count);
                        Some(Line::Missed(count))
                    }
                    Event::Acknowledged(_) => None,
                };
                if let Some(line) = line {
                    // If the thread has ended, its result says why.
                    let _ = self.printer.lines.send(line).await;
                }
                if self.subscribe.count.is_some_and(|count| self.received >= count) {
                    return Ok(());
                }
            }
            if let Some(head) = turned? {
                return Err(connection.refusal(plan, head).await);
            }
        }
    }

    fn began(&mut self, place: Place) -> Option<Line> {
        self.patience.accepted();
        let known = self.place.instance;
        let restarted = known.is_some() && place.instance != known;
        let first = self.began.is_none();
        self.began.get_or_insert_with(wall_clock);
        self.place.instance = place.instance;
        if self.place.from.is_none() || restarted {
            self.place.from = place.from;
        }
        let topic = &self.subscribe.client.topic;
        if restarted {
            self.say(&format!(
                "the broker has restarted: the earlier messages of {topic} are gone"
            ));
        } else if first {
            self.say(&format!("subscribed to {topic}"));
        }
        restarted.then_some(Line::Restarted)
    }

    /// Notes a message. Returns its latency in microseconds.
    fn message(&mut self, sequence: Option<u64>, time: u64) -> Option<u64> {
        self.patience.served();
        self.received += 1;
        if let Some(sequence) = sequence {
            let next = sequence.saturating_add(1);
            self.place.from = Some(self.place.from.map_or(next, |from| from.max(next)));
        }
        // A message from before this subscriber has no latency.
        let latency = self.began.filter(|began| time >= *began).and_then(|_| {
            // The publisher's clock may be ahead.
            wall_clock().checked_sub(time)
        })?;
        self.latencies.add(latency);
        Some(latency)
    }

    fn missed(&mut self, count: u64) {
        self.patience.served();
        self.missed = self.missed.saturating_add(count);
        if let Some(from) = &mut self.place.from {
            *from = from.saturating_add(count);
        }
        self.say(&format!("{} gone before they could be received", messages(count)));
    }

    fn say(&self, sentence: &str) {
        if !self.subscribe.client.plan.quiet {
            say(&format!("{PROGRAM}: {sentence}"));
        }
    }
}
