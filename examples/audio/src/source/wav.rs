//! A WAV file as sound of one channel at 48 kHz.

use super::Pcm;
use crate::session::CLOCK_RATE;
use hound::{SampleFormat, WavReader, WavSpec};
use rubato::audioadapter_buffers::owned::InterleavedOwned;
use rubato::{Async, FixedAsync, Indexing, Resampler, SincInterpolationParameters, WindowFunction};
use std::collections::VecDeque;
use std::fmt;
use std::io::Read;
use thiserror::Error;

/// Sample rates that are converted, in hertz.
const RATES: std::ops::RangeInclusive<u32> = 8000..=192_000;
/// Samples that come out of a conversion at a time.
const CHUNK: usize = 960;

/// Why a file is not played.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WavError {
    /// It is none, or of a kind that is not read.
    #[error(
        "it is no WAV file of plain samples; make one with: ffmpeg -i FILE -ar 48000 -ac 1 call.wav"
    )]
    Unreadable(#[from] hound::Error),
    /// Nobody knows how to mix so many.
    #[error("it has {0} channels; mix them down with: ffmpeg -i FILE -ac 1 call.wav")]
    Channels(u16),
    /// It is out of range.
    #[error("it has {0} samples a second; convert it with: ffmpeg -i FILE -ar 48000 call.wav")]
    Rate(u32),
    /// Its samples are of a size that is not read.
    #[error("it has samples of {0} bits; convert it with: ffmpeg -i FILE -c:a pcm_s16le call.wav")]
    Bits(u16),
    /// There is nothing in it.
    #[error("it has no samples")]
    Empty,
}

/// A file that is being read. Two channels become their mean. A file that is cut short is played as
/// far as it goes.
pub struct WavSource<R> {
    reader: WavReader<R>,
    spec: WavSpec,
    converter: Option<Converter>,
}

/// From the file's rate to ours.
struct Converter {
    resampler: Async<f32>,
    /// Converted and not yet taken.
    ready: VecDeque<f32>,
    /// At the beginning there is the filter's delay, which is left out.
    skip: usize,
    /// Samples that came in, and that have gone out or been made ready.
    taken: u64,
    given: u64,
    ended: bool,
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
    /// [`WavError`] says what to do about it.
    pub fn new(file: R) -> Result<Self, WavError> {
        let reader = WavReader::new(file)?;
        let spec = reader.spec();
        if !(1..=2).contains(&spec.channels) {
            return Err(WavError::Channels(spec.channels));
        }
        if !RATES.contains(&spec.sample_rate) {
            return Err(WavError::Rate(spec.sample_rate));
        }
        let bits = match spec.sample_format {
            SampleFormat::Float => 32..=32,
            SampleFormat::Int => 1..=32,
        };
        if !bits.contains(&spec.bits_per_sample) {
            return Err(WavError::Bits(spec.bits_per_sample));
        }
        if reader.len() == 0 {
            return Err(WavError::Empty);
        }
        let converter = (spec.sample_rate != CLOCK_RATE).then(|| Converter::new(spec.sample_rate));
        Ok(Self { reader, spec, converter: converter.flatten() })
    }

    /// Bytes of samples that the header promises.
    #[must_use]
    pub fn promised_bytes(&self) -> u64 {
        u64::from(self.reader.len()) * u64::from(self.spec.bits_per_sample.div_ceil(8))
    }

    /// The next sample, of all channels.
    fn sample(&mut self) -> Option<f32> {
        let mut sum = 0.0;
        for _ in 0..self.spec.channels {
            sum += match self.spec.sample_format {
                SampleFormat::Float => {
                    // What is no number is not heard.
                    Some(self.reader.samples::<f32>().next()?.ok()?)
                        .filter(|v| v.is_finite())
                        .unwrap_or(0.0)
                }
                #[allow(clippy::cast_precision_loss, reason = "24 bits are more than is heard")]
                SampleFormat::Int => {
                    let full = 2_f32.powi(i32::from(self.spec.bits_per_sample) - 1);
                    self.reader.samples::<i32>().next()?.ok()? as f32 / full
                }
            };
        }
        Some((sum / f32::from(self.spec.channels)).clamp(-1.0, 1.0))
    }
}

impl<R: Read + Send> Pcm for WavSource<R> {
    fn fill(&mut self, out: &mut [f32]) -> usize {
        let Some(mut converter) = self.converter.take() else {
            let samples = std::iter::from_fn(|| self.sample());
            return out.iter_mut().zip(samples).map(|(out, sample)| *out = sample).count();
        };
        while converter.ready.len() < out.len() && !converter.is_done() {
            if !converter.convert(|| self.sample()) {
                break;
            }
        }
        let count = out.len().min(converter.ready.len());
        for (out, sample) in out.iter_mut().zip(converter.ready.drain(..count)) {
            *out = sample;
        }
        self.converter = Some(converter);
        count
    }
}

impl Converter {
    fn new(rate: u32) -> Option<Self> {
        let parameters = SincInterpolationParameters::new(128, WindowFunction::BlackmanHarris2);
        let ratio = f64::from(CLOCK_RATE) / f64::from(rate);
        let resampler =
            Async::new_sinc(ratio, 1.0, &parameters, CHUNK, 1, FixedAsync::Output).ok()?;
        let skip = resampler.output_delay();
        Some(Self { resampler, ready: VecDeque::new(), skip, taken: 0, given: 0, ended: false })
    }

    /// Whether as much has come out as has gone in.
    fn is_done(&self) -> bool {
        #[allow(clippy::cast_precision_loss, reason = "no file has 2^52 samples")]
        let due = self.taken as f64 * self.resampler.resample_ratio();
        #[allow(clippy::cast_precision_loss, reason = "likewise")]
        let given = self.given as f64;
        self.ended && given >= due
    }

    /// Converts the next chunk. False if that does not work.
    fn convert(&mut self, mut sample: impl FnMut() -> Option<f32>) -> bool {
        let needed = self.resampler.input_frames_next();
        let mut input: Vec<f32> = std::iter::from_fn(&mut sample).take(needed).collect();
        let came = input.len();
        self.ended |= came < needed;
        self.taken += u64::try_from(came).unwrap_or(0);
        input.resize(needed, 0.0);
        let Ok(input) = InterleavedOwned::new_from(input, 1, needed) else { return false };
        let indexing = Indexing::new().partial_len(came);
        let Ok(output) = self.resampler.process(&input, Some(&indexing)) else { return false };
        let output = output.take_data();
        let skipped = self.skip.min(output.len());
        self.skip -= skipped;
        self.given += u64::try_from(output.len() - skipped).unwrap_or(0);
        self.ready.extend(output.into_iter().skip(skipped));
        if self.is_done() {
            #[allow(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "as above"
            )]
            let due = (self.taken as f64 * self.resampler.resample_ratio()) as u64;
            let surplus = usize::try_from(self.given.saturating_sub(due)).unwrap_or(0);
            self.ready.truncate(self.ready.len().saturating_sub(surplus));
        }
        true
    }
}

#[cfg(test)]
mod tests;
