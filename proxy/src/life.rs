//! A program's life, from its first check to its last line.

use std::fmt::Display;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use sd_notify::NotifyState;
use serde::Serialize;
use tracing::error;

use crate::privileges;
use crate::reload::{changes, warn_unapplied};
use crate::runtime::spawn;
use crate::signals::Signals;
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

    /// Gives up privileges, once everything is open, and passes what signals ask to `send` until
    /// that returns false.
    ///
    /// # Errors
    /// The privileges cannot be given up, or the thread cannot start.
    pub(crate) fn watch(&mut self, send: impl Fn(Order) -> bool + Send + 'static) -> Result<()> {
        privileges::confine()?;
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
        check(&AgentConfig::default());
    }
}
