//! The networks of Packrat, in virtual time. The tests compare the gain by help for a client with
//! its alternatives, and with the published figures of Packrat. `docs/results.md` has the figures.
//!
//! `sidekick-lab figures` plots more places, of fewer seeds. `make tables` accepts new tables.

use std::time::Duration;

use sidekick_netem::figures::experiments::{Scope, all};
use sidekick_netem::figures::job::{Job, Outcome};
use sidekick_netem::figures::model::{Curve, Part, Plot, Points};
use sidekick_netem::figures::quantity::Quantity;
use sidekick_netem::sim;

use crate::support::jobs::many;
use crate::support::table::Table;

const NETWORKS: [&str; 3] = ["wifi", "cellular", "satellite"];

/// A server: its names in plots and in the table, and the names of its curves.
struct Server {
    id: &'static str,
    name: &'static str,
    curves: &'static [&'static str],
}

const SERVERS: [Server; 2] = [
    Server {
        id: "cubic",
        name: "CUBIC",
        curves: &[
            "no help",
            "split proxy",
            "tunnel",
            "tunnel in order",
            "requests",
            "parity",
            "auto",
        ],
    },
    Server { id: "bbr2", name: "BBR2", curves: &["no help", "split proxy", "auto"] },
];
/// The columns: the plot, and the x in it.
const COLUMNS: [(&str, f64); 6] = [
    ("loss", 0.0),
    ("loss", 4.0),
    ("loss", 10.0),
    ("loss", 20.0),
    ("bursts", 5.092),
    ("bursts", 22.272),
];
/// At 4 % loss, one download in ten with CUBIC and no help is fast.
const SEEDS: u64 = 7;

fn plots() -> Vec<Plot> {
    let parts = all(Scope::Whole, &[]).into_iter().flat_map(|experiment| experiment.parts);
    let plots = parts.filter_map(|part| match part {
        Part::Plot(plot) if plot.id.starts_with("packrat-") => Some(plot),
        _ => None,
    });
    plots.collect()
}

fn curve<'a>(plot: &'a Plot, name: &str) -> Option<&'a Curve> {
    plot.curves.iter().find(|curve| curve.name == name)
}

/// The published counterpart of one of our curves. That of `auto` is Packrat's.
fn published<'a>(plot: &'a Plot, name: &str) -> Option<&'a Curve> {
    let name = if name == "auto" { "Packrat" } else { name };
    curve(plot, &format!("published: {name}"))
}

/// The quantity of one of our curves at `x`, with more seeds than in the plot.
fn quantity_at(curve: &Curve, x: f64) -> Option<Quantity> {
    let Points::Measured(points) = &curve.points else { return None };
    match points.iter().find(|(at, _)| at.total_cmp(&x).is_eq())? {
        // Without loss, the seed makes no difference.
        (_, Quantity::Of(case, measure)) if x > 0.0 => {
            Some(Quantity::Of(case.clone().seeds(SEEDS), *measure))
        }
        (_, quantity) => Some(quantity.clone()),
    }
}

/// Mbit/s: the median of a curve at `x`, if it has one.
fn at(curve: &Curve, x: f64) -> Option<f64> {
    match &curve.points {
        Points::Published(points) => {
            points.iter().find(|(at, _)| at.total_cmp(&x).is_eq()).map(|(_, y)| *y)
        }
        _ => {
            let quantity = quantity_at(curve, x)?;
            let jobs: Vec<_> = quantity.cases().flat_map(|case| case.jobs()).collect();
            let outcomes = many(jobs.iter().collect(), |job| run(job));
            Some(quantity.summary(&jobs.into_iter().zip(outcomes).collect())?.median)
        }
    }
}

fn run(job: &Job) -> Outcome {
    let scenario = job.load().unwrap();
    let record = sim::run(&scenario, job.seed(), None, &mut |_: Duration, _| {});
    Ok(record.unwrap_or_else(|error| panic!("{}: {error}", job.command())))
}

/// The rows: a network, a server and the name of a curve.
fn rows() -> Vec<(&'static str, &'static Server, &'static str)> {
    let mut rows = Vec::new();
    for network in NETWORKS {
        for server in &SERVERS {
            rows.extend(server.curves.iter().map(|curve| (network, server, *curve)));
        }
    }
    rows
}

fn table() -> Table {
    Table {
        corner: "near loss or mean burst",
        columns: COLUMNS.iter().map(|(of, x)| format!("{of} {x}")).collect(),
        rows: rows()
            .into_iter()
            .map(|(network, server, curve)| format!("{network}, {}, {curve}", server.name))
            .collect(),
        name: 34,
        width: 15,
        slow: &["tunnel", "split proxy"],
    }
}

const SNAPSHOT: &str =
    include_str!("../snapshots/packrat__goodput_over_the_networks_of_packrat.snap");

/// Our Mbit/s, with the published ones in parentheses. Below the table are the places where
/// Packrat's are higher than those of `auto`.
#[test]
fn goodput_over_the_networks_of_packrat() {
    let plots = plots();
    let rows = rows();
    let plot = |row: usize, column: usize| {
        let ((network, server, _), (of, _)) = (rows[row], COLUMNS[column]);
        let id = format!("packrat-{network}-{of}-{}", server.id);
        plots.iter().find(|plot| plot.id == id).unwrap()
    };
    let table = table();
    let mut text = table.text(SNAPSHOT, |row, column| {
        let (plot, name, x) = (plot(row, column), rows[row].2, COLUMNS[column].1);
        let figure = |curve: Option<&Curve>| at(curve?, x);
        let theirs = figure(published(plot, name)).map(|y| format!("({y:.2})"));
        let ours = figure(curve(plot, name)).map(|y| format!("{y:.2}"));
        let both: Vec<_> = [ours, theirs].into_iter().flatten().collect();
        if both.is_empty() { "-".to_owned() } else { both.join(" ") }
    });
    let mut places = 0;
    for (row, figures) in table.figures(&text).into_iter().enumerate() {
        for (column, figure) in figures.into_iter().enumerate() {
            let figure = figure.filter(|_| rows[row].2 == "auto").unwrap_or_default();
            let Some((ours, theirs)) = figure.split_once(" (") else { continue };
            let theirs = theirs.trim_end_matches(')');
            places += 1;
            if ours.parse::<f64>().unwrap() <= theirs.parse::<f64>().unwrap() {
                let (id, x) = (&plot(row, column).id, COLUMNS[column].1);
                text.push_str(&format!("\nbelow: {id}, {x}: {ours} ({theirs})"));
            }
        }
    }
    text.push_str(&format!("\n{places} published places"));
    assert_snapshot!("packrat__goodput_over_the_networks_of_packrat", text);
}

#[test]
fn the_document_shows_the_table_as_it_is() {
    let is_shown = |name: &str| {
        ["no help", "split proxy", "auto"].iter().any(|curve| name.ends_with(curve))
            || name == "wifi, CUBIC, tunnel in order"
    };
    table().assert_shown(SNAPSHOT, include_str!("../../../docs/results.md"), is_shown);
}
