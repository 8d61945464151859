//! The packets that pass a link, by its model alone.

use std::time::Duration;

use sidekick_netem::link::{EthernetFrame, Link, Verdict};
use sidekick_netem::scenario::{Direction, Segment};

/// The numbers of `sent` that pass another link of the model unchanged.
pub(crate) fn survivors(
    sent: &[u32],
    segment: &Segment,
    direction: Direction,
    seed: u64,
    stream: u64,
) -> Vec<u32> {
    let mut link = Link::new(segment.link(direction), seed, stream);
    let mut frame = [0; 34];
    frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
    let frame = EthernetFrame::from_ip(&frame).unwrap();
    // The packets are far apart, so they meet no queue.
    let mut now = Duration::ZERO;
    sent.iter()
        .copied()
        .filter(|_| {
            now += Duration::from_secs(1);
            let harmed = link.counters().corrupted;
            link.push(now, frame.clone()) == Verdict::Accepted
                && link.counters().corrupted == harmed
        })
        .collect()
}
