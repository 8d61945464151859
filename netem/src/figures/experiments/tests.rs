//! The list of experiments as a whole.

use std::collections::HashSet;

use super::*;
use crate::figures::model::Part;
use crate::figures::plan::Plan;

#[test]
fn names_are_told_apart_and_serve_as_file_names() {
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

#[test]
fn the_quick_list_is_a_small_one() {
    let jobs = |scope| Plan::of(all(scope, &[])).jobs().len();
    let (quick, whole) = (jobs(Scope::Quick), jobs(Scope::Whole));
    assert!(quick * 3 < whole, "{quick} of {whole}");
}
