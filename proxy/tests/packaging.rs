//! The packaged alerts, dashboard and notes name only metrics that exist.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sidekick_proxy::testing::{Status, exposition};

const ALERTS: &str = include_str!("../packaging/alerts.yml");
const DASHBOARD: &str = include_str!("../packaging/grafana.json");
const NOTES: &str = include_str!("../../docs/operate.md");

/// All metrics that a proxy may export, with any wire format.
fn exported() -> BTreeSet<String> {
    let status: Status = serde_json::from_value(json!({
        "version": "1", "started": 0.0, "uptime": 0, "address": "127.0.0.1:1", "public_key": null, "threads": 1,
        "threads_answering": 1, "interfaces": [], "totals": {"resets": 0}, "sessions_open": 0, "sessions_max": 1,
        "copies": {"sessions": 0, "bytes": 0, "max_bytes": 0}, "sessions": []
    }))
    .unwrap();
    let page = exposition::text(&status, Some(1));
    page.lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|rest| rest.split(' ').next().unwrap().to_owned())
        .collect()
}

/// The words of a text that can only be metrics of a proxy.
fn named(text: &str) -> BTreeSet<String> {
    text.split(|char: char| !char.is_ascii_alphanumeric() && char != '_' && char != ':')
        .filter(|word| word.starts_with("sidekick_") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}

fn assert_exported(names: &BTreeSet<String>) {
    let unknown: Vec<_> = names.difference(&exported()).cloned().collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// As far as this test can check without a parser. Promtool checks the rest.
#[test]
fn alerts_are_about_metrics_that_there_are_and_say_what_to_do() {
    assert_exported(&named(ALERTS));
    let rules: Vec<_> = ALERTS.split("- alert: ").skip(1).collect();
    assert!(rules.len() >= 7);
    let mut names = BTreeSet::new();
    for rule in rules {
        let name = rule.lines().next().unwrap();
        assert!(name.starts_with("Sidekick") && names.insert(name), "{name}");
        let value = |key: &str| {
            let mut lines =
                rule.lines().filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": "));
            let value = lines.next().unwrap_or_else(|| panic!("{name} has no {key}"));
            assert!(!value.is_empty() && lines.next().is_none(), "{name}: {key}");
            value
        };
        assert!(value("expr").starts_with("up{") || !named(value("expr")).is_empty(), "{name}");
        assert!(value("for").ends_with('m'), "{name}");
        assert!(
            ["{severity: critical}", "{severity: warning}"].contains(&value("labels")),
            "{name}"
        );
        assert!(value("summary").ends_with('.'), "{name}");
        assert_eq!(value("action"), ">-", "{name}");
    }
    assert!(ALERTS.lines().all(|line| !line.contains('\t') && line.trim_end() == line));
}

#[test]
fn the_dashboard_is_of_metrics_that_there_are() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    assert_exported(&named(DASHBOARD));
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

#[test]
fn every_metric_is_explained() {
    let explained: Vec<_> = NOTES
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|rest| {
            assert_eq!(rest.matches(" | ").count(), 2, "{rest}");
            rest.split('`').next().unwrap().to_owned()
        })
        .collect();
    assert_eq!(explained.iter().cloned().collect::<BTreeSet<_>>(), exported());
    assert_eq!(explained.len(), exported().len(), "each once");
}
