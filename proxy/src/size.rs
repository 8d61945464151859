//! A number of bytes, as the operator writes it.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use thiserror::Error;

/// The most that a [`Size`] can be: 1 TiB.
const MAX: u64 = 1 << 40;

/// A number of bytes, up to 1 TiB. As text it is a whole number, with the unit `K`, `M` or `G` for
/// 1024, 1024² or 1024³ bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

/// A text is no [`Size`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected a number of bytes like 64M, 512K or 1000000, up to 1024G")]
pub struct NotASize;

/// The units and how many bits they shift by, the largest first.
const UNITS: [(char, u32); 3] = [('G', 30), ('M', 20), ('K', 10)];

impl Size {
    /// This many mebibytes, or the most that a size can be.
    #[must_use]
    pub const fn mebibytes(number: u64) -> Self {
        let bytes = number.saturating_mul(1 << 20);
        Self(if bytes < MAX { bytes } else { MAX })
    }

    /// This many bytes, or the most that a size can be.
    #[must_use]
    pub fn bytes(number: u64) -> Self {
        Self(number.min(MAX))
    }

    /// The number of bytes.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = NotASize;

    fn from_str(text: &str) -> Result<Self, NotASize> {
        let unit =
            UNITS.into_iter().find(|(name, _)| text.ends_with([*name, name.to_ascii_lowercase()]));
        let (digits, shift) = match unit {
            Some((_, shift)) => (text.get(..text.len() - 1).unwrap_or_default(), shift),
            None => (text, 0),
        };
        // The standard library also accepts a sign.
        let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse::<u64>().ok().filter(|_| plain).ok_or(NotASize)?;
        let bytes = number.checked_mul(1 << shift).filter(|bytes| *bytes <= MAX);
        bytes.map(Self).ok_or(NotASize)
    }
}

impl fmt::Display for Size {
    /// With the largest unit that shows it exactly.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = |(_, shift): &(char, u32)| self.0 > 0 && self.0.trailing_zeros() >= *shift;
        match UNITS.into_iter().find(exact) {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn units_are_powers_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("1", 1),
            ("1000", 1000),
            ("1k", 1024),
            ("64M", 64 << 20),
            ("3G", 3 << 30),
            ("1024g", 1 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in
            ["", "M", "-1", "+1", "1.5M", "64 M", "64MB", "64T", "1025G", "99999999999999999999"]
        {
            assert_eq!(text.parse::<Size>(), Err(NotASize), "{text}");
        }
        assert_eq!(Size::mebibytes(64).to_string(), "64M");
        assert_eq!(Size(1536).to_string(), "1536");
        assert_eq!(Size(0).to_string(), "0");
    }

    proptest! {
        #[test]
        fn its_text_can_be_read(bytes in 0..=MAX, shift in 0_u32..40) {
            for size in [Size(bytes), Size(bytes >> shift << shift)] {
                prop_assert_eq!(size.to_string().parse(), Ok(size));
            }
        }
    }
}
