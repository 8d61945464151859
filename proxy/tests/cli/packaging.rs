//! The packaged alerts and dashboards name only metrics that exist. The units grant what the
//! programs need, and no more.

#[path = "../../examples/man-pages.rs"]
#[allow(dead_code, reason = "the example has a main function")]
mod man_pages;

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use super::reference::{agent_metrics, proxy_metrics};

/// A program with what is packaged for it.
struct Packaged {
    alerts: &'static str,
    dashboard: &'static str,
    unit: &'static str,
    /// All metrics that it may export.
    exported: BTreeSet<String>,
}

/// The metrics of a page.
fn families(page: &str) -> BTreeSet<String> {
    page.lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|rest| rest.split(' ').next().unwrap().to_owned())
        .collect()
}

fn proxy() -> Packaged {
    Packaged {
        alerts: include_str!("../../packaging/alerts.yml"),
        dashboard: include_str!("../../packaging/grafana.json"),
        unit: include_str!("../../packaging/sidekick-proxy.service"),
        exported: families(&proxy_metrics()),
    }
}

fn agent() -> Packaged {
    Packaged {
        alerts: include_str!("../../packaging/agent-alerts.yml"),
        dashboard: include_str!("../../packaging/agent-grafana.json"),
        unit: include_str!("../../packaging/sidekick-agent.service"),
        exported: families(&agent_metrics()),
    }
}

/// The words of a text that can only be metrics.
fn named(text: &str) -> BTreeSet<String> {
    text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_' && char != ':')
        .filter(|word| word.starts_with("sidekick_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}

fn assert_exported(names: &BTreeSet<String>, by: &Packaged) {
    let unknown: Vec<_> = names.difference(&by.exported).cloned().collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// This test checks the rules as far as it can without a parser. Promtool checks the rest.
#[test]
fn alerts_name_existing_metrics_and_an_action() {
    let mut names = BTreeSet::new();
    for program in [proxy(), agent()] {
        let alerts = program.alerts;
        assert_exported(&named(alerts), &program);
        assert!(alerts.matches("- alert: ").count() >= 7);
        assert!(alerts.lines().all(|line| !line.contains('\t') && line.trim_end() == line));
        check_rules(alerts, &mut names);
    }
}

/// Checks the rules of a file. Each has a name of its own, which enters `names`.
fn check_rules<'a>(alerts: &'a str, names: &mut BTreeSet<&'a str>) {
    for rule in alerts.split("- alert: ").skip(1) {
        let name = rule.lines().next().unwrap();
        assert!(name.starts_with("Sidekick") && names.insert(name), "{name}");
        let value = |key: &str| {
            let mut lines =
                rule.lines().filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": "));
            let value = lines.next().unwrap_or_else(|| panic!("{name} has no {key}"));
            assert!(!value.is_empty() && lines.next().is_none(), "{name}: {key}");
            value
        };
        // An expression can have several lines.
        let expression = rule.split(" for: ").next().unwrap();
        assert!(value("expr").starts_with("up{") || !named(expression).is_empty(), "{name}");
        assert!(value("for").ends_with('m'), "{name}");
        assert!(
            ["{severity: critical}", "{severity: warning}"].contains(&value("labels")),
            "{name}"
        );
        assert!(value("summary").ends_with('.'), "{name}");
        assert_eq!(value("action"), ">-", "{name}");
    }
}

#[test]
fn dashboards_name_existing_metrics() {
    for program in [proxy(), agent()] {
        assert_exported(&named(program.dashboard), &program);
        check_dashboard(&serde_json::from_str(program.dashboard).unwrap());
    }
}

fn check_dashboard(dashboard: &Value) {
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert!(variables.iter().any(|variable| {
        variable["name"] == "datasource"
            && variable["type"] == "datasource"
            && variable["query"] == "prometheus"
    }));
    let mut numbers = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(numbers.insert(panel["id"].as_u64().unwrap()), "{}", panel["title"]);
        if panel["type"] == "row" {
            continue;
        }
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        for target in panel["targets"].as_array().unwrap() {
            assert!(!named(target["expr"].as_str().unwrap()).is_empty(), "{target}");
        }
    }
}

/// What a program, or one of its commands, prints for --help.
fn help(program: &str, command: Option<&str>) -> String {
    let help = Command::new(program).args(command).arg("--help").output().unwrap();
    String::from_utf8(help.stdout).unwrap()
}

/// The first long flag of a line.
fn flag(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("--")?;
    let end = rest.find(|char: char| !char.is_ascii_lowercase() && char != '-');
    Some(format!("--{}", &rest[..end.unwrap_or(rest.len())]))
}

/// The flags of a help: those of the lines that begin with one.
fn flags(help: &str) -> BTreeSet<String> {
    let lines = help.lines();
    lines
        .filter(|line| line.starts_with("  -") || line.starts_with("      --"))
        .filter_map(flag)
        .collect()
}

/// Each program and each of its commands has a man page, with its flags and examples.
#[test]
fn man_pages_have_what_the_help_has() {
    let pages: Vec<_> = man_pages::pages()
        .unwrap()
        .into_iter()
        .map(|(name, page)| (name, String::from_utf8(page).unwrap().replace("\\-", "-")))
        .collect();
    let names: Vec<_> = pages.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "sidekick-proxy-check.1",
        "sidekick-proxy-clean.1",
        "sidekick-proxy-replay.1",
        "sidekick-proxy-status.1",
        "sidekick-proxy.1",
        "sidekick-agent-check.1",
        "sidekick-agent-clean.1",
        "sidekick-agent-measure.1",
        "sidekick-agent-status.1",
        "sidekick-agent.1",
    ];
    assert_eq!(names, expected);
    for (name, page) in &pages {
        let command = name.strip_suffix(".1").unwrap();
        let programs = [
            ("sidekick-proxy", env!("CARGO_BIN_EXE_sidekick-proxy")),
            ("sidekick-agent", env!("CARGO_BIN_EXE_sidekick-agent")),
        ];
        let (program, path) =
            programs.into_iter().find(|(program, _)| command.starts_with(program)).unwrap();
        let rest = command.strip_prefix(program).unwrap().strip_prefix('-');
        let help = help(path, rest);
        let flags = flags(&help);
        assert!(!flags.is_empty(), "{help}");
        for flag in flags {
            assert!(page.contains(&format!("{flag}\\fR")), "{flag} in {page}");
        }
        let examples = help.lines().filter(|line| line.starts_with("      sidekick-"));
        for example in examples.filter(|line| !line.contains('<')) {
            assert!(page.lines().any(|line| line == example), "{example} in {page}");
        }
        // `whatis` prints the text of NAME.
        let (_, text) = page.split_once(".SH NAME\n").unwrap();
        let summary = text.lines().next().unwrap().strip_prefix(&format!("{command} - ")).unwrap();
        assert!(!summary.is_empty() && summary.len() <= 100, "{summary}");
        // Only programs have packages, with a description and with files.
        assert_eq!(page.contains(".SH FILES"), rest.is_none(), "{page}");
        if rest.is_none() {
            let deb = include_str!("../../packaging/deb");
            let description = format!("description=\"Description: {summary}\n");
            assert!(deb.contains(&description), "{description}");
            assert!(page.contains(&format!("\n/etc/{program}.toml is the ")), "{page}");
        }
        // Another line that begins with a dot would be a command of roff.
        assert!(page.lines().filter(|line| line.starts_with('.')).all(is_control), "{page}");
    }
}

/// Whether a line of roff is one of the macros that these pages have.
fn is_control(line: &str) -> bool {
    [".SH", ".TH", ".TP", ".PP", ".IP", ".RS", ".RE", ".br", ".nf", ".fi", ".ie", ".el"]
        .iter()
        .any(|macro_name| line.starts_with(macro_name))
}

#[test]
fn a_unit_grants_only_the_capabilities_that_its_program_needs() {
    let raw = BTreeSet::from(["CAP_NET_RAW"]);
    // The agent creates a TUN device.
    let admin = BTreeSet::from(["CAP_NET_RAW", "CAP_NET_ADMIN"]);
    for (Packaged { unit, .. }, capabilities) in [(proxy(), raw), (agent(), admin)] {
        let values = |key: &str| {
            let mut lines = unit.lines().filter_map(|line| line.strip_prefix(key));
            let value = lines.next().unwrap_or_else(|| panic!("no {key} in {unit}"));
            assert_eq!(lines.next(), None, "{key}");
            value.split(' ').collect::<BTreeSet<_>>()
        };
        for key in ["AmbientCapabilities=", "CapabilityBoundingSet="] {
            assert_eq!(values(key), capabilities);
        }
        let families = ["AF_PACKET", "AF_INET", "AF_INET6", "AF_NETLINK", "AF_UNIX"];
        assert_eq!(values("RestrictAddressFamilies="), BTreeSet::from(families));
        for key in ["DynamicUser=", "NoNewPrivileges="] {
            assert_eq!(values(key), BTreeSet::from(["yes"]));
        }
    }
}

/// The exposure that systemd reports for each unit, in tenths.
#[test]
fn the_units_have_a_low_exposure() {
    // The agent's TUN device takes its unit above the limit of the proxy's.
    for (unit, most) in [("sidekick-proxy.service", 20), ("sidekick-agent.service", 22)] {
        let most = format!("--threshold={most}");
        let unit = format!("{}/packaging/{unit}", env!("CARGO_MANIFEST_DIR"));
        let mut analyze = Command::new("systemd-analyze");
        let output = analyze.args(["security", "--offline=yes", &most, &unit]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn the_proxy_links_no_quic() {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--package",
            "sidekick-proxy",
            "--edges",
            "normal,build",
            "--prefix",
            "none",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let tree = String::from_utf8(tree.stdout).unwrap();
    assert!(tree.contains("sidekick-protocol"), "{tree}");
    for unwanted in ["quiche", "boring", "rustls"] {
        let linked = tree.lines().any(|line| line.split(' ').next() == Some(unwanted));
        assert!(!linked, "{unwanted} in {tree}");
    }
}
