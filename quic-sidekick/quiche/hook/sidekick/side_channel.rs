//! The side channel: datagrams that are not QUIC, between the addresses and ports of the
//! connection's own path.
//!
//! They begin with a byte from 4 to 15. RFC 9443 assigns these bytes to none of the protocols that
//! share a port with QUIC. A QUIC packet begins with none of them: its first or second bit is set.

use std::collections::VecDeque;
use std::ops::{Range, RangeInclusive};
use std::time::Instant;

use crate::{BufFactory, Connection, RecvInfo, SendInfo};

/// The first bytes of such datagrams.
const FIRST_BYTES: RangeInclusive<u8> = 4..=15;
/// The longest such datagram in bytes.
const MAX_LEN: usize = 512;
/// The most datagrams that wait in either direction.
const MAX_WAITING: usize = 8;

/// Datagrams that wait to be sent, and that were received.
#[derive(Debug, Default)]
pub(super) struct SideChannel {
    to_send: VecDeque<Vec<u8>>,
    received: VecDeque<Vec<u8>>,
}

/// Queues a datagram, or drops it if the queue is full: anyone can send one, and those that wait
/// may be answers.
fn push(queue: &mut VecDeque<Vec<u8>>, datagram: &[u8]) {
    if queue.len() < MAX_WAITING {
        queue.push_back(datagram.to_vec());
    }
}

/// Whether a datagram belongs to the side channel.
fn is_side_channel(datagram: &[u8]) -> bool {
    datagram.len() <= MAX_LEN && datagram.first().is_some_and(|first| FIRST_BYTES.contains(first))
}

/// The first byte of an answer to a marker, and the bytes of one.
const ANSWER_BYTE: u8 = 6;
const HANDLE: Range<usize> = 1..21;
const MAGIC: &[u8] = b"Sidekick";
/// The mask of the handle: the last bytes of the answer, repeated.
const MASK_LEN: usize = 16;

/// The first `len` bytes of the handle of an answer to a marker: the ID of the connection that sent
/// the marker. `None` for any other datagram.
///
/// The handle is masked, because anyone can make a proxy send one to an address of their choice
/// (SPEC.md, section 4.1 of the Sidekick protocol).
#[inline]
pub(crate) fn answered_connection(datagram: &[u8], len: usize) -> Option<Vec<u8>> {
    // This runs for every short header; the first byte decides nearly all.
    if datagram.first() == Some(&ANSWER_BYTE) { unmasked_handle(datagram, len) } else { None }
}

#[cold]
fn unmasked_handle(datagram: &[u8], len: usize) -> Option<Vec<u8>> {
    if !datagram.get(HANDLE.end..)?.starts_with(MAGIC) {
        return None;
    }
    let mask = datagram.get(datagram.len().checked_sub(MASK_LEN)?..)?;
    let handle = datagram.get(HANDLE)?.get(..len)?;
    Some(handle.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect())
}

impl<F: BufFactory> Connection<F> {
    /// Queues a datagram that one of the next calls of `send` returns unchanged, on the active path
    /// and before any packet. The connection's counters and limits do not include it. A server
    /// sends none to an address that is not validated. The call drops a datagram that is longer
    /// than 512 bytes, that does not begin with a byte from 4 to 15, or that finds eight waiting.
    pub fn sidekick_send_side_channel(&mut self, datagram: &[u8]) {
        if self.sidekick.log.is_on() && is_side_channel(datagram) {
            push(&mut self.sidekick.side_channel.to_send, datagram);
        }
    }

    /// Removes and returns the datagrams of the side channel that `recv` received, at most eight.
    /// Their addresses are those of one of the connection's paths, but anyone may have sent them.
    pub fn sidekick_drain_side_channel(&mut self) -> impl Iterator<Item = Vec<u8>> + '_ {
        std::iter::from_fn(|| self.sidekick.side_channel.received.pop_front())
    }

    /// Keeps a received datagram if it belongs to the side channel, and returns whether it does.
    /// Without a log the application does not read it: quiche then handles it.
    #[inline]
    pub(crate) fn sidekick_intercept(&mut self, datagram: &[u8], info: &RecvInfo) -> bool {
        let intercepted = self.sidekick.log.is_on() && is_side_channel(datagram);
        if intercepted && self.paths.path_id_from_addrs(&(info.to, info.from)).is_some() {
            push(&mut self.sidekick.side_channel.received, datagram);
        }
        intercepted
    }

    /// Writes a waiting datagram that is not a new packet, if `out` has room.
    #[inline]
    pub(crate) fn sidekick_write_extra(
        &mut self,
        path_id: usize,
        out: &mut [u8],
        now: Instant,
    ) -> Option<(usize, SendInfo)> {
        // This runs for every packet, and nearly always nothing waits.
        if self.sidekick.side_channel.to_send.is_empty() && !self.sidekick.again.is_waiting() {
            return None;
        }
        self.sidekick_write_waiting(path_id, out, now)
    }

    #[cold]
    fn sidekick_write_waiting(
        &mut self,
        path_id: usize,
        out: &mut [u8],
        now: Instant,
    ) -> Option<(usize, SendInfo)> {
        if self.local_error.is_some() {
            // The close may be the last datagram: nothing precedes it.
            return None;
        }
        self.sidekick_write_side_channel(path_id, out, now)
            .or_else(|| self.sidekick_send_again(path_id, out, now))
    }

    fn sidekick_write_side_channel(
        &mut self,
        path_id: usize,
        out: &mut [u8],
        now: Instant,
    ) -> Option<(usize, SendInfo)> {
        let datagram = self.sidekick.side_channel.to_send.front()?;
        let path = self.paths.get(path_id).ok().filter(|path| path.active())?;
        if self.is_server && !path.verified_peer_address {
            // RFC 9000, section 8.1, limits what a server sends to an unvalidated address.
            return None;
        }
        let (len, room) = (datagram.len(), out.get_mut(..datagram.len())?);
        room.copy_from_slice(datagram);
        let info = SendInfo { from: path.local_addr(), to: path.peer_addr(), at: now };
        self.sidekick.side_channel.to_send.pop_front();
        Some((len, info))
    }
}
