//! Counters, each declared once: its name, its unit and its meaning.
//!
//! A table of [`counters!`] makes a struct, its documentation, its line for a log, and its metrics.
//! `docs` describes the metrics, and a test compares the two.

use std::fmt;

/// When a line for a log shows a counter, and by which words.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shown {
    /// Also if it is 0.
    Always(&'static str),
    /// Unless it is 0.
    Counted(&'static str),
    /// Never.
    Hidden,
}

/// A counter of the totals `T`.
pub(crate) struct Counter<T> {
    pub(crate) metric: &'static str,
    /// What it counts.
    pub(crate) help: &'static str,
    pub(crate) shown: Shown,
    pub(crate) of: fn(&T) -> u64,
}

/// Writes the counters that are always shown, then the others that are not 0.
pub(crate) fn write<T>(
    counters: &[Counter<T>],
    totals: &T,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let always = counters.iter().filter_map(|counter| match counter.shown {
        Shown::Always(words) => Some((words, (counter.of)(totals))),
        Shown::Counted(_) | Shown::Hidden => None,
    });
    let others = counters.iter().filter_map(|counter| match counter.shown {
        Shown::Counted(words) => Some((words, (counter.of)(totals))).filter(|(_, of)| *of != 0),
        Shown::Always(_) | Shown::Hidden => None,
    });
    for (index, (words, number)) in always.chain(others).enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        write!(f, "{comma}{words} {number}")?;
    }
    Ok(())
}

/// Totals of a program. Each line declares a counter: the field, `<-` and the field of the
/// statistics that it is read from, if any, its words in a log, its metric, and what it counts.
/// Before the words, `always` shows it also if it is 0, and `hidden` never.
macro_rules! counters {
    (
        $(#[$meta:meta])*
        pub struct $name:ident of $stats:ty {
            $(
                $field:ident $(<- $stat:ident)?:
                    $($shown:ident)? $words:literal, $metric:literal, $help:literal;
            )*
        }
    ) => {
        $crate::counters::counters! {
            $(#[$meta])*
            pub struct $name {
                $($field: $($shown)? $words, $metric, $help;)*
            }
        }

        impl $name {
            /// The totals with these statistics. The others are 0.
            pub(crate) fn of(stats: &$stats) -> Self {
                let mut totals = Self::default();
                $($(totals.$field = stats.$stat;)?)*
                totals
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($field:ident: $($shown:ident)? $words:literal, $metric:literal, $help:literal;)*
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $(#[doc = $help] pub $field: u64,)*
        }

        impl $name {
            /// All of them.
            pub(crate) const COUNTERS: &[$crate::counters::Counter<Self>] = &[
                $($crate::counters::Counter {
                    metric: $metric,
                    help: $help,
                    shown: $crate::counters::shown!($($shown)? $words),
                    of: |totals| totals.$field,
                },)*
            ];
        }

        impl std::ops::AddAssign<&Self> for $name {
            fn add_assign(&mut self, other: &Self) {
                $(self.$field += other.$field;)*
            }
        }

        impl std::fmt::Display for $name {
            /// The main totals, then the others that are not 0.
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::counters::write(Self::COUNTERS, self, f)
            }
        }
    };
}

macro_rules! shown {
    (always $words:literal) => {
        $crate::counters::Shown::Always($words)
    };
    (hidden $words:literal) => {
        $crate::counters::Shown::Hidden
    };
    ($words:literal) => {
        $crate::counters::Shown::Counted($words)
    };
}

pub(crate) use {counters, shown};
