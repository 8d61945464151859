//! The decoder allocates nothing after construction, for any input.

#[path = "../../quack/tests/support/allocator.rs"]
mod allocator;
mod support;

use allocator::{held, requests_during};
use sidekick_parity::{Decoder, Encoder, MAX_SYMBOL_LEN, Origin};
use support::{Draw, identifier_of};

#[test]
fn nothing_is_allocated_after_construction() {
    let mut draw = Draw(1);
    let flow: Vec<Vec<u8>> =
        (0..2000).map(|index| draw.datagram(identifier_of(index), 1472)).collect();
    let encoder = Encoder::new();
    let mut symbol = [0; MAX_SYMBOL_LEN];
    let (mut decoder, bytes) = held(Decoder::new);
    let mut rebuilt = 0;

    let requests = requests_during(|| {
        for (index, datagram) in flow.iter().enumerate() {
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
    });
    assert_eq!(requests, 0);
    assert!(rebuilt > 100, "{rebuilt}");

    // The decoder's own estimate, which includes its bytes on the stack, is right.
    let allocated = usize::try_from(bytes).unwrap();
    let total = allocated + size_of::<Decoder>();
    assert!(total.abs_diff(Decoder::memory_bytes()) < 2048, "{total}, {}", Decoder::memory_bytes());
    // The instrument works: it counts a copy.
    assert_eq!(requests_during(|| drop(flow[0].clone())), 1);
}
