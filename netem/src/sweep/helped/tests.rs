//! Tests of sweeps against no help with made-up runs.

use super::*;
use crate::path::PathCounters;
use crate::record::CompetitorRecord;

const SWEEP: Sweep = Sweep { topologies: 40, seeds: 2, seed: 7 };

fn is_helped(job: &Job) -> bool {
    !job.assignments().iter().any(|setting| setting == "sidekick.mode=off")
}

fn record(goodput_mbit_s: f64, competitor: f64, drops: u64) -> Outcome {
    let mut links = PathCounters::default();
    links.near.to_receiver.link.lost_policer = drops;
    // Random losses, and the drops elsewhere, are not the near segment's congestion.
    links.near.to_sender.link.lost_random = 1000;
    links.far.to_sender.link.lost_queue = 1000;
    let competitor = Some(CompetitorRecord {
        cc: "reno".to_owned(),
        goodput_mbit_s: competitor,
        beside_mbit_s: 0.0,
        jain: 1.0,
    });
    Ok(RunRecord { goodput_mbit_s, competitor, links, ..RunRecord::default() })
}

/// With help, the flow has 6 Mbit/s of 5, its competitor 2 of 4, and 100 + 10 packets are dropped
/// instead of 10 + 10.
fn greedy(job: &Job) -> Outcome {
    match (is_helped(job), job.seed()) {
        (true, 1) => record(6.0, 2.0, 100),
        (true, _) => record(6.0, 2.0, 10),
        (false, _) => record(5.0, 4.0, 10),
    }
}

fn sweep(outcome: impl Fn(&Job) -> Outcome) -> Vec<Compared> {
    run(CONGESTED_PATHS, SWEEP, |jobs| jobs.iter().map(|job| outcome(job)).collect())
}

#[test]
fn each_figure_is_over_all_seeds_together() {
    let paths = sweep(greedy);
    let of_all = overall(&paths).unwrap();
    let spread = |figure, limit, ratio, beyond| Spread {
        figure,
        limit,
        worst: ratio,
        median: ratio,
        beyond,
    };
    let competing = paths.iter().filter(|path| path.competitor.is_some()).count();
    assert!((20..40).contains(&competing), "{competing}");
    let expected = Overall {
        paths: 40,
        failed: 0,
        beyond: 40,
        figures: vec![
            spread("goodput", 0.97, 1.2, 0),
            spread("competitor", 0.85, 0.5, competing),
            spread("drops", 1.5, 130.0 / 40.0, 40),
        ],
    };
    assert_eq!(of_all, expected);
    let text = summary(&of_all, &paths);
    assert!(text.contains("\n40 of 40 paths are beyond a limit; 0 runs failed.\n"), "{text}");
    for command in paths.iter().flat_map(|path| &path.commands) {
        assert!(text.contains(command.as_str()) && command.ends_with(" --runs 2"), "{command}");
    }
    assert!(paths[0].commands[1].contains(" --set sidekick.mode=off "), "{:?}", paths[0]);
}

#[test]
fn what_help_does_not_worsen_is_within_the_limits() {
    let paths = sweep(|_| record(5.0, 4.0, 3));
    assert_eq!(overall(&paths).unwrap().beyond, 0);
    assert!(!summary(&overall(&paths).unwrap(), &paths).contains("sidekick-lab run"));
    // Three drops instead of none are no ratio, and forty are.
    let with_drops = |drops| sweep(|job| record(5.0, 4.0, if is_helped(job) { drops } else { 0 }));
    assert_eq!(overall(&with_drops(3)).unwrap().beyond, 0);
    assert_eq!(overall(&with_drops(40)).unwrap().beyond, 40);
}

#[test]
fn a_run_that_fails_has_no_goodput_and_no_drops() {
    let first = congested::draw(SWEEP.seed, 1).cases(1);
    let without = |case: &Case| {
        let failing = case.jobs().next().unwrap();
        let fails = |job: &Job| {
            if *job == failing { Err("no progress".to_owned()) } else { record(5.0, 4.0, 90) }
        };
        let path = sweep(fails).into_iter().find(|path| path.path == 1).unwrap();
        (path.failed, path.goodput.ratio, path.drops.unwrap())
    };
    let drops = Pair { helped: 90.0, plain: 90.0, ratio: 1.0 };
    assert_eq!(without(&first[0]), (1, 0.5, drops));
    assert_eq!(without(&first[1]), (1, 2.0, drops));
    let nothing = sweep(|_| Err(String::new()));
    assert!(nothing.is_empty() && overall(&nothing).is_none());
}

#[test]
fn the_plot_has_a_mark_for_each_figure_of_each_path() {
    let paths = sweep(greedy);
    let marks: usize = paths.iter().map(|path| 2 + usize::from(path.competitor.is_some())).sum();
    assert_eq!(plot(&paths).unwrap().matches("<circle ").count(), marks);
}

/// Help that fills a link drops packets where no help had no load.
#[test]
fn drops_past_a_far_proxy_are_no_figure() {
    let paths = run(FAR_PATHS, SWEEP, |jobs| jobs.iter().map(|job| greedy(job)).collect());
    let of_all = overall(&paths).unwrap();
    let goodput = Spread { figure: "goodput", limit: 0.98, worst: 1.2, median: 1.2, beyond: 0 };
    assert_eq!((of_all.beyond, of_all.figures.as_slice()), (0, &[goodput][..]));
    assert!(!summary(&of_all, &paths).contains("drops"));
    assert_eq!(plot(&paths).unwrap().matches("<circle ").count(), paths.len());
}
