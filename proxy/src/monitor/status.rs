//! The status of a proxy in one value, and its pages. `/status` returns it as JSON.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use sidekick_protocol::{PublicKey, SessionStatus};

use super::exposition::{InterfaceCounter, Page};
use super::listener::DEFAULT_ADDRESS;
use super::subject::{
    InterfaceReport, Origin, PROXY, Program, ProgramStatus, Start, StatusSource,
    interfaces_complaint,
};
use super::text::Sheet;
use crate::config::Config;
use crate::pool::{WorkerPool, sum};
use crate::size::Size;
use crate::summary::Summary;
use crate::worker::Report;

/// The status of a proxy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The program, `sidekick-proxy`.
    #[serde(flatten)]
    pub origin: Origin,
    /// Where senders reach the proxy.
    pub address: SocketAddr,
    /// The proxy's public key.
    pub public_key: String,
    /// The worker threads.
    pub threads: usize,
    /// The threads that answered. For the others, this status has their last answers.
    pub threads_answering: usize,
    /// All configured interfaces.
    pub interfaces: Vec<Interface>,
    /// The proxy's totals since the start.
    pub totals: Summary,
    /// The number of open sessions.
    pub sessions_open: usize,
    /// Most sessions at once.
    pub sessions_max: u64,
    /// Most sessions at once for one source address.
    pub sessions_max_per_source: u64,
    /// The copies that the proxy holds.
    pub copies: Copies,
    /// As many open sessions as were requested.
    pub sessions: Vec<Session>,
}

/// A configured interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// The fields of an interface that every program reports.
    #[serde(flatten)]
    pub report: InterfaceReport,
    /// Frames with headers that contradict themselves.
    pub malformed: u64,
    /// IP fragments of UDP datagrams.
    pub fragments: u64,
    /// Merged frames that the proxy split into their datagrams.
    pub merged_split: u64,
    /// Merged frames that the proxy could not split, and therefore did not count.
    pub merged_uncounted: u64,
}

/// The copies that the proxy holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Copies {
    /// Sessions that keep copies.
    pub sessions: u64,
    /// Bytes of memory that hold copies.
    pub bytes: u64,
    /// Most bytes; 0 if the proxy keeps no copies.
    pub max_bytes: u64,
}

/// An open session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The flow's sender, as captured packets show it.
    pub source: SocketAddr,
    /// The flow's receiver.
    pub destination: SocketAddr,
    /// The destination of the session's quACKs.
    pub peer: SocketAddr,
    /// Whether the sender has proven its address. The proxy counts nothing before.
    pub confirmed: bool,
    /// The epoch, which begins with 1.
    pub epoch: u16,
    /// Packets counted in this epoch, modulo 2^32.
    pub counted: u32,
    /// quACKs sent.
    pub quacks: u64,
    /// Datagrams towards the sender of which a copy was kept; `None` if the session keeps none.
    pub kept: Option<u64>,
    /// Seconds since the last packet of this epoch, if there was one.
    pub last_packet_ago: Option<f64>,
    /// Seconds since the sender's last message.
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
            kept: status.kept,
            last_packet_ago: status.last_packet.map(ago),
            last_heard_ago: ago(status.last_heard),
        }
    }

    /// The session for people.
    fn row(&self) -> Vec<String> {
        let ago = |seconds: f64| format!("{seconds:.1}s ago");
        let packet = match self.last_packet_ago {
            _ if !self.confirmed => "unproven".to_owned(),
            None => "none".to_owned(),
            Some(seconds) => ago(seconds),
        };
        vec![
            self.source.to_string(),
            self.destination.to_string(),
            self.peer.to_string(),
            self.epoch.to_string(),
            self.counted.to_string(),
            self.quacks.to_string(),
            self.kept.map_or_else(|| "-".to_owned(), |kept| kept.to_string()),
            packet,
            ago(self.last_heard_ago),
        ]
    }
}

impl ProgramStatus for Status {
    const PROGRAM: Program = Program {
        name: PROXY,
        what: "proxy",
        rows: "sessions",
        first: "first",
        address: DEFAULT_ADDRESS,
    };

    fn metrics(&self, resident: Option<u64>) -> String {
        let mut page = Page::default();
        page.counters(Summary::COUNTERS, &self.totals);
        page.interfaces(&self.interfaces, &BY_INTERFACE, "sidekick_interface_up", |of| &of.report);
        page.gauge("sidekick_sessions", "Open sessions.", self.sessions_open);
        page.gauge("sidekick_sessions_max", "Most sessions at once.", self.sessions_max);
        page.gauge(
            "sidekick_sessions_max_per_source",
            "Most sessions at once for one source address.",
            self.sessions_max_per_source,
        );
        let Copies { sessions, bytes, max_bytes } = self.copies;
        page.gauge("sidekick_sessions_keeping", "Sessions that keep copies.", sessions);
        page.gauge("sidekick_copies_bytes", "Memory that holds copies, in bytes.", bytes);
        page.gauge("sidekick_copies_max_bytes", "Most memory for copies.", max_bytes);
        page.gauge("sidekick_threads", "Threads that count packets.", self.threads);
        page.gauge(
            "sidekick_threads_answering",
            "Threads that answered the last request for a report.",
            self.threads_answering,
        );
        page.finish("sidekick_build_info", &self.origin, resident)
    }

    /// A sentence about what prevents the proxy from counting, or hides whether it counts.
    fn complaint(&self) -> Option<String> {
        let silent = self.threads.saturating_sub(self.threads_answering);
        if silent > 0 {
            return Some(format!(
                "{silent} of {} threads do not answer: restart the proxy",
                self.threads
            ));
        }
        interfaces_complaint(Self::PROGRAM.what, self.interfaces.iter().map(|of| &of.report))
    }

    fn show(&self) -> String {
        let mut sheet = Sheet::of(&self.origin);
        sheet.say("address", self.address);
        sheet.say("public key", &self.public_key);
        sheet.say("health", self.complaint().as_deref().unwrap_or("ok"));
        sheet.say("totals", &self.totals);
        let (open, most) = (self.sessions_open, self.sessions_max);
        let of_one = self.sessions_max_per_source;
        sheet.say("sessions", format!("{open} open, {most} at most, {of_one} of one source"));
        match self.copies {
            Copies { max_bytes: 0, .. } => sheet.say("copies", "none"),
            Copies { sessions, bytes, max_bytes } => {
                let (held, most) = (Size::bytes(bytes), Size::bytes(max_bytes));
                sheet.say("copies", format!("{held} for {sessions} sessions, {most} at most"));
            }
        }
        sheet.interfaces(self.interfaces.iter().map(|of| &of.report));
        let rows = self.sessions.iter().map(Session::row);
        sheet.rows(Self::PROGRAM, &HEADINGS, "lllrrrrrr", rows, self.sessions_open);
        sheet.finish()
    }
}

const BY_INTERFACE: [InterfaceCounter<Interface>; 6] = [
    (
        "sidekick_interface_packets_captured_total",
        "UDP datagrams captured on the interface.",
        |of| of.report.captured,
    ),
    (
        "sidekick_interface_packets_dropped_total",
        "Packets of the interface that the kernel or the proxy dropped.",
        |of| of.report.dropped,
    ),
    (
        "sidekick_interface_frames_malformed_total",
        "Frames of the interface with headers that contradict themselves.",
        |of| of.malformed,
    ),
    (
        "sidekick_interface_fragments_captured_total",
        "IP fragments of UDP datagrams captured on the interface.",
        |of| of.fragments,
    ),
    (
        "sidekick_interface_merged_frames_split_total",
        "Merged frames of the interface that the proxy split into their datagrams.",
        |of| of.merged_split,
    ),
    (
        "sidekick_interface_merged_frames_uncounted_total",
        "Merged frames of the interface that the proxy could not split.",
        |of| of.merged_uncounted,
    ),
];

/// The headings of [`Session::row`].
const HEADINGS: [&str; 9] =
    ["source", "destination", "peer", "epoch", "counted", "quACKs", "kept", "packet", "heard"];

/// The part of a status that does not depend on the workers. Only the limits change while a proxy
/// runs.
#[derive(Clone, Debug)]
pub struct ProxyInfo {
    /// Where senders reach the proxy.
    pub address: SocketAddr,
    /// The proxy's public key.
    pub public_key: PublicKey,
    /// The configured interfaces.
    pub interfaces: Vec<String>,
    /// The limits.
    pub limits: Arc<Limits>,
}

/// The limits that a reload changes.
#[derive(Debug, Default)]
pub struct Limits {
    /// Most sessions at once.
    pub max_sessions: AtomicU64,
    /// Most sessions at once for one source address.
    pub max_sessions_per_source: AtomicU64,
    /// Most bytes of copies.
    pub keep: AtomicU64,
}

impl Limits {
    /// The limits of a configuration.
    #[must_use]
    pub(crate) fn of(config: &Config) -> Self {
        let limits = Self::default();
        limits.set(config);
        limits
    }

    /// Takes over the limits of a configuration.
    pub(crate) fn set(&self, config: &Config) {
        self.max_sessions.store(config.max_sessions, Ordering::Relaxed);
        self.max_sessions_per_source.store(config.max_sessions_per_source, Ordering::Relaxed);
        self.keep.store(config.keep().get(), Ordering::Relaxed);
    }
}

/// Reads the status of a proxy.
#[derive(Debug)]
pub struct StatusReader {
    pool: WorkerPool,
    info: ProxyInfo,
    start: Start,
    /// The last report of each worker. Totals must not decrease because a worker does not answer.
    last: Vec<Option<Report>>,
}

impl StatusReader {
    /// A reader for a proxy that starts now.
    #[must_use]
    pub fn new(pool: WorkerPool, info: ProxyInfo) -> Self {
        Self { pool, info, start: Start::now(), last: Vec::new() }
    }

    /// The sum of all workers' captures on an interface.
    fn interface(&self, name: &str) -> Interface {
        let mut whole = Interface::default();
        let summed = &mut whole.report;
        summed.name = name.to_owned();
        let reports = self.last.iter().flatten();
        for share in reports.flat_map(|report| &report.captures).filter(|share| share.name == name)
        {
            summed.up = share.up && (summed.up || summed.backend.is_none());
            summed.backend.get_or_insert_with(|| share.backend.to_owned());
            summed.captured += share.counters.datagrams;
            summed.dropped += share.counters.dropped;
            whole.malformed += share.counters.malformed;
            whole.fragments += share.counters.fragments;
            whole.merged_split += share.counters.split;
            whole.merged_uncounted += share.counters.unsplit;
        }
        whole
    }
}

impl StatusSource for StatusReader {
    type Status = Status;

    /// Reads the status, with at most `sessions` sessions. Blocks until the workers answer, or for
    /// two seconds.
    fn read(&mut self, sessions: usize) -> Status {
        let answers = self.pool.all_reports(sessions);
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
        let number = |number| u64::try_from(number).unwrap_or(u64::MAX);
        let held = self.last.iter().flatten().map(|report| report.copies);
        let (bytes, keeping) = held.fold((0, 0), |(bytes, sessions), held| {
            (bytes + number(held.bytes), sessions + number(held.sessions))
        });
        let max_bytes = self.info.limits.keep.load(Ordering::Relaxed);
        let copies = Copies { sessions: keeping, bytes, max_bytes };
        Status {
            origin: self.start.origin(Status::PROGRAM),
            address: self.info.address,
            public_key: self.info.public_key.to_string(),
            threads,
            threads_answering,
            interfaces: self.info.interfaces.iter().map(|name| self.interface(name)).collect(),
            totals,
            sessions_open,
            sessions_max: self.info.limits.max_sessions.load(Ordering::Relaxed),
            sessions_max_per_source: self
                .info
                .limits
                .max_sessions_per_source
                .load(Ordering::Relaxed),
            copies,
            sessions: described.take(sessions).collect(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::monitor::exposition::tests::parse;

    /// An ordinary status, except for a name that needs escapes.
    pub(crate) fn example() -> Status {
        let interface = |name: &str, captured| Interface {
            report: InterfaceReport {
                name: name.to_owned(),
                backend: Some("ring".to_owned()),
                up: true,
                captured,
                dropped: 0,
            },
            ..Interface::default()
        };
        Status {
            origin: Origin {
                program: Status::PROGRAM.name.to_owned(),
                version: "1.2.3".to_owned(),
                started: 1_700_000_000.25,
                uptime: 93_784,
            },
            address: "192.0.2.1:5252".parse().unwrap(),
            public_key: "ab".repeat(32),
            threads: 2,
            threads_answering: 2,
            interfaces: vec![interface("eth0", 7), interface("a\"b\\c", 2)],
            totals: Summary { captured: 9, counted: 5, ..Summary::default() },
            sessions_open: 1,
            sessions_max: 1024,
            sessions_max_per_source: 64,
            copies: Copies { sessions: 1, bytes: 1 << 16, max_bytes: 64 << 20 },
            sessions: vec![Session {
                source: "10.0.0.2:4000".parse().unwrap(),
                destination: "[2001:db8::1]:443".parse().unwrap(),
                peer: "10.0.0.2:4001".parse().unwrap(),
                confirmed: true,
                epoch: 1,
                counted: 5,
                quacks: 2,
                kept: Some(3),
                last_packet_ago: None,
                last_heard_ago: 0.25,
            }],
        }
    }

    #[test]
    fn complaints_name_the_cause() {
        let well = example();
        assert_eq!(well.complaint(), None);
        let mut stuck = well.clone();
        stuck.threads_answering = 1;
        assert_eq!(stuck.complaint().unwrap(), "1 of 2 threads do not answer: restart the proxy");
        let mut down = well;
        down.interfaces[0].report.up = false;
        assert_eq!(down.complaint(), None, "one is left");
        down.interfaces[1].report = InterfaceReport { name: "b".to_owned(), ..Default::default() };
        assert_eq!(down.complaint().unwrap(), "all interfaces are down: eth0");
        down.interfaces[0].report.backend = None;
        assert_eq!(
            down.complaint().unwrap(),
            "the proxy captures on no interface: there is no eth0, b"
        );
    }

    #[test]
    fn json_keeps_the_whole_status() {
        let status = example();
        let text = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
    }

    #[test]
    fn every_metric_is_of_the_format() {
        let mut status = example();
        let gone = InterfaceReport { name: "gone\n0".to_owned(), ..InterfaceReport::default() };
        status.interfaces.push(Interface { report: gone, ..Interface::default() });
        let series = parse(&status.metrics(Some(4096)));
        let captured = "sidekick_interface_packets_captured_total";
        let up = "sidekick_interface_up";
        let samples: [(_, &[(&str, &str)], _); 11] = [
            (captured, &[("interface", "eth0"), ("backend", "ring")], 7.0),
            (captured, &[("interface", "a\"b\\c"), ("backend", "ring")], 2.0),
            (up, &[("interface", "a\"b\\c")], 1.0),
            (up, &[("interface", "gone\n0")], 0.0),
            ("sidekick_packets_captured_total", &[], 9.0),
            ("sidekick_sessions", &[], 1.0),
            ("sidekick_sessions_max", &[], 1024.0),
            ("sidekick_sessions_max_per_source", &[], 64.0),
            ("sidekick_build_info", &[("version", "1.2.3")], 1.0),
            ("process_start_time_seconds", &[], 1_700_000_000.25),
            ("process_resident_memory_bytes", &[], 4096.0),
        ];
        for (name, labels, number) in samples {
            assert_eq!(series.number(name, labels), Some(number), "{name} {labels:?}");
        }
    }

    #[test]
    fn columns_are_aligned() {
        let mut status = example();
        status.interfaces[1].report.name = "tun0\x1b[2J".to_owned();
        status.sessions_open = 3;
        let shown = status.show();
        let key = "ab".repeat(32);
        let expected = format!(
            "\
sidekick-proxy 1.2.3, up 1 d 2 h
address     192.0.2.1:5252
public key  {key}
health      ok
totals      captured 9, counted 5, quACKs 0, bytes sent 0, sessions 0, malformed 0
sessions    3 open, 1024 at most, 64 of one source
copies      64K for 1 sessions, 64M at most

interface  backend  state  captured  dropped
eth0       ring     up            7        0
tun0?[2J   ring     up            2        0

source         destination        peer           epoch  counted  quACKs  kept  packet     heard
10.0.0.2:4000  [2001:db8::1]:443  10.0.0.2:4001      1        5       2     3    none  0.2s ago
and 2 more sessions (--all shows them)
"
        );
        assert_eq!(shown, expected);
    }
}
