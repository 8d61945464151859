//! Any lists, symbols and datagrams: nothing panics, work stays bounded, and each rebuilt datagram
//! has a listed identifier.

use crate::support::{Draw, identifier_of};
use proptest::prelude::*;
use sidekick_parity::{Between, Decoder, Encoder, MAX_SYMBOL_LEN, Origin, identifier};
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
enum Step {
    Arrived(u8, usize, Origin),
    List(u32, Vec<u8>),
    Repair(u16, u32, u8, usize),
    /// The symbol that the proxy would send if its datagrams were those of a list.
    Honest(u16, u32, Vec<u8>),
    Between(Option<u8>, u8),
    Clear,
}

/// Positions near some bases, so that lists meet.
fn any_position() -> impl Strategy<Value = u32> {
    let base = prop_oneof![
        20 => Just(0_u32),
        1 => Just(1 << 31),
        1 => Just(200),
        1 => any::<u32>(),
    ];
    (base, 0..150_u32).prop_map(|(base, offset)| base.wrapping_add(offset).wrapping_sub(75))
}

fn any_step() -> impl Strategy<Value = Step> {
    let origin = prop_oneof![Just(Origin::Original), Just(Origin::Copy)];
    let few = || prop::collection::vec(0..30_u8, 0..70);
    prop_oneof![
        6 => (0..30_u8, 0..20_usize, origin).prop_map(|(a, b, c)| Step::Arrived(a, b, c)),
        4 => (any_position(), few()).prop_map(|(a, b)| Step::List(a, b)),
        4 => (any::<u16>(), any_position(), 0..70_u8, 0..40_usize)
            .prop_map(|(a, b, c, d)| Step::Repair(a, b, c, d)),
        4 => (any::<u16>(), any_position(), few()).prop_map(|(a, b, c)| Step::Honest(a, b, c)),
        2 => (prop::option::of(0..30_u8), 0..30_u8).prop_map(|(a, b)| Step::Between(a, b)),
        1 => Just(Step::Clear),
    ]
}

/// A datagram of one of few identifiers. The same identifier has different datagrams.
fn datagram(name: u8, len: usize) -> Vec<u8> {
    let mut datagram = vec![name; len.max(4)];
    *datagram.last_chunk_mut().unwrap() = identifier_of(name.into()).to_be_bytes();
    datagram.split_off(datagram.len() - len.min(datagram.len()))
}

/// The repair symbol over datagrams of these names.
fn honest(number: u16, first: u32, names: &[u8]) -> Option<Vec<u8>> {
    let of = |&name: &u8| datagram(name, 5 + usize::from(name) % 3);
    let datagrams: Vec<Vec<u8>> = names.iter().map(of).collect();
    let covered = datagrams.iter().map(Vec::as_slice);
    let mut symbol = vec![0; MAX_SYMBOL_LEN];
    let len = Encoder::new().encode(number, first, covered, &mut symbol).ok()?;
    symbol.truncate(len);
    Some(symbol)
}

/// Row operations of one call. An identifier at several positions multiplies them.
const MOST: u64 = 5 * 128 + 128 * 65;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_input_is_survived(steps in prop::collection::vec(any_step(), 1..60), seed: u64) {
        let mut draw = Draw(seed);
        let mut decoder = Decoder::new();
        let mut listed = BTreeSet::new();
        let (mut received, mut operations) = (0, 0);
        for step in &steps {
            match step {
                Step::Arrived(name, len, origin) => {
                    decoder.arrived(&datagram(*name, *len), *origin);
                }
                Step::List(first, names) => {
                    let list = names.iter().map(|&name| identifier_of(name.into()));
                    let before = decoder.counts();
                    if let Ok(new) = decoder.list(*first, list.clone()) {
                        prop_assert!(new <= names.len() && names.len() <= 64);
                        prop_assert_eq!(decoder.counts().listed, before.listed + new as u64);
                        listed.extend(list);
                    } else {
                        prop_assert_eq!(decoder.counts(), before);
                    }
                }
                Step::Repair(number, first, count, len) => {
                    let symbol: Vec<u8> =
                        (0..*len).map(|_| draw.word().to_be_bytes()[0]).collect();
                    let right = (1..=64).contains(count) && *len >= 6;
                    let result = decoder.repair(*number, *first, *count, &symbol);
                    prop_assert_eq!(result.is_ok(), right);
                    received += u64::from(right);
                }
                Step::Honest(number, first, names) => {
                    if let Some(symbol) = honest(*number, *first, names) {
                        let list = names.iter().map(|&name| identifier_of(name.into()));
                        if decoder.list(*first, list.clone()).is_ok() {
                            listed.extend(list);
                        }
                        let count = u8::try_from(names.len()).unwrap();
                        let result = decoder.repair(*number, *first, count, &symbol);
                        prop_assert_eq!(result, Ok(()));
                        received += 1;
                    }
                }
                Step::Between(after, before) => {
                    let of = |name: u8| identifier_of(name.into());
                    match decoder.missing(after.map(of), of(*before)) {
                        Between::Missing { count, .. } => prop_assert!((1..128).contains(&count)),
                        Between::Unlisted | Between::Nothing => {}
                    }
                }
                Step::Clear => {
                    decoder.clear();
                    (received, operations) = (0, decoder.counters().operations);
                    listed.clear();
                }
            }
            let mut rebuilt = 0;
            while let Some(datagram) = decoder.rebuilt() {
                let identifier = identifier(datagram);
                prop_assert!(identifier.is_some_and(|identifier| listed.contains(&identifier)));
                rebuilt += 1;
            }
            prop_assert!(rebuilt <= 64);
            let (counters, counts) = (decoder.counters(), decoder.counts());
            prop_assert_eq!(counters.repairs, received);
            let settled = counters.used + counters.useless;
            prop_assert!((settled..=settled + 4).contains(&counters.repairs), "{:?}", counters);
            prop_assert!(counters.operations - operations <= MOST);
            operations = counters.operations;
            prop_assert!(counts.runs <= counts.lost && counts.lost <= counts.judged);
            prop_assert!(counts.judged <= counts.listed);
        }
    }
}

/// Symbols with a changed bit. The decoder detects one in the length, the padding or the identifier
/// of a datagram. Each rebuilt datagram has an identifier that passed.
#[test]
fn changed_symbols_rebuild_no_other_identifiers() {
    let (mut right, mut wrong, mut detected) = (0, 0, 0);
    for seed in 0..200 {
        let mut draw = Draw(seed);
        let flow: Vec<Vec<u8>> =
            (0..200).map(|index| draw.datagram(identifier_of(index), 60)).collect();
        let mut decoder = Decoder::new();
        for (index, datagram) in flow.iter().enumerate() {
            if !draw.percent(10) {
                decoder.arrived(datagram, Origin::Original);
            }
            if index % 5 == 4 {
                let first = (index + 1).saturating_sub(30);
                let (position, number) =
                    (u32::try_from(first).unwrap(), u16::try_from(index).unwrap());
                let covered = flow[first..=index].iter().map(Vec::as_slice);
                let mut symbol = [0; MAX_SYMBOL_LEN];
                let len = Encoder::new().encode(number, position, covered, &mut symbol).unwrap();
                if draw.percent(10) {
                    symbol[draw.below(len)] ^= 1 << draw.below(8);
                }
                let count = u8::try_from(index + 1 - first).unwrap();
                decoder.list(position, (first..=index).map(identifier_of)).unwrap();
                decoder.repair(number, position, count, &symbol[..len]).unwrap();
            }
            while let Some(datagram) = decoder.rebuilt() {
                let identifier = identifier(datagram);
                let sent = flow.iter().find(|sent| sidekick_parity::identifier(sent) == identifier);
                assert!(sent.is_some(), "seed {seed}");
                if sent.is_some_and(|sent| sent == datagram) { right += 1 } else { wrong += 1 }
            }
        }
        detected += decoder.counters().false_parity;
    }
    assert!(right > 2000 && detected > 50, "{right}, {detected}");
    println!("{right} right, {wrong} wrong with the right identifier, {detected} detected");
}
