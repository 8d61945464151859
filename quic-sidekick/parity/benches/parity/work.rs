//! The measured work.

#![allow(clippy::expect_used, reason = "a benchmark that cannot run reports why")]

use sidekick_parity::{Decoder, Encoder, InstructionSet, MAX_DATAGRAM_LEN, MAX_SYMBOL_LEN, Origin};
use std::hint::black_box;
use std::ops::Range;

/// Datagrams of a flow: whole blocks, and whole intervals of parities.
pub(crate) const DATAGRAMS: usize = 960;

/// Datagrams of an encoding window.
const WINDOW: usize = 30;

/// Datagrams of the full length, of which a tenth is lost.
pub(crate) struct Flow {
    pub(crate) datagrams: Vec<Vec<u8>>,
    pub(crate) arrives: Vec<bool>,
}

/// Words that look like ciphertext (SplitMix64).
fn ciphertext() -> impl Iterator<Item = u64> {
    (1_u64..).map(|n| {
        let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    })
}

impl Flow {
    pub(crate) fn new() -> Self {
        let mut words = ciphertext();
        let mut datagram = || {
            let bytes = words.by_ref().flat_map(u64::to_be_bytes);
            bytes.take(MAX_DATAGRAM_LEN).collect::<Vec<u8>>()
        };
        let datagrams = (0..DATAGRAMS).map(|_| datagram()).collect();
        let arrives = words.by_ref().map(|word| word % 10 != 0).take(DATAGRAMS).collect();
        Self { datagrams, arrives }
    }

    pub(crate) fn lost(&self) -> usize {
        self.arrives.iter().filter(|arrives| !**arrives).count()
    }
}

/// Where the window of a parity after `end` datagrams begins.
fn window(end: usize) -> Range<usize> {
    end.saturating_sub(WINDOW)..end
}

fn position(index: usize) -> u32 {
    u32::try_from(index).expect("few datagrams")
}

/// The proxy.
pub(crate) struct Encoding {
    encoder: Encoder,
    every: usize,
    symbol: [u8; MAX_SYMBOL_LEN],
    number: u16,
}

impl Encoding {
    pub(crate) fn new(every: usize, set: InstructionSet) -> Self {
        let encoder = Encoder::new().with_instruction_set(set);
        Self { encoder, every, symbol: [0; MAX_SYMBOL_LEN], number: 0 }
    }

    /// The first windows have their full length already.
    pub(crate) fn encode(&mut self, flow: &Flow) {
        for end in (self.every..=DATAGRAMS).step_by(self.every) {
            let covered = window(end.max(WINDOW));
            let first = position(covered.start);
            let datagrams = flow.datagrams[covered].iter().map(Vec::as_slice);
            let encoded = self.encoder.encode(self.number, first, datagrams, &mut self.symbol);
            assert_eq!(encoded, Ok(MAX_SYMBOL_LEN));
            black_box(&self.symbol);
            self.number = self.number.wrapping_add(1);
        }
    }
}

/// The client. A parity follows the datagrams that it covers, with their list.
pub(crate) struct Decoding {
    decoder: Decoder,
    every: usize,
    symbols: Vec<[u8; MAX_SYMBOL_LEN]>,
    identifiers: Vec<u32>,
    pub(crate) rebuilt: u64,
}

impl Decoding {
    pub(crate) fn new(flow: &Flow, every: usize, set: InstructionSet) -> Self {
        let symbol = |end: usize| {
            let mut symbol = [0; MAX_SYMBOL_LEN];
            let covered = window(end);
            let (number, first) = (number(end), position(covered.start));
            let datagrams = flow.datagrams[covered].iter().map(Vec::as_slice);
            Encoder::new().encode(number, first, datagrams, &mut symbol).expect("lengths in range");
            symbol
        };
        let identifier =
            |datagram: &Vec<u8>| sidekick_parity::identifier(datagram).expect("a length in range");
        Self {
            decoder: Decoder::new().with_instruction_set(set),
            every,
            symbols: (every..=DATAGRAMS).step_by(every).map(symbol).collect(),
            identifiers: flow.datagrams.iter().map(identifier).collect(),
            rebuilt: 0,
        }
    }

    pub(crate) fn decode(&mut self, flow: &Flow) {
        self.decoder.clear();
        self.rebuilt = 0;
        let mut symbols = self.symbols.iter();
        for (index, datagram) in flow.datagrams.iter().enumerate() {
            if flow.arrives[index] {
                self.decoder.arrived(black_box(datagram), Origin::Original);
            }
            let end = index + 1;
            if end % self.every == 0
                && let Some(symbol) = symbols.next()
            {
                let covered = window(end);
                let (first, count) = (position(covered.start), covered.len());
                let identifiers = &self.identifiers[covered];
                self.decoder.list(first, identifiers.iter().copied()).expect("a list in order");
                let count = u8::try_from(count).expect("a short window");
                self.decoder.repair(number(end), first, count, symbol).expect("a repair symbol");
            }
            while let Some(datagram) = self.decoder.rebuilt() {
                black_box(datagram);
                self.rebuilt += 1;
            }
        }
    }
}

/// The number of the repair symbol after `end` datagrams.
fn number(end: usize) -> u16 {
    u16::try_from(end).expect("few datagrams")
}
