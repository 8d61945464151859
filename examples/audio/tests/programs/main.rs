//! The real programs, in real time: with each other, with ffmpeg, and under attack.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod calls;
#[path = "../../../h3-upload/tests/end_to_end/child.rs"]
#[allow(dead_code, reason = "the tests of h3-upload use the rest")]
mod child;
mod ffmpeg;
mod forged_errors;
#[path = "../../../../proxy/tests/common/namespace.rs"]
#[allow(unreachable_pub, reason = "the tests of the proxy use this, too")]
mod namespace;

use audio::{ListenerReport, TalkerReport};
use child::{Ends, PATIENCE, lines};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A running `audio-receive`, which has made the session.
struct Receiver {
    child: Ends,
    lines: std::sync::mpsc::Receiver<String>,
    directory: TempDir,
}

impl Receiver {
    fn start(host: &str, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_audio-receive"));
        command.args(["--listen", &format!("{host}:0"), "--json", "--write-sdp", "call.sdp"]);
        command.args(options).current_dir(&directory).stdout(Stdio::piped());
        let mut child = Ends(command.spawn().unwrap());
        let lines = lines(child.stdout.take().unwrap());
        let ready = lines.recv_timeout(PATIENCE).unwrap();
        assert!(ready.starts_with(&format!("ready: listening on {host}:")), "{ready}");
        Self { child, lines, directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `audio-send` with this session.
    fn sender(&self, options: &[&str]) -> Command {
        let mut command = sender(options);
        command.arg("--sdp").arg(self.path("call.sdp"));
        command
    }

    fn ends(&mut self) -> ListenerReport {
        let text = self.lines.recv_timeout(PATIENCE).unwrap();
        assert!(self.child.wait().unwrap().success(), "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// A call to the end, and what `audio-send` says.
    fn call(&mut self, options: &[&str]) -> (TalkerReport, ListenerReport, String) {
        let output = self.sender(options).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        (talker_report(&output), self.ends(), said(&output))
    }
}

fn sender(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_audio-send"));
    command.arg("--json").args(options).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn talker_report(output: &Output) -> TalkerReport {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A socket that waits for a program's datagrams, with a time limit. Its address.
fn ear(host: &str) -> (UdpSocket, String) {
    let ear = UdpSocket::bind(format!("{host}:0")).unwrap();
    ear.set_read_timeout(Some(PATIENCE)).unwrap();
    let address = ear.local_addr().unwrap().to_string();
    (ear, address)
}

/// A WAV file of one channel with two seconds of silence.
fn silence() -> Vec<u8> {
    let mut file = std::io::Cursor::new(Vec::new());
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: 48_000,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut writer = hound::WavWriter::new(&mut file, spec).unwrap();
    (0..2 * 48_000).for_each(|_| writer.write_sample(0_i16).unwrap());
    writer.finalize().unwrap();
    file.into_inner()
}

/// The similarity of two sounds: 1 if they differ only in loudness.
fn likeness(one: &[f32], other: &[f32]) -> f32 {
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    product(one, other) / (product(one, one) * product(other, other)).sqrt().max(f32::MIN_POSITIVE)
}
