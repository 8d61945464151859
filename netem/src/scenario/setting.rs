//! One setting, and the values that several settings share.

use std::time::Duration;

/// A setting of a section, which a `T` holds.
pub(super) struct Setting<T> {
    /// Its name within the section.
    pub(super) key: &'static str,
    /// The values it takes, in words.
    pub(super) takes: &'static str,
    /// What it means.
    pub(super) meaning: &'static str,
    /// Parses and stores a value; `None`, and nothing stored, if it is no value for this setting.
    pub(super) store: fn(&mut T, &str) -> Option<()>,
}

/// A whole number of a range.
pub(super) fn whole(value: &str, least: u64, most: u64) -> Option<u64> {
    value.parse().ok().filter(|number| (least..=most).contains(number))
}

/// `on` or `off`.
pub(super) fn switch(value: &str) -> Option<bool> {
    match value {
        "on" | "true" => Some(true),
        "off" | "false" => Some(false),
        _ => None,
    }
}

/// A number of milliseconds from 0 to 60000.
pub(super) fn milliseconds(value: &str) -> Option<Duration> {
    let ms: f64 = value.parse().ok()?;
    (0.0..=60_000.0).contains(&ms).then(|| Duration::from_secs_f64(ms / 1000.0))
}

/// What [`milliseconds`] takes, in words.
pub(super) const MILLISECONDS: &str = "milliseconds from 0 to 60000";
