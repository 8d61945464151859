//! Tests of the list of experiments as a whole.

use std::collections::{HashMap, HashSet};

use super::*;
use crate::figures::model::{Part, Points};
use crate::figures::plan::Plan;

#[test]
fn names_are_unique_and_valid_as_file_names() {
    for scope in [Scope::Quick, Scope::Whole] {
        let mut known = HashSet::new();
        let experiments = all(scope, &[]);
        let parts = experiments.iter().flat_map(|experiment| experiment.parts.iter().map(Part::id));
        for id in experiments.iter().map(|experiment| experiment.id).chain(parts) {
            assert!(known.insert(id.to_owned()), "{id} is there twice");
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
            assert!(id.chars().all(plain), "{id}");
        }
    }
}

#[test]
fn every_run_is_one_that_this_build_knows() {
    for scope in [Scope::Quick, Scope::Whole] {
        for job in Plan::of(all(scope, &[])).jobs() {
            if let Err(error) = job.load() {
                panic!("{}: {error}", job.command());
            }
        }
    }
}

/// Without this test, a misspelt name of a series would give an empty curve.
#[test]
fn every_published_curve_has_points() {
    let experiments = all(Scope::Whole, &[]);
    let plots = experiments.iter().flat_map(|experiment| &experiment.parts).filter_map(|part| {
        let Part::Plot(plot) = part else { return None };
        Some(plot)
    });
    let mut plots_with = 0;
    for plot in plots {
        let of_others = plot.curves.iter().filter(|curve| curve.is_published());
        plots_with += usize::from(of_others.clone().count() > 0);
        for curve in of_others {
            let Points::Published(points) = &curve.points else { continue };
            assert!(points.len() > 1, "{}: {} has {points:?}", plot.id, curve.name);
        }
    }
    assert!(plots_with > 6, "{plots_with}");
}

/// The maps of a controller differ only in the help.
#[test]
fn maps_of_repair_have_the_same_cells_but_for_the_help() {
    let maps = |scope| {
        parity::experiment(scope).parts.into_iter().filter_map(|part| match part {
            Part::Heat(heat) => Some(heat),
            _ => None,
        })
    };
    for (scope, cells) in [(Scope::Quick, 9), (Scope::Whole, 42)] {
        let mut known: HashMap<String, HashSet<Vec<String>>> = HashMap::new();
        for map in maps(scope) {
            for case in map.cells.iter().flatten().flat_map(Quantity::cases) {
                let is_help = |setting: &String| setting.starts_with("sidekick.");
                let settings = case.jobs().next().unwrap().assignments();
                let (help, path): (Vec<_>, Vec<_>) = settings.into_iter().partition(is_help);
                known.entry(path.join(" ")).or_default().insert(help);
            }
        }
        assert_eq!(known.len(), 2 * cells, "{scope:?}");
        assert!(known.values().all(|helps| helps.len() == 5), "{known:?}");
    }
}

#[test]
fn the_quick_list_is_a_small_one() {
    let jobs = |scope| Plan::of(all(scope, &[])).jobs().len();
    let (quick, whole) = (jobs(Scope::Quick), jobs(Scope::Whole));
    assert!(quick * 3 < whole, "{quick} of {whole}");
}
