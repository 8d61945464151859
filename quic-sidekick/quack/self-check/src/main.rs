//! Checks that all instruction sets of this machine agree with the textbook, for a router or a
//! board unlike those of the tests. It starts no thread, so that it also runs where only one
//! processor is emulated.
//!
//!     cargo run --release -p sidekick-self-check [ROUNDS]

#[path = "../../tests/support/mod.rs"]
mod support;

use sidekick_quack::InstructionSet;

#[allow(clippy::cast_possible_truncation, reason = "small remainders")]
fn main() {
    let rounds = std::env::args().nth(1).map_or(Ok(200), |rounds| rounds.parse::<u64>());
    let Ok(rounds) = rounds else {
        eprintln!("usage: sidekick-self-check [ROUNDS]; ROUNDS is a number [default: 200]");
        std::process::exit(2);
    };
    let sets: Vec<_> = InstructionSet::available().map(InstructionSet::name).collect();
    for round in 0..rounds {
        // Thresholds and lengths with every remainder modulo the lengths of a vector and a batch.
        let threshold = 1 + (round * 37 % 255) as usize;
        let lengths = ((round * 13 % 331) as usize, (round % 19) as usize);
        support::inserting_and_removing::<u16>(threshold, round, lengths);
        support::inserting_and_removing::<u32>(threshold, round, lengths);
        support::inserting_and_removing::<u64>(threshold, round, lengths);
        let lost: Vec<usize> =
            (0..round % 24).map(|n| ((n * n * 7 + round) % 200) as usize).collect();
        let length = (round * 29 % 397) as usize;
        support::decoding::<u16>(threshold, round, length, &lost);
        support::decoding::<u32>(threshold, round, length, &lost);
        support::decoding::<u64>(threshold, round, length, &lost);
    }
    println!("{rounds} rounds: {} agree with the textbook", sets.join(", "));
}
