//! The code beside an ideal one, whose equations are independent whenever they can be: the same
//! windows with random coefficients of a field so large that no accident happens.
//!
//! An accident can also help: equations that depend on each other may leave one datagram alone in
//! an equation. So where parities are too few, this code may rebuild more than the ideal one.

#![allow(clippy::cast_precision_loss, reason = "small counts")]

use crate::support::{Draw, Field, Large, eliminate, identifier_of};
use sidekick_parity::{Decoder, Encoder, MAX_SYMBOL_LEN, Origin};
use std::collections::BTreeSet;

const WINDOW: usize = 30;
const REMEMBERED: usize = 128;
/// Datagrams of a flow, and flows of each kind.
const DATAGRAMS: usize = 240;
const FLOWS: u64 = 100;
const LOSSES: [usize; 6] = [1, 2, 5, 10, 20, 30];
const EVERY: [usize; 6] = [3, 4, 6, 8, 12, 20];

/// The ideal code of one flow: its matrix, with a column for each datagram.
struct Ideal {
    rows: Vec<Vec<Large>>,
    rebuilt: BTreeSet<usize>,
}

impl Ideal {
    /// Takes a parity over the datagrams of `lost` in the window from `first`, which is the newest.
    fn repair(&mut self, first: usize, newest: usize, lost: &[usize], draw: &mut Draw) {
        let mut entry = |index: usize| {
            let random = Large(1 + draw.word() % (1 << 60));
            if lost.contains(&index) && index >= first { random } else { Large::ZERO }
        };
        self.rows.push((0..DATAGRAMS).map(&mut entry).collect());
        let of_lost = |row: &Vec<Large>| lost.iter().map(|&index| row[index]).collect();
        let mut matrix: Vec<Vec<Large>> = self.rows.iter().map(of_lost).collect();
        for (column, _) in eliminate(&mut matrix, lost.len()) {
            if lost[column] + REMEMBERED > newest {
                self.rebuilt.insert(lost[column]);
            }
        }
    }
}

/// Datagrams of one flow that are lost, that this code rebuilds, and that the ideal one rebuilds.
/// Parities are lost, too.
fn rebuilt(seed: u64, loss: usize, every: usize) -> (usize, usize, usize) {
    let mut draw = Draw(seed);
    let mut random = Draw(!seed);
    let flow: Vec<Vec<u8>> =
        (0..DATAGRAMS).map(|index| draw.datagram(identifier_of(index), 24)).collect();
    let mut decoder = Decoder::new();
    let mut ideal = Ideal { rows: Vec::new(), rebuilt: BTreeSet::new() };
    let (mut ours, mut lost, mut number) = (0, Vec::new(), u16::MAX - 9);
    for (index, datagram) in flow.iter().enumerate() {
        if draw.percent(loss) {
            lost.push(index);
        } else {
            decoder.arrived(datagram, Origin::Original);
        }
        if index % every == every - 1 {
            let first = (index + 1).saturating_sub(WINDOW);
            let covered = flow[first..=index].iter().map(Vec::as_slice);
            let position = u32::try_from(first).unwrap().wrapping_sub(100);
            let mut symbol = [0; MAX_SYMBOL_LEN];
            let len = Encoder::new().encode(number, position, covered, &mut symbol).unwrap();
            if !draw.percent(loss) {
                decoder.list(position, (first..=index).map(identifier_of)).unwrap();
                let count = u8::try_from(index + 1 - first).unwrap();
                decoder.repair(number, position, count, &symbol[..len]).unwrap();
                ideal.repair(first, index, &lost, &mut random);
            }
            number = number.wrapping_add(1);
        }
        while let Some(datagram) = decoder.rebuilt() {
            assert!(lost.iter().any(|&index| flow[index] == datagram), "seed {seed}");
            ours += 1;
        }
    }
    assert_eq!(decoder.counters().false_parity, 0, "seed {seed}");
    (lost.len(), ours, ideal.rebuilt.len())
}

#[test]
fn the_code_rebuilds_nearly_what_an_ideal_one_would() {
    println!("loss in percent, a parity for each, lost, rebuilt by an ideal code, by ours, ratio");
    let (mut all_ours, mut all_ideal) = (0, 0);
    for loss in LOSSES {
        for every in EVERY {
            let (mut lost, mut ours, mut ideal) = (0, 0, 0);
            let seeds = (loss * 1000 + every) as u64 * 1000;
            for seed in seeds..seeds + FLOWS {
                let flow = rebuilt(seed, loss, every);
                lost += flow.0;
                ours += flow.1;
                ideal += flow.2;
            }
            let ratio = ours as f64 / ideal as f64;
            println!("{loss}, {every}, {lost}, {ideal}, {ours}, {ratio:.4}");
            // Figures of few datagrams are noise: an accident in one flow may cost a dozen
            // datagrams.
            assert!(
                ratio > 0.99 || ideal < 1000,
                "seeds {seeds} to {}: {ours} of {ideal}",
                seeds + FLOWS - 1
            );
            all_ours += ours;
            all_ideal += ideal;
        }
    }
    println!("all: {:.5}", all_ours as f64 / all_ideal as f64);
    assert!(all_ours * 1000 > all_ideal * 998, "{all_ours} of {all_ideal}, by the seeds above");
}
