//! The status of an agent in one value. `/status` returns it as JSON, and all other pages are made
//! from it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::config::{AgentConfig, DEFAULT_METRICS};
use super::report::Report;
use super::{exposition, show};
use crate::monitor::interface::interfaces_complaint;
use crate::monitor::subject::{AGENT, Program, ProgramStatus, Start, StatusSource};

/// The status of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// The name of the program, `sidekick-agent`.
    pub program: String,
    /// The agent's version.
    pub version: String,
    /// When the agent started, in seconds since 1970.
    pub started: f64,
    /// Seconds since then.
    pub uptime: u64,
    /// Whether the agent answered. If not, this status has its last answer.
    pub answering: bool,
    /// Most flows that are helped at once.
    pub flows_max: u64,
    /// Most bytes of copies of leaving packets.
    pub memory_max: u64,
    /// The agent's report.
    #[serde(flatten)]
    pub report: Report,
}

/// After so many seconds without a captured packet, the interface may be the wrong one.
const SILENT: u64 = 60;

impl AgentStatus {
    /// A sentence if nothing leaves by the interfaces. An idle host is no fault, so this is none.
    pub(super) fn silence(&self) -> Option<String> {
        let is_silent = self.uptime >= SILENT && self.report.totals.captured == 0;
        is_silent.then(|| {
            let names: Vec<_> = self.report.interfaces.iter().map(|it| it.name.as_str()).collect();
            format!(
                "no UDP packet has left by {} yet: `ip route get ADDRESS` names the interface \
                 towards a destination",
                names.join(", ")
            )
        })
    }
}

impl ProgramStatus for AgentStatus {
    const PROGRAM: Program = Program {
        name: AGENT,
        what: "agent",
        rows: "flows",
        first: "busiest",
        address: DEFAULT_METRICS,
    };

    fn metrics(&self, resident: Option<u64>) -> String {
        exposition::text(self, resident)
    }

    /// A sentence about what prevents the agent from helping, or hides whether it helps.
    fn complaint(&self) -> Option<String> {
        if !self.answering {
            return Some("the agent does not answer: restart it".to_owned());
        }
        interfaces_complaint(Self::PROGRAM.what, self.report.interfaces.iter())
    }

    fn show(&self) -> String {
        show::show(self)
    }
}

/// The limits that a reload changes.
#[derive(Debug, Default)]
pub struct AgentLimits {
    max_flows: AtomicU64,
    memory: AtomicU64,
}

impl AgentLimits {
    /// The limits of a configuration.
    #[must_use]
    pub fn of(config: &AgentConfig) -> Self {
        let limits = Self::default();
        limits.set(config);
        limits
    }

    /// Takes over the limits of a configuration.
    pub fn set(&self, config: &AgentConfig) {
        self.max_flows.store(config.max_flows.into(), Ordering::Relaxed);
        self.memory.store(config.memory.get(), Ordering::Relaxed);
    }
}

/// Reads the status of an agent.
pub struct AgentStatusReader<F> {
    report: F,
    limits: Arc<AgentLimits>,
    start: Start,
    /// The last answer. Totals must not decrease because the agent does not answer.
    last: Report,
}

impl<F> AgentStatusReader<F>
where
    F: FnMut(usize) -> Option<Report> + Send + 'static,
{
    /// A reader for an agent that starts now. `report` asks it, and waits at most two seconds for
    /// the answer. Its argument is how many flows to describe. It returns `None` if the agent does
    /// not answer.
    #[must_use]
    pub fn new(report: F, limits: Arc<AgentLimits>) -> Self {
        Self { report, limits, start: Start::now(), last: Report::default() }
    }
}

impl<F> fmt::Debug for AgentStatusReader<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentStatusReader").field("last", &self.last).finish_non_exhaustive()
    }
}

impl<F> StatusSource for AgentStatusReader<F>
where
    F: FnMut(usize) -> Option<Report> + Send + 'static,
{
    type Status = AgentStatus;

    fn read(&mut self, rows: usize) -> AgentStatus {
        let answer = (self.report)(rows);
        let answering = answer.is_some();
        if let Some(report) = answer {
            self.last = report;
        }
        let mut report = self.last.clone();
        report.flows.truncate(rows);
        AgentStatus {
            program: AgentStatus::PROGRAM.name.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.start.wall,
            uptime: self.start.uptime(),
            answering,
            flows_max: self.limits.max_flows.load(Ordering::Relaxed),
            memory_max: self.limits.memory.load(Ordering::Relaxed),
            report,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::agent::report::{FlowReport, Totals};
    use crate::monitor::interface::InterfaceReport;
    use crate::size::Size;

    /// An ordinary status, except for a name that needs escapes.
    pub(crate) fn example() -> AgentStatus {
        let helped = FlowReport {
            source: "10.0.0.2:4000".parse().unwrap(),
            destination: "192.0.2.1:443".parse().unwrap(),
            interface: "wlan0".to_owned(),
            kind: "QUIC".to_owned(),
            state: "helped".to_owned(),
            arrivals: "no numbers".to_owned(),
            assisted: true,
            proxy: "198.51.100.1:5252".parse().ok(),
            proxy_key: Some("ab".repeat(32)),
            near_rtt_ms: Some(3.21),
            near_rtt_most_ms: Some(5.125),
            rtt_ms: Some(41.0),
            sent: 700,
            lost: 30,
            resent: 28,
            missed: 4,
            delivered: 3,
            last_packet_ago: 0.01,
        };
        let alone = FlowReport {
            source: "[fd00::2]:9".parse().unwrap(),
            destination: "[2001:db8::1]:443".parse().unwrap(),
            kind: "UDP".to_owned(),
            state: "no proxy".to_owned(),
            assisted: false,
            proxy: None,
            proxy_key: None,
            near_rtt_ms: None,
            rtt_ms: None,
            sent: 0,
            lost: 0,
            resent: 0,
            missed: 0,
            delivered: 0,
            last_packet_ago: 2.5,
            ..helped.clone()
        };
        let totals = Totals {
            captured: 900,
            flows: 3,
            flows_assisted: 2,
            sent: 700,
            lost: 30,
            resent: 28,
            withheld_far: 2,
            ..Totals::default()
        };
        let wlan0 = InterfaceReport {
            name: "wlan0".to_owned(),
            backend: Some("ring".to_owned()),
            up: true,
            captured: 900,
            dropped: 0,
        };
        let gone = InterfaceReport { name: "a\"b\\c".to_owned(), ..InterfaceReport::default() };
        AgentStatus {
            program: AgentStatus::PROGRAM.name.to_owned(),
            version: "1.2.3".to_owned(),
            started: 1_700_000_000.25,
            uptime: 3_690,
            answering: true,
            flows_max: 256,
            memory_max: 32 << 20,
            report: Report {
                tun: Some("sidekick0".to_owned()),
                tun_off: false,
                totals,
                flows_open: 3,
                flows_assisted: 2,
                memory_bytes: (1 << 16) - 7,
                interfaces: vec![wlan0, gone],
                flows: vec![helped, alone],
            },
        }
    }

    #[test]
    fn complaints_name_the_cause() {
        let well = example();
        assert_eq!(well.complaint(), None);
        let mut silent = well.clone();
        silent.answering = false;
        assert_eq!(silent.complaint().unwrap(), "the agent does not answer: restart it");
        let mut down = well;
        down.report.interfaces[0].up = false;
        assert_eq!(down.complaint().unwrap(), "all interfaces are down: wlan0");
        down.report.interfaces[0].backend = None;
        assert_eq!(
            down.complaint().unwrap(),
            "the agent captures on no interface: there is no wlan0, a\"b\\c"
        );
    }

    #[test]
    fn json_keeps_the_whole_status() {
        let status = example();
        let text = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<AgentStatus>(&text).unwrap(), status);
        assert!(text.contains("\"totals\":{\"captured\":900,"), "{text}");
    }

    #[test]
    fn a_silent_agent_s_last_answer_stays() {
        let mut answers = vec![None, Some(example().report), None].into_iter();
        let limits = Arc::new(AgentLimits::of(&AgentConfig::default()));
        let mut reader = AgentStatusReader::new(move |_| answers.next()?, Arc::clone(&limits));
        let silent = reader.read(1);
        assert_eq!((silent.answering, &silent.report), (false, &Report::default()));
        assert_eq!((silent.flows_max, silent.memory_max), (256, 32 << 20));
        limits.set(&AgentConfig {
            max_flows: 7,
            memory: Size::mebibytes(3),
            ..AgentConfig::default()
        });
        let answered = reader.read(1);
        assert!(answered.answering);
        assert_eq!((answered.flows_max, answered.memory_max), (7, 3 << 20));
        assert_eq!(answered.report.flows, example().report.flows[..1], "as many as requested");
        let last = reader.read(0);
        assert_eq!((last.answering, last.report.totals), (false, example().report.totals));
        assert!(last.report.flows.is_empty());
    }
}
