//! The cost of encoder and decoder for each datagram, alternating with Reed-Solomon codes over
//! blocks of 30 in one process, so that a busy or slow machine slows both. `make bench` writes the
//! results to `target/bench.json`.

#[path = "../../../quack/benches/quack/alternate.rs"]
mod alternate;
mod blocks;
#[path = "../../../quack/benches/quack/figures.rs"]
mod figures;
mod work;

use blocks::Blocks;
use criterion::Criterion;
use figures::Figures;
use sidekick_parity::InstructionSet;
use work::{DATAGRAMS, Decoding, Encoding, Flow};

fn main() {
    let mut figures = Figures::begin();
    let mut criterion = Criterion::default().configure_from_args();
    let flow = Flow::new();
    for set in InstructionSet::available() {
        // A parity for each 4 datagrams costs about as much as 8 for 30; for each 20, 2 for 30.
        for (every, parities) in [(4, 8), (20, 2)] {
            let mut blocks = Blocks::new(&flow, parities);
            let mut ours = Encoding::new(every, set);
            let name = format!("parity/encode/each_{every}/{set}");
            figures.measure(
                &mut criterion,
                &name,
                DATAGRAMS,
                || ours.encode(&flow),
                || blocks.encode(&flow),
            );
            let mut ours = Decoding::new(&flow, every, set);
            let name = format!("parity/decode/each_{every}/{set}");
            figures.measure(
                &mut criterion,
                &name,
                DATAGRAMS,
                || ours.decode(&flow),
                || blocks.decode(&flow),
            );
            println!(
                "of {} lost datagrams, ours rebuilt {}, and blocks {}",
                flow.lost(),
                ours.rebuilt,
                blocks.rebuilt
            );
        }
    }
    criterion.final_summary();
    figures.write();
}
