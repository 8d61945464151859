//! Section `competitor`: a plain flow of the same kind on the same path, for questions of fairness.

use std::time::Duration;

use super::CongestionControl;
use super::setting::{MILLISECONDS, milliseconds, settings};

/// A second, plain flow over the same path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Competitor {
    /// Its congestion controller. `None` means that there is no second flow.
    pub cc: Option<CongestionControl>,
    /// The time from the start of the first flow to that of the second.
    pub start: Duration,
}

settings! { Competitor, value;
    "cc", "none, cubic, cubic-rfc9438, reno, bbr2 or hybla",
        "controller of a second, plain flow over the same path" =>
        cc = if value == "none" { Some(None) } else { CongestionControl::of_name(value).map(Some) };
    "start_ms", MILLISECONDS, "how long after the first flow the second one begins" =>
        start = milliseconds(value);
}
