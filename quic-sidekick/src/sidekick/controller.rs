//! Whether the connection's congestion controller suits the mode.

use crate::Mode;
use quiche::{BufFactory, Connection};
use std::sync::atomic::{AtomicBool, Ordering};

/// The connection's congestion controller, if the mode belongs to another. The first time in a
/// process this is a warning: a server has the same settings for all of its connections.
pub(super) fn other_controller<F: BufFactory>(
    mode: Mode,
    conn: &Connection<F>,
) -> Option<&'static str> {
    static WARNED: AtomicBool = AtomicBool::new(false);
    let other = conn.sidekick_congestion_control().filter(|controller| !mode.suits(controller))?;
    let wanted = mode.congestion_control().unwrap_or("another");
    if WARNED.swap(true, Ordering::Relaxed) {
        tracing::debug!(%mode, controller = other, wanted, "the controller is not the mode's");
    } else {
        tracing::warn!(
            "mode {mode} belongs to the congestion controller {wanted}, and this connection has \
             {other}: set {wanted} by `set_cc_algorithm_name`, or use the mode reinject (receive, \
             in a client that only downloads)"
        );
    }
    Some(other)
}
