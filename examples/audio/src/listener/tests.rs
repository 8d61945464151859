use super::*;
use crate::ntp::low32;
use crate::rtcp::Echo;
use crate::testing::{self, Call, MS};
use rtcp_types::SenderReport;

/// The talker's SSRCs.
const MEDIA: u32 = 1;
const RTX: u32 = 2;

/// The datagrams that a listener sends at one time.
#[derive(Debug, Default, PartialEq)]
struct Received {
    missing: Vec<u16>,
    twice: Vec<u16>,
    reports: usize,
    byes: usize,
    clock: u32,
}

fn start() -> Call<Listener> {
    testing::listener(ListenerConfig::default())
}

fn start_playing() -> Call<Listener> {
    testing::listener(ListenerConfig { plays: true, ..ListenerConfig::default() })
}

fn header(ssrc: u32, payload_type: u8, sequence: u16, original: u16) -> Header {
    let timestamp = u32::from(original) * 960;
    Header { ssrc, payload_type, sequence, timestamp, marker: original == 0 }
}

fn media(ssrc: u32, sequence: u16) -> Vec<u8> {
    rtp::packet(&header(ssrc, 96, sequence, sequence), &[0x5a; 240])
}

fn again(sequence: u16, original: u16) -> Vec<u8> {
    rtp::retransmission(&header(RTX, 97, sequence, original), original, &[0x5a; 240])
}

fn report(packets: u32, echo: Option<Echo>, leaving: &[u32]) -> Vec<u8> {
    let report = SenderReport::builder(MEDIA).ntp_timestamp(5 << 32).packet_count(packets);
    rtcp::sender_report(MEDIA, report, echo, leaving)
}

fn bye(packets: u32) -> Vec<u8> {
    report(packets, None, &[MEDIA, RTX])
}

impl Listener {
    pub(crate) fn waits_within_bounds(&self) -> bool {
        self.outgoing.len() <= MAX_WAITING
    }
}

impl Call<Listener> {
    fn handles(&mut self, packet: &[u8]) -> Result<Handled, Refused> {
        let datagram = self.seal(packet);
        self.end.handle_input(&datagram, self.now)
    }

    fn received(&mut self) -> Received {
        let mut received = Received::default();
        for item in self.items(self.now) {
            match item {
                Item::Missing { ssrc: MEDIA, sequences } => received.missing.extend(sequences),
                Item::Duplicates { ssrc: MEDIA, sequences } => received.twice.extend(sequences),
                Item::Echo(_) => received.reports += 1,
                Item::Clock { ntp, .. } => received.clock = low32(ntp >> 16),
                Item::Bye { .. } => received.byes += 1,
                other => panic!("{other:?}"),
            }
        }
        received
    }
}

#[test]
fn a_missing_packet_is_requested_at_once_and_then_once_a_round_trip() {
    let mut call = start();
    call.gets(&media(MEDIA, 0), 0);
    let received = call.received();
    assert_eq!((received.reports, received.missing), (1, vec![]));
    let echo = Echo { ssrc: call.end.ssrc, last: received.clock, delay: 0 };
    call.gets(&report(1, Some(echo), &[]), 40);
    call.gets(&media(MEDIA, 3), 60);
    assert_eq!(call.received().missing, [1, 2]);
    call.gets(&media(MEDIA, 4), 80);
    call.gets(&media(MEDIA, 2), 90);
    assert_eq!(call.received().missing, [0; 0]);
    // 9/8 of 40 ms after the first NACK; the round trip is measured in units of 15 µs.
    let next = call.end.poll_timeout().unwrap();
    assert!((call.now + 105 * MS).max(next) - (call.now + 105 * MS).min(next) < MS / 10);
    call.end.on_timeout(call.now + 106 * MS);
    assert_eq!(call.received().missing, [1]);
    assert_eq!(call.end.report().nacks, Nacks { datagrams: 2, packets: 3 });
    assert!((call.end.report().rtt_ms.unwrap() - 40.0).abs() < 0.05);
}

#[test]
fn a_retransmission_counts_as_what_it_repeats() {
    let mut call = start();
    call.gets(&media(MEDIA, 0), 0);
    call.gets(&media(MEDIA, 2), 40);
    assert_eq!(call.received().missing, [1]);
    call.gets(&again(700, 1), 92);
    let report = call.end.report();
    assert_eq!((report.played, report.packets.received, report.packets.duplicates), (3, 3, 0));
    assert_eq!(report.dejitter_ms.max.round(), 52.0);
    call.gets(&again(701, 1), 93);
    assert_eq!(call.received().twice, [1]);
}

#[test]
fn many_missing_packets_take_several_datagrams() {
    let mut call = start();
    call.gets(&media(MEDIA, 0), 0);
    call.gets(&media(MEDIA, 151), 0);
    assert_eq!(call.received().missing, (1..151).collect::<Vec<_>>());
    assert_eq!(call.end.report().nacks, Nacks { datagrams: 3, packets: 150 });
}

#[test]
fn duplicates_are_reported_and_played_once_and_forgeries_are_not_reported() {
    let mut call = start();
    let datagram = call.seal(&media(MEDIA, 0));
    for _ in 0..3 {
        call.end.handle_input(&datagram, call.now).unwrap();
    }
    assert_eq!(call.received().twice, [0], "once");
    let mut forged = datagram.clone();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(call.end.handle_input(&forged, call.now), Err(Refused::Forged));
    assert_eq!(call.end.handle_input(&datagram[..100], call.now), Err(Refused::Forged));
    assert_eq!(call.received().twice, [0; 0]);
    let ListenerReport { played, packets, .. } = call.end.report();
    assert_eq!((played, packets.received, packets.duplicates, packets.replayed), (1, 3, 2, 2));
    assert_eq!((packets.rejected, packets.forged), (2, 2));
}

#[test]
fn padding_is_removed_after_decryption() {
    let mut call = start_playing();
    for sequence in 0..300 {
        let mut packet = rtp::packet(&header(MEDIA, 96, sequence, sequence), &[0x5a; 100]);
        packet[0] |= 0x20;
        packet.extend([0, 0, 0, 4]);
        assert_eq!(call.handles(&packet), Ok(Handled::New), "{sequence}");
        assert_eq!(call.end.next_frame(), Some(Frame::Content(vec![0x5a; 100])));
    }
}

#[test]
fn repetitions_by_others_are_reported_once_and_extend_no_timeout() {
    let mut call = start();
    let datagrams: Vec<_> = (0..3).map(|sequence| call.seal(&media(MEDIA, sequence))).collect();
    for datagram in &datagrams {
        assert_eq!(call.end.handle_input(datagram, call.now), Ok(Handled::New));
    }
    call.received();
    let mut reported = Vec::new();
    let silent = ListenerConfig::default().idle_timeout;
    let mut after = Duration::ZERO;
    while after < silent {
        for datagram in &datagrams {
            assert_eq!(call.end.handle_input(datagram, call.now + after), Ok(Handled::Repeated));
        }
        let mut altered = datagrams[1].clone();
        altered[30] ^= 1;
        let handled = call.end.handle_input(&altered, call.now + after);
        assert_eq!(handled, Err(Refused::Forged), "only its tag is that of an accepted packet");
        reported.extend(call.received().twice);
        after += 100 * MS;
    }
    assert_eq!(reported, [0, 1, 2]);
    call.end.on_timeout(call.now + silent);
    assert!(call.end.is_finished(), "the talker was silent");
}

#[test]
fn a_listener_accepts_only_the_first_stream() {
    let mut call = start();
    // Neither a BYE nor a retransmission begins a stream.
    for packet in [bye(0), again(7, 0)] {
        assert_eq!(call.handles(&packet), Err(Refused::OtherStream));
    }
    call.gets(&media(MEDIA, 0), 0);
    assert_eq!(call.handles(&media(5, 1)), Err(Refused::OtherStream));
    assert_eq!(call.end.report().packets.rejected, 3);
}

#[test]
fn packets_before_the_first_arrival_are_requested_back_to_the_marked_one() {
    let mut call = start();
    call.gets(&media(MEDIA, 2), 40);
    assert_eq!(call.received().missing, [0, 1, 65_535]);
    call.gets(&again(7, 0), 92);
    call.gets(&again(8, 1), 92);
    let report = call.end.report();
    assert_eq!((report.played, report.late), (3, 0));
    call.gets(&bye(3), 100);
    assert!(call.end.report().complete);
}

#[test]
fn packets_from_before_a_listener_joined_do_not_count_as_late() {
    let mut call = start();
    call.gets(&media(MEDIA, 500), 0);
    call.gets(&media(MEDIA, 501), 20);
    assert_eq!(call.received().missing, [497, 498, 499]);
    call.end.on_timeout(call.now + 1000 * MS);
    assert_eq!((call.end.report().played, call.end.report().late), (2, 0));
    // The BYE's count is impossible, so the stream ends with the last packet that arrived.
    call.gets(&bye(502), 1020);
    let report = call.end.report();
    assert_eq!((report.complete, report.played, report.late), (true, 2, 0));
}

#[test]
fn the_listener_confirms_every_bye() {
    let mut call = start();
    call.gets(&media(MEDIA, 0), 0);
    call.received();
    call.gets(&bye(2), 20);
    let received = call.received();
    assert_eq!(
        (received.missing, received.byes),
        (vec![1], 0),
        "not before the last packet has arrived"
    );
    call.gets(&media(MEDIA, 1), 80);
    assert_eq!(call.received().byes, 1);
    call.gets(&bye(2), 120);
    assert_eq!(call.received().byes, 1);
    assert_eq!(call.end.poll_timeout(), Some(call.now + 120 * MS + LINGER));
    call.end.on_timeout(call.now + 120 * MS + LINGER);
    assert!(call.end.is_finished() && call.end.report().complete);
    assert_eq!(call.end.poll_timeout(), None);
}

#[test]
fn a_stream_ends_when_its_talker_is_silent() {
    let mut call = start();
    assert_eq!(call.end.poll_timeout(), None, "a listener may wait without limit for a stream");
    call.gets(&media(MEDIA, 0), 0);
    call.gets(&media(MEDIA, 2), 0);
    let mut now = call.now;
    while let Some(deadline) = call.end.poll_timeout() {
        now = deadline;
        call.end.on_timeout(now);
    }
    assert_eq!(now - call.now, ListenerConfig::default().idle_timeout);
    let report = call.end.report();
    assert_eq!((report.complete, report.played, report.late), (false, 2, 1));
}

#[test]
fn its_own_packets_sent_back_change_nothing() {
    let mut call = start();
    call.gets(&media(MEDIA, 0), 0);
    call.gets(&media(MEDIA, 2), 0);
    let own = call.datagrams(call.now);
    // Its report and its NACK.
    assert_eq!(own.len(), 2);
    call.ignores_its_own(&own, |listener| {
        let mut report = listener.report();
        report.packets.rejected = 0;
        format!("{report:?}")
    });
    assert_eq!(call.end.report().packets.rejected, 2);
}

#[test]
fn a_listener_that_leaves_sends_one_bye() {
    let mut call = start();
    call.gets(&media(MEDIA, 0), 0);
    call.received();
    call.end.stop(call.now);
    call.end.stop(call.now);
    assert_eq!(call.received().byes, 1);
    assert!(call.end.is_finished() && !call.end.report().complete);
}

#[test]
fn frames_come_in_order_with_gaps_where_packets_are_missing() {
    let mut call = start_playing();
    for sequence in [0, 3, 4] {
        call.gets(&media(MEDIA, sequence), 0);
    }
    let content = || Some(Frame::Content(vec![0x5a; 240]));
    assert_eq!((call.end.next_frame(), call.end.next_frame()), (content(), None));
    call.end.on_timeout(call.now + 1000 * MS);
    let frames: Vec<_> = std::iter::from_fn(|| call.end.next_frame()).collect();
    assert_eq!(frames, [Frame::Lost(2), content().unwrap(), content().unwrap()]);
}

#[test]
fn a_share_is_part_of_one() {
    for (share, fits) in [(0.0, false), (f64::NAN, false), (1.1, false), (1.0, true), (0.01, true)]
    {
        let sender = sender_config("192.0.2.254:5252".parse().unwrap());
        let protected = Some(Protected { sender, share, interval: 20 * MS, seed: [7; 32] });
        let config = ListenerConfig { protected, ..ListenerConfig::default() };
        assert_eq!(Listener::new(config, testing::session()).is_ok(), fits);
    }
}
