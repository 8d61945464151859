//! Opus (RFC 6716) at a constant bit rate: all packets of a call have one size.

use super::Source;
use anyhow::Context as _;
use opus::{Application, Bitrate, Channels, Encoder};
use std::fmt;
use std::time::Duration;

/// The bit rate in bits per second: 240 bytes per packet of 20 ms, as in the Sidekick paper.
pub const BITRATE: u32 = 96_000;
/// The lengths of a frame in milliseconds: those of Opus (RFC 6716, section 2.1.4) that are whole.
pub const FRAME_MS: [u16; 5] = [5, 10, 20, 40, 60];

/// Packets of Opus.
pub struct OpusSource {
    sound: Box<dyn Iterator<Item = f32> + Send>,
    encoder: Encoder,
    /// The length of a frame.
    ms: usize,
}

impl fmt::Debug for OpusSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpusSource").field("ms", &self.ms).finish_non_exhaustive()
    }
}

impl OpusSource {
    /// The sound, with a frame of `interval` per packet.
    ///
    /// # Errors
    /// The interval is not in [`FRAME_MS`], or the codec fails.
    pub fn new(
        sound: impl Iterator<Item = f32> + Send + 'static,
        interval: Duration,
    ) -> anyhow::Result<Self> {
        let ms = FRAME_MS.into_iter().find(|ms| Duration::from_millis((*ms).into()) == interval);
        let ms = ms.context("Opus has frames of 5, 10, 20, 40 or 60 ms")?;
        let encoder = encoder().context("the Opus encoder failed to start")?;
        Ok(Self { sound: Box::new(sound), encoder, ms: ms.into() })
    }
}

fn encoder() -> Result<Encoder, opus::Error> {
    let mut encoder = Encoder::new(crate::session::CLOCK_RATE, Channels::Mono, Application::Audio)?;
    encoder.set_bitrate(Bitrate::Bits(BITRATE.cast_signed()))?;
    encoder.set_vbr(false)?;
    Ok(encoder)
}

impl Source for OpusSource {
    fn next(&mut self, out: &mut Vec<u8>) -> bool {
        // 48 samples and 12 bytes per millisecond.
        let mut frame: Vec<f32> = self.sound.by_ref().take(48 * self.ms).collect();
        if frame.is_empty() {
            return false;
        }
        // The last frame ends with silence.
        frame.resize(48 * self.ms, 0.0);
        out.clear();
        out.resize(12 * self.ms, 0);
        let Ok(len) = self.encoder.encode_float(&frame, out) else { return false };
        out.truncate(len);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::tone;

    #[test]
    fn every_packet_has_the_bytes_of_the_rate() {
        for ms in FRAME_MS {
            let interval = Duration::from_millis(ms.into());
            let mut source = OpusSource::new(tone(), interval).unwrap();
            let mut packet = Vec::new();
            for _ in 0..50 {
                assert!(source.next(&mut packet));
                assert_eq!(packet.len(), 12 * usize::from(ms));
            }
        }
        assert!(OpusSource::new(tone(), Duration::from_millis(30)).is_err());
    }
}
