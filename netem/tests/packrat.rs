//! The networks of Packrat, in virtual time. The tests compare the gain by help for a client with
//! its alternatives, and with the published figures of Packrat. `docs/results.md` has the figures.
//!
//! `sidekick-lab figures` plots more places, of fewer seeds. `INSTA_UPDATE=always` accepts a new
//! table, as for `tables.rs`.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are outside what clippy takes for tests")]

#[path = "support/many.rs"]
mod many;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use sidekick_netem::figures::experiments::{Scope, all};
use sidekick_netem::figures::job::{Job, Outcome};
use sidekick_netem::figures::model::{Curve, Part, Plot, Points};
use sidekick_netem::figures::quantity::{Quantity, Results};
use sidekick_netem::sim;

virtual_time::in_force!();

const NETWORKS: [&str; 3] = ["wifi", "cellular", "satellite"];
/// The servers: the name in plots, and the name in the table.
const SERVERS: [(&str, &str, &[&str]); 2] = [
    (
        "cubic",
        "CUBIC",
        &["no help", "split proxy", "tunnel", "tunnel in order", "requests", "parity", "auto"],
    ),
    ("bbr2", "BBR2", &["no help", "split proxy", "auto"]),
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
const NAMES: usize = 34;
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

fn jobs_at(curve: &Curve, x: f64) -> Vec<Job> {
    let quantity = quantity_at(curve, x);
    quantity.iter().flat_map(Quantity::cases).flat_map(|case| case.jobs()).collect()
}

/// The median of a curve at `x`, if it has one.
fn at(curve: &Curve, results: &Results, x: f64) -> Option<f64> {
    match &curve.points {
        Points::Published(points) => {
            points.iter().find(|(at, _)| at.total_cmp(&x).is_eq()).map(|(_, y)| *y)
        }
        _ => Some(quantity_at(curve, x)?.summary(results)?.median),
    }
}

fn run(job: &Job) -> Outcome {
    let scenario = job.load().unwrap();
    let record = sim::run(&scenario, job.seed(), None, &mut |_: Duration, _| {});
    Ok(record.unwrap_or_else(|error| panic!("{}: {error}", job.command())))
}

/// Our Mbit/s, with the published ones in parentheses. Below the table are the places where
/// Packrat's are higher than those of `auto`.
#[test]
fn goodput_over_the_networks_of_packrat() {
    let plots = plots();
    let plot = |network: &str, of: &str, server: &str| {
        let id = format!("packrat-{network}-{of}-{server}");
        plots.iter().find(|plot| plot.id == id).unwrap()
    };
    let mut jobs = BTreeSet::new();
    for network in NETWORKS {
        for (server, _, names) in SERVERS {
            for (of, x) in COLUMNS {
                let plot = plot(network, of, server);
                jobs.extend(names.iter().flat_map(|name| jobs_at(curve(plot, name).unwrap(), x)));
            }
        }
    }
    let outcomes = many::run(jobs.iter().collect(), |job| run(job));
    let results: Results = jobs.iter().cloned().zip(outcomes).collect();

    let mut table = format!("{:NAMES$}", "near loss or mean burst");
    for (of, x) in COLUMNS {
        write!(table, "{:>15}", format!("{of} {x}")).unwrap();
    }
    for network in NETWORKS {
        for (server, server_name, names) in SERVERS {
            for name in names {
                write!(table, "\n{:NAMES$}", format!("{network}, {server_name}, {name}")).unwrap();
                for (of, x) in COLUMNS {
                    let plot = plot(network, of, server);
                    let figure = |curve: Option<&Curve>| at(curve?, &results, x);
                    let theirs = figure(published(plot, name)).map(|y| format!("({y:.2})"));
                    let ours = figure(curve(plot, name)).map(|y| format!("{y:.2}"));
                    let both: Vec<_> = [ours, theirs].into_iter().flatten().collect();
                    let both = if both.is_empty() { "-".to_owned() } else { both.join(" ") };
                    write!(table, "{both:>15}").unwrap();
                }
            }
        }
    }
    let mut places = 0;
    for (network, (server, ..)) in NETWORKS.iter().flat_map(|it| SERVERS.map(|server| (it, server)))
    {
        for (of, x) in COLUMNS {
            let plot = plot(network, of, server);
            let figure = |curve: Option<&Curve>| at(curve?, &results, x);
            let (ours, theirs) = (figure(curve(plot, "auto")), figure(published(plot, "auto")));
            let (Some(ours), Some(theirs)) = (ours, theirs) else { continue };
            places += 1;
            if ours <= theirs {
                write!(table, "\nbelow: {}, {x}: {ours:.2} ({theirs:.2})", plot.id).unwrap();
            }
        }
    }
    write!(table, "\n{places} published places").unwrap();
    insta::assert_snapshot!(table);
}

/// Checks the rows of the table in docs/results.md.
#[test]
fn the_document_shows_the_table_as_it_is() {
    let snapshot = include_str!("snapshots/packrat__goodput_over_the_networks_of_packrat.snap");
    let results = include_str!("../../docs/results.md");
    let lines = snapshot.lines().filter_map(|line| line.split_at_checked(NAMES));
    let rows = lines.filter(|(name, _)| NETWORKS.iter().any(|network| name.starts_with(network)));
    let mut shown = 0;
    for (name, figures) in rows {
        let columns = figures.as_bytes().chunks(15);
        let figures: Vec<_> =
            columns.map(|column| std::str::from_utf8(column).unwrap().trim()).collect();
        let row = format!("| {} | {} |\n", name.trim(), figures.join(" | "));
        assert!(results.contains(&row), "docs/results.md lacks {row}");
        shown += 1;
    }
    assert_eq!(shown, 3 * (7 + 3));
}
