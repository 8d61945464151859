//! `pubsub publish`.

use anyhow::{anyhow, bail, ensure};
use bytes::Bytes;
use h3_client::now;
use h3_client::options::Plan;
use h3_client::report::{self, Common, Measured};
use h3_client::words::say;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::codec::{Event, Refused, Role};
use super::connection::Connection;
use super::patience::Patience;
use super::source::Next;
use super::{Latencies, Percentiles, Stopped, latency, wall_clock};
use crate::cli::{PROGRAM, Publish};
use crate::name::{PublisherName, Secret};
use crate::outbox::Outbox;

/// The report of a publisher.
#[derive(Debug, Serialize)]
struct Report<'a> {
    topic: &'a str,
    protocol: &'a str,
    /// Messages that the broker acknowledged.
    acknowledged: u64,
    /// Connections after the first.
    reconnections: u64,
    /// From the publication of a message to its acknowledgement.
    acknowledgement_ms: Option<Percentiles>,
    time_s: f64,
    #[serde(flatten)]
    common: Common,
}

/// A publisher, over all its connections.
struct Publisher<'a> {
    publish: &'a Publish,
    name: PublisherName,
    secret: Secret,
    messages: mpsc::Receiver<Next>,
    /// Whether there may be more of them.
    more: bool,
    outbox: Outbox,
    latencies: Latencies,
    patience: Patience,
}

/// Publishes all messages. When `stop` fires, it closes the connection and returns an error.
pub(crate) async fn run(publish: Publish, mut stop: oneshot::Receiver<()>) -> anyhow::Result<()> {
    let plan = &publish.client.plan;
    let mut publisher = Publisher {
        publish: &publish,
        name: PublisherName::random()?,
        secret: Secret::random()?,
        messages: publish.source.clone().begin()?,
        more: true,
        outbox: Outbox::new(),
        latencies: Latencies::new()?,
        patience: Patience::new(publish.client.reconnect, plan.quiet),
    };
    let started = now();
    let mut reconnections = 0;
    let measured = loop {
        let error = match publisher.attempt(&mut stop).await {
            Ok(measured) => break measured,
            Err(error) if error.is::<Stopped>() => return Err(publisher.stopped()),
            Err(error) => error,
        };
        let pause = tokio::select! {
            pause = publisher.patience.pause(error) => pause,
            _ = &mut stop => return Err(publisher.stopped()),
        };
        pause.map_err(|error| publisher.unfinished(error))?;
        reconnections += 1;
    };
    let topic = publish.client.topic.as_str();
    let report = Report {
        topic,
        protocol: publish.client.protocol.name(),
        acknowledged: publisher.outbox.acknowledged(),
        reconnections,
        acknowledgement_ms: publisher.latencies.percentiles(),
        time_s: now().saturating_duration_since(started).as_secs_f64(),
        common: Common::new(plan, &measured),
    };
    let summary = format!(
        "{} published to {topic}; acknowledged after {}{}",
        messages(report.acknowledged),
        latency(report.acknowledgement_ms),
        details(plan, &report.common),
    );
    report::show(plan, &report, &summary)
}

impl Publisher<'_> {
    /// Publishes over one connection until all is acknowledged.
    async fn attempt(&mut self, stop: &mut oneshot::Receiver<()>) -> anyhow::Result<Measured> {
        self.outbox.reconnected();
        let client = &self.publish.client;
        let role = Role::Publisher(self.secret);
        let connection = Connection::open(client, &self.name, role, stop).await?;
        self.patience.found();
        connection.carry(async |connection| self.exchange(connection).await, stop).await
    }

    async fn exchange(&mut self, connection: &mut Connection) -> anyhow::Result<()> {
        let plan = &self.publish.client.plan;
        let mut events = Vec::new();
        let mut deadline = None;
        loop {
            while connection.has_room()
                && let Some(message) = self.outbox.send()
            {
                connection.publish(message);
            }
            if !self.more && self.outbox.len() == 0 {
                return Ok(());
            }
            // The connection ends if all acknowledgements stop, not if a single one is late.
            match self.outbox.len() {
                0 => deadline = None,
                _ => drop(deadline.get_or_insert_with(|| Instant::now() + plan.stall_timeout)),
            }
            let takes = self.more && self.outbox.has_room();
            let stalled = deadline.unwrap_or_else(Instant::now);
            let turned = tokio::select! {
                turned = connection.turn(&mut events) => turned,
                message = self.messages.recv(), if takes => self.take(message).map(|()| None),
                () = sleep_until(stalled), if deadline.is_some() => bail!(
                    "the broker acknowledged nothing for {} s",
                    plan.stall_timeout.as_secs_f64()
                ),
            };
            // Acknowledgements before an error count, too.
            for event in events.drain(..) {
                if let Event::Acknowledged(own) = event {
                    self.acknowledged(own)?;
                    deadline = None;
                }
            }
            if let Some(head) = turned? {
                return Err(connection.refusal(plan, head).await);
            }
        }
    }

    fn take(&mut self, message: Option<anyhow::Result<Bytes>>) -> anyhow::Result<()> {
        match message {
            Some(message) => {
                // A new connection would not bring more input.
                let message = message.map_err(|error| Refused::from(format!("{error:#}")))?;
                self.outbox.push(message, wall_clock(), now());
            }
            None => self.more = false,
        }
        Ok(())
    }

    fn acknowledged(&mut self, own: u64) -> anyhow::Result<()> {
        let took = self.outbox.acknowledge(own, now());
        ensure!(took.is_some(), "the broker acknowledged a message that was not sent");
        for took in took.into_iter().flatten() {
            self.latencies.add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
        self.patience.served();
        Ok(())
    }

    /// Adds the numbers of acknowledged and unacknowledged messages to `error`.
    fn unfinished(&self, error: anyhow::Error) -> anyhow::Error {
        let again = if self.outbox.len() > 0 { ": publish again" } else { "" };
        anyhow!("{error:#} ({}{again})", self.progress())
    }

    /// Reports the same to the user after a signal, which is not an error.
    fn stopped(&self) -> anyhow::Error {
        if !self.publish.client.plan.quiet {
            say(&format!("{PROGRAM}: {}", self.progress()));
        }
        Stopped.into()
    }

    fn progress(&self) -> String {
        let done = messages(self.outbox.acknowledged());
        match self.outbox.len() {
            0 => format!("{done} published"),
            waits => format!("{done} published, {waits} not acknowledged"),
        }
    }
}

/// Lines about the connection, if the user asked for help with it.
pub(super) fn details(plan: &Plan, common: &Common) -> String {
    match plan.assistance {
        Some(_) => format!("\n{}{}", common.packets(), common.help()),
        None => String::new(),
    }
}

/// A number of messages.
pub(super) fn messages(count: u64) -> String {
    match count {
        1 => "1 message".to_owned(),
        _ => format!("{count} messages"),
    }
}
