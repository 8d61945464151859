//! The cost of sums and decoder, alternating with the textbook code in one process, so that a busy
//! or slow machine slows both. `make bench` writes the results to `target/bench.json`.

mod alternate;
mod figures;
mod work;

use criterion::Criterion;
use figures::Figures;
use sidekick_quack::InstructionSet;
use work::{Decoding, Inserting};

fn main() {
    let mut figures = Figures::begin();
    let mut criterion = Criterion::default().configure_from_args();
    for set in InstructionSet::available() {
        inserting(&mut criterion, &mut figures, set);
        decoding(&mut criterion, &mut figures, set);
    }
    criterion.final_summary();
    figures.write();
}

fn inserting(criterion: &mut Criterion, figures: &mut Figures, set: InstructionSet) {
    for (width, threshold) in [(32, 20), (32, 4), (32, 80), (16, 20), (64, 20)] {
        let (mut batch, mut textbook) =
            (Inserting::of(width, threshold, set), Inserting::of(width, threshold, set));
        let mut single = Inserting::of(width, threshold, set);
        let suffix = if width == 32 {
            format!("t{threshold}/{set}")
        } else {
            format!("t{threshold}/u{width}/{set}")
        };
        let packets = Inserting::PACKETS;
        figures.measure(
            criterion,
            &format!("quack/insert_batch/{suffix}"),
            packets,
            || batch.batch(),
            || {
                textbook.textbook();
            },
        );
        figures.measure(
            criterion,
            &format!("quack/insert_single/{suffix}"),
            packets,
            || single.single(),
            || {
                textbook.textbook();
            },
        );
    }
}

fn decoding(criterion: &mut Criterion, figures: &mut Figures, set: InstructionSet) {
    for (missing, log) in [(20, 1000), (5, 100), (1, 100), (20, 100), (20, 8000), (2, 8000)] {
        let (mut ours, mut textbook) =
            (Decoding::of(missing, log, set), Decoding::of(missing, log, set));
        let name = format!("quack/decode/{missing}_of_{log}/{set}");
        figures.measure(criterion, &name, 1, || ours.decode(), || textbook.textbook());
    }
    let (mut hopeless, mut textbook) = (Decoding::of(21, 1000, set), Decoding::of(20, 1000, set));
    let name = format!("quack/decode/undecodable_of_1000/{set}");
    figures.measure(criterion, &name, 1, || hopeless.refuse(), || textbook.textbook());
}
