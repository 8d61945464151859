//! The status of an agent as text for people.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::report::FlowReport;
use super::status::AgentStatus;
use crate::monitor::interface::interface_table;
use crate::monitor::subject::ProgramStatus;
use crate::monitor::text::{duration, harmless, table};
use crate::size::Size;

/// The status as text for people.
pub(super) fn show(status: &AgentStatus) -> String {
    let mut text = format!("sidekick-agent {}, up {}\n", status.version, duration(status.uptime));
    let report = &status.report;
    let mut say = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<12}{value}");
    };
    say("health", status.complaint().unwrap_or_else(|| "ok".to_owned()));
    if let Some(silence) = status.silence() {
        say("interface", silence);
    }
    say("totals", report.totals.to_string());
    say(
        "flows",
        format!(
            "{} open, {} with a proxy, {} at most",
            report.flows_open, report.flows_assisted, status.flows_max
        ),
    );
    // In whole kibibytes: people do not need the exact number of bytes.
    let held = Size::bytes(report.memory_bytes.next_multiple_of(1024));
    let most = Size::bytes(status.memory_max);
    say("copies", format!("{held}, {most} at most"));
    let arrivals = match &report.tun {
        Some(name) => format!("copies by way of {name}, of flows that the last column names"),
        None if report.tun_off => "not helped: turned off (tun = \"off\")".to_owned(),
        None => "not helped: there is no TUN device".to_owned(),
    };
    say("arrivals", arrivals);
    text += "\n";
    text += &interface_table(report.interfaces.iter());
    text += &proxies(&report.flows);
    if !report.flows.is_empty() {
        let headings = [
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
        text += "\n";
        text += &table(&headings, "llllrrrrrrrrll", report.flows.iter().map(row));
        let more = report.flows_open.saturating_sub(report.flows.len());
        if more > 0 {
            let _ = writeln!(text, "and {more} more flows (--all shows them)");
        }
    }
    harmless(&text)
}

/// A table of the proxies of these flows, each once. The table of flows has no room for their keys.
fn proxies(flows: &[FlowReport]) -> String {
    let proxies: BTreeSet<_> =
        flows.iter().filter_map(|flow| Some((flow.proxy?, flow.proxy_key.as_deref()?))).collect();
    if proxies.is_empty() {
        return String::new();
    }
    let rows = proxies.iter().map(|(address, key)| vec![address.to_string(), (*key).to_owned()]);
    format!("\n{}", table(&["proxy", "public key"], "ll", rows))
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::status::tests::example;

    #[test]
    fn a_silent_interface_is_named() {
        let mut status = example();
        status.report.totals.captured = 0;
        for (uptime, is_named) in [(59, false), (60, true)] {
            status.uptime = uptime;
            let named = show(&status).contains("interface   no UDP packet has left by wlan0, ");
            assert_eq!(named, is_named, "{uptime}");
        }
    }

    #[test]
    fn columns_are_aligned() {
        let mut status = example();
        status.report.flows[1].state = "far\x1b[2J".to_owned();
        let expected = "\
sidekick-agent 1.2.3, up 1 h 1 min
health      ok
totals      captured 900, flows 3, assisted 2, sent 700, lost 30, resent 28, too far 2
flows       3 open, 2 with a proxy, 256 at most
copies      64K, 32M at most
arrivals    copies by way of sidekick0, of flows that the last column names

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
        assert_eq!(show(&status), expected);
    }
}
