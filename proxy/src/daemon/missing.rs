//! Interfaces that the proxy does not capture on now.

use tracing::warn;

use super::rings::StuckRings;
use crate::capture;
use crate::config::Config;
use crate::pool::WorkerPool;

/// The interfaces without captures, by number.
#[derive(Default)]
pub(super) struct MissingInterfaces(Vec<u32>);

impl MissingInterfaces {
    /// Adds an interface. Returns false if it was missing before.
    pub(super) fn add(&mut self, number: u32) -> bool {
        let new = !self.0.contains(&number);
        if new {
            self.0.push(number);
        }
        new
    }

    /// Starts captures on the interfaces that exist again.
    pub(super) fn reopen(&mut self, config: &Config, rings: &StuckRings, pool: &WorkerPool) {
        self.0.retain(|number| {
            let name = config.numbered_interfaces().find(|(other, _)| other == number);
            let Some((_, name)) = name else { return false };
            match capture::open(name, rings.adapt(config.capture(), *number)) {
                Ok(captures) => {
                    warn!("{name} is back");
                    pool.capture(*number, captures);
                    false
                }
                Err(_) => true,
            }
        });
    }
}
