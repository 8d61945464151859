//! Section `faults`: faults during a run, and their times.

use std::time::Duration;

use super::setting::{Values, settings};
use super::{ScenarioError, Segment};
use crate::link::{Outage, Outages};
use crate::units::{BitRate, Percent};

mod grammar;

pub(super) use grammar::events as events_of;

/// The setting's full name. Its value is a list, in TOML an array of texts.
pub(super) const EVENTS: &str = "faults.events";

/// The faults of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// The events in the order of the setting. If two events of one kind are in force, the later
    /// one in the list decides.
    pub events: Vec<Event>,
}

/// One fault at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Event {
    /// The name of the fault's kind, as events have it.
    pub kind: &'static str,
    /// The fault.
    pub fault: Fault,
    /// The time at which it begins, since the start of the run.
    pub at: Duration,
    /// The time that it lasts. `None` lasts to the end of the run, except for
    /// [`Fault::ProxyRestart`] and [`Fault::NatRebinding`]; [`Fault::Migration`] happens once.
    pub length: Option<Duration>,
}

/// The kinds of faults. A fault of the proxy's observer has no effect if no sender uses the proxy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// A segment carries no packets.
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
    /// Chance of each quACK to arrive with one wrong bit in its payload that no checksum has
    /// detected. This is the hardest case, because a UDP checksum detects every single wrong bit on
    /// the way. The bit breaks the seal.
    QuackCorrupt(Percent),
    /// Each quACK leaves this much later.
    QuackDelay(Duration),
    /// The proxy's program is killed and forgets all sessions. It starts again at once, or after
    /// the event's length.
    ProxyRestart,
    /// The proxy sends false reports.
    ProxyLies(Lie),
    /// Chance of each packet to pass without reaching the proxy's program.
    CaptureDrops(Percent),
    /// A NAT between the sender and the near segment forgets its mappings, and assigns a new port
    /// to each socket.
    NatRebinding,
    /// Chance that a message to the proxy is lost on arrival. Requests for copies are such
    /// messages.
    MessageLoss(Percent),
    /// Chance of each copy to be lost as it leaves the proxy.
    RepeatLoss(Percent),
    /// The client migrates to another port (RFC 9000, section 9).
    Migration,
}

/// A segment of the path, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Sender to proxy.
    Near,
    /// The same by the sender's second uplink.
    Second,
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
            Self::Second => "second",
            Self::Middle => "middle",
            Self::Far => "far",
        }
    }
}

/// The lie of a proxy, and the share of the packets that it concerns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lie {
    /// For each packet of the share, it counts an additional packet that no host sent. The default
    /// share is 25 %.
    TooMuch(Percent),
    /// It forwards the share without counting it. The default share is 25 %.
    TooLittle(Percent),
    /// It counts the share by random identifiers in place of the packets' own. The default share is
    /// 100 %.
    Garbage(Percent),
    /// Its copies of the share have wrong bytes. The default share is 100 %.
    WrongCopies(Percent),
    /// It keeps no copies of the share, as if these packets had not passed. The default share is
    /// 25 %.
    NoCopies(Percent),
    /// Before each packet of the share, it keeps one more copy, and repeats it with the others. The
    /// copy is of a packet that no host sent, or of an earlier packet. The default share is 25 %.
    UnaskedCopies(Percent),
}

impl Event {
    /// Whether the event is in force at a time since the start of the run.
    pub fn is_in_force(&self, elapsed: Duration) -> bool {
        let since = elapsed.checked_sub(self.at);
        since.is_some_and(|since| self.length.is_none_or(|length| since < length))
    }

    /// When the event ends. `None` if it lasts to the end of the run.
    pub fn end(&self) -> Option<Duration> {
        self.length.map(|length| self.at + length)
    }
}

impl Faults {
    /// The result of `pick` for the last event of the list that is in force at a time since the
    /// start of the run.
    pub fn in_force<T>(&self, elapsed: Duration, pick: impl Fn(Fault) -> Option<T>) -> Option<T> {
        let events = self.events.iter().rev().filter(|event| event.is_in_force(elapsed));
        events.filter_map(|event| pick(event.fault)).next()
    }

    /// The segment at the start of a run, with its outages during the whole run.
    pub fn first_stage(&self, place: Place, segment: &Segment) -> Segment {
        self.stage(place, segment, Duration::ZERO)
    }

    /// The later states of the segment, each with its start since the beginning of the run, in
    /// order.
    pub fn later_stages(&self, place: Place, segment: &Segment) -> Vec<(Duration, Segment)> {
        let changes = |event: &&Event| match event.fault {
            Fault::Delay(of, _) | Fault::Rate(of, _) => of == place,
            _ => false,
        };
        let events = self.events.iter().filter(changes);
        let mut times: Vec<_> =
            events.flat_map(|event| [Some(event.at), event.end()]).flatten().collect();
        times.retain(|time| !time.is_zero());
        times.sort();
        times.dedup();
        times.into_iter().map(|time| (time, self.stage(place, segment, time))).collect()
    }

    fn stage(&self, place: Place, segment: &Segment, elapsed: Duration) -> Segment {
        let delay = self.in_force(elapsed, |fault| match fault {
            Fault::Delay(of, delay) if of == place => Some(delay),
            _ => None,
        });
        let rate = self.in_force(elapsed, |fault| match fault {
            Fault::Rate(of, rate) if of == place => Some(rate),
            _ => None,
        });
        let mut stage = segment.clone();
        stage.both.delay = delay.unwrap_or(segment.both.delay);
        if let Some(rate) = rate {
            (stage.both.rate, stage.rate_to, stage.rate_from) = (rate, None, None);
        }
        stage.both.outages = self.outages(place, &segment.both.outages);
        stage
    }

    fn outages(&self, place: Place, scheduled: &Outages) -> Outages {
        let faults = self.events.iter().filter(|event| event.fault == Fault::Outage(place));
        let faults = faults
            .map(|event| Outage { from: event.at, length: event.length.unwrap_or(Duration::MAX) });
        scheduled.iter().copied().chain(faults).collect()
    }

    /// The name of the first fault of an observing proxy, if there is one.
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
        self.first(|fault| !of_the_path(fault))
    }

    /// The name of the first fault of the middle segment, if there is one.
    pub(super) fn of_the_middle(&self) -> Option<&'static str> {
        let of_the_middle = |fault| match fault {
            Fault::Outage(place) | Fault::Delay(place, _) | Fault::Rate(place, _) => {
                place == Place::Middle
            }
            _ => false,
        };
        self.first(of_the_middle)
    }

    /// Whether the client migrates.
    pub(super) fn migrates(&self) -> bool {
        self.events.iter().any(|event| event.fault == Fault::Migration)
    }

    /// The name of the first fault that only virtual time supports. The backend `user` has outages,
    /// too. `tc` refuses them itself.
    pub fn only_in_virtual_time(&self) -> Option<&'static str> {
        self.first(|fault| !matches!(fault, Fault::Outage(_)))
    }

    /// The kind of the first fault of which this holds.
    fn first(&self, is: impl Fn(Fault) -> bool) -> Option<&'static str> {
        self.events.iter().find(|event| is(event.fault)).map(|event| event.kind)
    }
}

settings! { SETTINGS: Faults; "events", EVENTS_VALUES, "what goes wrong, and when" => events; }

const EVENTS_VALUES: Values<Vec<Event>> =
    Values { takes: grammar::TAKES, read: |value| grammar::events(value).ok() };

/// Events from an array, each with its place in the file, as one text.
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
