//! `sidekick-lab sweep` as a program, and how close `auto` is to the best sender on a few
//! topologies. docs/results.md has the distribution over hundreds of topologies. What help costs on
//! congested paths is no matter here.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const LAB: &str = env!("CARGO_BIN_EXE_sidekick-lab");

fn sweep(options: &str, plot: &Path) -> Output {
    let line = format!("sweep {options} --json --plot");
    Command::new(LAB).args(line.split(' ')).arg(plot).output().unwrap()
}

fn number(object: &Value, key: &str) -> f64 {
    object.get(key).unwrap().as_f64().unwrap()
}

/// The objects that a program printed, one on each line.
fn objects(output: Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The records of a command line that a sweep printed.
fn repeat(command: &Value) -> Vec<Value> {
    let arguments = command.as_str().unwrap().split(' ').skip(1);
    objects(Command::new(LAB).args(arguments).arg("--json").output().unwrap())
}

#[test]
fn auto_is_close_to_the_best_sender_on_random_topologies() {
    let directory = tempfile::tempdir().unwrap();
    let plot = directory.path().join("reach.svg");
    let output = sweep("--topologies 6 --seeds 1 --seed 1", &plot);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains(" runs: started\n") && errors.contains("plot: "), "{errors}");
    let mut lines = objects(output);
    let distribution = lines.pop().unwrap();
    assert_eq!(lines.len(), 6, "{lines:?}");
    for reach in &lines {
        assert!(number(reach, "ratio") >= 0.97, "{reach}");
    }
    assert_eq!(number(&distribution, "worst"), number(&lines[0], "ratio"));
    assert!(std::fs::read_to_string(&plot).unwrap().starts_with("<svg "));

    // A command line of the first object repeats its figure.
    let command = &lines[0]["commands"][0];
    let goodputs: Vec<f64> =
        repeat(command).iter().map(|record| number(record, "goodput_mbit_s")).collect();
    let mean = goodputs.iter().sum::<f64>() / goodputs.len() as f64;
    assert!((mean - number(&lines[0], "auto")).abs() < 1e-9, "{command}: {mean}");
}

#[test]
fn command_lines_repeat_the_figures_of_congested_paths() {
    let directory = tempfile::tempdir().unwrap();
    let plot = directory.path().join("congested.svg");
    let output = sweep("--paths congested --topologies 2 --seeds 1", &plot);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut paths = objects(output);
    let overall = paths.pop().unwrap();
    assert_eq!((paths.len(), number(&overall, "paths")), (2, 2.0), "{paths:?}");
    assert!(std::fs::read_to_string(&plot).unwrap().starts_with("<svg "));

    for path in &paths {
        let sides = ["helped", "plain"].into_iter().zip(path["commands"].as_array().unwrap());
        for (side, command) in sides {
            let record = repeat(command).pop().unwrap();
            assert_eq!(path["goodput"][side], record["goodput_mbit_s"], "{command}");
            let beside = &record["competitor"]["goodput_mbit_s"];
            assert_eq!(&path["competitor"][side], beside, "{command}");
            let dropped: f64 = ["to_receiver", "to_sender"]
                .iter()
                .flat_map(|direction| {
                    let link = &record["links"]["near"][*direction];
                    ["lost_queue", "lost_aqm", "lost_policer"].map(|cause| number(link, cause))
                })
                .sum();
            assert_eq!(number(&path["drops"], side), dropped, "{command}");
        }
    }
}
