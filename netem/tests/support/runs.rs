//! The real programs on the emulated path, started by the lab. They are in the directory of
//! `sidekick-lab`, where `make lab` puts them.

use std::ffi::OsStr;
use std::process::Command;

use serde_json::Value;

/// Runs a scenario once with these settings, and returns its record. The lab fails if the received
/// file or media differs from the sent one.
pub(crate) fn record(scenario: &str, settings: &[&str]) -> Value {
    record_with(scenario, settings, &[])
}

/// Like `record`, with more arguments for the lab.
pub(crate) fn record_with(scenario: &str, settings: &[&str], arguments: &[&OsStr]) -> Value {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_sidekick-lab"));
    lab.args(["run", scenario, "--seed", "7", "--backend", "user", "--json"]);
    lab.args(arguments);
    for setting in settings {
        lab.args(["--set", setting]);
    }
    let output = lab.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{settings:?}: {errors}");
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    println!("{settings:?}: {record}");
    record
}

pub(crate) fn number(record: &Value, pointer: &str) -> u64 {
    record.pointer(pointer).and_then(Value::as_u64).unwrap()
}
