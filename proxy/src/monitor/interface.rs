//! The part of a status about an interface, which both programs share, and its text.

use serde::{Deserialize, Serialize};

use super::text::table;

/// A configured interface. Its counters restart at 0 when it disappears and comes back. The totals
/// do not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceReport {
    /// The interface's name.
    pub name: String,
    /// How the program reads packets: `ring` or `pnet`; `None` if the interface is gone.
    pub backend: Option<String>,
    /// Whether the interface exists and is up.
    pub up: bool,
    /// UDP datagrams captured; of an agent, those that leave.
    pub captured: u64,
    /// Packets that the kernel had no room for; of a proxy, also those that it discarded.
    pub dropped: u64,
}

impl InterfaceReport {
    /// Whether the interface is there and up, in a word.
    fn state(&self) -> &'static str {
        match (&self.backend, self.up) {
            (None, _) => "gone",
            (_, true) => "up",
            (_, false) => "down",
        }
    }
}

/// A table of the interfaces for people.
pub(crate) fn interface_table<'a>(interfaces: impl Iterator<Item = &'a InterfaceReport>) -> String {
    let rows = interfaces.map(|of| {
        vec![
            of.name.clone(),
            of.backend.clone().unwrap_or_else(|| "-".to_owned()),
            of.state().to_owned(),
            of.captured.to_string(),
            of.dropped.to_string(),
        ]
    });
    table(&["interface", "backend", "state", "captured", "dropped"], "lllrr", rows)
}

/// A sentence if no interface is up, about `what` program.
pub(crate) fn interfaces_complaint<'a>(
    what: &str,
    interfaces: impl Iterator<Item = &'a InterfaceReport> + Clone,
) -> Option<String> {
    if interfaces.clone().any(|of| of.up) {
        return None;
    }
    let names = |captured_only: bool| {
        let of = interfaces.clone().filter(|of| of.backend.is_some() || !captured_only);
        of.map(|of| &*of.name).collect::<Vec<_>>().join(", ")
    };
    Some(if interfaces.clone().any(|of| of.backend.is_some()) {
        format!("all interfaces are down: {}", names(true))
    } else {
        format!("the {what} captures on no interface: there is no {}", names(false))
    })
}
