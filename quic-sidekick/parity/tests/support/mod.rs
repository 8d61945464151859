//! The oracle: dense matrices over a whole history, and plain Gaussian elimination.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test uses a part of this")]

use std::sync::LazyLock;

/// A field.
pub trait Field: Copy + PartialEq {
    const ZERO: Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn inverse(self) -> Self;
}

/// The code's field, by shift and XOR.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Byte(pub u8);

fn schoolbook(a: u8, b: u8) -> u8 {
    let mut product = 0;
    let mut shifted = a;
    for bit in 0..8 {
        if b >> bit & 1 == 1 {
            product ^= shifted;
        }
        shifted = shifted << 1 ^ if shifted >> 7 == 1 { 0x1d } else { 0 };
    }
    product
}

static PRODUCTS: LazyLock<Vec<[u8; 256]>> = LazyLock::new(|| {
    (0..=255).map(|a| std::array::from_fn(|b| schoolbook(a, u8::try_from(b).unwrap()))).collect()
});

impl Field for Byte {
    const ZERO: Self = Self(0);

    fn minus(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }

    fn times(self, other: Self) -> Self {
        Self(PRODUCTS[usize::from(self.0)][usize::from(other.0)])
    }

    fn inverse(self) -> Self {
        Self((0..=255).find(|other| self.times(Self(*other)) == Self(1)).unwrap())
    }
}

/// A field so large that random coefficients are as good as any: that of the prime 2⁶¹ - 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Large(pub u64);

const PRIME: u64 = (1 << 61) - 1;

impl Field for Large {
    const ZERO: Self = Self(0);

    fn minus(self, other: Self) -> Self {
        Self((self.0 + PRIME - other.0) % PRIME)
    }

    fn times(self, other: Self) -> Self {
        let product = u128::from(self.0) * u128::from(other.0) % u128::from(PRIME);
        Self(u64::try_from(product).unwrap())
    }

    fn inverse(self) -> Self {
        let mut power = Self(1);
        for bit in (0..61).rev() {
            power = power.times(power);
            if (PRIME - 2) >> bit & 1 == 1 {
                power = power.times(self);
            }
        }
        power
    }
}

/// Brings a matrix into reduced row-echelon form over its first `columns`. Returns the column and
/// the row of each unknown that is determined.
pub fn eliminate<F: Field>(matrix: &mut [Vec<F>], columns: usize) -> Vec<(usize, usize)> {
    let mut rank = 0;
    let mut pivots = Vec::new();
    for column in 0..columns {
        let Some(row) = (rank..matrix.len()).find(|&row| matrix[row][column] != F::ZERO) else {
            continue;
        };
        matrix.swap(rank, row);
        let inverse = matrix[rank][column].inverse();
        matrix[rank].iter_mut().for_each(|entry| *entry = entry.times(inverse));
        let pivot = matrix[rank].clone();
        for (other, row) in matrix.iter_mut().enumerate() {
            let by = row[column];
            if other != rank && by != F::ZERO {
                for (entry, pivot) in row.iter_mut().zip(&pivot) {
                    *entry = entry.minus(by.times(*pivot));
                }
            }
        }
        pivots.push((column, rank));
        rank += 1;
    }
    let alone =
        |row: &[F]| row.iter().take(columns).filter(|entry| **entry != F::ZERO).count() == 1;
    pivots.retain(|&(_, row)| alone(&matrix[row]));
    pivots
}

/// Numbers from a seed (SplitMix64).
#[derive(Clone)]
pub struct Draw(pub u64);

impl Draw {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.word() % bound as u64).unwrap()
    }

    /// Once in a while.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// A datagram of a length up to `longest`, with an identifier that none other has.
    pub fn datagram(&mut self, identifier: u32, longest: usize) -> Vec<u8> {
        let len = if self.percent(40) { longest } else { 4 + self.below(longest - 3) };
        let mut datagram: Vec<u8> = (0..len).map(|_| self.word().to_be_bytes()[0]).collect();
        *datagram.last_chunk_mut().unwrap() = identifier.to_be_bytes();
        datagram
    }
}

/// The identifier of a number. An odd factor permutes them.
pub fn identifier_of(number: usize) -> u32 {
    u32::try_from(number).unwrap().wrapping_mul(0x9e37_79b1).wrapping_add(77)
}
