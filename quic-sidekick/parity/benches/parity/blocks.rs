//! The baseline: a Reed-Solomon code over blocks of 30 datagrams. It can rebuild nothing before a
//! block ends.

#![allow(clippy::expect_used, reason = "a benchmark that cannot run reports why")]

use crate::work::Flow;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};
use sidekick_parity::MAX_DATAGRAM_LEN;
use std::hint::black_box;

/// Datagrams of a block.
const BLOCK: usize = 30;

pub(crate) struct Blocks {
    parities: usize,
    encoder: ReedSolomonEncoder,
    decoder: ReedSolomonDecoder,
    /// The repair symbols of each block.
    symbols: Vec<Vec<Vec<u8>>>,
    pub(crate) rebuilt: u64,
}

impl Blocks {
    pub(crate) fn new(flow: &Flow, parities: usize) -> Self {
        let encode = |block: &[Vec<u8>]| reed_solomon_simd::encode(BLOCK, parities, block);
        let symbols = flow.datagrams.chunks(BLOCK).map(encode).collect::<Result<_, _>>();
        Self {
            parities,
            encoder: ReedSolomonEncoder::new(BLOCK, parities, MAX_DATAGRAM_LEN).expect("a code"),
            decoder: ReedSolomonDecoder::new(BLOCK, parities, MAX_DATAGRAM_LEN).expect("a code"),
            symbols: symbols.expect("whole blocks"),
            rebuilt: 0,
        }
    }

    pub(crate) fn encode(&mut self, flow: &Flow) {
        for block in flow.datagrams.chunks(BLOCK) {
            for datagram in block {
                self.encoder.add_original_shard(black_box(datagram)).expect("a whole block");
            }
            black_box(self.encoder.encode().expect("a whole block").recovery_iter().count());
        }
    }

    /// A block that lost more datagrams than it has parities costs only the copies of its
    /// datagrams. So does one that lost none.
    pub(crate) fn decode(&mut self, flow: &Flow) {
        self.rebuilt = 0;
        let blocks = flow.datagrams.chunks(BLOCK).zip(flow.arrives.chunks(BLOCK));
        for ((datagrams, arrives), symbols) in blocks.zip(&self.symbols) {
            let mut lost = 0;
            for (index, datagram) in datagrams.iter().enumerate() {
                if arrives[index] {
                    let added = self.decoder.add_original_shard(index, black_box(datagram));
                    added.expect("a whole block");
                } else {
                    lost += 1;
                }
            }
            if lost == 0 || lost > self.parities {
                let reset = self.decoder.reset(BLOCK, self.parities, MAX_DATAGRAM_LEN);
                reset.expect("the same code");
                continue;
            }
            for (index, symbol) in symbols.iter().take(lost).enumerate() {
                self.decoder.add_recovery_shard(index, symbol).expect("a repair symbol");
            }
            let decoded = self.decoder.decode().expect("enough repair symbols");
            self.rebuilt += decoded.restored_original_iter().map(black_box).count() as u64;
        }
    }
}
