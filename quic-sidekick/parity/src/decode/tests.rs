//! The decoder's reports, and its limits. `tests/model.rs` compares the rebuilt datagrams.

use super::*;
use crate::Encoder;

fn datagram(position: u32) -> Vec<u8> {
    let mut datagram = vec![0x40; 5 + position as usize % 7];
    datagram.extend(position.to_be_bytes());
    datagram
}

fn arrive(decoder: &mut Decoder, positions: impl IntoIterator<Item = u32>) {
    for position in positions {
        decoder.arrived(&datagram(position), Origin::Original);
    }
}

/// A list of positions, whose identifiers are the positions themselves.
fn list(decoder: &mut Decoder, first: u32, count: u32) {
    decoder.list(first, (0..count).map(|offset| first.wrapping_add(offset))).unwrap();
}

fn symbol(number: u16, first: u32, count: u8) -> Vec<u8> {
    let datagrams: Vec<Vec<u8>> =
        (0..count.into()).map(|offset| datagram(first.wrapping_add(offset))).collect();
    let mut symbol = vec![0; MAX_SYMBOL_LEN];
    let covered = datagrams.iter().map(Vec::as_slice);
    let len = Encoder::new().encode(number, first, covered, &mut symbol).unwrap();
    symbol.truncate(len);
    symbol
}

fn repair(decoder: &mut Decoder, number: u16, first: u32, count: u8) {
    decoder.repair(number, first, count, &symbol(number, first, count)).unwrap();
}

fn rebuilt(decoder: &mut Decoder) -> Vec<u32> {
    let mut rebuilt = Vec::new();
    while let Some(bytes) = decoder.rebuilt() {
        let position = identifier(bytes).unwrap();
        assert_eq!(bytes, datagram(position));
        rebuilt.push(position);
    }
    rebuilt
}

#[test]
fn missing_datagrams_between_two_others_are_reported() {
    let mut decoder = Decoder::new();
    let missing = |count, hopeless| Between::Missing { count, hopeless };
    arrive(&mut decoder, [10, 11, 14, 15, 19, 20]);
    assert_eq!(decoder.missing(None, 20), Between::Unlisted);
    list(&mut decoder, 10, 6);
    assert_eq!(decoder.missing(Some(10), 11), Between::Nothing);
    assert_eq!(decoder.missing(Some(11), 14), missing(2, false));
    assert_eq!(decoder.missing(None, 15), missing(2, false));
    assert_eq!(decoder.missing(Some(14), 11), Between::Nothing, "the other way round");
    assert_eq!(decoder.missing(Some(15), 19), Between::Unlisted);
    // A list is lost, and the next parity begins behind. Another symbol waits for its list.
    list(&mut decoder, 18, 3);
    repair(&mut decoder, 8, 19, 2);
    repair(&mut decoder, 9, 18, 4);
    assert_eq!(decoder.missing(Some(15), 19), Between::Unlisted);
    assert_eq!(decoder.missing(None, 19), Between::Unlisted);
    assert_eq!(decoder.missing(Some(11), 14), missing(2, true));
    assert_eq!(decoder.missing(Some(10), 15), missing(2, true));
    // It comes late.
    list(&mut decoder, 14, 4);
    assert_eq!(decoder.missing(Some(15), 19), missing(3, false), "18 may be rebuilt");
    // An earlier list is repeated.
    list(&mut decoder, 10, 4);
    assert_eq!(decoder.missing(Some(11), 14), missing(2, true));
    // An equation contains one of them, and then both are rebuilt.
    repair(&mut decoder, 0, 10, 4);
    assert_eq!(decoder.missing(Some(11), 14), missing(2, false));
    repair(&mut decoder, 1, 12, 3);
    assert_eq!(rebuilt(&mut decoder), [12, 13]);
    assert_eq!(decoder.missing(Some(11), 14), Between::Nothing);
    assert_eq!(decoder.missing(Some(12), 14), Between::Nothing, "rebuilt is as good as arrived");
}

#[test]
fn a_symbol_that_waits_is_hope() {
    let mut decoder = Decoder::new();
    arrive(&mut decoder, [1, 3, 4, 5, 6]);
    list(&mut decoder, 1, 3);
    list(&mut decoder, 4, 1);
    assert_eq!(decoder.missing(Some(1), 3), Between::Missing { count: 1, hopeless: false });
    repair(&mut decoder, 1, 4, 1);
    assert_eq!(decoder.missing(Some(1), 3), Between::Missing { count: 1, hopeless: true });
    repair(&mut decoder, 0, 2, 5);
    assert_eq!(decoder.missing(Some(1), 3), Between::Missing { count: 1, hopeless: false });
    list(&mut decoder, 5, 2);
    assert_eq!(rebuilt(&mut decoder), [2]);
}

#[test]
fn lists_that_contradict_change_nothing() {
    let mut decoder = Decoder::new();
    list(&mut decoder, u32::MAX - 1, 4);
    let before = (decoder.counts(), decoder.missing(Some(u32::MAX), 1));
    for first in [u32::MAX - 20, 0, 1] {
        // Its new positions stay unlisted, too.
        let result = decoder.list(first, [7; 40]);
        let position = if first > 1 { u32::MAX - 1 } else { first };
        assert_eq!(result, Err(ListError::Contradiction { position }));
    }
    assert_eq!(decoder.list(0, [5; 65]), Err(ListError::TooLong));
    assert_eq!((decoder.counts(), decoder.missing(Some(u32::MAX), 1)), before);
    assert_eq!(decoder.list(0, []), Ok(0));
    assert_eq!(decoder.list(0, [0, 1, 2, 3]), Ok(2));
    // The newest position is 3, and the oldest 128 positions before 4.
    let oldest = 4_u32.wrapping_sub(128);
    assert_eq!(decoder.list(oldest.wrapping_sub(1), [9]), Err(ListError::Old));
    assert_eq!(decoder.list(oldest.wrapping_sub(1), [9, 9]), Ok(1));
    assert_eq!(decoder.list(4 + (1 << 31), [9]), Err(ListError::Old));
    assert_eq!(decoder.list(3 + (1 << 31) - 1, [9]), Ok(1), "a jump");
}

#[test]
fn losses_are_judged_once_and_counted_in_runs() {
    let mut decoder = Decoder::new();
    // Lost: 3; 10 to 12; 20, which is rebuilt; 30, which comes as a copy. 40 comes late.
    let lost = [3, 10, 11, 12, 20, 30, 40];
    arrive(&mut decoder, (0..64).filter(|position| !lost.contains(position)));
    for first in (0..64).step_by(8) {
        list(&mut decoder, first, 8);
        list(&mut decoder, first, 8);
    }
    repair(&mut decoder, 0, 16, 8);
    assert_eq!(rebuilt(&mut decoder), [20]);
    decoder.arrived(&datagram(30), Origin::Copy);
    assert_eq!(decoder.counts(), Counts { listed: 64, absent: 7, symbols: 1, ..Counts::default() });
    arrive(&mut decoder, 64..128);
    list(&mut decoder, 64, 20);
    let early = Counts { listed: 84, absent: 7, judged: 20, lost: 4, runs: 2, symbols: 1 };
    assert_eq!(decoder.counts(), early);
    arrive(&mut decoder, [40]);
    // Too late: 3 was judged.
    arrive(&mut decoder, [3]);
    list(&mut decoder, 84, 44);
    let all = Counts { listed: 128, absent: 7, judged: 64, lost: 6, runs: 4, symbols: 1 };
    assert_eq!(decoder.counts(), all);
    // A jump judges what remains.
    list(&mut decoder, 1000, 1);
    let all_and_one = Counts { listed: 129, absent: 8, judged: 128, ..all };
    assert_eq!(decoder.counts(), all_and_one);
}

#[test]
fn an_unlisted_position_ends_a_run() {
    let mut decoder = Decoder::new();
    list(&mut decoder, 0, 2);
    list(&mut decoder, 3, 2);
    list(&mut decoder, 200, 1);
    assert_eq!(
        decoder.counts(),
        Counts { listed: 5, absent: 5, judged: 4, lost: 4, runs: 2, symbols: 0 }
    );
}

/// The most that a repair symbol can cost: each equation is full, and the last one determines all.
#[test]
fn the_last_of_64_symbols_takes_127_row_operations() {
    let mut decoder = Decoder::new();
    list(&mut decoder, 0, 64);
    let mut last = 0;
    for number in 0..64 {
        let before = decoder.counters().operations;
        repair(&mut decoder, number, 0, 64);
        last = decoder.counters().operations - before;
        assert!(last <= 128, "{number}: {last}");
        assert_eq!(rebuilt(&mut decoder).len(), if number == 63 { 64 } else { 0 });
    }
    assert_eq!(last, 63 + 1 + 63);
    let before = decoder.counters();
    repair(&mut decoder, 64, 0, 64);
    let after = Counters { repairs: 65, useless: 1, ..before };
    assert_eq!(decoder.counters(), after, "no arithmetic where nothing is missing");
}

/// More datagrams are missing than there may be equations.
#[test]
fn the_oldest_of_65_equations_is_dropped() {
    let mut decoder = Decoder::new();
    list(&mut decoder, 0, 64);
    list(&mut decoder, 64, 64);
    for number in 0..50 {
        repair(&mut decoder, number, 0, 64);
    }
    for number in 50..114 {
        let before = decoder.counters().operations;
        repair(&mut decoder, number, 64, 64);
        assert!(decoder.counters().operations - before <= 128);
    }
    assert_eq!(rebuilt(&mut decoder), (64..128).collect::<Vec<_>>());
    assert_eq!(decoder.counters().used, 114);
    // None of the others is left.
    arrive(&mut decoder, 0..40);
    assert_eq!(rebuilt(&mut decoder), [] as [u32; 0]);
}

#[test]
fn a_datagram_that_arrives_takes_at_most_65_row_operations() {
    let mut decoder = Decoder::new();
    list(&mut decoder, 0, 64);
    for number in 0..60 {
        repair(&mut decoder, number, 0, 64);
    }
    for position in [63, 0, 62] {
        let before = decoder.counters().operations;
        arrive(&mut decoder, [position]);
        let operations = decoder.counters().operations - before;
        assert!((30..=65).contains(&operations), "{position}: {operations}");
    }
    assert_eq!(rebuilt(&mut decoder), [] as [u32; 0]);
    arrive(&mut decoder, [5]);
    assert_eq!(rebuilt(&mut decoder).len(), 60);
}

#[test]
fn a_symbol_over_a_forgotten_datagram_is_dropped() {
    for others in [254, 255] {
        let mut decoder = Decoder::new();
        arrive(&mut decoder, [0]);
        list(&mut decoder, 0, 2);
        arrive(&mut decoder, 1000..1000 + others);
        arrive(&mut decoder, [2000]);
        repair(&mut decoder, 0, 0, 2);
        let remembered = others == 254;
        assert_eq!(rebuilt(&mut decoder), if remembered { vec![1] } else { vec![] });
        assert_eq!(decoder.counters().useless, u64::from(!remembered));
    }
}

#[test]
fn an_untaken_datagram_is_forgotten_with_its_position() {
    for (next, taken) in [(127, vec![0]), (128, vec![])] {
        let mut decoder = Decoder::new();
        arrive(&mut decoder, [1, 128]);
        list(&mut decoder, 0, 2);
        repair(&mut decoder, 0, 0, 2);
        list(&mut decoder, next, 1);
        assert_eq!(rebuilt(&mut decoder), taken);
    }
}

#[test]
fn four_symbols_wait_for_lists() {
    let mut decoder = Decoder::new();
    arrive(&mut decoder, (0..60).filter(|position| position % 10 != 5));
    for number in 0..5 {
        repair(&mut decoder, number, u32::from(number) * 10, 10);
        assert_eq!(decoder.counters().useless, u64::from(number == 4));
    }
    list(&mut decoder, 40, 10);
    list(&mut decoder, 0, 40);
    assert_eq!(rebuilt(&mut decoder), [15, 25, 35, 45], "the first waited longest");
    assert_eq!(decoder.counters().used, 4);
    // One that is forgotten meanwhile.
    repair(&mut decoder, 9, 55, 2);
    list(&mut decoder, 400, 1);
    assert_eq!(decoder.counters().useless, 2);
}

/// A contradiction, or something else than the listed datagram, drops all equations.
#[test]
fn false_parity_is_detected() {
    let honest = |decoder: &mut Decoder| {
        list(decoder, 0, 10);
        arrive(decoder, [0, 1, 2, 3, 4, 5, 6, 7]);
        repair(decoder, 0, 0, 10);
    };
    let mut short = symbol(1, 0, 10);
    short.truncate(12);
    let mut identifier = symbol(1, 0, 10);
    identifier[10] ^= 1;
    let mut padding = symbol(1, 0, 10);
    *padding.last_mut().unwrap() ^= 1;
    let mut length = symbol(1, 0, 10);
    length[1] ^= 1;
    for wrong in [short, identifier, padding, length] {
        let mut decoder = Decoder::new();
        honest(&mut decoder);
        decoder.repair(1, 0, 10, &wrong).unwrap();
        assert_eq!(decoder.counters().false_parity, 1, "{wrong:?}");
        // Nothing is left of the first.
        arrive(&mut decoder, [8]);
        let wrong = rebuilt(&mut decoder);
        assert!(!wrong.contains(&9), "{wrong:?}");
    }
    // A symbol of the same number with another byte.
    let mut decoder = Decoder::new();
    honest(&mut decoder);
    let mut other = symbol(0, 0, 10);
    other[3] ^= 1;
    decoder.repair(0, 0, 10, &other).unwrap();
    let counters = decoder.counters();
    assert_eq!((counters.false_parity, counters.useless, counters.used), (1, 1, 1));
}

/// The network may repeat a datagram before the proxy, which then lists it twice.
#[test]
fn one_identifier_at_two_positions() {
    let twice = [5, 6, 5, 7];
    let covered: Vec<Vec<u8>> = twice.iter().map(|&name| datagram(name)).collect();
    let symbol = |number: u16, count: usize| {
        let mut symbol = vec![0; MAX_SYMBOL_LEN];
        let covered = covered.iter().take(count).map(Vec::as_slice);
        let len = Encoder::new().encode(number, 0, covered, &mut symbol).unwrap();
        symbol.truncate(len);
        symbol
    };
    // It arrives, or is rebuilt by another symbol.
    for arrives in [true, false] {
        let mut decoder = Decoder::new();
        decoder.list(0, twice).unwrap();
        decoder.repair(3, 0, 4, &symbol(3, 4)).unwrap();
        arrive(&mut decoder, [7]);
        if arrives {
            arrive(&mut decoder, [5]);
            assert_eq!(rebuilt(&mut decoder), [6]);
        } else {
            decoder.repair(4, 0, 1, &symbol(4, 1)).unwrap();
            assert_eq!(rebuilt(&mut decoder), [5, 6]);
        }
        assert_eq!(decoder.counters().false_parity, 0);
    }
}

#[test]
fn symbols_out_of_range_are_errors() {
    let mut decoder = Decoder::new();
    assert_eq!(decoder.repair(0, 0, 0, &[0; 9]), Err(RepairError::Count { count: 0 }));
    assert_eq!(decoder.repair(0, 0, 65, &[0; 9]), Err(RepairError::Count { count: 65 }));
    assert_eq!(decoder.repair(0, 0, 1, &[0; 5]), Err(RepairError::Length { len: 5 }));
    assert_eq!(decoder.repair(0, 0, 64, &[0; 1475]), Err(RepairError::Length { len: 1475 }));
    assert_eq!(decoder.counters(), Counters::default());
    // Lengths that no datagram has.
    decoder.arrived(&[1, 2, 3], Origin::Original);
    decoder.arrived(&[1; 1473], Origin::Original);
    decoder.list(0, [0x0101_0101]).unwrap();
    decoder.list(1, [9]).unwrap();
    decoder.arrived(&9_u32.to_be_bytes(), Origin::Original);
    decoder.repair(0, 1, 1, &[0; 6]).unwrap();
    let missing = Between::Missing { count: 1, hopeless: true };
    assert_eq!(decoder.missing(None, 9), missing);
}

#[test]
fn a_cleared_decoder_is_as_new() {
    let mut decoder = Decoder::new();
    arrive(&mut decoder, [0, 1]);
    list(&mut decoder, 0, 4);
    repair(&mut decoder, 0, 0, 4);
    decoder.clear();
    assert_eq!((decoder.counts(), decoder.counters()), Default::default());
    // Neither the datagrams nor the equation are left, and another numbering may begin.
    list(&mut decoder, 1 << 31, 1);
    decoder.list(7, [0, 1, 2, 3]).unwrap_err();
    decoder.clear();
    decoder.list(7, [0, 1, 2, 3]).unwrap();
    decoder.arrived(&datagram(3), Origin::Original);
    assert_eq!(decoder.missing(None, 3), Between::Missing { count: 3, hopeless: false });
    assert_eq!(rebuilt(&mut decoder), [] as [u32; 0]);
}

/// Forged positions far ahead wait for no list, and make no gap hopeless.
#[test]
fn a_symbol_far_ahead_changes_nothing() {
    let mut decoder = Decoder::new();
    arrive(&mut decoder, [1, 3, 4]);
    list(&mut decoder, 1, 4);
    repair(&mut decoder, 0, 5000, 3);
    repair(&mut decoder, 1, 4, 1);
    assert_eq!(decoder.missing(Some(1), 3), Between::Missing { count: 1, hopeless: true });
    repair(&mut decoder, 2, 1, 4);
    assert_eq!(rebuilt(&mut decoder), [2]);
    assert_eq!(decoder.counters().useless, 2);
}
