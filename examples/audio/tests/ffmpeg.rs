//! What is sent is plain RTP under SRTP: ffmpeg receives it by the session description, and hears
//! what was said.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use audio::source::{Pcm as _, Tone};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Samples of a second.
const RATE: usize = 48_000;
/// What is looked for first, a quarter of a second; and then compared, a second.
const PIECE: std::ops::Range<usize> = RATE..RATE + RATE / 4;
const WHOLE: std::ops::Range<usize> = RATE..2 * RATE;

/// The place is looked for among the means of so many samples: what is below 2 kHz tells it.
const STEP: usize = 12;

/// Ends with the test.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A socket whose port is even and the next one free: ffmpeg opens that for RTCP, whatever the
/// description says.
fn ear() -> UdpSocket {
    let mut sockets = std::iter::repeat_with(|| UdpSocket::bind("127.0.0.1:0").unwrap());
    let fits = |socket: &UdpSocket| {
        let port = socket.local_addr().unwrap().port();
        port.is_multiple_of(2) && UdpSocket::bind(("127.0.0.1", port + 1)).is_ok()
    };
    let ear = sockets.by_ref().take(100).find(fits).expect("no two free ports in a row");
    // If audio-send has died.
    ear.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    ear
}

/// How alike two sounds are, 1 if they are the same but for their loudness.
fn likeness(one: &[f32], other: &[f32]) -> f32 {
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    product(one, other) / (product(one, one) * product(other, other)).sqrt().max(f32::MIN_POSITIVE)
}

/// Each mean of so many samples.
fn decimated(samples: &[f32]) -> Vec<f32> {
    samples.chunks_exact(STEP).map(|chunk| chunk.iter().sum()).collect()
}

/// Where in `said` the piece is most like it.
fn find(piece: &[f32], said: &[f32]) -> usize {
    let coarse = decimated(piece);
    let mut near: Vec<(f32, usize)> = decimated(said)
        .windows(coarse.len())
        .enumerate()
        .map(|(at, window)| (likeness(&coarse, window), at * STEP))
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    // A note comes several times: the best of many, to the sample.
    let around = near.iter().take(50).flat_map(|(_, at)| at.saturating_sub(STEP)..at + STEP);
    let exact =
        around.filter_map(|at| Some((likeness(piece, said.get(at..at + piece.len())?), at)));
    exact.max_by(|a, b| a.0.total_cmp(&b.0)).expect("too little was said").1
}

/// What ffmpeg heard of a call, and what it said about it.
fn heard() -> (Vec<f32>, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let ear = ear();
    let mut sender = Command::new(env!("CARGO_BIN_EXE_audio-send"));
    // It talks until ffmpeg has heard enough.
    sender.arg(ear.local_addr().unwrap().to_string());
    sender.args(["--one-way", "--json", "--seconds", "60", "--write-sdp", "call.sdp"]);
    let _sender = Guard(sender.current_dir(&directory).stdout(Stdio::piped()).spawn().unwrap());
    // The description is there before the first packet.
    ear.recv(&mut [0; 1500]).expect("audio-send says nothing");
    drop(ear);
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-hide_banner", "-loglevel", "error", "-nostdin"]);
    ffmpeg.args(["-protocol_whitelist", "file,udp,rtp,srtp", "-i", "call.sdp"]);
    ffmpeg.args(["-t", "4", "-ac", "1", "-ar", "48000", "-f", "f32le", "-"]);
    let ffmpeg =
        ffmpeg.current_dir(&directory).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut ffmpeg = Guard(ffmpeg.expect("cannot start ffmpeg: `make deps` installs it"));
    let mut bytes = Vec::new();
    ffmpeg.0.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
    let said =
        BufReader::new(ffmpeg.0.stderr.take().unwrap()).lines().map_while(Result::ok).collect();
    (bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(), said)
}

#[test]
fn ffmpeg_hears_what_was_said() {
    // Between one socket and the next somebody else may have taken the port: then there are others.
    let (heard, said) = std::iter::repeat_with(heard)
        .take(3)
        .find(|(heard, _)| !heard.is_empty())
        .expect("ffmpeg heard nothing, at three ports");
    assert!(heard.len() >= 3 * RATE, "{} samples, and {said:?}", heard.len());

    // ffmpeg comes in the midst of it: a piece of what it heard is somewhere in what was said, and
    // what follows it, too. The tone begins anew every 6.4 s.
    let mut tone = vec![0.0; 9 * RATE + 1];
    Tone::new().fill(&mut tone);
    let at = find(&heard[PIECE], &tone[..8 * RATE]);
    let likeness = likeness(&heard[WHOLE], &tone[at..at + RATE]);
    assert!(likeness > 0.98, "most like at {at}: {likeness}; {said:?}");
}
