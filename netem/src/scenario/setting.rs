//! The type of a setting, and values that several settings share.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::units::{BitRate, Percent};

/// A setting of a section. A `T` holds the section's values.
pub(super) struct Setting<T> {
    /// Its name within the section.
    pub(super) key: &'static str,
    /// The values that it accepts, in words.
    pub(super) takes: &'static str,
    /// What it means.
    pub(super) meaning: &'static str,
    /// Parses and stores a value. Returns `None` and stores nothing if the value is invalid.
    pub(super) store: fn(&mut T, &str) -> Option<()>,
}

/// Defines `SETTINGS`, the settings of a section. Each row has the key, the accepted values in
/// words, the meaning, and `field = expression`. The expression parses the value to an `Option`.
macro_rules! settings {
    ($section:ty, $value:ident; $(
        $key:literal, $takes:expr, $meaning:expr => $($field:ident).+ = $parsed:expr;
    )+) => {
        /// The settings of the section.
        pub(in crate::scenario) const SETTINGS: &[$crate::scenario::setting::Setting<$section>] =
            &[$($crate::scenario::setting::Setting {
                key: $key,
                takes: $takes,
                meaning: $meaning,
                store: |section, $value| {
                    section.$($field).+ = $parsed?;
                    Some(())
                },
            }),+];
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

            /// The variant with this name.
            pub(in crate::scenario) fn of_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

pub(super) use {named, settings};

/// The values that [`milliseconds`] accepts, in words.
pub(super) const MILLISECONDS: &str = "milliseconds from 0 to 60000";
/// The values that [`percent`] accepts, in words.
pub(super) const PERCENT: &str = "percent from 0 to 100";
/// The values that [`rate`] accepts, in words.
pub(super) const RATE: &str = "Mbit/s from 0.001 to 100000, or unlimited";
/// The values that [`switch`] accepts, in words.
pub(super) const SWITCH: &str = "on or off";

/// A whole number within a range.
pub(super) fn whole<T: TryFrom<u64>>(value: &str, range: RangeInclusive<u64>) -> Option<T> {
    let number = value.parse().ok().filter(|number| range.contains(number))?;
    T::try_from(number).ok()
}

/// `unlimited`, or a whole number within a range.
pub(super) fn limit(value: &str, range: RangeInclusive<u64>) -> Option<Option<u64>> {
    if value == "unlimited" { Some(None) } else { whole(value, range).map(Some) }
}

/// `on` or `off`.
pub(super) fn switch(value: &str) -> Option<bool> {
    match value {
        "on" | "true" => Some(true),
        "off" | "false" => Some(false),
        _ => None,
    }
}

/// A time in milliseconds, from 0 to `most`.
pub(super) fn milliseconds_to(value: &str, most: f64) -> Option<Duration> {
    let ms: f64 = value.parse().ok()?;
    (0.0..=most).contains(&ms).then(|| Duration::from_secs_f64(ms / 1000.0))
}

/// A number of milliseconds from 0 to 60000.
pub(super) fn milliseconds(value: &str) -> Option<Duration> {
    milliseconds_to(value, 60_000.0)
}

/// A share in percent.
pub(super) fn percent(value: &str) -> Option<Percent> {
    Percent::new(value.parse().ok()?)
}

/// A rate in Mbit/s, or `unlimited`.
pub(super) fn rate(value: &str) -> Option<Option<BitRate>> {
    match value {
        "unlimited" => Some(None),
        number => BitRate::from_mbit(number.parse().ok()?).map(Some),
    }
}
