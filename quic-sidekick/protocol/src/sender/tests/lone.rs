//! Lone packets (SPEC.md, section 7.4).

use super::*;

/// The time until the sender detects the loss of a packet.
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
    for _ in 0..3 {
        let soon = detected_after(&mut s);
        assert!((21 * MS..23 * MS).contains(&soon), "{soon:?}");
    }
    // Ten seconds without a loss end the early polls.
    s.stream(51, 200 * MS);
    let late = detected_after(&mut s);
    assert!((41 * MS..45 * MS).contains(&late), "{late:?}");
}

/// The sender delays a POLL by more than jitter usually delays a packet, even where the jitter has
/// just begun. A false loss ends the early polls.
#[test]
fn jitter_makes_few_lone_packets_look_lost() {
    for seed in 0..20 {
        let mut s = assisted(Near { delay: 10 * MS, ..near(0) }, seed);
        s.stream(300, 50 * MS);
        s.near.jitter = 4 * MS;
        for _ in 0..100 {
            s.send(Some(true));
            s.run(50 * MS);
            s.stream(10, 50 * MS);
        }
        let alarms = s.false_alarms();
        assert!(alarms.len() <= 2, "seed {seed}: {alarms:?}");
    }
}
