//! The qlog file of an upload.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, UdpSocket};

use serde_json::Value;
use tempfile::tempdir;

use crate::programs::{Server, assert_complains, client, file};
use crate::relay::Relay;

#[path = "../../../../quic-sidekick/tests/raw/schema.rs"]
mod schema;

use schema::{check, early_lost, named, read, sent};

#[test]
fn an_assisted_upload_leaves_a_file_with_the_proxys_events() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", 1_500_000);
    let modes = [
        ("pacubic", "cubic-rfc9438", "near_loss"),
        ("path-aware-bbr", "bbr2_gcongestion", "neutered"),
    ];
    for (mode, controller, reaction) in modes {
        let relay = Relay::start(server.port, 25);
        let logs = tempdir().unwrap();
        let log = logs.path().join("x.sqlog");
        let mut command = client(&path, &format!("https://127.0.0.1:{}/", relay.port));
        command.arg("--cafile").arg(server.ca()).arg("--json").arg("--qlog").arg(&log);
        command.args([
            "--sidekick",
            mode,
            "--proxy",
            &relay.proxy.to_string(),
            "--quack-every-packets",
            "4",
        ]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();

        let entries = std::fs::read_dir(logs.path()).unwrap();
        assert_eq!(entries.map(|entry| entry.unwrap().path()).collect::<Vec<_>>(), [log.as_path()]);
        let events = read(&std::fs::read(&log).unwrap());
        let counts = check(&events);
        println!("{report}: {counts:?}");
        assert_eq!(counts["sidekick:mode_set"], 1);
        assert_eq!(named(&events, "sidekick:mode_set")[0]["congestion_control"], controller);
        assert_eq!(named(&events, "sidekick:assistance_changed")[0]["new"], "assisted");
        // The client makes the report before the connection ends.
        assert!(
            counts["sidekick:quack_received"] as u64
                >= report["quacks"]["received"].as_u64().unwrap()
        );
        let lost = early_lost(&events);
        assert!(
            lost.len() as u64 >= report["packets"]["lost_early"].as_u64().unwrap()
                && lost.len() > 10
        );
        let never_sent: BTreeSet<_> =
            lost.into_iter().filter(|n| !sent(&events).contains(n)).collect();
        assert!(never_sent.is_empty(), "{never_sent:?} were lost but never sent");
        let reactions = named(&events, "sidekick:early_loss");
        let last = reactions.last().unwrap();
        // A busy machine may delay packets as a queue before the proxy does. Some losses then count
        // as congestion.
        assert!(reactions.iter().any(|event| event["reaction"] == reaction), "{last:?}");
        assert!(
            reactions
                .iter()
                .all(|event| event["reaction"] == reaction || event["reaction"] == "loss")
        );
        if let Some(ratio) = last.get("rtt_ratio") {
            assert!((0.0..1.0).contains(&ratio.as_f64().unwrap()), "{ratio}");
        }
        // The file begins with the first packet.
        let first = named(&events, "quic:packet_sent")[0];
        assert_eq!(first["header"]["packet_type"], "initial");
    }
}

#[test]
fn a_failed_handshake_is_in_the_file_too() {
    // It never reads the packets, and never answers.
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", 1);
    let log = scratch.path().join("x.sqlog");
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let output =
        client(&path, &url).args(["--timeout", "0.3", "--qlog"]).arg(&log).output().unwrap();
    assert_complains(&output, "no answer");
    let events = read(&std::fs::read(&log).unwrap());
    assert!(!named(&events, "quic:packet_sent").is_empty());
    assert!(check(&events).values().all(|count| *count == 0));
}
