//! The parts of a page: experiments, and their plots, heat maps and tables.
//!
//! Each part names the cases that it shows, so the list of runs follows from what the page shows.

use super::agreement::Agreement;
use super::job::Case;
use super::quantity::{Quantity, Results, Summary};
use super::sender::Colour;
use crate::record::RunRecord;

/// An experiment: a question, and the parts that answer it.
#[derive(Debug)]
pub struct Experiment {
    /// Its name in links, file names and on the command line.
    pub id: &'static str,
    /// Its title.
    pub title: &'static str,
    /// The paragraphs about what it shows.
    pub shows: Vec<&'static str>,
    /// The parts of the answer.
    pub parts: Vec<Part>,
}

impl Experiment {
    /// The cases to run, in the order of the page.
    pub fn cases(&self) -> impl Iterator<Item = &Case> {
        self.parts.iter().flat_map(Part::cases)
    }
}

/// A part of the answer.
#[derive(Debug)]
pub enum Part {
    /// Curves.
    Plot(Plot),
    /// Ratios or amounts over two settings.
    Heat(HeatMap),
    /// Figures in rows.
    Table(Table),
    /// Backends side by side.
    Agreement(Agreement),
}

impl Part {
    /// Curves over two axes.
    pub fn plot<S: Into<String>>(
        id: S,
        title: S,
        (x, y): (Axis, Axis),
        curves: impl IntoIterator<Item = Curve>,
    ) -> Self {
        let (id, title, curves) = (id.into(), title.into(), curves.into_iter().collect());
        Self::Plot(Plot { id, title, x, y, curves })
    }

    /// Figures in rows.
    pub fn table(
        id: &str,
        title: &str,
        columns: Vec<String>,
        rows: impl IntoIterator<Item = Vec<Entry>>,
    ) -> Self {
        let (id, title, rows) = (id.into(), title.into(), rows.into_iter().collect());
        Self::Table(Table { id, title, columns, rows })
    }

    /// Its name in file names. No other part has the same name.
    pub fn id(&self) -> &str {
        match self {
            Self::Plot(plot) => &plot.id,
            Self::Heat(heat) => &heat.id,
            Self::Table(table) => &table.id,
            Self::Agreement(agreement) => agreement.id,
        }
    }

    fn cases(&self) -> Vec<&Case> {
        match self {
            Self::Plot(plot) => plot.curves.iter().flat_map(Curve::cases).collect(),
            Self::Heat(heat) => heat.cells.iter().flatten().flat_map(Quantity::cases).collect(),
            Self::Table(table) => table.rows.iter().flatten().flat_map(Entry::cases).collect(),
            Self::Agreement(agreement) => agreement.cases().collect(),
        }
    }
}

/// How values lie along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// By their logarithm. Values of zero or less are not shown.
    Logarithmic,
    /// Percentiles by their distance from 100: 90, 99 and 99.9 lie as far apart. 100 is not shown.
    Nines,
}

/// An axis.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    /// What it shows, with the unit.
    pub name: &'static str,
    /// How values lie along it.
    pub scale: Scale,
    /// The value at which a linear axis begins.
    pub from: f64,
    /// The number of decimals of its values in tables.
    pub decimals: usize,
}

impl Axis {
    /// An axis of even steps from zero.
    pub const fn linear(name: &'static str, decimals: usize) -> Self {
        Self { name, scale: Scale::Linear, from: 0.0, decimals }
    }

    /// A logarithmic axis.
    pub const fn logarithmic(name: &'static str, decimals: usize) -> Self {
        Self { name, scale: Scale::Logarithmic, from: 0.0, decimals }
    }

    /// Whether a value has a place on the axis.
    pub fn shows(&self, value: f64) -> bool {
        match self.scale {
            Scale::Linear => value >= self.from,
            Scale::Logarithmic => value > 0.0,
            Scale::Nines => (0.0..100.0).contains(&value),
        }
    }
}

/// Curves over two axes.
#[derive(Debug)]
pub struct Plot {
    /// Its name in file names.
    pub id: String,
    /// Its title.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The curves, in the order of the legend.
    pub curves: Vec<Curve>,
}

impl Plot {
    /// The curves, each with the points that have a place on both axes.
    pub fn drawn(&self, results: &Results) -> Vec<(&Curve, Vec<(f64, Summary)>)> {
        let shown =
            |(x, summary): &(f64, Summary)| self.x.shows(*x) && self.y.shows(summary.median);
        let points = |curve: &Curve| curve.drawn(results).into_iter().filter(shown).collect();
        self.curves.iter().map(|curve| (curve, points(curve))).collect()
    }
}

/// A curve.
#[derive(Debug)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Its colour.
    pub colour: Colour,
    /// The points that it goes through.
    pub points: Points,
}

/// Reads the points of a curve from a record.
pub type Trace = fn(&RunRecord) -> Vec<(f64, f64)>;

/// The points of a curve.
#[derive(Debug)]
pub enum Points {
    /// A case for each x.
    Measured(Vec<(f64, Quantity)>),
    /// One case. Each of its runs gives points, with the same x in every run.
    Traced(Case, Trace),
    /// Figures that were computed from many runs.
    Computed(Vec<(f64, f64)>),
    /// Published figures of others; drawn dashed.
    Published(Vec<(f64, f64)>),
}

impl Curve {
    /// A curve with a case for each x.
    pub fn measured(
        name: impl Into<String>,
        colour: Colour,
        points: impl IntoIterator<Item = (f64, Quantity)>,
    ) -> Self {
        Self { name: name.into(), colour, points: Points::Measured(points.into_iter().collect()) }
    }

    /// A curve of values that one case records during its runs.
    pub fn traced(name: &str, colour: Colour, case: Case, trace: Trace) -> Self {
        Self { name: name.into(), colour, points: Points::Traced(case, trace) }
    }

    /// A curve of figures that were computed from many runs.
    pub fn computed(
        name: impl Into<String>,
        colour: Colour,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Self {
        Self { name: name.into(), colour, points: Points::Computed(points.into_iter().collect()) }
    }

    /// A curve that others published.
    pub fn published(name: impl Into<String>, colour: Colour, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), colour, points: Points::Published(points) }
    }

    /// Whether others published it.
    pub fn is_published(&self) -> bool {
        matches!(self.points, Points::Published(_))
    }

    fn cases(&self) -> Vec<&Case> {
        match &self.points {
            Points::Measured(points) => {
                points.iter().flat_map(|(_, quantity)| quantity.cases()).collect()
            }
            Points::Traced(case, _) => vec![case],
            Points::Computed(_) | Points::Published(_) => Vec::new(),
        }
    }

    /// The points that exist, from left to right.
    fn drawn(&self, results: &Results) -> Vec<(f64, Summary)> {
        match &self.points {
            Points::Measured(points) => points
                .iter()
                .filter_map(|(x, quantity)| Some((*x, quantity.summary(results)?)))
                .collect(),
            Points::Traced(case, trace) => {
                let records = case.jobs().filter_map(|job| results.get(&job)?.as_ref().ok());
                let mut points: Vec<(f64, f64)> = records.flat_map(trace).collect();
                points.sort_by(|one, other| one.0.total_cmp(&other.0));
                points
                    .chunk_by(|one, other| one.0.total_cmp(&other.0).is_eq())
                    .filter_map(|same| {
                        Some((same.first()?.0, Summary::of(same.iter().map(|(_, y)| *y))?))
                    })
                    .collect()
            }
            Points::Computed(points) | Points::Published(points) => {
                points.iter().map(|(x, y)| (*x, Summary::one(*y))).collect()
            }
        }
    }
}

/// The kind of the cells of a heat map, which determines their colours.
#[derive(Clone, Debug, PartialEq)]
pub enum Cells {
    /// Ratios of this to another quantity: white at one, blue above and orange below.
    Ratios(String),
    /// Amounts of this, from zero to `full`. A stronger blue is more.
    Amounts {
        /// The quantity, with its unit.
        name: &'static str,
        /// The amount that has the full colour, in the same unit; above zero.
        full: f64,
    },
}

impl Cells {
    /// The text of a cell, with about three digits. Amounts near the full one differ by less than
    /// one.
    pub(super) fn text(&self, value: f64) -> String {
        match self {
            Self::Ratios(_) if value >= 9.95 => format!("{value:.0}"),
            Self::Amounts { .. } if value >= 9.995 => format!("{value:.1}"),
            Self::Ratios(_) | Self::Amounts { .. } => format!("{value:.2}"),
        }
    }
}

/// Ratios or amounts over two settings.
#[derive(Debug)]
pub struct HeatMap {
    /// Its name in file names.
    pub id: String,
    /// Its title.
    pub title: String,
    /// The horizontal quantity with its unit, and the names of the columns.
    pub x: (&'static str, Vec<String>),
    /// The vertical quantity with its unit, and the names of the rows from below.
    pub y: (&'static str, Vec<String>),
    /// The kind of the cells.
    pub kind: Cells,
    /// The cells, row by row from below.
    pub cells: Vec<Vec<Quantity>>,
}

/// Figures in rows.
#[derive(Debug)]
pub struct Table {
    /// Its name in file names.
    pub id: String,
    /// Its title.
    pub title: String,
    /// The columns' names, with units.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<Entry>>,
}

/// An entry of a table.
#[derive(Debug)]
pub enum Entry {
    /// A word.
    Text(String),
    /// A figure, with its number of decimals.
    Figure(Quantity, usize),
}

impl Entry {
    /// A word.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    fn cases(&self) -> Vec<&Case> {
        match self {
            Self::Figure(quantity, _) => quantity.cases().collect(),
            Self::Text(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_summed_up_at_each_x() {
        let case = Case::of("a").seeds(2);
        let record = |times: f64| RunRecord { time_s: times, ..RunRecord::default() };
        let results: Results = case.jobs().zip([record(1.0), record(3.0)].map(Ok)).collect();
        let curve = Curve {
            name: String::new(),
            colour: Colour(0, 0, 0),
            points: Points::Traced(case, |record| {
                vec![(2.0, record.time_s), (1.0, record.time_s * 10.0)]
            }),
        };
        let middle: Vec<_> =
            curve.drawn(&results).iter().map(|(x, summary)| (*x, summary.median)).collect();
        assert_eq!(middle, [(1.0, 20.0), (2.0, 2.0)]);
    }
}
