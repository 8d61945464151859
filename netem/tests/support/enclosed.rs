//! A test that does its work inside an enclosure: it starts this program again in there, for itself
//! alone.

use std::os::unix::process::CommandExt;
use std::process::Stdio;

use sidekick_netem::enclosure;

const ENCLOSED: &str = "SIDEKICK_NETEM_TEST_ENCLOSED";

/// Runs `work` of the test with this name in an enclosure of its own, and tells what it printed.
pub(crate) fn enclosed(test: &str, work: impl FnOnce()) {
    if std::env::var_os(ENCLOSED).is_some() {
        return work();
    }
    let output = enclosure::command()
        .unwrap()
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ENCLOSED, "1")
        .stdin(Stdio::null())
        .process_group(0)
        .output()
        .unwrap();
    let (out, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{out}\n{error}");
    println!("{out}");
}
