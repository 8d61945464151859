//! The texts of events: `WHAT [VALUE] at MS [for MS]`. A `;` separates two events.

use std::time::Duration;

use super::super::ScenarioError;
use super::super::setting::{MILLISECONDS, PERCENT, RATE, Values, milliseconds};
use super::Place::{Far, Middle, Near};
use super::{Event, Fault, Lie};
use crate::units::Percent;

pub(super) const TAKES: &str = "none, or events such as near-outage at 2000 for 500; quack-loss 50 \
    at 0. An event is WHAT [VALUE] at MS [for MS]. Without `for`, most last to the end of the run. \
    WHAT [VALUE] is near-outage, middle-outage, far-outage, near-delay MS, middle-delay MS, \
    far-delay MS, near-rate MBIT, middle-rate MBIT, far-rate MBIT, quack-loss PERCENT, quack-duplicate \
    PERCENT, quack-reorder PERCENT, quack-corrupt PERCENT, quack-delay MS, proxy-restart (`for` is \
    the time that the proxy is down), proxy-lies \
    too-much|too-little|garbage|wrong-copies|no-copies|unasked-copies [PERCENT], capture-drops \
    PERCENT, message-loss PERCENT, repeat-loss PERCENT, nat-rebinding or migration (both without \
    `for`)";

/// A kind of fault that an event can name.
struct Kind {
    name: &'static str,
    /// The values it takes, in words; empty if it takes none.
    takes: &'static str,
    /// Makes the fault from its value, which is empty if the kind takes none. `None` if the value
    /// is invalid.
    read: fn(&str) -> Option<Fault>,
}

const NAT_REBINDING: &str = "nat-rebinding";
const MIGRATION: &str = "migration";

/// A kind without a value, or with some [`Values`].
macro_rules! kind {
    ($name:expr, $fault:expr) => {
        Kind { name: $name, takes: "", read: |_| Some($fault) }
    };
    ($name:expr, $values:expr, $fault:expr) => {
        Kind { name: $name, takes: $values.takes, read: |value| ($values.read)(value).map($fault) }
    };
}

/// All kinds. An event begins with the name of one of them.
const KINDS: &[Kind] = &[
    kind!("near-outage", Fault::Outage(Near)),
    kind!("middle-outage", Fault::Outage(Middle)),
    kind!("far-outage", Fault::Outage(Far)),
    kind!("near-delay", MILLISECONDS, |delay| Fault::Delay(Near, delay)),
    kind!("middle-delay", MILLISECONDS, |delay| Fault::Delay(Middle, delay)),
    kind!("far-delay", MILLISECONDS, |delay| Fault::Delay(Far, delay)),
    kind!("near-rate", RATE, |rate| Fault::Rate(Near, rate)),
    kind!("middle-rate", RATE, |rate| Fault::Rate(Middle, rate)),
    kind!("far-rate", RATE, |rate| Fault::Rate(Far, rate)),
    kind!("quack-loss", PERCENT, Fault::QuackLoss),
    kind!("quack-duplicate", PERCENT, Fault::QuackDuplicate),
    kind!("quack-reorder", PERCENT, Fault::QuackReorder),
    kind!("quack-corrupt", PERCENT, Fault::QuackCorrupt),
    kind!("quack-delay", MILLISECONDS, Fault::QuackDelay),
    kind!("proxy-restart", Fault::ProxyRestart),
    kind!("proxy-lies", LIES, Fault::ProxyLies),
    kind!("capture-drops", PERCENT, Fault::CaptureDrops),
    kind!("message-loss", PERCENT, Fault::MessageLoss),
    kind!("repeat-loss", PERCENT, Fault::RepeatLoss),
    kind!(NAT_REBINDING, Fault::NatRebinding),
    kind!(MIGRATION, Fault::Migration),
];

/// A lie, and its share of the packets.
const LIES: Values<Lie> = Values {
    takes: "too-much, too-little, garbage, wrong-copies, no-copies or unasked-copies, and \
        optionally percent from 0 to 100",
    read: |value| {
        let (lie, share) =
            value.split_once(' ').map_or((value, None), |(lie, share)| (lie, Some(share)));
        let share_or = |usual| share.map_or_else(|| Percent::new(usual), PERCENT.read);
        match lie {
            "too-much" => share_or(25.0).map(Lie::TooMuch),
            "too-little" => share_or(25.0).map(Lie::TooLittle),
            "garbage" => share_or(100.0).map(Lie::Garbage),
            "wrong-copies" => share_or(100.0).map(Lie::WrongCopies),
            "no-copies" => share_or(25.0).map(Lie::NoCopies),
            "unasked-copies" => share_or(25.0).map(Lie::UnaskedCopies),
            _ => None,
        }
    },
};

/// Reads a list of events.
pub(in crate::scenario) fn events(text: &str) -> Result<Vec<Event>, ScenarioError> {
    match text {
        "none" => Ok(Vec::new()),
        list => list.split(';').map(event).collect(),
    }
}

fn event(text: &str) -> Result<Event, ScenarioError> {
    let text = text.trim();
    read(text).map_err(|expected| {
        ScenarioError::Wrong(format!("`{text}` is no event for faults.events: {expected}"))
    })
}

/// Reads an event. An error states the expected text.
fn read(text: &str) -> Result<Event, String> {
    let mut words = text.split_whitespace().peekable();
    let name = words.next().unwrap_or_default();
    let kind = KINDS.iter().find(|kind| kind.name == name).ok_or_else(|| {
        let names = KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ");
        format!("an event begins with one of {names}")
    })?;
    let mut value = Vec::new();
    while !kind.takes.is_empty()
        && let Some(word) = words.next_if(|word| *word != "at")
    {
        value.push(word);
    }
    let fault =
        (kind.read)(&value.join(" ")).ok_or_else(|| format!("{name} takes {}", kind.takes))?;
    let begin = "write `at MS` next, with MS in milliseconds from 0 to 3600000";
    let at = match words.next() {
        Some("at") => words.next().and_then(time).ok_or(begin)?,
        _ => return Err(begin.to_owned()),
    };
    let duration = "write `for MS` last, with MS in milliseconds above 0, up to 3600000";
    let length = match words.next() {
        None => None,
        Some("for") if [NAT_REBINDING, MIGRATION].contains(&name) => {
            return Err(format!("{name} has no duration; leave `for` out"));
        }
        Some("for") => {
            Some(words.next().and_then(time).filter(|time| !time.is_zero()).ok_or(duration)?)
        }
        Some(_) => return Err(duration.to_owned()),
    };
    match words.next() {
        None => Ok(Event { kind: kind.name, fault, at, length }),
        Some(word) => Err(format!("`{word}` may not follow the duration; separate events by `;`")),
    }
}

/// A time of a run. A run lasts an hour at most.
fn time(value: &str) -> Option<Duration> {
    milliseconds(value, 3_600_000.0)
}

/// The form of every fault, for a test of the words in [`TAKES`].
#[cfg(test)]
pub(super) fn kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.iter().map(|kind| (kind.name, kind.takes))
}
