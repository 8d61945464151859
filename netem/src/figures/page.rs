//! The page: one HTML file that requests nothing from the network.

use std::collections::HashSet;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::data;
use super::draw::{self, DrawError};
use super::job::{Case, Job};
use super::model::{Cells, Experiment, Part, Plot};
use super::plan::Plan;
use super::quantity::Results;
use super::sender::Colour;
use super::sheet::Sheet;

const STYLE: &str = include_str!("page/style.css");
/// Width and height of a key in a legend.
const KEY: (u32, u32) = (44, 16);

/// The text at the top.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The command line that made the page.
    pub command: String,
    /// Programs and libraries, with their versions.
    pub versions: Vec<(String, String)>,
}

pub(super) fn page(plan: &Plan, results: &Results, about: &About) -> Result<String, DrawError> {
    let failed = failures(plan.jobs().iter(), results);
    let sections = plan
        .experiments()
        .iter()
        .map(|experiment| section(experiment, results))
        .collect::<Result<Vec<_>, _>>()?;
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                // With this policy, a browser requests nothing, even if the page links images.
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'; img-src data:";
                // Without this link, a browser requests an icon.
                link rel="icon" href="data:,";
                title { "quic-sidekick: figures" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "quic-sidekick: figures" }
                (introduction(plan, about))
                @if !failed.is_empty() { (failure_note(&failed)) }
                nav {
                    ul {
                        @for experiment in plan.experiments() {
                            li { a href={ "#" (experiment.id) } { (experiment.title) } }
                        }
                    }
                }
                main { @for section in &sections { (section) } }
            }
        }
    };
    Ok(page.into_string())
}

fn introduction(plan: &Plan, about: &About) -> Markup {
    html! {
        p {
            "The lab measured every figure here in virtual time, with the real programs' code over "
            "an emulated path: sender, near segment, proxy, far segment, receiver. Points are "
            "medians of runs with different seeds, which count from 1. Bars, and ranges in "
            "parentheses, go from the least to the most. Dashed curves and open circles are "
            "figures that others published."
        }
        p.soft {
            (plan.jobs().len()) " runs, list " code { (plan.digest().chars().take(12).collect::<String>()) }
            @for (name, version) in &about.versions { "; " (name) " " (version) }
            "; made by " code { (about.command) } "."
        }
    }
}

fn failures<'a>(
    jobs: impl Iterator<Item = &'a Job>,
    results: &'a Results,
) -> Vec<(&'a Job, &'a str)> {
    let sentence = |job: &Job| match results.get(job) {
        Some(Ok(_)) => None,
        Some(Err(sentence)) => Some(sentence.as_str()),
        None => Some("it was not run"),
    };
    jobs.filter_map(|job| Some((job, sentence(job)?))).collect()
}

fn failure_note(failed: &[(&Job, &str)]) -> Markup {
    html! {
        div.failed {
            p { strong { (failed.len()) " runs failed" } ". The page omits figures that need one of them." }
            details {
                summary { "Which, and why" }
                pre { @for (job, sentence) in failed { (job.command()) "\n    " (sentence) "\n" } }
            }
        }
    }
}

fn section(experiment: &Experiment, results: &Results) -> Result<Markup, DrawError> {
    let parts =
        experiment.parts.iter().map(|part| figure(part, results)).collect::<Result<Vec<_>, _>>()?;
    let mut known = HashSet::new();
    let cases: Vec<&Case> = experiment.cases().filter(|case| known.insert(*case)).collect();
    let mut known = HashSet::new();
    let jobs: Vec<Job> =
        cases.iter().flat_map(|case| case.jobs()).filter(|job| known.insert(job.clone())).collect();
    let failed = failures(jobs.iter(), results);
    Ok(html! {
        section {
            h2 id=(experiment.id) { (experiment.title) }
            @for paragraph in &experiment.shows { p { (paragraph) } }
            @if !failed.is_empty() { (failure_note(&failed)) }
            @for part in &parts { (part) }
            @if !cases.is_empty() {
                details {
                    summary { "The command lines of these " (jobs.len()) " runs" }
                    pre { @for case in &cases { (case.command()) "\n" } }
                }
            }
        }
    })
}

fn figure(part: &Part, results: &Results) -> Result<Markup, DrawError> {
    let sheet = data::for_reading(part, results);
    let rows = data::for_programs(part, results).rows.len();
    let file = csv_name(part);
    let (kind, title, drawing) = match part {
        Part::Plot(plot) => ("plot", plot.title.as_str(), Some(draw::plot(plot, results)?)),
        Part::Heat(heat) => ("heat", heat.title.as_str(), Some(draw::heat_map(heat, results)?)),
        Part::Table(_) | Part::Agreement(_) if sheet.rows.is_empty() => return Ok(html! {}),
        Part::Table(table) => ("table", table.title.as_str(), None),
        Part::Agreement(_) => ("table", "Backends side by side", None),
    };
    Ok(html! {
        figure id=(part.id()) data-kind=(kind) data-points=(rows) data-csv=(file) {
            figcaption {
                h3 { (title) }
                @if let Part::Heat(heat) = part { p.soft { (colours(&heat.kind)) } }
            }
            @if let Part::Plot(plot) = part { (legend(plot)) }
            @if let Some(drawing) = &drawing {
                @if rows == 0 {
                    p.failed { strong { "There is nothing to show" } ": no run has such a figure." }
                }
                div.plot { (PreEscaped(drawing)) }
                details {
                    summary { "Table (" a href=(file) { (file) } ")" }
                    (table(&sheet))
                }
            } @else {
                (table(&sheet))
                p.soft { a href=(file) { (file) } }
            }
        }
    })
}

/// What the colours of a heat map mean.
fn colours(kind: &Cells) -> Markup {
    html! {
        @match kind {
            Cells::Ratios(of) => {
                "Blue, above 1: " (of) " is faster. Orange, below 1: it is slower."
            }
            Cells::Amounts { name, full } => {
                "Median " (name) ": a stronger blue is more. The full colour is at " (full) "."
            }
        }
    }
}

pub(super) fn csv_name(part: &Part) -> String {
    format!("{}.csv", part.id())
}

fn table(sheet: &Sheet) -> Markup {
    html! {
        div.scroll {
            table {
                thead { tr { @for column in &sheet.columns { th { (column) } } } }
                tbody { @for row in &sheet.rows { tr { @for entry in row { td { (entry) } } } } }
            }
        }
    }
}

fn legend(plot: &Plot) -> Markup {
    html! {
        ul.legend {
            @for curve in &plot.curves {
                li { (key(curve.colour, curve.is_published())) (curve.name) }
            }
        }
    }
}

fn key(colour: Colour, published: bool) -> Markup {
    let ((width, height), colour) = (KEY, colour.hex());
    let (middle, dashes) = (height / 2, if published { "10 6" } else { "none" });
    html! {
        svg viewBox={ "0 0 " (width) " " (height) } aria-hidden="true" {
            path d={ "M0 " (middle) "H" (width) } stroke=(colour) stroke-width="3" stroke-dasharray=(dashes) {}
        }
    }
}

#[cfg(test)]
mod tests;
