//! The changes of a reload. Settings are compared as the lines of a configuration file.

use tracing::warn;

/// The lines of `new` that are not in `old`, each as `key = value`, or `key` if it is absent now.
fn changed_lines(old: &str, new: &str) -> Vec<String> {
    let key = |line: &str| line.split_once(" = ").map_or(String::new(), |(key, _)| key.to_owned());
    let changed = new.lines().filter(|line| !old.lines().any(|other| other == *line));
    let absent = old.lines().map(key).filter(|gone| !new.lines().any(|line| key(line) == *gone));
    changed.map(str::to_owned).chain(absent).collect()
}

/// The key of a line of [`changed_lines`].
fn key(line: &str) -> &str {
    line.split_once(" = ").map_or(line, |(key, _)| key)
}

/// The changes of a reload from the settings `old` to `new` in the running program, for the
/// operator. The keys `at_restart` take effect only at a restart.
pub(crate) fn changes(old: &str, new: &str, at_restart: &[&str]) -> String {
    let mut lines = changed_lines(old, new);
    lines.retain(|line| !at_restart.contains(&key(line)));
    // A line without a value stands for a key that the new file lacks.
    lines.iter_mut().filter(|line| !line.contains(" = ")).for_each(|key| *key += " left out");
    if lines.is_empty() { "no setting changed".to_owned() } else { lines.join(", ") }
}

/// Logs which of the new settings differ from those of the start, and require a restart.
pub(crate) fn warn_unapplied(started: &str, new: &str, at_restart: &[&str]) {
    let lines = changed_lines(started, new);
    let keys: Vec<_> =
        lines.iter().map(|line| key(line)).filter(|key| at_restart.contains(key)).collect();
    if !keys.is_empty() {
        warn!("a restart is required to change {}", keys.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_reload_names_what_it_changes() {
        let old = Config { interfaces: vec!["eth0".to_owned()], ..Config::default() };
        let changes = |old: &Config, new: &Config| {
            changes(&old.to_toml(), &new.to_toml(), &["threads", "listen"])
        };
        assert_eq!(changes(&old, &old), "no setting changed");
        let announce = vec!["192.0.2.1:5252".parse().unwrap()];
        let new = Config { max_sessions: 7, threads: 2, announce, ..old.clone() };
        assert_eq!(changes(&old, &new), "max-sessions = 7, announce = [\"192.0.2.1:5252\"]");
        assert_eq!(changes(&new, &old), "max-sessions = 1024, announce left out");
    }
}
