//! A generated sound: a harp's arpeggio, in which a listener notices each gap.

use crate::session::CLOCK_RATE;
use std::f32::consts::TAU;

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

/// The sound from its beginning. It is endless, and always the same.
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
}
