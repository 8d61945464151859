//! A client that migrates to another port (RFC 9000, section 9), and the connection IDs for it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Instant;

use quic_sidekick::quiche::{Connection, ConnectionId, MAX_CONN_ID_LEN};

/// Connection IDs that each end provides to the other. They suffice for the migrations of any run.
pub(super) const CONNECTION_IDS: u64 = 16;

/// The distance between two ports. It is larger than the number of flows beside each other.
const PORTS_APART: u16 = 100;

/// One end of a connection that migrates. A server only provides connection IDs.
#[derive(Debug)]
pub(super) struct Migration {
    due: VecDeque<Instant>,
    /// The next socket while its path is validated.
    probed: Option<SocketAddr>,
    /// The first migration is due. It waits for connection IDs, or for the validation of its path.
    waits: bool,
    /// The earlier sockets of the connection.
    left: Vec<SocketAddr>,
    ids: u32,
}

impl Migration {
    /// A client that migrates at these times, or a server that permits it.
    pub(super) fn new(times: impl IntoIterator<Item = Instant>) -> Self {
        let due = times.into_iter().collect();
        Self { due, probed: None, waits: false, left: Vec::new(), ids: 0 }
    }

    pub(super) fn count(&self) -> u64 {
        self.left.len() as u64
    }

    /// Whether the address is a socket of the connection other than the current one.
    pub(super) fn owns(&self, address: SocketAddr) -> bool {
        self.probed == Some(address) || self.left.contains(&address)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.due.front().copied().filter(|_| !self.waits)
    }

    /// Provides connection IDs and, if a migration is due, probes the path from another socket, to
    /// which it migrates after validation. Returns the new address.
    pub(super) fn work(
        &mut self,
        conn: &mut Connection,
        local: SocketAddr,
        now: Instant,
    ) -> Option<SocketAddr> {
        self.waits = self.due.front().is_some_and(|at| *at <= now);
        if !conn.is_established() {
            return None;
        }
        while conn.scids_left() > 0 {
            let id = self.next_id(local);
            if conn.new_scid(&id, self.ids.into(), false).is_err() {
                break;
            }
        }
        if !self.waits {
            return None;
        }
        let next = SocketAddr::new(local.ip(), local.port().wrapping_add(PORTS_APART));
        let peer = conn.path_stats().find(|path| path.active)?.peer_addr;
        if self.probed.is_none() && conn.probe_path(next, peer).is_ok() {
            self.probed = Some(next);
        }
        if !conn.is_path_validated(next, peer).unwrap_or(false)
            || conn.migrate_source(next).is_err()
        {
            return None;
        }
        (self.probed, self.waits) = (None, false);
        self.due.pop_front();
        self.left.push(local);
        Some(next)
    }

    fn next_id(&mut self, local: SocketAddr) -> ConnectionId<'static> {
        self.ids += 1;
        let mut id = local.port().to_be_bytes().to_vec();
        id.resize(MAX_CONN_ID_LEN - 4, 0x80);
        id.extend(self.ids.to_be_bytes());
        ConnectionId::from_vec(id)
    }
}
