//! Interfaces on which the kernel left a ring stuck.

use crate::capture::settings::{Backend, Settings};

/// The numbers of these interfaces. The cause that stopped one ring would stop the next, too.
#[derive(Default)]
pub(super) struct StuckRings(Vec<u32>);

impl StuckRings {
    /// Notes whether a ring got stuck on an interface.
    pub(super) fn note(&mut self, interface: u32, stuck: bool) {
        if stuck && !self.0.contains(&interface) {
            self.0.push(interface);
        }
    }

    /// How to capture on an interface: without a ring where one got stuck, unless the operator
    /// wants one in any case.
    pub(super) fn adapt(&self, settings: Settings, interface: u32) -> Settings {
        let backend = match settings.backend {
            Backend::Auto if self.0.contains(&interface) => Backend::Pnet,
            chosen => chosen,
        };
        Settings { backend, ..settings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn a_ring_that_got_stuck_is_not_tried_again() {
        let mut rings = StuckRings::default();
        rings.note(1, true);
        rings.note(2, false);
        for (backend, then) in [(Backend::Auto, Backend::Pnet), (Backend::Ring, Backend::Ring)] {
            let settings = Settings { backend, ..Config::default().capture() };
            assert_eq!(rings.adapt(settings, 1).backend, then);
            assert_eq!(rings.adapt(settings, 2).backend, backend);
        }
    }
}
