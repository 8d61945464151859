//! A client that receives with gaps.
#![allow(clippy::disallowed_methods, reason = "any instant will do to begin with")]

use super::{identifier as identifier_of, *};
use crate::frame::Frame;
use crate::test_utils::{self, Pipe};
use crate::SendInfo;

/// No packet number.
const NONE: [u64; 0] = [];
const HOLD: Hold = Hold {
    limit: Duration::from_secs(10),
    step_packets: usize::MAX,
    step_interval: Duration::from_millis(1),
};

fn hold(pipe: &mut Pipe, hold: Hold) {
    let now = Instant::now();
    pipe.client.sidekick_report_gaps();
    pipe.client.sidekick_hold(Some(hold), now);
}

fn pipe() -> Pipe {
    let mut pipe = Pipe::new("cubic").unwrap();
    hold(&mut pipe, HOLD);
    pipe.handshake().unwrap();
    pipe.advance().unwrap();
    // The server counts the packets of all spaces together, so the first of each shows a gap.
    pipe.client.sidekick_release_gaps(Instant::now());
    pipe.advance().unwrap();
    assert!(!events(&mut pipe).is_empty());
    pipe
}

/// `count` datagrams of the server, with an ack-eliciting packet each.
fn datagrams(pipe: &mut Pipe, count: usize) -> Vec<(Vec<u8>, SendInfo)> {
    let mut one = || {
        pipe.server.send_ack_eliciting().unwrap();
        test_utils::emit_flight(&mut pipe.server).unwrap()
    };
    (0..count).flat_map(|_| one()).collect()
}

fn receive(pipe: &mut Pipe, datagram: &(Vec<u8>, SendInfo)) {
    test_utils::process_flight(&mut pipe.client, vec![datagram.clone()]).unwrap();
}

fn copy(pipe: &mut Pipe, datagram: &(Vec<u8>, SendInfo)) {
    let (mut bytes, info) = datagram.clone();
    let info = RecvInfo { from: info.from, to: info.to };
    let len = bytes.len();
    assert_eq!(pipe.client.sidekick_recv_copy(&mut bytes, info), Ok(len));
}

/// The packet numbers that the client acknowledges with its next datagrams, and the delay of the
/// last acknowledgement in microseconds.
fn acknowledged(pipe: &mut Pipe) -> (Vec<u64>, u64) {
    let mut all = (Vec::new(), 0);
    let Ok(flight) = test_utils::emit_flight(&mut pipe.client) else { return all };
    for (mut datagram, _) in flight {
        for frame in test_utils::decode_pkt(&mut pipe.server, &mut datagram).unwrap() {
            if let Frame::ACK { ranges, ack_delay, .. } = frame {
                all = (ranges.flatten().collect(), ack_delay << 3);
            }
        }
    }
    all
}

fn latest(pipe: &Pipe) -> u64 {
    pipe.client.pkt_num_spaces[Epoch::Application].largest_rx_pkt_num
}

fn events(pipe: &mut Pipe) -> Vec<GapEvent> {
    std::iter::from_fn(|| pipe.client.sidekick_gap_event()).collect()
}

#[test]
fn acknowledgements_behind_a_gap_wait_for_the_copy() {
    let mut pipe = pipe();
    let sent = datagrams(&mut pipe, 5);
    receive(&mut pipe, &sent[0]);
    let first = latest(&pipe);
    assert_eq!(acknowledged(&mut pipe).0.last(), Some(&first));
    receive(&mut pipe, &sent[2]);
    receive(&mut pipe, &sent[3]);
    let [GapEvent::Found(gap)] = events(&mut pipe)[..] else { panic!("one gap") };
    let identifier = |index: usize| identifier_of(&sent[index].0);
    assert_eq!((gap.after, Some(gap.before)), (identifier(0), identifier(2)));
    assert_eq!(gap.missing, 1);
    assert_eq!(pipe.client.sidekick_newest(), identifier(3));
    assert_eq!(acknowledged(&mut pipe).0, NONE, "nothing new may be acknowledged");
    copy(&mut pipe, &sent[1]);
    assert_eq!(pipe.client.sidekick_newest(), identifier(3), "the copy is older");
    let (numbers, _) = acknowledged(&mut pipe);
    assert_eq!(numbers.last(), Some(&(first + 3)));
    assert!(numbers.ends_with(&[first + 1, first + 2, first + 3]));
    let [GapEvent::Closed { end: GapEnd::Filled, id, .. }] = events(&mut pipe)[..] else {
        panic!("it is filled")
    };
    assert_eq!(id, gap.id);
    assert_eq!(pipe.client.sidekick_copies(), 1);
}

#[test]
fn an_acknowledgement_that_waited_reports_how_long() {
    let mut pipe = pipe();
    let sent = datagrams(&mut pipe, 3);
    receive(&mut pipe, &sent[0]);
    let _ = acknowledged(&mut pipe);
    let before = Instant::now();
    receive(&mut pipe, &sent[2]);
    // The packet in front of the gap came in between, and is the largest that is acknowledged now.
    let held = pipe.client.pkt_num_spaces[Epoch::Application].largest_rx_pkt_time;
    assert!(held < before, "the time of the first packet");
    let [GapEvent::Found(gap)] = events(&mut pipe)[..] else { panic!("one gap") };
    pipe.client.sidekick_release_gap(gap.id, Instant::now());
    let now = Instant::now();
    let time = pipe.client.pkt_num_spaces[Epoch::Application].largest_rx_pkt_time;
    assert!((before..now).contains(&time), "the time of the packet behind the gap");
    let (numbers, _) = acknowledged(&mut pipe);
    assert_eq!(numbers.last(), Some(&latest(&pipe)));
    assert!(!numbers.contains(&(latest(&pipe) - 1)), "the packet that has not arrived");
}

#[test]
fn a_gap_ends_at_its_deadline() {
    let mut pipe = pipe();
    let sent = datagrams(&mut pipe, 3);
    receive(&mut pipe, &sent[0]);
    receive(&mut pipe, &sent[2]);
    let _ = acknowledged(&mut pipe);
    let due = pipe.client.sidekick.due().unwrap();
    pipe.client.sidekick_on_timeout(due - Duration::from_nanos(1));
    assert_eq!(acknowledged(&mut pipe).0, NONE);
    pipe.client.sidekick_on_timeout(due);
    assert_eq!(acknowledged(&mut pipe).0.last(), Some(&latest(&pipe)));
    let [_, GapEvent::Closed { end: GapEnd::Expired, after, .. }] = events(&mut pipe)[..] else {
        panic!("it expired")
    };
    assert_eq!(after, HOLD.limit);
    assert_eq!(pipe.client.sidekick.due(), None);
}

#[test]
fn a_long_hold_is_released_in_steps() {
    let mut pipe = pipe();
    hold(&mut pipe, Hold { step_packets: 2, ..HOLD });
    let sent = datagrams(&mut pipe, 7);
    sent.iter().skip(1).for_each(|datagram| receive(&mut pipe, datagram));
    let first = latest(&pipe) - 6;
    assert_eq!(acknowledged(&mut pipe).0, NONE);
    copy(&mut pipe, &sent[0]);
    for acknowledged_to in [first + 2, first + 4, first + 6] {
        assert_eq!(acknowledged(&mut pipe).0.last(), Some(&acknowledged_to));
        if let Some(due) = pipe.client.sidekick.due() {
            pipe.client.sidekick_on_timeout(due);
        }
    }
    assert_eq!(pipe.client.sidekick.due(), None);
}

#[test]
fn a_release_keeps_up_with_arrivals() {
    let hold = Hold { step_packets: 4, step_interval: Duration::from_millis(2), ..HOLD };
    // Packets in a millisecond, and the milliseconds that the first of them waits.
    for (rate, wait) in [(1, 20), (25, 1), (25, 20), (100, 30)] {
        let (mut held, mut longest) = (rate * wait, 0);
        for interval in 0..100 {
            let oldest = held / rate;
            held -= hold.step(held, Duration::from_millis(oldest as u64)).min(held);
            longest = if interval < 50 { 0 } else { longest.max(held / rate) };
            held += rate * 2;
        }
        // In sixteen steps, the backlog of a fast path would stay at 32 ms.
        assert!(longest <= 10, "{longest} ms at {rate} after {wait} ms");
    }
}

#[test]
fn a_copy_that_is_no_authentic_packet_changes_nothing() {
    let mut pipe = pipe();
    let sent = datagrams(&mut pipe, 3);
    receive(&mut pipe, &sent[0]);
    receive(&mut pipe, &sent[2]);
    let _ = acknowledged(&mut pipe);
    let (received, info) = (pipe.client.stats().recv, RecvInfo { from: sent[0].1.from, to: sent[0].1.to });
    let mut altered = sent[1].0.clone();
    *altered.last_mut().unwrap() ^= 1;
    let mut negotiation = vec![0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];
    let mut retry = vec![0xf0, 0, 0, 0, 1, 0, 0, 1, 2, 3, 4];
    let mut side_channel = vec![6; 100];
    for forged in [&mut altered, &mut negotiation, &mut retry, &mut side_channel, &mut vec![], &mut vec![0x40]] {
        assert_eq!(pipe.client.sidekick_recv_copy(forged, info), Ok(forged.len()));
    }
    assert_eq!(pipe.client.stats().recv, received);
    assert_eq!(acknowledged(&mut pipe).0, NONE);
    // A true copy is taken once.
    copy(&mut pipe, &sent[1]);
    copy(&mut pipe, &sent[1]);
    copy(&mut pipe, &sent[2]);
    assert_eq!(pipe.client.stats().recv, received + 1);
    assert_eq!(acknowledged(&mut pipe).0.last(), Some(&latest(&pipe)));
    assert!(!pipe.client.is_closed());
}

/// The server encodes the lost packet's number in one byte, which is ambiguous after 128 others.
#[test]
fn a_copy_may_be_much_older_than_quiche_accepts() {
    let mut pipe = pipe();
    let mut sent = datagrams(&mut pipe, 1);
    receive(&mut pipe, &sent[0]);
    pipe.advance().unwrap();
    sent = datagrams(&mut pipe, 300);
    let received = pipe.client.stats().recv;
    sent.iter().skip(2).for_each(|datagram| receive(&mut pipe, datagram));
    let late = sent[0].clone();
    receive(&mut pipe, &late);
    assert_eq!(pipe.client.stats().recv - received, 298, "as an original it is too old");
    sent.iter().take(2).for_each(|datagram| copy(&mut pipe, datagram));
    assert_eq!(pipe.client.stats().recv - received, 300);
    // The server also skips numbers, which nothing fills.
    pipe.client.sidekick_release_gaps(Instant::now());
    assert_eq!(acknowledged(&mut pipe).0.last(), Some(&latest(&pipe)));
}

/// The server's first flight, with its datagrams in every order.
#[test]
fn packets_that_overtake_their_keys_are_read() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut pipe = Pipe::new("cubic").unwrap();
        hold(&mut pipe, HOLD);
        let flight = test_utils::emit_flight(&mut pipe.client).unwrap();
        test_utils::process_flight(&mut pipe.server, flight).unwrap();
        let flight = test_utils::emit_flight(&mut pipe.server).unwrap();
        assert!(flight.len() >= 2, "{} datagrams", flight.len());
        for index in order {
            if let Some(datagram) = flight.get(index) {
                receive(&mut pipe, datagram);
            }
        }
        assert!(pipe.client.is_established(), "{order:?}");
        assert!(pipe.client.sidekick.receive.undecrypted.is_empty());
        pipe.advance().unwrap();
        assert!(pipe.server.is_established());
    }
}

#[test]
fn packets_that_wait_for_keys_are_bounded() {
    let mut pipe = Pipe::new("cubic").unwrap();
    hold(&mut pipe, HOLD);
    let flight = test_utils::emit_flight(&mut pipe.client).unwrap();
    let info = flight[0].1;
    // A short header with the client's connection ID; anyone can make it.
    let mut forged = vec![0x40];
    forged.extend_from_slice(pipe.client.source_id().as_ref());
    forged.resize(1200, 7);
    for _ in 0..1000 {
        let info = RecvInfo { from: info.to, to: info.from };
        assert_eq!(pipe.client.recv(&mut forged.clone(), info), Ok(1200));
    }
    let kept = &pipe.client.sidekick.receive.undecrypted;
    assert!(kept.len() == MAX_UNDECRYPTED, "{}", kept.len());
    // They do no harm.
    test_utils::process_flight(&mut pipe.server, flight).unwrap();
    pipe.advance().unwrap();
    assert!(pipe.client.is_established() && pipe.server.is_established());
    assert!(pipe.client.sidekick.receive.undecrypted.is_empty());
}

#[test]
fn a_server_and_a_client_that_did_not_ask_hold_nothing() {
    let mut pipe = Pipe::new("cubic").unwrap();
    pipe.server.sidekick_report_gaps();
    pipe.server.sidekick_hold(Some(HOLD), Instant::now());
    pipe.handshake().unwrap();
    pipe.advance().unwrap();
    let sent = datagrams(&mut pipe, 3);
    receive(&mut pipe, &sent[2]);
    assert_eq!(acknowledged(&mut pipe).0.last(), Some(&latest(&pipe)));
    let mut bytes = sent[1].0.clone();
    let info = RecvInfo { from: sent[1].1.from, to: sent[1].1.to };
    pipe.client.sidekick_recv_copy(&mut bytes, info).unwrap();
    assert_eq!(pipe.client.sidekick_copies(), 0);
    assert_eq!(events(&mut pipe), []);
    assert!(pipe.server.sidekick.receive.hold.is_none());
}

/// Lets the server go on with the next keys (RFC 9001, section 6), as other stacks do.
fn update_keys(pipe: &mut Pipe) {
    let server = &mut pipe.server;
    let context = &mut server.crypto_ctx[Epoch::Application];
    let next = context.crypto_seal.as_ref().unwrap().derive_next_packet_key().unwrap();
    context.crypto_seal = Some(next);
    server.key_phase = !server.key_phase;
}

#[test]
fn copies_of_both_sides_of_a_key_update_are_read() {
    // The last packet before the update is lost, and the first one behind it.
    for lost in [1, 2] {
        let mut pipe = pipe();
        let mut sent = datagrams(&mut pipe, 2);
        update_keys(&mut pipe);
        sent.extend(datagrams(&mut pipe, 3));
        receive(&mut pipe, &sent[0]);
        let first = latest(&pipe);
        let _ = acknowledged(&mut pipe);
        for (number, datagram) in sent.iter().enumerate().skip(1) {
            if number != lost {
                receive(&mut pipe, datagram);
            }
        }
        let [GapEvent::Found(gap)] = events(&mut pipe)[..] else { panic!("{lost}: one gap") };
        assert_eq!(gap.missing, 1);
        copy(&mut pipe, &sent[lost]);
        let closed = events(&mut pipe);
        let [GapEvent::Closed { end: GapEnd::Filled, .. }] = closed[..] else {
            panic!("{lost}: it is filled, and not {closed:?}")
        };
        assert_eq!(latest(&pipe), first + 4);
        assert_eq!(pipe.client.key_phase, pipe.server.key_phase);
    }
}

#[test]
fn packets_before_the_first_report_open_no_gap() {
    let mut pipe = Pipe::new("cubic").unwrap();
    pipe.handshake().unwrap();
    pipe.advance().unwrap();
    let before = datagrams(&mut pipe, 2);
    receive(&mut pipe, &before[0]);
    let known = latest(&pipe);
    hold(&mut pipe, HOLD);
    let after = datagrams(&mut pipe, 1);
    receive(&mut pipe, &after[0]);
    let [GapEvent::Found(gap)] = events(&mut pipe)[..] else { panic!("one gap") };
    assert_eq!((gap.missing, gap.after), (1, None), "behind {known}");
    receive(&mut pipe, &before[1]);
    let late = events(&mut pipe);
    let [GapEvent::Late { id: 0 }, GapEvent::Closed { end: GapEnd::Filled, .. }] = late[..] else {
        panic!("it is late, and not {late:?}")
    };
}
