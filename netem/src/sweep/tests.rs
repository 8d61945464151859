//! Tests of sweeps over made-up runs.

use std::cell::Cell;

use super::*;
use crate::record::RunRecord;

const SWEEP: Sweep = Sweep { topologies: 40, seeds: 2, seed: 7 };

fn mode(job: &Job) -> &'static str {
    let settings = job.assignments();
    let is = |setting: &str| settings.iter().any(|other| other == setting);
    ["auto", "off", "path-aware-bbr", "reinject"]
        .into_iter()
        .find(|mode| is(&format!("sidekick.mode={mode}")))
        .unwrap()
}

fn record(goodput_mbit_s: f64) -> Outcome {
    Ok(RunRecord { goodput_mbit_s, ..RunRecord::default() })
}

/// With the first two seeds, `auto` has half of the best goodput. With later ones, it equals the
/// best.
fn unlucky(job: &Job) -> Outcome {
    record(match mode(job) {
        "auto" if job.seed() <= 2 => 4.0,
        "auto" | "path-aware-bbr" => 8.0,
        _ => 2.0,
    })
}

#[test]
fn a_suspicious_topology_runs_more_seeds_and_none_twice() {
    let runs = Cell::new(0);
    let reached = SWEEP.run(|jobs| {
        runs.set(runs.get() + jobs.len());
        jobs.iter().map(|job| unlucky(job)).collect()
    });
    assert_eq!(runs.get(), 40 * 4 * 20);
    let of_all = SWEEP.distribution(&reached).unwrap();
    let ratio = (2.0 * 4.0 + 18.0 * 8.0) / (20.0 * 8.0);
    let expected = Distribution {
        topologies: 40,
        failed: 0,
        repeated: 40,
        median: ratio,
        first_percentile: ratio,
        worst: ratio,
    };
    assert_eq!(of_all, expected);
    let text = summary(&of_all, &reached);
    assert!(
        text.contains("median 0.950, first percentile 0.950, worst 0.950 (40 topologies, 40 of")
    );
    let row = |name: &str, cell: &str| format!("{name:30}{}", format!("{cell:>8}").repeat(8));
    assert!(text.contains(&row("ratio, at most", "0.950")), "{text}");
    assert!(text.contains(&row("auto / BBR2, at most", "3.800")), "{text}");
    let command = &reached[0].commands[0];
    assert!(text.contains(command.as_str()) && command.ends_with(" --runs 20"), "{text}");
}

#[test]
fn a_run_that_fails_has_no_goodput() {
    let first = |place: usize| {
        Topology::draw(SWEEP.seed, 1).cases(1).nth(place).unwrap().jobs().next().unwrap()
    };
    let sweep_without = |failing: Job| {
        let outcome = |job: &&Job| match **job == failing {
            true => Err("no progress".to_owned()),
            false => record(5.0),
        };
        SWEEP.run(|jobs| jobs.iter().map(outcome).collect())
    };
    // One of the twenty runs of `auto`, then one of the two of BBR2.
    let reached = sweep_without(first(0));
    let of_all = SWEEP.distribution(&reached).unwrap();
    assert_eq!(
        (reached[0].topology, of_all.failed, of_all.repeated, of_all.worst),
        (1, 1, 1, 0.95)
    );
    let reached = sweep_without(first(1));
    let of_all = SWEEP.distribution(&reached).unwrap();
    assert_eq!((of_all.failed, of_all.repeated, of_all.worst), (1, 0, 1.0));

    let nothing = SWEEP.run(|jobs| jobs.iter().map(|_| Err(String::new())).collect());
    assert!(SWEEP.distribution(&nothing).is_none());
}

#[test]
fn the_plot_has_a_mark_for_each_topology() {
    let reached = SWEEP.run(|jobs| jobs.iter().map(|job| record(job.seed() as f64)).collect());
    assert_eq!(plot(&reached).unwrap().matches("<circle ").count(), 40);
}

/// The topologies include far proxies, bursts and clean paths, and each is a valid scenario.
#[test]
fn topologies_are_of_all_kinds_and_follow_from_the_seed() {
    let drawn: Vec<_> = (1..=200).map(|number| Topology::draw(1, number)).collect();
    let count = |is: fn(&crate::scenario::Scenario) -> bool| {
        let scenario = |topology: &Topology| topology.path().jobs().next().unwrap().load().unwrap();
        drawn.iter().filter(|topology| is(&scenario(topology))).count()
    };
    let far_proxies = count(|scenario| scenario.near.both.delay > scenario.far.both.delay);
    assert!((80..=120).contains(&far_proxies), "{far_proxies}");
    let bursts = count(|scenario| scenario.near.bad_state.enter.get() > 0.0);
    assert!((30..=65).contains(&bursts), "{bursts}");
    let far_losses = count(|scenario| scenario.far.both.loss.get() > 0.0);
    assert!((60..=100).contains(&far_losses), "{far_losses}");
    let near_bottlenecks = count(|scenario| {
        let rate =
            |segment: &crate::scenario::Segment| segment.both.rate.unwrap().bits_per_second();
        rate(&scenario.near) < rate(&scenario.far)
    });
    assert!((40..=90).contains(&near_bottlenecks), "{near_bottlenecks}");
    assert_eq!(Topology::draw(1, 5).path(), drawn[4].path());
    assert_ne!(Topology::draw(2, 5).path(), drawn[4].path());
}
