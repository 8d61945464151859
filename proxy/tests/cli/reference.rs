//! The tables of the reference pages are those of the code: flags as clap has them, and metrics as
//! the programs serve them. `SIDEKICK_UPDATE=1 cargo test -p sidekick-proxy --test cli reference`
//! rewrites them. What a metric tells an operator stands only in the page: an update keeps it.

use std::collections::BTreeMap;
use std::path::Path;

use clap::{Arg, Command};
use serde_json::json;
use sidekick_proxy::testing::agent::AgentStatus;
use sidekick_proxy::testing::{ProgramStatus, Status, at_restart, commands};

/// Flags that are no keys of the file.
const NO_KEYS: [&str; 3] = ["config", "json", "verbose"];

/// The proxy's page of metrics, without an interface.
pub(crate) fn proxy_metrics() -> String {
    let status: Status = serde_json::from_value(json!({
        "program": "sidekick-proxy", "version": "1", "started": 0.0, "uptime": 0,
        "address": "127.0.0.1:1", "public_key": "", "threads": 1, "threads_answering": 1,
        "interfaces": [], "totals": {}, "sessions_open": 0, "sessions_max": 1,
        "sessions_max_per_source": 1, "copies": {"sessions": 0, "bytes": 0, "max_bytes": 0},
        "sessions": []
    }))
    .unwrap();
    status.metrics(Some(1))
}

/// The agent's page of metrics, without an interface.
pub(crate) fn agent_metrics() -> String {
    let status: AgentStatus = serde_json::from_value(json!({
        "program": "sidekick-agent", "version": "1", "started": 0.0, "uptime": 0,
        "answering": true, "flows_max": 1, "memory_max": 1, "tun_off": false, "totals": {},
        "order": {"waiting": 0, "arrived": 0, "held": 0, "held_s": 0.0},
        "second_uplink": {"interface": "a", "is_there": true, "flows": 0, "carried": 0,
            "carry_left": 0},
        "flows_open": 0, "flows_assisted": 0, "memory_bytes": 0, "interfaces": [], "flows": []
    }))
    .unwrap();
    status.metrics(Some(1))
}

/// A row of the settings.
fn setting(arg: &Arg, at_restart: &[&str]) -> String {
    let long = arg.get_long().unwrap();
    let takes_values = arg.get_action().takes_values();
    let value = arg.get_value_names().filter(|_| takes_values).unwrap_or_default();
    let flag = [format!("--{long}")].into_iter().chain(value.iter().map(ToString::to_string));
    let flag = flag.collect::<Vec<_>>().join(" ").replace('|', "\\|");
    let short = arg.get_short().map(|short| format!(", `-{short}`")).unwrap_or_default();

    let help = arg.get_help().unwrap().to_string();
    let (mut help, mut default) = match help.split_once(" [default: ") {
        Some((help, rest)) => (help.to_owned(), rest.strip_suffix(']').unwrap().to_owned()),
        None => (help, String::new()),
    };
    if let Some(value) = arg.get_default_values().first().filter(|_| takes_values) {
        default = format!("`{}`", value.to_str().unwrap());
    }
    let values = arg.get_possible_values().into_iter().filter(|_| takes_values);
    let values: Vec<_> = values
        .map(|value| format!("`{}`: {}", value.get_name(), value.get_help().unwrap()))
        .collect();
    if !values.is_empty() {
        help = format!("{help}. {}", values.join("; "));
    }

    let aliases = arg.get_all_aliases().unwrap_or_default();
    let restarts = at_restart.iter().any(|key| *key == long || aliases.contains(key));
    let change = match restarts {
        _ if NO_KEYS.contains(&long) => "",
        true => "restart",
        false => "reload",
    };
    row(&[&format!("`{flag}`{short}"), &default, change, &help])
}

/// A row of these cells.
fn row(cells: &[&str]) -> String {
    let cells = cells
        .iter()
        .map(|cell| if cell.is_empty() { " |".to_owned() } else { format!(" {cell} |") });
    format!("|{}", cells.collect::<String>())
}

/// The cells of a row.
fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

/// What the page says that each metric tells.
fn advice(page: &str) -> BTreeMap<&str, &str> {
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| `sidekick_") || line.starts_with("| `process_"));
    rows.map(|line| {
        let cells = cells(line);
        assert_eq!(cells.len(), 3, "{line}");
        (cells[0].trim_matches('`'), cells[2])
    })
    .collect()
}

/// Where the page has the row of a metric.
fn heading(name: &str, kind: &str) -> &'static str {
    match kind {
        "gauge" | "summary" => "Present state",
        "counter" => "Totals",
        _ => panic!("{name} is a {kind}"),
    }
}

/// Puts `rows` in place of those of the table behind the heading.
fn replace(page: &str, heading: &str, rows: &[String]) -> String {
    let mut lines: Vec<_> = page.lines().map(str::to_owned).collect();
    let start = lines.iter().position(|line| *line == format!("## {heading}"));
    let start = start.unwrap_or_else(|| panic!("there is no {heading}"));
    let rule = start + lines[start..].iter().position(|line| line.starts_with("|---")).unwrap();
    let length = lines[rule..].iter().take_while(|line| line.starts_with('|')).count();
    lines.splice(rule + 1..rule + length, rows.iter().cloned());
    lines.join("\n") + "\n"
}

/// The page with the tables of the code.
fn updated(page: &str, command: &Command, at_restart: &[&str], metrics: &str) -> String {
    let settings: Vec<_> = command.get_arguments().map(|arg| setting(arg, at_restart)).collect();
    let (advice, mut groups) = (advice(page), BTreeMap::<_, Vec<_>>::new());
    let mut lines = metrics.lines();
    while let Some(help) = lines.find_map(|line| line.strip_prefix("# HELP ")) {
        let (name, help) = help.split_once(' ').unwrap();
        let kind = lines.next().unwrap().rsplit(' ').next().unwrap();
        if kind == "counter" && name.contains("_interface_") {
            // A sentence names these: they count what the totals do.
            assert!(page.contains(&format!("`{name}`")), "the page lacks {name}");
            continue;
        }
        let advice = advice.get(name).copied().unwrap_or_default();
        let row = row(&[&format!("`{name}`"), help.trim_end_matches('.'), advice]);
        groups.entry(heading(name, kind)).or_default().push(row);
    }
    let page = replace(page, "Settings", &settings);
    groups.iter().fold(page, |page, (heading, rows)| replace(&page, heading, rows))
}

#[test]
fn the_pages_have_the_settings_and_metrics_of_the_code() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let pages = ["operate-reference.md", "agent-reference.md"];
    let metrics = [proxy_metrics(), agent_metrics()];
    for (((page, command), at_restart), metrics) in
        pages.iter().zip(commands()).zip(at_restart()).zip(metrics)
    {
        let path = docs.join(page);
        let text = std::fs::read_to_string(&path).unwrap();
        let updated = updated(&text, &command, at_restart, &metrics);
        if std::env::var_os("SIDEKICK_UPDATE").is_some() {
            std::fs::write(&path, &updated).unwrap();
        } else {
            let stale = updated.lines().zip(text.lines()).find(|(new, old)| new != old);
            assert!(updated == text, "SIDEKICK_UPDATE=1 rewrites docs/{page}: {stale:#?}");
        }
    }
}
