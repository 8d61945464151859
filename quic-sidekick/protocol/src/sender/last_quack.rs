//! The result of the latest quACK, for observation.

use std::time::Instant;

/// The result of reading a quACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The sums identify the packets that arrived. `last_sent`: when the last of them was sent, if
    /// this quACK is the first to report it.
    Decoded { last_sent: Option<Instant> },
    /// More packets are missing than its sums can identify.
    TooMany { missing: u32 },
    /// Its sums do not match the packets sent.
    Misaligned,
}

/// The outcome of a quACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuackOutcome {
    /// It reports no packet yet.
    Empty,
    /// It identified the packets that arrived.
    Decoded,
    /// More packets are missing than its sums can identify.
    TooManyMissing,
    /// Its sums do not match the packets that were sent.
    Misaligned,
}

/// The latest quACK that a [`Sender`](super::Sender) processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastQuack {
    /// Packets that the proxy counted in this epoch, modulo 2^32.
    pub count: u32,
    /// The number of its power sums that the sender used, at most the number requested.
    pub sums: usize,
    /// The outcome of decoding it.
    pub outcome: QuackOutcome,
    /// Packets that it was the first to report.
    pub received: u32,
    /// Unreported packets that were sent before a reported one. They are not declared lost yet.
    pub missing: usize,
    /// Packets of the epoch that earlier quACKs reported.
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

    /// Within an epoch, the packets that each quACK was the first to report add up to the proxy's
    /// count.
    #[test]
    fn newly_reported_packets_add_up_to_the_count() {
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
                assert_eq!(stats.epochs.max(1), 1, "a new epoch counts from zero");
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
