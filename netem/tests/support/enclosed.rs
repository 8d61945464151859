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

/// Runs `work`, which is a closure of a test, in its own enclosure.
#[allow(dead_code, reason = "each program of tests uses its own part of this")]
pub(crate) fn in_enclosure<Work: FnOnce()>(work: Work) {
    // The type of a closure has the path of the function around it. If it had another, no test
    // would run in the enclosure, and `enclosed` would fail.
    let path = std::any::type_name::<Work>();
    let test = path
        .split_once("::")
        .and_then(|(_, in_program)| in_program.strip_suffix("::{{closure}}"))
        .unwrap_or_else(|| panic!("{path} is no closure of a test"));
    enclosed(test, work);
}
