//! The real agent beside a real, unmodified program, by `sidekick-lab exec`. The programs are in
//! the directory of `sidekick-lab`, where `make lab` puts them.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::runs::number;
use crate::support::unmodified::{BYTES, SEED, upload};

/// Makes a call of ten seconds to the host with the agent, at 10 % loss. The programs are
/// unmodified. Returns the listener's report and the lab's record.
fn call(options: &[&str]) -> (Value, Value) {
    let lab = Path::new(env!("CARGO_BIN_EXE_sidekick-lab"));
    let programs = lab.parent().unwrap().display();
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path().display();
    let [record, ready] = ["record", "ready"].map(|name| directory.path().join(name));
    assert!(Command::new("mkfifo").arg(ready).status().unwrap().success());
    // The talker waits for the listener's line `ready`. The report follows that line.
    let talker = format!(
        "read -r _ < {here}/ready
        exec {programs}/audio-send --sdp {here}/call.sdp $SIDEKICK_SENDER_IP:5004 --seconds 10"
    );
    let listener = format!(
        "{programs}/audio-receive --write-sdp {here}/call.sdp --json --playout-limit-ms 10000 | \
         {{ read -r line; echo \"$line\" > {here}/ready; cat; }}"
    );
    let output = Command::new(lab)
        .args(["exec", "audio-paper", "--seed", &SEED.to_string()])
        .args(["--set", "near.loss_percent=10"])
        .args(options)
        .args(["--peer", &talker, "--json-file", record.to_str().unwrap()])
        .args(["--", "sh", "-c", &listener])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "seed {SEED}: {error}");
    let record = serde_json::from_slice(&fs::read(record).unwrap()).unwrap();
    (serde_json::from_slice(&output.stdout).unwrap(), record)
}

#[test]
fn an_agent_repairs_the_losses_of_an_unmodified_upload() {
    let (client, record) = upload(&["--set", "sidekick.mode=auto", "--agent"]);
    assert_eq!(number(&client, "/bytes"), BYTES, "{client}");
    let [lost, resent, sent] =
        ["/agent/lost", "/agent/resent", "/agent/sent"].map(|figure| number(&record, figure));
    let on_the_link = number(&record, "/links/near/to_receiver/lost_random");
    // The agent sends each repair of the first packets twice. It also sends the packets of the
    // handshake again.
    assert!(lost > 0 && resent > 0 && resent <= 2 * lost + 8, "{record}");
    // The agent rarely declares a packet lost that the link has not lost.
    assert!(lost < 2 * on_the_link, "{lost} found, {on_the_link} lost: {record}");
    // The agent helps all packets of the client, and does not count its own repairs as such.
    let on_it = number(&record, "/links/near/to_receiver/packets");
    assert!(sent + resent <= on_it && sent * 10 >= BYTES / 150, "{record}");
}

#[test]
fn an_agent_repairs_the_losses_of_an_unmodified_listener() {
    let (alone, _) = call(&["--set", "sidekick.mode=off"]);
    assert_eq!(number(&alone, "/played"), 500, "seed {SEED}");
    let missing = |report: &Value| number(report, "/nacks/packets");
    // The proxy reports each packet of a lossy call to the agent. So most copies arrive before a
    // later packet shows the loss to the listener, which then sends no NACK to the talker. A busy
    // machine delays copies, or its pauses look like a queue, for which the agent rests. Only the
    // agent can make copies arrive so early: one call of five is proof.
    let is_repaired = (0..5).any(|_| {
        let (helped, record) = call(&["--set", "sidekick.mode=reinject", "--agent"]);
        assert_eq!(number(&helped, "/played"), 500, "seed {SEED}");
        let [missed, delivered] =
            ["/agent/missed", "/agent/delivered"].map(|figure| number(&record, figure));
        // Some packets were lost before the proxy kept copies, and a few were lost behind the
        // proxy.
        let most = delivered >= 20 && delivered * 10 >= missed * 7;
        // The playout limit is long for the sake of a busy machine. Copies must not need it.
        let in_time = helped["dejitter_ms"]["p99"].as_f64() < Some(1000.0);
        eprintln!("{helped} {alone} {record}");
        most && in_time && 3 * missing(&helped) < missing(&alone)
    });
    assert!(is_repaired, "seed {SEED}: the records above say what arrived, and when");
}

#[test]
fn the_same_program_needs_no_agent() {
    let (client, record) = upload(&[]);
    assert_eq!(number(&client, "/bytes"), BYTES, "{client}");
    assert!(number(&record, "/links/near/to_receiver/lost_random") > 0, "{record}");
    assert!(number(&client, "/packets_lost") > 0, "{client}");
    assert_eq!((&record["agent"], &record["proxy"]), (&Value::Null, &Value::Null), "{record}");
}
