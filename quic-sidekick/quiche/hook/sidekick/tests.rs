//! Tests of the hook's internals: the state of both recoveries for packets declared lost early.
#![allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]

use smallvec::smallvec;

use super::*;
use crate::frame::Frame;
use crate::packet::Epoch;
use crate::ranges::RangeSet;
use crate::recovery::{HandshakeStatus, RecoveryConfig, Sent};
use crate::{test_utils, Config, CongestionControlAlgorithm, StartupExitReason};

const SIZE: usize = 1200;
const RTT: Duration = Duration::from_millis(100);
const CONTROLLERS: [&str; 4] = ["reno", "cubic", "cubic-rfc9438", "bbr2_gcongestion"];
const REACTIONS: [Reaction; 3] = [Reaction::Loss, Reaction::NearLoss { ratio: 0.2 }, Reaction::Neutered];
const ESTABLISHED: HandshakeStatus =
    HandshakeStatus { has_handshake_keys: true, peer_verified_address: true, completed: true };

/// The packets in the log, which is empty then.
pub(super) fn drain(conn: &mut Connection) -> impl Iterator<Item = SentPacket> + use<> {
    let logged = conn.sidekick_logged().to_vec();
    conn.sidekick_clear_log();
    logged.into_iter()
}

/// A recovery and the time.
struct Sender {
    recovery: Recovery,
    now: Instant,
    next: u64,
}

impl Sender {
    fn new(controller: &str) -> Self {
        Self::with_window(controller, 10)
    }

    /// A sender with an initial window of `packets`.
    fn with_window(controller: &str, packets: usize) -> Self {
        let mut config = Config::new(crate::PROTOCOL_VERSION).unwrap();
        config.set_cc_algorithm_name(controller).unwrap();
        config.set_initial_congestion_window_packets(packets);
        let recovery = Recovery::new_with_config(&RecoveryConfig::from_config(&config));
        Self { recovery, now: Instant::now(), next: 0 }
    }

    /// Sends `count` packets of stream data, a millisecond apart.
    fn send(&mut self, count: u64) {
        for _ in 0..count {
            let pkt_num = self.next;
            self.send_packet(|packet| {
                packet.frames =
                    smallvec![Frame::StreamHeader { stream_id: 0, offset: pkt_num, length: 1, fin: false }];
            });
        }
    }

    fn send_packet(&mut self, edit: impl FnOnce(&mut Sent)) {
        let mut packet = Sent {
            pkt_num: self.next,
            frames: smallvec![],
            time_sent: self.now,
            time_acked: None,
            time_lost: None,
            size: SIZE,
            ack_eliciting: true,
            in_flight: true,
            delivered: 0,
            delivered_time: self.now,
            first_sent_time: self.now,
            is_app_limited: false,
            tx_in_flight: 0,
            lost: 0,
            has_data: true,
            is_pmtud_probe: false,
        };
        edit(&mut packet);
        self.recovery.on_packet_sent(packet, Epoch::Application, ESTABLISHED, self.now, "");
        self.next += 1;
        self.now += Duration::from_millis(1);
    }

    fn lose(&mut self, numbers: &[u64], reaction: Reaction) -> usize {
        match &mut self.recovery {
            Recovery::Legacy(recovery) => {
                recovery.sidekick_early_lost(numbers, reaction, ESTABLISHED, self.now)
            }
            Recovery::GCongestion(recovery) => {
                recovery.sidekick_early_lost(numbers, reaction, ESTABLISHED, self.now)
            }
        }
    }

    /// Receives an ACK frame with these packet numbers, a round trip after the last packet. Returns
    /// the spurious losses that quiche's code detected.
    fn ack(&mut self, numbers: impl IntoIterator<Item = u64>) -> usize {
        self.now += RTT;
        let mut ranges = RangeSet::new(64);
        numbers.into_iter().for_each(|number| ranges.push_item(number));
        let outcome =
            self.recovery.on_ack_received(&ranges, 0, Epoch::Application, ESTABLISHED, self.now, None, "");
        outcome.unwrap().spurious_losses
    }

    /// Makes the controller consider the flow application-limited.
    fn app_limit(&mut self) {
        if let Recovery::Legacy(recovery) = &mut self.recovery {
            recovery.congestion.app_limited = true;
        }
    }

    fn hold(&mut self, number: u64) -> bool {
        self.hold_sent(number, false)
    }

    fn hold_sent(&mut self, number: u64, elsewhere: bool) -> bool {
        match &mut self.recovery {
            Recovery::Legacy(recovery) => recovery.sidekick_hold(number, elsewhere, self.now),
            Recovery::GCongestion(recovery) => recovery.sidekick_hold(number, elsewhere, self.now),
        }
    }

    fn losses(&self) -> &EarlyLosses {
        early_losses(&self.recovery)
    }

    fn spurious(&self) -> u64 {
        self.losses().spurious
    }

    fn refuted(&self) -> u64 {
        self.losses().refuted
    }

    fn recovery_name(&self) -> &'static str {
        match &self.recovery {
            Recovery::Legacy(recovery) => recovery.sidekick_congestion_control().unwrap(),
            Recovery::GCongestion(_) => "bbr2_gcongestion",
        }
    }

    /// The stream offsets of the frames that wait to be resent, which equal their original packet
    /// numbers.
    fn take_lost(&mut self) -> Vec<u64> {
        let lost = std::iter::from_fn(|| self.recovery.next_lost_frame(Epoch::Application));
        let mut offsets: Vec<_> = lost
            .map(|frame| match frame {
                Frame::StreamHeader { offset, .. } => offset,
                other => panic!("unexpected {other:?}"),
            })
            .collect();
        offsets.sort_unstable();
        offsets
    }

    #[track_caller]
    fn assert_in_flight(&self, packets: usize) {
        assert_eq!(self.recovery.in_flight_count(Epoch::Application), packets);
        assert_eq!(self.recovery.bytes_in_flight(), packets * SIZE);
    }
}

/// Every controller with every reaction.
fn each(test: impl Fn(Sender, Reaction)) {
    each_with_window(10, test);
}

fn each_with_window(packets: usize, test: impl Fn(Sender, Reaction)) {
    for controller in CONTROLLERS {
        for reaction in REACTIONS {
            println!("{controller}, {reaction:?}");
            test(Sender::with_window(controller, packets), reaction);
        }
    }
}

#[test]
fn lost_frames_are_resent_and_leave_the_flight() {
    each(|mut sender, reaction| {
        sender.send(10);
        assert_eq!(sender.lose(&[2, 3, 7], reaction), 3);
        sender.assert_in_flight(7);
        assert_eq!(sender.take_lost(), [2, 3, 7]);
        assert_eq!(sender.ack([0, 1, 4, 5, 6, 8, 9]), 0);
        sender.assert_in_flight(0);
        assert_eq!(sender.recovery.loss_detection_timer(), None);
        assert!(sender.take_lost().is_empty());
    });
}

#[test]
fn unknown_acknowledged_and_lost_numbers_are_skipped() {
    each(|mut sender, reaction| {
        sender.send(4);
        sender.ack([0]);
        assert_eq!(sender.lose(&[0, 2, 2, 4, u64::MAX], reaction), 1);
        assert_eq!(sender.lose(&[2], reaction), 0);
        assert_eq!(sender.lose(&[], reaction), 0);
        sender.assert_in_flight(2);
        assert_eq!(sender.take_lost(), [2]);
    });
}

#[test]
fn everything_lost_disarms_the_timer_and_the_next_packet_arms_it() {
    each(|mut sender, reaction| {
        sender.send(3);
        assert_eq!(sender.lose(&[0, 1, 2], reaction), 3);
        sender.assert_in_flight(0);
        assert_eq!(sender.recovery.loss_detection_timer(), None);
        sender.send(1);
        assert!(sender.recovery.loss_detection_timer().unwrap() > sender.now);
        sender.assert_in_flight(1);
    });
}

#[test]
fn probe_timeout_probes_what_is_left() {
    each(|mut sender, reaction| {
        sender.send(3);
        sender.lose(&[0, 1], reaction);
        assert_eq!(sender.take_lost(), [0, 1]);
        sender.now = sender.recovery.loss_detection_timer().unwrap();
        sender.recovery.on_loss_detection_timeout(ESTABLISHED, sender.now, "");
        assert_eq!(sender.recovery.pto_count(), 1);
        assert_eq!(sender.take_lost(), [2]);
        assert!(sender.recovery.loss_detection_timer().unwrap() > sender.now);
    });
}

#[test]
fn a_lost_probe_is_replaced_at_once() {
    each(|mut sender, reaction| {
        sender.send(3);
        assert_eq!(sender.lose(&[0], reaction), 1);
        assert_eq!(sender.recovery.loss_probes(Epoch::Application), 0, "no probe timeout yet");
        for probes in [1, 2] {
            sender.now = sender.recovery.loss_detection_timer().unwrap();
            sender.recovery.on_loss_detection_timeout(ESTABLISHED, sender.now, "");
            for _ in 0..probes {
                sender.send(1);
                sender.recovery.ping_sent(Epoch::Application);
            }
            assert_eq!(sender.recovery.loss_probes(Epoch::Application), 0);
            let sent: Vec<_> = (sender.next - probes..sender.next).collect();
            assert_eq!(sender.lose(&sent, reaction) as u64, probes);
            assert_eq!(sender.recovery.loss_probes(Epoch::Application) as u64, probes);
            (0..probes).for_each(|_| sender.recovery.ping_sent(Epoch::Application));
        }
    });
}

#[test]
fn time_threshold_follows_the_packet_that_is_left() {
    each(|mut sender, reaction| {
        sender.send(3);
        sender.ack([2]);
        let for_the_first = sender.recovery.loss_detection_timer().unwrap();
        sender.lose(&[0], reaction);
        // The second packet was sent a millisecond after the first.
        assert_eq!(sender.recovery.loss_detection_timer().unwrap(), for_the_first + Duration::from_millis(1));
        sender.lose(&[1], reaction);
        assert_eq!(sender.recovery.loss_detection_timer(), None);
    });
}

#[test]
fn acknowledged_after_all_is_counted_and_changes_no_threshold() {
    each(|mut sender, reaction| {
        sender.send(30);
        sender.lose(&[1, 5], reaction);
        let in_flight = sender.recovery.bytes_in_flight();
        assert_eq!(sender.ack(20..30), 0);
        // quiche's code has declared the packets below the packet threshold lost.
        let after = sender.recovery.bytes_in_flight();
        assert!(after < in_flight);
        assert_eq!(sender.ack([1]), 0);
        assert_eq!(sender.spurious(), 1);
        assert_eq!(sender.ack([1, 5]), 0);
        assert_eq!(sender.ack([1, 5]), 0);
        assert_eq!(sender.spurious(), 2);
        assert_eq!(sender.recovery.bytes_in_flight(), after);
        assert_eq!(sender.recovery.pkt_thresh(), Some(3));
        assert_eq!(sender.recovery.lost_spurious_count(), 0);
    });
}

/// A wrong report has no effect but the retransmission: the recovery's state is as without it.
#[test]
fn a_refuted_report_leaves_no_trace() {
    each(|mut sender, reaction| {
        let mut untold = Sender::new(sender.recovery_name());
        untold.now = sender.now;
        for (round, numbers) in [(0, [2, 3, 7]), (10, [11, 12, 19]), (20, [20, 25, 26])] {
            sender.send(10);
            untold.send(10);
            assert_eq!(sender.lose(&numbers, reaction), 3);
            sender.assert_in_flight(7);
            for number in round..round + 10 {
                assert_eq!((sender.ack([number]), untold.ack([number])), (0, 0));
                sender.now -= RTT;
                untold.now -= RTT;
            }
            sender.assert_in_flight(0);
            assert_eq!(sender.recovery.cwnd(), untold.recovery.cwnd());
            assert_eq!(sender.recovery.rtt(), untold.recovery.rtt());
            assert_eq!(sender.recovery.delivery_rate(), untold.recovery.delivery_rate());
            assert_eq!(sender.recovery.lost_count(), 0);
            assert_eq!(sender.take_lost(), numbers);
            // Acknowledged frames need not be resent: the connection learns of them.
            let acknowledged = |sender: &mut Sender| {
                std::iter::from_fn(|| sender.recovery.next_acked_frame(Epoch::Application)).count()
            };
            assert_eq!(acknowledged(&mut sender), acknowledged(&mut untold));
        }
        assert_eq!((sender.spurious(), sender.refuted()), (9, 9));
    });
}

/// The receiver acknowledges a first attempt before packets sent after it, and a second one after
/// them.
#[test]
fn earlier_acknowledgements_show_which_attempt_arrived() {
    for controller in CONTROLLERS {
        for (acknowledged, needless, undecided) in [
            (&[&[0, 1, 2, 3][..]][..], 1, 0),
            (&[&[0, 1, 2], &[0, 1, 2, 3, 4]], 1, 0),
            // The second attempt fills a gap.
            (&[&[0, 1, 2, 4], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]], 0, 0),
            // One acknowledgement for all of them is inconclusive.
            (&[&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]], 0, 1),
        ] {
            let mut sender = Sender::new(controller);
            sender.send(10);
            assert!(sender.hold(3));
            sender.send(2);
            // Late enough for either.
            for numbers in acknowledged {
                sender.ack(numbers.iter().copied());
            }
            let losses = sender.losses();
            assert_eq!((losses.needless, losses.refuted), (needless, needless), "{controller}, {acknowledged:?}");
            assert_eq!(losses.undecided, undecided, "{controller}, {acknowledged:?}");
        }
    }
}

#[test]
fn the_receiver_s_confirmations_bound_the_reports() {
    let most = reports::MAX_OPEN as u64;
    each_with_window(reports::MAX_OPEN, |mut sender, reaction| {
        sender.send(most + 10);
        let all: Vec<_> = (0..most + 10).collect();
        assert_eq!(sender.lose(&all, reaction) as u64, most);
        // The receiver's confirmation of some makes room for others.
        sender.ack(0..10);
        assert_eq!(sender.lose(&[most + 5], reaction), 1);
    });
}

/// A proxy that reports everything as lost makes the sender send at most two windows before the
/// receiver's confirmation.
#[test]
fn at_most_two_windows_await_the_receiver_s_confirmation() {
    each(|mut sender, reaction| {
        let most = 2 * sender.recovery.cwnd() / SIZE;
        let mut lost = 0;
        for _ in 0..10 {
            let begin = sender.next;
            sender.send(most as u64);
            lost += sender.lose(&(begin..sender.next).collect::<Vec<_>>(), reaction);
        }
        assert_eq!(lost, most);
    });
}

#[test]
fn path_mtu_probes_are_not_lost_early() {
    each(|mut sender, reaction| {
        sender.send_packet(|packet| packet.is_pmtud_probe = true);
        assert_eq!(sender.lose(&[0], reaction), 0);
        sender.assert_in_flight(1);
    });
}

#[test]
fn packets_out_of_flight_do_not_concern_the_controller() {
    each(|mut sender, reaction| {
        sender.send_packet(|packet| {
            (packet.size, packet.in_flight, packet.ack_eliciting, packet.has_data) = (0, false, false, false);
        });
        let before = sender.recovery.cwnd();
        assert_eq!(sender.lose(&[0], reaction), 1);
        sender.assert_in_flight(0);
        assert_eq!(sender.recovery.cwnd(), before);
    });
}

#[test]
fn controllers_react_once_per_round_trip() {
    for (controller, reaction, left) in [
        ("reno", Reaction::Loss, 0.5),
        ("reno", Reaction::Neutered, 0.5),
        ("cubic", Reaction::NearLoss { ratio: 0.2 }, 0.7),
        ("cubic-rfc9438", Reaction::Loss, 0.7),
        ("cubic-rfc9438", Reaction::NearLoss { ratio: 0.2 }, 0.94),
        ("cubic-rfc9438", Reaction::Neutered, 0.7),
    ] {
        let mut sender = Sender::new(controller);
        sender.send(10);
        let before = sender.recovery.cwnd() as f64;
        sender.lose(&[3], reaction);
        sender.lose(&[5], reaction);
        assert_eq!(sender.recovery.cwnd() as f64, before, "the proxy's report alone");
        // An application-limited window does not grow.
        sender.app_limit();
        sender.ack([0, 1, 2, 4, 6, 7, 8, 9]);
        let after = sender.recovery.cwnd() as f64;
        assert!((after - before * left).abs() < 2.0, "{controller} {reaction:?}: {before} to {after}");
    }
}

/// BBR2 leaves startup upon heavy loss, or when the bandwidth stops growing.
#[test]
fn bbr2_does_not_hear_of_neutered_packets() {
    let startup_exit = |reaction| {
        let mut sender = Sender::new("bbr2_gcongestion");
        for _ in 0..10 {
            let sent = sender.next..sender.next + 30;
            sender.send(30);
            let lost = |number: &u64| number.is_multiple_of(3);
            for number in sent.clone().filter(lost) {
                assert_eq!(sender.lose(&[number], reaction), 1);
            }
            // One after the other, so that each loss is confirmed separately.
            for number in sent.filter(|number| !lost(number)) {
                sender.ack([number]);
                sender.now -= RTT;
            }
            sender.now += RTT;
        }
        sender.recovery.startup_exit().map(|exit| exit.reason)
    };
    assert_eq!(startup_exit(Reaction::Loss), Some(StartupExitReason::Loss));
    assert_eq!(startup_exit(Reaction::Neutered), Some(StartupExitReason::BandwidthPlateau));
}

#[test]
fn confirmed_early_losses_are_bounded() {
    let mut losses = EarlyLosses::default();
    let report = || Report {
        reaction: Reaction::Loss,
        reported: Instant::now(),
        time_sent: Instant::now(),
        size: SIZE,
        in_flight: true,
        ack_eliciting: true,
        has_data: true,
        frames: smallvec![],
    };
    let most = reports::MAX_CONFIRMED as u64;
    for number in 0..3 * most {
        losses.declare(number, report());
    }
    assert_eq!(losses.take_confirmed(Some(u64::MAX / 2), Some(3), None).len() as u64, 3 * most);
    let mut ranges = RangeSet::new(4);
    ranges.insert(0..u64::MAX);
    let acknowledged = losses.take_acknowledged(&ranges);
    assert_eq!(acknowledged.len() as u64, most);
    assert!(acknowledged.iter().all(|(_, report)| report.is_none()));
    assert_eq!((losses.spurious, losses.refuted), (most, 0));
    assert!(losses.take_acknowledged(&ranges).is_empty());
}

#[test]
fn the_log_holds_the_sent_packets() {
    let mut pipe = test_utils::Pipe::new("cubic").unwrap();
    pipe.handshake().unwrap();
    assert_eq!(drain(&mut pipe.client).count(), 0, "off by default");

    pipe.client.sidekick_log(100);
    pipe.client.stream_send(0, b"sidekick", true).unwrap();
    let before = Instant::now();
    let flight = test_utils::emit_flight(&mut pipe.client).unwrap();
    let logged: Vec<_> = drain(&mut pipe.client).collect();
    assert_eq!(logged.len(), flight.len());
    for (packet, (datagram, info)) in logged.iter().zip(&flight) {
        let head = &datagram[..HEAD_LEN.min(datagram.len())];
        assert_eq!(packet.head[..head.len()], *head);
        assert!(packet.head[head.len()..].iter().all(|byte| *byte == 0));
        assert_eq!(packet.size, datagram.len());
        assert!(packet.time_sent >= before && packet.time_sent <= Instant::now());
        assert_eq!(pipe.client.sidekick_path(packet.path_id), Some((info.from, info.to)));
        // The peer opens it under the same number.
        let frames = test_utils::decode_pkt(&mut pipe.server, &mut datagram.clone()).unwrap();
        assert!(!frames.is_empty());
        assert_eq!(
            pipe.client.sidekick_early_lost(packet.path_id, &[packet.packet_number], Reaction::Loss, info.at),
            1
        );
    }
    assert_eq!(pipe.client.sidekick_early_lost_count(), logged.len() as u64);
}

#[test]
fn full_log_drops_the_oldest_and_counts() {
    let mut pipe = test_utils::Pipe::new("cubic").unwrap();
    pipe.handshake().unwrap();
    pipe.client.sidekick_log(2);
    for _ in 0..5 {
        pipe.client.send_ack_eliciting().unwrap();
        test_utils::emit_flight(&mut pipe.client).unwrap();
    }
    assert_eq!(pipe.client.sidekick_dropped(), 3);
    let numbers: Vec<_> = drain(&mut pipe.client).map(|packet| packet.packet_number).collect();
    assert_eq!(numbers, [pipe.client.next_pkt_num - 2, pipe.client.next_pkt_num - 1]);
    pipe.client.sidekick_log(0);
    pipe.client.send_ack_eliciting().unwrap();
    test_utils::emit_flight(&mut pipe.client).unwrap();
    assert_eq!(drain(&mut pipe.client).count(), 0);
}

/// An attempt by another link may overtake. Nothing arrives by it within half of a round trip.
#[test]
fn an_attempt_elsewhere_is_refuted_by_time_alone() {
    for controller in CONTROLLERS {
        for (early, acknowledged, refuted, undecided) in [
            (true, &[&[0, 1, 2, 3][..]][..], 1, 0),
            (false, &[&[0, 1, 2, 3]], 0, 1),
            (false, &[&[0, 1, 2, 4], &[0, 1, 2, 3, 4, 5]], 0, 0),
            (false, &[&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]], 0, 1),
        ] {
            let mut sender = Sender::new(controller);
            sender.send(10);
            sender.ack([0]);
            assert!(sender.hold_sent(3, true));
            sender.now -= if early { RTT } else { Duration::ZERO };
            for numbers in acknowledged {
                sender.ack(numbers.iter().copied());
            }
            let losses = sender.losses();
            let found = (losses.refuted, losses.undecided);
            assert_eq!(found, (refuted, undecided), "{controller}, {early}, {acknowledged:?}");
        }
    }
}

/// The pacer makes up for what goes again by `send` alone.
#[test]
fn an_attempt_elsewhere_leaves_the_pacer_alone() {
    let mut sender = Sender::new("bbr2_gcongestion");
    let began = sender.now;
    sender.send(30);
    let paced = sender.recovery.get_next_release_time();
    assert!(paced.time(began).is_some());
    assert!(sender.hold_sent(3, true));
    assert_eq!(sender.recovery.get_next_release_time().time(began), paced.time(began));
    assert!(sender.hold(4));
    assert_eq!(sender.recovery.get_next_release_time().time(began), None);
}

#[test]
fn only_the_latest_packets_keep_their_datagrams() {
    let mut pipe = test_utils::Pipe::new("cubic").unwrap();
    pipe.handshake().unwrap();
    pipe.client.sidekick_log(10);
    for keep in [0, 1, 3, 1000] {
        pipe.client.sidekick_keep_datagrams(keep);
        let mut flight = Vec::new();
        for _ in 0..5 {
            pipe.client.send_ack_eliciting().unwrap();
            flight.extend(test_utils::emit_flight(&mut pipe.client).unwrap());
        }
        let logged: Vec<_> = drain(&mut pipe.client).collect();
        assert_eq!(logged.len(), flight.len());
        for (index, (packet, (datagram, _))) in logged.iter().zip(&flight).enumerate() {
            let kept = (index + keep >= 5).then_some((&datagram[..], packet.time_sent));
            assert_eq!(pipe.client.sidekick_kept(0, packet.packet_number), kept, "{keep}");
            assert_eq!(pipe.client.sidekick_kept(1, packet.packet_number), None, "another path");
        }
        let next = pipe.client.next_pkt_num;
        assert_eq!(pipe.client.sidekick_kept(0, next), None, "not sent yet");
    }
    let last = pipe.client.next_pkt_num - 1;
    assert!(pipe.client.sidekick_kept(0, last).is_some());
    pipe.client.sidekick_log(0);
    assert_eq!(pipe.client.sidekick_kept(0, last), None);
}

#[test]
fn kept_datagrams_take_little_memory() {
    let mut pipe = test_utils::Pipe::new("cubic").unwrap();
    pipe.handshake().unwrap();
    pipe.client.sidekick_log(10);
    // The datagrams may have a kibibyte each, or a byte.
    for (packets, kept) in [(1 << 10, true), (1 << 20, false)] {
        pipe.client.sidekick_keep_datagrams(packets);
        pipe.client.send_ack_eliciting().unwrap();
        test_utils::emit_flight(&mut pipe.client).unwrap();
        let last = pipe.client.next_pkt_num - 1;
        assert_eq!(pipe.client.sidekick_kept(0, last).is_some(), kept, "{packets}");
    }
}

#[test]
fn unknown_path_is_no_loss() {
    let mut pipe = test_utils::Pipe::new("cubic").unwrap();
    pipe.handshake().unwrap();
    assert_eq!(pipe.client.sidekick_early_lost(99, &[0, 1], Reaction::Loss, Instant::now()), 0);
    assert_eq!(pipe.client.sidekick_rtt(99), None);
    assert!(pipe.client.sidekick_rtt(0).is_some());
}

#[test]
fn controller_is_found_by_name() {
    assert_eq!("cubic-rfc9438".parse(), Ok(CongestionControlAlgorithm::CubicRfc9438));
}

/// A near loss must not leave a gap at a bottleneck behind the proxy. Its repair does not wait for
/// the pacer, and does not move the schedule of other packets.
#[test]
fn the_repair_of_neutered_packets_is_not_paced() {
    for (reaction, at_once) in [(Reaction::Neutered, 3), (Reaction::Loss, 0)] {
        let mut sender = Sender::new("bbr2_gcongestion");
        let began = sender.now;
        // More than the unpaced initial burst.
        sender.send(20);
        let paced = sender.recovery.get_next_release_time();
        assert_ne!(paced.time(began), None);
        assert_eq!(sender.lose(&[4, 5, 6], reaction), 3);
        for _ in 0..at_once {
            assert_eq!(sender.recovery.get_next_release_time().time(began), None, "{reaction:?}");
            sender.send(1);
        }
        assert_eq!(sender.recovery.get_next_release_time().time(began), paced.time(began), "{reaction:?}");
    }
}

/// A probe resent data, and the receiver acknowledged it, so it need not be resent although it was
/// declared lost. Its stream must not block the others. In quiche 0.30.0 it does.
#[test]
fn a_stream_without_data_to_resend_blocks_no_other() {
    const BULK: usize = 100_000;
    // BBR2 keeps its window, so that there is room.
    for controller in &CONTROLLERS[..3] {
        let mut config = test_utils::Pipe::default_config(controller).unwrap();
        config.set_initial_max_data(BULK as u64 * 2);
        config.set_initial_max_stream_data_bidi_remote(BULK as u64 * 2);
        let mut pipe = test_utils::Pipe::with_config(&mut config).unwrap();
        pipe.handshake().unwrap();
        pipe.advance().unwrap();
        let (client, now) = (&mut pipe.client, Instant::now());
        client.sidekick_log(100);
        client.stream_priority(2, 0, false).unwrap();
        client.stream_send(2, b"first", false).unwrap();
        let original = test_utils::emit_flight(client).unwrap();
        let path = client.paths.get_active_mut().unwrap();
        path.recovery.on_loss_detection_timeout(ESTABLISHED, now, "");
        let probe = test_utils::emit_flight(client).unwrap();
        let copy = drain(client).last().unwrap();
        match &mut client.paths.get_active_mut().unwrap().recovery {
            Recovery::Legacy(recovery) => recovery.sidekick_end_backoff(),
            Recovery::GCongestion(_) => unreachable!("this test is for the other controllers"),
        }
        assert_eq!((original.len(), probe.len()), (1, 1));

        // The window is full when the probe is declared lost: it cannot be resent yet.
        client.stream_send(0, &vec![1; BULK], true).unwrap();
        let bulk = test_utils::emit_flight(client).unwrap();
        let numbers: Vec<_> = drain(client).map(|packet| packet.packet_number).collect();
        assert!(!bulk.is_empty());
        match &mut client.paths.get_active_mut().unwrap().recovery {
            Recovery::Legacy(recovery) => recovery.sidekick_shrink_window(),
            Recovery::GCongestion(_) => unreachable!("this test is for the other controllers"),
        }
        assert_eq!(client.sidekick_early_lost(copy.path_id, &[copy.packet_number], Reaction::Loss, now), 1);
        for (mut datagram, _) in test_utils::emit_flight(client).unwrap_or_default() {
            let frames = test_utils::decode_pkt(&mut pipe.server, &mut datagram).unwrap();
            assert!(frames.iter().all(|frame| matches!(frame, Frame::ACK { .. })), "{frames:?}");
        }

        test_utils::process_flight(&mut pipe.server, original).unwrap();
        let acknowledgement = test_utils::emit_flight(&mut pipe.server).unwrap();
        test_utils::process_flight(&mut pipe.client, acknowledgement).unwrap();
        test_utils::process_flight(&mut pipe.server, bulk).unwrap();
        let acknowledgement = test_utils::emit_flight(&mut pipe.server).unwrap();
        test_utils::process_flight(&mut pipe.client, acknowledgement).unwrap();
        let more = test_utils::emit_flight(&mut pipe.client).unwrap_or_default();
        assert!(!more.is_empty(), "{controller}: nothing after {numbers:?}");
    }
}
