//! What the plugin writes into the connection's qlog file. `docs/protocol/QLOG.md` says what
//! each event means.
//!
//! Without the feature `qlog` the same functions do nothing.

#[cfg(feature = "qlog")]
mod events;
#[cfg_attr(feature = "qlog", path = "qlog/on.rs")]
#[cfg_attr(not(feature = "qlog"), path = "qlog/off.rs")]
mod log;

pub(crate) use log::Log;
