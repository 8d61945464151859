//! The pages of the agent: metrics, health and status, and the command that shows them.

use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use crate::common::{agent, get, number, page_until, ran};
use serde_json::Value;
use sidekick_proxy::testing::agent::{
    AgentStatusReader, FlowReport, InterfaceReport, Report, Totals,
};
use sidekick_proxy::testing::serve;

/// The report of an agent with this many flows, with all of them.
fn report(flows: u16) -> Report {
    let flow = |port| FlowReport {
        source: ([10, 0, 0, 2], port).into(),
        destination: ([192, 0, 2, 1], 443).into(),
        interface: "wlan0".to_owned(),
        kind: "QUIC".to_owned(),
        state: "helped".to_owned(),
        arrivals: "no numbers".to_owned(),
        assisted: true,
        proxy: "198.51.100.1:5252".parse().ok(),
        proxy_key: Some("ab".repeat(32)),
        near_rtt_ms: Some(2.5),
        near_rtt_most_ms: Some(10.0),
        rtt_ms: None,
        sent: 100,
        lost: 4,
        resent: 3,
        missed: 2,
        delivered: 1,
        last_packet_ago: 0.25,
    };
    Report {
        tun: Some("sidekick0".to_owned()),
        tun_off: false,
        totals: Totals { captured: 9000, resent: 180, ..Totals::default() },
        flows_max: 256,
        memory_max: 32 << 20,
        flows_open: flows.into(),
        flows_assisted: flows.into(),
        memory_bytes: 4096,
        interfaces: vec![InterfaceReport {
            name: "wlan0".to_owned(),
            backend: Some("ring".to_owned()),
            up: true,
            captured: 9000,
            dropped: 0,
        }],
        flows: (1..=flows).map(flow).collect(),
    }
}

#[test]
fn the_pages_and_the_command_show_what_the_agent_reports() {
    let answer = Arc::new(Mutex::new(Some(report(60))));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let answers = Arc::clone(&answer);
    let reader = AgentStatusReader::new(move |flows| {
        let mut report = answers.lock().unwrap().clone()?;
        report.flows.truncate(flows);
        Some(report)
    });
    serve(listener, reader).unwrap();

    let page = get(&at, "/metrics").2;
    for (series, value) in [
        ("sidekick_agent_packets_captured_total", 9000.0),
        ("sidekick_agent_packets_resent_total", 180.0),
        ("sidekick_agent_flows", 60.0),
        ("sidekick_agent_flows_max", 256.0),
        ("sidekick_agent_interface_up{interface=\"wlan0\"}", 1.0),
        ("sidekick_agent_answering", 1.0),
    ] {
        assert_eq!(number(&page, series), value, "{series}");
    }
    assert_eq!(get(&at, "/health").0, 200);
    let described = |path: &str| {
        let status: Value = serde_json::from_str(&get(&at, path).2).unwrap();
        status["flows"].as_array().unwrap().len()
    };
    assert_eq!(described("/status"), 50);
    assert_eq!(described("/status?flows=all"), 60);

    let shown = |flags: &str| {
        let (code, out, error) = ran(&mut agent(&format!("status --metrics {at} {flags}")));
        assert_eq!((code, error.as_str()), (Some(0), ""));
        out
    };
    let table = shown("");
    assert!(table.contains("wlan0      ring     up         9000        0\n"), "{table}");
    let flows =
        |table: &str| table.lines().filter(|line| line.starts_with("192.0.2.1:443")).count();
    assert_eq!(flows(&shown("--all")), 60);
    // An answer with all flows may be fresh enough to serve again.
    assert!([50, 60].contains(&flows(&table)), "{table}");
    let whole: Value = serde_json::from_str(&shown("--json --all")).unwrap();
    assert_eq!(whole["totals"]["resent"], 180);
    assert_eq!(whole["flows"][59]["near_rtt_ms"], 2.5);

    *answer.lock().unwrap() = None;
    page_until(&at, "/health", |status, said| {
        status == 503 && said == "the agent does not answer: restart it\n"
    });
    let page = get(&at, "/metrics").2;
    assert_eq!(number(&page, "sidekick_agent_packets_resent_total"), 180.0, "its last answer");
    assert_eq!(number(&page, "sidekick_agent_answering"), 0.0);
    assert!(shown("").contains("health      the agent does not answer: restart it\n"));
    let mut down = report(1);
    down.interfaces[0].up = false;
    *answer.lock().unwrap() = Some(down);
    page_until(&at, "/health", |status, said| {
        status == 503 && said == "all interfaces are down: wlan0\n"
    });
}
