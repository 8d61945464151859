use super::*;
use crate::ntp::units;
use crate::rtcp::Reception;
use crate::session::Session;
use crate::source::RandomBytes;
use proptest::prelude::*;
use sidekick_protocol::Identification;
use std::collections::BTreeSet;

const MS: Duration = Duration::from_millis(1);
/// The listener's SSRC.
const LISTENER: u32 = 9;

/// A talker, and the key of the other end.
struct Call {
    talker: Talker,
    now: Instant,
    sealer: Protector,
    opener: Unprotector,
}

#[allow(clippy::disallowed_methods, reason = "virtual time has to begin somewhere")]
fn start_with(config: TalkerConfig) -> Call {
    let now = Instant::now();
    let session = Session { lifetime: None, ..config.session.clone() };
    let talker = Talker::new(config, Box::new(RandomBytes::new(1, 240)), now).unwrap();
    let (sealer, opener) =
        (Protector::new(&session).unwrap(), Unprotector::new(&session.key).unwrap());
    Call { talker, now, sealer, opener }
}

fn start(packets: u32) -> Call {
    start_with(TalkerConfig { packets, ..TalkerConfig::of_simulation(1) })
}

impl Call {
    /// Every datagram that waits to be sent at `now`, after the timers that are due.
    fn datagrams(&mut self, now: Instant) -> Vec<Vec<u8>> {
        self.talker.on_timeout(now);
        let mut out = Vec::new();
        std::iter::from_fn(|| self.talker.poll_transmit(&mut out, now).then(|| out.clone()))
            .collect()
    }

    /// The headers and contents of the media packets among these datagrams.
    fn media(&mut self, now: Instant) -> Vec<(Header, Vec<u8>)> {
        let datagrams: Vec<_> = self.datagrams(now).into_iter().filter(|d| !is_rtcp(d)).collect();
        let open = |datagram: &Vec<u8>| {
            let header = rtp::header(datagram)?;
            let packet = self.opener.rtp(datagram, header.ssrc).ok()?;
            Some((header, rtp::parse(&packet)?.1.to_vec()))
        };
        datagrams.iter().filter_map(open).collect()
    }

    fn reports(&mut self, now: Instant) -> Vec<Item> {
        let datagrams = self.datagrams(now);
        let reports = datagrams.iter().filter(|datagram| is_rtcp(datagram));
        reports.flat_map(|d| rtcp::parse(&self.opener.rtcp(d).unwrap()).unwrap()).collect()
    }

    fn receive(&mut self, packet: &[u8], now: Instant) {
        let datagram = self.sealer.rtcp(packet).unwrap();
        self.talker.handle_input(&datagram, now).unwrap();
    }

    fn nack(&mut self, places: &[u32], now: Instant) {
        let numbers: Vec<_> = places.iter().map(|place| self.talker.sequence(*place)).collect();
        let media = self.talker.sources().media;
        self.receive(&rtcp::nack(LISTENER, media, &numbers), now);
    }

    fn reception(&self, last_report: u32) -> Reception {
        Reception { ssrc: self.talker.sources().media, last_report, ..Reception::default() }
    }
}

#[test]
fn packets_are_opaque_and_each_has_its_own_identifier() {
    let mut call = start(500);
    let rule =
        Identification { filter: sidekick_protocol::Filter::All, ..Identification::default() };
    let mut identifiers = BTreeSet::new();
    for number in 0..500 {
        let datagrams = call.datagrams(call.now + number * 20 * MS);
        let media: Vec<_> = datagrams.iter().filter(|datagram| !is_rtcp(datagram)).collect();
        let [datagram] = media.as_slice() else { panic!("{datagrams:?}") };
        // RTP header, content, authentication tag.
        assert_eq!(datagram.len(), 12 + 240 + 10);
        let header = rtp::header(datagram).unwrap();
        assert_eq!((header.ssrc, header.payload_type), (call.talker.sources().media, 96));
        assert_eq!((header.sequence, header.marker), (call.talker.sequence(number), number == 0));
        identifiers.insert(rule.identifier(Payload::whole(datagram)).unwrap());
    }
    assert_eq!(identifiers.len(), 500);
}

#[test]
fn false_reports_cause_at_most_six_repairs_and_none_of_an_old_packet() {
    let mut call = start(500);
    call.datagrams(call.now);
    let mut again = |after: u32| {
        (0..19).filter(|_| call.talker.send_again(0, Cause::Quack, call.now + after * MS)).count()
    };
    assert_eq!(again(30), 6);
    assert_eq!(again(60), 0);
    call.datagrams(call.now + 40 * MS);
    let mut again =
        |place, after: u32| call.talker.send_again(place, Cause::Quack, call.now + after * MS);
    assert!(again(1, 1000));
    assert!(!again(1, 1041), "a listener has skipped it by then");
    // A more patient listener requests it.
    call.nack(&[1], call.now + 2000 * MS);
    assert_eq!(call.talker.packets.retransmitted_nack, 1);
}

#[test]
fn repetitions_cost_no_more_than_half_of_the_stream() {
    let mut call = start(3000);
    for number in 0..2000 {
        let now = call.now + number * 20 * MS;
        call.datagrams(now);
        // The listener requests every packet as often as possible, and the proxy sees none.
        let earliest = number.saturating_sub(100);
        call.nack(&(earliest..number).collect::<Vec<_>>(), now);
        for place in earliest..=number {
            call.talker.send_again(place, Cause::Quack, now);
        }
        call.datagrams(now);
        let media = u64::from(number + 1) * 262;
        let again = call.talker.bytes - media;
        assert!(
            again <= media / 2 + 16 * 1024 + 2 * call.talker.packets.retransmitted_nack,
            "{number}: {again}"
        );
    }
    let media = 2000 * 262;
    assert!(call.talker.bytes > media * 3 / 2, "{}", call.talker.bytes);
}

#[test]
fn a_seed_gives_the_same_packets() {
    let (mut one, mut other) = (start(500), start(500));
    assert_eq!(one.datagrams(one.now + 500 * MS), other.datagrams(other.now + 500 * MS));
}

#[test]
fn a_nack_causes_at_most_one_retransmission_a_round_trip() {
    let mut call = start(500);
    let first = call.media(call.now);
    let at = call.now + 60 * MS;
    call.nack(&[0, 7], at);
    let mut again = call.media(at);
    again.retain(|(header, _)| header.ssrc == call.talker.sources().rtx);
    let [(header, content)] = again.as_slice() else { panic!("{again:?}") };
    let (original, repeated) = rtp::original(content).unwrap();
    assert_eq!((header.ssrc, header.payload_type), (call.talker.sources().rtx, 97));
    assert_eq!(
        (original, repeated, header.timestamp),
        (first[0].0.sequence, &first[0].1[..], first[0].0.timestamp)
    );
    // The initial round-trip time is a tenth of a second.
    call.nack(&[0], at + 99 * MS);
    assert_eq!(call.talker.packets.retransmitted_nack, 1);
    call.nack(&[0], at + 100 * MS);
    assert_eq!(call.talker.packets.retransmitted_nack, 2);
    assert_eq!((call.talker.packets.nacks_ignored, call.talker.packets.nacks_unknown), (1, 1));
    let later = call.media(at + 100 * MS);
    let later = later.iter().find(|(later, _)| later.ssrc == header.ssrc);
    assert_eq!(
        later.unwrap().0.sequence,
        header.sequence.wrapping_add(1),
        "retransmissions have their own numbers, without gaps"
    );
}

#[test]
fn reports_measure_the_round_trip_and_answer_clocks() {
    let mut call = start(500);
    let items = call.reports(call.now);
    let [Item::Sender { ntp, packets: 1, .. }] = items[..] else { panic!("{items:?}") };
    let report = rtcp::receiver_report(LISTENER, &call.reception(middle(ntp)), 77 << 16, false);
    let at = call.now + 52 * MS;
    call.receive(&report, at);
    let rtt = call.talker.report(at).rtt_ms.unwrap();
    assert!((rtt - 52.0).abs() < 0.05, "{rtt}");
    let items = call.reports(call.now + 102 * MS);
    let held =
        items.iter().find_map(|item| if let Item::Held(held) = item { Some(held) } else { None });
    let held = held.expect("the clock is answered before the second is over");
    assert_eq!((held.ssrc, held.last), (LISTENER, 77));
    assert_eq!(held.delay, units(50 * MS));
    assert_eq!(call.reports(call.now + 1000 * MS), []);
}

#[test]
fn only_a_duplicate_of_a_repaired_packet_is_spurious() {
    let mut call = start(500);
    call.datagrams(call.now + 20 * MS);
    call.nack(&[0], call.now + 21 * MS);
    for place in [0, 0, 1, 99] {
        let sequence = call.talker.sequence(place);
        let media = call.talker.sources().media;
        call.receive(&rtcp::duplicate(LISTENER, media, sequence), call.now + 80 * MS);
    }
    assert_eq!(call.talker.packets.spurious, 1);
}

#[test]
fn an_unanswered_bye_is_repeated_a_limited_number_of_times() {
    let mut call = start(3);
    let (mut ends, mut now) = (0, call.now);
    while let Some(deadline) = call.talker.poll_timeout() {
        now = deadline;
        let items = call.reports(now);
        ends += items.iter().filter(|item| matches!(item, Item::Bye { .. })).count();
        assert!(
            ends == 0
                || items
                    .iter()
                    .all(|item| !matches!(item, Item::Sender { packets, .. } if *packets != 3))
        );
    }
    // Of both SSRCs.
    assert_eq!(ends, 100);
    let report = call.talker.report(now);
    assert_eq!(
        (report.acknowledged, report.ending.as_str(), report.packets.sent),
        (false, "unanswered", 3)
    );
}

#[test]
fn a_call_that_is_stopped_ends_with_the_packets_sent() {
    let mut call = start(3000);
    call.datagrams(call.now + 40 * MS);
    call.talker.stop(call.now + 41 * MS);
    let items = call.reports(call.now + 41 * MS);
    assert!(matches!(items[0], Item::Sender { packets: 3, .. }), "{items:?}");
    let bye = rtcp::receiver_report(LISTENER, &call.reception(0), 0, true);
    call.receive(&bye, call.now + 100 * MS);
    let report = call.talker.report(call.now + 200 * MS);
    assert_eq!(
        (report.acknowledged, report.ending.as_str(), report.time_s),
        (true, "confirmed", 0.1)
    );
}

#[test]
fn a_listener_that_leaves_or_stops_reporting_ends_the_call() {
    let mut call = start(3000);
    call.datagrams(call.now + 40 * MS);
    let bye = rtcp::receiver_report(LISTENER, &call.reception(0), 0, true);
    call.receive(&bye, call.now + 50 * MS);
    assert!(call.talker.is_finished());
    assert_eq!(call.talker.report(call.now).ending, "hung up");

    let mut call = start(3000);
    call.datagrams(call.now + 40 * MS);
    let report = rtcp::receiver_report(LISTENER, &call.reception(0), 0, false);
    call.receive(&report, call.now + 50 * MS);
    let mut now = call.now;
    while let Some(deadline) = call.talker.poll_timeout() {
        now = deadline;
        call.datagrams(now);
    }
    assert_eq!((now - call.now, call.talker.report(now).ending.as_str()), (10_050 * MS, "silent"));
}

#[test]
fn its_own_packets_sent_back_change_nothing() {
    let mut call = start(5);
    let (mut own, mut now) = (Vec::new(), call.now);
    while let Some(deadline) = call.talker.poll_timeout() {
        now = deadline;
        own.extend(call.datagrams(now));
        if now > call.now + 200 * MS {
            break;
        }
    }
    assert!(own.iter().filter(|datagram| is_rtcp(datagram)).count() > 1, "reports and BYEs");
    let before = call.talker.report(now);
    for datagram in &own {
        assert!(call.talker.handle_input(datagram, now).is_err());
    }
    let mut after = call.talker.report(now);
    assert_eq!(after.packets.rejected, u64::try_from(own.len()).unwrap());
    after.packets.rejected = 0;
    assert_eq!((after, call.talker.last_received), (before, None));
    assert!(!call.talker.is_finished());
}

#[test]
fn a_participant_can_end_only_its_own_stream() {
    let mut call = start(3000);
    call.datagrams(call.now);
    let mut packet = rtcp::receiver_report(LISTENER, &call.reception(0), 0, true);
    // The last word of a BYE names the SSRC.
    let at = packet.len() - 4;
    packet[at..].copy_from_slice(&call.talker.sources().media.to_be_bytes());
    call.receive(&packet, call.now);
    assert!(!call.talker.is_finished());
}

#[test]
fn a_talker_omits_a_long_pause_of_its_machine() {
    let mut call = start(3000);
    assert_eq!(
        call.media(call.now + 100 * MS).len(),
        6,
        "after a short pause the talker sends all packets"
    );
    assert_eq!(call.media(call.now + 60_000 * MS).len(), 1);
    assert_eq!(call.talker.poll_timeout(), Some(call.now + 60_020 * MS));
}

#[test]
fn a_key_that_is_used_up_ends_the_stream() {
    let mut config = TalkerConfig::of_simulation(1);
    config.session.lifetime = Some(7);
    let mut call = start_with(config);
    assert_eq!(call.media(call.now + 400 * MS).len(), 7);
    let items = call.reports(call.now + 500 * MS);
    assert!(items.iter().any(|item| matches!(item, Item::Bye { .. })), "{items:?}");
}

#[test]
fn a_source_that_ends_ends_the_stream() {
    #[derive(Debug)]
    struct Short(u8);
    impl Source for Short {
        fn next(&mut self, out: &mut Vec<u8>) -> bool {
            *out = vec![0; MIN_PAYLOAD];
            self.0 = self.0.saturating_sub(1);
            self.0 > 0
        }
    }
    let mut call = start(3000);
    call.talker.source = Box::new(Short(5));
    assert_eq!(call.media(call.now + 200 * MS).len(), 4);
    assert!(matches!(call.talker.phase, Phase::Ending { .. }));
}

#[test]
fn errors_name_settings_out_of_range() {
    let now = start(1).now;
    let of = |config| {
        Talker::new(config, Box::new(RandomBytes::new(1, 240)), now).unwrap_err().to_string()
    };
    let good = || TalkerConfig::of_simulation(1);
    assert_eq!(
        of(TalkerConfig { interval: Duration::ZERO, ..good() }),
        "packets must be 1 to 1000 ms apart"
    );
    assert_eq!(of(TalkerConfig { packets: 0, ..good() }), "a stream must have at least one packet");
    for (media, rtx) in [(95, 97), (96, 96), (96, 128)] {
        let mut config = good();
        (config.session.payload_type, config.session.rtx_payload_type) = (media, Some(rtx));
        assert_eq!(of(config), "payload types must be different ones from 96 to 127");
    }
}

proptest! {
    #[test]
    fn hostile_datagrams_are_survived_and_answered_within_bounds(
        packets in proptest::collection::vec((0x80_u8..0xa0, 200_u8..208, proptest::collection::vec(any::<u8>(), 4..300)), 1..60),
        authentic in any::<bool>(),
    ) {
        let mut call = start(100);
        let mut now = call.now;
        for (count, kind, mut body) in packets {
            body.truncate(body.len() / 4 * 4);
            let words = u16::try_from(body.len() / 4).unwrap();
            let packet = [&[count, kind], &words.to_be_bytes()[..], &body].concat();
            let datagram = if authentic { call.sealer.rtcp(&packet).unwrap() } else { packet };
            let handled = call.talker.handle_input(&datagram, now);
            prop_assert!(authentic || handled.is_err());
            prop_assert!(call.talker.outgoing.len() <= MAX_WAITING);
            now += 7 * MS;
            call.datagrams(now);
            prop_assert!(call.talker.poll_timeout().is_none_or(|at| at > now), "due again at once");
        }
    }
}
