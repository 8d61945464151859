//! Reading the messages at the proxy's port.

use std::io;
use std::net::SocketAddr;

use sidekick_protocol::Peer;

use crate::port::{Port, Receiver};

/// Most messages that one read returns.
const MESSAGES: usize = 32;
/// Bytes of a receive buffer: more than any message, so a message that fills it is too long.
const RECEIVE_LEN: usize = 2048;

/// Reads messages at the proxy's port.
pub(super) struct PortReader<'a> {
    receiver: Receiver<'a>,
    messages: Vec<Received>,
}

#[derive(Clone)]
struct Received {
    from: Peer,
    len: usize,
    buffer: [u8; RECEIVE_LEN],
}

impl<'a> PortReader<'a> {
    pub(super) fn new(port: &'a Port) -> Self {
        let unspecified = SocketAddr::from(([0; 4], 0));
        let empty = Received { from: unspecified.into(), len: 0, buffer: [0; RECEIVE_LEN] };
        Self { receiver: port.receiver(), messages: vec![empty; MESSAGES] }
    }

    /// Reads messages that wait, at most 32, and returns how many. Never blocks.
    pub(super) fn read(&mut self) -> io::Result<usize> {
        for (index, message) in self.messages.iter_mut().enumerate() {
            let Some(arrival) = self.receiver.receive(&mut message.buffer)? else {
                return Ok(index);
            };
            message.from = Peer { address: arrival.from, local_ip: arrival.local_ip };
            message.len = arrival.len;
        }
        Ok(MESSAGES)
    }

    /// The sender and the bytes of the first `count` messages of the last read.
    pub(super) fn messages(&self, count: usize) -> impl Iterator<Item = (Peer, &[u8])> {
        self.messages
            .iter()
            .take(count)
            .filter_map(|message| Some((message.from, message.buffer.get(..message.len)?)))
    }
}
