//! The objects of a page, and their sizes.
//!
//! The sizes follow the model of HTTP traffic in 3GPP2 C.R1002-0, which ns-3 also has. A document
//! and its objects have truncated lognormal sizes. One seed draws them, so all pages with the same
//! number of objects and bytes are equal.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A truncated lognormal distribution, in bytes.
struct Sizes {
    /// Mean of the logarithm.
    mean: f64,
    /// Standard deviation of the logarithm.
    deviation: f64,
    /// The least and the greatest size.
    range: (f64, f64),
}

const DOCUMENT: Sizes = Sizes { mean: 8.37, deviation: 1.37, range: (100.0, 2e6) };
const OBJECT: Sizes = Sizes { mean: 6.17, deviation: 2.36, range: (50.0, 2e6) };
/// The seed of the sizes, the same in all runs.
const SEED: u64 = 1;

impl Sizes {
    /// Draws until a size is within the range, as the model does.
    fn draw(&self, random: &mut ChaCha8Rng) -> f64 {
        loop {
            let size = (self.mean + self.deviation * normal(random)).exp();
            if (self.range.0..=self.range.1).contains(&size) {
                return size;
            }
        }
    }
}

/// A number of the standard normal distribution (Box and Muller 1958).
fn normal(random: &mut ChaCha8Rng) -> f64 {
    // In (0, 1].
    let mut uniform = || ((random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    let (radius, angle) = ((-2.0 * uniform().ln()).sqrt(), std::f64::consts::TAU * uniform());
    radius * angle.cos()
}

/// The sizes of a page's document and its objects, in the order of the requests. Their sum is
/// `bytes`, and each has at least one byte.
pub(super) fn sizes(bytes: u64, objects: usize) -> Vec<u64> {
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut drawn = vec![DOCUMENT.draw(&mut random)];
    drawn.extend((0..objects).map(|_| OBJECT.draw(&mut random)));
    let scale = bytes as f64 / drawn.iter().sum::<f64>();
    let mut left = bytes;
    let mut sizes: Vec<u64> = drawn
        .iter()
        .map(|size| {
            #[allow(clippy::cast_possible_truncation, reason = "the cast saturates")]
            let size = ((size * scale) as u64).clamp(1, left.max(1));
            left = left.saturating_sub(size);
            size
        })
        .collect();
    // The remainder of the rounding.
    if let Some(largest) = sizes.iter_mut().max() {
        *largest += left;
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_all_its_bytes_and_objects_of_very_different_sizes() {
        let mut page = sizes(2_000_000, 70);
        assert_eq!((page.len(), page.iter().sum::<u64>()), (71, 2_000_000));
        assert_eq!(page, sizes(2_000_000, 70));
        page.sort_unstable();
        // A few large objects have most of the bytes.
        assert!(page[60..].iter().sum::<u64>() > 1_000_000 && page[35] < 20_000, "{page:?}");
        assert_eq!(sizes(100_000, 0), [100_000]);
        assert!(sizes(10, 70).iter().all(|size| *size >= 1));
    }

    #[test]
    fn the_draws_have_the_moments_of_the_model() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        let normals: Vec<f64> = (0..20_000).map(|_| normal(&mut random)).collect();
        let count = normals.len() as f64;
        let mean = normals.iter().sum::<f64>() / count;
        let variance = normals.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / count;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        // The mean of the truncated lognormal distribution, from C.R1002-0.
        let mean = (0..200_000).map(|_| DOCUMENT.draw(&mut random)).sum::<f64>() / 200_000.0;
        assert!((mean / 10_710.0 - 1.0).abs() < 0.05, "{mean}");
    }
}
