//! `audio-send` sends plain RTP under SRTP. ffmpeg receives it with the session description, and
//! plays the sound that was sent.

use crate::child::Ends;
use crate::{ear, likeness, sender};
use audio::source::tone;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::UdpSocket;
use std::process::{Command, Stdio};

/// Samples per second.
const RATE: usize = 48_000;
/// The part of the received sound to search for, a quarter of a second.
const PIECE: std::ops::Range<usize> = RATE..RATE + RATE / 4;
/// The part to compare at the place found, a second.
const WHOLE: std::ops::Range<usize> = RATE..2 * RATE;

/// The first search compares sums of this many samples, because the sound below 2 kHz identifies
/// the place.
const STEP: usize = 12;

/// A socket with an even port whose next port is free. ffmpeg opens the next port for RTCP,
/// whatever the description contains. The socket has a time limit, in case audio-send fails.
fn even_ear() -> (UdpSocket, String) {
    let mut ears = std::iter::repeat_with(|| ear("127.0.0.1"));
    let fits = |(socket, _): &(UdpSocket, String)| {
        let port = socket.local_addr().unwrap().port();
        port.is_multiple_of(2) && UdpSocket::bind(("127.0.0.1", port + 1)).is_ok()
    };
    ears.by_ref().take(100).find(fits).expect("no two free ports in a row")
}

/// The sums of [`STEP`] samples each.
fn decimated(samples: &[f32]) -> Vec<f32> {
    samples.chunks_exact(STEP).map(|chunk| chunk.iter().sum()).collect()
}

/// The place in `said` that is most similar to the piece.
fn find(piece: &[f32], said: &[f32]) -> usize {
    let coarse = decimated(piece);
    let mut near: Vec<(f32, usize)> = decimated(said)
        .windows(coarse.len())
        .enumerate()
        .map(|(at, window)| (likeness(&coarse, window), at * STEP))
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    // Notes recur, so search around the best 50 places, sample by sample.
    let around = near.iter().take(50).flat_map(|(_, at)| at.saturating_sub(STEP)..at + STEP);
    let exact =
        around.filter_map(|at| Some((likeness(piece, said.get(at..at + piece.len())?), at)));
    exact.max_by(|a, b| a.0.total_cmp(&b.0)).expect("the sound that was sent is too short").1
}

/// The sound that ffmpeg received in a call, and its messages.
fn heard() -> (Vec<f32>, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let (ear, dest) = even_ear();
    // It sends until ffmpeg has received enough.
    let options = [&dest, "--one-way", "--seconds", "60", "--write-sdp", "call.sdp"];
    let _sender = Ends(sender(&options).current_dir(&directory).spawn().unwrap());
    // The program writes the description before it sends the first packet.
    ear.recv(&mut [0; 1500]).expect("audio-send sends nothing");
    drop(ear);
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-hide_banner", "-loglevel", "error", "-nostdin"]);
    ffmpeg.args(["-protocol_whitelist", "file,udp,rtp,srtp", "-i", "call.sdp"]);
    ffmpeg.args(["-t", "4", "-ac", "1", "-ar", "48000", "-f", "f32le", "-"]);
    let ffmpeg =
        ffmpeg.current_dir(&directory).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut ffmpeg = Ends(ffmpeg.expect("cannot start ffmpeg: `make deps` installs it"));
    let mut bytes = Vec::new();
    ffmpeg.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
    let said =
        BufReader::new(ffmpeg.stderr.take().unwrap()).lines().map_while(Result::ok).collect();
    (bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(), said)
}

#[test]
fn ffmpeg_plays_the_sound_that_was_sent() {
    // Another program may open the port before ffmpeg does. The test then tries another port.
    let (heard, said) = std::iter::repeat_with(heard)
        .take(3)
        .find(|(heard, _)| !heard.is_empty())
        .expect("ffmpeg received nothing, at three ports");
    assert!(heard.len() >= 3 * RATE, "{} samples, and {said:?}", heard.len());

    // ffmpeg starts in the middle of the call. So the test finds a piece of the received sound in
    // the sound that was sent, and compares what follows. The tone repeats every 6.4 s.
    let tone: Vec<f32> = tone().take(9 * RATE + 1).collect();
    let at = find(&heard[PIECE], &tone[..8 * RATE]);
    let likeness = likeness(&heard[WHOLE], &tone[at..at + RATE]);
    assert!(likeness > 0.98, "the best place is {at}: {likeness}; {said:?}");
}
