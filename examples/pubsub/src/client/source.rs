//! The source of a publisher's messages.

use std::io::{BufRead as _, Read as _};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::LONGEST_MESSAGE;

/// Lines that are read ahead.
const AHEAD: usize = 16;

/// The messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Each line of standard input, without its end.
    Lines,
    /// The same message `count` times, once in each interval.
    Repeated { message: Bytes, count: u64, every: Duration },
}

/// A message, or why there are no more.
pub(crate) type Next = anyhow::Result<Bytes>;

impl Source {
    /// Begins to read. The receiver ends with the messages.
    pub(crate) fn begin(self) -> mpsc::Receiver<Next> {
        let (to, messages) = mpsc::channel(AHEAD);
        match self {
            Self::Lines => drop(spawn_blocking(move || {
                if let Err(error) = lines(&to) {
                    let _ = to.blocking_send(Err(error));
                }
            })),
            Self::Repeated { message, count, every } => {
                tokio::spawn(repeat(to, message, count, every));
            }
        }
        messages
    }
}

fn lines(to: &mpsc::Sender<Next>) -> anyhow::Result<()> {
    let mut input = std::io::stdin().lock();
    loop {
        let mut line = Vec::new();
        let most = LONGEST_MESSAGE as u64 + 1;
        let read = (&mut input).take(most).read_until(b'\n', &mut line);
        if read.context("cannot read standard input")? == 0 {
            return Ok(());
        }
        let ended = line.pop_if(|last| *last == b'\n').is_some();
        ensure!(
            ended || line.len() <= LONGEST_MESSAGE,
            "a line has more than {LONGEST_MESSAGE} bytes, which no broker accepts: split it"
        );
        if to.blocking_send(Ok(line.into())).is_err() {
            return Ok(());
        }
    }
}

async fn repeat(to: mpsc::Sender<Next>, message: Bytes, count: u64, every: Duration) {
    let mut ticks = (!every.is_zero()).then(|| interval(every));
    if let Some(ticks) = &mut ticks {
        // After a delay, the interval stays the same: a sensor does not catch up either.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    for _ in 0..count {
        if let Some(ticks) = &mut ticks {
            ticks.tick().await;
        }
        if to.send(Ok(message.clone())).await.is_err() {
            return;
        }
    }
}
