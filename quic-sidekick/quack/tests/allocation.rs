//! The per-packet path and a warm decoder never allocate.

#[path = "support/allocator.rs"]
mod allocator;

use allocator::requests_during;
use sidekick_quack::{Decoder, Fate, PowerSums};

#[test]
fn nothing_is_allocated_once_warm() {
    let log: Vec<u32> = (0..500u32).map(|n| n.wrapping_mul(0x85eb_ca6b)).collect();
    let mut sent = PowerSums::new(40).unwrap();
    let mut seen = PowerSums::new(20).unwrap();
    let mut quack = seen.clone();
    let mut difference = sent.clone();
    let mut decoder = Decoder::new(20);
    let mut fates: Vec<Fate> = Vec::with_capacity(log.len());

    let requests = requests_during(|| {
        for epoch in 0..3 {
            sent.clear();
            seen.clear();
            sent.insert_many(&log);
            for identifier in log.iter().skip(7 + epoch) {
                seen.insert(*identifier);
            }
            let mut words = [0; 20];
            assert_eq!(seen.write_sums(&mut words), 20);
            quack.assign_parts(seen.count(), &words).unwrap();
            sent.difference_into(&quack, &mut difference).unwrap();
            assert_eq!(decoder.decode(&difference, &log, &mut fates), Ok(7 + epoch));
            seen.remove(log[100]);
        }
    });
    assert_eq!(requests, 0);

    // The instrument works: it counts a copy.
    assert_eq!(requests_during(|| drop(sent.clone())), 1);
}
