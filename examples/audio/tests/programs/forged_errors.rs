//! An attacker who knows the ports of a call forges ICMP errors of every kind, for all its sockets,
//! while the call runs.

use crate::namespace::in_namespace;
use audio::{ListenerReport, TalkerReport};
use std::io::{BufRead as _, BufReader, Cursor, Read as _, Write as _};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A program that forges errors until it is dropped.
struct Forger(Child);

impl Forger {
    /// Returns once the program has forged all errors.
    fn start() -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proxy/tests/common/forge.py");
        let mut python = Command::new("python3");
        python.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().unwrap();
        let mut rounds = BufReader::new(child.stdout.take().unwrap());
        let mut round = String::new();
        rounds.read_line(&mut round).unwrap();
        assert_eq!(round, "round\n");
        // Its further lines must not fill the pipe.
        std::thread::spawn(move || std::io::copy(&mut rounds, &mut std::io::sink()));
        Self(child)
    }
}

impl Drop for Forger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two seconds of silence, as a WAV file.
fn silence() -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
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

/// A call of two seconds over the loopback interface at this address. `meanwhile` runs after its
/// beginning and before its end.
fn call(host: &str, meanwhile: impl FnOnce()) -> (TalkerReport, ListenerReport) {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_audio-receive"));
    command.args(["--listen", &format!("{host}:0"), "--json", "--write-sdp", "call.sdp"]);
    command.args(["--playout-limit-ms", "10000"]);
    let mut receiver = command.current_dir(&directory).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(receiver.stdout.take().unwrap());
    let mut text = String::new();
    stdout.read_line(&mut text).unwrap();
    // A proxy that does not answer.
    let ear = UdpSocket::bind(format!("{host}:0")).unwrap();
    ear.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_audio-send"));
    command.args(["--json", "--sdp", "call.sdp", "--wav", "/dev/stdin", "--sidekick", "reinject"]);
    command.args(["--proxy", &ear.local_addr().unwrap().to_string()]).current_dir(&directory);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut sender = command.spawn().unwrap();
    let mut said = sender.stdin.take().unwrap();
    let silence = silence();
    let (first, rest) = silence.split_at(silence.len() / 4);
    said.write_all(first).unwrap();
    // Its HELLO shows that the call has begun. It cannot end without the rest of the file.
    ear.recv(&mut [0; 1500]).unwrap();
    meanwhile();
    said.write_all(rest).unwrap();
    drop(said);
    let output = sender.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    text.clear();
    stdout.read_to_string(&mut text).unwrap();
    assert!(receiver.wait().unwrap().success(), "{text}");
    (serde_json::from_slice(&output.stdout).unwrap(), serde_json::from_str(&text).unwrap())
}

#[test]
fn forged_errors_end_no_call_and_cost_it_nothing() {
    in_namespace(|| {
        for host in ["127.0.0.1", "[::1]"] {
            let mut figures = Vec::new();
            for forged in [false, true] {
                let _forger = forged.then(Forger::start);
                // Another one forges all errors while the call lasts.
                let (talker, listener) = call(host, || drop(forged.then(Forger::start)));
                let errors = [talker.socket_errors, listener.socket_errors];
                println!("{host}: {errors:?} errors reported");
                assert_eq!(errors[0] > 1, forged, "{host}: {talker:?}");
                // A NACK of the last packets may be queued, so counted, and never sent.
                let first = talker.packets.sent - talker.packets.retransmitted_nack;
                assert!(first <= listener.played, "{host}: {talker:?} {listener:?}");
                figures.push((talker.ending, listener.played, listener.late, listener.complete));
            }
            assert_eq!(figures[0], figures[1], "{host}");
        }
    });
}
