//! Random paths whose proxy is far away, and downloads that the agent puts in order.

use super::super::topology::{self, Draws, Ranges};
use super::Path;
use crate::figures::job::Case;

const RANGES: Ranges = Ranges {
    near_ms: (10.0, 280.0),
    near_rate: (10.0, 100.0),
    without_loss: 0.3,
    // Little as often as much.
    loss: |draws| draws.by_logarithm((0.1, 10.0)),
    least_bytes: 3e5,
};

pub(super) fn draw(seed: u64, number: u64) -> Path {
    let mut draws = Draws::new(seed, number);
    let download = Case::of("download-paper");
    let (case, path) = topology::draw(&mut draws, &RANGES, download);
    let cc = match draws.below(3) {
        0 => "cubic",
        1 => "cubic-rfc9438",
        _ => "bbr2",
    };
    let what = format!("{cc}; {path}");
    Path { number, what, competes: false, mode: "agent-in-order", case: case.set("flow.cc", cc) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    /// The paths are lossy and not, with a bottleneck on either side, from servers of each kind.
    #[test]
    fn paths_are_of_all_kinds_and_follow_from_the_seed() {
        let drawn: Vec<_> = (1..=200).map(|number| draw(1, number)).collect();
        let loaded: Vec<Scenario> = drawn
            .iter()
            .map(|path| path.cases(1)[0].jobs().next().unwrap().load().unwrap())
            .collect();
        let count = |is: fn(&Scenario) -> bool| loaded.iter().filter(|one| is(one)).count();
        let rates = |one: &Scenario| {
            [&one.near, &one.far].map(|segment| segment.both.rate.unwrap().bits_per_second())
        };
        let counts = [
            count(|one| one.near.both.loss.get().max(one.near.bad_state.enter.get()) <= 0.0),
            count(|one| one.near.bad_state.enter.get() > 0.0),
            drawn.iter().filter(|path| path.what.starts_with("bbr2")).count(),
        ];
        let narrow = loaded.iter().map(rates).filter(|[near, far]| near < far).count();
        assert!(
            counts.iter().chain([&narrow]).all(|count| (20..=90).contains(count)),
            "{counts:?}, {narrow}"
        );
        assert_eq!(draw(1, 5).cases(3), drawn[4].cases(3));
        assert_ne!(draw(2, 5).cases(3), drawn[4].cases(3));
    }
}
