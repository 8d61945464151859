//! The agent's metrics.

use super::report::Totals;
use super::status::AgentStatus;
use crate::monitor::exposition::{InterfaceCounter, Page};
use crate::monitor::interface::InterfaceReport;

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

/// The metrics of a status. `resident`: the resident memory of the process in bytes, if known.
#[must_use]
pub fn text(status: &AgentStatus, resident: Option<u64>) -> String {
    let (mut page, report) = (Page::default(), &status.report);
    page.counters(Totals::COUNTERS, &report.totals);
    page.interfaces(&report.interfaces, &BY_INTERFACE, "sidekick_agent_interface_up", |of| of);
    let mut gauge = |name, help, number: u64| page.one(name, "gauge", help, number);
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    gauge(
        "sidekick_agent_flows",
        "Flows that have enough packets to be helped.",
        count(report.flows_open),
    );
    gauge(
        "sidekick_agent_flows_with_proxy",
        "Flows that a proxy reports.",
        count(report.flows_assisted),
    );
    gauge("sidekick_agent_flows_max", "Most flows helped at once.", status.flows_max);
    gauge(
        "sidekick_agent_copies_bytes",
        "Copies of leaving packets, in bytes.",
        report.memory_bytes,
    );
    gauge("sidekick_agent_copies_max_bytes", "Most bytes of these copies.", status.memory_max);
    gauge(
        "sidekick_agent_answering",
        "Whether the agent answered the last request for a report.",
        status.answering.into(),
    );
    let name = "sidekick_agent_build_info";
    page.family(name, "gauge", "The version of the program; always 1.");
    page.sample(name, &[("version", &status.version)], 1);
    page.finish(status.started, resident)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::status::tests::example;
    use crate::monitor::exposition::tests::parse;

    #[test]
    fn every_line_is_of_the_format() {
        let series = parse(&text(&example(), Some(4096)));
        let number = |name: &str, labels: &[(&str, &str)]| {
            let labels =
                labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            series.get(&(name.to_owned(), labels.collect())).copied()
        };
        let captured = "sidekick_agent_interface_packets_captured_total";
        assert_eq!(number(captured, &[("interface", "wlan0"), ("backend", "ring")]), Some(900.0));
        let up = "sidekick_agent_interface_up";
        assert_eq!(number(up, &[("interface", "wlan0")]), Some(1.0));
        assert_eq!(number(up, &[("interface", "a\"b\\c")]), Some(0.0));
        for (name, value) in [
            ("sidekick_agent_packets_lost_total", 30.0),
            ("sidekick_agent_flows", 3.0),
            ("sidekick_agent_flows_with_proxy", 2.0),
            ("sidekick_agent_flows_max", 256.0),
            ("sidekick_agent_copies_bytes", 65_529.0),
            ("sidekick_agent_copies_max_bytes", f64::from(32 << 20)),
            ("sidekick_agent_answering", 1.0),
            ("process_start_time_seconds", 1_700_000_000.25),
            ("process_resident_memory_bytes", 4096.0),
        ] {
            assert_eq!(number(name, &[]), Some(value), "{name}");
        }
        assert_eq!(number("sidekick_agent_build_info", &[("version", "1.2.3")]), Some(1.0));
    }
}
