//! Events as texts: `WHAT [VALUE] at MS [for MS]`, several separated by `;`.

use std::time::Duration;

use super::super::ScenarioError;
use super::super::setting::milliseconds;
use super::{Event, Fault, Lie, Place};
use crate::units::{BitRate, Percent};

pub(super) const TAKES: &str = "none, or events such as near-outage at 2000 for 500; quack-loss 50 at 0. An event is \
    WHAT [VALUE] at MS [for MS], without `for` to the end of the run; WHAT [VALUE] is near-outage, far-outage, \
    near-delay MS, far-delay MS, near-rate MBIT, far-rate MBIT, quack-loss PERCENT, quack-duplicate PERCENT, \
    quack-reorder PERCENT, quack-corrupt PERCENT, quack-delay MS, proxy-restart (`for` how long it is away), \
    proxy-lies too-much|too-little|garbage [PERCENT], capture-drops PERCENT or nat-rebinding (without `for`)";

/// A fault that an event can name.
struct Kind {
    name: &'static str,
    /// The values it takes, in words; empty if it takes none.
    takes: &'static str,
    /// The fault with this value, if it is one; of faults without a value the value is empty.
    read: fn(&str) -> Option<Fault>,
}

const PERCENT: &str = "percent from 0 to 100";
const MS: &str = "milliseconds from 0 to 60000";
const RATE: &str = "Mbit/s from 0.001 to 100000, or unlimited";
const LIES: &str =
    "too-much, too-little or garbage, and percent from 0 to 100 if not the usual share";
const NAT_REBINDING: &str = "nat-rebinding";

const KINDS: &[Kind] = &[
    Kind { name: "near-outage", takes: "", read: |_| Some(Fault::Outage(Place::Near)) },
    Kind { name: "far-outage", takes: "", read: |_| Some(Fault::Outage(Place::Far)) },
    Kind {
        name: "near-delay",
        takes: MS,
        read: |ms| Some(Fault::Delay(Place::Near, milliseconds(ms)?)),
    },
    Kind {
        name: "far-delay",
        takes: MS,
        read: |ms| Some(Fault::Delay(Place::Far, milliseconds(ms)?)),
    },
    Kind {
        name: "near-rate",
        takes: RATE,
        read: |value| Some(Fault::Rate(Place::Near, rate(value)?)),
    },
    Kind {
        name: "far-rate",
        takes: RATE,
        read: |value| Some(Fault::Rate(Place::Far, rate(value)?)),
    },
    Kind {
        name: "quack-loss",
        takes: PERCENT,
        read: |value| Some(Fault::QuackLoss(percent(value)?)),
    },
    Kind {
        name: "quack-duplicate",
        takes: PERCENT,
        read: |value| Some(Fault::QuackDuplicate(percent(value)?)),
    },
    Kind {
        name: "quack-reorder",
        takes: PERCENT,
        read: |value| Some(Fault::QuackReorder(percent(value)?)),
    },
    Kind {
        name: "quack-corrupt",
        takes: PERCENT,
        read: |value| Some(Fault::QuackCorrupt(percent(value)?)),
    },
    Kind {
        name: "quack-delay",
        takes: MS,
        read: |value| Some(Fault::QuackDelay(milliseconds(value)?)),
    },
    Kind { name: "proxy-restart", takes: "", read: |_| Some(Fault::ProxyRestart) },
    Kind { name: "proxy-lies", takes: LIES, read: |value| Some(Fault::ProxyLies(lie(value)?)) },
    Kind {
        name: "capture-drops",
        takes: PERCENT,
        read: |value| Some(Fault::CaptureDrops(percent(value)?)),
    },
    Kind { name: NAT_REBINDING, takes: "", read: |_| Some(Fault::NatRebinding) },
];

fn percent(value: &str) -> Option<Percent> {
    Percent::new(value.parse().ok()?)
}

fn rate(value: &str) -> Option<Option<BitRate>> {
    match value {
        "unlimited" => Some(None),
        number => BitRate::from_mbit(number.parse().ok()?).map(Some),
    }
}

/// A lie, and the share of packets that it is about.
fn lie(value: &str) -> Option<Lie> {
    let (lie, share) =
        value.split_once(' ').map_or((value, None), |(lie, share)| (lie, Some(share)));
    let share_or = |usual: f64| share.map_or_else(|| Percent::new(usual), percent);
    match lie {
        "too-much" => share_or(25.0).map(Lie::TooMuch),
        "too-little" => share_or(25.0).map(Lie::TooLittle),
        "garbage" => share_or(100.0).map(Lie::Garbage),
        _ => None,
    }
}

impl Fault {
    /// Its name in scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Self::Outage(Place::Near) => "near-outage",
            Self::Outage(Place::Far) => "far-outage",
            Self::Delay(Place::Near, _) => "near-delay",
            Self::Delay(Place::Far, _) => "far-delay",
            Self::Rate(Place::Near, _) => "near-rate",
            Self::Rate(Place::Far, _) => "far-rate",
            Self::QuackLoss(_) => "quack-loss",
            Self::QuackDuplicate(_) => "quack-duplicate",
            Self::QuackReorder(_) => "quack-reorder",
            Self::QuackCorrupt(_) => "quack-corrupt",
            Self::QuackDelay(_) => "quack-delay",
            Self::ProxyRestart => "proxy-restart",
            Self::ProxyLies(_) => "proxy-lies",
            Self::CaptureDrops(_) => "capture-drops",
            Self::NatRebinding => NAT_REBINDING,
        }
    }
}

/// Reads a list of events.
pub(super) fn events(text: &str) -> Result<Vec<Event>, ScenarioError> {
    match text {
        "none" => Ok(Vec::new()),
        list => list.split(';').map(event).collect(),
    }
}

fn event(text: &str) -> Result<Event, ScenarioError> {
    let text = text.trim();
    read(text).map_err(|expected| ScenarioError::BadEvent { event: text.to_owned(), expected })
}

/// Reads an event, or says what was expected.
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
    let begin = "then comes `at` and when it begins, in milliseconds from 0 to 3600000";
    let at = match words.next() {
        Some("at") => words.next().and_then(time).ok_or(begin)?,
        _ => return Err(begin.to_owned()),
    };
    let duration = "what comes last is `for` and how long, in milliseconds above 0 to 3600000";
    let length = match words.next() {
        None => None,
        Some("for") if name == NAT_REBINDING => {
            return Err(format!("{name} has no duration; leave `for` out"));
        }
        Some("for") => {
            Some(words.next().and_then(time).filter(|time| !time.is_zero()).ok_or(duration)?)
        }
        Some(_) => return Err(duration.to_owned()),
    };
    match words.next() {
        None => Ok(Event { fault, at, length }),
        Some(word) => {
            Err(format!("nothing comes after it, but `{word}` does; separate events by `;`"))
        }
    }
}

/// A time of a run, which lasts an hour at most.
fn time(value: &str) -> Option<Duration> {
    let ms: f64 = value.parse().ok()?;
    (0.0..=3_600_000.0).contains(&ms).then(|| Duration::from_secs_f64(ms / 1000.0))
}

/// The form of every fault, for tests of the words in [`TAKES`].
#[cfg(test)]
pub(super) fn kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.iter().map(|kind| (kind.name, kind.takes))
}
