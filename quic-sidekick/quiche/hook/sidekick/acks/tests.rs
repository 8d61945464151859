//! A receiver that acknowledges less often, and a sender that uses a proxy's reports instead.
#![allow(clippy::disallowed_methods, reason = "any instant will do to begin with")]

use super::super::tests::drain;
use super::*;
use crate::recovery::{Recovery, RecoveryOps};
use crate::test_utils::{self, Pipe};
use crate::SendInfo;

const BULK: usize = 1_000_000;

fn pipe(controller: &str) -> Pipe {
    let mut config = Pipe::default_config(controller).unwrap();
    config.set_initial_max_data(BULK as u64 * 2);
    config.set_initial_max_stream_data_bidi_remote(BULK as u64 * 2);
    config.set_max_ack_delay(1000);
    let mut pipe = Pipe::with_config(&mut config).unwrap();
    pipe.handshake().unwrap();
    pipe.advance().unwrap();
    pipe.client.sidekick_log(1000);
    pipe
}

/// `count` datagrams of the client, with an ack-eliciting packet each.
fn datagrams(pipe: &mut Pipe, count: usize) -> Vec<(Vec<u8>, SendInfo)> {
    let mut one = || {
        pipe.client.send_ack_eliciting().unwrap();
        test_utils::emit_flight(&mut pipe.client).unwrap()
    };
    (0..count).flat_map(|_| one()).collect()
}

/// The number of datagrams with which the server answers each of these.
fn answers(pipe: &mut Pipe, datagrams: Vec<(Vec<u8>, SendInfo)>) -> Vec<usize> {
    let mut answer = |datagram| {
        test_utils::process_flight(&mut pipe.server, vec![datagram]).unwrap();
        test_utils::emit_flight(&mut pipe.server).map_or(0, |flight| flight.len())
    };
    datagrams.into_iter().map(&mut answer).collect()
}

#[test]
fn acknowledgements_wait_for_the_configured_number_of_packets() {
    let mut pipe = pipe("cubic");
    pipe.server.sidekick_acknowledge(4, Duration::from_secs(1));
    let sent = datagrams(&mut pipe, 9);
    assert_eq!(answers(&mut pipe, sent), [0, 0, 0, 1, 0, 0, 0, 1, 0]);
    // A loss does not hasten it.
    let mut sent = datagrams(&mut pipe, 4);
    sent.remove(1);
    assert_eq!(answers(&mut pipe, sent), [0, 0, 1]);
    for as_quiche_does in [0, 1] {
        pipe.server.sidekick_acknowledge(as_quiche_does, Duration::from_secs(1));
        let sent = datagrams(&mut pipe, 3);
        assert_eq!(answers(&mut pipe, sent), [1, 1, 1]);
    }
}

/// An event loop reads all input before it sends. The last packet must not defer a due
/// acknowledgement.
#[test]
fn a_due_acknowledgement_stays_due_until_it_is_sent() {
    let mut pipe = pipe("cubic");
    pipe.server.sidekick_acknowledge(4, Duration::from_secs(1));
    let sent = datagrams(&mut pipe, 9);
    test_utils::process_flight(&mut pipe.server, sent).unwrap();
    assert_eq!(test_utils::emit_flight(&mut pipe.server).unwrap().len(), 1);
    let sent = datagrams(&mut pipe, 2);
    assert_eq!(answers(&mut pipe, sent), [0, 0], "and then they wait again");
    let due = pipe.server.sidekick.due().unwrap();
    pipe.server.sidekick_on_timeout(due);
    let sent = datagrams(&mut pipe, 1);
    assert_eq!(answers(&mut pipe, sent), [1]);
}

#[test]
fn acknowledgements_wait_for_the_configured_and_announced_delay() {
    for (asked, granted) in [(100, 100), (60_000, 1000)] {
        let mut pipe = pipe("cubic");
        pipe.server.sidekick_acknowledge(u64::MAX, Duration::from_millis(asked));
        let before = Instant::now();
        let sent = datagrams(&mut pipe, 3);
        assert_eq!(answers(&mut pipe, sent), [0, 0, 0]);
        let due = pipe.server.sidekick.due().unwrap();
        let wait = Duration::from_millis(granted);
        assert!(due >= before + wait && due <= Instant::now() + wait);
        // The timeout wakes the event loop.
        assert!(pipe.server.timeout_instant().unwrap() <= due);
        pipe.server.sidekick_on_timeout(due - Duration::from_nanos(1));
        assert!(test_utils::emit_flight(&mut pipe.server).is_err());
        pipe.server.sidekick_on_timeout(due);
        assert_eq!(test_utils::emit_flight(&mut pipe.server).unwrap().len(), 1);
        assert_eq!(pipe.server.sidekick.due(), None);
    }
}

#[test]
fn packets_at_the_proxy_free_the_window_and_their_data_is_kept() {
    for controller in ["reno", "cubic", "cubic-rfc9438"] {
        let mut pipe = pipe(controller);
        let client = &mut pipe.client;
        let content = vec![7; BULK];
        let mut written = client.stream_send(0, &content, true).unwrap();
        let first = test_utils::emit_flight(client).unwrap();
        let numbers: Vec<_> = drain(client).map(|packet| packet.packet_number).collect();
        let figures = |client: &Connection| {
            let recovery = &client.paths.get_active().unwrap().recovery;
            (recovery.cwnd(), recovery.bytes_in_flight(), recovery.in_flight_count(Epoch::Application))
        };
        let (window, _, outstanding) = figures(client);
        let rtt = client.sidekick_rtt(0);
        let now = Instant::now();
        assert_eq!(client.sidekick_received(0, &numbers, now), numbers.len());
        let (grown, in_flight, still) = figures(client);
        assert!(grown > window, "{controller}: {window} {grown}");
        assert_eq!((in_flight, still), (outstanding, outstanding), "a byte each");
        assert_eq!(client.sidekick_rtt(0), rtt);
        // A second report changes nothing, nor do unknown numbers or paths.
        assert_eq!(client.sidekick_received(0, &numbers, now) + client.sidekick_received(9, &numbers, now), 0);
        assert_eq!(client.sidekick_received(0, &[u64::MAX], now), 0);

        // There is room for more, although no packet was acknowledged, and the probe timeout runs.
        written += client.stream_send(0, &content[written..], true).unwrap();
        let second = test_utils::emit_flight(client).unwrap();
        assert!(second.len() > first.len(), "{controller}");
        let path = client.paths.get_active().unwrap();
        assert!(matches!(&path.recovery, Recovery::Legacy(recovery) if recovery.loss_detection_timer().is_some()));

        // Acknowledgements reveal a packet lost behind the proxy, and the window reacts.
        let lost = numbers.len() / 2;
        let arrive = first.into_iter().enumerate().filter(|(index, _)| *index != lost).map(|(_, sent)| sent);
        test_utils::process_flight(&mut pipe.server, arrive.chain(second).collect()).unwrap();
        let acknowledgements = test_utils::emit_flight(&mut pipe.server).unwrap();
        test_utils::process_flight(&mut pipe.client, acknowledgements).unwrap();
        assert_eq!(pipe.client.stats().lost, 1, "{controller}");
        assert!(figures(&pipe.client).0 < grown);
        assert_eq!(figures(&pipe.client).1, 0);
        // All packets arrive.
        pipe.advance().unwrap();
        let mut received = 0;
        let mut buffer = [0; 65535];
        while received < BULK {
            while let Ok((size, _)) = pipe.server.stream_recv(0, &mut buffer) {
                assert!(buffer[..size].iter().all(|byte| *byte == 7));
                received += size;
            }
            if let Ok(more) = pipe.client.stream_send(0, &content[written..], true) {
                written += more;
            }
            pipe.advance().unwrap();
        }
    }
}

/// The data sent to a silent receiver is bounded.
#[test]
fn a_silent_receiver_ends_the_trust_in_the_proxy() {
    let mut pipe = pipe("cubic");
    pipe.client.stream_send(0, &vec![7; BULK], true).unwrap();
    test_utils::emit_flight(&mut pipe.client).unwrap();
    let numbers: Vec<_> = drain(&mut pipe.client).map(|packet| packet.packet_number).collect();
    let (early, late) = numbers.split_at(numbers.len() / 2);
    let now = Instant::now();
    assert_eq!(pipe.client.sidekick_received(0, early, now), early.len());
    // The peer announced a second.
    assert_eq!(pipe.client.sidekick_received(0, late, now + Duration::from_secs(9)), 0);
    assert_eq!(pipe.client.sidekick_received(0, late, now), late.len());
}

#[test]
fn bbr2_heeds_acknowledgements_alone() {
    let mut pipe = pipe("bbr2_gcongestion");
    pipe.client.stream_send(0, &vec![7; BULK], true).unwrap();
    test_utils::emit_flight(&mut pipe.client).unwrap();
    let numbers: Vec<_> = drain(&mut pipe.client).map(|packet| packet.packet_number).collect();
    assert_eq!(pipe.client.sidekick_received(0, &numbers, Instant::now()), 0);
}
