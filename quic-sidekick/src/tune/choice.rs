//! A choice with its reason.

use super::Tuned;
use std::fmt;
use std::time::Duration;

/// The reason for a choice of the application itself.
pub(super) const OWN: &str = "the application decided so";

/// A value, and why it was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chosen<T> {
    pub(super) value: T,
    pub(super) reason: &'static str,
}

impl<T> Chosen<T> {
    pub(super) fn new(value: T, reason: &'static str) -> Self {
        Self { value, reason }
    }

    /// The application's own decision, or else what `choose` returns.
    pub(super) fn own_or(own: Option<T>, choose: impl FnOnce() -> Self) -> Self {
        own.map_or_else(choose, |value| Self::new(value, OWN))
    }
}

/// One choice: a setting, its value with the unit, and the reason. `Display` writes them as a
/// sentence without its full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The setting.
    pub setting: &'static str,
    /// Its value, with the unit.
    pub value: String,
    /// Why.
    pub reason: &'static str,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.setting, self.value, self.reason)
    }
}

/// Every choice, in the order of the documentation.
pub(super) fn list(tuned: &Tuned) -> [Choice; 10] {
    let bound = if tuned.discover_mtu { "up to " } else { "" };
    [
        choice("UDP payload", tuned.payload, |bytes| format!("{bound}{bytes} bytes")),
        choice("cipher", tuned.cipher, |cipher| cipher.to_string()),
        choice("ACK delay", tuned.ack_delay, milliseconds),
        choice("controller", tuned.controller, str::to_owned),
        choice("pacing", tuned.pacing, |on| if on { "on" } else { "off" }.to_owned()),
        choice("initial window", tuned.initial_window, |packets| format!("{packets} packets")),
        choice("initial RTT", tuned.initial_rtt, milliseconds),
        choice("stream window", tuned.stream_window, |bytes| format!("{bytes} bytes")),
        choice(
            "connection window",
            Chosen::new(tuned.connection_window(), "half as much again as a stream's"),
            |bytes| format!("{bytes} bytes"),
        ),
        choice("Sidekick", tuned.mode, |mode| {
            mode.map_or_else(|| "off".to_owned(), |mode| mode.to_string())
        }),
    ]
}

fn choice<T>(setting: &'static str, chosen: Chosen<T>, value: impl Fn(T) -> String) -> Choice {
    Choice { setting, value: value(chosen.value), reason: chosen.reason }
}

fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}
