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
    for (name, help, number) in totals(&report.totals) {
        page.one(name, "counter", help, number);
    }
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

/// The totals since the start: name, help and number of each. The pattern names every field, so a
/// new field does not compile until it is here.
fn totals(totals: &Totals) -> [(&'static str, &'static str, u64); 33] {
    let Totals {
        captured,
        captured_bytes,
        seen_twice,
        arrived,
        flows,
        flows_refused,
        forgotten,
        left,
        flows_assisted,
        sent,
        lost,
        turned_up,
        resent,
        resent_bytes,
        withheld_congested,
        withheld_far,
        withheld_late,
        missed,
        copies_withheld,
        copies_requested,
        copies_received,
        delivered,
        quacks,
        markers,
        messages,
        message_bytes,
        malformed,
        malformed_frames,
        fragments,
        merged_split,
        merged_unsplit,
        capture_drops,
        unsent,
    } = *totals;
    [
        (
            "sidekick_agent_packets_captured_total",
            "Leaving UDP datagrams captured, of any flow.",
            captured,
        ),
        ("sidekick_agent_captured_bytes_total", "Bytes of these datagrams.", captured_bytes),
        (
            "sidekick_agent_packets_seen_twice_total",
            "Of these, datagrams ignored because their flow's own interface shows them, too.",
            seen_twice,
        ),
        ("sidekick_agent_packets_arrived_total", "Arriving UDP datagrams captured.", arrived),
        ("sidekick_agent_flows_opened_total", "Flows that had enough packets to be helped.", flows),
        (
            "sidekick_agent_flows_refused_total",
            "Flows not helped because the agent had as many as it may.",
            flows_refused,
        ),
        (
            "sidekick_agent_flows_forgotten_total",
            "Flows forgotten before they had enough packets to be helped, because there were too \
             many.",
            forgotten,
        ),
        (
            "sidekick_agent_flows_left_total",
            "Flows not helped because their programs may not bear it.",
            left,
        ),
        (
            "sidekick_agent_flows_assisted_total",
            "Flows that a proxy reported at least once.",
            flows_assisted,
        ),
        (
            "sidekick_agent_packets_sent_total",
            "Datagrams of the opened flows, with and without a proxy.",
            sent,
        ),
        (
            "sidekick_agent_packets_lost_total",
            "Losses of these datagrams before the proxy, also of those sent again.",
            lost,
        ),
        (
            "sidekick_agent_losses_turned_up_total",
            "Of these, datagrams that the proxy reported later: they were overtaken.",
            turned_up,
        ),
        ("sidekick_agent_packets_resent_total", "Datagrams sent again.", resent),
        ("sidekick_agent_resent_bytes_total", "Bytes of the datagrams sent again.", resent_bytes),
        (
            "sidekick_agent_resends_withheld_congested_total",
            "Lost datagrams not sent again, because a queue grew before the proxy.",
            withheld_congested,
        ),
        (
            "sidekick_agent_resends_withheld_far_total",
            "Lost datagrams not sent again, because the proxy is too far away for their flow, or \
             the near RTT is not measured yet.",
            withheld_far,
        ),
        (
            "sidekick_agent_resends_withheld_late_total",
            "Lost datagrams not sent again, because they were too old or too many.",
            withheld_late,
        ),
        (
            "sidekick_agent_arrivals_missed_total",
            "Numbers missing among arriving datagrams of flows that show their numbers.",
            missed,
        ),
        (
            "sidekick_agent_copies_withheld_total",
            "Of these, numbers of which no copy was requested, because their loss is congestion.",
            copies_withheld,
        ),
        (
            "sidekick_agent_copies_requested_total",
            "Ranges of datagrams that were requested of proxies.",
            copies_requested,
        ),
        ("sidekick_agent_copies_received_total", "Copies that proxies sent.", copies_received),
        (
            "sidekick_agent_copies_delivered_total",
            "Copies handed to this host, because it lacked them.",
            delivered,
        ),
        ("sidekick_agent_quacks_processed_total", "quACKs processed.", quacks),
        ("sidekick_agent_markers_sent_total", "Markers sent.", markers),
        ("sidekick_agent_messages_sent_total", "Messages to proxies sent.", messages),
        (
            "sidekick_agent_messages_sent_bytes_total",
            "Bytes of these messages, without UDP and IP headers.",
            message_bytes,
        ),
        (
            "sidekick_agent_messages_malformed_total",
            "Datagrams at the agent's port, and answers on a flow's path, that were no message of a \
             proxy of its flows.",
            malformed,
        ),
        (
            "sidekick_agent_frames_malformed_total",
            "Captured frames with headers that contradict themselves.",
            malformed_frames,
        ),
        (
            "sidekick_agent_fragments_captured_total",
            "Captured IP fragments of UDP datagrams, which get no help.",
            fragments,
        ),
        (
            "sidekick_agent_merged_frames_split_total",
            "Merged frames that the agent split into their datagrams.",
            merged_split,
        ),
        (
            "sidekick_agent_merged_frames_unsplit_total",
            "Merged frames that this kernel cannot describe.",
            merged_unsplit,
        ),
        (
            "sidekick_agent_packets_dropped_total",
            "Packets that the kernel had no room for.",
            capture_drops,
        ),
        ("sidekick_agent_packets_unsent_total", "Packets that the system did not accept.", unsent),
    ]
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

    /// Gives each total a number of its own, and finds each under a name of its own.
    #[test]
    fn every_total_has_its_own_metric() {
        let fields = serde_json::to_value(Totals::default()).unwrap();
        let numbers = (101_u64..).map(serde_json::Value::from);
        let fields: serde_json::Map<_, _> =
            fields.as_object().unwrap().keys().cloned().zip(numbers).collect();
        let mut status = example();
        status.report.totals = serde_json::from_value(fields.clone().into()).unwrap();
        let series = parse(&text(&status, None));
        for (field, number) in fields {
            let number = u32::try_from(number.as_u64().unwrap()).unwrap();
            let of = series
                .iter()
                .filter(|((_, labels), value)| labels.is_empty() && **value == f64::from(number));
            assert_eq!(of.count(), 1, "{field}");
        }
    }
}
