//! Section `competitor`: a plain flow of the same kind on the same path, for questions of fairness.

use std::time::Duration;

use super::CongestionControl;
use super::setting::{milliseconds, settings};

/// A second, plain flow over the same path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Competitor {
    /// Its congestion controller. `None` means that there is no second flow.
    pub cc: Option<CongestionControl>,
    /// When the first and the second flow begin, since the start of the run. One of them is zero.
    pub starts: [Duration; 2],
}

settings! { Competitor, value;
    "cc", "none, cubic, cubic-rfc9438, reno, bbr2 or hybla",
        "controller of a second, plain flow over the same path" =>
        cc = if value == "none" { Some(None) } else { CongestionControl::of_name(value).map(Some) };
    "start_ms", "milliseconds from -60000 to 60000",
        "how long after the first flow the second one begins; before it, if negative" =>
        starts = starts(value);
}

fn starts(value: &str) -> Option<[Duration; 2]> {
    match value.strip_prefix('-') {
        Some(before) => Some([milliseconds(before)?, Duration::ZERO]),
        None => Some([Duration::ZERO, milliseconds(value)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_the_flows_begins_at_once() {
        let seconds = Duration::from_secs;
        assert_eq!(starts("2000"), Some([seconds(0), seconds(2)]));
        assert_eq!(starts("-2000"), Some([seconds(2), seconds(0)]));
        assert_eq!(starts("-0"), starts("0"));
        for wrong in ["--1", "-", "-60001", "60001", "soon"] {
            assert_eq!(starts(wrong), None, "{wrong}");
        }
    }
}
