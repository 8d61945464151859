//! The decoder rebuilds, at once, exactly what plain Gaussian elimination over the whole history
//! determines.

use crate::support::{Byte, Draw, Field, eliminate, identifier_of};
use proptest::prelude::*;
use sidekick_parity::{Decoder, Encoder, InstructionSet, MAX_SYMBOL_LEN, Origin, coefficient};
use std::collections::{BTreeSet, VecDeque};

/// Positions that a decoder remembers, and symbols that may wait for a list.
const REMEMBERED: usize = 128;
const WAITING: usize = 4;

/// The longest datagram of these tests, and its symbol.
const LONGEST: usize = 40;
const SYMBOL: usize = LONGEST + 2;

#[derive(Clone, Debug)]
struct Case {
    seed: u64,
    datagrams: usize,
    /// The position of the first datagram, and the number of the first repair symbol.
    first: u32,
    number: u16,
    window: usize,
    /// Datagrams for each repair symbol.
    every: usize,
    loss: usize,
    /// The percentages of lost lists and repair symbols, of duplicates, and of copies of lost
    /// datagrams.
    others: [usize; 3],
    /// The most by which anything is late, in datagrams.
    late: usize,
    set: prop::sample::Index,
}

prop_compose! {
    fn any_case()(
        seed: u64,
        datagrams in 1..150_usize,
        first in prop_oneof![Just(0), any::<u32>(), u32::MAX - 140..=u32::MAX],
        number in prop_oneof![Just(0), u16::MAX - 20..=u16::MAX],
        window in 1..=64_usize,
        every in 3..20_usize,
        loss in 0..60_usize,
        others in [0..40_usize, 0..20_usize, 0..20_usize],
        late in prop_oneof![Just(0), 0..70_usize],
        set: prop::sample::Index,
    ) -> Case {
        Case { seed, datagrams, first, number, window, every, loss, others, late, set }
    }
}

/// Something that reaches the client. Datagrams are named by their index, from 0.
#[derive(Clone, Debug)]
enum Event {
    Arrived(usize, Origin),
    List(usize, usize),
    Repair(Repair),
}

#[derive(Clone, Debug)]
struct Repair {
    number: u16,
    first: usize,
    count: usize,
    symbol: Vec<u8>,
}

impl Repair {
    fn covered(&self) -> std::ops::Range<usize> {
        self.first..self.first + self.count
    }
}

/// The events of a flow, in order.
fn events(case: &Case, flow: &[Vec<u8>]) -> Vec<Event> {
    let mut draw = Draw(case.seed);
    let [lost_parities, duplicates, copies] = case.others;
    let mut events = Vec::new();
    let mut number = case.number;
    for index in 0..flow.len() {
        let mut event = |draw: &mut Draw, event: Event| {
            events.push((2 * (index + draw.below(case.late + 1)), events.len(), event));
        };
        if !draw.percent(case.loss) {
            event(&mut draw, Event::Arrived(index, Origin::Original));
            if draw.percent(duplicates) {
                event(&mut draw, Event::Arrived(index, Origin::Original));
            }
        } else if draw.percent(copies) {
            event(&mut draw, Event::Arrived(index, Origin::Copy));
        }
        if index % case.every == case.every - 1 {
            let count = (index + 1).min(case.window);
            let first = index + 1 - count;
            let mut symbol = vec![0; MAX_SYMBOL_LEN];
            let covered = flow[first..=index].iter().map(Vec::as_slice);
            let position = position(case, first);
            let len = Encoder::new().encode(number, position, covered, &mut symbol).unwrap();
            symbol.truncate(len);
            if !draw.percent(lost_parities) {
                event(&mut draw, Event::List(first, count));
            }
            if !draw.percent(lost_parities) {
                event(&mut draw, Event::Repair(Repair { number, first, count, symbol }));
            }
            number = number.wrapping_add(1);
        }
    }
    events.sort_by_key(|&(time, order, _)| (time, order));
    events.into_iter().map(|(_, _, event)| event).collect()
}

fn position(case: &Case, index: usize) -> u32 {
    case.first.wrapping_add(u32::try_from(index).unwrap())
}

/// The state of a client, by index.
struct Model<'a> {
    flow: &'a [Vec<u8>],
    case: &'a Case,
    listed: BTreeSet<usize>,
    newest: Option<usize>,
    /// The datagrams that arrived, or were rebuilt, before they were forgotten.
    known: BTreeSet<usize>,
    waiting: VecDeque<Repair>,
    equations: Vec<Repair>,
}

impl<'a> Model<'a> {
    fn new(flow: &'a [Vec<u8>], case: &'a Case) -> Self {
        Self {
            flow,
            case,
            listed: BTreeSet::new(),
            newest: None,
            known: BTreeSet::new(),
            waiting: VecDeque::new(),
            equations: Vec::new(),
        }
    }

    fn remembers(&self, index: usize) -> bool {
        self.newest.is_none_or(|newest| index + REMEMBERED > newest)
    }

    /// Applies an event, and returns what it determines.
    fn apply(&mut self, event: &Event) -> BTreeSet<Vec<u8>> {
        match event {
            &Event::Arrived(index, _) => {
                if self.remembers(index) {
                    self.known.insert(index);
                }
            }
            &Event::List(first, count) => {
                self.newest = self.newest.max(Some(first + count - 1));
                for index in first..first + count {
                    if self.remembers(index) {
                        self.listed.insert(index);
                    }
                }
            }
            Event::Repair(repair) => self.waiting.push_back(repair.clone()),
        }
        for repair in std::mem::take(&mut self.waiting) {
            let all = |index| self.listed.contains(&index);
            if !self.remembers(repair.first) {
                continue;
            } else if repair.covered().all(all) {
                self.equations.push(repair);
            } else {
                self.waiting.push_back(repair);
            }
        }
        self.waiting.drain(..self.waiting.len().saturating_sub(WAITING));
        self.determine()
    }

    /// The datagrams that the equations determine.
    fn determine(&mut self) -> BTreeSet<Vec<u8>> {
        let unknown: BTreeSet<usize> = self.equations.iter().flat_map(Repair::covered).collect();
        let unknown: Vec<usize> = unknown.difference(&self.known).copied().collect();
        if unknown.is_empty() {
            return BTreeSet::new();
        }
        let row = |repair: &Repair| self.row(repair, &unknown);
        let mut matrix: Vec<Vec<Byte>> = self.equations.iter().map(row).collect();
        let mut rebuilt = BTreeSet::new();
        for (column, row) in eliminate(&mut matrix, unknown.len()) {
            if self.remembers(unknown[column]) {
                let symbol: Vec<u8> =
                    matrix[row].iter().skip(unknown.len()).map(|byte| byte.0).collect();
                let length = usize::from(symbol[0]) << 8 | usize::from(symbol[1]);
                self.known.insert(unknown[column]);
                rebuilt.insert(symbol[2..2 + length].to_vec());
            }
        }
        rebuilt
    }

    /// The coefficients of the unknown datagrams, then the rest of the symbol.
    fn row(&self, repair: &Repair, unknown: &[usize]) -> Vec<Byte> {
        let by = |index| {
            let covered = repair.covered().contains(&index);
            let value = coefficient(repair.number, position(self.case, index));
            Byte(if covered { value } else { 0 })
        };
        let mut symbol: Vec<Byte> = repair.symbol.iter().copied().map(Byte).collect();
        symbol.resize(SYMBOL, Byte(0));
        for index in repair.covered().filter(|index| self.known.contains(index)) {
            let datagram = &self.flow[index];
            let length = u16::try_from(datagram.len()).unwrap().to_be_bytes();
            for (sum, byte) in symbol.iter_mut().zip(length.iter().chain(datagram)) {
                *sum = sum.minus(by(index).times(Byte(*byte)));
            }
        }
        unknown.iter().map(|&index| by(index)).chain(symbol).collect()
    }
}

fn follow(case: &Case) -> Result<(), TestCaseError> {
    let mut draw = Draw(!case.seed);
    let flow: Vec<Vec<u8>> =
        (0..case.datagrams).map(|index| draw.datagram(identifier_of(index), LONGEST)).collect();
    let sets: Vec<InstructionSet> = InstructionSet::available().collect();
    let mut decoder = Decoder::new().with_instruction_set(sets[case.set.index(sets.len())]);
    let mut model = Model::new(&flow, case);
    for event in events(case, &flow) {
        match &event {
            &Event::Arrived(index, origin) => decoder.arrived(&flow[index], origin),
            &Event::List(first, count) => {
                let list = (first..first + count).map(identifier_of);
                let listed = decoder.list(position(case, first), list);
                let newest = first + count - 1;
                let old = !model.remembers(newest);
                prop_assert_eq!(listed.is_err(), old, "{:?}", listed);
            }
            Event::Repair(repair) => {
                let first = position(case, repair.first);
                let count = u8::try_from(repair.count).unwrap();
                prop_assert_eq!(
                    decoder.repair(repair.number, first, count, &repair.symbol),
                    Ok(())
                );
            }
        }
        let expected = model.apply(&event);
        let mut rebuilt = BTreeSet::new();
        while let Some(datagram) = decoder.rebuilt() {
            prop_assert!(rebuilt.insert(datagram.to_vec()), "twice: {:?}", datagram);
            prop_assert!(flow.iter().any(|sent| sent == datagram), "{:?} is wrong", datagram);
        }
        prop_assert_eq!(rebuilt, expected, "after {:?}", event);
    }
    prop_assert_eq!(decoder.counters().false_parity, 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn all_datagrams_that_elimination_determines_are_rebuilt(case in any_case()) {
        follow(&case)?;
    }
}
