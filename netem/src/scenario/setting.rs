//! The type of a setting, and values that several settings share.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::units::{BitRate, Percent};

/// The values that a setting accepts.
pub(super) struct Values<T> {
    /// The values in words.
    pub(super) takes: &'static str,
    /// Parses a value. `None` if it is invalid.
    pub(super) read: fn(&str) -> Option<T>,
}

/// A setting of a section. A `T` holds the section's values.
pub(super) struct Setting<T> {
    /// Its name within the section.
    pub(super) key: &'static str,
    /// The values that it accepts, in words.
    pub(super) takes: &'static str,
    pub(super) meaning: &'static str,
    /// Parses and stores a value. Returns `None` and stores nothing if the value is invalid.
    pub(super) store: fn(&mut T, &str) -> Option<()>,
}

/// Defines a constant with the settings of a section. Each row has the key, the accepted
/// [`Values`], the meaning, and the field, whose type is that of the values or an `Option` of it.
macro_rules! settings {
    ($name:ident: $section:ty; $($key:expr, $values:expr, $meaning:expr => $($field:ident).+;)+) => {
        /// The settings of the section.
        pub(in crate::scenario) const $name: &[$crate::scenario::setting::Setting<$section>] =
            &[$($crate::scenario::setting::Setting {
                key: $key,
                takes: $values.takes,
                meaning: $meaning,
                store: |section, value| {
                    section.$($field).+ = ($values.read)(value)?.into();
                    Some(())
                },
            }),+];
    };
}

/// Defines a section: a struct, its defaults, and its settings. Each row has a field, its key if
/// that differs from its name, its type, its default, the accepted [`Values`], and the meaning.
macro_rules! section {
    ($(#[$about:meta])* $section:ident, $name:ident; $(
        $(#[$more:meta])*
        $field:ident $(($key:literal))?: $type:ty = $usual:expr, $values:expr, $meaning:literal;
    )+) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $section {
            $(
                #[doc = concat!($meaning, ".")]
                $(#[$more])*
                pub $field: $type,
            )+
        }

        impl Default for $section {
            fn default() -> Self {
                Self { $($field: $usual),+ }
            }
        }

        impl $section {
            /// The keys of the settings that do not have their defaults.
            pub(in crate::scenario) fn changed(&self) -> Vec<&'static str> {
                let usual = Self::default();
                let all = [$((
                    $crate::scenario::setting::key!($field $($key)?),
                    self.$field != usual.$field,
                )),+];
                all.into_iter().filter_map(|(key, changed)| changed.then_some(key)).collect()
            }
        }

        $crate::scenario::setting::settings! { $name: $section; $(
            $crate::scenario::setting::key!($field $($key)?), $values, $meaning => $field;
        )+ }
    };
}

/// The key of a setting: the name of its field, or another one.
macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}

/// Names as a sentence has them: `a, b or c`.
macro_rules! listed {
    ($last:literal) => { $last };
    ($one:literal $last:literal) => { concat!($one, " or ", $last) };
    ($first:literal $($rest:literal)+) => {
        concat!($first, ", ", $crate::scenario::setting::listed!($($rest)+))
    };
}

/// Whole numbers within a range, with their unit.
macro_rules! numbers {
    ($type:ty, $unit:literal, $least:literal..=$most:literal) => {
        $crate::scenario::setting::Values::<$type> {
            takes: concat!($unit, " from ", $least, " to ", $most),
            read: |value| $crate::scenario::setting::whole(value, $least..=$most),
        }
    };
}

/// Defines an enum whose variants have names in scenarios, on command lines and in reports.
macro_rules! named {
    ($(#[$about:meta])* pub enum $type:ident {
        $($(#[$meaning:meta])* $variant:ident = $name:literal,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $type {
            $($(#[$meaning])* $variant,)+
        }

        impl $type {
            /// The name in scenarios, on command lines and in reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }

            /// The names of all variants.
            pub(in crate::scenario) const VALUES: $crate::scenario::setting::Values<Self> =
                $crate::scenario::setting::Values {
                    takes: $crate::scenario::setting::listed!($($name)+),
                    read: |name| match name {
                        $($name => Some(Self::$variant),)+
                        _ => None,
                    },
                };
        }
    };
}

pub(super) use {key, listed, named, numbers, section, settings};

/// A number of milliseconds.
pub(super) const MILLISECONDS: Values<Duration> =
    Values { takes: "milliseconds from 0 to 60000", read: |value| milliseconds(value, 60_000.0) };
/// A share in percent.
pub(super) const PERCENT: Values<Percent> =
    Values { takes: "percent from 0 to 100", read: |value| Percent::new(value.parse().ok()?) };
/// A rate in Mbit/s, or none.
pub(super) const RATE: Values<Option<BitRate>> = Values {
    takes: "Mbit/s from 0.001 to 100000, or unlimited",
    read: |value| or_word(value, "unlimited", mbit),
};
pub(super) const SWITCH: Values<bool> = Values {
    takes: "on or off",
    read: |value| match value {
        "on" | "true" => Some(true),
        "off" | "false" => Some(false),
        _ => None,
    },
};

/// A whole number within a range.
pub(super) fn whole<T: TryFrom<u64>>(value: &str, range: RangeInclusive<u64>) -> Option<T> {
    let number = value.parse().ok().filter(|number| range.contains(number))?;
    T::try_from(number).ok()
}

/// `None` for a word, or the result of `read`.
pub(super) fn or_word<T>(
    value: &str,
    word: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Option<Option<T>> {
    if value == word { Some(None) } else { read(value).map(Some) }
}

/// A rate in Mbit/s.
pub(super) fn mbit(value: &str) -> Option<BitRate> {
    BitRate::from_mbit(value.parse().ok()?)
}

/// A time in milliseconds, from 0 to `most`.
pub(super) fn milliseconds(value: &str, most: f64) -> Option<Duration> {
    let ms: f64 = value.parse().ok()?;
    (0.0..=most).contains(&ms).then(|| Duration::from_secs_f64(ms / 1000.0))
}
