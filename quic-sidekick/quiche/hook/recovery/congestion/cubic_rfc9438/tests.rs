//! Compares the controller with the formulas of RFC 9438, implemented here independently, in
//! segments.

use std::time::Duration;

use super::super::test_sender::TestSender;
use crate::CongestionControlAlgorithm;

const RTT: Duration = Duration::from_millis(200);

/// W_cubic(t) of a curve from `start` to `w_max` segments.
fn w_cubic(t: f64, start: f64, w_max: f64, c: f64) -> f64 {
    let k = ((w_max - start) / c).cbrt();
    c * (t - k).powi(3) + w_max
}

/// A sender after slow start with a full window of `segments`.
fn sender(segments: usize, rtt: Duration) -> TestSender {
    let mut sender = TestSender::new(CongestionControlAlgorithm::CubicRfc9438, false);
    sender.update_rtt(rtt);
    sender.congestion_window = segments * sender.max_datagram_size;
    fill(&mut sender);
    sender
}

/// The same, with slow start ended without a loss.
fn sender_past_slow_start(segments: usize, rtt: Duration) -> TestSender {
    let mut sender = sender(segments, rtt);
    let window = sender.congestion_window;
    sender.ssthresh.update(window, false);
    sender
}

/// Sends whole segments while the window has room.
fn fill(sender: &mut TestSender) {
    let segment = sender.max_datagram_size;
    while sender.bytes_in_flight + segment <= sender.congestion_window {
        sender.send_packet(segment);
    }
    // The rest of the window is too small for a segment; the flow is still not application-limited.
    sender.update_app_limited(false);
}

fn lose_one(sender: &mut TestSender, near_ratio: Option<f64>) {
    let segment = sender.max_datagram_size;
    sender.advance_time(Duration::from_millis(1));
    sender.cubic_rfc9438_state.set_near_ratio(near_ratio);
    sender.lose_n_packets(1, segment, None);
}

/// Acknowledges the packets sent before the recovery began. The window stays.
fn end_recovery(sender: &mut TestSender) {
    let segment = sender.max_datagram_size;
    let before = sender.congestion_window;
    sender.ack_n_packets(sender.bytes_in_flight / segment, segment);
    assert_eq!(sender.congestion_window, before, "no growth in recovery");
    sender.advance_time(Duration::from_millis(1));
    fill(sender);
}

/// Runs for `time`, with single acknowledgements spread evenly over each round trip.
fn run(sender: &mut TestSender, rtt: Duration, time: Duration) {
    let segment = sender.max_datagram_size;
    let end = sender.time + time;
    while sender.time < end {
        let in_flight = u32::try_from(sender.bytes_in_flight / segment).unwrap();
        sender.advance_time(rtt / in_flight);
        sender.ack_n_packets(1, segment);
        fill(sender);
    }
}

fn segments(sender: &TestSender) -> f64 {
    sender.congestion_window as f64 / sender.max_datagram_size as f64
}

#[track_caller]
fn assert_within_a_segment(sender: &TestSender, expected: f64) {
    let found = segments(sender);
    assert!((found - expected).abs() <= 1.0, "window is {found} segments, RFC 9438 expects {expected}");
}

#[test]
fn slow_start_doubles_each_round() {
    let mut sender = sender(10, RTT);
    let segment = sender.max_datagram_size;
    for doubled in [20.0, 40.0, 80.0] {
        sender.advance_time(RTT);
        sender.ack_n_packets(sender.bytes_in_flight / segment, segment);
        assert_eq!(segments(&sender), doubled);
        fill(&mut sender);
    }
}

#[test]
fn window_follows_the_cubic_curve() {
    let mut sender = sender(100, RTT);
    lose_one(&mut sender, None);
    assert_eq!(segments(&sender), 70.0);
    end_recovery(&mut sender);
    for second in 1..=10 {
        run(&mut sender, RTT, Duration::from_secs(1));
        assert_within_a_segment(&sender, w_cubic(f64::from(second), 70.0, 100.0, 0.4));
    }
}

#[test]
fn reno_friendly_region_grows_by_alpha_and_then_by_one() {
    let rtt = Duration::from_millis(10);
    let mut sender = sender(20, rtt);
    lose_one(&mut sender, None);
    end_recovery(&mut sender);
    let alpha = 3.0 * (1.0 - 0.7) / (1.0 + 0.7);
    let mut expected = 14.0;
    for _ in 0..30 {
        run(&mut sender, rtt, rtt);
        expected += if expected < 20.0 { alpha } else { 1.0 };
        assert_within_a_segment(&sender, expected);
    }
}

#[test]
fn near_loss_scales_the_reduction_and_the_curve() {
    // A round trip so long that Reno would be slower.
    let rtt = RTT;
    for ratio in [0.25, 0.5] {
        let mut sender = sender_past_slow_start(200, rtt);
        lose_one(&mut sender, Some(ratio));
        let reduced = 200.0 * (1.0 - ratio * (1.0 - 0.7));
        assert_within_a_segment(&sender, reduced);
        end_recovery(&mut sender);
        // Before the plateau and on it. Past it, the far window is the limit.
        let c = 0.4 / ratio.powi(3);
        let k = ((200.0 - reduced) / c).cbrt();
        for halves in 1..=2 {
            run(&mut sender, rtt, Duration::from_secs_f64(k / 2.0));
            assert_within_a_segment(&sender, w_cubic(f64::from(halves) * k / 2.0, reduced, 200.0, c));
        }
    }
}

#[test]
fn ratio_of_one_is_rfc_9438() {
    let (mut near, mut plain) = (sender_past_slow_start(150, RTT), sender_past_slow_start(150, RTT));
    lose_one(&mut near, Some(1.0));
    lose_one(&mut plain, None);
    for sender in [&mut near, &mut plain] {
        end_recovery(sender);
        run(sender, RTT, Duration::from_secs(6));
    }
    assert_eq!(near.congestion_window, plain.congestion_window);
}

/// After a near loss, the Reno-friendly growth is that of a connection over the near segment alone.
#[test]
fn reno_friendly_region_counts_round_trips_of_the_near_segment() {
    let (rtt, ratio) = (Duration::from_millis(40), 0.25);
    let mut sender = sender_past_slow_start(20, rtt);
    lose_one(&mut sender, Some(ratio));
    let mut expected = 20.0 * (1.0 - ratio * 0.3);
    end_recovery(&mut sender);
    // No growth in the recovery's round trip.
    run(&mut sender, rtt, rtt.mul_f64(ratio));
    for _ in 0..3 {
        run(&mut sender, rtt, rtt.mul_f64(ratio));
        expected += 3.0 * (1.0 - 0.7) / (1.0 + 0.7);
        assert_within_a_segment(&sender, expected);
    }
}

/// Near losses neither hasten the recovery from a far one nor hide the next.
#[test]
fn far_losses_are_answered_as_without_near_ones() {
    let mut sender = sender(100, RTT);
    lose_one(&mut sender, None);
    end_recovery(&mut sender);
    let begin = sender.time;
    while sender.time < begin + Duration::from_secs(6) {
        run(&mut sender, RTT, Duration::from_millis(90));
        lose_one(&mut sender, Some(0.02));
        fill(&mut sender);
        let t = (sender.time - begin).as_secs_f64();
        let most = w_cubic(t + RTT.as_secs_f64(), 70.0, 100.0, 0.4);
        assert!(segments(&sender) <= most + 1.0, "{} after {t} s, and not {most}", segments(&sender));
    }
    let before = segments(&sender);
    assert!(before > 85.0, "near losses cost almost nothing: {before}");
    sender.advance_time(Duration::from_millis(10));
    lose_one(&mut sender, None);
    assert_within_a_segment(&sender, 0.7 * before);
}

/// The near losses' rate alone would set a window of 20 segments here.
#[test]
fn frequent_near_losses_leave_the_window_to_the_far_segment() {
    let rtt = Duration::from_millis(52);
    let mut sender = sender_past_slow_start(60, rtt);
    for _ in 0..500 {
        run(&mut sender, rtt, Duration::from_millis(14));
        lose_one(&mut sender, Some(0.04));
        fill(&mut sender);
    }
    assert!(segments(&sender) > 50.0, "{}", segments(&sender));
}

/// Slow start continues where near losses leave room for it, at its own pace.
#[test]
fn near_losses_do_not_end_slow_start() {
    let (mut sender, mut without) = (sender(20, RTT), sender(20, RTT));
    lose_one(&mut sender, Some(0.05));
    end_recovery(&mut sender);
    let [with, without] = [&mut sender, &mut without].map(|sender| {
        run(sender, RTT, 3 * RTT);
        let before = segments(sender);
        run(sender, RTT, RTT);
        segments(sender) / before
    });
    assert!(with > 0.9 * without, "in a round trip {with}-fold, and not {without}-fold");
}

/// While near losses are the limit, the far window's time stands still, and then continues.
#[test]
fn the_far_window_does_not_jump_when_near_losses_cease() {
    let mut sender = sender(100, RTT);
    lose_one(&mut sender, None);
    end_recovery(&mut sender);
    run(&mut sender, RTT, Duration::from_secs(1));
    for _ in 0..400 {
        run(&mut sender, RTT, Duration::from_millis(50));
        lose_one(&mut sender, Some(0.3));
        fill(&mut sender);
    }
    let far = sender.cubic_rfc9438_state.far.bytes / sender.max_datagram_size as f64;
    assert!(segments(&sender) < 0.5 * far, "near losses are the limit: {}, {far}", segments(&sender));
    // The near window recovers within a few seconds; then the far one continues.
    for _ in 0..40 {
        let before = segments(&sender);
        run(&mut sender, RTT, RTT);
        let limited_by_far = before >= far;
        assert!(!limited_by_far || segments(&sender) < 1.1 * before, "{before} {}", segments(&sender));
    }
    assert!(segments(&sender) > far, "it came back");
}

/// A near loss in an application-limited phase begins its stage then, not later.
#[test]
fn the_window_recovers_from_a_near_loss_in_a_limited_phase() {
    let mut sender = sender_past_slow_start(400, RTT);
    let segment = sender.max_datagram_size;
    sender.ack_n_packets(sender.bytes_in_flight / segment, segment);
    for round in 0..50 {
        sender.send_packet(segment);
        sender.update_app_limited(true);
        sender.advance_time(RTT);
        if round == 40 {
            sender.cubic_rfc9438_state.set_near_ratio(Some(0.5));
            sender.lose_n_packets(1, segment, None);
        } else {
            sender.ack_n_packets(1, segment);
        }
    }
    let reduced = segments(&sender);
    fill(&mut sender);
    let k = ((400.0 - reduced) / (0.4 / 0.125)).cbrt();
    run(&mut sender, RTT, Duration::from_secs_f64(k + 1.0));
    assert!(segments(&sender) >= 398.0, "{reduced} {} after {k} s", segments(&sender));
}

#[test]
fn one_reaction_per_round_trip() {
    for ratio in [None, Some(0.5)] {
        let mut sender = sender(100, RTT);
        lose_one(&mut sender, ratio);
        let after_one = sender.congestion_window;
        lose_one(&mut sender, ratio);
        lose_one(&mut sender, Some(0.9));
        assert_eq!(sender.congestion_window, after_one);
    }
}

#[test]
fn plain_loss_behind_a_near_one_is_answered_in_full_and_once() {
    let mut sender = sender(100, RTT);
    lose_one(&mut sender, Some(0.1));
    assert_eq!(segments(&sender), 97.0);
    lose_one(&mut sender, None);
    assert_eq!(segments(&sender), 70.0);
    assert_eq!(sender.cubic_rfc9438_state.far.w_max, 100.0 * sender.max_datagram_size as f64);
    lose_one(&mut sender, None);
    assert_eq!(segments(&sender), 70.0);
}

#[test]
fn fast_convergence_gives_up_part_of_the_window() {
    let mut sender = sender(100, RTT);
    let segment = sender.max_datagram_size as f64;
    lose_one(&mut sender, None);
    end_recovery(&mut sender);
    lose_one(&mut sender, None);
    assert_within_a_segment(&sender, 49.0);
    assert!((sender.cubic_rfc9438_state.far.w_max - 70.0 * segment * 1.7 / 2.0).abs() < 1.0);
}

#[test]
fn window_has_a_floor() {
    let mut sender = sender(3, RTT);
    for _ in 0..5 {
        fill(&mut sender);
        lose_one(&mut sender, None);
        end_recovery(&mut sender);
    }
    assert_eq!(segments(&sender), 2.0);
}

#[test]
fn application_limited_time_does_not_count() {
    let mut sender = sender(100, RTT);
    let segment = sender.max_datagram_size;
    lose_one(&mut sender, None);
    end_recovery(&mut sender);
    run(&mut sender, RTT, Duration::from_secs(2));

    // The application sends little for ten seconds, and nothing for ten more.
    sender.ack_n_packets(sender.bytes_in_flight / segment, segment);
    let before = segments(&sender);
    for _ in 0..50 {
        sender.send_packet(segment);
        sender.advance_time(RTT);
        sender.ack_n_packets(1, segment);
    }
    sender.advance_time(Duration::from_secs(10));
    assert_eq!(segments(&sender), before);

    fill(&mut sender);
    run(&mut sender, RTT, Duration::from_secs(1));
    let expected = w_cubic(3.0, 70.0, 100.0, 0.4);
    assert!((segments(&sender) - expected).abs() <= 2.0, "{} instead of {expected}", segments(&sender));
}

#[test]
fn no_rollback() {
    let mut sender = sender(100, RTT);
    (sender.cc_ops.checkpoint)(&mut sender);
    lose_one(&mut sender, None);
    assert!(!(sender.cc_ops.rollback)(&mut sender));
    assert_eq!(segments(&sender), 70.0);
}

#[test]
fn impossible_ratios_are_any_loss() {
    for ratio in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
        let mut sender = sender(100, RTT);
        lose_one(&mut sender, Some(ratio));
        assert_eq!(segments(&sender), 70.0, "ratio {ratio}");
    }
    for ratio in [1.5, f64::INFINITY] {
        let mut sender = sender(100, RTT);
        lose_one(&mut sender, Some(ratio));
        assert_eq!(segments(&sender), 70.0, "ratio {ratio}");
    }
}
