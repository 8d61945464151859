//! Section `competitor`: a plain flow of the same kind on the same path, for questions of fairness.

use std::time::Duration;

use super::CongestionControl;
use super::setting::{MILLISECONDS, Setting, milliseconds};

/// A second, plain flow over the same path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Competitor {
    /// Its congestion controller; `None` is no second flow.
    pub cc: Option<CongestionControl>,
    /// How long after the first flow it begins.
    pub start: Duration,
}

/// The settings of the section.
pub(super) const SETTINGS: &[Setting<Competitor>] = &[
    Setting {
        key: "cc",
        takes: "none, cubic, cubic-rfc9438, reno or bbr2",
        meaning: "controller of a second, plain flow over the same path",
        store: |competitor, value| {
            competitor.cc = match value {
                "none" => None,
                name => Some(CongestionControl::of_name(name)?),
            };
            Some(())
        },
    },
    Setting {
        key: "start_ms",
        takes: MILLISECONDS,
        meaning: "how long after the first flow the second one begins",
        store: |competitor, value| {
            competitor.start = milliseconds(value)?;
            Some(())
        },
    },
];
