//! A generated sound, and Opus (RFC 6716) at a constant bit rate: all packets of a call have one
//! size.

use crate::session::CLOCK_RATE;
use anyhow::Context as _;
use opus::{Application, Bitrate, Channels, Encoder};
use std::f32::consts::TAU;
use std::time::Duration;

/// The bit rate in bits per second: 240 bytes per packet of 20 ms, as in the Sidekick paper.
pub const BITRATE: u32 = 96_000;
/// The lengths of a frame in milliseconds: those of Opus (RFC 6716, section 2.1.4) that are whole.
pub const FRAME_MS: [u16; 5] = [5, 10, 20, 40, 60];
/// Samples from one note to the next: a fifth of a second.
const NOTE: u64 = CLOCK_RATE as u64 / 5;
/// Semitones above A3 (220 Hz): four chords of C major, up and down.
const MELODY: [u8; 32] = [
    3, 7, 10, 15, 19, 15, 10, 7, 0, 3, 7, 12, 15, 12, 7, 3, 8, 12, 15, 20, 24, 20, 15, 12, 10, 14,
    17, 22, 26, 22, 17, 14,
];
/// Each note's overtones, and their amplitudes.
const OVERTONES: [(f32, f32); 4] = [(1.0, 0.3), (2.0, 0.12), (3.0, 0.06), (4.0, 0.03)];
/// The number of notes that sound at a time.
const RINGING: u64 = 6;

/// A harp's arpeggio, in which a listener notices each gap. It is endless, and always the same.
pub fn tone() -> impl Iterator<Item = f32> + Send {
    (0_u64..).map(|sample| {
        let latest = sample / NOTE;
        let notes = latest.saturating_sub(RINGING - 1)..=latest;
        notes.map(|note| plucked(note, sample - note * NOTE)).sum()
    })
}

/// The n-th note, `since` samples after it was plucked.
fn plucked(note: u64, since: u64) -> f32 {
    let place = usize::try_from(note % MELODY.len() as u64).unwrap_or(0);
    let semitones = MELODY.get(place).copied().unwrap_or(0);
    let pitch = 220.0 * 2_f32.powf(f32::from(semitones) / 12.0);
    let time = since as f32 / CLOCK_RATE as f32;
    // It swells for five milliseconds, so that it does not click. Then it fades, higher notes
    // sooner.
    let swell = (time / 0.005).min(1.0);
    let fade = (-time * pitch / 100.0).exp();
    let overtones =
        OVERTONES.iter().map(|(times, loud)| loud * (TAU * (pitch * times * time).fract()).sin());
    swell * fade * overtones.sum::<f32>()
}

/// Packets of Opus with the sound, a frame of `interval` in each.
///
/// # Errors
/// The interval is not in [`FRAME_MS`], or the codec fails.
pub fn opus(
    mut sound: impl Iterator<Item = f32> + Send,
    interval: Duration,
) -> anyhow::Result<impl Iterator<Item = Vec<u8>> + Send> {
    let ms = FRAME_MS.into_iter().find(|ms| Duration::from_millis((*ms).into()) == interval);
    let ms = usize::from(ms.context("Opus has frames of 5, 10, 20, 40 or 60 ms")?);
    let mut encoder = encoder().context("the Opus encoder failed to start")?;
    Ok(std::iter::from_fn(move || {
        // 48 samples and 12 bytes per millisecond.
        let mut frame: Vec<f32> = sound.by_ref().take(48 * ms).collect();
        if frame.is_empty() {
            return None;
        }
        // The last frame ends with silence.
        frame.resize(48 * ms, 0.0);
        encoder.encode_vec_float(&frame, 12 * ms).ok()
    }))
}

fn encoder() -> Result<Encoder, opus::Error> {
    let mut encoder = Encoder::new(CLOCK_RATE, Channels::Mono, Application::Audio)?;
    encoder.set_bitrate(Bitrate::Bits(BITRATE.cast_signed()))?;
    encoder.set_vbr(false)?;
    Ok(encoder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_loud_enough_and_never_too_loud() {
        let samples: Vec<f32> = tone().take(10 * CLOCK_RATE as usize).collect();
        let loudest = samples.iter().fold(0.0_f32, |loudest, value| loudest.max(value.abs()));
        assert!((0.3..1.0).contains(&loudest), "{loudest}");
        let steps = samples.windows(2).map(|pair| (pair[1] - pair[0]).abs());
        assert!(steps.fold(0.0, f32::max) < 0.3, "it clicks");
    }

    #[test]
    fn every_packet_has_the_bytes_of_the_rate() {
        for ms in FRAME_MS {
            let packets = opus(tone(), Duration::from_millis(ms.into())).unwrap();
            assert!(packets.take(50).all(|packet| packet.len() == 12 * usize::from(ms)));
        }
        assert!(opus(tone(), Duration::from_millis(30)).is_err());
    }
}
