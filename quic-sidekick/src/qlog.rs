//! Writes the plugin's events to the connection's qlog file. `docs/protocol/QLOG.md` describes the
//! events.
//!
//! Without the feature `qlog` the same functions do nothing.

#[cfg(feature = "qlog")]
mod events;
#[cfg_attr(feature = "qlog", path = "qlog/on.rs")]
#[cfg_attr(not(feature = "qlog"), path = "qlog/off.rs")]
mod log;

pub(crate) use log::Log;

use crate::sidekick::repair::Repair;
use sidekick_protocol::Flow;

/// Packets of a path that were lost before the proxy.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "qlog"), allow(dead_code, reason = "only the log reads it"))]
pub(crate) struct Losses<'a> {
    pub(crate) path_id: usize,
    pub(crate) flow: Flow,
    pub(crate) packets: &'a [u64],
    pub(crate) repair: Repair,
    /// How many of them the connection declared lost or re-injects.
    pub(crate) declared: usize,
}
