//! The loop of all vector instruction sets.

use super::Term;

/// Vectors of bytes.
pub(super) trait Simd: Copy {
    type Vector: Copy;
    /// The form of a coefficient that multiplies a vector.
    type Factor: Copy;
    /// Bytes in a vector.
    const WIDTH: usize;

    /// The multiplication by a coefficient.
    fn factor(self, coefficient: u8) -> Self::Factor;

    /// The first bytes, padded with 0.
    fn load(self, bytes: &[u8]) -> Self::Vector;

    /// Writes as much of the vector as there is room for.
    fn store(self, bytes: &mut [u8], vector: Self::Vector);

    /// `sum`, plus `bytes` multiplied by the coefficient.
    fn add_product(self, sum: Self::Vector, bytes: Self::Vector, by: Self::Factor) -> Self::Vector;
}

/// The first `N` bytes. If there are fewer, they are in `room`, which has zeros.
#[inline(always)]
pub(super) fn padded<'a, const N: usize>(bytes: &'a [u8], room: &'a mut [u8; N]) -> &'a [u8; N] {
    match bytes.first_chunk() {
        Some(whole) => whole,
        None => {
            room[..bytes.len()].copy_from_slice(bytes);
            room
        }
    }
}

/// Adds to `sum` the products, which are as long.
#[inline(always)]
pub(super) fn add<S: Simd, const N: usize>(simd: S, sum: &mut [u8], terms: [Term<'_>; N]) {
    // Loops, since the compiler does not inline closures into code for other instructions.
    let mut factors = [simd.factor(0); N];
    let mut rests = [&[][..]; N];
    for index in 0..N {
        factors[index] = simd.factor(terms[index].coefficient);
        rests[index] = terms[index].bytes;
    }
    for sum in sum.chunks_mut(S::WIDTH) {
        let mut total = simd.load(sum);
        for index in 0..N {
            let Some((bytes, after)) = rests[index].split_at_checked(sum.len()) else { return };
            total = simd.add_product(total, simd.load(bytes), factors[index]);
            rests[index] = after;
        }
        simd.store(sum, total);
    }
}
