//! Uploads that succeed.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;
use tempfile::tempdir;

use crate::programs::{Server, bytes, file};

/// The hash of the empty string. The test compares other hashes with the server's.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn report(output: &std::process::Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object and nothing else")
}

#[test]
fn files_of_all_sizes_arrive_unchanged() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    for len in [0, 1, 64 * 1024, 3 * 1024 * 1024] {
        let name = format!("of-{len}");
        let path = file(&scratch, &name, len);
        let report = report(&server.client(&path, "/").arg("--json").output().unwrap());
        assert_eq!(report["bytes"], len);
        assert_eq!(report["sha256"], report["server_sha256"]);
        assert_eq!(report["sha256"] == EMPTY_SHA256, len == 0);
        assert_eq!(report["assistance"], "off");
        assert_eq!(report["assisted"], false);
        assert_eq!(report["mode"], "off");
        assert_eq!(report["cc"], "bbr2");
        // The client sends up to 1452 bytes in a datagram once it knows that the path carries them.
        let sent = report["packets"]["sent"].as_u64().unwrap();
        assert!(sent > len as u64 / 1452, "{sent} packets for {len} bytes");
        assert!(report["packets"]["received"].as_u64().unwrap() > 0);
        assert!(report["rtt_ms"].as_f64().unwrap() > 0.0);
        assert!(report["time_s"].as_f64().unwrap() > 0.0);
        assert_eq!(report["near_rtt_ms"], Value::Null);
        assert!(
            std::fs::read(server.dir().join(&name)).unwrap() == bytes(len),
            "{len} bytes differ"
        );
    }
    assert_eq!(server.stored().len(), 4);
}

#[test]
fn the_report_has_what_was_tuned() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", 10_000);
    let tune = |options: &[&str]| {
        let upload = server.client(&path, "/").arg("--json").args(options).output().unwrap();
        report(&upload)["tune"].clone()
    };
    let geo = tune(&["--network", "geo"]);
    let has = |begin: &str| {
        let sentences = geo.as_array().unwrap();
        sentences.iter().any(|sentence| sentence.as_str().unwrap().starts_with(begin))
    };
    for begin in ["UDP payload up to 1452 bytes: ", "pacing off: ", "initial RTT 700 ms: "] {
        assert!(has(begin), "{begin}: {geo}");
    }
    assert_eq!(tune(&["--tune", "off"]), Value::Null);
}

#[test]
fn every_congestion_control_works() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", 500_000);
    for cc in ["cubic", "cubic-rfc9438", "reno", "bbr2"] {
        let report =
            report(&server.client(&path, "/").args(["--json", "--cc", cc]).output().unwrap());
        assert_eq!(report["cc"], cc);
    }
}

#[test]
fn without_its_proxy_an_upload_is_unassisted() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", 500_000);
    for (mode, cc) in
        [("early-loss", "bbr2"), ("pacubic", "cubic-rfc9438"), ("path-aware-bbr", "bbr2")]
    {
        // No program listens at the discard port.
        let sidekick = ["--sidekick", mode, "--proxy", "127.0.0.1:9"];
        let report =
            report(&server.client(&path, "/").arg("--json").args(sidekick).output().unwrap());
        assert_eq!(report["mode"], mode);
        assert_eq!(report["cc"], cc);
        assert_eq!(report["assisted"], false);
        // Early in the search, or after it.
        let said = report["assistance"].as_str().unwrap();
        assert!(said.contains("no answer") && said.contains("from 127.0.0.1:9"), "{said}");
        assert_eq!(report["packets"]["lost_early"], 0);
        assert_eq!(report["quacks"]["received"], 0);
    }
}

#[test]
fn the_url_names_the_file_and_odd_names_survive() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "50% #1? grüße.bin", 10);
    for to in ["/", "/renamed", "/with%20a%20space"] {
        let output = server.client(&path, to).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(server.stored(), ["50% #1? grüße.bin", "renamed", "with a space"]);
}

#[test]
fn a_second_upload_replaces_the_first() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    for len in [2000, 1000] {
        let path = file(&scratch, "x", len);
        assert!(server.client(&path, "/").output().unwrap().status.success());
        assert!(std::fs::read(server.dir().join("x")).unwrap() == bytes(len));
    }
}

#[test]
fn a_pipe_is_read_until_it_ends() {
    let server = Server::start(&[]);
    let mut command = server.client("/dev/stdin".as_ref(), "/piped");
    let mut client = command.stdin(Stdio::piped()).spawn().unwrap();
    client.stdin.take().unwrap().write_all(&bytes(300_000)).unwrap();
    assert!(client.wait().unwrap().success());
    assert!(std::fs::read(server.dir().join("piped")).unwrap() == bytes(300_000));
}

#[test]
fn many_clients_at_once() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    let names: Vec<_> = (0..8).map(|i| format!("x{i}")).collect();
    let paths: Vec<_> = names.iter().map(|name| file(&scratch, name, 200_000)).collect();
    let clients: Vec<_> =
        paths.iter().map(|path| server.client(path, "/").arg("-q").spawn().unwrap()).collect();
    for mut client in clients {
        assert!(client.wait().unwrap().success());
    }
    assert_eq!(server.stored(), names);
}

#[test]
fn quiet_prints_nothing_and_otherwise_there_is_a_summary() {
    let server = Server::start(&[]);
    let scratch = tempdir().unwrap();
    let path = file(&scratch, "x", 1000);
    let quiet = server.client(&path, "/").arg("--quiet").output().unwrap();
    assert!(quiet.status.success());
    assert!(quiet.stdout.is_empty() && quiet.stderr.is_empty());
    let plain = server.client(&path, "/").output().unwrap();
    let said = String::from_utf8(plain.stderr).unwrap();
    assert!(said.contains("congestion control bbr2") && said.contains("sha256"), "{said}");
    assert!(plain.stdout.is_empty());
}
