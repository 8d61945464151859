//! A proxy that sends lists and parities of a flow, a network that the input controls, and the
//! client's decoder. The network loses, delays, repeats and reorders everything. A stranger forges
//! datagrams, and a proxy that lies forges lists and symbols.
//!
//! For any input, nothing panics, work stays bounded, and each rebuilt datagram has a listed
//! identifier. While all input is honest, each rebuilt datagram is one that passed, and did not
//! arrive before.

#![no_main]
#![allow(clippy::expect_used, reason = "a fuzz target reports by panicking")]

use libfuzzer_sys::fuzz_target;
use sidekick_parity::{
    Between, Decoder, Encoder, InstructionSet, MAX_SYMBOL_LEN, MAX_WINDOW, Origin, identifier,
};
use std::collections::BTreeSet;

/// Row operations of a call: a list may release four symbols, and an identifier that stands at all
/// positions multiplies the work for a datagram.
const MOST_OPERATIONS: u64 = 4 * 128 + 128 * 65;

struct World {
    decoder: Decoder,
    /// The datagrams that passed the proxy. The next field is the position of the first.
    flow: Vec<Vec<u8>>,
    first: u32,
    number: u16,
    /// All input so far was honest.
    honest: bool,
    listed: BTreeSet<u32>,
    /// Identifiers of datagrams that arrived or were rebuilt.
    here: BTreeSet<u32>,
    /// How many arrived or were rebuilt. The decoder remembers 256.
    arrivals: usize,
    received: u64,
    operations: u64,
}

impl World {
    fn new(settings: u8) -> Self {
        let sets: Vec<_> = InstructionSet::available().collect();
        Self {
            decoder: Decoder::new().with_instruction_set(sets[usize::from(settings) % sets.len()]),
            flow: Vec::new(),
            // Positions and numbers wrap soon, or do not.
            first: if settings & 8 == 0 { u32::MAX - 70 } else { 5 },
            number: if settings & 16 == 0 { u16::MAX - 9 } else { 0 },
            honest: true,
            listed: BTreeSet::new(),
            here: BTreeSet::new(),
            arrivals: 0,
            received: 0,
            operations: 0,
        }
    }

    /// The next datagrams pass the proxy, and arrive if their bit says so.
    fn pass(&mut self, count: u8, bits: u8) {
        for number in 0..count % 9 {
            let index = u32::try_from(self.flow.len()).expect("a short flow");
            let mut datagram =
                vec![number ^ count; 4 + usize::from(count.wrapping_mul(number) % 50)];
            // An odd factor permutes the identifiers, so that none repeats.
            let identifier = index.wrapping_mul(0x9e37_79b1).to_be_bytes();
            *datagram.last_chunk_mut().expect("four bytes") = identifier;
            if bits >> (number % 8) & 1 == 1 {
                self.arrive(&datagram, Origin::Original);
            }
            self.flow.push(datagram);
        }
    }

    fn arrive(&mut self, datagram: &[u8], origin: Origin) {
        self.decoder.arrived(datagram, origin);
        self.here.extend(identifier(datagram));
        self.arrivals += 1;
    }

    /// The indices of a window that ends some datagrams ago.
    fn window(&self, count: u8, ago: u8) -> std::ops::Range<usize> {
        let end = self.flow.len().saturating_sub(usize::from(ago));
        end.saturating_sub(usize::from(count) % (MAX_WINDOW + 1))..end
    }

    fn position(&self, index: usize) -> u32 {
        self.first.wrapping_add(u32::try_from(index).expect("a short flow"))
    }

    fn list(&mut self, count: u8, ago: u8) {
        let window = self.window(count, ago);
        let first = self.position(window.start);
        let identifiers: Vec<u32> =
            self.flow[window].iter().filter_map(|datagram| identifier(datagram)).collect();
        self.listed.extend(&identifiers);
        let listed = self.decoder.list(first, identifiers);
        assert!(!self.honest || !format!("{listed:?}").contains("Contradiction"), "{listed:?}");
    }

    /// A symbol, of which a byte is changed unless `change` is 0.
    fn repair(&mut self, count: u8, ago: u8, change: u8) {
        let window = self.window(count, ago);
        let (first, count) = (self.position(window.start), window.len());
        let mut symbol = [0; MAX_SYMBOL_LEN];
        let covered = self.flow[window].iter().map(Vec::as_slice);
        let Ok(len) = Encoder::new().encode(self.number, first, covered, &mut symbol) else {
            assert_eq!(count, 0);
            return;
        };
        if change != 0 {
            symbol[usize::from(change) % len] ^= change;
            self.honest = false;
        }
        let count = u8::try_from(count).expect("a short window");
        let result = self.decoder.repair(self.number, first, count, &symbol[..len]);
        assert_eq!(result, Ok(()));
        self.number = self.number.wrapping_add(1);
        self.received += 1;
    }

    fn forge(&mut self, what: u8, position: u8, bytes: &[u8]) {
        let position = self.first.wrapping_add(u32::from(position)).wrapping_sub(50);
        match what % 4 {
            0 => {
                let list: Vec<u32> = bytes.iter().map(|byte| u32::from(byte % 4)).collect();
                if self.decoder.list(position, list.iter().copied()).is_ok() {
                    self.honest &= list.is_empty();
                    self.listed.extend(list);
                }
            }
            1 => {
                let count = what / 4 * 2;
                if self.decoder.repair(0, position, count, bytes).is_ok() {
                    self.received += 1;
                    self.honest = false;
                }
            }
            2 => {
                // One that no list names.
                let mut datagram = vec![what; 5];
                datagram.extend((u32::from(position.to_be_bytes()[3]) << 8 | 3).to_be_bytes());
                self.honest &=
                    !self.flow.iter().any(|sent| identifier(sent) == identifier(&datagram));
                self.arrive(&datagram, Origin::Original);
            }
            _ => {
                // The proxy began again.
                self.decoder.clear();
                self.listed.clear();
                self.here.clear();
                self.flow.clear();
                (self.arrivals, self.received) = (0, 0);
                self.operations = self.decoder.counters().operations;
            }
        }
    }

    fn check(&mut self) {
        while let Some(datagram) = self.decoder.rebuilt() {
            let identifier = identifier(datagram).expect("a length in range");
            assert!(self.listed.contains(&identifier), "{datagram:?} is not listed");
            if self.honest {
                assert!(self.flow.iter().any(|sent| sent == datagram), "{datagram:?} is wrong");
                self.arrivals += 1;
                let new = self.here.insert(identifier);
                assert!(new || self.arrivals > 256, "{datagram:?} was here");
            }
        }
        let (counters, counts) = (self.decoder.counters(), self.decoder.counts());
        assert!(!self.honest || counters.false_parity == 0);
        assert_eq!(counters.repairs, self.received);
        let settled = counters.used + counters.useless;
        assert!((settled..=settled + 4).contains(&counters.repairs), "{counters:?}");
        assert!(counters.operations - self.operations <= MOST_OPERATIONS);
        self.operations = counters.operations;
        assert!(counts.runs <= counts.lost && counts.lost <= counts.judged);
        assert!(counts.judged <= counts.listed);
    }

    fn ask(&self, after: u8, before: u8) {
        let of = |index: u8| self.flow.get(usize::from(index)).and_then(|sent| identifier(sent));
        let Some(end) = of(before) else { return };
        if let Between::Missing { count, .. } = self.decoder.missing(of(after), end) {
            assert!((1..128).contains(&count));
            let between = before.checked_sub(after).map(u32::from);
            assert!(
                !self.honest || of(after).is_none() || between.is_some_and(|most| count < most)
            );
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&settings, mut rest)) = data.split_first() else { return };
    let mut world = World::new(settings);
    while let Some((&[step, a, b], after)) = rest.split_first_chunk() {
        rest = after;
        // Steps name datagrams by a byte.
        if world.flow.len() > 240 {
            break;
        }
        match step % 8 {
            0 | 1 => world.pass(a, b),
            2 => world.list(a, b % 64),
            3 => world.repair(a, b % 64, 0),
            4 => {
                world.list(30, 0);
                world.repair(30, 0, 0);
            }
            5 => {
                if let Some(datagram) = world.flow.get(usize::from(a)).cloned() {
                    world.arrive(
                        &datagram,
                        if b % 2 == 0 { Origin::Copy } else { Origin::Original },
                    );
                }
            }
            6 => world.ask(a, b),
            _ if a % 4 == 0 => world.repair(30, b % 64, b),
            _ => {
                let (bytes, after) = rest.split_at(usize::from(b % 70).min(rest.len()));
                rest = after;
                world.forge(a, b, bytes);
            }
        }
        world.check();
    }
});
