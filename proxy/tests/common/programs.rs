//! The programs of this package, and how they fail.

use std::process::{Command, ExitStatus, Stdio};

/// A command that runs a program with these arguments.
fn command(program: &str, arguments: &str) -> Command {
    let mut command = Command::new(program);
    command.args(arguments.split_whitespace()).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// A command that runs the proxy with these arguments.
pub fn proxy(arguments: &str) -> Command {
    command(env!("CARGO_BIN_EXE_sidekick-proxy"), arguments)
}

/// A command that runs the agent with these arguments.
pub fn agent(arguments: &str) -> Command {
    command(env!("CARGO_BIN_EXE_sidekick-agent"), arguments)
}

/// Runs a command to its end. Returns its exit status, stdout and stderr.
pub fn ran(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Runs a daemon that must fail to start. Returns its exit status, stdout and stderr.
pub fn fails(command: &mut Command) -> (ExitStatus, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert!(!output.status.success(), "it should have failed: {output:?}");
    (output.status, text(output.stdout), text(output.stderr))
}

/// Expects one sentence on stderr, and nothing on stdout.
pub fn assert_sentence((stdout, stderr): (&str, &str), parts: &[&str]) {
    assert_eq!(stdout, "");
    assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{part:?} in {stderr:?}");
    }
}

/// Runs a daemon that must fail to start, with code 1 and one sentence, which has these parts.
/// Returns the sentence.
pub fn assert_fails(command: &mut Command, parts: &[&str]) -> String {
    let (status, stdout, stderr) = fails(command);
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert_sentence((&stdout, &stderr), parts);
    stderr
}
