//! The faults of a scenario's events: their times and chances.
//!
//! Each fault draws from its own random stream, also while it is not in force, so the fate of the
//! n-th quACK depends only on n, and a fault changes no other random event.

use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::path::streams;
use crate::scenario::{Fault, Faults};
use crate::units::Percent;

mod copies;
mod egress;
mod lies;
mod nat;
mod restarts;

pub(super) use copies::Copies;
pub(super) use egress::Egress;
pub(super) use lies::Lies;
pub(super) use nat::Nat;
pub(super) use restarts::{Power, Restarts};

/// The faults of a run, with its clock.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    start: Instant,
    faults: Faults,
}

/// The value of the last event in force whose fault is `$fault`.
macro_rules! in_force {
    ($schedule:expr, $now:expr, $fault:path) => {
        $schedule.in_force($now, |fault| match fault {
            $fault(value) => Some(value),
            _ => None,
        })
    };
}

/// The share of a lie of this kind.
macro_rules! share {
    ($lie:expr, $kind:path) => {
        match $lie {
            Some($kind(share)) => Some(share),
            _ => None,
        }
    };
}

use {in_force, share};

impl Schedule {
    /// The faults of a run that begins at `start`.
    pub(super) fn new(start: Instant, faults: Faults) -> Self {
        Self { start, faults }
    }

    /// The result of `pick` for the last event that is in force.
    fn in_force<T>(&self, now: Instant, pick: impl Fn(Fault) -> Option<T>) -> Option<T> {
        self.faults.in_force(now.saturating_duration_since(self.start), pick)
    }

    /// The start and the length of each event of this fault, in the order of time.
    pub(super) fn times(&self, fault: Fault) -> Vec<(Instant, Option<Duration>)> {
        let events = self.faults.events.iter().filter(|event| event.fault == fault);
        let mut times: Vec<_> = events.map(|event| (self.start + event.at, event.length)).collect();
        times.sort();
        times
    }
}

#[derive(Debug)]
struct Chance(ChaCha8Rng);

impl Chance {
    /// The faults of one run have different `number`s.
    fn new(seed: u64, number: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(streams::FAULTS + (number << 32));
        Self(random)
    }

    /// Whether the fault occurs this time. Each call draws once.
    fn strikes(&mut self, chance: Option<Percent>) -> bool {
        let random = self.0.next_u64();
        chance.is_some_and(|chance| chance.strikes(random))
    }

    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests;
