//! The status of an agent in one value, and its pages. `/status` returns it as JSON.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::config::DEFAULT_METRICS;
use super::report::{FlowReport, OrderReport, Report, SecondUplinkReport, Totals};
use crate::monitor::exposition::{InterfaceCounter, Page};
use crate::monitor::subject::{
    AGENT, InterfaceReport, Origin, Program, ProgramStatus, Start, StatusSource,
    interfaces_complaint,
};
use crate::monitor::text::Sheet;
use crate::size::Size;

/// The status of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentStatus {
    /// The program, `sidekick-agent`.
    #[serde(flatten)]
    pub origin: Origin,
    /// Whether the agent answered. If not, this status has its last answer.
    pub answering: bool,
    /// The agent's report.
    #[serde(flatten)]
    pub report: Report,
}

/// After so many seconds without a captured packet, the interface may be the wrong one.
const SILENT: u64 = 60;

impl AgentStatus {
    /// A sentence if nothing leaves by the interfaces. An idle host is no fault, so this is none.
    fn silence(&self) -> Option<String> {
        let is_silent = self.origin.uptime >= SILENT && self.report.totals.captured == 0;
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
        let (mut page, report) = (Page::default(), &self.report);
        page.counters(Totals::COUNTERS, &report.totals);
        page.interfaces(&report.interfaces, &BY_INTERFACE, "sidekick_agent_interface_up", |of| of);
        page.gauge(
            "sidekick_agent_flows",
            "Flows that have enough packets to be helped.",
            report.flows_open,
        );
        page.gauge(
            "sidekick_agent_flows_with_proxy",
            "Flows that a proxy reports.",
            report.flows_assisted,
        );
        page.gauge("sidekick_agent_flows_max", "Most flows helped at once.", report.flows_max);
        page.gauge(
            "sidekick_agent_copies_bytes",
            "Copies of leaving packets, in bytes.",
            report.memory_bytes,
        );
        page.gauge(
            "sidekick_agent_copies_max_bytes",
            "Most bytes of these copies.",
            report.memory_max,
        );
        if let Some(second) = &report.second_uplink {
            page.gauge(
                "sidekick_agent_flows_with_second_uplink",
                "Flows whose proxy can be reached by the second uplink.",
                second.flows,
            );
            page.gauge(
                "sidekick_agent_flows_carried",
                "Flows that the second uplink carries, because the first is silent.",
                second.carried,
            );
            page.gauge(
                "sidekick_agent_carry_left_bytes",
                "Bytes of flows that the second uplink may still carry.",
                second.carry_left,
            );
        }
        if let Some(order) = &report.order {
            page.gauge(
                "sidekick_agent_arrivals_waiting",
                "Arriving packets that wait for those before them.",
                order.waiting,
            );
            let quantiles = [("0.5", order.held_p50_ms), ("0.99", order.held_p99_ms)];
            page.summary(
                "sidekick_agent_hold_seconds",
                "How long packets waited that did, since the start.",
                quantiles.map(|(share, ms)| (share, ms.map(|ms| ms / 1e3))),
                (order.held_s, order.held),
            );
        }
        page.gauge(
            "sidekick_agent_answering",
            "Whether the agent answered the last request for a report.",
            u8::from(self.answering),
        );
        page.finish("sidekick_agent_build_info", &self.origin, resident)
    }

    /// A sentence about what prevents the agent from helping, or hides whether it helps.
    fn complaint(&self) -> Option<String> {
        if !self.answering {
            return Some("the agent does not answer: restart it".to_owned());
        }
        interfaces_complaint(Self::PROGRAM.what, self.report.interfaces.iter())
    }

    fn show(&self) -> String {
        let (mut sheet, report) = (Sheet::of(&self.origin), &self.report);
        sheet.say("health", self.complaint().as_deref().unwrap_or("ok"));
        if let Some(silence) = self.silence() {
            sheet.say("interface", silence);
        }
        sheet.say("totals", report.totals);
        let (open, assisted) = (report.flows_open, report.flows_assisted);
        let most = report.flows_max;
        sheet.say("flows", format!("{open} open, {assisted} with a proxy, {most} at most"));
        // In whole kibibytes: people do not need the exact number of bytes.
        let held = Size::bytes(report.memory_bytes.next_multiple_of(1024));
        let most = Size::bytes(report.memory_max);
        sheet.say("copies", format!("{held}, {most} at most"));
        let arrivals = match &report.tun {
            Some(name) => format!("copies by way of {name}, of flows that the last column names"),
            None if report.tun_off => "not helped: turned off (tun = \"off\")".to_owned(),
            None => "not helped: there is no TUN device".to_owned(),
        };
        sheet.say("arrivals", arrivals);
        report.order.iter().for_each(|order| sheet.say("order", in_order(order, &report.totals)));
        let second = report.second_uplink.iter();
        second.for_each(|second| sheet.say("uplink 2", by_second(second, &report.totals)));
        sheet.interfaces(report.interfaces.iter());
        // Each once. The table of flows has no room for their keys.
        let known = |flow: &FlowReport| Some((flow.proxy?, flow.proxy_key.clone()?));
        let proxies: BTreeSet<_> = report.flows.iter().filter_map(known).collect();
        if !proxies.is_empty() {
            let rows = proxies.into_iter().map(|(address, key)| vec![address.to_string(), key]);
            sheet.table(&["proxy", "public key"], "ll", rows);
        }
        let rows = report.flows.iter().map(row);
        sheet.rows(Self::PROGRAM, &HEADINGS, "llllrrrrrrrrll", rows, report.flows_open);
        sheet.finish()
    }
}

/// What arrives in order, for people.
fn in_order(order: &OrderReport, totals: &Totals) -> String {
    if let Some(why) = &order.fault {
        return format!("nothing waits: {why}");
    }
    let OrderReport { waiting, arrived, held, .. } = order;
    let times = order.held_p50_ms.zip(order.held_p99_ms).map_or_else(String::new, |(p50, p99)| {
        format!(", half of them at most {p50:.1} ms and 99 of 100 at most {p99:.1} ms")
    });
    let Totals { in_order, given_up, .. } = totals;
    format!(
        "{waiting} wait now; of {arrived} that arrived, {held} waited{times}; copies in order \
         {in_order}, given up {given_up}"
    )
}

/// The second uplink, for people.
fn by_second(second: &SecondUplinkReport, totals: &Totals) -> String {
    let SecondUplinkReport { interface, is_there, flows, carried, carry_left } = second;
    if !is_there {
        return format!("there is no interface {interface} now");
    }
    let (relayed, sent) = (totals.relayed, Size::bytes(totals.second_uplink_bytes & !1023));
    let left = Size::bytes(carry_left & !1023);
    format!(
        "{interface}, to the proxies of {flows} flows, carries {carried} of them now; \
         {relayed} packets relayed, {sent} sent, {left} left to carry"
    )
}

const BY_INTERFACE: [InterfaceCounter<InterfaceReport>; 2] = [
    (
        "sidekick_agent_interface_packets_captured_total",
        "Leaving UDP datagrams captured on the interface.",
        |of| of.captured,
    ),
    (
        "sidekick_agent_interface_packets_dropped_total",
        "Packets of the interface that the kernel had no room for.",
        |of| of.dropped,
    ),
];

/// The headings of [`row`].
const HEADINGS: [&str; 14] = [
    "destination",
    "source",
    "kind",
    "proxy",
    "near RTT",
    "RTT",
    "sent",
    "lost",
    "resent",
    "missed",
    "delivered",
    "packet",
    "leaving",
    "arriving",
];

/// A flow for people.
fn row(flow: &FlowReport) -> Vec<String> {
    let time = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
    vec![
        flow.destination.to_string(),
        flow.source.to_string(),
        flow.kind.clone(),
        flow.proxy.map_or_else(|| "-".to_owned(), |proxy| proxy.to_string()),
        time(flow.near_rtt_ms),
        time(flow.rtt_ms),
        flow.sent.to_string(),
        flow.lost.to_string(),
        flow.resent.to_string(),
        flow.missed.to_string(),
        flow.delivered.to_string(),
        format!("{:.1}s ago", flow.last_packet_ago),
        flow.state.clone(),
        flow.arrivals.clone(),
    ]
}

pub(crate) struct AgentStatusReader<F> {
    report: F,
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
    pub(crate) fn new(report: F) -> Self {
        Self { report, start: Start::now(), last: Report::default() }
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
        AgentStatus { origin: self.start.origin(AgentStatus::PROGRAM), answering, report }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::monitor::ask::ask;
    use crate::monitor::exposition::tests::parse;
    use crate::monitor::server::serve;
    use std::net::TcpListener;
    use std::sync::{Arc, Mutex};

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
            in_order: 25,
            given_up: 1,
            relayed: 7,
            second_uplink_bytes: 9000,
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
            origin: Origin {
                program: AgentStatus::PROGRAM.name.to_owned(),
                version: "1.2.3".to_owned(),
                started: 1_700_000_000.25,
                uptime: 3_690,
            },
            answering: true,
            report: Report {
                tun: Some("sidekick0".to_owned()),
                tun_off: false,
                order: Some(OrderReport {
                    fault: None,
                    waiting: 3,
                    arrived: 1200,
                    held: 900,
                    held_p50_ms: Some(0.5),
                    held_p99_ms: Some(5.25),
                    held_s: 0.75,
                }),
                second_uplink: Some(SecondUplinkReport {
                    interface: "wwan0".to_owned(),
                    is_there: true,
                    flows: 2,
                    carried: 1,
                    carry_left: (1 << 30) - 1,
                }),
                totals,
                flows_max: 256,
                memory_max: 32 << 20,
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

    /// A silent agent's last answer stays.
    #[test]
    fn the_command_shows_what_the_agent_answers_last() {
        let flow = |port| FlowReport { sent: port, ..example().report.flows[0].clone() };
        let flows = (1..=60).map(flow).collect();
        let answer = Arc::new(Mutex::new(Some(Report { flows, ..example().report })));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let at = listener.local_addr().unwrap();
        let answers = Arc::clone(&answer);
        serve(listener, AgentStatusReader::new(move |_| answers.lock().unwrap().clone())).unwrap();
        let status = ask::<AgentStatus>(at, false).unwrap().1;
        assert_eq!(status.report.flows.len(), 50);
        let (json, status) = ask::<AgentStatus>(at, true).unwrap();
        assert_eq!((status.report.flows.len(), status.complaint()), (60, None));
        assert!(json.contains("\"sent\":60,"), "{json}");
        *answer.lock().unwrap() = None;
        let silent = loop {
            // An earlier answer may be fresh.
            let status = ask::<AgentStatus>(at, false).unwrap().1;
            if !status.answering {
                break status;
            }
        };
        assert_eq!(silent.report.totals, example().report.totals);
        assert!(silent.show().contains("health      the agent does not answer: restart it\n"));
    }

    #[test]
    fn an_agent_that_never_answered_has_no_report() {
        let mut reader = AgentStatusReader::new(|_| None);
        let silent = reader.read(1);
        assert_eq!((silent.answering, silent.report), (false, Report::default()));
    }

    #[test]
    fn every_metric_is_of_the_format() {
        let series = parse(&example().metrics(Some(4096)));
        let captured = "sidekick_agent_interface_packets_captured_total";
        let up = "sidekick_agent_interface_up";
        let held = "sidekick_agent_hold_seconds";
        let samples: [(_, &[(&str, &str)], _); 21] = [
            ("sidekick_agent_flows_with_second_uplink", &[], 2.0),
            ("sidekick_agent_flows_carried", &[], 1.0),
            ("sidekick_agent_carry_left_bytes", &[], 1_073_741_823.0),
            ("sidekick_agent_arrivals_waiting", &[], 3.0),
            (held, &[("quantile", "0.5")], 0.0005),
            (held, &[("quantile", "0.99")], 0.00525),
            ("sidekick_agent_hold_seconds_sum", &[], 0.75),
            ("sidekick_agent_hold_seconds_count", &[], 900.0),
            (captured, &[("interface", "wlan0"), ("backend", "ring")], 900.0),
            (up, &[("interface", "wlan0")], 1.0),
            (up, &[("interface", "a\"b\\c")], 0.0),
            ("sidekick_agent_packets_lost_total", &[], 30.0),
            ("sidekick_agent_flows", &[], 3.0),
            ("sidekick_agent_flows_with_proxy", &[], 2.0),
            ("sidekick_agent_flows_max", &[], 256.0),
            ("sidekick_agent_copies_bytes", &[], 65_529.0),
            ("sidekick_agent_copies_max_bytes", &[], f64::from(32 << 20)),
            ("sidekick_agent_answering", &[], 1.0),
            ("sidekick_agent_build_info", &[("version", "1.2.3")], 1.0),
            ("process_start_time_seconds", &[], 1_700_000_000.25),
            ("process_resident_memory_bytes", &[], 4096.0),
        ];
        for (name, labels, number) in samples {
            assert_eq!(series.number(name, labels), Some(number), "{name} {labels:?}");
        }
    }

    #[test]
    fn a_silent_interface_is_named() {
        let mut status = example();
        status.report.totals.captured = 0;
        for (uptime, is_named) in [(59, false), (60, true)] {
            status.origin.uptime = uptime;
            let named = status.show().contains("interface   no UDP packet has left by wlan0, ");
            assert_eq!(named, is_named, "{uptime}");
        }
    }

    #[test]
    fn the_order_says_why_nothing_waits() {
        let mut status = example();
        let order = status.report.order.as_mut().unwrap();
        (order.held, order.held_p50_ms, order.held_p99_ms) = (0, None, None);
        assert!(status.show().contains("order       3 wait now; of 1200 that arrived, 0 waited; "));
        assert!(
            status.metrics(None).contains("sidekick_agent_hold_seconds{quantile=\"0.5\"} NaN\n")
        );
        status.report.order.as_mut().unwrap().fault = Some("no queue".to_owned());
        assert!(status.show().contains("order       nothing waits: no queue\n"));
        status.report.order = None;
        assert!(!status.show().contains("order  "));
    }

    #[test]
    fn a_second_uplink_that_is_gone_is_named() {
        let mut status = example();
        let second = status.report.second_uplink.as_mut().unwrap();
        second.is_there = false;
        assert!(status.show().contains("uplink 2    there is no interface wwan0 now\n"));
        status.report.second_uplink = None;
        assert!(!status.show().contains("uplink 2"));
    }

    #[test]
    fn columns_are_aligned() {
        let mut status = example();
        status.report.flows[1].state = "far\x1b[2J".to_owned();
        let expected = "\
sidekick-agent 1.2.3, up 1 h 1 min
health      ok
totals      captured 900, flows 3, assisted 2, sent 700, lost 30, resent 28, relayed 7, too far 2, in order 25, given up 1
flows       3 open, 2 with a proxy, 256 at most
copies      64K, 32M at most
arrivals    copies by way of sidekick0, of flows that the last column names
order       3 wait now; of 1200 that arrived, 900 waited, half of them at most 0.5 ms and 99 of 100 at most 5.2 ms; copies in order 25, given up 1
uplink 2    wwan0, to the proxies of 2 flows, carries 1 of them now; 7 packets relayed, 8K sent, 1048575K left to carry

interface  backend  state  captured  dropped
wlan0      ring     up          900        0
a\"b\\c      -        gone          0        0

proxy              public key
198.51.100.1:5252  abababababababababababababababababababababababababababababababab

destination        source         kind  proxy              near RTT      RTT  sent  lost  resent  missed  delivered    packet  leaving  arriving
192.0.2.1:443      10.0.0.2:4000  QUIC  198.51.100.1:5252    3.2 ms  41.0 ms   700    30      28       4          3  0.0s ago  helped   no numbers
[2001:db8::1]:443  [fd00::2]:9    UDP   -                         -        -     0     0       0       0          0  2.5s ago  far?[2J  no numbers
and 1 more flows (--all shows them)
";
        assert_eq!(status.show(), expected);
    }
}
