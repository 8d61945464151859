//! The path that the sender requests assistance for.

use quiche::{BufFactory, Connection};
use sidekick_protocol::{Assistance, Flow, Reason, Sender};
use std::time::Instant;

/// A path of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Path {
    /// The connection's identifier of it.
    pub(super) id: usize,
    pub(super) flow: Flow,
}

/// The path of a sent packet, compared with the assisted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Followed {
    /// It is the assisted one.
    Same,
    /// It is the assisted one, and the sender asked again.
    Asked,
    /// It is another one, and the sender asked for help there.
    Migrated,
}

/// The assisted path. It follows the connection's migrations.
#[derive(Debug, Default)]
pub(super) struct AssistedPath {
    current: Option<Path>,
    /// The connection has sent a packet that counts.
    has_sent: bool,
}

impl AssistedPath {
    pub(super) fn current(&self) -> Option<Path> {
        self.current
    }

    /// Requests assistance for the active path.
    pub(super) fn start<F: BufFactory>(
        &mut self,
        conn: &Connection<F>,
        sender: &mut Sender,
        now: Instant,
    ) {
        if let Some((id, source, destination)) = conn.sidekick_active_path() {
            let flow = Flow { source, destination };
            sender.start(flow, now);
            self.current = Some(Path { id, flow });
        }
    }

    /// Requests assistance for the path of a sent packet, unless the sender did before.
    #[inline]
    pub(super) fn follow<F: BufFactory>(
        &mut self,
        path_id: usize,
        conn: &Connection<F>,
        sender: &mut Sender,
        now: Instant,
    ) -> Followed {
        let migrated = self.current.is_none_or(|current| current.id != path_id);
        if self.has_sent && !migrated {
            return Followed::Same;
        }
        self.ask(path_id, migrated, conn, sender, now)
    }

    /// As [`follow`](Self::follow), for a connection's first packet and for another path.
    #[cold]
    fn ask<F: BufFactory>(
        &mut self,
        path_id: usize,
        migrated: bool,
        conn: &Connection<F>,
        sender: &mut Sender,
        now: Instant,
    ) -> Followed {
        // Whatever delayed the handshake may also have kept the proxy from answering. The sender
        // then asks again, at short intervals.
        let unanswered =
            !self.has_sent && sender.assistance() == Assistance::Unassisted(Reason::NoAnswer);
        self.has_sent = true;
        if !migrated && !unanswered {
            return Followed::Same;
        }
        let Some((source, destination)) = conn.sidekick_path(path_id) else {
            return Followed::Same;
        };
        let flow = Flow { source, destination };
        sender.start(flow, now);
        self.current = Some(Path { id: path_id, flow });
        if migrated { Followed::Migrated } else { Followed::Asked }
    }
}
