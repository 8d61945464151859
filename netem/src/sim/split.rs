//! The rival: a proxy that terminates the connection and opens another one to the receiver, and
//! carries the bytes of every stream from one to the other. Each half has a congestion controller
//! of its own and repairs its own losses.
//!
//! It stands on the path in place of the server towards the sender and in place of the client
//! towards the receiver, as a transparent performance-enhancing proxy does (RFC 3135), and so it
//! must hold the keys of both.

use std::collections::BTreeSet;
use std::time::Instant;

use quic_sidekick::quiche::{Connection, Error};

use super::chain::{Node, Outbox, Side};
use super::host::Endpoint;
use super::packet::Packet;
use super::quic::{App, Quic, Work};

/// Read and written at once.
const CHUNK: usize = 64 * 1024;
/// What the application closes with when the other half failed.
const GONE: u64 = 0x102;

/// One half of the proxy. Streams are relayed by [`relay`], which needs both halves.
#[derive(Debug)]
pub(super) struct Half;

impl App for Half {
    fn work(&mut self, conn: &mut Connection, _now: Instant) -> Result<Work, String> {
        Ok(Work { received: conn.readable().next().is_some(), wrote: false })
    }

    fn delivered(&self) -> u64 {
        0
    }

    fn is_done(&self) -> bool {
        false
    }
}

/// A flow through the proxy.
pub(super) struct Spliced {
    near: Quic<Half>,
    far: Quic<Half>,
    /// Streams that exist on the other half, by the half that they were read from: near, far.
    open: [BTreeSet<u64>; 2],
    /// The sender was heard; only then does the proxy call the receiver.
    begun: bool,
}

/// The splitting proxy.
pub(super) struct SplitProxy {
    flows: Vec<Spliced>,
    buffer: Vec<u8>,
    out: Vec<Packet>,
}

impl Spliced {
    /// Two halves: `near` is the server of the sender's connection, `far` the client of the one to
    /// the receiver.
    pub(super) fn new(near: Quic<Half>, far: Quic<Half>) -> Self {
        Self { near, far, open: Default::default(), begun: false }
    }

    /// Carries bytes both ways. Returns what each half was given to send.
    fn relay(&mut self, buffer: &mut [u8]) -> Given {
        let Self { near, far, open: [from_near, from_far], .. } = self;
        let to_far = relay(&mut near.conn, &mut far.conn, from_near, buffer);
        let to_near = relay(&mut far.conn, &mut near.conn, from_far, buffer);
        if near.conn.is_closed() || near.conn.is_draining() {
            let _ = far.conn.close(true, GONE, b"the other half is gone");
        }
        if far.conn.is_closed() || far.conn.is_draining() {
            let _ = near.conn.close(true, GONE, b"the other half is gone");
        }
        Given { to_near, to_far }
    }
}

/// Whether the halves were given bytes to send.
#[derive(Clone, Copy)]
struct Given {
    to_near: bool,
    to_far: bool,
}

/// Carries the bytes of every readable stream of `from`, as far as `to` has room for them. Returns
/// whether there were any.
fn relay(
    from: &mut Connection,
    to: &mut Connection,
    open: &mut BTreeSet<u64>,
    buffer: &mut [u8],
) -> bool {
    let mut given = false;
    if !to.is_established() {
        return given;
    }
    for stream in from.readable() {
        // A stream comes into being with the first write.
        if open.insert(stream) && to.stream_send(stream, b"", false).is_err() {
            open.remove(&stream);
            continue;
        }
        while let Ok(room) = to.stream_capacity(stream) {
            let room = room.min(buffer.len());
            let Some(space) = buffer.get_mut(..room).filter(|space| !space.is_empty()) else {
                break;
            };
            match from.stream_recv(stream, space) {
                Ok((length, end)) => {
                    given = true;
                    let _ = to.stream_send(stream, space.get(..length).unwrap_or_default(), end);
                }
                Err(Error::StreamReset(code)) => {
                    let _ =
                        to.stream_shutdown(stream, quic_sidekick::quiche::Shutdown::Write, code);
                    break;
                }
                Err(_) => break,
            }
        }
    }
    given
}

impl SplitProxy {
    pub(super) fn new(flows: Vec<Spliced>) -> Self {
        Self { flows, buffer: vec![0; CHUNK], out: Vec::new() }
    }

    /// Relays, and lets the halves of a flow send that have something new to send: what they were
    /// given, or what came from the side that was heard and may not wait.
    fn settle(&mut self, index: usize, heard: Option<Side>, now: Instant, out: &mut Outbox) {
        let Some(flow) = self.flows.get_mut(index) else { return };
        let (near_had, far_had) =
            (flow.near.conn.readable().next(), flow.far.conn.readable().next());
        let Given { to_near, to_far } = flow.relay(&mut self.buffer);
        let near = match heard {
            Some(Side::Left) => {
                !flow.near.may_wait(Work { received: near_had.is_some(), wrote: to_near }, now)
            }
            _ => to_near,
        };
        let far = match heard {
            Some(Side::Right) => {
                !flow.far.may_wait(Work { received: far_had.is_some(), wrote: to_far }, now)
            }
            _ => to_far || !flow.far.conn.is_established(),
        };
        if near {
            flow.near.work_and_send(now, &mut self.out);
            out.extend(self.out.drain(..).map(|packet| (Side::Left, packet)));
        }
        if far && flow.begun {
            flow.far.work_and_send(now, &mut self.out);
            out.extend(self.out.drain(..).map(|packet| (Side::Right, packet)));
        }
    }
}

impl Node for SplitProxy {
    fn receive(&mut self, from: Side, packet: Packet, now: Instant, out: &mut Outbox) {
        if packet.damaged {
            return;
        }
        let owner = self.flows.iter().position(|flow| match from {
            Side::Left => flow.near.owns(packet.destination),
            Side::Right => flow.far.owns(packet.destination),
        });
        let Some(index) = owner else { return };
        let Some(flow) = self.flows.get_mut(index) else { return };
        match from {
            Side::Left => {
                flow.begun = true;
                flow.near.take(packet);
            }
            Side::Right => flow.far.take(packet),
        }
        self.settle(index, Some(from), now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let begun = self.flows.iter().filter(|flow| flow.begun);
        begun.flat_map(|flow| [flow.near.poll_timeout(), flow.far.poll_timeout()]).flatten().min()
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Outbox) {
        for index in 0..self.flows.len() {
            let Some(flow) = self.flows.get_mut(index).filter(|flow| flow.begun) else { continue };
            let near = flow.near.poll_timeout().is_some_and(|at| at <= now);
            let far = flow.far.poll_timeout().is_some_and(|at| at <= now);
            if near {
                flow.near.on_timeout(now, &mut self.out);
                out.extend(self.out.drain(..).map(|packet| (Side::Left, packet)));
            }
            if far {
                flow.far.on_timeout(now, &mut self.out);
                out.extend(self.out.drain(..).map(|packet| (Side::Right, packet)));
            }
            if near || far {
                self.settle(index, None, now, out);
            }
        }
    }
}
