//! Section `faults`: what goes wrong during a run, and when.

use std::time::Duration;

use super::ScenarioError;
use super::setting::settings;
use crate::units::{BitRate, Percent};

mod grammar;
mod stages;

pub(super) use grammar::events as events_of;

/// The setting's full name. Its value is a list, in TOML an array of texts.
pub(super) const EVENTS: &str = "faults.events";

/// What goes wrong during a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// In the order in which they were given. Where two of one kind are in force, the later in the
    /// list holds.
    pub events: Vec<Event>,
}

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// What.
    pub fault: Fault,
    /// When it begins, since the start of the run.
    pub at: Duration,
    /// How long it lasts; `None` is to the end of the run, but see [`Fault::ProxyRestart`] and
    /// [`Fault::NatRebinding`]. [`Fault::Migration`] happens once.
    pub length: Option<Duration>,
}

/// What can go wrong. What concerns the proxy's observer makes no difference where no sender asks
/// for help.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// A segment carries nothing.
    Outage(Place),
    /// A segment has another one-way delay.
    Delay(Place, Duration),
    /// A segment has another rate in each direction; `None` is no limit.
    Rate(Place, Option<BitRate>),
    /// Chance of each quACK to be lost as it leaves the proxy.
    QuackLoss(Percent),
    /// Chance of each quACK to be sent twice.
    QuackDuplicate(Percent),
    /// Chance of each quACK to be overtaken by the next.
    QuackReorder(Percent),
    /// Chance of each quACK to arrive with one wrong bit in its payload that no checksum has found:
    /// deliberately the hardest case, since a UDP checksum finds every single wrong bit on the way.
    /// Its seal is then broken.
    QuackCorrupt(Percent),
    /// quACKs are late by so much.
    QuackDelay(Duration),
    /// The proxy's program is killed, forgets all sessions without a word, and is back at once or
    /// after the event's length.
    ProxyRestart,
    /// The proxy tells what is not so.
    ProxyLies(Lie),
    /// Chance of each packet to be forwarded without being seen by the proxy's program.
    CaptureDrops(Percent),
    /// A NAT between the sender and the near segment forgets its mappings, and gives a new port to
    /// each socket.
    NatRebinding,
    /// Chance of each message to the proxy, a request for copies among them, to be lost as it
    /// arrives there.
    MessageLoss(Percent),
    /// Chance of each copy to be lost as it leaves the proxy.
    RepeatLoss(Percent),
    /// The client goes on from another port, as RFC 9000, section 9, lets it.
    Migration,
}

/// A segment of the path, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Sender to proxy.
    Near,
    /// Proxy to second proxy.
    Middle,
    /// Last proxy to receiver.
    Far,
}

impl Place {
    /// The name of the segment's section.
    pub fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Middle => "middle",
            Self::Far => "far",
        }
    }
}

/// What a lying proxy does, and to which share of the packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lie {
    /// For each packet of the share it counts a second one that nobody sent. The usual share is 25
    /// %.
    TooMuch(Percent),
    /// It does not count the share, but forwards it. The usual share is 25 %.
    TooLittle(Percent),
    /// It counts the share under random identifiers in place of its own. The usual share is 100 %.
    Garbage(Percent),
    /// The copies that it keeps of the share have wrong bytes. The usual share is 100 %.
    WrongCopies(Percent),
    /// It keeps no copies of the share, and so claims that nothing passed. The usual share is 25
    /// %.
    NoCopies(Percent),
    /// Before each of the share it keeps a copy of what nobody sent, or of what passed before, and
    /// repeats it with the others. The usual share is 25 %.
    UnaskedCopies(Percent),
}

impl Event {
    /// Whether it is in force at a time since the start of the run.
    pub fn is_in_force(&self, elapsed: Duration) -> bool {
        let since = elapsed.checked_sub(self.at);
        since.is_some_and(|since| self.length.is_none_or(|length| since < length))
    }

    /// When it ends, if it does before the run.
    pub fn end(&self) -> Option<Duration> {
        self.length.map(|length| self.at + length)
    }
}

impl Faults {
    /// What `pick` finds in the last event of the list that is in force at a time since the start
    /// of the run.
    pub fn in_force<T>(&self, elapsed: Duration, pick: impl Fn(Fault) -> Option<T>) -> Option<T> {
        let events = self.events.iter().rev().filter(|event| event.is_in_force(elapsed));
        events.filter_map(|event| pick(event.fault)).next()
    }

    /// The name of a fault of a proxy that listens, if there is one.
    pub(super) fn of_the_proxy(&self) -> Option<&'static str> {
        let of_the_path = |fault| {
            matches!(
                fault,
                Fault::Outage(_)
                    | Fault::Delay(..)
                    | Fault::Rate(..)
                    | Fault::NatRebinding
                    | Fault::Migration
            )
        };
        self.events.iter().find(|event| !of_the_path(event.fault)).map(|event| event.fault.name())
    }

    /// The name of a fault of the middle segment, if there is one.
    pub(super) fn of_the_middle(&self) -> Option<&'static str> {
        let of_the_middle = |fault| match fault {
            Fault::Outage(place) | Fault::Delay(place, _) | Fault::Rate(place, _) => {
                place == Place::Middle
            }
            _ => false,
        };
        self.events.iter().find(|event| of_the_middle(event.fault)).map(|event| event.fault.name())
    }

    /// Whether the client is to migrate.
    pub(super) fn migrates(&self) -> bool {
        self.events.iter().any(|event| event.fault == Fault::Migration)
    }

    /// The name of a fault that only virtual time has, if there is one: other backends have none
    /// but outages.
    pub fn only_in_virtual_time(&self) -> Option<&'static str> {
        let other = self.events.iter().find(|event| !matches!(event.fault, Fault::Outage(_)));
        other.map(|event| event.fault.name())
    }
}

settings! { Faults, value;
    "events", grammar::TAKES, "what goes wrong, and when" => events = grammar::events(value).ok();
}

/// Events that stand one by one, each with its place in the file, as one text.
pub(super) fn list<'a>(
    events: impl Iterator<Item = (usize, &'a str)>,
) -> Result<String, (usize, ScenarioError)> {
    let mut texts = Vec::new();
    for (place, text) in events {
        events_of(text).map_err(|problem| (place, problem))?;
        texts.push(text);
    }
    Ok(if texts.is_empty() { "none".to_owned() } else { texts.join("; ") })
}

#[cfg(test)]
mod tests;
