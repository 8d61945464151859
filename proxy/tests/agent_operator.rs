//! The agent's program as its operator sees it: the command line, files, metrics and the status.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use common::{PATIENCE, get, number};
use serde_json::Value;
use sidekick_proxy::AgentConfig;
use sidekick_proxy::testing::agent::{
    AgentLimits, AgentStatusReader, FlowReport, InterfaceReport, Report, Totals,
};
use sidekick_proxy::testing::serve;

/// Runs the agent with these arguments. Returns its exit status, stdout and stderr.
fn agent(line: &str) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_sidekick-agent"))
        .args(line.split_whitespace())
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// The report of an agent with this many flows, with all of them.
fn report(flows: u16) -> Report {
    let flow = |port| FlowReport {
        source: ([10, 0, 0, 2], port).into(),
        destination: ([192, 0, 2, 1], 443).into(),
        interface: "wlan0".to_owned(),
        kind: "QUIC".to_owned(),
        state: "helped".to_owned(),
        assisted: true,
        proxy: "198.51.100.1:5252".parse().ok(),
        proxy_key: Some("ab".repeat(32)),
        near_rtt_ms: Some(2.5),
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

/// Requests a page until its status and text are as wanted.
#[allow(clippy::disallowed_methods, reason = "a failing test must end")]
fn until(at: &str, path: &str, wanted: impl Fn(u16, &str) -> bool) {
    let begun = Instant::now();
    loop {
        let (status, _, body) = get(at, path);
        if wanted(status, &body) {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{path} is still {status}: {body}");
    }
}

#[test]
fn the_pages_and_the_command_show_what_the_agent_reports() {
    let answer = Arc::new(Mutex::new(Some(report(60))));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let answers = Arc::clone(&answer);
    let limits = Arc::new(AgentLimits::of(&AgentConfig::default()));
    let reader = AgentStatusReader::new(
        move |flows| {
            let mut report = answers.lock().unwrap().clone()?;
            report.flows.truncate(flows);
            Some(report)
        },
        limits,
    );
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
        let (code, out, error) = agent(&format!("status --metrics {at} {flags}"));
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
    until(&at, "/health", |status, said| {
        status == 503 && said == "the agent does not answer: restart it\n"
    });
    let page = get(&at, "/metrics").2;
    assert_eq!(number(&page, "sidekick_agent_packets_resent_total"), 180.0, "its last answer");
    assert_eq!(number(&page, "sidekick_agent_answering"), 0.0);
    assert!(shown("").contains("health      the agent does not answer: restart it\n"));
    let mut down = report(1);
    down.interfaces[0].up = false;
    *answer.lock().unwrap() = Some(down);
    until(&at, "/health", |status, said| {
        status == 503 && said == "all interfaces are down: wlan0\n"
    });
}

#[test]
fn without_an_agent_the_status_command_names_a_remedy() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent.toml").display().to_string();
    for (file, said) in [
        (format!("metrics = \"{free}\""), format!("no agent answers at {free}: start it")),
        (
            "metrics = \"off\"".to_owned(),
            format!("{path} has metrics off: its agent has no status to show"),
        ),
        ("metric = \"off\"".to_owned(), "did you mean metrics?".to_owned()),
    ] {
        std::fs::write(&path, file).unwrap();
        let (code, out, error) = agent(&format!("status --config {path}"));
        assert_eq!((code, out.as_str(), error.lines().count()), (Some(1), "", 1), "{error}");
        assert!(error.starts_with("sidekick-agent: ") && error.contains(&said), "{error}");
    }
}

#[test]
fn nonsense_on_the_command_line_is_refused() {
    for (line, complaint) in [
        ("-i lo --bogus", "--bogus"),
        ("", "no interface to help on: name one with --interface IF"),
        ("-i lo --only https", "expected a port like 443"),
        ("-i lo --only 10.0.0.1/8", "write 10.0.0.0/8"),
        ("-i lo --proxy 192.0.2.1", "add a port to it, like 192.0.2.1:5252"),
        (
            "-i lo --max-flows 3 --buffer 9 --memory 2M --idle-timeout 5 --min-packets 9 \
             --capture ring --metrics off --proxy 192.0.2.1:5252 --bogus",
            "--bogus",
        ),
    ] {
        let (code, out, error) = agent(line);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{line}");
        assert!(error.contains(complaint), "{error}");
        assert!(error.lines().count() <= 6, "a long usage hides the error: {error}");
    }
}

#[test]
fn check_reads_a_file_and_starts_nothing() {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/sidekick-agent.toml");
    let (code, out, remarks) = agent(&format!("check {sample}"));
    assert_eq!(code, Some(0));
    let first = "interfaces = [\"wlan0\"]\ntun = \"sidekick0\"\nonly = []\nexcept = []\n";
    assert!(out.starts_with(first), "{out}");
    assert!(remarks.is_empty() || remarks.contains("there is no interface wlan0"), "{remarks}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent.toml").display().to_string();
    for (text, code, said) in [
        ("interfaces = [\"nonesuch0\"]\n", 0, "there is no interface nonesuch0"),
        ("log = \"info\"\n", 1, "no interface to help on"),
        ("interfaces = []\n", 1, "interfaces = [\"IF\"]"),
        ("interfaces = [\"lo\"]\nmemory = \"1024G\"\n", 0, "reduce buffer, memory or max-flows"),
        (
            "interfaces = [\"lo\"]\nonly = [443, 80]\nexcept = [80]\n",
            0,
            "80 is both in only and in except",
        ),
        (
            "interfaces = [\"lo\"]\nmetrics = \"192.0.2.1:9253\"\n",
            0,
            "metrics: 192.0.2.1 is not an address of this machine now",
        ),
        (
            "interfaces = [\"lo\"]\nproxy = \"127.0.0.1:5252\"\n",
            0,
            "proxy: 127.0.0.1 is an address of this machine",
        ),
    ] {
        std::fs::write(&path, text).unwrap();
        let (checked, out, error) = agent(&format!("check {path}"));
        assert_eq!(checked, Some(code), "{text}{error}");
        assert!(out.contains("max-flows = 256\n"), "{out}");
        assert!(error.contains(said) && error.contains(&path), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
