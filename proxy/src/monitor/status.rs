//! How the daemon stands, in one value: what `/status` gives as JSON, and all other pages are made
//! from.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use sidekick_protocol::{PublicKey, SessionStatus};

use crate::crew::{Crew, sum};
use crate::runtime::clock;
use crate::summary::Summary;
use crate::worker::Report;

/// How the daemon stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its version.
    pub version: String,
    /// When it started, in seconds since 1970.
    pub started: f64,
    /// Seconds since then.
    pub uptime: u64,
    /// Where senders reach it.
    pub address: SocketAddr,
    /// Its public key, where the wire has one.
    pub public_key: Option<String>,
    /// Its threads that count.
    pub threads: usize,
    /// Those of them that answered just now. Of the others this tells what they said last.
    pub threads_answering: usize,
    /// All that are to be captured on, each once.
    pub interfaces: Vec<Interface>,
    /// What was counted since the start.
    pub totals: Summary,
    /// The sessions that are open, where the wire has sessions.
    pub sessions_open: Option<usize>,
    /// The most that may be.
    pub sessions_max: u64,
    /// As many of them as were asked for.
    pub sessions: Vec<Session>,
}

/// An interface that is to be captured on. What is counted of it begins anew when it disappears and
/// comes back; the totals go on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// How packets are captured: `ring` or `pnet`; `None` if the interface is gone.
    pub backend: Option<String>,
    /// Whether it is there, and up.
    pub up: bool,
    /// UDP datagrams captured.
    pub captured: u64,
    /// Packets the kernel dropped before they could be read.
    pub dropped: u64,
    /// Frames whose headers contradict themselves.
    pub malformed: u64,
    /// IP fragments of UDP datagrams.
    pub fragments: u64,
    /// Merged frames split into their datagrams.
    pub merged_split: u64,
    /// Merged frames that could not be split: their datagrams were not counted.
    pub merged_uncounted: u64,
}

/// An open session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The flow's sender, as packets show it.
    pub source: SocketAddr,
    /// The flow's receiver.
    pub destination: SocketAddr,
    /// Where its quACKs go.
    pub peer: SocketAddr,
    /// The sender has proven its address; nothing is counted before.
    pub confirmed: bool,
    /// The epoch, from 1.
    pub epoch: u16,
    /// Packets counted in this epoch, modulo 2^32.
    pub counted: u32,
    /// quACKs sent.
    pub quacks: u64,
    /// Seconds since the latest packet of this epoch, if there was one.
    pub last_packet_ago: Option<f64>,
    /// Seconds since the sender was heard at the proxy's port.
    pub last_heard_ago: f64,
}

impl Session {
    fn new(status: &SessionStatus, at: Instant) -> Self {
        let ago = |then| at.saturating_duration_since(then).as_secs_f64();
        Self {
            source: status.flow.source,
            destination: status.flow.destination,
            peer: status.peer,
            confirmed: status.confirmed,
            epoch: status.epoch,
            counted: status.counted,
            quacks: status.quacks,
            last_packet_ago: status.last_packet.map(ago),
            last_heard_ago: ago(status.last_heard),
        }
    }
}

impl Status {
    /// What is wrong, in a sentence: why nothing can be counted, or nobody knows.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let silent = self.threads.saturating_sub(self.threads_answering);
        if silent > 0 {
            return Some(format!(
                "{silent} of {} threads do not answer: restart the proxy",
                self.threads
            ));
        }
        if self.interfaces.iter().any(|interface| interface.up) {
            return None;
        }
        let captured: Vec<_> =
            self.interfaces.iter().filter(|interface| interface.backend.is_some()).collect();
        let names = |of: &[&Interface]| {
            of.iter().map(|interface| interface.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        Some(if captured.is_empty() {
            let all: Vec<_> = self.interfaces.iter().collect();
            format!("no interface is captured on: there is no {}", names(&all))
        } else {
            format!("all interfaces are down: {}", names(&captured))
        })
    }
}

/// What does not change while the daemon runs, and the limit that may.
#[derive(Clone, Debug)]
pub struct About {
    /// Where senders reach it.
    pub address: SocketAddr,
    /// Its public key, where the wire has one.
    pub public_key: Option<PublicKey>,
    /// The interfaces that are to be captured on.
    pub interfaces: Vec<String>,
    /// The most sessions at once.
    pub max_sessions: Arc<AtomicU64>,
}

/// Looks at the daemon.
#[derive(Debug)]
pub struct Watch {
    crew: Crew,
    about: About,
    begun: Instant,
    started: f64,
    /// What each worker said last: a total must not shrink because one of them is silent.
    last: Vec<Option<Report>>,
}

impl Watch {
    /// Begins now.
    #[must_use]
    #[allow(
        clippy::disallowed_methods,
        reason = "when the program started is told by the wall's clock"
    )]
    pub fn new(crew: Crew, about: About) -> Self {
        let started = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(Duration::ZERO, |since| since);
        Self { crew, about, begun: clock(), started: started.as_secs_f64(), last: Vec::new() }
    }

    /// How things stand, with `sessions` of the sessions at most. It waits for the workers, for two
    /// seconds if one of them does not answer.
    pub fn look(&mut self, sessions: usize) -> Status {
        let answers = self.crew.answers(sessions);
        let threads = answers.len();
        let threads_answering = answers.iter().flatten().count();
        self.last.resize_with(threads, || None);
        for (last, answer) in self.last.iter_mut().zip(answers) {
            if answer.is_some() {
                *last = answer;
            }
        }
        let (totals, sessions_open) = sum(self.last.iter().flatten());
        let described = self.last.iter().flatten().flat_map(|report| {
            report.sessions.iter().map(|session| Session::new(session, report.at))
        });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.started,
            uptime: clock().saturating_duration_since(self.begun).as_secs(),
            address: self.about.address,
            public_key: self.about.public_key.map(|key| key.to_string()),
            threads,
            threads_answering,
            interfaces: self.about.interfaces.iter().map(|name| self.interface(name)).collect(),
            totals,
            sessions_open,
            sessions_max: self.about.max_sessions.load(Ordering::Relaxed),
            sessions: described.take(sessions).collect(),
        }
    }

    /// An interface, as all workers together see it.
    fn interface(&self, name: &str) -> Interface {
        let mut whole = Interface { name: name.to_owned(), ..Interface::default() };
        let reports = self.last.iter().flatten();
        for share in reports.flat_map(|report| &report.captures).filter(|share| share.name == name)
        {
            whole.up = share.up && (whole.up || whole.backend.is_none());
            whole.backend.get_or_insert_with(|| share.backend.to_owned());
            whole.captured += share.counters.datagrams;
            whole.dropped += share.counters.dropped;
            whole.malformed += share.counters.malformed;
            whole.fragments += share.counters.fragments;
            whole.merged_split += share.counters.split;
            whole.merged_uncounted += share.counters.unsplit;
        }
        whole
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A status without anything out of the ordinary, but a name that has to be escaped.
    pub(crate) fn example() -> Status {
        let interface = |name: &str, captured| Interface {
            name: name.to_owned(),
            backend: Some("ring".to_owned()),
            up: true,
            captured,
            ..Interface::default()
        };
        Status {
            version: "1.2.3".to_owned(),
            started: 1_700_000_000.25,
            uptime: 93_784,
            address: "192.0.2.1:5252".parse().unwrap(),
            public_key: Some("ab".repeat(32)),
            threads: 2,
            threads_answering: 2,
            interfaces: vec![interface("eth0", 7), interface("a\"b\\c", 2)],
            totals: Summary { captured: 9, counted: 5, ..Summary::default() },
            sessions_open: Some(1),
            sessions_max: 1024,
            sessions: vec![Session {
                source: "10.0.0.2:4000".parse().unwrap(),
                destination: "[2001:db8::1]:443".parse().unwrap(),
                peer: "10.0.0.2:4001".parse().unwrap(),
                confirmed: true,
                epoch: 1,
                counted: 5,
                quacks: 2,
                last_packet_ago: None,
                last_heard_ago: 0.25,
            }],
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let well = example();
        assert_eq!(well.complaint(), None);
        let mut stuck = well.clone();
        stuck.threads_answering = 1;
        assert_eq!(stuck.complaint().unwrap(), "1 of 2 threads do not answer: restart the proxy");
        let mut down = well;
        down.interfaces[0].up = false;
        assert_eq!(down.complaint(), None, "one is left");
        down.interfaces[1] = Interface { name: "b".to_owned(), ..Interface::default() };
        assert_eq!(down.complaint().unwrap(), "all interfaces are down: eth0");
        down.interfaces[0].backend = None;
        assert_eq!(down.complaint().unwrap(), "no interface is captured on: there is no eth0, b");
    }

    #[test]
    fn json_brings_it_whole() {
        let status = example();
        let text = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
    }
}
