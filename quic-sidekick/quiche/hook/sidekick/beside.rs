//! Datagrams that are not QUIC, on the connection's own path: from its address and port to the
//! peer's, and back.
//!
//! They begin with a byte from 4 to 15. RFC 9443 assigns these to none of the protocols that share
//! a port with QUIC, and no QUIC packet begins so: its first or second bit is set.

use std::collections::VecDeque;
use std::ops::{Range, RangeInclusive};
use std::time::Instant;

use crate::{BufFactory, Connection, RecvInfo, SendInfo};

/// The first bytes of such datagrams.
const FIRST_BYTES: RangeInclusive<u8> = 4..=15;
/// The longest such datagram in bytes.
const MAX_LEN: usize = 512;
/// The most waiting datagrams in each direction.
const MAX_WAITING: usize = 8;

/// Datagrams that wait to be sent, and datagrams received.
#[derive(Debug, Default)]
pub(super) struct Beside {
    to_send: VecDeque<Vec<u8>>,
    heard: VecDeque<Vec<u8>>,
}

/// Queues a datagram, or drops it if the queue is full: anyone may have sent it, while those that
/// wait may be answers.
fn push(queue: &mut VecDeque<Vec<u8>>, datagram: &[u8]) {
    if queue.len() < MAX_WAITING {
        queue.push_back(datagram.to_vec());
    }
}

/// Whether a datagram may share the path with QUIC.
fn is_beside(datagram: &[u8]) -> bool {
    datagram.len() <= MAX_LEN && datagram.first().is_some_and(|first| FIRST_BYTES.contains(first))
}

/// The first byte and the length of an answer to a marker.
const ANSWER_BYTE: u8 = 6;
const HANDLE: Range<usize> = 1..21;
const MAGIC: &[u8] = b"Sidekick";
/// The mask of the handle: the last bytes of the answer, repeated.
const MASK_LEN: usize = 16;

/// The first `len` bytes of the handle of an answer to a marker, unmasked: the ID of the connection
/// that sent the marker. `None` for any other datagram.
///
/// The handle is masked, because anyone can make a proxy send it to an address of their choice
/// (SPEC.md, section 4.1 of the Sidekick protocol).
pub(crate) fn answered_connection(datagram: &[u8], len: usize) -> Option<Vec<u8>> {
    // This runs for every short header; the first byte decides nearly all.
    if datagram.first() != Some(&ANSWER_BYTE) || !datagram.get(HANDLE.end..)?.starts_with(MAGIC) {
        return None;
    }
    let mask = datagram.get(datagram.len().checked_sub(MASK_LEN)?..)?;
    let handle = datagram.get(HANDLE)?.get(..len)?;
    Some(handle.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect())
}

impl<F: BufFactory> Connection<F> {
    /// Queues a datagram, so that one of the next calls of `send` returns it, unchanged, for the
    /// active path. It precedes packets, and is outside the connection's counters and limits, but a
    /// server sends none to an unvalidated address. The call drops a datagram that is longer than
    /// 512 bytes, does not begin with a byte from 4 to 15, or finds eight waiting.
    pub fn sidekick_send_beside(&mut self, datagram: &[u8]) {
        if self.sidekick.capacity > 0 && is_beside(datagram) {
            push(&mut self.sidekick.beside.to_send, datagram);
        }
    }

    /// Removes and returns the datagrams with a first byte from 4 to 15 that `recv` received since
    /// the last call. Their addresses are those of one of the connection's paths. The first eight
    /// are kept. Anyone may have sent them.
    pub fn sidekick_drain_beside(&mut self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.sidekick.beside.heard.drain(..)
    }

    /// Intercepts a datagram that is not the connection's. Without a log the application does not
    /// drain it, so it is left to quiche.
    pub(crate) fn sidekick_heard(&mut self, datagram: &[u8], info: &RecvInfo) -> bool {
        let beside = self.sidekick.capacity > 0 && is_beside(datagram);
        if beside && self.paths.path_id_from_addrs(&(info.to, info.from)).is_some() {
            push(&mut self.sidekick.beside.heard, datagram);
        }
        beside
    }

    /// Writes a waiting datagram that is not a new packet, if `out` has room.
    pub(crate) fn sidekick_speak(
        &mut self,
        path_id: usize,
        out: &mut [u8],
        now: Instant,
    ) -> Option<(usize, SendInfo)> {
        if self.local_error.is_some() {
            // Nothing precedes the close, which may be the last datagram.
            return None;
        }
        self.sidekick_send_beside_next(path_id, out, now)
            .or_else(|| self.sidekick_send_again(path_id, out, now))
    }

    fn sidekick_send_beside_next(
        &mut self,
        path_id: usize,
        out: &mut [u8],
        now: Instant,
    ) -> Option<(usize, SendInfo)> {
        let datagram = self.sidekick.beside.to_send.front()?;
        let path = self.paths.get(path_id).ok().filter(|path| path.active())?;
        if self.is_server && !path.verified_peer_address {
            // RFC 9000, section 8.1: a server must not flood an unvalidated address.
            return None;
        }
        let (len, room) = (datagram.len(), out.get_mut(..datagram.len())?);
        room.copy_from_slice(datagram);
        let info = SendInfo { from: path.local_addr(), to: path.peer_addr(), at: now };
        self.sidekick.beside.to_send.pop_front();
        Some((len, info))
    }
}
