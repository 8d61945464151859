//! `sidekick-lab sweep --paths congested` and `--paths far`: what help costs where it can do harm.
//!
//! Each path runs with help and without it, with the same seeds. The figures of its kind compare
//! them, each over all seeds together: the goodput of the helped flow, that of a plain flow beside
//! it, and the packets that the near segment drops by congestion. Help must not slow its own flow
//! down, take from others, or fill queues. [`CONGESTED`] and [`FAR`] have the limits.

use serde::Serialize;

use super::{Sweep, distribution, plot_of, run_more};
use crate::figures::draw::DrawError;
use crate::figures::job::{Case, Job, Outcome};
use crate::figures::model::Axis;
use crate::figures::quantity::Results;
use crate::figures::sender::{BLUE, Colour, ORANGE, VERMILION};
use crate::record::RunRecord;
use crate::report;

mod congested;
mod far;

/// What is added to the drops of both sides, so that a handful of drops is no ratio.
const MORE_DROPS: f64 = 20.0;

/// A figure of a path: a ratio with a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    pub name: &'static str,
    pub limit: f64,
    /// Whether the limit is the most that is good, and not the least.
    pub most: bool,
    /// The ratio of a path, if it has one.
    pub of: fn(&Compared) -> Option<f64>,
    colour: Colour,
}

/// The figures of congested paths.
const CONGESTED: [Figure; 3] = [goodput(0.97), COMPETITOR, DROPS];
/// The figure of paths whose proxy is far away. Most have random loss, so that help fills a link
/// that no help leaves empty: their drops have no ratio that would mean something.
const FAR: [Figure; 1] = [goodput(0.98)];

const fn goodput(limit: f64) -> Figure {
    Figure {
        name: "goodput",
        limit,
        most: false,
        of: |path| Some(path.goodput.ratio),
        colour: BLUE,
    }
}

const COMPETITOR: Figure = Figure {
    name: "competitor",
    limit: 0.85,
    most: false,
    of: |path| Some(path.competitor?.ratio),
    colour: ORANGE,
};

const DROPS: Figure = Figure {
    name: "drops",
    limit: 1.5,
    most: true,
    of: |path| Some(path.drops?.ratio),
    colour: VERMILION,
};

/// A kind of paths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    draw: fn(u64, u64) -> Path,
    figures: &'static [Figure],
}

/// The near segment is congested.
pub(crate) const CONGESTED_PATHS: Kind = Kind { draw: congested::draw, figures: &CONGESTED };
/// The proxy is far away, and the agent puts a download in order.
pub(crate) const FAR_PATHS: Kind = Kind { draw: far::draw, figures: &FAR };

/// A random path, and the flows on it.
#[derive(Clone, Debug)]
struct Path {
    number: u64,
    /// The path and the flows, in words.
    what: String,
    /// Whether a competitor is beside the helped flow.
    competes: bool,
    /// The mode of the runs with help.
    mode: &'static str,
    case: Case,
}

impl Path {
    /// The runs with help, and those without it.
    fn cases(&self, seeds: u64) -> [Case; 2] {
        [self.mode, "off"].map(|mode| self.case.clone().seeds(seeds).set("sidekick.mode", mode))
    }
}

impl Figure {
    /// How far a path is beyond the limit, as a factor. At the limit it is 1.
    fn excess(&self, path: &Compared) -> Option<f64> {
        let ratio = (self.of)(path)?;
        Some(if self.most { ratio / self.limit } else { self.limit / ratio })
    }

    fn is_beyond(&self, path: &Compared) -> bool {
        self.excess(path).is_some_and(|excess| excess > 1.0)
    }

    /// The figure over all paths. `None` if no path has it.
    fn spread(&self, paths: &[Compared]) -> Option<Spread> {
        let (median, least, most) = report::median(paths.iter().filter_map(self.of))?;
        Some(Spread {
            figure: self.name,
            limit: self.limit,
            worst: if self.most { most } else { least },
            median,
            beyond: paths.iter().filter(|path| self.is_beyond(path)).count(),
        })
    }
}

/// A quantity with and without help.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Pair {
    pub helped: f64,
    pub plain: f64,
    /// The first divided by the second.
    pub ratio: f64,
}

impl Pair {
    /// The ratio counts `more` on both sides. `None` if nothing is there to divide by.
    fn of(helped: f64, plain: f64, more: f64) -> Option<Self> {
        let ratio = (helped + more) / (plain + more);
        ratio.is_finite().then_some(Self { helped, plain, ratio })
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Compared {
    /// The path's number, from 1.
    pub path: u64,
    /// The path and its flows, in words.
    pub what: String,
    pub seeds: u64,
    /// The mean goodput of the helped flow, in Mbit/s. A run that failed has none.
    pub goodput: Pair,
    /// The mean goodput of the competitor while both flows lasted, in Mbit/s, if there is one.
    pub competitor: Option<Pair>,
    /// Packets that the near segment dropped by congestion in both directions, over all seeds.
    /// Their ratio counts 20 more on both sides. This figure and the competitor's leave out a seed
    /// that failed with or without help.
    pub drops: Option<Pair>,
    pub failed: usize,
    /// The command lines that repeat it: with help, then without.
    pub commands: [String; 2],
    #[serde(skip)]
    figures: &'static [Figure],
}

impl Compared {
    /// The figures of a path. `None` if nothing arrived without help.
    fn of(path: &Path, seeds: u64, results: &Results, figures: &'static [Figure]) -> Option<Self> {
        let cases = path.cases(seeds);
        let [helped, plain] = cases.each_ref().map(|case| records(case, results));
        let mean = |records: &[Option<&RunRecord>]| {
            records.iter().flatten().map(|record| record.goodput_mbit_s).sum::<f64>() / seeds as f64
        };
        let goodput = Pair::of(mean(&helped), mean(&plain), 0.0)?;
        let pairs: Vec<_> =
            helped.iter().zip(&plain).filter_map(|(one, other)| (*one).zip(*other)).collect();
        let sums = |of: fn(&RunRecord) -> f64| {
            pairs.iter().fold((0.0, 0.0), |(one, other), (helped, plain)| {
                (one + of(helped), other + of(plain))
            })
        };
        let (helped_drops, plain_drops) = sums(drops);
        let (beside_helped, beside_plain) = sums(competitor);
        let count = pairs.len() as f64;
        Some(Self {
            path: path.number,
            what: path.what.clone(),
            seeds,
            goodput,
            competitor: path
                .competes
                .then(|| Pair::of(beside_helped / count, beside_plain / count, 0.0))
                .flatten(),
            drops: (!pairs.is_empty())
                .then(|| Pair::of(helped_drops, plain_drops, MORE_DROPS))
                .flatten(),
            failed: helped.iter().chain(&plain).filter(|record| record.is_none()).count(),
            commands: cases.map(|case| case.command()),
            figures,
        })
    }

    fn excess(&self) -> f64 {
        self.figures.iter().filter_map(|figure| figure.excess(self)).fold(0.0, f64::max)
    }

    /// Whether it is beyond a limit.
    pub(crate) fn is_beyond(&self) -> bool {
        self.excess() > 1.0
    }
}

/// The record of each seed of a case, if its run did not fail.
fn records<'a>(case: &Case, results: &'a Results) -> Vec<Option<&'a RunRecord>> {
    case.jobs().map(|job| results.get(&job)?.as_ref().ok()).collect()
}

fn drops(record: &RunRecord) -> f64 {
    let near = record.links.near;
    (near.to_receiver.link.congested() + near.to_sender.link.congested()) as f64
}

fn competitor(record: &RunRecord) -> f64 {
    record.competitor.as_ref().map_or(0.0, |competitor| competitor.goodput_mbit_s)
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub figure: &'static str,
    pub limit: f64,
    pub worst: f64,
    pub median: f64,
    /// The number of paths beyond the limit.
    pub beyond: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Overall {
    pub paths: usize,
    pub failed: usize,
    /// The number of paths beyond any limit.
    pub beyond: usize,
    /// Each figure that any path has.
    pub figures: Vec<Spread>,
}

/// Runs all jobs by `simulate`, with and without help. Returns the paths, the one furthest beyond a
/// limit first.
pub(crate) fn run(
    kind: Kind,
    sweep: Sweep,
    simulate: impl Fn(&[&Job]) -> Vec<Outcome>,
) -> Vec<Compared> {
    let Sweep { topologies, seeds, seed } = sweep;
    let paths: Vec<_> = (1..=topologies).map(|number| (kind.draw)(seed, number)).collect();
    let mut results = Results::new();
    run_more(paths.iter().flat_map(|path| path.cases(seeds)), &mut results, simulate);
    let of = |path| Compared::of(path, seeds, &results, kind.figures);
    let mut compared: Vec<_> = paths.iter().filter_map(of).collect();
    compared.sort_by(|one, other| other.excess().total_cmp(&one.excess()));
    compared
}

/// The figures over all paths. `None` without paths.
pub(crate) fn overall(paths: &[Compared]) -> Option<Overall> {
    let worst = paths.first()?;
    Some(Overall {
        paths: paths.len(),
        failed: paths.iter().map(|path| path.failed).sum(),
        beyond: paths.iter().filter(|path| path.is_beyond()).count(),
        figures: worst.figures.iter().filter_map(|figure| figure.spread(paths)).collect(),
    })
}

/// The figures of every path, those over all paths, and the command lines that repeat the paths
/// beyond a limit.
pub(crate) fn summary(overall: &Overall, paths: &[Compared]) -> String {
    let figures = paths.first().map_or(&[][..], |worst| worst.figures);
    let header: Vec<_> =
        ["number", "path"].into_iter().chain(figures.iter().map(|figure| figure.name)).collect();
    let row = |path: &Compared| {
        let ratios = figures
            .iter()
            .map(|figure| report::or_dash((figure.of)(path).map(|ratio| format!("{ratio:.3}"))));
        [path.path.to_string(), path.what.clone()].into_iter().chain(ratios).collect()
    };
    let spread: [report::Column<Spread>; 5] = [
        ("figure", |spread| spread.figure.to_owned()),
        ("limit", |spread| format!("{:.2}", spread.limit)),
        ("worst", |spread| format!("{:.3}", spread.worst)),
        ("median", |spread| format!("{:.3}", spread.median)),
        ("paths beyond", |spread| spread.beyond.to_string()),
    ];
    let mut text = format!(
        "With help divided by without help:\n{}\n{}\n{} of {} paths are beyond a limit; {} runs \
         failed.\n",
        report::table(&header, paths.iter().map(row), 2),
        report::table_of(&spread, &overall.figures, 1),
        overall.beyond,
        overall.paths,
        overall.failed
    );
    for path in paths.iter().filter(|path| path.is_beyond()) {
        let [helped, plain] = &path.commands;
        text += &format!("{}:\n  {helped}\n  {plain}\n", path.path);
    }
    text
}

/// A plot of each figure over the share of paths with no higher one, as an SVG.
pub(crate) fn plot(paths: &[Compared]) -> Result<String, DrawError> {
    let curve = |figure: &Figure| {
        distribution(figure.name, figure.colour, paths.iter().filter_map(figure.of))
    };
    let y = Axis::logarithmic("with help / without help", 2);
    let figures = paths.first().map_or(&[][..], |worst| worst.figures);
    plot_of("share of the paths, percent", y, figures.iter().map(curve).collect())
}

#[cfg(test)]
mod tests;
