//! `sidekick-lab figures` as a program: whole, in shards, from shards, with a failed run, and
//! interrupted.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

const LAB: &str = env!("CARGO_BIN_EXE_sidekick-lab");
/// A few runs of ten kilobytes.
const SMALL: [&str; 3] = ["--quick", "--only", "first-byte"];

fn figures(arguments: &[&str], out: &Path) -> Output {
    Command::new(LAB).arg("figures").args(arguments).arg("--out").arg(out).output().unwrap()
}

fn succeeds(arguments: &[&str], out: &Path) {
    let output = figures(arguments, out);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.is_empty());
}

fn fails(arguments: &[&str], out: &Path) -> String {
    let output = figures(arguments, out);
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

fn names(directory: &Path) -> BTreeSet<String> {
    let name =
        |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    fs::read_dir(directory).unwrap().map(name).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn shards_make_the_same_page_as_the_whole() {
    let directory = tempfile::tempdir().unwrap();
    let [whole, shards] = ["whole/deep", "shards"].map(|name| directory.path().join(name));
    succeeds(&SMALL, &whole);
    assert_eq!(names(&whole), set(&["first-byte-by-rtt.csv", "index.html", "shard-1-of-1.jsonl"]));

    let with = |more: &[&str]| -> Vec<String> {
        SMALL.iter().chain(more).map(|&argument| argument.to_owned()).collect()
    };
    let run = |more: &[&str]| {
        succeeds(&with(more).iter().map(String::as_str).collect::<Vec<_>>(), &shards);
    };
    run(&["--shard", "2/3"]);
    run(&["--shard", "1/3"]);
    assert_eq!(names(&shards), set(&["shard-1-of-3.jsonl", "shard-2-of-3.jsonl"]));
    let sentence = fails(&[&SMALL[..], &["--merge"]].concat(), &shards);
    assert!(
        sentence
            .contains("sidekick-lab: these shards are missing or incomplete: 3/3; run each with"),
        "{sentence}"
    );
    run(&["--shard", "3/3"]);
    run(&["--merge"]);
    for file in ["first-byte-by-rtt.csv", "index.html"] {
        assert_eq!(
            fs::read(whole.join(file)).unwrap(),
            fs::read(shards.join(file)).unwrap(),
            "{file}"
        );
    }

    let sentence = fails(&["--quick", "--only", "smaq", "--merge"], &shards);
    assert!(sentence.contains("has runs of another list"), "{sentence}");
}

#[test]
fn a_failed_run_affects_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let (out, records) = (directory.path().join("out"), directory.path().join("records.jsonl"));
    // Records that another machine may have made. One is of a scenario that exists here. One has a
    // setting that does not.
    let output = Command::new(LAB)
        .args(["run", "upload-paper", "--json", "--set", "flow.bytes=20000"])
        .output()
        .unwrap();
    let record = String::from_utf8(output.stdout)
        .unwrap()
        .replace(r#""backend":"sim""#, r#""backend":"user""#);
    let strange = record.replace("flow.bytes=20000", "flow.colour=<red>");
    fs::write(&records, record + &strange).unwrap();
    let arguments = ["--quick", "--only", "backends", "--compare", records.to_str().unwrap()];
    let sentence = fails(&arguments, &out);
    let line = "failed: sidekick-lab run upload-paper --backend sim --set flow.colour=<red> --seed 1\n    there is no setting";
    assert!(sentence.contains(line), "{sentence}");
    assert!(sentence.contains("10 runs failed"), "{sentence}");
    let page = fs::read_to_string(out.join("index.html")).unwrap();
    assert!(page.contains("flow.colour=&lt;red&gt; --seed 1\n    there is no setting"), "{page}");
    assert!(page.contains(" %</td><td>agrees</td>"), "{page}");
}

#[test]
fn invalid_requests_fail_before_any_run() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let sentence = fails(&["--only", "nothing"], &out);
    assert!(
        sentence.starts_with(
            "sidekick-lab: there is no experiment `nothing`; there are upload-by-loss, "
        )
    );
    let sentence = fails(&["--compare", "/nonexistent"], &out);
    assert!(sentence.starts_with("sidekick-lab: cannot read /nonexistent: "), "{sentence}");
    assert!(!out.exists());
    fs::write(&out, "a file").unwrap();
    let sentence = fails(&SMALL, &out);
    assert!(sentence.starts_with("sidekick-lab: cannot make the directory "), "{sentence}");
}

#[test]
fn ctrl_c_leaves_no_partial_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut lab = Command::new(LAB)
        .args(["figures", "--out"])
        .arg(directory.path())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    // The pipe stays open: the lab may write more.
    let mut told = BufReader::new(lab.stderr.take().unwrap());
    told.read_line(&mut first).unwrap();
    assert!(first.ends_with(" runs: started\n"), "{first}");
    kill_process(Pid::from_child(&lab), Signal::INT).unwrap();
    assert_eq!(lab.wait().unwrap().code(), Some(130));
    assert_eq!(names(directory.path()), BTreeSet::new());
}
