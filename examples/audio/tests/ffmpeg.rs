//! What is sent is plain RTP under SRTP: ffmpeg receives it by the session description, and hears what was said.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use audio::source::{Pcm as _, Tone};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};

/// Samples of a second.
const RATE: usize = 48_000;
/// What is looked for first, a quarter of a second; and then compared, a second.
const PIECE: std::ops::Range<usize> = RATE..RATE + RATE / 4;
const WHOLE: std::ops::Range<usize> = RATE..2 * RATE;

/// Ends with the test.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A pair of ports that are free, the first of them even: ffmpeg opens the second for RTCP, whatever the description says.
fn free_port() -> u16 {
    let free = |port: u16| UdpSocket::bind(("127.0.0.1", port)).is_ok();
    let mut ports = std::iter::repeat_with(|| {
        UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port() & 0xfffe
    });
    ports.by_ref().take(100).find(|port| free(*port) && free(port + 1)).expect("no two free ports in a row")
}

/// How alike two sounds are, 1 if they are the same but for their loudness.
fn likeness(one: &[f32], other: &[f32]) -> f32 {
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    product(one, other) / (product(one, one) * product(other, other)).sqrt().max(f32::MIN_POSITIVE)
}

/// Where in `said` the piece is most like it.
fn find(piece: &[f32], said: &[f32]) -> usize {
    let mut near: Vec<(f32, usize)> = said
        .windows(piece.len())
        .enumerate()
        .step_by(3)
        .map(|(at, window)| (likeness(piece, window), at))
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    // Every third sample misses the best by one, and a note comes several times: the best of many, to the sample.
    let around = near.iter().take(50).flat_map(|(_, at)| at.saturating_sub(2)..at + 3);
    let exact = around.filter_map(|at| Some((likeness(piece, said.get(at..at + piece.len())?), at)));
    exact.max_by(|a, b| a.0.total_cmp(&b.0)).expect("too little was said").1
}

#[test]
fn ffmpeg_hears_what_was_said() {
    let directory = tempfile::tempdir().unwrap();
    let dest = format!("127.0.0.1:{}", free_port());
    let mut sender = Command::new(env!("CARGO_BIN_EXE_audio-send"));
    // It talks until ffmpeg has heard enough.
    sender.args([&dest, "--one-way", "--json", "--seconds", "60", "--write-sdp", "call.sdp"]);
    let mut sender = Guard(sender.current_dir(&directory).stdout(Stdio::piped()).spawn().unwrap());
    while !directory.path().join("call.sdp").exists() {
        assert!(sender.0.try_wait().unwrap().is_none(), "audio-send has ended");
        std::thread::yield_now();
    }
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args([
        "-hide_banner",
        "-loglevel",
        "error",
        "-nostdin",
        "-protocol_whitelist",
        "file,udp,rtp,srtp",
    ]);
    ffmpeg.args(["-i", "call.sdp", "-t", "4", "-ac", "1", "-ar", "48000", "-f", "f32le", "-"]);
    let ffmpeg = ffmpeg.current_dir(&directory).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut ffmpeg = Guard(ffmpeg.expect("cannot start ffmpeg: `make deps` installs it"));
    let mut bytes = Vec::new();
    ffmpeg.0.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
    let said: Vec<_> =
        BufReader::new(ffmpeg.0.stderr.take().unwrap()).lines().map_while(Result::ok).collect();
    let heard: Vec<f32> = bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    assert!(heard.len() >= 3 * RATE, "{} samples, and {said:?}", heard.len());

    // ffmpeg comes in the midst of it: a piece of what it heard is somewhere in what was said, and what follows it, too. The
    // tone begins anew every 6.4 s.
    let mut tone = vec![0.0; 9 * RATE + 1];
    Tone::new().fill(&mut tone);
    let at = find(&heard[PIECE], &tone[..8 * RATE]);
    let likeness = likeness(&heard[WHOLE], &tone[at..at + RATE]);
    assert!(likeness > 0.98, "most like at {at}: {likeness}; {said:?}");
}
