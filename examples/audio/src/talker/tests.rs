use super::*;
use crate::ntp::units;
use crate::source::random_bytes;
use crate::testing::{self, Call, MS};
use rtcp_types::{ReportBlock, ReportBlockBuilder};
use sidekick_protocol::Identification;
use std::collections::BTreeSet;

/// The listener's SSRC.
const LISTENER: u32 = 9;

fn start(packets: u32) -> Call<Talker> {
    testing::talker(TalkerConfig { packets, ..TalkerConfig::of_simulation(1) })
}

impl Talker {
    pub(crate) fn waits_within_bounds(&self) -> bool {
        self.outgoing.len() <= MAX_WAITING
    }
}

impl Call<Talker> {
    fn nack(&mut self, places: impl IntoIterator<Item = u32>, after: u32) {
        let numbers: Vec<_> = places.into_iter().map(|place| self.end.sequence(place)).collect();
        self.gets(&rtcp::nack(LISTENER, self.end.sources().media, &numbers), after);
    }

    /// A report block about the talker.
    fn block(&self) -> ReportBlockBuilder {
        ReportBlock::builder(self.end.sources().media)
    }

    fn leaves(&mut self, after: u32) {
        self.gets(&rtcp::receiver_report(LISTENER, self.block(), None), after);
    }

    /// Serves all timers. Returns what the talker sent, when it last did something, and its report.
    fn run_to_its_end(&mut self) -> (Vec<Item>, Duration, TalkerReport) {
        let (mut items, mut now) = (Vec::new(), self.now);
        while let Some(deadline) = self.end.poll_timeout() {
            now = deadline;
            items.extend(self.items(now));
        }
        (items, now - self.now, self.end.report(now))
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
        assert_eq!((header.ssrc, header.payload_type), (call.end.sources().media, 96));
        assert_eq!((header.sequence, header.marker), (call.end.sequence(number), number == 0));
        identifiers.insert(rule.identifier(Payload::whole(datagram)).unwrap());
    }
    assert_eq!(identifiers.len(), 500);
}

#[test]
fn false_reports_cause_at_most_six_repairs_and_none_of_an_old_packet() {
    let mut call = start(500);
    call.datagrams(call.now);
    let mut again = |after: u32| {
        (0..19).filter(|_| call.end.send_again(0, Cause::Quack, call.now + after * MS)).count()
    };
    assert_eq!(again(30), 6);
    assert_eq!(again(60), 0);
    call.datagrams(call.now + 40 * MS);
    let mut again =
        |place, after: u32| call.end.send_again(place, Cause::Quack, call.now + after * MS);
    assert!(again(1, 1000));
    assert!(!again(1, 1041), "a listener has skipped it by then");
    // A more patient listener requests it.
    call.nack([1], 2000);
    assert_eq!(call.end.packets.retransmitted_nack, 1);
}

#[test]
fn repetitions_cost_no_more_than_half_of_the_stream() {
    let mut call = start(3000);
    for number in 0..2000 {
        let now = call.now + number * 20 * MS;
        call.datagrams(now);
        // The listener requests every packet as often as possible, and the proxy sees none.
        let earliest = number.saturating_sub(100);
        call.nack(earliest..number, number * 20);
        for place in earliest..=number {
            call.end.send_again(place, Cause::Quack, now);
        }
        call.datagrams(now);
        let media = u64::from(number + 1) * 262;
        let again = call.end.bytes - media;
        assert!(
            again <= media / 2 + 16 * 1024 + 2 * call.end.packets.retransmitted_nack,
            "{number}: {again}"
        );
    }
    let media = 2000 * 262;
    assert!(call.end.bytes > media * 3 / 2, "{}", call.end.bytes);
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
    call.nack([0, 7], 60);
    let mut again = call.media(call.now + 60 * MS);
    again.retain(|(header, _)| header.ssrc == call.end.sources().rtx);
    let [(header, content)] = again.as_slice() else { panic!("{again:?}") };
    let (original, repeated) = rtp::original(content).unwrap();
    assert_eq!((header.ssrc, header.payload_type), (call.end.sources().rtx, 97));
    assert_eq!(
        (original, repeated, header.timestamp),
        (first[0].0.sequence, &first[0].1[..], first[0].0.timestamp)
    );
    // The initial round-trip time is a tenth of a second.
    call.nack([0], 159);
    assert_eq!(call.end.packets.retransmitted_nack, 1);
    call.nack([0], 160);
    assert_eq!(call.end.packets.retransmitted_nack, 2);
    assert_eq!((call.end.packets.nacks_ignored, call.end.packets.nacks_unknown), (1, 1));
    let later = call.media(call.now + 160 * MS);
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
    let items = call.items(call.now);
    let [Item::Clock { ntp, .. }, Item::Sent { packets: 1, .. }] = items[..] else {
        panic!("{items:?}")
    };
    let block = call.block().last_sender_report_timestamp(low32(ntp >> 16));
    call.gets(&rtcp::receiver_report(LISTENER, block, Some(77 << 16)), 52);
    let rtt = call.end.report(call.now).rtt_ms.unwrap();
    assert!((rtt - 52.0).abs() < 0.05, "{rtt}");
    // The clock is answered before the second is over.
    let echo = rtcp::Echo { ssrc: LISTENER, last: 77, delay: units(50 * MS) };
    assert!(call.items(call.now + 102 * MS).contains(&Item::Echo(echo)));
    assert_eq!(call.items(call.now + 1000 * MS), []);
}

#[test]
fn only_a_duplicate_of_a_repaired_packet_is_spurious() {
    let mut call = start(500);
    call.datagrams(call.now + 20 * MS);
    call.nack([0], 21);
    for place in [0, 0, 1, 99] {
        let (media, sequence) = (call.end.sources().media, call.end.sequence(place));
        call.gets(&rtcp::duplicate(LISTENER, media, sequence), 80);
    }
    assert_eq!(call.end.packets.spurious, 1);
}

#[test]
fn an_unanswered_bye_is_repeated_a_limited_number_of_times() {
    let (items, _, report) = start(3).run_to_its_end();
    let is_bye = |item: &Item| matches!(item, Item::Bye { .. });
    let first = items.iter().position(is_bye).unwrap();
    // Of both SSRCs.
    assert_eq!(items.iter().filter(|item| is_bye(item)).count(), 100);
    let others = |item: &Item| matches!(item, Item::Sent { packets, .. } if *packets != 3);
    assert!(!items[first - 1..].iter().any(others), "{items:?}");
    assert_eq!((report.acknowledged, report.packets.sent), (false, 3));
    assert_eq!(report.ending, Ending::Unanswered);
}

#[test]
fn a_call_ends_as_the_listener_says_or_with_its_silence() {
    for (stops, ending, after) in [
        (true, Ending::Confirmed, 100),
        (false, Ending::HungUp, 100),
        (false, Ending::Silent, 10_100),
    ] {
        let mut call = start(3000);
        call.datagrams(call.now + 40 * MS);
        assert_eq!(call.end.report(call.now).ending, Ending::Talking);
        if stops {
            call.end.stop(call.now + 41 * MS);
            let items = call.items(call.now + 41 * MS);
            assert!(matches!(items[1], Item::Sent { packets: 3, .. }), "{items:?}");
        }
        if ending == Ending::Silent {
            call.gets(&rtcp::receiver_report(LISTENER, call.block(), Some(0)), 100);
        } else {
            call.leaves(100);
        }
        let report = call.run_to_its_end().2;
        assert_eq!((report.acknowledged, report.ending), (stops, ending));
        assert_eq!(report.time_s, f64::from(after) / 1000.0);
    }
}

#[test]
fn its_own_packets_sent_back_change_nothing() {
    let mut call = start(5);
    let own: Vec<_> = (0..30).flat_map(|n| call.datagrams(call.now + 20 * n * MS)).collect();
    assert!(own.iter().filter(|datagram| is_rtcp(datagram)).count() > 1, "reports and BYEs");
    let now = call.now;
    call.ignores_its_own(&own, |talker| {
        let mut report = talker.report(now);
        report.packets.rejected = 0;
        format!("{report:?}")
    });
    assert_eq!(call.end.packets.rejected, u64::try_from(own.len()).unwrap());
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
    assert_eq!(call.end.poll_timeout(), Some(call.now + 60_020 * MS));
}

#[test]
fn a_key_that_is_used_up_ends_the_stream() {
    let mut config = TalkerConfig::of_simulation(1);
    config.session.lifetime = Some(7);
    let mut call = testing::talker(config);
    assert_eq!(call.media(call.now + 400 * MS).len(), 7);
    let items = call.items(call.now + 500 * MS);
    assert!(items.iter().any(|item| matches!(item, Item::Bye { .. })), "{items:?}");
}

#[test]
fn a_source_that_ends_ends_the_stream() {
    let mut call = start(3000);
    call.end.source = Source(Box::new(std::iter::repeat_n(vec![0; MIN_PAYLOAD], 4)));
    assert_eq!(call.media(call.now + 200 * MS).len(), 4);
    assert!(matches!(call.end.phase, Phase::Ending { .. }));
}

#[test]
fn errors_name_settings_out_of_range() {
    let now = start(1).now;
    let of = |config| Talker::new(config, random_bytes(1, 240), now).unwrap_err().to_string();
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
