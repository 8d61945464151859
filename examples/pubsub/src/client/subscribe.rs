//! `pubsub subscribe`.

use std::time::Duration;

use h3_client::words::say;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::connection::Connection;
use super::patience::Patience;
use super::printer::{Line, Printer};
use super::{
    Event, Latencies, Percentiles, Place, Refused, Role, Task, messages, run as run_task, show,
    unless, wall_clock,
};
use crate::cli::{Client, PROGRAM};
use crate::topic::Message;

/// How long the last lines may take after an error or a signal.
const LAST_LINES: Duration = Duration::from_secs(1);

/// A subscriber's own part of its report.
#[derive(Debug, Serialize)]
struct Own {
    received: u64,
    missed: u64,
    /// From the publication of a message to its arrival, by the clocks of both ends.
    latency_ms: Option<Percentiles>,
}

/// A subscriber, over all its connections.
struct Subscriber<'a> {
    client: &'a Client,
    /// It is done after so many messages.
    count: Option<u64>,
    printer: Printer,
    /// When the broker first accepted it, in microseconds since 1970.
    began: Option<u64>,
    place: Place,
    received: u64,
    missed: u64,
    latencies: Latencies,
}

/// Prints the messages of a topic. When `stop` fires, it closes the connection and returns an
/// error.
pub(crate) async fn run(
    client: Client,
    from: Option<u64>,
    count: Option<u64>,
    mut stop: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    let mut subscriber = Subscriber {
        client: &client,
        count,
        printer: Printer::start(client.topic.to_string(), client.plan.json),
        began: None,
        place: Place { from, instance: None },
        received: 0,
        missed: 0,
        latencies: Latencies::new()?,
    };
    let done = match run_task(&client, &mut subscriber, &mut stop).await {
        Ok(done) => done,
        Err(error) => {
            // The client prints what has arrived. But the reader of standard output may be stuck.
            let _ = timeout(LAST_LINES, subscriber.printer.end()).await;
            return Err(error);
        }
    };
    let Subscriber { received, missed, latencies, printer, .. } = subscriber;
    // The last line after all others.
    unless(&mut stop, printer.end()).await?;
    let (latency_ms, latency) = latencies.report();
    let summary = format!(
        "{} received from {}, {missed} missed; latency {latency}",
        messages(received),
        client.topic
    );
    show(&client, &done, Own { received, missed, latency_ms }, &summary)
}

impl Task for Subscriber<'_> {
    fn role(&mut self) -> Role {
        Role::Subscriber(self.place)
    }

    async fn exchange(
        &mut self,
        connection: &mut Connection,
        patience: &mut Patience,
    ) -> anyhow::Result<()> {
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
                if let Some(line) = self.line(event, patience) {
                    // If the thread has ended, its result says why.
                    let _ = self.printer.lines.send(line).await;
                }
                if self.count.is_some_and(|count| self.received >= count) {
                    return Ok(());
                }
            }
            if let Some(head) = turned? {
                return Err(head.refusal(&self.client.plan).await);
            }
        }
    }
}

impl Subscriber<'_> {
    /// The line about an event, if it needs one.
    fn line(&mut self, event: Event, patience: &mut Patience) -> Option<Line> {
        match event {
            Event::Began(place) => {
                patience.accepted();
                self.began(place).then_some(Line::Restarted { restarted: true })
            }
            Event::Message(message) => {
                patience.served();
                let latency = self.message(&message);
                Some(Line::Message {
                    sequence: (message.sequence > 0).then_some(message.sequence),
                    latency_ms: latency.map(|latency| latency as f64 / 1e3),
                    bytes: message.payload.len(),
                    message: String::from_utf8_lossy(&message.payload).into_owned(),
                })
            }
            Event::Missed(missed) => {
                patience.served();
                self.missed = self.missed.saturating_add(missed);
                if let Some(from) = &mut self.place.from {
                    *from = from.saturating_add(missed);
                }
                self.say(&format!("{} gone before they could be received", messages(missed)));
                Some(Line::Missed { missed })
            }
            Event::Acknowledged(_) => None,
        }
    }

    /// Notes that the broker accepted it. Returns whether the broker has restarted.
    fn began(&mut self, place: Place) -> bool {
        let known = self.place.instance;
        let restarted = known.is_some() && place.instance != known;
        let first = self.began.is_none();
        self.began.get_or_insert_with(wall_clock);
        self.place.instance = place.instance;
        if self.place.from.is_none() || restarted {
            self.place.from = place.from;
        }
        let topic = &self.client.topic;
        if restarted {
            self.say(&format!(
                "the broker has restarted: the earlier messages of {topic} are gone"
            ));
        } else if first {
            self.say(&format!("subscribed to {topic}"));
        }
        restarted
    }

    /// Notes a message. Returns its latency in microseconds.
    fn message(&mut self, message: &Message) -> Option<u64> {
        self.received += 1;
        if message.sequence > 0 {
            let next = message.sequence.saturating_add(1);
            self.place.from = Some(self.place.from.map_or(next, |from| from.max(next)));
        }
        // A message from before this subscriber has no latency.
        self.began.filter(|began| message.time >= *began)?;
        // The publisher's clock may be ahead.
        let latency = wall_clock().checked_sub(message.time)?;
        self.latencies.add(latency);
        Some(latency)
    }

    fn say(&self, sentence: &str) {
        if !self.client.plan.quiet {
            say(&format!("{PROGRAM}: {sentence}"));
        }
    }
}
