//! A test that works inside an enclosure. It starts this program again in there, for this test
//! alone.

use std::os::unix::process::CommandExt;
use std::process::Stdio;

use sidekick_netem::enclosure;

/// The variable that is set inside an enclosure.
pub(crate) const ENCLOSED: &str = "SIDEKICK_NETEM_TEST_ENCLOSED";

/// Runs `work` of the test with this name in its own enclosure, and shows its output.
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
