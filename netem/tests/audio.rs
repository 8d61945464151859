//! The real programs of a call on the emulated path.
//! They are taken from beside `sidekick-lab`, where `cargo build --workspace` puts them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use serde_json::Value;

/// Makes a call of five seconds with these settings and gives its record.
fn call(settings: &[&str]) -> Value {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_sidekick-lab"));
    lab.args(["run", "audio-paper", "--seed", "7", "--backend", "user", "--json", "--set", "flow.seconds=5"]);
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

fn number(record: &Value, pointer: &str) -> u64 {
    record.pointer(pointer).and_then(Value::as_u64).unwrap()
}

#[test]
fn end_to_end_every_packet_is_played() {
    let record = call(&["near.loss_percent=10"]);
    assert_eq!((number(&record, "/played"), number(&record, "/late")), (250, 0));
    assert_eq!((record["flow"].as_str(), record["mode"].as_str()), (Some("audio"), Some("off")));
    assert_eq!(number(&record, "/packets/lost_early"), 0);
    let repaired = number(&record, "/packets/lost_end_to_end");
    assert!(repaired > 0 && repaired <= number(&record, "/packets/sent") - 250, "{record}");
    assert!(record["dejitter_ms"]["max"].as_f64() > Some(0.0));
}

#[test]
fn with_a_proxy_most_losses_are_found_early() {
    for poll in ["sidekick.poll=off", "sidekick.poll=on"] {
        let record = call(&["near.loss_percent=10", "sidekick.mode=reinject", poll]);
        assert_eq!((number(&record, "/played"), number(&record, "/late")), (250, 0));
        assert_eq!(record["assistance"].as_str(), Some("assisted by the proxy"));
        let (early, end_to_end) =
            (number(&record, "/packets/lost_early"), number(&record, "/packets/lost_end_to_end"));
        assert!(early > end_to_end, "{record}");
        assert!(early <= number(&record, "/packets/lost_near"), "{record}");
    }
}

#[test]
fn without_a_proxy_the_call_goes_on_unassisted() {
    let record = call(&["sidekick.mode=reinject", "sidekick.proxy=absent"]);
    assert_eq!((number(&record, "/played"), number(&record, "/late")), (250, 0));
    assert_eq!(record["assisted"].as_bool(), Some(false));
}
