//! The number of instructions, counted by valgrind's callgrind. A busy machine does not affect it.
//!
//! The program starts itself under valgrind, once for each piece of work. Valgrind does not support
//! AVX-512, so that is left out.

mod figures;
#[allow(dead_code, reason = "the other benchmark shares the module")]
mod work;

use figures::Figures;
use sidekick_quack::InstructionSet;
use std::env;
use std::process::{Command, ExitCode};
use work::{Decoding, Inserting};

/// A name, and its number of packets.
const CASES: [(&str, usize); 6] = [
    ("insert_batch/t20", Inserting::PACKETS),
    ("insert_single/t20", Inserting::PACKETS),
    ("insert_single/t128", Inserting::PACKETS),
    ("decode/20_of_1000", 1),
    ("decode/5_of_100", 1),
    ("decode/undecodable_of_1000", 1),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().collect();
    if let [_, measure, case, set] = arguments.as_slice()
        && measure == "--measure"
    {
        run(case, set);
        return ExitCode::SUCCESS;
    }
    let mut figures = Figures::begin();
    for set in InstructionSet::available().filter(|set| set.name() != "avx512") {
        for (case, items) in CASES {
            let count = |set: &str| Some(f64::from(collect(case, set)?) / items as f64);
            let (Some(ours), Some(textbook)) = (count(set.name()), count("textbook")) else {
                eprintln!(
                    "valgrind could not count {case} with {set}; \
                     `.ci/deps bench` installs it, or reports what to install"
                );
                return ExitCode::FAILURE;
            };
            let name = format!("quack/{case}/{set}/instructions");
            figures.add(&name, "instructions", (ours, textbook), textbook / ours);
        }
    }
    figures.write();
    ExitCode::SUCCESS
}

/// The instructions that callgrind counted while `measured` ran.
fn collect(case: &str, set: &str) -> Option<u32> {
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--toggle-collect=*instructions::measured*",
        ])
        .arg(env::current_exe().ok()?)
        .args(["--measure", case, set])
        .output()
        .ok()?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let (_, collected) = stderr.split_once("Collected : ")?;
    collected.split_whitespace().next()?.parse().ok()
}

/// Runs the measured work, after a warm-up round.
fn run(case: &str, set: &str) {
    let chosen = InstructionSet::available().find(|available| available.name() == set);
    let ours = set != "textbook";
    let chosen = chosen.unwrap_or(InstructionSet::PORTABLE);
    let threshold = if case.ends_with("/t128") { 128 } else { 20 };
    let mut inserting = Inserting::of(32, threshold, chosen);
    let (missing, log) = match case {
        "decode/5_of_100" => (5, 100),
        "decode/undecodable_of_1000" if ours => (21, 1000),
        _ => (20, 1000),
    };
    let mut decoding = Decoding::of(missing, log, chosen);
    let mut work = || match (case, ours) {
        ("insert_batch/t20", true) => inserting.batch(),
        ("insert_single/t20" | "insert_single/t128", true) => inserting.single(),
        (_, false) if case.starts_with("insert_") => inserting.textbook(),
        ("decode/undecodable_of_1000", true) => decoding.refuse(),
        (_, true) => decoding.decode(),
        (_, false) => decoding.textbook(),
    };
    work();
    measured(&mut work);
}

/// Callgrind counts inside this function only.
#[inline(never)]
fn measured(work: &mut dyn FnMut()) {
    work();
}
