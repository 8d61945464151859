//! Compares the controller with the formulas of its authors, in segments.

use std::time::Duration;

use super::super::test_sender::TestSender;
use crate::CongestionControlAlgorithm;

/// A sender with this round trip, whose window is full.
fn sender(rtt: u64) -> TestSender {
    let mut sender = TestSender::new(CongestionControlAlgorithm::Hybla, false);
    sender.update_rtt(Duration::from_millis(rtt));
    fill(&mut sender);
    sender
}

fn fill(sender: &mut TestSender) {
    let segment = sender.max_datagram_size;
    while sender.bytes_in_flight + segment <= sender.congestion_window {
        sender.send_packet(segment);
    }
    sender.update_app_limited(false);
}

fn segments(sender: &TestSender) -> f64 {
    sender.congestion_window as f64 / sender.max_datagram_size as f64
}

fn acknowledge(sender: &mut TestSender, packets: usize) {
    sender.ack_n_packets(packets, sender.max_datagram_size);
    fill(sender);
}

/// Ends slow start by a loss, and the recovery after it.
fn lose_one(sender: &mut TestSender) {
    sender.advance_time(Duration::from_millis(1));
    sender.lose_n_packets(1, sender.max_datagram_size, None);
    sender.ack_n_packets(sender.bytes_in_flight / sender.max_datagram_size, sender.max_datagram_size);
    sender.advance_time(Duration::from_millis(1));
    fill(sender);
}

#[test]
fn slow_start_is_that_of_a_round_trip_of_25_ms() {
    // rho: 1 for a shorter round trip.
    for (rtt, rho) in [(10, 1.0_f64), (25, 1.0), (50, 2.0), (75, 3.0)] {
        let mut sender = sender(rtt);
        let before = segments(&sender);
        acknowledge(&mut sender, 1);
        let grown = segments(&sender) - before;
        assert!((grown - (rho.exp2() - 1.0)).abs() < 1e-2, "{rtt} ms: {grown}");
    }
}

#[test]
fn slow_start_ends_at_the_scaled_threshold() {
    let mut sender = sender(500);
    acknowledge(&mut sender, 1);
    // rho is 20.
    assert_eq!(sender.congestion_window, 20 * 65_535);
    assert_eq!(sender.ssthresh.get(), 20 * 65_535);
    let before = segments(&sender);
    acknowledge(&mut sender, 1);
    assert!((segments(&sender) - before - 400.0 / before).abs() < 1e-2);
}

#[test]
fn a_round_trip_adds_the_square_of_rho() {
    let mut sender = sender(100);
    lose_one(&mut sender);
    let before = segments(&sender);
    let packets = sender.bytes_in_flight / sender.max_datagram_size;
    for _ in 0..packets {
        acknowledge(&mut sender, 1);
    }
    // rho is 4; the window grows during the round trip.
    let grown = segments(&sender) - before;
    assert!((8.0..16.5).contains(&grown), "{grown} of {before}");
}

#[test]
fn a_loss_halves_the_window_once_a_round_trip() {
    let mut sender = sender(100);
    acknowledge(&mut sender, 10);
    let before = sender.congestion_window;
    let segment = sender.max_datagram_size;
    sender.advance_time(Duration::from_millis(1));
    sender.lose_n_packets(1, segment, None);
    assert_eq!(sender.congestion_window, before / 2);
    sender.lose_n_packets(1, segment, None);
    assert_eq!(sender.congestion_window, before / 2);
}

#[test]
fn it_has_a_name() {
    assert_eq!("hybla".parse(), Ok(CongestionControlAlgorithm::Hybla));
}
