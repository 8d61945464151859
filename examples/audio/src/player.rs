//! Plays a call into a WAV file.

use crate::listener::Frame;
use crate::session::CLOCK_RATE;
use anyhow::Context as _;
use hound::{SampleFormat, WavSpec, WavWriter};
use opus::{Channels, Decoder};
use std::fmt;
use std::io::{Seek, Write};
use std::time::Duration;

/// The samples in the longest packet of Opus: 120 ms (RFC 6716, section 2.1.4).
const LONGEST: usize = 5760;
/// The most packets in a row that are concealed. Silence follows.
const CONCEALED_AT_MOST: u64 = 5;
/// The most packets of a gap that are written: a minute at 20 ms.
const LONGEST_GAP: u64 = 3000;

/// The most bytes of sound in a WAV file, whose lengths have 32 bits.
const MAX_BYTES: u64 = u32::MAX as u64 - 1024;
const UNWRITABLE: &str = "the WAV file cannot be written";
/// The samples between two updates of the header: 10 s, the most that a crash loses.
const FLUSHED: usize = 10 * CLOCK_RATE as usize;

/// Decodes a listener's frames, and writes them with one channel of 16 bits at 48 kHz.
pub struct Player<W: Write + Seek> {
    decoder: Decoder,
    writer: WavWriter<W>,
    /// The samples in a packet.
    packet: usize,
    concealed: u64,
    /// The bytes that still fit the file; `None` once it is full.
    left: Option<u64>,
    unflushed: usize,
}

impl<W: Write + Seek> fmt::Debug for Player<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Player").field("concealed", &self.concealed).finish_non_exhaustive()
    }
}

impl<W: Write + Seek> Player<W> {
    /// A player that writes to `file`. `interval` is the length of a packet until one arrives.
    ///
    /// # Errors
    /// The file cannot be written, or the decoder fails to start.
    pub fn new(file: W, interval: Duration) -> anyhow::Result<Self> {
        let spec = WavSpec {
            channels: 1,
            sample_rate: CLOCK_RATE,
            bits_per_sample: 16,
            sample_format: SampleFormat::Int,
        };
        // 48 samples per millisecond. The decoder conceals multiples of 2.5 ms.
        let packet =
            usize::try_from(interval.as_millis() * 48).unwrap_or(LONGEST).clamp(120, LONGEST);
        Ok(Self {
            decoder: Decoder::new(CLOCK_RATE, Channels::Mono)
                .context("the Opus decoder failed to start")?,
            writer: WavWriter::new(file, spec).context(UNWRITABLE)?,
            packet: packet / 120 * 120,
            concealed: 0,
            left: Some(MAX_BYTES),
            unflushed: 0,
        })
    }

    /// Plays the next frame.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn play(&mut self, frame: &Frame) -> anyhow::Result<()> {
        match frame {
            Frame::Content(content) => self.decode(content),
            Frame::Lost(packets) => {
                for number in 0..(*packets).min(LONGEST_GAP) {
                    if number < CONCEALED_AT_MOST {
                        self.conceal()?;
                    } else {
                        self.write(&vec![0; self.packet])?;
                    }
                }
                Ok(())
            }
        }
    }

    fn decode(&mut self, content: &[u8]) -> anyhow::Result<()> {
        let mut samples = [0; LONGEST];
        // To the decoder, an empty packet means a loss.
        let decoded = if content.is_empty() {
            Ok(0)
        } else {
            self.decoder.decode(content, &mut samples, false)
        };
        match decoded {
            Ok(count) if count > 0 => {
                self.packet = count;
                self.write(samples.get(..count).unwrap_or_default())
            }
            // An authentic packet that is not Opus counts as lost.
            _ => self.conceal(),
        }
    }

    fn conceal(&mut self) -> anyhow::Result<()> {
        self.concealed += 1;
        let mut samples = vec![0; self.packet];
        // If it fails, there is silence.
        let _ = self.decoder.decode(&[], &mut samples, false);
        self.write(&samples)
    }

    fn write(&mut self, samples: &[i16]) -> anyhow::Result<()> {
        let bytes = 2 * u64::try_from(samples.len()).unwrap_or(u64::MAX / 2);
        // Nothing shorter may follow what does not fit.
        self.left = self.left.and_then(|left| left.checked_sub(bytes));
        if self.is_full() {
            return Ok(());
        }
        for sample in samples {
            self.writer.write_sample(*sample).context(UNWRITABLE)?;
        }
        self.unflushed += samples.len();
        if self.unflushed >= FLUSHED {
            self.unflushed = 0;
            self.writer.flush().context(UNWRITABLE)?;
        }
        Ok(())
    }

    /// Whether the file has its greatest length, 12 hours. It is valid, and the rest is omitted.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.left.is_none()
    }

    /// The number of packets that were concealed.
    #[must_use]
    pub fn concealed(&self) -> u64 {
        self.concealed
    }

    /// Completes the file's header.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(self) -> anyhow::Result<()> {
        self.writer.finalize().context(UNWRITABLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{opus, tone};
    use hound::WavReader;
    use std::io::Cursor;

    const INTERVAL: Duration = Duration::from_millis(20);

    fn played(frames: &[Frame]) -> (Vec<f32>, u64) {
        let mut bytes = Cursor::new(Vec::new());
        let mut player = Player::new(&mut bytes, INTERVAL).unwrap();
        for frame in frames {
            player.play(frame).unwrap();
        }
        let concealed = player.concealed();
        player.finish().unwrap();
        let reader = WavReader::new(Cursor::new(bytes.into_inner())).unwrap();
        let samples =
            reader.into_samples::<i16>().map(|sample| f32::from(sample.unwrap()) / 32_768.0);
        (samples.collect(), concealed)
    }

    fn packets(count: usize) -> Vec<Frame> {
        opus(tone(), INTERVAL).unwrap().take(count).map(Frame::Content).collect()
    }

    /// The similarity of two sounds: 1 if they differ only in loudness.
    fn likeness(one: &[f32], other: &[f32]) -> f32 {
        let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        product(one, other) / (product(one, one) * product(other, other)).sqrt()
    }

    #[test]
    fn the_player_decodes_the_sound_and_conceals_a_lost_packet() {
        let tone: Vec<f32> = tone().take(250 * 960).collect();
        // The encoder looks 6.5 ms ahead (RFC 6716, section 2).
        let delay = 312;
        let (whole, concealed) = played(&packets(250));
        assert_eq!((whole.len(), concealed), (250 * 960, 0));
        assert!(likeness(&whole[delay..], &tone) > 0.99);
        let mut frames = packets(250);
        for number in [40, 90, 91, 200] {
            frames[number] = Frame::Lost(1);
        }
        let (holes, concealed) = played(&frames);
        assert_eq!((holes.len(), concealed), (250 * 960, 4));
        assert!(likeness(&holes[delay..], &tone) > 0.97);
        let place = 40 * 960..41 * 960;
        let silent = holes[place].iter().all(|sample| sample.abs() < 0.001);
        assert!(!silent, "a concealed packet is not silent");
    }

    #[test]
    fn a_full_file_is_valid_and_refuses_more() {
        let mut bytes = Cursor::new(Vec::new());
        let mut player = Player::new(&mut bytes, INTERVAL).unwrap();
        player.left = Some(2 * (2 * 960 + 500));
        for (frame, full) in packets(3).iter().zip([false, false, true]) {
            player.play(frame).unwrap();
            assert_eq!(player.is_full(), full);
        }
        // It would fit, but an earlier frame is missing.
        player.packet = 120;
        player.play(&Frame::Lost(1)).unwrap();
        player.finish().unwrap();
        assert_eq!(WavReader::new(Cursor::new(bytes.into_inner())).unwrap().len(), 2 * 960);
    }

    #[test]
    fn the_file_is_readable_before_the_call_ends() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut player =
            Player::new(std::io::BufWriter::new(file.reopen().unwrap()), INTERVAL).unwrap();
        player.play(&Frame::Lost(510)).unwrap();
        assert_eq!(WavReader::open(file.path()).unwrap().len(), 500 * 960);
    }

    #[test]
    fn invalid_opus_is_concealed_and_long_gaps_are_bounded_silence() {
        let (samples, concealed) =
            played(&[Frame::Content(vec![0xff; 7]), Frame::Content(Vec::new()), Frame::Lost(50)]);
        assert_eq!((samples.len(), concealed), (52 * 960, 7));
        assert!(samples[40 * 960..].iter().all(|sample| *sample == 0.0));
        assert_eq!(played(&[Frame::Lost(u64::MAX)]).0.len(), 3000 * 960);
    }
}
