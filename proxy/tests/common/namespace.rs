//! A network namespace for each test. The tests of `audio` use this, too.

use std::process::Command;

/// Names the file in which the inner run notes that the test has run to its end.
const NOTE: &str = "SIDEKICK_TEST_NOTE";

/// Runs `body` in a network namespace of its own, where loopback is up and the test is root. This
/// function runs the test program again under unshare(1), only for the calling test. This needs
/// root, or permission for user namespaces.
///
/// The body is a closure of the test, and the compiler's name for it begins with the test's.
pub fn in_namespace<F: FnOnce()>(body: F) {
    if let Some(note) = std::env::var_os(NOTE) {
        let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
        assert!(up.success(), "{up}");
        body();
        return std::fs::write(note, "done").unwrap();
    }
    let (_, path) = std::any::type_name::<F>().split_once("::").unwrap();
    let name = path.split("::{{closure}}").next().unwrap();
    let note = tempfile::NamedTempFile::new().unwrap();
    let mut unshare = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    let output = unshare
        .args(["--net", "--pid", "--fork", "--kill-child=SIGKILL", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(NOTE, note.path())
        .output()
        .expect("unshare(1) of util-linux");
    let told = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "inside the namespace:\n{told}\n{complaints}");
    // With another name, the program would have run no test, and succeeded.
    let noted = std::fs::read_to_string(note.path()).unwrap();
    assert_eq!(noted, "done", "{name} is not the name of the calling test:\n{told}");
}
