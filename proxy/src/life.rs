//! A program's life, from its first check to its last line.

use std::fmt::Display;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use caps::{CapSet, Capability, CapsHashSet};
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use sd_notify::NotifyState;
use serde::Serialize;
use tracing::{error, info, warn};

use crate::runtime::{clock, spawn};
use crate::terminal::{notify_manager, print_line};

/// The settings of a program that runs until a signal ends it.
pub(crate) trait Settings: Clone {
    /// What the program is, for the operator.
    const WHAT: &'static str;
    /// The keys of its file that take effect only at a restart.
    const AT_RESTART: &'static [&'static str];

    /// A sentence if these settings may need more than half of the machine's memory.
    fn memory_shortage(&self) -> Option<String>;

    /// The settings as the lines of a configuration file.
    fn to_toml(&self) -> String;

    /// Whether the summary is JSON.
    fn json(&self) -> bool;
}

/// Reads the settings again.
pub(crate) type Reread<'a, C> = &'a dyn Fn() -> Result<C>;

/// What a signal asks of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// To end.
    Stop,
    /// To apply the settings of its file.
    Reload,
}

/// What a program keeps of its capabilities once everything is open.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) own: CapsHashSet,
    /// Those of them that the programs get that it starts.
    pub(crate) inherited: CapsHashSet,
}

pub(crate) struct Life<'a, C> {
    signals: Option<Signals>,
    reread: Option<Reread<'a, C>>,
    started: &'a C,
    current: C,
}

impl<'a, C: Settings> Life<'a, C> {
    /// Begins it. Call this before any other thread starts, which would handle a signal in its own
    /// way. With `reread`, SIGHUP asks for a reload; otherwise it ends the program.
    ///
    /// # Errors
    /// The signals cannot be handled, or the machine has too little memory.
    pub(crate) fn begin(config: &'a C, reread: Option<Reread<'a, C>>) -> Result<Self> {
        let signals = Signals::block().context("cannot handle signals")?;
        if let Some(sentence) = config.memory_shortage() {
            bail!("{sentence}");
        }
        Ok(Self { signals: Some(signals), reread, started: config, current: config.clone() })
    }

    /// Gives up all capabilities but `kept`, once everything is open, and passes what signals ask
    /// to `send` until that returns false.
    ///
    /// # Errors
    /// The privileges cannot be given up, or the thread cannot start.
    pub(crate) fn watch(
        &mut self,
        kept: &Kept,
        send: impl Fn(Order) -> bool + Send + 'static,
    ) -> Result<()> {
        confine(kept)?;
        let Some(signals) = self.signals.take() else { return Ok(()) };
        let reloads = self.reread.is_some();
        spawn("signals".to_owned(), move || {
            // The program may have ended when a second signal arrives.
            signals.each(|signal| {
                let reload = reloads && signal == Signal::SIGHUP;
                send(if reload { Order::Reload } else { Order::Stop })
            });
        })
    }

    /// Tells the operator and the service manager that the program is ready.
    pub(crate) fn ready(&self, line: &str) {
        print_line(&format!("ready: {line}"));
        notify_manager(&[NotifyState::Ready]);
    }

    /// Reads the settings again and lets `apply` apply what can change now. Then the service
    /// manager learns that the reload is complete.
    pub(crate) fn reload(&mut self, apply: impl FnOnce(&C) -> Result<()>) {
        let Some(reread) = self.reread else { return };
        let mut states = vec![NotifyState::Reloading];
        states.extend(NotifyState::monotonic_usec_now());
        notify_manager(&states);
        match reread().and_then(|new| apply(&new).map(|()| new)) {
            Ok(new) => {
                let text = new.to_toml();
                let changes = changes(&self.current.to_toml(), &text, C::AT_RESTART);
                print_line(&format!("reloaded: {changes}"));
                warn_unapplied(&self.started.to_toml(), &text, C::AT_RESTART);
                self.current = new;
            }
            Err(error) => error!("{error:#}; the {} keeps all of its settings", C::WHAT),
        }
        notify_manager(&[NotifyState::Ready]);
    }

    /// Ends it: prints the totals that `close` returns once everything is closed.
    ///
    /// # Errors
    /// The totals cannot be written as JSON.
    pub(crate) fn end<T: Serialize + Display>(&self, close: impl FnOnce() -> T) -> Result<()> {
        notify_manager(&[NotifyState::Stopping]);
        let totals = close();
        print_line(&if self.started.json() {
            serde_json::to_string(&totals)?
        } else {
            format!("stopped: {totals}")
        });
        Ok(())
    }
}

/// The lines of `new` that are not in `old`, each as `key = value`, or `key` if it is absent now.
fn changed_lines(old: &str, new: &str) -> Vec<String> {
    let key = |line: &str| line.split_once(" = ").map_or(String::new(), |(key, _)| key.to_owned());
    let changed = new.lines().filter(|line| !old.lines().any(|other| other == *line));
    let absent = old.lines().map(key).filter(|gone| !new.lines().any(|line| key(line) == *gone));
    changed.map(str::to_owned).chain(absent).collect()
}

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

/// How often a program logs its progress.
const INTERVAL: Duration = Duration::from_secs(10);

/// The state of the progress log of a program with these totals.
pub(crate) struct Progress<T> {
    logged: Instant,
    last: T,
}

impl<T: Default> Default for Progress<T> {
    fn default() -> Self {
        Self { logged: clock(), last: T::default() }
    }
}

impl<T: Display + PartialEq> Progress<T> {
    /// Whether the totals are due at `now`. If so, the next ones are due after the interval.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now.saturating_duration_since(self.logged) >= INTERVAL;
        if is_due {
            self.logged = now;
        }
        is_due
    }

    /// Logs the totals, and how many sessions or flows are open now, if the totals have changed.
    /// Returns the totals before.
    pub(crate) fn log(&mut self, totals: T, open: usize) -> T {
        if totals != self.last {
            info!("{totals}, open now {open}");
        }
        std::mem::replace(&mut self.last, totals)
    }
}

/// The signals that end the daemon, or make it reread its configuration. All threads that start
/// later block them.
#[derive(Debug)]
pub(crate) struct Signals(SigSet);

impl Signals {
    /// Blocks the signals in this thread. Call this before any other thread starts.
    ///
    /// # Errors
    /// When the system does not allow it.
    pub(crate) fn block() -> Result<Self, Errno> {
        let set = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
        set.thread_block()?;
        Ok(Self(set))
    }

    /// Waits for signals, and passes each to `handle` until that returns false.
    pub(crate) fn each(&self, mut handle: impl FnMut(Signal) -> bool) {
        loop {
            match self.0.wait() {
                Ok(signal) if !handle(signal) => return,
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return,
            }
        }
    }
}

/// Gives up all capabilities but these, and all ways to gain others. Call this when everything is
/// open, and before any other thread starts: each thread has capabilities of its own, and inherits
/// those of its creator. A proxy keeps CAP_NET_RAW, since it reopens an interface that comes back.
///
/// # Errors
/// When the system does not allow it.
fn confine(kept: &Kept) -> Result<()> {
    prctl::set_no_new_privs().context("cannot forbid new privileges")?;
    drop_all_but(kept).context("cannot give up capabilities")
}

fn drop_all_but(Kept { own: kept, inherited }: &Kept) -> Result<()> {
    for capability in caps::read(None, CapSet::Ambient)? {
        if !inherited.contains(&capability) {
            caps::drop(None, CapSet::Ambient, capability)?;
        }
    }
    // This set bounds the capabilities that an execve could gain. The change requires CAP_SETPCAP,
    // and so comes first.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        for capability in caps::read(None, CapSet::Bounding)? {
            if !kept.contains(&capability) {
                caps::drop(None, CapSet::Bounding, capability)?;
            }
        }
    }
    // Effective first: it must be a subset of permitted.
    for set in [CapSet::Effective, CapSet::Permitted] {
        let held = caps::read(None, set)?;
        if !held.is_subset(kept) {
            caps::set(None, set, &held.intersection(kept).copied().collect())?;
        }
    }
    let inheritable = caps::read(None, CapSet::Inheritable)?;
    let ambient = caps::read(None, CapSet::Ambient)?;
    if let Err(error) = caps::set(None, CapSet::Inheritable, &ambient)
        && !inheritable.is_subset(kept)
    {
        // Those that stay may be in this set, since the process keeps them anyway. A service
        // manager that grants only them may forbid capset(2), too.
        return Err(error.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::config::AgentConfig;
    use crate::config::Config;

    #[test]
    fn keys_of_a_restart_are_keys_of_a_file() {
        fn check<C: Settings>(config: &C) {
            let file = config.to_toml();
            for key in C::AT_RESTART {
                assert!(file.lines().any(|line| line.starts_with(&format!("{key} = "))), "{key}");
            }
        }
        check(&Config { key: Some("key".into()), ..Config::default() });
        check(&AgentConfig { second_uplink: Some("c".into()), ..AgentConfig::default() });
    }

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

    #[test]
    fn totals_are_due_once_in_an_interval() {
        let now = clock();
        let mut progress = Progress { logged: now, last: 3 };
        for (at, is_due) in [
            (now, false),
            (now + INTERVAL / 2, false),
            (now + INTERVAL, true),
            (now + INTERVAL, false),
            (now + INTERVAL * 3 / 2, false),
            (now + INTERVAL * 2, true),
        ] {
            assert_eq!(progress.is_due(at), is_due, "{:?}", at - now);
        }
        assert_eq!((progress.log(5, 0), progress.log(5, 1), progress.last), (3, 5, 5));
    }
}
