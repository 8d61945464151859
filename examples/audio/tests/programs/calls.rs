//! The real programs on the loopback interface. The tests check what the programs count, and no
//! times.

use crate::closed_port::ClosedPort;
use audio::report::Ending;
use audio::session::Description;
use audio::source::{Pcm as _, Tone};
use audio::{ListenerReport, TalkerReport};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;

/// A running `audio-receive`, which has made the session.
struct Receiver {
    child: Child,
    report: mpsc::Receiver<String>,
    directory: TempDir,
}

impl Receiver {
    fn start(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_audio-receive"));
        command
            .args(["--listen", "127.0.0.1:0", "--json", "--write-sdp", "call.sdp"])
            .args(options);
        let mut child = command.current_dir(&directory).stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        stdout.read_line(&mut ready).unwrap();
        assert!(ready.starts_with("ready: listening on 127.0.0.1:"), "{ready}");
        let (to, report) = mpsc::channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            stdout.read_to_string(&mut text).unwrap();
            to.send(text)
        });
        Self { child, report, directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn sender(&self, options: &[&str]) -> Command {
        let mut command = sender(options);
        command.arg("--sdp").arg(self.path("call.sdp"));
        command
    }

    fn ends(&mut self) -> ListenerReport {
        let text = self.report.recv_timeout(Duration::from_secs(120)).unwrap();
        assert!(self.child.wait().unwrap().success(), "{text}");
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn interrupt(child: &Child) {
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGINT).unwrap();
}

fn sender(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_audio-send"));
    command.arg("--json").args(options).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn talker_report(output: &Output) -> TalkerReport {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// A socket that waits for a program's datagrams, with a time limit.
fn ear() -> UdpSocket {
    let ear = UdpSocket::bind("127.0.0.1:0").unwrap();
    ear.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    ear
}

/// The similarity of two sounds: 1 if they differ only in loudness.
fn likeness(one: &[f32], other: &[f32]) -> f32 {
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    product(one, other) / (product(one, one) * product(other, other)).sqrt()
}

#[test]
fn the_receiver_records_the_sound_that_was_sent() {
    let mut receiver = Receiver::start(&["--wav", "heard.wav", "--hgrm", "waits.hgrm"]);
    let output = receiver.sender(&["--seconds", "2"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (talker, listener) = (talker_report(&output), receiver.ends());
    assert_eq!((talker.ending, listener.complete), (Ending::Confirmed, true));
    assert_eq!((listener.played, listener.late, listener.concealed), (100, 0, Some(0)));
    // The quality depends on the machine. Tests in virtual time check its value.
    let quality = listener.quality.unwrap();
    assert!(
        (1.0..=4.5).contains(&quality.mos) && (0.0..=100.0).contains(&quality.lost_percent),
        "{quality:?}"
    );

    let mut wav = hound::WavReader::open(receiver.path("heard.wav")).unwrap();
    let heard: Vec<f32> = wav.samples::<i16>().map(|sample| f32::from(sample.unwrap())).collect();
    let mut said = vec![0.0; 2 * 48_000];
    Tone::new().fill(&mut said);
    assert_eq!(heard.len(), said.len());
    // The encoder looks 6.5 ms ahead (RFC 6716, section 2).
    assert!(likeness(&heard[312..], &said) > 0.99);
    let hgrm = std::fs::read_to_string(receiver.path("waits.hgrm")).unwrap();
    assert!(
        hgrm.contains("Percentile") && hgrm.contains("Total count    =          100]"),
        "{hgrm}"
    );
}

#[test]
fn the_sender_may_make_the_session_and_others_cannot_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let nobody = ear();
    let dest = nobody.local_addr().unwrap().to_string();
    let path = directory.path().join("call.sdp");
    std::fs::write(&path, "an older description").unwrap();
    let mut talking =
        sender(&[&dest, "--seconds", "600", "--write-sdp"]).arg(&path).spawn().unwrap();
    // The program writes the file before it sends the first packet.
    nobody.recv(&mut [0; 1500]).unwrap();
    talking.kill().unwrap();
    talking.wait().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let description = Description::from_sdp(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(description.destination.to_string(), dest);
    assert!(description.sources.is_some());
}

#[test]
fn all_random_bytes_arrive() {
    let mut receiver = Receiver::start(&["--raw"]);
    let output = receiver
        .sender(&["--seconds", "1", "--raw", "--interval-ms", "5", "--bytes", "100"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let (talker, listener) = (talker_report(&output), receiver.ends());
    assert_eq!(
        (talker.mode.as_str(), talker.acknowledged, talker.assistance.as_str()),
        ("off", true, "off")
    );
    assert_eq!((listener.complete, listener.played, listener.late), (true, 200, 0));
    assert_eq!(listener.quality, None, "random bytes have no quality");
    let again = talker.packets.retransmitted_nack;
    // 22 bytes are RTP header and authentication tag. A retransmission also has the original's
    // sequence number.
    assert_eq!((talker.packets.sent, talker.bytes), (200 + again, 122 * (200 + again) + 2 * again));
}

#[test]
fn without_a_proxy_the_call_continues_unassisted() {
    // The test never reads from this socket.
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    let proxy = nobody.local_addr().unwrap().to_string();
    let mut receiver = Receiver::start(&[]);
    let options = ["--seconds", "0.5", "--sidekick", "reinject", "--proxy", &proxy];
    let output = receiver.sender(&options).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (talker, listener) = (talker_report(&output), receiver.ends());
    assert_eq!((talker.mode.as_str(), talker.assisted), ("reinject", false));
    assert_eq!(talker.assistance, "not assisted yet: no proxy has reported a packet");
    assert_eq!((listener.complete, listener.played, listener.late), (true, 25, 0));
}

#[test]
fn ctrl_c_ends_both_with_their_reports() {
    let mut receiver = Receiver::start(&[]);
    let heard = ear();
    let proxy = heard.local_addr().unwrap().to_string();
    let options = ["--seconds", "86400", "--sidekick", "reinject", "--proxy", &proxy];
    let talking = receiver.sender(&options).spawn().unwrap();
    // Its HELLO shows that the call has begun.
    heard.recv(&mut [0; 1500]).unwrap();
    interrupt(&talking);
    let output = talking.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let talker = talker_report(&output);
    assert!(talker.acknowledged);
    let listener = receiver.ends();
    assert!(listener.complete);
    assert_eq!(
        listener.played + listener.late,
        talker.packets.sent - talker.packets.retransmitted_nack
    );

    let mut idle = Receiver::start(&[]);
    interrupt(&idle.child);
    let listener = idle.ends();
    assert_eq!((listener.complete, listener.played), (false, 0));
}

#[test]
fn a_receiver_that_hangs_up_ends_the_call() {
    let mut receiver = Receiver::start(&[]);
    let heard = ear();
    let proxy = heard.local_addr().unwrap().to_string();
    let options = ["--seconds", "30", "--sidekick", "reinject", "--proxy", &proxy];
    let talking = receiver.sender(&options).spawn().unwrap();
    // The program sends its second HELLO after the receiver has received packets.
    for _ in 0..2 {
        heard.recv(&mut [0; 1500]).unwrap();
    }
    interrupt(&receiver.child);
    let output = talking.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(talker_report(&output).ending, Ending::HungUp);
    assert!(String::from_utf8_lossy(&output.stdout).contains(r#""ending":"hung up""#));
    assert!(!receiver.ends().complete);
}

#[test]
fn the_error_names_a_receiver_that_does_not_answer() {
    let closed = ClosedPort::new();
    let dest = format!("127.0.0.1:{}", closed.number);
    let directory = tempfile::tempdir().unwrap();
    let call = |options: &[&str]| {
        let mut command = sender(&[&dest, "--seconds", "0.1", "--write-sdp", "call.sdp"]);
        command.args(options).current_dir(&directory).output().unwrap()
    };
    let output = call(&[]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains(&dest)
            && said.contains("audio-receive")
            && said.contains("the network reported ")
            && said.trim_end().lines().count() == 1,
        "{said}"
    );
    assert!(!talker_report(&output).acknowledged);
    assert!(call(&["--one-way"]).status.success(), "with --one-way, silence is no error");
}

#[test]
fn a_receiver_that_cannot_listen_leaves_the_old_recording_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heard.wav");
    std::fs::write(&path, "an older call").unwrap();
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_audio-receive"));
    command.args(["--write-sdp", "call.sdp", "--wav", "heard.wav", "--listen"]);
    command.arg(taken.local_addr().unwrap().to_string());
    let output = command.current_dir(&directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("cannot listen on"), "{said}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "an older call");
}

#[test]
fn an_unwritable_file_ends_the_program_before_the_call() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_audio-receive"));
    let directory = tempfile::tempdir().unwrap();
    command.args([
        "--listen",
        "127.0.0.1:0",
        "--write-sdp",
        "call.sdp",
        "--hgrm",
        "nowhere/a.hgrm",
    ]);
    let output = command.current_dir(&directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("cannot write nowhere/a.hgrm"), "{said}");
    assert!(output.stdout.is_empty(), "{output:?}");
}

#[test]
fn without_a_route_to_the_proxy_the_call_continues() {
    let mut receiver = Receiver::start(&["--raw"]);
    // No route leads from an IPv4 address to an IPv6 address.
    let options = ["--raw", "--seconds", "1", "--sidekick", "reinject", "--proxy", "::1"];
    let output = receiver.sender(&options).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("continues without the proxy"),
        "{output:?}"
    );
    assert!(!talker_report(&output).assisted);
    assert_eq!(receiver.ends().played, 50);
}

#[test]
fn the_error_names_a_file_that_cannot_be_played() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("song.wav"), "ID3").unwrap();
    let mut command = sender(&["127.0.0.1:9", "--write-sdp", "call.sdp", "--wav", "song.wav"]);
    let output = command.current_dir(&directory).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("cannot play song.wav: it is not a WAV file") && said.contains("ffmpeg -i"),
        "{said}"
    );
    assert_eq!((output.status.code(), said.trim_end().lines().count()), (Some(1), 1));
}

#[test]
fn a_truncated_file_is_reported_and_sent_to_its_end() {
    let mut receiver = Receiver::start(&[]);
    let path = receiver.path("said.wav");
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: 48_000,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut writer = hound::WavWriter::create(&path, spec).unwrap();
    (0..48_000).for_each(|sample| writer.write_sample(i16::from(sample % 2 == 0)).unwrap());
    writer.finalize().unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_len(48_000).unwrap();
    let output = receiver.sender(&["--wav", path.to_str().unwrap()]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("said.wav is truncated"),
        "{output:?}"
    );
    // The file has half a second of sound, minus the header's bytes. Silence fills the last frame.
    assert_eq!(receiver.ends().played, 25);
}

#[test]
fn without_its_proxy_a_receiver_hears_the_call() {
    // No program answers there.
    let nobody = ear();
    let proxy = nobody.local_addr().unwrap().to_string();
    let mut receiver = Receiver::start(&["--raw", "--sidekick", "parity", "--proxy", &proxy]);
    let output = receiver.sender(&["--seconds", "1", "--raw"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // The program sent a HELLO.
    assert!(nobody.recv(&mut [0; 1500]).unwrap() > 100);
    let report = receiver.ends();
    let parity = report.parity.unwrap();
    assert_eq!((report.played, parity.received, parity.rebuilt), (50, 0, 0));
    assert!(parity.flow_bytes > 50 * 240, "{parity:?}");
    assert!(parity.assistance.contains("not"), "{}", parity.assistance);
}
