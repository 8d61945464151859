//! Both ends over two segments in virtual time, of 1 ms and 25 ms. The tests compare the waits of
//! packets with those in the paper's figure 4a.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod parity;
mod path;

use audio::report::{Ending, Percentiles};
use audio::session::Encoding;
use audio::talker::sender_config;
use audio::{ListenerConfig, ListenerReport, Reinject, TalkerConfig, TalkerReport};
use path::{MS, Passing, Path, proxy};
use sidekick_protocol::SenderConfig;
use std::num::NonZeroU16;

const PACKETS: u32 = 3000;

/// Help as in the paper: a quACK of 8 sums every 2 packets.
fn every_two_packets(poll: bool) -> Reinject {
    let mut sender = SenderConfig { poll, ..sender_config(proxy()) };
    (sender.terms.every_packets, sender.terms.every) = (NonZeroU16::new(2), None);
    sender.terms.threshold = 8;
    Reinject { sender, seed: [7; 32] }
}

/// The path of a talker, whose config asks for help.
fn path<L: FnMut(Passing) -> bool>(config: TalkerConfig, loses: L) -> Path<L> {
    Path::new(config, ListenerConfig::default(), [MS, 25 * MS], loses)
}

fn call(
    reinject: Option<Reinject>,
    loses: impl FnMut(Passing) -> bool,
) -> (TalkerReport, ListenerReport) {
    let mut config = TalkerConfig { packets: PACKETS, reinject, ..TalkerConfig::of_simulation(1) };
    // The test decodes no packet, but the report rates the call as Opus.
    config.session.encoding = Encoding::Opus;
    let mut path = path(config, loses);
    path.run();
    let (talker, listener) = (path.talker.report(path.now), path.listener.report());
    println!("{talker:?}\n{listener:?}");
    assert!(talker.acknowledged && listener.complete);
    assert_eq!(listener.played + listener.late, PACKETS.into());
    (talker, listener)
}

/// One in 21 packets does not reach the proxy. A quACK reports two packets. 21 is odd, so losses
/// alternate between the first and the second packet of a quACK.
fn lone_near_losses(passing: Passing) -> bool {
    matches!(passing, Passing::Near { sequence, attempt: 0 } if sequence % 21 == 20)
}

fn lone_far_losses(passing: Passing) -> bool {
    matches!(passing, Passing::Far { sequence, attempt: 0 } if sequence % 21 == 20)
}

/// The histogram keeps three digits.
fn assert_close(got: f64, wanted: f64) {
    assert!((got - wanted).abs() <= wanted / 1000.0, "{got} ms, not {wanted}");
}

fn assert_latency(got: &Percentiles, [p90, p95, p99, max]: [f64; 4]) {
    for (got, wanted) in
        [(got.p50, 0.0), (got.p90, p90), (got.p95, p95), (got.p99, p99), (got.max, max)]
    {
        assert_close(got, wanted);
    }
}

const LOST: u64 = 142;

#[test]
fn end_to_end_a_loss_delays_three_packets() {
    let (talker, listener) = call(None, lone_near_losses);
    // Of 21 packets, three wait: 52 ms, 32 ms and 12 ms (published: 52.4, 32.3 and 12).
    assert_latency(&listener.dejitter_ms, [12.0, 32.0, 52.0, 52.0]);
    assert_eq!((listener.played, listener.late), (PACKETS.into(), 0));
    assert_eq!((talker.packets.retransmitted_nack, talker.packets.retransmitted_quack), (LOST, 0));
    assert_eq!((talker.packets.spurious, listener.packets.duplicates), (0, 0));
    assert_eq!(listener.nacks.packets, LOST, "one NACK for each");
    assert_close(listener.rtt_ms.unwrap(), 52.0);
}

#[test]
fn with_a_quack_every_two_packets_a_loss_delays_one_or_two_packets() {
    let (talker, listener) = call(Some(every_two_packets(false)), lone_near_losses);
    // If the packet after the loss is a quACK's second, this quACK shows the loss, and one packet
    // waits 2 ms. If it is a quACK's first, one packet waits 22 ms and one 2 ms (published: 22.4
    // and 2.2). So of 42 packets, one waits 22 ms and two wait 2 ms. The wait is 22 ms from the
    // 97.6th percentile on.
    assert_latency(&listener.dejitter_ms, [0.0, 2.0, 22.0, 22.0]);
    assert_eq!((listener.played, listener.late), (PACKETS.into(), 0));
    assert_eq!(talker.packets.retransmitted_quack, LOST);
    assert_eq!(talker.packets.retransmitted_nack, 0, "the talker repairs each loss once");
    assert_eq!((talker.packets.nacks_ignored, listener.packets.duplicates), (LOST, 0));
    assert_eq!((talker.packets.spurious, talker.quacks.undecodable), (0, 0));
    assert!(talker.assisted);
    assert_close(talker.near_rtt_ms.unwrap(), 2.0);
}

#[test]
fn with_polls_a_repair_arrives_before_the_next_packet() {
    let (talker, listener) = call(Some(every_two_packets(true)), lone_near_losses);
    assert_eq!(listener.dejitter_ms.max, 0.0);
    assert_eq!((talker.packets.retransmitted_quack, talker.packets.spurious), (LOST, 0));
    assert_eq!(listener.nacks.packets, 0);
    // By equation 4 of Cole and Rosenbluth: 26 ms for the path, 26.5 ms for the codec, and 4 ms to
    // wait for repairs.
    let quality = listener.quality.unwrap();
    assert!((quality.r - (94.2 - 0.024 * 56.5 - 2.23)).abs() < 0.1, "{quality:?}");
    assert_eq!(quality.lost_percent, 0.0);
}

#[test]
fn nacks_repair_losses_behind_the_proxy() {
    let (talker, listener) = call(Some(every_two_packets(true)), lone_far_losses);
    assert_latency(&listener.dejitter_ms, [12.0, 32.0, 52.0, 52.0]);
    assert_eq!((talker.packets.retransmitted_nack, talker.packets.retransmitted_quack), (LOST, 0));
}

#[test]
fn a_lost_repair_is_repaired() {
    let twice = |passing| matches!(passing, Passing::Near { sequence, attempt: 0 | 1 } if sequence % 100 == 50);
    let (talker, listener) = call(None, twice);
    // The listener repeats its NACK 9/8 of a round trip after the first.
    assert_close(listener.dejitter_ms.max, 52.0 + 52.0 * 9.0 / 8.0);
    assert_eq!(talker.packets.retransmitted_nack, 60);
    let (talker, listener) = call(Some(every_two_packets(false)), twice);
    // The near segment loses the same ciphertext twice. At worst, the second packet after each loss
    // triggers the quACK. The two quACKs then need three spacings and a near round trip. But
    // meanwhile a NACK arrives. The talker answers it, because by then the proxy should have
    // reported the repair.
    assert_close(listener.dejitter_ms.max, 52.0);
    assert_eq!(talker.packets.retransmitted_quack + talker.packets.retransmitted_nack, 60);
    assert!(talker.packets.retransmitted_nack > 0);
    assert_eq!((talker.packets.spurious, listener.packets.duplicates), (0, 0));
}

#[test]
fn a_packet_that_never_arrives_is_skipped() {
    let (_, listener) =
        call(None, |passing| matches!(passing, Passing::Near { sequence: 1000 | 1001 | 2999, .. }));
    assert_eq!((listener.played, listener.late), (2997, 3));
    assert_close(listener.dejitter_ms.max, 1000.0);
}

#[test]
fn feedback_and_the_ends_confirmation_may_be_lost() {
    let (talker, listener) = call(Some(every_two_packets(true)), |passing| match passing {
        Passing::Back(number) => number % 3 != 0,
        other => lone_far_losses(other),
    });
    assert_eq!((listener.played, listener.late), (PACKETS.into(), 0));
    assert_eq!(talker.packets.retransmitted_nack, LOST);
}

#[test]
fn the_end_and_the_repairs_of_a_packet_are_bounded() {
    let config = TalkerConfig {
        packets: PACKETS,
        reinject: Some(every_two_packets(true)),
        ..TalkerConfig::of_simulation(1)
    };
    let mut path = path(config, |passing| match passing {
        Passing::Near { sequence, .. } => sequence % 3 == 1,
        Passing::Far { .. } => false,
        Passing::Back(_) => true,
        Passing::Parity => false,
    });
    path.run();
    let report = path.talker.report(path.now);
    println!("{report:?}");
    let lost = u64::from(PACKETS) / 3;
    let again = report.packets.retransmitted_quack;
    assert!((lost..=3 * lost).contains(&again), "{again}");
    let media = u64::from(PACKETS) * 262;
    assert!(report.bytes - media <= media / 2 + 16 * 1024, "{} bytes", report.bytes);
    assert_eq!(report.ending, Ending::Unanswered);
}

#[test]
fn the_same_seed_gives_the_same_call() {
    let of = || call(Some(every_two_packets(true)), lone_near_losses);
    assert_eq!(of(), of());
}
