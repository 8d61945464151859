//! A token-bucket policer, which drops what exceeds its rate and delays nothing.

use std::time::Duration;

use crate::units::BitRate;

/// Bits of a byte, times nanoseconds of a second. Tokens in this unit lose nothing to rounding.
const PER_BYTE: u128 = 8_000_000_000;

/// The state of a policer. Its bucket is full at first.
#[derive(Debug, Default)]
pub(super) struct Policer {
    /// What the bucket lacks, in bits times nanoseconds a second.
    lacks: u128,
    /// When the bucket lacked this.
    at: Duration,
}

impl Policer {
    /// Whether a frame may pass at `now`. If so, it takes its tokens from a bucket of `burst_bytes`
    /// that fills at `rate`.
    pub(super) fn admits(
        &mut self,
        now: Duration,
        bytes: u64,
        rate: BitRate,
        burst_bytes: u64,
    ) -> bool {
        let since = now.saturating_sub(self.at).as_nanos();
        let filled = since.saturating_mul(rate.bits_per_second().into());
        self.lacks = self.lacks.saturating_sub(filled);
        self.at = now;
        let lacks = self.lacks + u128::from(bytes) * PER_BYTE;
        let admits = lacks <= u128::from(burst_bytes) * PER_BYTE;
        if admits {
            self.lacks = lacks;
        }
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        // 8 Mbit/s are 1000 bytes a millisecond.
        let rate = BitRate::from_mbit(8.0).unwrap();
        let mut policer = Policer::default();
        let mut admits = |us| policer.admits(Duration::from_micros(us), 1000, rate, 3000);
        assert_eq!(
            [0, 0, 0, 0, 999, 1000, 1001].map(&mut admits),
            [true, true, true, false, false, true, false]
        );
        // A long silence fills the bucket, and no more.
        assert_eq!([90_000; 4].map(&mut admits), [true, true, true, false]);
    }

    proptest! {
        /// A bucket of b bytes that fills at r admits a frame if since no earlier frame, with it,
        /// more than b + r t passes.
        #[test]
        fn it_agrees_with_the_definition(
            frames in prop::collection::vec((0_u64..3_000_000, 40_u64..1600), 1..200),
            bits in 500_000_u64..50_000_000,
            burst in 1514_u64..10_000,
        ) {
            let rate = BitRate::from_bits_per_second(bits).unwrap();
            let mut policer = Policer::default();
            let (mut now, mut passed) = (0, Vec::new());
            for (gap, bytes) in frames {
                now += gap;
                passed.push((now, bytes));
                let conforms = (0..passed.len()).all(|first| {
                    let bytes: u64 = passed[first..].iter().map(|&(_, bytes)| bytes).sum();
                    let over = u128::from(bytes.saturating_sub(burst)) * 8_000_000_000;
                    over <= u128::from(bits) * u128::from(now - passed[first].0)
                });
                let admits = policer.admits(Duration::from_nanos(now), bytes, rate, burst);
                prop_assert_eq!(admits, conforms);
                if !conforms {
                    passed.pop();
                }
            }
        }
    }
}
