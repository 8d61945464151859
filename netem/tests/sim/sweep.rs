//! `sidekick-lab sweep` as a program, and how close `auto` is to the best sender on a few
//! topologies. docs/results.md has the distribution over hundreds of topologies.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn sweep(plot: &Path) -> Output {
    let line = "sweep --topologies 6 --seeds 1 --seed 1 --json --plot";
    let lab = env!("CARGO_BIN_EXE_sidekick-lab");
    Command::new(lab).args(line.split(' ')).arg(plot).output().unwrap()
}

#[test]
fn auto_is_close_to_the_best_sender_on_random_topologies() {
    let directory = tempfile::tempdir().unwrap();
    let plot = directory.path().join("reach.svg");
    let output = sweep(&plot);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains(" runs: started\n") && errors.contains("plot: "), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let distribution = lines.pop().unwrap();
    assert_eq!(lines.len(), 6, "{text}");
    let number = |object: &Value, key: &str| object.get(key).unwrap().as_f64().unwrap();
    for reach in &lines {
        assert!(number(reach, "ratio") >= 0.97, "{reach}");
    }
    assert_eq!(number(&distribution, "worst"), number(&lines[0], "ratio"));
    assert!(std::fs::read_to_string(&plot).unwrap().starts_with("<svg "));

    // A command line of the first object repeats its figure.
    let command = lines[0].pointer("/commands/0").unwrap().as_str().unwrap();
    let mut lab = Command::new(env!("CARGO_BIN_EXE_sidekick-lab"));
    let output = lab.args(command.split(' ').skip(1)).arg("--json").output().unwrap();
    let goodputs: Vec<f64> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| number(&serde_json::from_str(line).unwrap(), "goodput_mbit_s"))
        .collect();
    let mean = goodputs.iter().sum::<f64>() / goodputs.len() as f64;
    assert!((mean - number(&lines[0], "auto")).abs() < 1e-9, "{command}: {mean}");
}
