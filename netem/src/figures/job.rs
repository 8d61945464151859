//! Cases to run, and the jobs that make them up.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::record::RunRecord;
use crate::scenario::{Scenario, ScenarioError};

/// A scenario with some settings changed. It runs with the seeds from 1 on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Case {
    scenario: String,
    /// Sorted by name, so that the order of the changes makes no difference.
    settings: BTreeMap<String, String>,
    seeds: u64,
}

impl Case {
    /// An unchanged scenario with one run.
    #[must_use]
    pub fn of(scenario: &str) -> Self {
        Self { scenario: scenario.to_owned(), settings: BTreeMap::new(), seeds: 1 }
    }

    /// Changes a setting.
    #[must_use]
    pub fn set(mut self, setting: &str, value: impl Display) -> Self {
        self.settings.insert(setting.to_owned(), value.to_string());
        self
    }

    /// Changes several settings, as `--set` takes them.
    #[must_use]
    pub fn with<S: AsRef<str>>(self, settings: &[S]) -> Self {
        let pairs = settings.iter().filter_map(|text| text.as_ref().split_once('='));
        pairs.fold(self, |case, (setting, value)| case.set(setting.trim(), value.trim()))
    }

    /// Runs it with the seeds from 1 to `seeds`.
    #[must_use]
    pub fn seeds(mut self, seeds: u64) -> Self {
        self.seeds = seeds;
        self
    }

    /// A job for each seed.
    pub fn jobs(&self) -> impl Iterator<Item = Job> + use<> {
        let case = self.clone();
        (1..=case.seeds).map(move |seed| case.job(seed))
    }

    fn job(&self, seed: u64) -> Job {
        let Self { scenario, settings, .. } = self.clone();
        Job { scenario, settings, seed }
    }

    /// The command line that runs all seeds.
    pub fn command(&self) -> String {
        let runs = if self.seeds == 1 { String::new() } else { format!(" --runs {}", self.seeds) };
        self.job(1).command() + &runs
    }
}

/// One run: a scenario, its changed settings, and a seed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Job {
    scenario: String,
    settings: BTreeMap<String, String>,
    seed: u64,
}

impl Job {
    /// The seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The scenario's name, the settings in the order of their names, and the seed. The same run
    /// has the same text in every version and on every machine.
    pub fn identity(&self) -> String {
        format!("{}{} seed={}", self.scenario, self.each_after(" "), self.seed)
    }

    /// The command line that does this run alone.
    pub fn command(&self) -> String {
        let Self { scenario, seed, .. } = self;
        let set = self.each_after(" --set ");
        format!("sidekick-lab run {scenario} --backend sim{set} --seed {seed}")
    }

    fn each_after(&self, before: &str) -> String {
        self.assignments().iter().map(|setting| format!("{before}{setting}")).collect()
    }

    /// The scenario with its settings.
    ///
    /// # Errors
    ///
    /// [`ScenarioError`] if this build has no such scenario or setting.
    pub fn load(&self) -> Result<Scenario, ScenarioError> {
        let scenario = Scenario::with(&self.scenario, &self.assignments())?;
        Ok(scenario)
    }

    /// The changed settings, as `--set` takes them.
    #[must_use]
    pub fn assignments(&self) -> Vec<String> {
        self.settings.iter().map(|(setting, value)| format!("{setting}={value}")).collect()
    }
}

/// The outcome of a job: its record, or a sentence with the reason of its failure.
pub type Outcome = Result<RunRecord, String>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_settings_does_not_make_another_job() {
        let one = Case::of("upload-paper").set("near.loss_percent", 2).set("flow.cc", "reno");
        let other =
            Case::of("upload-paper").with(&["flow.cc=bbr2", "flow.cc=reno", "near.loss_percent=2"]);
        assert_eq!(one, other);
        let jobs: Vec<_> = one.seeds(3).jobs().collect();
        assert_eq!(jobs.len(), 3);
        assert_eq!(jobs[2].identity(), "upload-paper flow.cc=reno near.loss_percent=2 seed=3");
    }

    #[test]
    fn command_lines_repeat_their_runs() {
        let case = Case::of("upload-paper").set("near.loss_percent", 2).seeds(5);
        let all = "sidekick-lab run upload-paper --backend sim --set near.loss_percent=2 --seed 1 --runs 5";
        assert_eq!(case.command(), all);
        let job = case.jobs().nth(3).unwrap();
        let one = "sidekick-lab run upload-paper --backend sim --set near.loss_percent=2 --seed 4";
        assert_eq!(job.command(), one);
        assert_eq!(job.load().unwrap().near.both.loss.get(), 2.0);
    }
}
