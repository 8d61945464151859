//! `sidekick-lab sweep`: compares `auto` with the best sender, over random topologies.
//!
//! `auto` chooses between repairs, wrongly so if a sender that always uses one repair, or none, has
//! more goodput. So each topology runs `auto` and [`OTHERS`] with the same seeds. The *ratio* is
//! the mean goodput of `auto` divided by the best mean of the others; a failed run, as by a timeout
//! in a burst of loss, has no goodput.
//!
//! [`helped`] has the sweeps that compare help with none.

use serde::Serialize;

use crate::figures::draw::{self, DrawError};
use crate::figures::job::{Case, Job, Outcome};
use crate::figures::model::{Axis, Curve, Plot};
use crate::figures::quantity::Results;
use crate::figures::sender::{AUTO, BBR2, BLUE, Colour, PATH_AWARE_BBR2, REINJECT_BBR2, Sender};
use crate::report;

pub(crate) mod helped;
mod topology;

pub(crate) use topology::Topology;

pub(crate) const OTHERS: [Sender; 3] = [BBR2, PATH_AWARE_BBR2, REINJECT_BBR2];
/// A topology with a lower ratio runs [`MORE_SEEDS`], because few seeds may be unlucky.
pub(crate) const SUSPICIOUS: f64 = 0.98;
/// The number of seeds of a suspicious topology.
pub(crate) const MORE_SEEDS: u64 = 20;
/// The shares of the topologies that the summary shows, in percent.
const SHARES: [usize; 8] = [0, 1, 5, 25, 50, 75, 95, 100];
/// The most topologies that the summary lists.
const LISTED: usize = 10;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sweep {
    pub topologies: u64,
    /// The number of seeds of each; they count from 1.
    pub seeds: u64,
    pub seed: u64,
}

/// The mean goodput of each sender on one topology, in Mbit/s.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Reach {
    /// The topology's number, from 1.
    pub topology: u64,
    pub seeds: u64,
    pub auto: f64,
    /// BBR2 without help.
    pub bbr2: f64,
    pub path_aware_bbr2: f64,
    pub reinject_bbr2: f64,
    /// `auto` divided by the best of the others.
    pub ratio: f64,
    pub failed: usize,
    /// The command lines that repeat it: `auto`, then [`OTHERS`].
    pub commands: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Distribution {
    /// The number of topologies with a ratio.
    pub topologies: usize,
    pub failed: usize,
    /// The number of topologies with [`MORE_SEEDS`].
    pub repeated: usize,
    pub median: f64,
    pub first_percentile: f64,
    pub worst: f64,
}

impl Sweep {
    /// Runs all jobs by `simulate`: first with [`Sweep::seeds`], then suspicious topologies with
    /// [`MORE_SEEDS`]. Returns the topologies by ratio, the worst first.
    pub(crate) fn run(self, simulate: impl Fn(&[&Job]) -> Vec<Outcome>) -> Vec<Reach> {
        let mut results = Results::new();
        let mut run = |topologies: &[(Topology, u64)]| {
            let cases = topologies.iter().flat_map(|(topology, seeds)| topology.cases(*seeds));
            run_more(cases, &mut results, &simulate);
            topologies
                .iter()
                .filter_map(|(topology, seeds)| topology.reach(*seeds, &results))
                .collect::<Vec<Reach>>()
        };
        let draw = |number| Topology::draw(self.seed, number);
        let drawn: Vec<_> = (1..=self.topologies).map(|n| (draw(n), self.seeds)).collect();
        let mut reached = run(&drawn);
        let is_suspicious = |reach: &Reach| reach.ratio < SUSPICIOUS && reach.seeds < MORE_SEEDS;
        let again: Vec<_> = reached
            .iter()
            .filter(|reach| is_suspicious(reach))
            .map(|reach| (draw(reach.topology), MORE_SEEDS))
            .collect();
        if !again.is_empty() {
            reached.retain(|reach| !is_suspicious(reach));
            reached.extend(run(&again));
        }
        reached.sort_by(|one, other| one.ratio.total_cmp(&other.ratio));
        reached
    }

    /// The distribution of these sorted ratios. `None` without ratios.
    pub(crate) fn distribution(self, reached: &[Reach]) -> Option<Distribution> {
        let ratios = || reached.iter().map(|reach| reach.ratio);
        let (median, worst, _) = report::median(ratios())?;
        Some(Distribution {
            topologies: reached.len(),
            failed: reached.iter().map(|reach| reach.failed).sum(),
            repeated: reached.iter().filter(|reach| reach.seeds > self.seeds).count(),
            median,
            first_percentile: report::percentile(ratios(), 1)?,
            worst,
        })
    }
}

impl Topology {
    /// `auto`, then the others.
    fn cases(&self, seeds: u64) -> impl Iterator<Item = Case> {
        let path = self.path().clone().seeds(seeds);
        std::iter::once(AUTO).chain(OTHERS).map(move |sender| sender.of(&path))
    }

    /// The figures of this topology. `None` if all runs of the other senders failed.
    fn reach(&self, seeds: u64, results: &Results) -> Option<Reach> {
        let mut failed = 0;
        let means: Vec<f64> = self
            .cases(seeds)
            .map(|case| {
                let goodput = |job: Job| match results.get(&job) {
                    Some(Ok(record)) => record.goodput_mbit_s,
                    _ => {
                        failed += 1;
                        0.0
                    }
                };
                case.jobs().map(goodput).sum::<f64>() / seeds as f64
            })
            .collect();
        let &[auto, bbr2, path_aware_bbr2, reinject_bbr2] = means.as_slice() else { return None };
        let best = bbr2.max(path_aware_bbr2).max(reinject_bbr2);
        (best > 0.0).then(|| Reach {
            topology: self.number(),
            seeds,
            auto,
            bbr2,
            path_aware_bbr2,
            reinject_bbr2,
            ratio: auto / best,
            failed,
            commands: self.cases(seeds).map(|case| case.command()).collect(),
        })
    }
}

impl Reach {
    /// The goodput of `auto` divided by that of BBR2 without help. BBR2 may fail on a path that
    /// `auto` can use.
    fn over_bbr2(&self) -> f64 {
        if self.bbr2 > 0.0 { self.auto / self.bbr2 } else { f64::INFINITY }
    }
}

/// The distribution in words, and the worst topologies with the command lines that repeat them.
pub(crate) fn summary(distribution: &Distribution, reached: &[Reach]) -> String {
    let Distribution { topologies, failed, repeated, median, first_percentile, worst } =
        distribution;
    let columns: [report::Column<Reach>; 7] = [
        ("topology", |reach| reach.topology.to_string()),
        ("seeds", |reach| reach.seeds.to_string()),
        ("auto", |reach| format!("{:.2}", reach.auto)),
        ("BBR2", |reach| format!("{:.2}", reach.bbr2)),
        ("path-aware", |reach| format!("{:.2}", reach.path_aware_bbr2)),
        ("reinject", |reach| format!("{:.2}", reach.reinject_bbr2)),
        ("ratio", |reach| format!("{:.3}", reach.ratio)),
    ];
    let worst_of_all = reached.get(..LISTED).unwrap_or(reached);
    let mut text = format!(
        "auto divided by the best of BBR2, path-aware BBR2 and re-injection over BBR2:\n\
         median {median:.3}, first percentile {first_percentile:.3}, worst {worst:.3} \
         ({topologies} topologies, {repeated} of them with {MORE_SEEDS} seeds; {failed} runs failed).\n\
         {}\nThe worst, in Mbit/s:\n{}\n",
        shares(reached),
        report::table_of(&columns, worst_of_all, 0)
    );
    for reach in worst_of_all {
        let auto = reach.commands.first().map_or("", String::as_str);
        text += &format!("{}: {auto}\n", reach.topology);
    }
    text
}

/// The ratio, and `auto` divided by BBR2, at each of [`SHARES`] of the topologies.
fn shares(reached: &[Reach]) -> String {
    let row = |name: &str, ratio: fn(&Reach) -> f64| {
        let at = |percent| report::percentile(reached.iter().map(ratio), percent);
        let cells = SHARES.map(|percent| at(percent).unwrap_or(f64::NAN));
        (name.to_owned(), cells)
    };
    let rows =
        [row("ratio, at most", |reach| reach.ratio), row("auto / BBR2, at most", Reach::over_bbr2)];
    let mut text = format!("{:30}", "share of the topologies, %");
    for percent in SHARES {
        text += &format!("{percent:>8}");
    }
    for (name, cells) in rows {
        text += &format!("\n{name:30}");
        for cell in cells {
            text += &format!("{cell:>8.3}");
        }
    }
    text + "\n"
}

/// Runs those jobs of the cases by `simulate` that have no result yet.
fn run_more(
    cases: impl Iterator<Item = Case>,
    results: &mut Results,
    simulate: impl Fn(&[&Job]) -> Vec<Outcome>,
) {
    let jobs = cases.flat_map(|case| case.jobs());
    let jobs: Vec<Job> = jobs.filter(|job| !results.contains_key(job)).collect();
    let outcomes = simulate(&jobs.iter().collect::<Vec<_>>());
    results.extend(jobs.into_iter().zip(outcomes));
}

/// A plot of the ratios over the share of topologies with no higher one, as an SVG.
pub(crate) fn plot(reached: &[Reach]) -> Result<String, DrawError> {
    let ratios = || reached.iter().map(|reach| reach.ratio);
    // Ratios lie near 1: an axis from 0 would show one flat line.
    let from = (ratios().fold(1.0, f64::min) * 20.0).floor() / 20.0;
    let y = Axis { from, ..Axis::linear("auto / the best of three", 2) };
    plot_of("share of the topologies, percent", y, vec![distribution("auto", BLUE, ratios())])
}

/// A curve of ratios over the share of them that are no higher.
fn distribution(name: &str, colour: Colour, ratios: impl Iterator<Item = f64>) -> Curve {
    let mut ratios: Vec<f64> = ratios.collect();
    ratios.sort_by(f64::total_cmp);
    let all = ratios.len() as f64;
    let share = |(place, ratio)| ((place + 1) as f64 / all * 100.0, ratio);
    Curve::computed(name, colour, ratios.into_iter().enumerate().map(share))
}

fn plot_of(x: &'static str, y: Axis, curves: Vec<Curve>) -> Result<String, DrawError> {
    let (id, x) = ("sweep".to_owned(), Axis::linear(x, 1));
    draw::standalone(&Plot { id, title: String::new(), x, y, curves }, &Results::new())
}

#[cfg(test)]
mod tests;
