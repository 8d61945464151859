//! RELAY, and what LINKED says of them (SPEC.md, section 4.3).

use super::cursor::{Reader, Writer};
use super::{BufferTooShort, Cookie, ParseError, Part};

/// A datagram of the flow that the proxy is to put on its way, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relay<'a> {
    /// Numbers the session's relayed datagrams.
    pub number: u16,
    /// Which part of the datagram this is.
    pub part: Part,
    /// The traffic class with which the datagram leaves: DSCP and ECN.
    pub class: u8,
    /// How many milliseconds the datagram waits for those with lower numbers.
    pub wait_ms: u8,
    /// The datagram, or a part of it, 1 to 1024 bytes.
    pub datagram: &'a [u8],
}

impl<'a> Relay<'a> {
    /// The longest datagram in bytes that is relayed whole, and the longest part of one.
    pub const MAX_LEN: usize = 1024;

    pub(super) fn parse(r: &mut Reader<'a>) -> Result<Self, ParseError> {
        let number = r.u16()?;
        let [part, class, wait_ms] = r.array()?;
        let part = Part::of(part)?;
        let datagram = r.rest();
        match datagram.len() {
            0 => Err(ParseError::Truncated),
            len if len > Self::MAX_LEN => Err(ParseError::TrailingBytes),
            _ => Ok(Self { number, part, class, wait_ms, datagram }),
        }
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), BufferTooShort> {
        let Self { number, part, class, wait_ms, datagram } = self;
        w.put_all(&[&number.to_be_bytes(), &[part.number(), *class, *wait_ms], datagram])
    }
}

/// The answer to a LINK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linked {
    /// A proof for the next one.
    Proof(Cookie),
    /// It had a proof, and these RELAYs of the session arrived.
    InForce(Relayed),
}

impl Linked {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Self, ParseError> {
        match Cookie(r.array()?) {
            Cookie::NONE => Ok(Self::InForce(Relayed { newest: r.u16()?, arrived: r.array()? })),
            cookie => Ok(Self::Proof(cookie)),
        }
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), BufferTooShort> {
        match self {
            Self::Proof(cookie) => w.put(&cookie.0),
            Self::InForce(Relayed { newest, arrived }) => {
                w.put_all(&[&Cookie::NONE.0, &newest.to_be_bytes(), arrived])
            }
        }
    }
}

/// Which of the latest relayed datagrams arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// The newest number that arrived.
    pub newest: u16,
    /// For each of the latest 512 numbers a bit, at the number modulo 512. All are 0 before the
    /// first.
    pub arrived: [u8; Self::LEN],
}

impl Default for Relayed {
    fn default() -> Self {
        Self { newest: 0, arrived: [0; Self::LEN] }
    }
}

impl Relayed {
    /// How many numbers are known.
    pub(crate) const SPAN: u16 = 512;
    const LEN: usize = Self::SPAN as usize / 8;

    /// Notes that a datagram arrived. Returns false if it had, or is too old to know.
    pub(crate) fn note(&mut self, number: u16) -> bool {
        let ahead = if self.is_empty() { 1 } else { self.ahead(number) };
        if ahead > 0 {
            for behind in 0..ahead.unsigned_abs().min(Self::SPAN) {
                self.set(number.wrapping_sub(behind), false);
            }
            self.newest = number;
        }
        let is_new = self.has(number) == Some(false) || ahead > 0;
        self.set(number, self.get(number) || is_new);
        is_new
    }

    /// Whether a datagram arrived, if it is no newer than the newest, and not too old to know.
    pub(crate) fn has(&self, number: u16) -> Option<bool> {
        let is_known = (0..Self::SPAN).contains(&self.newest.wrapping_sub(number));
        (is_known && !self.is_empty()).then(|| self.get(number))
    }

    /// Whether none arrived.
    pub(crate) fn is_empty(&self) -> bool {
        self.arrived.iter().all(|byte| *byte == 0)
    }

    /// By how much a number is newer than the newest.
    pub(crate) fn ahead(&self, number: u16) -> i16 {
        number.wrapping_sub(self.newest).cast_signed()
    }

    fn get(&self, number: u16) -> bool {
        let (at, bit) = place(number);
        self.arrived.get(at).is_some_and(|byte| byte & bit != 0)
    }

    fn set(&mut self, number: u16, arrived: bool) {
        let (at, bit) = place(number);
        if let Some(byte) = self.arrived.get_mut(at) {
            *byte = if arrived { *byte | bit } else { *byte & !bit };
        }
    }
}

/// The byte of a number, and its bit there.
fn place(number: u16) -> (usize, u8) {
    let at = number % Relayed::SPAN;
    (usize::from(at / 8), 1 << (at % 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Compares with the set of all that arrived.
        #[test]
        fn the_latest_numbers_are_known(
            begin in any::<u16>(),
            steps in prop::collection::vec(prop_oneof![4 => -6_i64..8, 1 => -700_i64..700], 1..100),
        ) {
            let number = |at: i64| u16::try_from(at.rem_euclid(1 << 16)).unwrap();
            let (mut relayed, mut all) = (Relayed::default(), BTreeSet::new());
            let mut at = i64::from(begin);
            for step in steps {
                at += step;
                let newest = all.last().copied().unwrap_or(at);
                let is_known = all.contains(&at) || newest - at >= 512;
                prop_assert_eq!(relayed.note(number(at)), !is_known);
                all.insert(at);
                let newest = *all.last().unwrap();
                for at in newest - 600..newest + 600 {
                    let known = (newest - 511..=newest).contains(&at).then(|| all.contains(&at));
                    prop_assert_eq!(relayed.has(number(at)), known);
                }
            }
        }
    }
}
