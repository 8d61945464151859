use super::*;
use crate::wire::Sequences;
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);

#[allow(clippy::disallowed_methods, reason = "virtual time has to begin somewhere")]
fn start() -> (Listener, Instant) {
    (Listener::new(ListenerConfig::default()).unwrap(), Instant::now())
}

fn media(stream: u32, sequence: u32) -> Vec<u8> {
    let mut out = Vec::new();
    wire::emit_media(stream, sequence, 0, &mut out);
    out.resize(240, 0x5a);
    out
}

/// Drains the listener: the packets it asks for, those it had twice, and how many datagrams of other kinds.
fn said(listener: &mut Listener) -> (Vec<u32>, Vec<u32>, usize) {
    let (mut asked, mut twice, mut others) = (Vec::new(), Vec::new(), 0);
    let mut out = Vec::new();
    let list = |sequences: Sequences<'_>| sequences.iter().collect::<Vec<_>>();
    while listener.transmit(&mut out) {
        match Datagram::parse(&out).unwrap().body {
            Body::Feedback { missing, duplicates, .. } => {
                asked.extend(list(missing));
                twice.extend(list(duplicates));
            }
            _ => others += 1,
        }
    }
    (asked, twice, others)
}

#[test]
fn a_missing_packet_is_asked_for_at_once_and_then_once_a_round_trip() {
    let (mut listener, now) = start();
    listener.handle(&media(1, 0), now).unwrap();
    assert_eq!(said(&mut listener), (vec![], vec![], 1), "a ping");
    let mut pong = Vec::new();
    wire::emit_pong(1, 1, &mut pong);
    listener.handle(&pong, now + 40 * MS).unwrap();
    listener.handle(&media(1, 3), now + 60 * MS).unwrap();
    assert_eq!(said(&mut listener).0, [1, 2]);
    listener.handle(&media(1, 4), now + 80 * MS).unwrap();
    listener.handle(&media(1, 2), now + 90 * MS).unwrap();
    assert_eq!(said(&mut listener).0, []);
    // 9/8 of 40 ms after the first NACK.
    assert_eq!(listener.next_deadline(), Some(now + 105 * MS));
    listener.on_deadline(now + 105 * MS);
    assert_eq!(said(&mut listener).0, [1]);
    assert_eq!(listener.report().nacks, Nacks { datagrams: 2, packets: 3 });
}

#[test]
fn many_missing_packets_take_several_datagrams() {
    let (mut listener, now) = start();
    listener.handle(&media(1, 150), now).unwrap();
    assert_eq!(said(&mut listener).0, (0..150).collect::<Vec<_>>());
    assert_eq!(listener.report().nacks, Nacks { datagrams: 3, packets: 150 });
}

#[test]
fn what_comes_twice_is_told_and_played_once() {
    let (mut listener, now) = start();
    for _ in 0..3 {
        listener.handle(&media(1, 0), now).unwrap();
    }
    assert_eq!(said(&mut listener).1, [0, 0]);
    let report = listener.report();
    assert_eq!((report.played, report.packets.received, report.packets.duplicates), (1, 3, 2));
}

#[test]
fn the_first_stream_is_the_one() {
    let (mut listener, now) = start();
    let mut end = Vec::new();
    wire::emit_end(2, 0, &mut end);
    assert_eq!(listener.handle(&end, now), Err(HandleError::OtherStream), "an end begins nothing");
    listener.handle(&media(1, 0), now).unwrap();
    assert_eq!(listener.handle(&media(2, 1), now), Err(HandleError::OtherStream));
    let mut ping = Vec::new();
    wire::emit_ping(1, 1, &mut ping);
    assert_eq!(listener.handle(&ping, now), Err(HandleError::NotForListener));
    assert_eq!(listener.report().packets.rejected, 3);
}

#[test]
fn the_end_is_confirmed_until_the_talker_is_quiet() {
    let (mut listener, now) = start();
    listener.handle(&media(1, 0), now).unwrap();
    said(&mut listener);
    let mut end = Vec::new();
    wire::emit_end(1, 2, &mut end);
    listener.handle(&end, now + 20 * MS).unwrap();
    assert_eq!(said(&mut listener), (vec![1], vec![], 0), "not before the last packet is there");
    listener.handle(&media(1, 1), now + 80 * MS).unwrap();
    assert_eq!(said(&mut listener).2, 1);
    listener.handle(&end, now + 120 * MS).unwrap();
    assert_eq!(said(&mut listener).2, 1);
    assert_eq!(listener.next_deadline(), Some(now + 120 * MS + LINGER));
    listener.on_deadline(now + 120 * MS + LINGER);
    assert!(listener.is_finished() && listener.report().complete);
    assert_eq!(listener.next_deadline(), None);
}

#[test]
fn a_talker_that_falls_silent_is_not_waited_for() {
    let (mut listener, mut now) = start();
    assert_eq!(listener.next_deadline(), None, "a listener may wait as long as it likes for a stream");
    listener.handle(&media(1, 1), now).unwrap();
    let begin = now;
    while let Some(deadline) = listener.next_deadline() {
        now = deadline;
        listener.on_deadline(now);
    }
    assert_eq!(now - begin, ListenerConfig::default().idle_timeout);
    let report = listener.report();
    assert_eq!((report.complete, report.played, report.late), (false, 1, 1));
}

proptest! {
    #[test]
    fn hostile_datagrams_keep_it_bounded_and_alive(
        datagrams in proptest::collection::vec((0x3f_u8..0x47, proptest::collection::vec(any::<u8>(), 0..60)), 1..200),
        near in any::<bool>(),
    ) {
        let (mut listener, mut now) = start();
        listener.handle(&media(0, 0), now).unwrap();
        for (kind, mut bytes) in datagrams {
            bytes.insert(0, kind);
            // Of the right stream, and its numbers mostly small.
            for byte in bytes.iter_mut().skip(1).take(if near { 7 } else { 4 }) {
                *byte = 0;
            }
            let _ = listener.handle(&bytes, now);
            prop_assert!(listener.outgoing.len() <= MAX_WAITING);
            now += 7 * MS;
            listener.on_deadline(now);
            prop_assert!(listener.next_deadline().is_none_or(|at| at > now), "it would spin");
        }
    }
}
