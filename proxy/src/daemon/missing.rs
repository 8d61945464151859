//! Interfaces that the proxy does not capture on now.

use tracing::info;

use crate::capture::settings::{Backend, Settings};
use crate::capture::{self, CaptureError};
use crate::pool::WorkerPool;

/// The interfaces without captures, by number.
#[derive(Default)]
pub(super) struct MissingInterfaces {
    numbers: Vec<u32>,
    /// Interfaces whose rings got stuck.
    without_ring: Vec<u32>,
}

impl MissingInterfaces {
    /// Adds an interface. Returns false if it was missing before.
    pub(super) fn add(&mut self, number: u32, cause: &CaptureError) -> bool {
        if matches!(cause, CaptureError::Stuck { .. }) && !self.without_ring.contains(&number) {
            self.without_ring.push(number);
        }
        let new = !self.numbers.contains(&number);
        if new {
            self.numbers.push(number);
        }
        new
    }

    /// Starts captures on the interfaces that exist again.
    pub(super) fn reopen(&mut self, names: &[String], settings: Settings, pool: &WorkerPool) {
        let Self { numbers, without_ring } = self;
        numbers.retain(|number| {
            let name = usize::try_from(*number).ok().and_then(|number| names.get(number));
            let Some(name) = name else { return false };
            let backend = match settings.backend {
                Backend::Auto if without_ring.contains(number) => Backend::Pnet,
                chosen => chosen,
            };
            match capture::open(name, Settings { backend, ..settings }) {
                Ok(captures) => {
                    info!("{name} is back");
                    pool.capture(*number, captures);
                    false
                }
                Err(_) => true,
            }
        });
    }
}
