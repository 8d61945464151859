//! A WAV file as sound with one channel at 48 kHz.

use crate::session::CLOCK_RATE;
use anyhow::{Context as _, ensure};
use hound::{SampleFormat, WavReader, WavSpec};
use rubato::audioadapter_buffers::owned::InterleavedOwned;
use rubato::{Async, FixedAsync, Resampler, SincInterpolationParameters, WindowFunction};
use std::collections::VecDeque;
use std::fmt;
use std::io::Read;

/// The sample rates that can be converted, in hertz.
const RATES: std::ops::RangeInclusive<u32> = 8000..=192_000;
/// The samples of one conversion.
const CHUNK: usize = 960;

/// The sound of a file. Two channels become their mean. A truncated file is played to its end.
pub struct WavSource<R> {
    reader: WavReader<R>,
    spec: WavSpec,
    converter: Option<Converter>,
}

/// The conversion from the file's rate to ours.
struct Converter {
    resampler: Async<f32>,
    /// Converted samples.
    ready: VecDeque<f32>,
    /// The rest of the filter's delay, which is skipped.
    skip: usize,
    /// The silence to read after the file, until the filter's delay is over. More of it fills the
    /// last chunk.
    silence: usize,
}

impl<R: Read> fmt::Debug for WavSource<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WavSource").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl<R: Read> WavSource<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// The file cannot be played. The error names a remedy.
    pub fn new(file: R) -> anyhow::Result<Self> {
        let reader = WavReader::new(file).context(
            "it is not a WAV file of plain samples; make one with: ffmpeg -i FILE -ar 48000 -ac 1 call.wav",
        )?;
        let spec @ WavSpec { channels, sample_rate: rate, bits_per_sample: bits, .. } =
            reader.spec();
        ensure!(
            (1..=2).contains(&channels),
            "it has {channels} channels; mix them down with: ffmpeg -i FILE -ac 1 call.wav"
        );
        ensure!(
            RATES.contains(&rate),
            "it has {rate} samples a second; convert it with: ffmpeg -i FILE -ar 48000 call.wav"
        );
        ensure!(
            if spec.sample_format == SampleFormat::Float {
                bits == 32
            } else {
                (1..=32).contains(&bits)
            },
            "it has samples of {bits} bits; convert it with: ffmpeg -i FILE -c:a pcm_s16le call.wav"
        );
        ensure!(reader.len() > 0, "it has no samples");
        let converter = (rate != CLOCK_RATE).then(|| Converter::new(rate)).transpose()?;
        Ok(Self { reader, spec, converter })
    }

    /// The bytes of samples according to the header.
    #[must_use]
    pub fn promised_bytes(&self) -> u64 {
        u64::from(self.reader.len()) * u64::from(self.spec.bits_per_sample.div_ceil(8))
    }

    /// The next sample, the mean of all channels.
    fn sample(&mut self) -> Option<f32> {
        let mut sum = 0.0;
        for _ in 0..self.spec.channels {
            sum += match self.spec.sample_format {
                SampleFormat::Float => {
                    let sample = self.reader.samples::<f32>().next()?.ok()?;
                    if sample.is_finite() { sample } else { 0.0 }
                }
                SampleFormat::Int => {
                    let full = 2_f32.powi(i32::from(self.spec.bits_per_sample) - 1);
                    self.reader.samples::<i32>().next()?.ok()? as f32 / full
                }
            };
        }
        Some((sum / f32::from(self.spec.channels)).clamp(-1.0, 1.0))
    }
}

impl<R: Read> Iterator for WavSource<R> {
    type Item = f32;

    fn next(&mut self) -> Option<f32> {
        let Some(mut converter) = self.converter.take() else { return self.sample() };
        while converter.ready.is_empty() && converter.convert(|| self.sample()).is_some() {}
        let sample = converter.ready.pop_front();
        self.converter = Some(converter);
        sample
    }
}

impl Converter {
    fn new(rate: u32) -> anyhow::Result<Self> {
        let parameters = SincInterpolationParameters::new(128, WindowFunction::BlackmanHarris2);
        let ratio = f64::from(CLOCK_RATE) / f64::from(rate);
        let resampler = Async::new_sinc(ratio, 1.0, &parameters, CHUNK, 1, FixedAsync::Output)?;
        let skip = resampler.output_delay();
        #[allow(clippy::cast_possible_truncation, reason = "it is less than the filter's length")]
        #[allow(clippy::cast_sign_loss, reason = "it is positive")]
        let silence = (skip as f64 / ratio).ceil() as usize;
        Ok(Self { resampler, ready: VecDeque::new(), skip, silence })
    }

    /// Converts the next chunk. `None` at the end, or if that fails.
    fn convert(&mut self, sample: impl FnMut() -> Option<f32>) -> Option<()> {
        let needed = self.resampler.input_frames_next();
        let mut input: Vec<f32> = std::iter::from_fn(sample).take(needed).collect();
        let silence = self.silence.min(needed - input.len());
        self.silence -= silence;
        input.resize(input.len() + silence, 0.0);
        if input.is_empty() {
            return None;
        }
        input.resize(needed, 0.0);
        let input = InterleavedOwned::new_from(input, 1, needed).ok()?;
        let output = self.resampler.process(&input, None).ok()?.take_data();
        let skipped = self.skip.min(output.len());
        self.skip -= skipped;
        self.ready.extend(output.into_iter().skip(skipped));
        Some(())
    }
}

#[cfg(test)]
mod tests;
