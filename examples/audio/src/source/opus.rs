//! Opus (RFC 6716) at a constant bit rate: all packets of a call have one size.

use super::{Pcm, Source};
use opus::{Application, Bitrate, Channels, Encoder};
use std::time::Duration;
use thiserror::Error;

/// The bit rate in bits per second: 240 bytes per packet of 20 ms, as in the Sidekick paper.
pub const BITRATE: u32 = 96_000;
/// The lengths of a frame in milliseconds: those of Opus (RFC 6716, section 2.1.4) that are whole.
pub const FRAME_MS: [u16; 5] = [5, 10, 20, 40, 60];

/// Why Opus cannot be encoded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpusError {
    /// Opus has no frames of this length.
    #[error("Opus has frames of 5, 10, 20, 40 or 60 ms, not of {} ms", .0.as_millis())]
    Interval(Duration),
    /// The codec fails.
    #[error("the Opus encoder failed to start: {0}")]
    Codec(#[from] opus::Error),
}

/// Packets of Opus.
#[derive(Debug)]
pub struct OpusSource {
    pcm: Box<dyn Pcm>,
    encoder: Encoder,
    frame: Vec<f32>,
    bytes: usize,
}

impl OpusSource {
    /// The sound of `pcm`, with a frame of `interval` per packet.
    ///
    /// # Errors
    /// [`OpusError`] if the interval is not in [`FRAME_MS`], or if the codec fails.
    pub fn new(pcm: Box<dyn Pcm>, interval: Duration) -> Result<Self, OpusError> {
        let ms = u16::try_from(interval.as_millis()).unwrap_or(u16::MAX);
        if !FRAME_MS.contains(&ms) || Duration::from_millis(ms.into()) != interval {
            return Err(OpusError::Interval(interval));
        }
        let mut encoder =
            Encoder::new(crate::session::CLOCK_RATE, Channels::Mono, Application::Audio)?;
        encoder.set_bitrate(Bitrate::Bits(BITRATE.cast_signed()))?;
        encoder.set_vbr(false)?;
        let ms = usize::from(ms);
        // 48 samples and 12 bytes per millisecond.
        Ok(Self { pcm, encoder, frame: vec![0.0; 48 * ms], bytes: 12 * ms })
    }
}

impl Source for OpusSource {
    fn next(&mut self, out: &mut Vec<u8>) -> bool {
        let filled = self.pcm.fill(&mut self.frame);
        if filled == 0 {
            return false;
        }
        // The last frame ends with silence.
        self.frame.get_mut(filled..).unwrap_or_default().fill(0.0);
        out.clear();
        out.resize(self.bytes, 0);
        let Ok(len) = self.encoder.encode_float(&self.frame, out) else { return false };
        out.truncate(len);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Tone;

    #[test]
    fn every_packet_has_the_bytes_of_the_rate() {
        for ms in FRAME_MS {
            let interval = Duration::from_millis(ms.into());
            let mut source = OpusSource::new(Box::new(Tone::new()), interval).unwrap();
            let mut packet = Vec::new();
            for _ in 0..50 {
                assert!(source.next(&mut packet));
                assert_eq!(packet.len(), 12 * usize::from(ms));
            }
        }
        assert!(OpusSource::new(Box::new(Tone::new()), Duration::from_millis(30)).is_err());
    }
}
