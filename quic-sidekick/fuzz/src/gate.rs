//! Gates of two flows, with a network, a proxy and strangers that the input controls. Datagrams
//! arrive in any order and twice, copies are of any datagram or forged, lists name anything at any
//! position, and the time advances by any step. The caller changes the hold, gives gaps up, and
//! opens a gate.
//!
//! For any input, each datagram leaves the gate that it entered, once and no later than the longest
//! hold since it came. No gap closes twice, memory stays bounded, and the timers end.

#![no_main]
#![allow(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a fuzz target reports by panicking, and needs some instant"
)]

use libfuzzer_sys::fuzz_target;
use sidekick_protocol::{Delivery, Gate, Hold};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// The datagrams that wait at most: those that no list names, and those behind a gap.
const MOST_WAITING: usize = 512 + 1024;
/// Gaps that are open at most: one for each position.
const MOST_GAPS: usize = 1024;

/// A datagram's flow, and its number among all.
type Name = (usize, u32);

struct Flow {
    number: usize,
    gate: Gate<Name>,
    /// When each datagram that waits came, and the longest hold since.
    inside: BTreeMap<Name, (Instant, Duration)>,
    /// Gaps that were found and did not close.
    open: BTreeSet<u64>,
    closed: u64,
    /// The position of the next datagram in honest lists, and those of the latest lists.
    next: u32,
    listed: Vec<u32>,
}

impl Flow {
    fn new(number: usize, hold: Hold, first: u32) -> Self {
        let (inside, open) = (BTreeMap::new(), BTreeSet::new());
        let gate = Gate::new(hold);
        Self { number, gate, inside, open, closed: 0, next: first, listed: Vec::new() }
    }

    fn enter(&mut self, name: u32, now: Instant) -> Name {
        let name = (self.number, name);
        self.inside.insert(name, (now, self.gate.hold().longest()));
        name
    }

    /// Names these identifiers as the latest to pass the proxy, beside some earlier ones.
    fn list(&mut self, identifiers: &[u8], earlier: u8, now: Instant) {
        self.listed.extend(identifiers.iter().copied().map(u32::from));
        self.next = self.next.wrapping_add(u32::try_from(identifiers.len()).expect("a short list"));
        self.listed.drain(..self.listed.len().saturating_sub(64));
        let len = self.listed.len().min(identifiers.len() + usize::from(earlier % 64)).min(64);
        let first = self.next.wrapping_sub(u32::try_from(len).expect("a short list"));
        let list = self.listed.split_off(self.listed.len() - len);
        // Identifiers repeat, so an honest list may contradict nothing.
        self.gate.on_list(first, list.iter().copied(), now).expect("an honest list");
        self.listed.extend(list);
    }

    /// Takes all that leaves, and checks what is left.
    fn check(&mut self, now: Instant) {
        while let Some(Delivery { datagram, waited }) = self.gate.poll_delivery() {
            let (came, longest) = self.inside.remove(&datagram).expect("it came, and leaves once");
            assert_eq!(waited, now - came);
            assert!(waited <= longest, "{datagram:?} waited for {waited:?}, not {longest:?}");
        }
        assert_eq!(self.gate.waiting(), self.inside.len(), "nothing vanishes");
        while let Some(gap) = self.gate.poll_gap() {
            assert!(gap.datagrams > 0 && gap.number > self.closed, "{gap:?}");
            self.open.insert(gap.number);
        }
        while let Some(gap) = self.gate.poll_closed() {
            assert!(self.open.remove(&gap), "gap {gap} closes once");
        }
        assert!(self.inside.len() <= MOST_WAITING && self.open.len() <= MOST_GAPS);
        let counters = self.gate.counters();
        assert!(counters.in_order + counters.given_up <= counters.missing, "{counters:?}");
        assert!(counters.late <= counters.given_up, "{counters:?}");
    }

    /// Serves the timers up to a time.
    fn advance(&mut self, until: Instant) {
        while let Some(at) = self.gate.poll_timeout().filter(|at| *at <= until) {
            self.gate.on_timeout(at);
            self.check(at);
            assert!(self.gate.poll_timeout().is_none_or(|next| next > at), "the gate would spin");
        }
    }
}

struct World {
    now: Instant,
    flows: [Flow; 2],
    names: u32,
}

impl World {
    fn new(settings: u8) -> Self {
        let hold = hold(settings);
        let first = if settings & 1 == 0 { u32::MAX - 30 } else { 7 };
        let flows = [0, 1].map(|number| Flow::new(number, hold, first));
        Self { now: Instant::now(), flows, names: 0 }
    }

    fn step(&mut self, [what, value]: [u8; 2], rest: &[u8]) {
        let now = self.now;
        let Some(flow) = self.flows.get_mut(usize::from(what >> 7)) else { return };
        let identifier = u32::from(value);
        match what & 0x7f {
            0..40 => {
                self.names += 1;
                let name = flow.enter(self.names, now);
                flow.gate.on_arrival(identifier, name, now);
            }
            40..44 => {
                // Many at once.
                for more in 0..value {
                    self.names += 1;
                    let name = flow.enter(self.names, now);
                    flow.gate.on_arrival(identifier << 8 | u32::from(more), name, now);
                }
            }
            44..64 => {
                self.names += 1;
                let name = flow.enter(self.names, now);
                if let Some(unwanted) = flow.gate.on_copy(identifier, name, now) {
                    assert_eq!(unwanted, name);
                    flow.inside.remove(&unwanted);
                }
            }
            64..88 => {
                let len = rest.len().min(usize::from(value % 16));
                flow.list(&rest[..len], value, now);
            }
            88..98 => {
                // A forged one, near the others or anywhere, perhaps too long.
                let first = match rest.first_chunk() {
                    Some(bytes) if value & 1 == 0 => u32::from_be_bytes(*bytes),
                    _ => flow.next.wrapping_add(u32::from(value)).wrapping_sub(160),
                };
                let list = rest.iter().take(value.into()).map(|it| u32::from(*it));
                let _ = flow.gate.on_list(first, list, now);
                // What it added, honest lists would contradict.
                flow.gate.open(now);
                flow.listed.clear();
            }
            98..102 => {
                // Lists of losses only, one gap behind another.
                for more in 0..value {
                    let list = [1 << 16 | u32::from(more)];
                    let _ = flow.gate.on_list(flow.next, list, now);
                    flow.next = flow.next.wrapping_add(1);
                }
                flow.listed.clear();
            }
            102..106 => flow.gate.give_up(value.into(), now),
            106..108 => flow.gate.open(now),
            108..112 => {
                flow.gate.set_hold(hold(value), now);
                let longest = hold(value).longest();
                for (_, most) in flow.inside.values_mut() {
                    *most = longest.max(*most);
                }
            }
            112..114 => {
                let name = (flow.number, self.names + 1);
                self.names += 1;
                flow.inside.insert(name, (now, Duration::ZERO));
                flow.gate.pass(name);
            }
            _ => {
                let until = now + Duration::from_micros(1 << (value % 18));
                self.flows.iter_mut().for_each(|flow| flow.advance(until));
                self.now = until;
            }
        }
        let now = self.now;
        self.flows.iter_mut().for_each(|flow| flow.check(now));
    }
}

/// A hold of up to 64 ms for a gap, and 8 ms for a list; perhaps none.
fn hold(value: u8) -> Hold {
    let part = |bits: u8| Duration::from_micros(250 * u64::from(bits));
    Hold { gap: part(value), list: part(value % 32) }
}

fuzz_target!(|data: &[u8]| {
    let Some((&settings, steps)) = data.split_first() else { return };
    let mut world = World::new(settings);
    let mut rest = steps;
    while let Some((&step, after)) = rest.split_first_chunk() {
        rest = after;
        world.step(step, rest);
    }
    // All that waits leaves by itself.
    let end = world.now + Duration::from_secs(1);
    for flow in &mut world.flows {
        flow.advance(end);
        assert!(flow.inside.is_empty() && flow.open.is_empty(), "what waits for nothing");
    }
});
