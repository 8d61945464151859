//! A split proxy, for comparison: it terminates the connection, opens another one to the receiver,
//! and relays the bytes of every stream. Each half has its own congestion controller, and repairs
//! its own losses.
//!
//! It plays the server towards the sender, and the client towards the receiver, like a transparent
//! performance-enhancing proxy (RFC 3135), so it must hold the keys of both.

use std::collections::BTreeSet;
use std::time::Instant;

use quic_sidekick::quiche::{Connection, Error};

use super::chain::{Node, Outbox, Side};
use super::host::Endpoint;
use super::packet::Packet;
use super::quic::{App, Quic, Work};

/// Bytes to read and write at once.
const CHUNK: usize = 64 * 1024;
/// The application error code of a half that closes because the other half failed.
const GONE: u64 = 0x102;

/// One half of the proxy. Streams are relayed by [`relay`], which needs both halves.
#[derive(Debug)]
pub(super) struct Half;

impl App for Half {
    fn work(&mut self, conn: &mut Connection, _now: Instant) -> Result<Work, String> {
        Ok(Work { received: conn.readable().next().is_some(), wrote: false })
    }
}

/// The halves by side: the near one is the server of the sender's connection, the far one the
/// client of the connection to the receiver.
const SIDES: [Side; 2] = [Side::Left, Side::Right];

pub(super) struct Spliced {
    /// The halves, in the order of [`SIDES`].
    halves: [Quic<Half>; 2],
    /// Streams that exist on the other half, by the half from which they were read.
    open: [BTreeSet<u64>; 2],
    /// Whether a packet from the sender arrived. Only then does the proxy connect to the receiver.
    begun: bool,
    /// The flow control window of each half, in bytes.
    window: u64,
    /// Bytes that were read from each half since it last announced credit.
    taken: [u64; 2],
}

pub(super) struct SplitProxy {
    flows: Vec<Spliced>,
    buffer: Vec<u8>,
    out: Vec<Packet>,
}

impl Spliced {
    pub(super) fn new(near: Quic<Half>, far: Quic<Half>, window: u64) -> Self {
        let open = Default::default();
        Self { halves: [near, far], open, begun: false, window, taken: [0; 2] }
    }

    fn half(&mut self, side: Side) -> &mut Quic<Half> {
        let [near, far] = &mut self.halves;
        match side {
            Side::Left => near,
            Side::Right => far,
        }
    }

    /// Relays bytes in both directions. Returns for each half whether it must send: bytes, or much
    /// flow control credit.
    fn relay(&mut self, buffer: &mut [u8]) -> [bool; 2] {
        let [Quic { conn: near, .. }, Quic { conn: far, .. }] = &mut self.halves;
        let [from_near, from_far] = &mut self.open;
        let to_far = relay(near, far, from_near, buffer);
        let to_near = relay(far, near, from_far, buffer);
        close_after(near, far);
        close_after(far, near);
        let [near_taken, far_taken] = &mut self.taken;
        [
            owes_credit(near_taken, to_far, self.window) || to_near.is_some(),
            owes_credit(far_taken, to_near, self.window) || to_far.is_some(),
        ]
    }
}

/// Counts the bytes that were read from a half since its last credit, and returns whether the half
/// should announce credit. A peer that has filled the window sends nothing until it receives some.
fn owes_credit(taken: &mut u64, more: Option<u64>, window: u64) -> bool {
    *taken += more.unwrap_or(0);
    let owes = *taken >= window / 2;
    if owes {
        *taken = 0;
    }
    owes
}

fn close_after(other: &Connection, half: &mut Connection) {
    if other.is_closed() || other.is_draining() {
        let _ = half.close(true, GONE, b"the other half is gone");
    }
}

/// Relays the bytes of every readable stream of `from`, as far as they fit in `to`. Returns their
/// number. `None` if there were no bytes and no end of a stream.
fn relay(
    from: &mut Connection,
    to: &mut Connection,
    open: &mut BTreeSet<u64>,
    buffer: &mut [u8],
) -> Option<u64> {
    let mut given = None;
    if !to.is_established() {
        return given;
    }
    for stream in from.readable() {
        // The first write creates a stream.
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
                    given = Some(given.unwrap_or(0) + length as u64);
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

    /// Relays data. Then the halves of a flow send that have new data, or that must answer the side
    /// from which a packet came.
    fn settle(&mut self, index: usize, heard: Option<Side>, now: Instant, out: &mut Outbox) {
        let Some(flow) = self.flows.get_mut(index) else { return };
        let had = flow.halves.each_ref().map(|half| half.conn.readable().next().is_some());
        let given = flow.relay(&mut self.buffer);
        for (((half, side), received), wrote) in
            flow.halves.iter_mut().zip(SIDES).zip(had).zip(given)
        {
            let calls = side == Side::Right && !half.conn.is_established();
            let sends = match heard {
                Some(heard) if heard == side => !half.may_wait(Work { received, wrote }, now),
                _ => wrote || calls,
            };
            if sends && (side == Side::Left || flow.begun) {
                half.work_and_send(now, &mut self.out);
                out.extend(self.out.drain(..).map(|packet| (side, packet)));
            }
        }
    }
}

impl Node for SplitProxy {
    fn receive(&mut self, from: Side, packet: Packet, now: Instant, out: &mut Outbox) {
        if packet.damaged {
            return;
        }
        let owner = self.flows.iter_mut().position(|flow| flow.half(from).owns(packet.destination));
        let Some(index) = owner else { return };
        let Some(flow) = self.flows.get_mut(index) else { return };
        flow.begun |= from == Side::Left;
        flow.half(from).take(packet);
        self.settle(index, Some(from), now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let begun = self.flows.iter().filter(|flow| flow.begun);
        begun.flat_map(|flow| &flow.halves).filter_map(Quic::poll_timeout).min()
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Outbox) {
        for index in 0..self.flows.len() {
            let Some(flow) = self.flows.get_mut(index).filter(|flow| flow.begun) else { continue };
            let mut due = false;
            for (half, side) in flow.halves.iter_mut().zip(SIDES) {
                if half.poll_timeout().is_some_and(|at| at <= now) {
                    half.on_timeout(now, &mut self.out);
                    out.extend(self.out.drain(..).map(|packet| (side, packet)));
                    due = true;
                }
            }
            if due {
                self.settle(index, None, now, out);
            }
        }
    }
}
