//! The real programs on the loopback interface. The tests check what the programs count, and no
//! times.

use crate::child::{ClosedPort, send};
use crate::{Receiver, ear, likeness, said, sender, silence, talker_report};
use audio::report::Ending;
use audio::session::Description;
use audio::source::tone;
use nix::sys::signal::Signal;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

const HOST: &str = "127.0.0.1";

#[test]
fn the_receiver_records_the_sound_that_was_sent() {
    let mut receiver = Receiver::start(HOST, &["--wav", "heard.wav", "--hgrm", "waits.hgrm"]);
    let (talker, listener, _) = receiver.call(&["--seconds", "2"]);
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
    let said: Vec<f32> = tone().take(2 * 48_000).collect();
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
    let (nobody, dest) = ear(HOST);
    let path = directory.path().join("call.sdp");
    std::fs::write(&path, "an older description").unwrap();
    let mut talking =
        sender(&[&dest, "--seconds", "600", "--write-sdp"]).arg(&path).spawn().unwrap();
    // The program writes the file before it sends the first packet.
    nobody.recv(&mut [0; 1500]).unwrap();
    talking.kill().unwrap();
    talking.wait().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(Description::from_sdp(text.as_bytes()).unwrap().destination.to_string(), dest);
    assert!(text.contains("a=ssrc-group:FID "), "{text}");
}

#[test]
fn all_random_bytes_arrive() {
    let mut receiver = Receiver::start(HOST, &["--raw"]);
    let options = ["--seconds", "1", "--raw", "--interval-ms", "5", "--bytes", "100"];
    let (talker, listener, _) = receiver.call(&options);
    assert_eq!([talker.mode, talker.assistance], ["off", "off"]);
    assert!(talker.acknowledged);
    assert_eq!((listener.complete, listener.played, listener.late), (true, 200, 0));
    assert_eq!(listener.quality, None, "random bytes have no quality");
    let again = talker.packets.retransmitted_nack;
    // 22 bytes are RTP header and authentication tag. A retransmission also has the original's
    // sequence number.
    assert_eq!((talker.packets.sent, talker.bytes), (200 + again, 122 * (200 + again) + 2 * again));
}

#[test]
fn without_a_proxy_the_call_continues_unassisted() {
    let (_nobody, silent) = ear(HOST);
    // No route leads from an IPv4 address to an IPv6 address.
    for (proxy, words) in [(silent.as_str(), ""), ("::1", "continues without the proxy")] {
        let mut receiver = Receiver::start(HOST, &[]);
        let options = ["--seconds", "0.5", "--sidekick", "reinject", "--proxy", proxy];
        let (talker, listener, said) = receiver.call(&options);
        assert_eq!((talker.mode.as_str(), talker.assisted), ("reinject", false));
        assert_eq!(talker.assistance, "not assisted yet: no proxy has reported a packet");
        assert_eq!((listener.complete, listener.played, listener.late), (true, 25, 0));
        assert!(said.contains(words) && said.is_empty() == words.is_empty(), "{said}");
    }
}

#[test]
fn without_its_proxy_a_receiver_hears_the_call() {
    // No program answers there.
    let (nobody, proxy) = ear(HOST);
    let mut receiver = Receiver::start(HOST, &["--raw", "--sidekick", "parity", "--proxy", &proxy]);
    let report = receiver.call(&["--seconds", "1", "--raw"]).1;
    // The program sent a HELLO.
    assert!(nobody.recv(&mut [0; 1500]).unwrap() > 100);
    let parity = report.parity.unwrap();
    assert_eq!((report.played, parity.received, parity.rebuilt), (50, 0, 0));
    assert!(parity.flow_bytes > 50 * 240, "{parity:?}");
    assert!(parity.assistance.contains("not"), "{}", parity.assistance);
}

#[test]
fn ctrl_c_ends_both_with_their_reports() {
    for receiver_hangs_up in [false, true] {
        let mut receiver = Receiver::start(HOST, &[]);
        let (heard, proxy) = ear(HOST);
        let options = ["--seconds", "86400", "--sidekick", "reinject", "--proxy", &proxy];
        let talking = receiver.sender(&options).spawn().unwrap();
        // The first HELLO shows that the call has begun. The program sends the second one after the
        // receiver has received packets.
        for _ in 0..=u8::from(receiver_hangs_up) {
            heard.recv(&mut [0; 1500]).unwrap();
        }
        send(if receiver_hangs_up { &receiver.child } else { &talking }, Signal::SIGINT);
        let output = talking.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let (talker, listener) = (talker_report(&output), receiver.ends());
        assert_eq!([talker.acknowledged, listener.complete], [!receiver_hangs_up; 2]);
        if receiver_hangs_up {
            assert_eq!(talker.ending, Ending::HungUp);
            assert!(String::from_utf8_lossy(&output.stdout).contains(r#""ending":"hung up""#));
        } else {
            let first = talker.packets.sent - talker.packets.retransmitted_nack;
            assert_eq!(listener.played + listener.late, first);
        }
    }
    let mut idle = Receiver::start(HOST, &[]);
    send(&idle.child, Signal::SIGINT);
    let listener = idle.ends();
    assert_eq!((listener.complete, listener.played), (false, 0));
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
    let said = said(&output);
    for word in [&dest, "audio-receive", "the network reported "] {
        assert!(said.contains(word) && said.trim_end().lines().count() == 1, "{said}");
    }
    assert!(!talker_report(&output).acknowledged);
    assert!(call(&["--one-way"]).status.success(), "with --one-way, silence is no error");
}

#[test]
fn an_unusable_file_or_address_ends_the_program_before_the_call() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("heard.wav");
    std::fs::write(&path, "an older call").unwrap();
    let (_socket, taken) = ear(HOST);
    let receive = env!("CARGO_BIN_EXE_audio-receive");
    for (program, options, words) in [
        (receive, &["--wav", "heard.wav", "--listen", &taken][..], "cannot listen on"),
        (
            receive,
            &["--listen", "127.0.0.1:0", "--hgrm", "nowhere/a.hgrm"],
            "cannot write nowhere/a.hgrm",
        ),
        (
            env!("CARGO_BIN_EXE_audio-send"),
            &["127.0.0.1:9", "--wav", "heard.wav"],
            "cannot play heard.wav: it is not a WAV file of plain samples; make one with: ffmpeg -i",
        ),
    ] {
        let mut command = Command::new(program);
        command.args(["--write-sdp", "call.sdp"]).args(options);
        let output = command.current_dir(&directory).output().unwrap();
        let said = said(&output);
        assert!(said.contains(words), "{said}");
        assert_eq!((output.status.code(), said.trim_end().lines().count()), (Some(1), 1), "{said}");
        assert!(output.stdout.is_empty(), "{output:?}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "an older call");
    }
}

#[test]
fn a_truncated_file_is_reported_and_sent_to_its_end() {
    let mut receiver = Receiver::start(HOST, &[]);
    let path = receiver.path("said.wav");
    std::fs::write(&path, &silence()[..48_000]).unwrap();
    let (_, listener, said) = receiver.call(&["--wav", path.to_str().unwrap()]);
    assert!(said.contains("said.wav is truncated"), "{said}");
    // The file has half a second of sound, minus the header's bytes. Silence fills the last frame.
    assert_eq!(listener.played, 25);
}
