//! The path that the sender requests assistance for.

use quiche::sidekick::SentPacket;
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

    /// Requests assistance for the path of a sent packet, unless the sender did before. Returns
    /// whether the path is another than before.
    pub(super) fn follow(
        &mut self,
        packet: &SentPacket,
        sender: &mut Sender,
        now: Instant,
    ) -> bool {
        let flow = Flow { source: packet.local_addr, destination: packet.peer_addr };
        let path = Some(Path { id: packet.path_id, flow });
        let migrated = self.current != path;
        // Whatever delayed the handshake may also have kept the proxy from answering. The sender
        // then asks again, at short intervals.
        let unanswered =
            !self.has_sent && sender.assistance() == Assistance::Unassisted(Reason::NoAnswer);
        if migrated || unanswered {
            sender.start(flow, now);
        }
        if migrated {
            self.current = path;
        }
        self.has_sent = true;
        migrated
    }
}
