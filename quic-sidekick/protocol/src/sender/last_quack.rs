//! What the latest quACK told, for those who look on.

use std::time::Instant;

/// What reading a quACK led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is known which packets arrived. `last_sent`: when the last of them was sent, if it was not known to
    /// have arrived.
    Decoded { last_sent: Option<Instant> },
    /// More packets are missing than its sums can tell apart.
    TooMany { missing: u32 },
    /// Its sums do not belong to the packets sent.
    Misaligned,
}

/// What became of a quACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuackOutcome {
    /// It counts no packet yet.
    Empty,
    /// It told which packets arrived.
    Decoded,
    /// More packets are missing than its sums can tell apart.
    TooManyMissing,
    /// Its sums do not belong to the packets that were sent.
    Misaligned,
}

/// The latest quACK that a [`Sender`] took in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastQuack {
    /// Packets that the proxy has counted in this epoch, modulo 2^32.
    pub count: u32,
    /// Its power sums, as far as they were asked for.
    pub sums: usize,
    /// Whether it could be decoded.
    pub outcome: QuackOutcome,
    /// Packets that it was the first to report.
    pub received: u32,
    /// Packets sent before one that the proxy has seen that are not known to have arrived there.
    /// They are not lost yet.
    pub missing: usize,
    /// The epoch's packets that were known to have arrived before it.
    settled: u32,
}

impl LastQuack {
    pub(super) fn new(count: u32, sums: usize, settled: u32) -> Self {
        Self { count, sums, outcome: QuackOutcome::Empty, received: 0, missing: 0, settled }
    }

    pub(super) fn with(self, outcome: Outcome, settled: u32, missing: usize) -> Self {
        let (outcome, missing) = match outcome {
            Outcome::Decoded { .. } => (QuackOutcome::Decoded, missing),
            Outcome::TooMany { missing } => {
                (QuackOutcome::TooManyMissing, usize::try_from(missing).unwrap_or(usize::MAX))
            }
            Outcome::Misaligned => (QuackOutcome::Misaligned, missing),
        };
        Self { outcome, missing, received: settled.wrapping_sub(self.settled), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ObserverConfig;
    use crate::testing::{Near, Simulation, configured};
    use std::time::Duration;

    const MS: Duration = Duration::from_millis(1);

    /// Within an epoch, what each quACK was the first to report adds up to what the proxy has
    /// counted.
    #[test]
    fn what_each_quack_told_adds_up() {
        for loss_percent in [0, 4] {
            let near = Near { delay: MS, jitter: Duration::ZERO, loss_percent };
            let mut s = Simulation::new(configured(), ObserverConfig::default(), near, 3);
            assert_eq!(s.sender.last_quack(), None);
            let (mut seen, mut reported, mut most_missing) = (0, 0, 0);
            for round in 0..4000 {
                if round < 2000 {
                    s.send(None);
                }
                s.run(MS);
                let stats = s.sender.stats();
                assert_eq!(stats.epochs.max(1), 1, "a new epoch begins to count anew");
                if let Some(quack) = s.sender.last_quack()
                    && stats.quacks_received > seen
                {
                    assert_eq!(stats.quacks_received, seen + 1, "no two in a millisecond");
                    seen = stats.quacks_received;
                    let empty = quack.count == 0;
                    let outcome = if empty { QuackOutcome::Empty } else { QuackOutcome::Decoded };
                    assert_eq!(quack.outcome, outcome, "{quack:?}");
                    reported += quack.received;
                    most_missing = most_missing.max(quack.missing);
                    assert_eq!(quack.count, reported, "{quack:?}");
                }
            }
            assert!(reported > 1800 && seen > 50, "{reported} packets in {seen} quACKs");
            assert_eq!(
                most_missing > 0,
                loss_percent > 0,
                "{most_missing} missing at {loss_percent} %"
            );
        }
    }
}
