//! What the decoder allocates, for any input.

#[path = "../../quack/tests/support/allocator.rs"]
mod allocator;
mod support;

use allocator::{held, requests_during};
use sidekick_parity::{Decoder, Encoder, MAX_SYMBOL_LEN, Origin};
use support::{Draw, identifier_of};

#[test]
fn memory_grows_up_to_its_bound_and_then_no_more() {
    let mut draw = Draw(1);
    let flow: Vec<Vec<u8>> =
        (0..2000).map(|index| draw.datagram(identifier_of(index), 1472)).collect();
    let encoder = Encoder::new();
    let mut symbol = [0; MAX_SYMBOL_LEN];
    // Passes so many datagrams, and returns how many were rebuilt.
    let mut pass = |decoder: &mut Decoder, datagrams: usize| {
        let (mut draw, mut rebuilt) = (Draw(2), 0);
        for (index, datagram) in flow.iter().enumerate().take(datagrams) {
            if !draw.percent(10) {
                decoder.arrived(datagram, Origin::Original);
            }
            if index % 5 == 4 {
                let first = (index + 1).saturating_sub(30);
                let (position, number) =
                    (u32::try_from(first).unwrap(), u16::try_from(index).unwrap());
                let covered = flow[first..=index].iter().map(Vec::as_slice);
                let len = encoder.encode(number, position, covered, &mut symbol).unwrap();
                let count = u8::try_from(index + 1 - first).unwrap();
                // The symbol first, so that some wait; and some lists are lost.
                decoder.repair(number, position, count, &symbol[..len]).unwrap();
                if !draw.percent(10) {
                    decoder.list(position, (first..=index).map(identifier_of)).unwrap();
                }
            }
            while decoder.rebuilt().is_some() {
                rebuilt += 1;
            }
            if index == 1000 {
                decoder.list(1 << 30, [1, 2, 3]).unwrap();
                decoder.clear();
            }
        }
        decoder.clear();
        rebuilt
    };
    let with_flow = |datagrams: usize, pass: &mut dyn FnMut(&mut Decoder, usize) -> i32| {
        let (_decoder, bytes) = held(|| {
            let mut decoder = Decoder::new();
            pass(&mut decoder, datagrams);
            decoder
        });
        usize::try_from(bytes).unwrap() + size_of::<Decoder>()
    };
    let most = Decoder::memory_bytes();
    let (little, all) = (with_flow(8, &mut pass), with_flow(2000, &mut pass));
    assert!(little < most / 16, "{little} of {most}");
    assert!((most / 2..=most).contains(&all), "{all} of {most}");

    let mut decoder = Decoder::new();
    let rebuilt = pass(&mut decoder, 2000);
    assert!(rebuilt > 100, "{rebuilt}");
    assert_eq!(requests_during(|| assert_eq!(pass(&mut decoder, 2000), rebuilt)), 0);
    // The instrument works: it counts a copy.
    assert_eq!(requests_during(|| drop(flow[0].clone())), 1);
}
