//! PARITY, PROTECT, LIST and SYMBOL (SPEC.md, sections 4.2 and 4.3).

use super::cursor::{Reader, Writer};
use super::{BufferTooShort, ParseError, Part, SessionNumber, Words};
use sidekick_parity::{MAX_DATAGRAM_LEN, MAX_SYMBOL_LEN, MAX_WINDOW, MIN_DATAGRAM_LEN};
use std::time::{Duration, Instant};

/// The number of bytes before the identifiers in a PARITY.
pub const PARITY_HEADER_LEN: usize = 13;
/// The length of the longest PARITY in bytes.
pub const MAX_PARITY_LEN: usize = PARITY_HEADER_LEN + MAX_SYMBOL_LEN;
/// The length of the shortest repair symbol in bytes.
pub(super) const MIN_SYMBOL_LEN: usize = MAX_SYMBOL_LEN - MAX_DATAGRAM_LEN + MIN_DATAGRAM_LEN;
/// A share states the repair symbols for this many datagrams.
const SHARE_UNIT: u16 = 1024;
const MOST_IN_WINDOW: u8 = 64;
const _: () = assert!(MOST_IN_WINDOW as usize == MAX_WINDOW);

/// Parity of datagrams of the reverse flow: their identifiers, a repair symbol, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parity<'a> {
    /// The number that the sender chose.
    pub session: SessionNumber,
    /// The repair symbol's number. Without a repair symbol it is a [`ListTime`].
    pub number: u16,
    /// The position of the first datagram in the window.
    pub first: u32,
    /// The number of datagrams in the window, 1 to 64.
    pub count: u8,
    /// The identifiers of the window's last datagrams, at most `count`. If there is none, another
    /// PARITY has them.
    pub identifiers: Words<'a>,
    /// The repair symbol, 6 to 1474 bytes. If it is empty, another PARITY has it.
    pub symbol: &'a [u8],
}

/// When a list was due, by the proxy's clock: units of 16 microseconds, modulo 2^16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListTime(pub u16);

impl ListTime {
    /// The unit.
    pub const UNIT: Duration = Duration::from_micros(16);

    /// The time `now` of a clock that began at `begun`.
    #[must_use]
    pub fn since(begun: Instant, now: Instant) -> Self {
        let units = now.saturating_duration_since(begun).as_nanos() / Self::UNIT.as_nanos();
        #[allow(clippy::cast_possible_truncation, reason = "modulo 2^16")]
        Self(units as u16)
    }

    /// The units from another time of the same clock to this one.
    #[must_use]
    pub fn after(self, other: Self) -> u16 {
        self.0.wrapping_sub(other.0)
    }
}

/// A request for parity, for lists, or for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protect {
    /// The repair symbols for every 1024 datagrams, at most 1024; 0 for none.
    pub share: u16,
    /// The most datagrams in a window, 1 to 64.
    pub window: u8,
    /// The silence after which the proxy sends parity of datagrams that have none, in
    /// microseconds. Without parity it is the longest time that a datagram waits for its list.
    pub flush_us: u16,
    /// The most datagrams that pass before the proxy lists them; 0 if lists come with repair
    /// symbols alone.
    pub list: u8,
}

impl Protect {
    /// Asks for this share of repair symbols, 0 to 1, and for a flush after at most 65 ms.
    #[must_use]
    pub fn of(share: f64, window: u8, flush: Duration) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "from 0 to 1024")]
        #[allow(clippy::cast_sign_loss, reason = "from 0 to 1024")]
        let share = (share.clamp(0.0, 1.0) * f64::from(SHARE_UNIT)).round() as u16;
        let window = window.clamp(1, MOST_IN_WINDOW);
        let flush_us = u16::try_from(flush.as_micros()).unwrap_or(u16::MAX);
        Self { share, window, flush_us, list: 0 }
    }

    /// Asks for nothing any more.
    pub const NOTHING: Self = Self { share: 0, window: 1, flush_us: 0, list: 0 };

    /// Asks for lists without parity: one for each `every` datagrams, 1 to 64, and for each that
    /// has waited for `longest`, which is at most 65 ms. Each names the latest ones, at most
    /// `window`.
    #[must_use]
    pub fn lists(every: u8, window: u8, longest: Duration) -> Self {
        Self { list: every.clamp(1, MOST_IN_WINDOW), ..Self::of(0.0, window, longest) }
    }

    /// Whether it asks for anything.
    pub(crate) fn is_wanted(&self) -> bool {
        self.share > 0 || self.list > 0
    }

    /// The share that stands for one repair symbol for each datagram.
    pub const WHOLE: u16 = SHARE_UNIT;

    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Self, ParseError> {
        let (share, window, flush_us, list) = (r.u16()?, r.u8()?, r.u16()?, r.u8()?);
        if share > SHARE_UNIT {
            return Err(ParseError::Field("share"));
        }
        if !(1..=MAX_WINDOW).contains(&usize::from(window)) {
            return Err(ParseError::Field("window"));
        }
        Ok(Self { share, window, flush_us, list })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), BufferTooShort> {
        let Self { share, window, flush_us, list } = self;
        w.put_all(&[&share.to_be_bytes(), &[*window], &flush_us.to_be_bytes(), &[*list]])
    }
}

/// The order in which datagrams of the flow left, and how long the proxy may hold those behind one
/// that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentList<'a> {
    /// The position of the first datagram that it names.
    pub first: u32,
    /// How long datagrams behind a missing one wait, in microseconds.
    pub gap_us: u16,
    /// How long a datagram waits for a list that names it, in microseconds.
    pub wait_us: u16,
    /// The identifiers of datagrams at consecutive positions, at most 64.
    pub identifiers: Words<'a>,
}

impl<'a> SentList<'a> {
    pub(super) fn parse(r: &mut Reader<'a>) -> Result<Self, ParseError> {
        let (first, gap_us, wait_us) = (r.u32()?, r.u16()?, r.u16()?);
        // The seal authenticates the length.
        let identifiers = match r.rest().as_chunks::<4>() {
            (_, [_, ..]) => return Err(ParseError::Truncated),
            (identifiers, []) if identifiers.len() > MAX_WINDOW => {
                return Err(ParseError::TrailingBytes);
            }
            (identifiers, []) => Words::received(identifiers),
        };
        Ok(Self { first, gap_us, wait_us, identifiers })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), BufferTooShort> {
        let Self { first, gap_us, wait_us, identifiers } = self;
        w.put_all(&[&first.to_be_bytes(), &gap_us.to_be_bytes(), &wait_us.to_be_bytes()])?;
        w.words(identifiers.iter())
    }
}

/// A repair symbol of datagrams of the flow, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentSymbol<'a> {
    /// The repair symbol's number.
    pub number: u16,
    /// The position of the first datagram in the window.
    pub first: u32,
    /// The number of datagrams in the window, 1 to 64.
    pub count: u8,
    /// Which part of the repair symbol this is.
    pub part: Part,
    /// The repair symbol, 6 to 1024 bytes, or a part of it, 1 to 1024 bytes.
    pub symbol: &'a [u8],
}

impl<'a> SentSymbol<'a> {
    /// The longest repair symbol in bytes that is sent whole, and the longest part of one.
    pub const MAX_LEN: usize = 1024;

    pub(super) fn parse(r: &mut Reader<'a>) -> Result<Self, ParseError> {
        let (number, first) = (r.u16()?, r.u32()?);
        let [count, part] = r.array()?;
        if !(1..=MAX_WINDOW).contains(&usize::from(count)) {
            return Err(ParseError::Field("window"));
        }
        let part = Part::of(part)?;
        let symbol = r.rest();
        let least = if part == Part::Whole { MIN_SYMBOL_LEN } else { 1 };
        match symbol.len() {
            len if len < least => Err(ParseError::Truncated),
            len if len > Self::MAX_LEN => Err(ParseError::TrailingBytes),
            _ => Ok(Self { number, first, count, part, symbol }),
        }
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), BufferTooShort> {
        w.put_all(&[&self.number.to_be_bytes(), &self.first.to_be_bytes()])?;
        w.put_all(&[&[self.count, self.part.number()], self.symbol])
    }
}

impl<'a> Parity<'a> {
    pub(super) fn parse(session: SessionNumber, r: &mut Reader<'a>) -> Result<Self, ParseError> {
        let (number, first) = (r.u16()?, r.u32()?);
        let [count, listed] = r.array()?;
        if !(1..=MAX_WINDOW).contains(&usize::from(count)) {
            return Err(ParseError::Field("window"));
        }
        if listed > count {
            return Err(ParseError::Field("identifiers"));
        }
        let identifiers = Words::received(r.quads(listed.into())?);
        let symbol = r.rest();
        match symbol.len() {
            0 if listed > 0 => {}
            ..MIN_SYMBOL_LEN => return Err(ParseError::Truncated),
            len if len + 4 * usize::from(listed) > MAX_SYMBOL_LEN => {
                return Err(ParseError::TrailingBytes);
            }
            _ => {}
        }
        Ok(Self { session, number, first, count, identifiers, symbol })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), BufferTooShort> {
        let listed = u8::try_from(self.identifiers.len()).unwrap_or(u8::MAX);
        w.put(&self.number.to_be_bytes())?;
        w.put_all(&[&self.first.to_be_bytes(), &[self.count, listed]])?;
        w.words(self.identifiers.iter())?;
        w.put(self.symbol)
    }
}
