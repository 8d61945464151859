//! The quACK as a textbook has it: one power after the other, each product brought back by a
//! division, every packet of the log tried in turn.
//!
//! Sums have to be below the modulus; of others nothing right comes.
//!
//! It is what the rest of the crate is tested against and measured against, and a place to read how
//! it works. It does as little as the publication of Sidekick says (NSDI '24, section 4) and so is
//! not to be used with logs or sums that somebody else made: it neither tells ambiguous packets
//! from missing ones nor notices that the sums do not belong to the log.
//!
//! ```
//! use sidekick_quack::textbook;
//!
//! let log = [0x8c31_02f7, 0x1d5e_77a0, 0xe402_9b1c, 0x05f9_6623];
//! let (mut sent, mut seen) = ([0_u32; 20], [0_u32; 20]);
//! log.iter().for_each(|&identifier| textbook::insert(&mut sent, identifier));
//! log.iter().skip(1).for_each(|&identifier| textbook::insert(&mut seen, identifier));
//!
//! textbook::subtract(&mut sent, &seen);
//! let (mut polynomial, mut missing) = (Vec::new(), Vec::new());
//! textbook::decode(&sent, 1, &log, &mut polynomial, &mut missing);
//! assert_eq!(missing, [0]);
//! ```

use crate::identifier::Identifier;
use alloc::vec::Vec;

/// `a + b`
fn add<I: Identifier>(a: I, b: I) -> I {
    let sum = I::widen(a) + I::widen(b);
    if sum >= I::widen(I::MODULUS) { I::narrow(sum - I::widen(I::MODULUS)) } else { I::narrow(sum) }
}

/// `a · b`
fn mul<I: Identifier>(a: I, b: I) -> I {
    I::remainder(I::widen(a) * I::widen(b))
}

/// `-a`
fn neg<I: Identifier>(a: I) -> I {
    if a == I::ZERO { a } else { I::narrow(I::widen(I::MODULUS) - I::widen(a)) }
}

/// `1 / a`, which is `a` to the power of `p - 2`.
fn inverse<I: Identifier>(a: I) -> I {
    let mut exponent: u64 = I::MODULUS.into() - 2;
    let (mut result, mut square) = (I::ONE, a);
    while exponent > 0 {
        if exponent % 2 == 1 {
            result = mul(result, square);
        }
        square = mul(square, square);
        exponent /= 2;
    }
    result
}

/// Adds the 1st, 2nd, … powers of an identifier to the sums.
pub fn insert<I: Identifier>(sums: &mut [I], identifier: I) {
    let base = I::remainder(I::widen(identifier));
    let mut power = base;
    for sum in sums {
        *sum = add(*sum, power);
        power = mul(power, base);
    }
}

/// Takes the sums of what was received out of those of what was sent.
pub fn subtract<I: Identifier>(sent: &mut [I], received: &[I]) {
    for (sent, &received) in sent.iter_mut().zip(received) {
        *sent = add(*sent, neg(I::remainder(I::widen(received))));
    }
}

/// Finds where in the log the missing packets stand, given the sums over them and how many they
/// are: at most as many as there are sums. `polynomial` is a buffer, and `missing` is overwritten.
pub fn decode<I: Identifier>(
    sums: &[I],
    count: usize,
    log: &[I],
    polynomial: &mut Vec<I>,
    missing: &mut Vec<usize>,
) {
    polynomial.clear();
    missing.clear();
    // Newton's identities: k·c_k = -(s_k + c₁·s_(k-1) + … + c_(k-1)·s₁).
    let mut number = I::ZERO;
    for k in 0..count.min(sums.len()) {
        number = add(number, I::ONE);
        let earlier = polynomial.iter().zip(sums.iter().take(k).rev());
        let total = earlier.fold(I::ZERO, |total, (&c, &s)| add(total, mul(c, s)));
        let total = sums.get(k).map_or(total, |&sum| add(total, sum));
        polynomial.push(mul(neg(total), inverse(number)));
    }
    for (position, &identifier) in log.iter().enumerate() {
        let x = I::remainder(I::widen(identifier));
        // Horner's rule.
        let value =
            polynomial.iter().fold(I::ONE, |value, &coefficient| add(mul(value, x), coefficient));
        if value == I::ZERO && count > 0 {
            missing.push(position);
        }
    }
}
