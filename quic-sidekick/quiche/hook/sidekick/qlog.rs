//! The hook's events in the connection's own qlog file.
//!
//! They use the writer of `Connection::set_qlog`, with times relative to the same moment as
//! quiche's events. An event that cannot be written is lost, like those of quiche: a full disk does
//! not end a connection.
#![warn(missing_docs, missing_debug_implementations, unreachable_pub, unused_qualifications)]
#![warn(clippy::all, clippy::cast_possible_truncation, clippy::expect_used, clippy::unwrap_used)]

use std::time::Instant;

use qlog::events::{EventImportance, JsonEvent};
use serde::Serialize;

use crate::{BufFactory, Connection, QlogLevel};

impl<F: BufFactory> Connection<F> {
    /// Whether the connection has a qlog file.
    pub fn sidekick_has_qlog(&self) -> bool {
        self.qlog.streamer.is_some()
    }

    /// Writes an event to the connection's qlog file, if it has one and its level includes
    /// `importance`.
    ///
    /// `name` is the namespace, a colon and the event type. `data` is called only if the event is
    /// written. It should return a structure or a map, because readers expect an object.
    pub fn sidekick_qlog<D: Serialize>(
        &mut self,
        name: &str,
        importance: QlogLevel,
        now: Instant,
        data: impl FnOnce(&Self) -> D,
    ) {
        let importance = match importance {
            QlogLevel::Core => EventImportance::Core,
            QlogLevel::Base => EventImportance::Base,
            QlogLevel::Extra => EventImportance::Extra,
        };
        if self.qlog.streamer.is_none() || !importance.is_contained_in(&self.qlog.level) {
            return;
        }
        let Ok(data) = serde_json::to_value(data(self)) else { return };
        if let Some(streamer) = &mut self.qlog.streamer {
            // The streamer sets the time.
            let event = JsonEvent { time: 0.0, importance, name: name.to_owned(), data };
            let _ = streamer.add_event_with_instant(event, now);
        }
    }

    /// Writes the changes of a path's window and flight, as quiche does after every loss that it
    /// detects itself.
    pub(super) fn sidekick_qlog_metrics(&mut self, path_id: usize, now: Instant) {
        if let (Some(streamer), Ok(path)) = (&mut self.qlog.streamer, self.paths.get_mut(path_id)) {
            path.recovery.maybe_qlog(streamer, now);
        }
    }
}
