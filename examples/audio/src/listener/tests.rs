use super::*;
use crate::rtcp::{Held, SenderInfo};
use crate::session::{Encoding, MasterKey};
use proptest::prelude::*;

const MS: Duration = Duration::from_millis(1);
/// The talker's SSRCs.
const MEDIA: u32 = 1;
const RTX: u32 = 2;

/// A listener, and the other end's key, which is the same.
struct Call {
    listener: Listener,
    now: Instant,
    sealer: Protector,
    opener: Unprotector,
}

/// The datagrams that a listener sends at one time.
#[derive(Debug, Default, PartialEq)]
struct Received {
    missing: Vec<u16>,
    twice: Vec<u16>,
    reports: usize,
    byes: usize,
    clock: u32,
}

#[allow(clippy::disallowed_methods, reason = "virtual time has to begin somewhere")]
fn start_with(config: ListenerConfig) -> Call {
    let session = Session::new(MasterKey::of_simulation(1), Encoding::Random);
    let (sealer, opener) =
        (Protector::new(&session).unwrap(), Unprotector::new(&session.key).unwrap());
    Call { listener: Listener::new(config, session).unwrap(), now: Instant::now(), sealer, opener }
}

fn start() -> Call {
    start_with(ListenerConfig::default())
}

impl Call {
    fn media(&mut self, ssrc: u32, sequence: u16) -> Vec<u8> {
        let marker = sequence == 0;
        let timestamp = u32::from(sequence) * 960;
        let header = Header { ssrc, payload_type: 96, sequence, timestamp, marker };
        self.sealer.rtp(&rtp::packet(&header, &[0x5a; 240])).unwrap()
    }

    fn again(&mut self, sequence: u16, original: u16) -> Vec<u8> {
        let marker = original == 0;
        let header = Header {
            ssrc: RTX,
            payload_type: 97,
            sequence,
            timestamp: u32::from(original) * 960,
            marker,
        };
        self.sealer.rtp(&rtp::retransmission(&header, original, &[0x5a; 240])).unwrap()
    }

    fn report(&mut self, packets: u32, held: Option<Held>, bye: bool) -> Vec<u8> {
        let info = SenderInfo { ssrc: MEDIA, ntp: 5 << 32, timestamp: 0, packets, octets: 0 };
        let leaving: &[u32] = if bye { &[MEDIA, RTX] } else { &[] };
        self.sealer.rtcp(&rtcp::sender_report(&info, held, leaving)).unwrap()
    }

    fn gets(&mut self, datagram: &[u8], after: u32) {
        self.listener.handle_input(datagram, self.now + after * MS).unwrap();
    }

    fn gets_media(&mut self, sequence: u16, after: u32) {
        let datagram = self.media(MEDIA, sequence);
        self.gets(&datagram, after);
    }

    fn received(&mut self) -> Received {
        let (mut received, mut out) = (Received::default(), Vec::new());
        while self.listener.poll_transmit(&mut out, self.now) {
            for item in rtcp::parse(&self.opener.rtcp(&out).unwrap()).unwrap() {
                match item {
                    Item::Missing { ssrc: MEDIA, sequences } => received.missing.extend(sequences),
                    Item::Duplicates { ssrc: MEDIA, sequences } => received.twice.extend(sequences),
                    Item::Reception(_) => received.reports += 1,
                    Item::Reference { ntp, .. } => received.clock = middle(ntp),
                    Item::Bye { .. } => received.byes += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        received
    }
}

#[test]
fn a_missing_packet_is_requested_at_once_and_then_once_a_round_trip() {
    let mut call = start();
    call.gets_media(0, 0);
    let received = call.received();
    assert_eq!((received.reports, received.missing), (1, vec![]));
    let held = Held { ssrc: call.listener.ssrc, last: received.clock, delay: 0 };
    let report = call.report(1, Some(held), false);
    call.gets(&report, 40);
    call.gets_media(3, 60);
    assert_eq!(call.received().missing, [1, 2]);
    call.gets_media(4, 80);
    call.gets_media(2, 90);
    assert_eq!(call.received().missing, [0; 0]);
    // 9/8 of 40 ms after the first NACK; the round trip is measured in units of 15 µs.
    let next = call.listener.poll_timeout().unwrap();
    assert!((call.now + 105 * MS).max(next) - (call.now + 105 * MS).min(next) < MS / 10);
    call.listener.on_timeout(call.now + 106 * MS);
    assert_eq!(call.received().missing, [1]);
    assert_eq!(call.listener.report().nacks, Nacks { datagrams: 2, packets: 3 });
    assert!((call.listener.report().rtt_ms.unwrap() - 40.0).abs() < 0.05);
}

#[test]
fn a_retransmission_counts_as_what_it_repeats() {
    let mut call = start();
    call.gets_media(0, 0);
    call.gets_media(2, 40);
    assert_eq!(call.received().missing, [1]);
    let again = call.again(700, 1);
    call.gets(&again, 92);
    let report = call.listener.report();
    assert_eq!((report.played, report.packets.received, report.packets.duplicates), (3, 3, 0));
    assert_eq!(report.dejitter_ms.max.round(), 52.0);
    let once_more = call.again(701, 1);
    call.gets(&once_more, 93);
    assert_eq!(call.received().twice, [1]);
}

#[test]
fn many_missing_packets_take_several_datagrams() {
    let mut call = start();
    call.gets_media(0, 0);
    call.gets_media(151, 0);
    assert_eq!(call.received().missing, (1..151).collect::<Vec<_>>());
    assert_eq!(call.listener.report().nacks, Nacks { datagrams: 3, packets: 150 });
}

#[test]
fn duplicates_are_reported_and_played_once_and_forgeries_are_not_reported() {
    let mut call = start();
    let datagram = call.media(MEDIA, 0);
    for _ in 0..3 {
        call.gets(&datagram, 0);
    }
    assert_eq!(call.received().twice, [0], "once");
    let mut forged = datagram.clone();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(call.listener.handle_input(&forged, call.now), Err(Refused::Forged.into()));
    assert_eq!(call.listener.handle_input(&datagram[..100], call.now), Err(Refused::Forged.into()));
    assert_eq!(call.received().twice, [0; 0]);
    let ListenerReport { played, packets, .. } = call.listener.report();
    assert_eq!((played, packets.received, packets.duplicates, packets.replayed), (1, 3, 2, 2));
    assert_eq!((packets.rejected, packets.forged), (2, 2));
}

#[test]
fn padding_is_removed_after_decryption() {
    let mut call = start_with(ListenerConfig { plays: true, ..ListenerConfig::default() });
    for sequence in 0..300 {
        let header = Header {
            ssrc: MEDIA,
            payload_type: 96,
            sequence,
            timestamp: u32::from(sequence) * 960,
            marker: sequence == 0,
        };
        let mut packet = rtp::packet(&header, &[0x5a; 100]);
        packet[0] |= 0x20;
        packet.extend([0, 0, 0, 4]);
        let datagram = call.sealer.rtp(&packet).unwrap();
        assert_eq!(call.listener.handle_input(&datagram, call.now), Ok(Handled::New), "{sequence}");
        assert_eq!(call.listener.next_frame(), Some(Frame::Content(vec![0x5a; 100])));
    }
}

#[test]
fn repetitions_by_others_are_reported_once_and_extend_no_timeout() {
    let mut call = start();
    let datagrams: Vec<_> = (0..3).map(|sequence| call.media(MEDIA, sequence)).collect();
    for datagram in &datagrams {
        assert_eq!(call.listener.handle_input(datagram, call.now), Ok(Handled::New));
    }
    call.received();
    let mut reported = Vec::new();
    let silent = ListenerConfig::default().idle_timeout;
    let mut after = Duration::ZERO;
    while after < silent {
        for datagram in &datagrams {
            assert_eq!(
                call.listener.handle_input(datagram, call.now + after),
                Ok(Handled::Repeated)
            );
        }
        let mut altered = datagrams[1].clone();
        altered[30] ^= 1;
        let handled = call.listener.handle_input(&altered, call.now + after);
        assert_eq!(
            handled,
            Err(Refused::Forged.into()),
            "only its tag is that of an accepted packet"
        );
        reported.extend(call.received().twice);
        after += 100 * MS;
    }
    assert_eq!(reported, [0, 1, 2]);
    call.listener.on_timeout(call.now + silent);
    assert!(call.listener.is_finished(), "the talker was silent");
}

#[test]
fn a_listener_accepts_only_the_first_stream() {
    let mut call = start();
    let bye = call.report(0, None, true);
    assert_eq!(
        call.listener.handle_input(&bye, call.now),
        Err(HandleError::OtherStream),
        "a BYE begins no stream"
    );
    let again = call.again(7, 0);
    assert_eq!(call.listener.handle_input(&again, call.now), Err(HandleError::OtherStream));
    call.gets_media(0, 0);
    let other = call.media(5, 1);
    assert_eq!(call.listener.handle_input(&other, call.now), Err(HandleError::OtherStream));
    assert_eq!(call.listener.report().packets.rejected, 3);
}

#[test]
fn packets_before_the_first_arrival_are_requested_back_to_the_marked_one() {
    let mut call = start();
    call.gets_media(2, 40);
    assert_eq!(call.received().missing, [0, 1, 65_535]);
    let first = call.again(7, 0);
    call.gets(&first, 92);
    let second = call.again(8, 1);
    call.gets(&second, 92);
    let report = call.listener.report();
    assert_eq!((report.played, report.late), (3, 0));
    let bye = call.report(3, None, true);
    call.gets(&bye, 100);
    assert!(call.listener.report().complete);
}

#[test]
fn packets_from_before_a_listener_joined_do_not_count_as_late() {
    let mut call = start();
    call.gets_media(500, 0);
    call.gets_media(501, 20);
    assert_eq!(call.received().missing, [497, 498, 499]);
    call.listener.on_timeout(call.now + 1000 * MS);
    assert_eq!((call.listener.report().played, call.listener.report().late), (2, 0));
    // The BYE's count is impossible, so the stream ends with the last packet that arrived.
    let bye = call.report(502, None, true);
    call.gets(&bye, 1020);
    let report = call.listener.report();
    assert_eq!((report.complete, report.played, report.late), (true, 2, 0));
}

#[test]
fn the_listener_confirms_every_bye() {
    let mut call = start();
    call.gets_media(0, 0);
    call.received();
    let bye = call.report(2, None, true);
    call.gets(&bye, 20);
    let received = call.received();
    assert_eq!(
        (received.missing, received.byes),
        (vec![1], 0),
        "not before the last packet has arrived"
    );
    call.gets_media(1, 80);
    assert_eq!(call.received().byes, 1);
    let bye = call.report(2, None, true);
    call.gets(&bye, 120);
    assert_eq!(call.received().byes, 1);
    assert_eq!(call.listener.poll_timeout(), Some(call.now + 120 * MS + LINGER));
    call.listener.on_timeout(call.now + 120 * MS + LINGER);
    assert!(call.listener.is_finished() && call.listener.report().complete);
    assert_eq!(call.listener.poll_timeout(), None);
}

#[test]
fn a_stream_ends_when_its_talker_is_silent() {
    let mut call = start();
    assert_eq!(
        call.listener.poll_timeout(),
        None,
        "a listener may wait without limit for a stream"
    );
    call.gets_media(0, 0);
    call.gets_media(2, 0);
    let mut now = call.now;
    while let Some(deadline) = call.listener.poll_timeout() {
        now = deadline;
        call.listener.on_timeout(now);
    }
    assert_eq!(now - call.now, ListenerConfig::default().idle_timeout);
    let report = call.listener.report();
    assert_eq!((report.complete, report.played, report.late), (false, 2, 1));
}

#[test]
fn its_own_packets_sent_back_change_nothing() {
    let mut call = start();
    call.gets_media(0, 0);
    call.gets_media(2, 0);
    let (mut own, mut out) = (Vec::new(), Vec::new());
    while call.listener.poll_transmit(&mut out, call.now) {
        own.push(out.clone());
    }
    // Its report and its NACK.
    assert_eq!(own.len(), 2);
    let (before, last_received) = (call.listener.report(), call.listener.last_received);
    for datagram in &own {
        let handled = call.listener.handle_input(datagram, call.now + MS);
        assert_eq!(handled, Err(Refused::Own.into()));
    }
    let mut after = call.listener.report();
    assert_eq!(after.packets.rejected, 2);
    after.packets.rejected = 0;
    assert_eq!((after, call.listener.last_received), (before, last_received));
    assert!(!call.listener.poll_transmit(&mut out, call.now));
}

#[test]
fn only_the_talker_ends_its_stream() {
    let mut call = start();
    call.gets_media(0, 0);
    let mut packet = rtcp::receiver_report(77, &Default::default(), 0, true);
    let at = packet.len() - 4;
    packet[at..].copy_from_slice(&MEDIA.to_be_bytes());
    let datagram = call.sealer.rtcp(&packet).unwrap();
    call.gets(&datagram, 20);
    assert!(!call.listener.report().complete);
}

#[test]
fn a_listener_that_leaves_sends_one_bye() {
    let mut call = start();
    call.gets_media(0, 0);
    call.received();
    call.listener.stop(call.now);
    call.listener.stop(call.now);
    assert_eq!(call.received().byes, 1);
    assert!(call.listener.is_finished() && !call.listener.report().complete);
}

#[test]
fn frames_come_in_order_with_gaps_where_packets_are_missing() {
    let mut call = start_with(ListenerConfig { plays: true, ..ListenerConfig::default() });
    for sequence in [0, 3, 4] {
        call.gets_media(sequence, 0);
    }
    let content = || Some(Frame::Content(vec![0x5a; 240]));
    assert_eq!((call.listener.next_frame(), call.listener.next_frame()), (content(), None));
    call.listener.on_timeout(call.now + 1000 * MS);
    let frames: Vec<_> = std::iter::from_fn(|| call.listener.next_frame()).collect();
    assert_eq!(frames, [Frame::Lost(2), content().unwrap(), content().unwrap()]);
}

proptest! {
    #[test]
    fn hostile_datagrams_keep_it_bounded_and_alive(
        packets in proptest::collection::vec((0x80_u8..0xc0, any::<u8>(), any::<u16>(), any::<bool>(), proptest::collection::vec(any::<u8>(), 0..60)), 1..100),
        authentic in any::<bool>(),
    ) {
        let mut call = start();
        call.gets_media(0, 0);
        let mut now = call.now;
        for (first, kind, number, again, body) in packets {
            let header = Header {
                ssrc: if again { RTX } else { MEDIA },
                payload_type: if again { 97 } else { 96 },
                sequence: number,
                timestamp: u32::from(kind),
                marker: kind & 1 != 0,
            };
            let mut packet = rtp::packet(&header, &body);
            packet[0] = first;
            let report = [&[first, 200 + kind % 8, 0, u8::try_from(body.len() / 4).unwrap()], &body[..body.len() / 4 * 4]].concat();
            for packet in [packet, report] {
                let sealed = if is_rtcp(&packet) { call.sealer.rtcp(&packet) } else { call.sealer.rtp(&packet) };
                let datagram = sealed.filter(|_| authentic).unwrap_or(packet);
                let handled = call.listener.handle_input(&datagram, now);
                prop_assert!(authentic || handled.is_err());
                prop_assert!(call.listener.outgoing.len() <= MAX_WAITING);
            }
            now += 7 * MS;
            call.listener.on_timeout(now);
            prop_assert!(call.listener.poll_timeout().is_none_or(|at| at > now), "due again at once");
        }
    }
}
