//! The figures that a page shows, which come from the records of a case's seeds.

use std::collections::HashMap;

use super::job::{Case, Job, Outcome};
use crate::record::RunRecord;
use crate::report;

/// Reads one figure from a record. `None` if the record lacks it.
pub type Measure = fn(&RunRecord) -> Option<f64>;

/// The outcome of every job.
pub type Results = HashMap<Job, Outcome>;

/// A figure over all seeds of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
    /// The number of runs.
    pub runs: usize,
}

impl Summary {
    /// The summary of figures; `None` without any. It ignores infinite figures and NaN.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let figures: Vec<f64> = figures.into_iter().filter(|figure| figure.is_finite()).collect();
        let (median, least, most) = report::median(figures.iter().copied())?;
        Some(Self { median, least, most, runs: figures.len() })
    }

    /// The summary of one computed figure, which no seed repeats.
    pub fn one(figure: f64) -> Self {
        Self { median: figure, least: figure, most: figure, runs: 0 }
    }

    /// The median as a table shows it, with the range if the runs differ.
    pub fn text(&self, decimals: usize) -> String {
        let Self { median, least, most, .. } = self;
        let [middle, low, high] =
            [median, least, most].map(|figure| format!("{figure:.decimals$}"));
        if low == high { middle } else { format!("{middle} ({low} to {high})") }
    }
}

/// A figure that follows from runs.
#[derive(Clone, Debug)]
pub enum Quantity {
    /// The figure of a case.
    Of(Case, Measure),
    /// A percentile over the runs of a case: so many percent of them have at most this figure.
    Percentile {
        /// The case.
        of: Case,
        /// The share of its runs, in percent.
        percent: usize,
        /// The figure to compare.
        measure: Measure,
    },
    /// The figure of one case divided by that of another, seed by seed.
    Ratio {
        /// The dividend.
        of: Case,
        /// The divisor.
        to: Case,
        /// The figure to compare.
        measure: Measure,
    },
    /// The least of the medians of several cases.
    Least(Vec<Case>, Measure),
    /// The median of a case divided by [`Quantity::Least`] of others.
    ToLeast {
        /// The dividend.
        of: Case,
        /// The divisors.
        among: Vec<Case>,
        /// The figure to compare.
        measure: Measure,
    },
}

impl Quantity {
    /// The cases to run.
    pub fn cases(&self) -> impl Iterator<Item = &Case> {
        let (one, others): (Option<&Case>, &[Case]) = match self {
            Self::Of(case, _) | Self::Percentile { of: case, .. } => (Some(case), &[]),
            Self::Ratio { of, to, .. } => (Some(of), std::slice::from_ref(to)),
            Self::Least(cases, _) => (None, cases),
            Self::ToLeast { of, among, .. } => (Some(of), among),
        };
        one.into_iter().chain(others)
    }

    /// The result. `None` if a run failed: a median of the other runs would flatter a sender that
    /// fails.
    pub fn summary(&self, results: &Results) -> Option<Summary> {
        let came = |job: &Job| matches!(results.get(job), Some(Ok(_)));
        if !self.cases().flat_map(Case::jobs).all(|job| came(&job)) {
            return None;
        }
        let figure = |job: &Job, measure: Measure| measure(results.get(job)?.as_ref().ok()?);
        match self {
            Self::Of(case, measure) => {
                Summary::of(case.jobs().filter_map(|job| figure(&job, *measure)))
            }
            Self::Percentile { of, percent, measure } => {
                let figures: Vec<_> = of.jobs().filter_map(|job| figure(&job, *measure)).collect();
                let percentile = report::percentile(figures.iter().copied(), *percent)?;
                let runs = figures.len();
                Some(Summary { median: percentile, least: percentile, most: percentile, runs })
            }
            Self::Ratio { of, to, measure } => {
                let ratio = |(of, to)| Some(figure(&of, *measure)? / figure(&to, *measure)?);
                Summary::of(of.jobs().zip(to.jobs()).filter_map(ratio))
            }
            Self::Least(cases, measure) => {
                let of = |case: &Case| Self::Of(case.clone(), *measure).summary(results);
                cases.iter().filter_map(of).min_by(|one, other| one.median.total_cmp(&other.median))
            }
            Self::ToLeast { of, among, measure } => {
                let above = Self::Of(of.clone(), *measure).summary(results)?;
                let least = Self::Least(among.clone(), *measure).summary(results)?.median;
                let [median, low, high] =
                    [above.median, above.least, above.most].map(|figure| figure / least);
                Some(Summary { median, least: low, most: high, ..above })
            }
        }
    }
}

/// Figures of records.
pub mod measures {
    use super::Measure;

    /// Mbit/s at the receiver's application.
    pub const GOODPUT: Measure = |record| Some(record.goodput_mbit_s);
    /// Megabytes (10^6) that arrived.
    pub const MEGABYTES: Measure = |record| Some(record.bytes as f64 / 1e6);
    /// Seconds until all bytes arrived.
    pub const SECONDS: Measure = |record| Some(record.time_s);
    /// Packets that the receiver sent.
    pub const ACK_PACKETS: Measure = |record| Some(record.ack_packets as f64);
    /// Milliseconds to the first byte of the first answer.
    pub const FIRST_BYTE: Measure = |record| record.first_byte_ms.first().copied();
    /// Jain's fairness index of the two flows.
    pub const JAIN: Measure = |record| Some(record.competitor.as_ref()?.jain);
    /// Mbit/s of the first flow while both flows lasted.
    pub const BESIDE: Measure = |record| Some(record.competitor.as_ref()?.beside_mbit_s);
    /// Mbit/s of the second flow while both flows lasted.
    pub const COMPETITOR: Measure = |record| Some(record.competitor.as_ref()?.goodput_mbit_s);
    /// Milliseconds in the de-jitter buffer. 99 % of the packets wait at most so long.
    pub const DEJITTER_P99: Measure = |record| Some(record.audio?.dejitter_ms.p99);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(figures: &[(&Case, u64, Result<f64, &str>)]) -> Results {
        let outcome = |figure: &Result<f64, &str>| match figure {
            Ok(goodput) => Ok(RunRecord { goodput_mbit_s: *goodput, ..RunRecord::default() }),
            Err(sentence) => Err((*sentence).to_owned()),
        };
        let job = |case: &Case, seed| case.clone().seeds(seed).jobs().last().unwrap();
        figures.iter().map(|(case, seed, figure)| (job(case, *seed), outcome(figure))).collect()
    }

    #[test]
    fn a_case_is_summed_up_over_its_seeds() {
        let case = Case::of("a").seeds(3);
        let results = results(&[(&case, 1, Ok(2.0)), (&case, 2, Ok(9.0)), (&case, 3, Ok(4.0))]);
        let summary = Quantity::Of(case, measures::GOODPUT).summary(&results).unwrap();
        assert_eq!(summary, Summary { median: 4.0, least: 2.0, most: 9.0, runs: 3 });
        assert_eq!(summary.text(1), "4.0 (2.0 to 9.0)");
        assert_eq!(Summary::one(2.25).text(1), "2.2");
    }

    #[test]
    fn a_percentile_is_of_the_seeds() {
        let case = Case::of("a").seeds(20);
        let results: Results = case
            .jobs()
            .map(|job| {
                let goodput_mbit_s = job.seed() as f64;
                (job, Ok(RunRecord { goodput_mbit_s, ..RunRecord::default() }))
            })
            .collect();
        let of = |percent| {
            let measure = measures::GOODPUT;
            let quantity = Quantity::Percentile { of: case.clone(), percent, measure };
            quantity.summary(&results).map(|summary| (summary.median, summary.runs))
        };
        assert_eq!((of(50), of(95)), (Some((10.0, 20)), Some((19.0, 20))));
    }

    #[test]
    fn a_ratio_is_of_runs_with_the_same_seed() {
        let (of, to) = (Case::of("a").seeds(2), Case::of("b").seeds(2));
        let results =
            results(&[(&of, 1, Ok(6.0)), (&of, 2, Ok(5.0)), (&to, 1, Ok(2.0)), (&to, 2, Ok(0.0))]);
        let ratio = Quantity::Ratio { of, to, measure: measures::GOODPUT };
        // The second seed has no ratio, because the divisor is zero.
        assert_eq!(
            ratio.summary(&results),
            Some(Summary { median: 3.0, least: 3.0, most: 3.0, runs: 1 })
        );
        assert_eq!(ratio.cases().count(), 2);
    }

    #[test]
    fn the_least_is_of_medians_and_needs_every_run() {
        let [of, one, other] = ["a", "b", "c"].map(|name| Case::of(name).seeds(3));
        let mut figures: Vec<_> = [(&of, 3.0), (&one, 4.0), (&other, 2.0)]
            .into_iter()
            .flat_map(|(case, figure)| [(1, 1.0), (2, figure), (3, 9.0)].map(|(s, f)| (case, s, f)))
            .map(|(case, seed, figure)| (case, seed, Ok(figure)))
            .collect();
        let measure = measures::GOODPUT;
        let among = vec![one.clone(), other.clone()];
        let least = Quantity::Least(among.clone(), measure);
        let ratio = Quantity::ToLeast { of: of.clone(), among, measure };
        assert_eq!(least.summary(&results(&figures)).unwrap().median, 2.0);
        let summary = ratio.summary(&results(&figures)).unwrap();
        assert_eq!(summary, Summary { median: 1.5, least: 0.5, most: 4.5, runs: 3 });
        assert_eq!(ratio.cases().count(), 3);
        figures[4].2 = Err("no");
        assert_eq!(least.summary(&results(&figures)), None);
        assert_eq!(ratio.summary(&results(&figures)), None);
    }

    #[test]
    fn a_case_that_failed_once_has_no_figure() {
        let (of, to) = (Case::of("a").seeds(3), Case::of("b").seeds(3));
        let ran = |case| [1, 2, 3].map(|seed| (case, seed, Ok(4.0)));
        let mut figures = [ran(&of), ran(&to)].concat();
        let ratio = Quantity::Ratio { of: of.clone(), to: to.clone(), measure: measures::GOODPUT };
        assert!(ratio.summary(&results(&figures)).is_some());
        figures[4].2 = Err("no");
        let results = results(&figures);
        assert_eq!(Quantity::Of(to, measures::GOODPUT).summary(&results), None);
        assert_eq!(ratio.summary(&results), None);
        assert!(Quantity::Of(of, measures::GOODPUT).summary(&results).is_some());
    }

    #[test]
    fn a_case_that_was_not_run_has_no_figure() {
        assert_eq!(Quantity::Of(Case::of("a"), measures::GOODPUT).summary(&Results::new()), None);
    }
}
