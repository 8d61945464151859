use super::*;
use hound::WavWriter;
use proptest::prelude::*;
use std::f64::consts::TAU;
use std::io::Cursor;

/// A second of a sine at 440 Hz on every channel.
fn sine(rate: u32, channels: u16, bits: u16, format: SampleFormat) -> Vec<u8> {
    let spec =
        WavSpec { channels, sample_rate: rate, bits_per_sample: bits, sample_format: format };
    let mut bytes = Cursor::new(Vec::new());
    let mut writer = WavWriter::new(&mut bytes, spec).unwrap();
    for number in 0..rate {
        let value = (f64::from(number) / f64::from(rate) * 440.0 * TAU).sin() / 2.0;
        for _ in 0..channels {
            #[allow(clippy::cast_possible_truncation, reason = "it is less than one")]
            match format {
                SampleFormat::Float => writer.write_sample(value as f32).unwrap(),
                SampleFormat::Int => {
                    writer
                        .write_sample((value * 2_f64.powi(i32::from(bits) - 1)).round() as i32)
                        .unwrap();
                }
            }
        }
    }
    writer.finalize().unwrap();
    bytes.into_inner()
}

fn all(bytes: &[u8]) -> Vec<f32> {
    WavSource::new(bytes).unwrap().collect()
}

#[test]
fn every_rate_and_format_gives_the_same_sound() {
    let files = [
        (48_000, 1, 16, SampleFormat::Int),
        (48_000, 2, 24, SampleFormat::Int),
        (44_100, 2, 16, SampleFormat::Int),
        (44_100, 1, 32, SampleFormat::Float),
        (8000, 1, 8, SampleFormat::Int),
        (16_000, 1, 16, SampleFormat::Int),
        (96_000, 2, 32, SampleFormat::Int),
    ];
    for (rate, channels, bits, format) in files {
        let samples = all(&sine(rate, channels, bits, format));
        let most = if rate == CLOCK_RATE { 48_000 } else { 48_000 + CHUNK };
        assert!((48_000..=most).contains(&samples.len()), "{rate}: {}", samples.len());
        // The filter needs some samples at either end, and its delay is known to one of them, by
        // which the sine climbs 0.0288 at most. Eight bits are coarse by 0.004.
        for (number, sample) in samples.iter().enumerate().skip(1000).take(46_000) {
            let wanted = (number as f64 / 48_000.0 * 440.0 * TAU).sin() / 2.0;
            assert!(
                (f64::from(*sample) - wanted).abs() < 0.033,
                "{rate}, {bits} bits, {number}: {sample}, not {wanted}"
            );
        }
    }
}

#[test]
fn the_error_for_an_unplayable_file_names_a_remedy() {
    let of = |bytes: &[u8]| WavSource::new(bytes).unwrap_err().to_string();
    assert!(of(b"ID3 is no WAV").contains("ffmpeg -i FILE"));
    assert!(of(&sine(48_000, 6, 16, SampleFormat::Int)).contains("6 channels; mix them down"));
    assert!(of(&sine(4000, 1, 16, SampleFormat::Int)).contains("4000 samples a second; convert"));
    // As ffmpeg's pcm_f64le: format 3, 48,000 samples a second of 8 bytes each.
    let mut long =
        [&b"RIFF\x34\0\0\0WAVEfmt \x10\0\0\0\x03\0\x01\0"[..], &48_000_u32.to_le_bytes()].concat();
    long.extend([&384_000_u32.to_le_bytes()[..], b"\x08\0\x40\0data\x10\0\0\0", &[0; 16]].concat());
    assert!(of(&long).contains("ffmpeg -i FILE"), "{}", of(&long));
}

#[test]
fn a_truncated_file_is_played_to_its_end() {
    let whole = sine(48_000, 1, 16, SampleFormat::Int);
    assert_eq!(all(&whole[..whole.len() / 2]).len(), (whole.len() / 2 - 44) / 2);
    assert_eq!(WavSource::new(&whole[..]).unwrap().promised_bytes(), 96_000);
}

#[test]
fn a_sample_that_is_not_a_number_is_silent() {
    let mut bytes = sine(48_000, 1, 32, SampleFormat::Float);
    let end = bytes.len();
    bytes[end - 4000..end - 3996].copy_from_slice(&f32::NAN.to_le_bytes());
    let samples = all(&bytes);
    assert_eq!((samples.len(), samples[47_000]), (48_000, 0.0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_bytes_are_read(at in 0..60_usize, value in any::<u8>(), len in 0..2000_usize) {
        let mut bytes = sine(8000, 1, 16, SampleFormat::Int);
        bytes.truncate(len.max(at + 1));
        bytes[at] = value;
        if let Ok(source) = WavSource::new(&bytes[..]) {
            prop_assert!(source.take(96_000).all(|sample| sample.abs() <= 1.1));
        }
    }
}
