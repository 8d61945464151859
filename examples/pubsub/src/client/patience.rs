//! How long a client retries after it lost the broker.

use std::time::{Duration, Instant};

use anyhow::anyhow;
use h3_client::now;
use h3_client::words::say;
use tokio::time::sleep;

use super::Refused;
use crate::cli::PROGRAM;

/// The pause before the first new attempt, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The attempts since the client lost the broker.
#[derive(Debug)]
pub(crate) struct Patience {
    budget: Duration,
    quiet: bool,
    lost: Option<Instant>,
    pause: Duration,
    /// Whether a connection ever succeeded. With a wrong address none does.
    found: bool,
}

impl Patience {
    /// Retries for `budget` each time the client loses the broker.
    pub(crate) fn new(budget: Duration, quiet: bool) -> Self {
        Self { budget, quiet, lost: None, pause: FIRST_PAUSE, found: false }
    }

    /// A connection succeeded.
    pub(crate) fn found(&mut self) {
        self.found = true;
    }

    /// The broker accepted this client. The pauses continue to grow, because the broker may accept
    /// and then fail.
    pub(crate) fn accepted(&mut self) {
        self.lost = None;
    }

    /// The broker served a request of this client.
    pub(crate) fn served(&mut self) {
        self.accepted();
        self.pause = FIRST_PAUSE;
    }

    /// Pauses before the next attempt after `error`.
    ///
    /// # Errors
    /// There is no next attempt: the broker refused, was never reached, or was lost for too long.
    pub(crate) async fn pause(&mut self, error: anyhow::Error) -> anyhow::Result<()> {
        let again = match error.downcast_ref::<Refused>() {
            // After its idle timeout the broker drops the lost connection.
            Some(refused) => refused.busy && self.lost.is_some(),
            None => self.found,
        };
        if !again {
            return Err(error);
        }
        let now = now();
        let lost = *self.lost.get_or_insert(now);
        if self.budget.is_zero() {
            return Err(error);
        }
        if now.saturating_duration_since(lost) >= self.budget {
            return Err(anyhow!(
                "the broker was out of reach for {} s ({error:#}): check it, or wait longer with \
                 --reconnect",
                self.budget.as_secs_f64()
            ));
        }
        if lost == now && !self.quiet {
            say(&format!("{PROGRAM}: {error:#}; reconnecting"));
        }
        sleep(self.pause).await;
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patience() -> Patience {
        let mut patience = Patience::new(Duration::from_secs(600), true);
        patience.found();
        patience
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_ends_only_a_client_that_the_broker_never_lost() {
        let busy = || anyhow!(Refused { reason: "full".to_owned(), busy: true });
        let mut patience = patience();
        patience.pause(busy()).await.unwrap_err();
        patience.pause(anyhow!("lost")).await.unwrap();
        patience.pause(busy()).await.unwrap();
        patience.pause(Refused::from("no".to_owned()).into()).await.unwrap_err();
        patience.accepted();
        patience.pause(busy()).await.unwrap_err();
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_broker_that_serves_is_asked_again_at_once() {
        let mut patience = patience();
        patience.pause(anyhow!("lost")).await.unwrap();
        patience.accepted();
        assert_eq!(patience.pause, 2 * FIRST_PAUSE);
        patience.served();
        assert_eq!(patience.pause, FIRST_PAUSE);
    }
}
