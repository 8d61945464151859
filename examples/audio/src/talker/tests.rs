use super::*;
use proptest::prelude::*;
use sidekick_protocol::Identification;
use std::collections::BTreeSet;

const MS: Duration = Duration::from_millis(1);

#[allow(clippy::disallowed_methods, reason = "virtual time has to begin somewhere")]
fn start(packets: u32) -> (Talker, Instant) {
    let now = Instant::now();
    (Talker::new(TalkerConfig { packets, ..TalkerConfig::default() }, now).unwrap(), now)
}

/// Everything that waits to be sent at `now`, after what is due.
fn sent(talker: &mut Talker, now: Instant) -> Vec<Vec<u8>> {
    talker.on_deadline(now);
    let mut out = Vec::new();
    std::iter::from_fn(|| talker.transmit(&mut out, now).then(|| out.clone())).collect()
}

fn feedback(talker: &Talker, rtt: Duration, missing: &[u32], duplicates: &[u32]) -> Vec<u8> {
    let mut out = Vec::new();
    wire::emit_feedback(
        talker.stream,
        u32::try_from(rtt.as_micros()).unwrap(),
        missing,
        duplicates,
        &mut out,
    );
    out
}

#[test]
fn packets_are_opaque_and_each_has_its_own_identifier() {
    let (mut talker, now) = start(500);
    let mut identifiers = BTreeSet::new();
    for number in 0..500 {
        let datagrams = sent(&mut talker, now + number * 20 * MS);
        let [datagram] = datagrams.as_slice() else { panic!("{datagrams:?}") };
        assert_eq!((datagram.len(), datagram[0] & 0x80), (240, 0));
        assert_eq!(Datagram::parse(datagram).unwrap().stream, talker.stream);
        identifiers.insert(Identification::default().identifier(Payload::whole(datagram)).unwrap());
    }
    assert_eq!(identifiers.len(), 500);
    let (mut again, now) = start(500);
    let first = sent(&mut again, now);
    assert_eq!(&first[0][MEDIA_HEADER_LEN..], &talker_content(0)[..], "a seed gives the same contents");
}

fn talker_content(sequence: u32) -> Vec<u8> {
    let (mut talker, now) = start(500);
    let datagrams = sent(&mut talker, now + sequence * 20 * MS);
    datagrams.last().unwrap()[MEDIA_HEADER_LEN..].to_vec()
}

#[test]
fn a_nack_is_followed_once_a_round_trip_with_the_same_bytes() {
    let (mut talker, now) = start(500);
    let first = sent(&mut talker, now);
    let nack = feedback(&talker, 52 * MS, &[0, 7], &[]);
    talker.handle(&nack, now + MS).unwrap();
    assert_eq!(sent(&mut talker, now + MS), first);
    talker.handle(&nack, now + 52 * MS).unwrap();
    assert_eq!(talker.packets.retransmitted_nack, 1);
    talker.handle(&nack, now + 53 * MS).unwrap();
    assert_eq!(talker.packets.retransmitted_nack, 2);
    assert_eq!((talker.packets.nacks_ignored, talker.packets.nacks_unknown), (1, 3));
}

#[test]
fn a_repetition_that_came_twice_was_for_nothing_but_a_doubled_packet_was_not_ours() {
    let (mut talker, now) = start(500);
    sent(&mut talker, now + 20 * MS);
    talker.handle(&feedback(&talker, 52 * MS, &[0], &[]), now + 21 * MS).unwrap();
    talker.handle(&feedback(&talker, 52 * MS, &[], &[0, 0, 1, 99]), now + 80 * MS).unwrap();
    assert_eq!(talker.packets.spurious, 1);
}

#[test]
fn an_end_that_nobody_confirms_is_said_so_often() {
    let (mut talker, mut now) = start(3);
    let mut ends = 0;
    while let Some(deadline) = talker.next_deadline() {
        now = deadline;
        ends += sent(&mut talker, now).iter().filter(|datagram| datagram[0] == 0x44).count();
    }
    assert_eq!(ends, 50);
    let report = talker.report(now);
    assert!(talker.is_finished() && !report.acknowledged);
    assert_eq!(report.packets.sent, 3);
}

#[test]
fn a_call_that_is_stopped_ends_with_what_was_said() {
    let (mut talker, now) = start(3000);
    sent(&mut talker, now + 40 * MS);
    talker.stop(now + 41 * MS);
    let datagrams = sent(&mut talker, now + 41 * MS);
    assert_eq!(Datagram::parse(&datagrams[0]).unwrap().body, Body::End { packets: 3 });
    let mut confirmed = Vec::new();
    wire::emit_end_received(talker.stream, &mut confirmed);
    talker.handle(&confirmed, now + 100 * MS).unwrap();
    assert!(talker.is_finished() && talker.report(now + 200 * MS).acknowledged);
    assert_eq!(talker.report(now + 200 * MS).time_s, 0.1);
}

#[test]
fn a_pause_of_the_machine_is_left_out() {
    let (mut talker, now) = start(3000);
    assert_eq!(sent(&mut talker, now + 100 * MS).len(), 6, "a short one is made up for");
    assert_eq!(sent(&mut talker, now + 60_000 * MS).len(), 1);
    assert_eq!(talker.next_deadline(), Some(now + 60_020 * MS));
}

#[test]
fn settings_out_of_range_are_named() {
    let (_, now) = start(1);
    let of = |config| Talker::new(config, now).unwrap_err().to_string();
    let good = TalkerConfig::default;
    assert_eq!(of(TalkerConfig { interval: Duration::ZERO, ..good() }), "packets must be 1 to 1000 ms apart");
    assert_eq!(of(TalkerConfig { payload: 24, ..good() }), "a packet must have 25 to 1452 bytes");
    assert_eq!(of(TalkerConfig { packets: 0, ..good() }), "a stream must have at least one packet");
}

proptest! {
    #[test]
    fn hostile_datagrams_are_survived_and_answered_within_bounds(
        datagrams in proptest::collection::vec((0x3f_u8..0x47, proptest::collection::vec(any::<u8>(), 0..300)), 1..100),
    ) {
        let (mut talker, mut now) = start(100);
        for (kind, mut bytes) in datagrams {
            bytes.splice(0..0, talker.stream.to_be_bytes());
            bytes.insert(0, kind);
            let _ = talker.handle(&bytes, now);
            prop_assert!(talker.outgoing.len() <= MAX_WAITING);
            now += 7 * MS;
            sent(&mut talker, now);
            prop_assert!(talker.next_deadline().is_none_or(|at| at > now), "it would spin");
        }
    }
}
