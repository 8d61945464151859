//! Packets that are far apart (SPEC.md, section 7.4).

use super::*;
use crate::testing::NONE;

/// How long it takes until the sender detects the loss of a packet.
fn detected_after(s: &mut Simulation) -> Duration {
    let lost = s.send(Some(true));
    s.run(200 * MS);
    let [.., (tag, after)] = s.declared[..] else { panic!("nothing was declared lost") };
    assert_eq!(tag, lost);
    after
}

#[test]
fn a_lone_packet_is_polled_for_at_once_where_others_were_lost() {
    let mut s = assisted(Near { delay: 10 * MS, ..near(0) }, 8);
    s.stream(50, 200 * MS);
    let first = detected_after(&mut s);
    assert!((41 * MS..45 * MS).contains(&first), "{first:?}");
    let polls = s.sender.stats().polls;
    s.stream(20, 200 * MS);
    assert!((20..=22).contains(&(s.sender.stats().polls - polls)), "one for each packet");
    for _ in 0..3 {
        let soon = detected_after(&mut s);
        assert!((21 * MS..23 * MS).contains(&soon), "{soon:?}");
    }
    // A burst waits for the reports of its packets.
    s.stream(10, MS);
    s.send(Some(true));
    s.stream(3, MS);
    s.run(200 * MS);
    assert_eq!(s.false_alarms(), NONE);
    // Ten seconds without a loss end it.
    s.stream(51, 200 * MS);
    let late = detected_after(&mut s);
    assert!((41 * MS..45 * MS).contains(&late), "{late:?}");
}

/// A POLL overtakes a packet by no more than the jitter.
#[test]
fn jitter_makes_no_lone_packet_look_lost() {
    for seed in 0..20 {
        let mut s = assisted(Near { delay: 10 * MS, jitter: 4 * MS, loss_percent: 0 }, seed);
        for _ in 0..100 {
            detected_after(&mut s);
            s.stream(10, 50 * MS);
        }
        assert_eq!(s.false_alarms(), NONE, "seed {seed}");
    }
}
