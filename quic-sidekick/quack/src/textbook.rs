//! The quACK as in a textbook: one power after the other, a division for each product, and every
//! packet of the log tested in turn.
//!
//! Sums must be below the modulus; otherwise the results are wrong.
//!
//! The crate's tests and benchmarks compare with it, and it shows how the method works. It does
//! only what the Sidekick paper describes (NSDI '24, section 4). So do not use it with untrusted
//! logs or sums: it does not distinguish ambiguous packets from missing ones, nor detect sums that
//! do not match the log.
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

use crate::field::Identifier;
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

/// Subtracts the sums of received packets from those of sent ones.
pub fn subtract<I: Identifier>(sent: &mut [I], received: &[I]) {
    for (sent, &received) in sent.iter_mut().zip(received) {
        *sent = add(*sent, neg(I::remainder(I::widen(received))));
    }
}

/// Finds the positions of the missing packets in the log, from the sums over them and their number,
/// which is at most the number of sums. `polynomial` is a buffer, and `missing` is overwritten.
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
