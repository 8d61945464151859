//! One run of each program over the emulated path.
//!
//! The tests check what no pause of a few seconds can change: what arrived, how the programs ended,
//! and what they counted. After five seconds, a program may give up its peer. The program
//! `programs` has the tests of how much the help is worth. The programs are in the directory of
//! `sidekick-lab`, where `make lab` puts them.

#![allow(clippy::unwrap_used, reason = "helpers of tests are outside what clippy takes for tests")]

#[path = "../support"]
mod support {
    pub(crate) mod enclosed;
    pub(crate) mod runs;
    pub(crate) mod transfers;
    pub(crate) mod unmodified;
}

use std::io::Write as _;
use std::path::Path as FilePath;
use std::process::{Command, Stdio};

use serde_json::Value;
use sidekick_netem::path::{Backend, Path};
use sidekick_netem::programs::Programs;
use sidekick_netem::scenario::Scenario;
use sidekick_netem::source::SourceFile;

use support::enclosed::in_enclosure;
use support::runs::{number, record};
use support::transfers::{Proxy, Upload, server};
use support::unmodified;

const LAB: &str = env!("CARGO_BIN_EXE_sidekick-lab");

/// Packets of the upload that the proxy counts before the file ends. No proxy counts packets
/// without a session.
const COUNTED: u64 = 100;

/// `h3-upload`, `h3-upload-server` and `sidekick-proxy`. The file ends once the proxy has a session
/// and counts, however long that takes.
#[test]
fn an_upload_past_a_proxy_arrives_and_is_counted() {
    in_enclosure(|| {
        let scenario = Scenario::load("upload-paper").unwrap();
        let path = Path::build(Backend::User, &scenario, 7).unwrap();
        let hosts = path.topology();
        let directory = tempfile::tempdir().unwrap();
        let programs = Programs::find(FilePath::new(LAB).parent()).unwrap();
        let (_server, ca) = server(&programs, hosts, directory.path());
        let mut proxy = Proxy::start(&programs, hosts, directory.path());
        let (mode, cc) = ("pacubic", "cubic-rfc9438");
        let upload = Upload::start(&programs, hosts, directory.path(), &ca, (mode, cc));
        proxy.wait_for(hosts, 1, COUNTED);
        let report = upload.finish();
        let arrived = SourceFile::open(&directory.path().join("store").join(mode)).unwrap();
        assert!(arrived.bytes > 0, "{report}");
        assert_eq!(report["bytes"], arrived.bytes, "{report}");
        assert_eq!(report["sha256"], arrived.sha256, "{report}");
    });
}

/// `h3-download`. The lab compares the file with the served one.
#[test]
fn a_download_arrives() {
    let settings = ["flow.bytes=500000", "near.loss_percent=2", "sidekick.mode=receive"];
    let record = record("download-paper", &settings);
    assert_eq!(number(&record, "/bytes"), 500_000, "{record}");
}

/// `audio-send` and `audio-receive`. A packet counts as late if the machine has paused for too
/// long.
#[test]
fn a_call_loses_no_packet() {
    let settings = ["flow.seconds=2", "sidekick.mode=reinject"];
    let record = record("audio-paper", &settings);
    assert_eq!(number(&record, "/played") + number(&record, "/late"), 100, "{record}");
}

/// `sidekick-agent` beside `quinn-client`. The agent and the proxy run from before the client's
/// start to its end. What they do in this time depends on the machine.
#[test]
fn an_unmodified_upload_beside_an_agent_arrives() {
    let (client, _) = unmodified::upload(&[
        "--set",
        "sidekick.mode=auto",
        "--set",
        "near.loss_percent=0",
        "--agent",
    ]);
    assert_eq!(number(&client, "/bytes"), unmodified::BYTES, "{client}");
}

/// `sidekick-lab exec`.
#[test]
fn a_command_on_the_path_has_streams_and_an_exit_status() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("record");
    let mut lab = Command::new(LAB);
    lab.args(["exec", "upload-paper", "--json-file"]).arg(&file);
    lab.args(["--", "sh", "-c", "cat; echo from $SIDEKICK_SENDER_IP; exit 7"]);
    lab.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut lab = lab.spawn().unwrap();
    lab.stdin.take().unwrap().write_all(b"of the test\n").unwrap();
    let output = lab.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{error}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "of the test\nfrom 10.77.1.1\n", "{error}");
    let record: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(record["exit_code"], 7, "{record}");
}
