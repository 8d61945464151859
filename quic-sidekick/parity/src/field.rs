//! GF(256) with the polynomial x⁸ + x⁴ + x³ + x² + 1 (RFC 5510, section 8.1; RFC 8681, section
//! 3.7.1).
//!
//! Addition is XOR. All tables are computed by the compiler.

/// The polynomial without x⁸.
pub(crate) const REDUCTION: u8 = 0x1d;

/// Twice an element.
const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 == 0 { 0 } else { REDUCTION }
}

/// The powers of 2, which generates the group. They stand twice, so that a sum of two logarithms
/// needs no reduction.
const POWERS: [u8; 510] = {
    let mut powers = [0; 510];
    let (mut power, mut exponent) = (1, 0);
    while exponent < 510 {
        powers[exponent] = power;
        power = double(power);
        exponent += 1;
    }
    powers
};

/// The exponent of each element but 0.
const LOGARITHMS: [u8; 256] = {
    let mut logarithms = [0; 256];
    let mut exponent = 0_u8;
    while exponent < 255 {
        logarithms[POWERS[exponent as usize] as usize] = exponent;
        exponent += 1;
    }
    logarithms
};

pub(crate) const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    POWERS[LOGARITHMS[a as usize] as usize + LOGARITHMS[b as usize] as usize]
}

/// The inverse. That of 0 is 0 here.
pub(crate) const fn invert(a: u8) -> u8 {
    if a == 0 { 0 } else { POWERS[255 - LOGARITHMS[a as usize] as usize] }
}

/// For each coefficient, its products with all low halves of a byte, then with all high halves.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) static HALVES: [[[u8; 16]; 2]; 256] = {
    let mut halves = [[[0; 16]; 2]; 256];
    let mut coefficient = 0_u8;
    loop {
        let mut half = 0_u8;
        while half < 16 {
            let products = &mut halves[coefficient as usize];
            products[0][half as usize] = multiply(coefficient, half);
            products[1][half as usize] = multiply(coefficient, half << 4);
            half += 1;
        }
        if coefficient == 255 {
            break halves;
        }
        coefficient += 1;
    }
};

/// For each coefficient, the multiplication as a matrix of bits, as `vgf2p8affineqb` takes it: the
/// lowest byte selects the bits of a factor that the highest bit of the product sums.
#[cfg(target_arch = "x86_64")]
pub(crate) static MATRICES: [u64; 256] = {
    let mut matrices = [0; 256];
    let mut coefficient = 0_u8;
    loop {
        let (mut from, mut column) = (0, coefficient);
        while from < 8 {
            let mut to = 0;
            while to < 8 {
                let bit = (column >> to & 1) as u64;
                matrices[coefficient as usize] |= bit << (8 * (7 - to) + from);
                to += 1;
            }
            column = double(column);
            from += 1;
        }
        if coefficient == 255 {
            break matrices;
        }
        coefficient += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    /// By shift and XOR, with a division by the polynomial of 9 bits at the end.
    fn schoolbook(a: u8, b: u8) -> u8 {
        let product = (0..8)
            .filter(|bit| b >> bit & 1 == 1)
            .fold(0_u16, |sum, bit| sum ^ u16::from(a) << bit);
        let reduced = (8..15).rev().fold(product, |rest, bit| {
            if rest >> bit & 1 == 1 { rest ^ 0x11d << (bit - 8) } else { rest }
        });
        u8::try_from(reduced).unwrap()
    }

    #[test]
    fn products_are_the_schoolbooks() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), schoolbook(a, b), "{a} times {b}");
            }
        }
    }

    #[test]
    fn every_element_but_0_has_its_inverse() {
        assert_eq!(invert(0), 0);
        for a in 1..=255 {
            assert_eq!(schoolbook(a, invert(a)), 1, "{a}");
        }
    }

    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[test]
    fn both_halves_sum_to_the_product() {
        for a in 0..=255_u8 {
            let [low, high] = HALVES[usize::from(a)];
            for b in 0..=255_u8 {
                let sum = low[usize::from(b & 15)] ^ high[usize::from(b >> 4)];
                assert_eq!(sum, schoolbook(a, b), "{a} times {b}");
            }
        }
    }
}
