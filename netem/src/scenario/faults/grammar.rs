//! The texts of events: `WHAT [VALUE] at MS [for MS]`. A `;` separates two events.

use std::time::Duration;

use super::super::ScenarioError;
use super::super::setting::{
    MILLISECONDS, PERCENT, RATE, milliseconds, milliseconds_to, percent, rate,
};
use super::Place::{Far, Middle, Near};
use super::{Event, Fault, Lie, Place};
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
    /// Makes the fault from its value. `None` if the value is invalid. If the kind takes no value,
    /// the text is empty.
    read: fn(&str) -> Option<Fault>,
}

const LIES: &str = "too-much, too-little, garbage, wrong-copies, no-copies or unasked-copies, and \
    optionally percent from 0 to 100";
const NAT_REBINDING: &str = "nat-rebinding";
const MIGRATION: &str = "migration";

/// All kinds. An event begins with the name of one of them.
const KINDS: &[Kind] = &[
    Kind { name: "near-outage", takes: "", read: |_| Some(Fault::Outage(Near)) },
    Kind { name: "middle-outage", takes: "", read: |_| Some(Fault::Outage(Middle)) },
    Kind { name: "far-outage", takes: "", read: |_| Some(Fault::Outage(Far)) },
    Kind { name: "near-delay", takes: MILLISECONDS, read: |ms| delay(Near, ms) },
    Kind { name: "middle-delay", takes: MILLISECONDS, read: |ms| delay(Middle, ms) },
    Kind { name: "far-delay", takes: MILLISECONDS, read: |ms| delay(Far, ms) },
    Kind { name: "near-rate", takes: RATE, read: |mbit| Some(Fault::Rate(Near, rate(mbit)?)) },
    Kind { name: "middle-rate", takes: RATE, read: |mbit| Some(Fault::Rate(Middle, rate(mbit)?)) },
    Kind { name: "far-rate", takes: RATE, read: |mbit| Some(Fault::Rate(Far, rate(mbit)?)) },
    Kind { name: "quack-loss", takes: PERCENT, read: |of| percent(of).map(Fault::QuackLoss) },
    Kind {
        name: "quack-duplicate",
        takes: PERCENT,
        read: |of| percent(of).map(Fault::QuackDuplicate),
    },
    Kind { name: "quack-reorder", takes: PERCENT, read: |of| percent(of).map(Fault::QuackReorder) },
    Kind { name: "quack-corrupt", takes: PERCENT, read: |of| percent(of).map(Fault::QuackCorrupt) },
    Kind {
        name: "quack-delay",
        takes: MILLISECONDS,
        read: |ms| milliseconds(ms).map(Fault::QuackDelay),
    },
    Kind { name: "proxy-restart", takes: "", read: |_| Some(Fault::ProxyRestart) },
    Kind { name: "proxy-lies", takes: LIES, read: |value| lie(value).map(Fault::ProxyLies) },
    Kind { name: "capture-drops", takes: PERCENT, read: |of| percent(of).map(Fault::CaptureDrops) },
    Kind { name: "message-loss", takes: PERCENT, read: |of| percent(of).map(Fault::MessageLoss) },
    Kind { name: "repeat-loss", takes: PERCENT, read: |of| percent(of).map(Fault::RepeatLoss) },
    Kind { name: NAT_REBINDING, takes: "", read: |_| Some(Fault::NatRebinding) },
    Kind { name: MIGRATION, takes: "", read: |_| Some(Fault::Migration) },
];

fn delay(place: Place, ms: &str) -> Option<Fault> {
    Some(Fault::Delay(place, milliseconds(ms)?))
}

/// A lie, and its share of the packets.
fn lie(value: &str) -> Option<Lie> {
    let (lie, share) =
        value.split_once(' ').map_or((value, None), |(lie, share)| (lie, Some(share)));
    let share_or = |usual: f64| share.map_or_else(|| Percent::new(usual), percent);
    match lie {
        "too-much" => share_or(25.0).map(Lie::TooMuch),
        "too-little" => share_or(25.0).map(Lie::TooLittle),
        "garbage" => share_or(100.0).map(Lie::Garbage),
        "wrong-copies" => share_or(100.0).map(Lie::WrongCopies),
        "no-copies" => share_or(25.0).map(Lie::NoCopies),
        "unasked-copies" => share_or(25.0).map(Lie::UnaskedCopies),
        _ => None,
    }
}

impl Fault {
    /// Its name in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Self::Outage(Near) => "near-outage",
            Self::Outage(Middle) => "middle-outage",
            Self::Outage(Far) => "far-outage",
            Self::Delay(Near, _) => "near-delay",
            Self::Delay(Middle, _) => "middle-delay",
            Self::Delay(Far, _) => "far-delay",
            Self::Rate(Near, _) => "near-rate",
            Self::Rate(Middle, _) => "middle-rate",
            Self::Rate(Far, _) => "far-rate",
            Self::QuackLoss(_) => "quack-loss",
            Self::QuackDuplicate(_) => "quack-duplicate",
            Self::QuackReorder(_) => "quack-reorder",
            Self::QuackCorrupt(_) => "quack-corrupt",
            Self::QuackDelay(_) => "quack-delay",
            Self::ProxyRestart => "proxy-restart",
            Self::ProxyLies(_) => "proxy-lies",
            Self::CaptureDrops(_) => "capture-drops",
            Self::NatRebinding => NAT_REBINDING,
            Self::MessageLoss(_) => "message-loss",
            Self::RepeatLoss(_) => "repeat-loss",
            Self::Migration => MIGRATION,
        }
    }
}

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
        None => Ok(Event { fault, at, length }),
        Some(word) => Err(format!("`{word}` may not follow the duration; separate events by `;`")),
    }
}

/// A time of a run. A run lasts an hour at most.
fn time(value: &str) -> Option<Duration> {
    milliseconds_to(value, 3_600_000.0)
}

/// The form of every fault, for a test of the words in [`TAKES`].
#[cfg(test)]
pub(super) fn kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.iter().map(|kind| (kind.name, kind.takes))
}
