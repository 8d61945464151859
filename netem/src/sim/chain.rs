//! The scheduler: nodes in a row, the packets between them, and the next event.
//!
//! Nodes are sans-IO state machines with a neighbour on either side. A node's packet reaches its
//! neighbour at the same instant, so time passes only within links and endpoints. Events at one
//! instant happen in the order of the nodes, and for one node in the order of sending, so a run
//! depends only on its seed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use virtual_time::World;

use super::packet::Packet;
use crate::record::{FaultCounts, QuackStyles};

/// A run without progress for this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// More events than this at one instant are an endless loop.
const MOST_AT_ONCE: u32 = 1_000_000;

/// The side of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Towards the sender.
    Left,
    /// Towards the receiver.
    Right,
}

/// The packets that a node sends, each with its side.
pub(super) type Outbox = Vec<(Side, Packet)>;

/// One link, host or proxy.
pub(super) trait Node {
    /// Handles a packet that arrives from a side.
    fn receive(&mut self, from: Side, packet: Packet, now: Instant, out: &mut Outbox);
    /// When to call [`Node::on_timeout`].
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    /// Does the work that is due. It may be called at any time.
    fn on_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}
    /// Bytes that the applications of this node have received. If no node receives more, the run
    /// makes no progress.
    fn delivered(&self) -> u64 {
        0
    }
    /// The bytes for each way to report packets, if it is a proxy that sent quACKs.
    fn quack_styles(&self) -> Option<QuackStyles> {
        None
    }
    /// Bytes that it sent itself, with UDP and IPv4 headers.
    fn spoken_bytes(&self) -> u64 {
        0
    }
    /// The faults that occurred in it.
    fn fault_counts(&self) -> FaultCounts {
        FaultCounts::default()
    }
    /// Whether the run may end.
    fn is_done(&self) -> bool {
        false
    }
}

/// Why a run did not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stuck {
    /// No application received anything for a minute.
    NoProgress { at: Duration },
    /// No further event will happen.
    Silence { at: Duration },
    /// Nodes keep each other busy without the passage of time.
    Loop { at: Duration },
}

/// Runs until a node is done, or until `limit`, and returns the time of the end. From time to time
/// it calls `watch` with the time and the bytes delivered.
pub(super) fn drive(
    world: &World,
    nodes: &mut [&mut dyn Node],
    limit: Option<Duration>,
    watch: &mut (dyn FnMut(Duration, u64) + Send),
) -> Result<Duration, Stuck> {
    let start = world.start();
    let limit = limit.map(|limit| start + limit);
    let mut now = start;
    let mut at_once = 0;
    let (mut delivered, mut last_progress) = (0, start);
    let mut travelling = VecDeque::new();
    let mut out = Outbox::new();
    let mut deadlines: Vec<_> = nodes.iter().map(|node| node.poll_timeout()).collect();
    loop {
        let elapsed = now - start;
        // Packets come first, because they have already arrived.
        while let Some((index, from, packet)) = travelling.pop_front() {
            let (Some(node), Some(deadline)) =
                (nodes.get_mut::<usize>(index), deadlines.get_mut(index))
            else {
                continue; // Off the end of the chain.
            };
            node.receive(from, packet, now, &mut out);
            *deadline = node.poll_timeout();
            hand_over(index, &mut out, &mut travelling);
            at_once += 1;
            if at_once > MOST_AT_ONCE {
                return Err(Stuck::Loop { at: elapsed });
            }
        }
        if nodes.iter().any(|node| node.is_done()) {
            return Ok(elapsed);
        }
        let so_far = nodes.iter().map(|node| node.delivered()).sum();
        if so_far > delivered {
            (delivered, last_progress) = (so_far, now);
            watch(elapsed, delivered);
        }
        let Some(next) = deadlines.iter().flatten().min().copied() else {
            return Err(Stuck::Silence { at: elapsed });
        };
        let next = next.max(now);
        if limit.is_some_and(|limit| next >= limit) {
            let end = limit.unwrap_or(next);
            world.set(end - start);
            return Ok(end - start);
        }
        if next > last_progress + PATIENCE {
            return Err(Stuck::NoProgress { at: elapsed });
        }
        if next > now {
            now = next;
            world.set(now - start);
            at_once = 0;
        }
        for (index, (node, deadline)) in nodes.iter_mut().zip(&mut deadlines).enumerate() {
            if deadline.is_some_and(|deadline| deadline <= now) {
                node.on_timeout(now, &mut out);
                *deadline = node.poll_timeout();
                hand_over(index, &mut out, &mut travelling);
                at_once += 1;
            }
        }
        if at_once > MOST_AT_ONCE {
            return Err(Stuck::Loop { at: elapsed });
        }
    }
}

fn hand_over(index: usize, out: &mut Outbox, travelling: &mut VecDeque<(usize, Side, Packet)>) {
    for (side, packet) in out.drain(..) {
        let (neighbour, from) = match side {
            Side::Left => (index.wrapping_sub(1), Side::Right),
            Side::Right => (index + 1, Side::Left),
        };
        travelling.push_back((neighbour, from, packet));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends a packet every millisecond until it has received `wanted` packets.
    struct Pinger {
        next: Instant,
        had: u64,
        wanted: u64,
        times: Vec<Instant>,
    }

    impl Node for Pinger {
        fn receive(&mut self, _from: Side, packet: Packet, now: Instant, _out: &mut Outbox) {
            self.had += packet.payload.len() as u64;
            self.times.push(now);
        }
        fn poll_timeout(&self) -> Option<Instant> {
            Some(self.next)
        }
        fn on_timeout(&mut self, now: Instant, out: &mut Outbox) {
            let address = ([10, 0, 0, 1], 1).into();
            out.push((Side::Right, Packet::new(address, address, &[0])));
            self.next = now + Duration::from_millis(1);
        }
        fn delivered(&self) -> u64 {
            self.had
        }
        fn is_done(&self) -> bool {
            self.had >= self.wanted
        }
    }

    /// Returns the packets that it receives, or drops them.
    struct Echo {
        swallow: bool,
    }

    impl Node for Echo {
        fn receive(&mut self, from: Side, packet: Packet, _now: Instant, out: &mut Outbox) {
            if !self.swallow {
                out.push((from, packet));
            }
        }
        fn poll_timeout(&self) -> Option<Instant> {
            None
        }
        fn on_timeout(&mut self, _now: Instant, _out: &mut Outbox) {}
    }

    fn run(swallow: bool, limit: Option<Duration>) -> (Result<Duration, Stuck>, usize) {
        let world = World::enter(1).unwrap();
        let mut pinger = Pinger { next: world.start(), had: 0, wanted: 5, times: Vec::new() };
        let mut echo = Echo { swallow };
        let end = drive(&world, &mut [&mut pinger, &mut echo], limit, &mut |_, _| {});
        (end, pinger.times.len())
    }

    #[test]
    fn a_run_ends_when_a_node_is_done() {
        assert_eq!(run(false, None), (Ok(Duration::from_millis(4)), 5));
    }

    #[test]
    fn a_run_ends_at_its_limit() {
        let limit = Duration::from_micros(2500);
        assert_eq!(run(false, Some(limit)), (Ok(limit), 3));
    }

    #[test]
    fn a_run_without_progress_ends_with_an_error() {
        let (end, _) = run(true, None);
        assert_eq!(end, Err(Stuck::NoProgress { at: PATIENCE }));
    }

    #[test]
    fn a_run_in_which_nothing_will_happen_ends_with_an_error() {
        let world = World::enter(1).unwrap();
        let end = drive(&world, &mut [&mut Echo { swallow: true }], None, &mut |_, _| {});
        assert_eq!(end, Err(Stuck::Silence { at: Duration::ZERO }));
    }
}
