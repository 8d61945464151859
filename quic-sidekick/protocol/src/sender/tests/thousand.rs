//! A thousand near segments, each with its own mix of impairments.

use super::*;
use crate::testing::{Near, Simulation, configured, key, proxy};
use crate::{ObserverConfig, Position};
use std::num::NonZeroU16;

const MS: Duration = Duration::from_millis(1);

/// No quACK makes the sender declare a packet lost that the proxy had counted. This holds under any
/// faults of packets, messages, the proxy and the path. A failure names its seed, which replays it.
#[test]
fn no_packet_that_the_proxy_counted_is_declared_lost() {
    let (mut declared, mut received, mut assisted) = (0, 0, 0);
    for seed in 0..1000 {
        let mut draw = Numbers::new(key(seed ^ 0x5eed));
        let mut below = |most: u32| draw.next_u32() % most;
        let delay = MS * (1 + below(30));
        let near = Near {
            delay,
            jitter: if below(3) == 0 { MS * below(4) } else { Duration::ZERO },
            loss_percent: below(31).into(),
        };
        let mut config = if below(2) == 0 { configured() } else { SenderConfig::default() };
        if below(4) == 0 {
            config.terms.identification.position = Position::End;
        }
        if below(3) == 0 {
            // quACKs by number of packets are short.
            let packets = u16::try_from(1 + below(8)).unwrap();
            (config.terms.every_packets, config.terms.every) = (NonZeroU16::new(packets), None);
        }
        let mut s = Simulation::new(config, ObserverConfig::default(), near, seed);
        s.duplicate_percent = below(4).into();
        s.damage_percent = below(4).into();
        let spacing = MS * (1 + below(5)) / 2;
        let faults = [below(1000), below(1000)];
        let (restarts, moves) = (below(3) == 0, below(3) == 0);
        for packet in 0..2000 {
            if restarts && packet == faults[0] {
                s.proxy = Some(proxy(ObserverConfig::default(), seed + 7));
            }
            if moves && packet == faults[1] {
                // The connection migrates.
                s.flow.source.set_port(4001);
                let (flow, now) = (s.flow, s.now);
                s.sender.start(flow, now);
            }
            s.send(None);
            s.run(spacing);
        }
        s.run(Duration::from_secs(1));
        for (tag, after) in &s.declared {
            let sent = s.sent_at[usize::try_from(*tag).unwrap()];
            // The quACK that the sender acted on left the proxy at most this much earlier.
            let reported = sent + *after - s.near.delay - s.near.jitter;
            let counted = s.counted.get(tag).copied();
            assert!(
                counted.is_none_or(|counted| counted > reported),
                "seed {seed}: packet {tag} was counted {:?} before the latest quACK left the proxy",
                counted.map(|counted| reported - counted)
            );
        }
        // Only counted packets are received. The simulation asserts that no tag repeats.
        let uncounted: Vec<_> =
            s.received.iter().filter(|tag| !s.counted.contains_key(tag)).collect();
        assert!(uncounted.is_empty(), "seed {seed}: {uncounted:?} were not counted");
        received += s.received.len();
        declared += s.declared.len();
        assisted += usize::from(s.sender.assistance() == Assistance::Assisted);
    }
    // The assertions cover many packets.
    assert!(declared > 100_000, "{declared} packets were declared lost");
    assert!(received > 4 * declared, "{received} packets were reported as received");
    assert!(assisted > 900, "{assisted} of 1000 were assisted at the end");
}

/// After one lost packet and silence, the poll reveals the loss.
#[test]
fn a_lone_loss_is_detected_within_two_and_a_half_near_rtts() {
    for one_way in [1, 2, 5, 10, 25, 100, 300] {
        let near = Near { delay: one_way * MS, jitter: Duration::ZERO, loss_percent: 0 };
        let mut s = Simulation::new(configured(), ObserverConfig::default(), near, 3);
        s.stream(4000, MS);
        s.run(10_000 * MS);
        let lost = s.send(Some(true));
        s.run(10_000 * MS);
        let [(tag, after)] = s.declared[..] else { panic!("{one_way} ms: {:?}", s.declared) };
        assert_eq!(tag, lost);
        assert!(after <= 2 * one_way * MS * 5 / 2, "{one_way} ms away: {after:?}");
    }
}
