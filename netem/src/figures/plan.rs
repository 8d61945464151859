//! The list of runs, and its shards for several machines.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::job::Job;
use super::model::Experiment;

/// Experiments, and every run that they need. Each run occurs once, in a fixed order.
#[derive(Debug)]
pub struct Plan {
    experiments: Vec<Experiment>,
    jobs: Vec<Job>,
    digest: String,
}

impl Plan {
    /// The plan of these experiments.
    pub fn of(experiments: Vec<Experiment>) -> Self {
        let mut known = HashSet::new();
        let jobs: Vec<Job> = experiments
            .iter()
            .flat_map(Experiment::cases)
            .flat_map(super::job::Case::jobs)
            .filter(|job| known.insert(job.clone()))
            .collect();
        let mut digest = Sha256::new();
        for job in &jobs {
            digest.update(job.identity());
            digest.update("\n");
        }
        let digest = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { experiments, jobs, digest }
    }

    /// The experiments.
    pub fn experiments(&self) -> &[Experiment] {
        &self.experiments
    }

    /// Every run, in the fixed order.
    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// The SHA-256 of the list of runs. Two plans with the same digest have the same runs.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The runs of one shard, with their indices in the list.
    pub fn shard(&self, shard: Shard) -> impl Iterator<Item = (usize, &Job)> {
        self.jobs.iter().enumerate().filter(move |(index, _)| shard.has(*index))
    }
}

/// One of several parts of a plan. Its text is `I/N`, such as `1/4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard {
    number: usize,
    of: usize,
}

/// The largest number of shards of a plan.
const MOST_SHARDS: usize = 10_000;

/// The text is not of the form `I/N`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no shard; give I/N with I from 1 to N and N up to {MOST_SHARDS}, for example 1/4"
)]
pub struct NoShard {
    text: String,
}

impl Shard {
    /// The whole plan.
    pub const WHOLE: Self = Self { number: 1, of: 1 };

    /// Shard `number` of `of`. `None` unless `number` is from 1 to `of`.
    pub fn new(number: usize, of: usize) -> Option<Self> {
        ((1..=MOST_SHARDS).contains(&of) && (1..=of).contains(&number))
            .then_some(Self { number, of })
    }

    /// The number of shards of the plan.
    pub fn of(self) -> usize {
        self.of
    }

    /// All shards of the plan, this one included.
    pub fn siblings(self) -> impl Iterator<Item = Self> {
        (1..=self.of).map(move |number| Self { number, of: self.of })
    }

    fn has(self, index: usize) -> bool {
        index % self.of == self.number - 1
    }
}

impl FromStr for Shard {
    type Err = NoShard;

    fn from_str(text: &str) -> Result<Self, NoShard> {
        let parse = || {
            let (number, of) = text.split_once('/')?;
            Self::new(number.parse().ok()?, of.parse().ok()?)
        };
        parse().ok_or_else(|| NoShard { text: text.to_owned() })
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::figures::job::Case;
    use crate::figures::model::{Entry, Part, Table};
    use crate::figures::quantity::{Quantity, measures};
    use proptest::prelude::*;

    pub(in crate::figures) fn plan(cases: &[Case]) -> Plan {
        let entry = |case: &Case| Entry::Figure(Quantity::Of(case.clone(), measures::GOODPUT), 1);
        let table = Table {
            id: "t".into(),
            title: String::new(),
            columns: Vec::new(),
            rows: vec![cases.iter().map(entry).collect()],
        };
        Plan::of(vec![Experiment {
            id: "e",
            title: "",
            shows: Vec::new(),
            parts: vec![Part::Table(table)],
        }])
    }

    #[test]
    fn a_run_that_two_figures_need_is_done_once() {
        let one = plan(&[Case::of("a").seeds(2), Case::of("b"), Case::of("a").seeds(3)]);
        let identities: Vec<_> = one.jobs().iter().map(Job::identity).collect();
        assert_eq!(identities, ["a seed=1", "a seed=2", "b seed=1", "a seed=3"]);
        assert_ne!(one.digest(), plan(&[Case::of("a").seeds(2)]).digest());
        assert_eq!(one.digest().len(), 64);
    }

    #[test]
    fn a_shard_is_written_as_it_is_read() {
        assert_eq!("2/4".parse::<Shard>().unwrap().to_string(), "2/4");
        for text in ["", "1", "0/4", "5/4", "1/0", "-1/4", "1/4/2", "1/99999", "x/y"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn shards_have_every_run_once(jobs in 0_u64..60, shards in 1_usize..9) {
            let plan = plan(&[Case::of("a").seeds(jobs)]);
            let first = Shard::new(1, shards).unwrap();
            let mut places: Vec<_> =
                first.siblings().flat_map(|shard| plan.shard(shard)).map(|(index, _)| index).collect();
            places.sort_unstable();
            prop_assert_eq!(places, (0..plan.jobs().len()).collect::<Vec<_>>());
        }
    }
}
