//! `pubsub publish`.

use anyhow::{anyhow, bail, ensure};
use bytes::Bytes;
use h3_client::now;
use h3_client::words::say;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::connection::Connection;
use super::patience::Patience;
use super::source::{Next, Source};
use super::{
    Event, Latencies, Percentiles, Refused, Role, Stopped, Task, messages, run as run_task, show,
    wall_clock,
};
use crate::cli::{Client, PROGRAM};
use crate::name::Secret;
use crate::outbox::Outbox;

/// A publisher's own part of its report.
#[derive(Debug, Serialize)]
struct Own {
    /// Messages that the broker acknowledged.
    acknowledged: u64,
    /// From the publication of a message to its acknowledgement.
    acknowledgement_ms: Option<Percentiles>,
    time_s: f64,
}

/// A publisher, over all its connections.
struct Publisher<'a> {
    client: &'a Client,
    secret: Secret,
    messages: mpsc::Receiver<Next>,
    /// Whether there may be more of them.
    more: bool,
    outbox: Outbox,
    latencies: Latencies,
}

/// Publishes all messages. When `stop` fires, it closes the connection and returns an error.
pub(crate) async fn run(
    client: Client,
    source: Source,
    mut stop: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    let mut publisher = Publisher {
        client: &client,
        secret: Secret::random()?,
        messages: source.begin(),
        more: true,
        outbox: Outbox::new(),
        latencies: Latencies::new()?,
    };
    let started = now();
    let done = match run_task(&client, &mut publisher, &mut stop).await {
        Ok(done) => done,
        // A signal is not an error.
        Err(error) if error.is::<Stopped>() => {
            if !client.plan.quiet {
                say(&format!("{PROGRAM}: {}", publisher.progress()));
            }
            return Err(error);
        }
        Err(error) => {
            let again = if publisher.outbox.len() > 0 { ": publish again" } else { "" };
            return Err(anyhow!("{error:#} ({}{again})", publisher.progress()));
        }
    };
    let acknowledged = publisher.outbox.acknowledged();
    let (acknowledgement_ms, latency) = publisher.latencies.report();
    let time_s = now().saturating_duration_since(started).as_secs_f64();
    let summary = format!(
        "{} published to {}; acknowledged after {latency}",
        messages(acknowledged),
        client.topic
    );
    show(&client, &done, Own { acknowledged, acknowledgement_ms, time_s }, &summary)
}

impl Task for Publisher<'_> {
    fn role(&mut self) -> Role {
        self.outbox.reconnected();
        Role::Publisher(self.secret)
    }

    async fn exchange(
        &mut self,
        connection: &mut Connection,
        patience: &mut Patience,
    ) -> anyhow::Result<()> {
        let plan = &self.client.plan;
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
                    patience.served();
                    deadline = None;
                }
            }
            if let Some(head) = turned? {
                return Err(head.refusal(plan).await);
            }
        }
    }
}

impl Publisher<'_> {
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
        Ok(())
    }

    /// The numbers of acknowledged and unacknowledged messages.
    fn progress(&self) -> String {
        let done = messages(self.outbox.acknowledged());
        match self.outbox.len() {
            0 => format!("{done} published"),
            waits => format!("{done} published, {waits} not acknowledged"),
        }
    }
}
