//! Arriving packets of flows.

use std::collections::BTreeSet;

use sidekick_protocol::{Fate, Position};

use super::*;
use crate::agent::arriving::Reception;
use crate::runtime::clock;

/// A packet of a call. No other packet ends with the same bytes.
pub(super) fn rtp(ssrc: u8, sequence: u16) -> Vec<u8> {
    let number = sequence.to_be_bytes();
    let tag = (u32::from(sequence) + 7919 * u32::from(ssrc)).wrapping_mul(0x9e37_79b1);
    let head = [0x80, 111, number[0], number[1], 0, 0, number[0], number[1], 0, 0, 0, ssrc];
    [&head[..], &[7; 100], &tag.to_be_bytes()].concat()
}

/// A data message of `WireGuard`.
pub(super) fn tunnelled(counter: u16) -> Vec<u8> {
    let counter = u64::from(counter);
    let tag = counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    [&[4, 0, 0, 0, 9, 9, 9, 9][..], &counter.to_le_bytes(), &[7; 904], &tag.to_be_bytes()].concat()
}

impl Net {
    /// The flow's other end sends a datagram, which passes the proxy.
    pub(super) fn send_here(&mut self, flow: Flow, payload: &[u8]) {
        let Flow { source, destination } = flow.reversed();
        self.proxy.keep(&flow.reversed(), 0, payload, self.now);
        self.launch(self.queue, Arrival::Here([source, destination], payload.to_vec()));
        self.drain();
    }

    /// A flow in both directions, until a proxy keeps copies of what arrives.
    pub(super) fn call(flow: Flow, limits: Limits, packet: impl Fn(u16) -> Vec<u8>) -> Self {
        let mut net = Net::new(limits, MS, 0);
        net.agent.set_local(&HashSet::from([flow.source.ip()]), &HashSet::new());
        for number in 65_436..=u16::MAX {
            net.send_next(flow);
            net.send_here(flow, &packet(number));
            net.run(MS);
        }
        assert_eq!((net.received.len(), net.agent.totals().missed), (100, 0));
        net.received.clear();
        net
    }

    /// The other end sends this many datagrams at this interval. Returns how many did not arrive.
    pub(super) fn stream_here(
        &mut self,
        packets: impl Iterator<Item = Vec<u8>>,
        interval: Duration,
    ) -> usize {
        let mut sent = Vec::new();
        for packet in packets {
            self.send_here(flow(4000), &packet);
            sent.push(packet);
            self.run(interval);
        }
        self.run(100 * MS);
        sent.iter().filter(|packet| !self.received.contains(*packet)).count()
    }

    fn duplicates(&self) -> usize {
        let mut distinct = self.received.clone();
        distinct.sort_unstable();
        distinct.dedup();
        self.received.len() - distinct.len()
    }
}

#[test]
fn datagrams_lost_on_their_way_to_this_host_reach_it_as_copies() {
    let kinds: [(&dyn Fn(u16) -> Vec<u8>, _); 2] =
        [(&|number| rtp(1, number), 20 * MS), (&|number| tunnelled(number), MS)];
    for (packet, interval) in kinds {
        let mut net = Net::call(flow(4000), limits(), packet);
        net.loss_percent = 10;
        // Sequence numbers of RTP wrap here, and those of WireGuard seem to.
        let missing = net.stream_here((0..1500).map(packet), interval);
        let totals = net.agent.totals();
        assert!(missing <= 3, "{missing} of 1500: {totals:?}");
        assert_eq!(net.duplicates(), 0, "{totals:?}");
        assert!((100..220).contains(&totals.delivered), "{totals:?}");
        let [report] = &net.agent.flows(9, |_| String::new(), net.now)[..] else { panic!() };
        assert_eq!((report.missed, report.delivered), (totals.missed, totals.delivered));
    }
}

#[test]
fn packets_that_overtake_each_other_arrive_once() {
    let mut net = Net::call(flow(4000), limits(), |number| rtp(1, number));
    for number in 0..500 {
        // Every third one is late, by more than a round trip to the proxy.
        net.queue = if number % 3 == 0 { 15 * MS } else { Duration::ZERO };
        net.send_here(flow(4000), &rtp(1, number));
        net.run(4 * MS);
    }
    net.run(100 * MS);
    let totals = net.agent.totals();
    assert!(totals.missed > 100 && totals.delivered > 100, "{totals:?}");
    // The late ones arrive after their copies. The agent cannot hold arriving packets.
    net.received.sort_unstable();
    net.received.dedup();
    assert_eq!(net.received.len(), 500);
    // As a copy, each arrived once at most.
    // Some copies come before a gap shows.
    assert!(totals.delivered <= totals.missed + 8, "{totals:?}");
}

#[test]
fn each_stream_of_a_call_has_its_own_numbers() {
    let mut net = Net::call(flow(4000), limits(), |number| rtp(1, number));
    assert_eq!(net.stream_here((0..10).map(|number| rtp(2, number)), MS), 0);
    net.received.clear();
    net.loss_percent = 10;
    let both = (10..1000).flat_map(|number| {
        let sound = (number % 10 == 0).then(|| rtp(1, number / 10 - 1));
        [Some(rtp(2, number)), sound].into_iter().flatten()
    });
    let missing = net.stream_here(both, 2 * MS);
    assert!(missing <= 3, "{missing}: {:?}", net.agent.totals());
    assert_eq!(net.duplicates(), 0);
}

/// A network whose proxy the operator knows.
pub(super) fn pinned(limits: Limits) -> Net {
    let key = Some(Net::new(limits.clone(), MS, 0).proxy.public_key());
    let sender = SenderConfig { key, ..SenderConfig::of(PROXY.parse().unwrap()) };
    let mut net = Net::new(Limits { sender, ..limits }, MS, 0);
    net.agent.set_local(&HashSet::from([flow(4000).source.ip()]), &HashSet::new());
    net
}

#[test]
fn a_flow_that_only_arrives_is_helped_by_a_known_proxy() {
    let mut net = pinned(limits());
    // The agent sends only along the flow's path.
    net.programs.insert(flow(4000));
    assert_eq!(net.stream_here((0..200).map(|number| rtp(1, number)), 20 * MS), 0);
    assert_eq!(net.agent.counts().0, 1);
    net.loss_percent = 10;
    let missing = net.stream_here((200..1700).map(|number| rtp(1, number)), 20 * MS);
    let totals = net.agent.totals();
    assert!(missing <= 3, "{missing}: {totals:?}");
    assert!(totals.delivered > 100 && totals.markers == 0, "{totals:?}");
}

/// The table of neighbours would otherwise learn a wrong address, and forged packets draw markers.
#[test]
fn a_flow_that_only_arrives_needs_the_proxy_and_its_key() {
    let pinned = || {
        let mut net = pinned(limits());
        let here = HashSet::from([flow(4000).source.ip()]);
        net.agent.set_local(&here, &HashSet::from([[2, 0, 0, 0, 0, 1]]));
        net
    };
    let arrive = |mut net: Net| {
        net.shown_on = vec![1];
        net.programs.insert(flow(4000));
        for number in 0..50 {
            net.arriving(flow(4000).reversed(), &rtp(1, number));
            net.drain();
            net.run(MS);
        }
        (net.agent.counts().0, net.agent.totals().markers)
    };
    assert_eq!(arrive(pinned()), (1, 0));
    let without = |change: fn(&mut SenderConfig)| {
        let mut net = pinned();
        change(&mut net.agent.limits.sender);
        net
    };
    assert_eq!(arrive(without(|sender| sender.key = None)), (0, 0));
    assert_eq!(arrive(without(|sender| sender.proxy = None)), (0, 0));
    let mut net = pinned();
    let here = HashSet::from([flow(4000).source.ip()]);
    net.agent.set_local(&here, &HashSet::from([[2, 0, 0, 0, 0, 9]]));
    assert_eq!(arrive(net), (0, 0), "to other hardware");
}

/// A router's firewall decides what passes to the hosts behind it.
#[test]
fn a_forwarded_flow_gets_no_copies() {
    let mut net = Net::call(flow(4000), limits(), |number| rtp(1, number));
    net.agent.set_local(&HashSet::new(), &HashSet::new());
    let other = Flow { source: "192.0.2.9:4000".parse().unwrap(), ..flow(4000) };
    net.programs.insert(other);
    net.loss_percent = 10;
    for number in 0..500 {
        net.send_next(other);
        net.proxy.keep(&other.reversed(), 0, &rtp(1, number), net.now);
        if number % 10 != 0 {
            net.answer(other, &rtp(1, number));
        }
        net.run(MS);
    }
    let totals = net.agent.totals();
    assert_eq!((totals.copies_requested, totals.delivered), (0, 0), "{totals:?}");
}

#[test]
fn copies_end_with_the_packets_of_the_program() {
    let mut net = Net::call(flow(4000), limits(), |number| rtp(1, number));
    net.loss_percent = 10;
    net.stream_here((0..500).map(|number| rtp(1, number)), 20 * MS);
    let helped = net.agent.totals().delivered;
    assert!(helped > 20);
    net.stream_here((500..1500).map(|number| rtp(1, number)), 20 * MS);
    let late = net.agent.totals().delivered;
    // Thirty seconds after the last packet that left.
    net.stream_here((1500..2500).map(|number| rtp(1, number)), 20 * MS);
    assert_eq!(net.agent.totals().delivered, late);
    net.send_next(flow(4000));
    net.stream_here((2500..3000).map(|number| rtp(1, number)), 20 * MS);
    assert!(net.agent.totals().delivered > late, "the program sends again");
}

/// A switch that floods, or a promiscuous interface, shows packets to other hosts. And a firewall
/// may drop what arrives, behind the capture.
#[test]
fn strangers_begin_no_help() {
    let mut net = Net::new(limits(), MS, 0);
    net.agent.set_local(&HashSet::from([flow(4000).source.ip()]), &HashSet::new());
    for number in 0..200 {
        net.arriving(flow(4000).reversed(), &rtp(1, number));
        net.drain();
        net.run(MS);
    }
    assert_eq!((net.agent.counts(), net.agent.totals().markers), ((0, 0, 0), 0));

    let mut net = pinned(limits());
    let other = Flow { source: "192.0.2.9:4000".parse().unwrap(), ..flow(4000) };
    for number in 0..200 {
        net.arriving(other.reversed(), &rtp(1, number));
        net.drain();
        net.run(MS);
    }
    assert_eq!((net.agent.counts(), net.agent.totals().markers), ((0, 0, 0), 0));
}

/// Markers pass no firewall of this host, so they must not outlast the flow's own packets.
#[test]
fn markers_end_with_the_packets_of_the_program() {
    let mut net = Net::new(limits(), MS, 100);
    for number in 0..50 {
        net.send_next(flow(4000));
        net.arriving(flow(4000).reversed(), &rtp(1, number));
        net.drain();
        net.run(MS);
    }
    assert!(net.agent.totals().markers > 0);
    let mut number = 50;
    let mut pass = |net: &mut Net, seconds: u16| {
        for _ in 0..seconds * 10 {
            net.arriving(flow(4000).reversed(), &rtp(1, number));
            net.drain();
            net.run(100 * MS);
            number += 1;
        }
        net.agent.totals().markers
    };
    let before = pass(&mut net, 30);
    assert_eq!(pass(&mut net, 300), before);
    assert_eq!(net.agent.counts().0, 1, "the flow has not ended");
    net.send_next(flow(4000));
    assert!(pass(&mut net, 30) > before, "the search goes on");
}

/// A packet on its way to the host.
enum Packet<'a> {
    Arrives(&'a [u8]),
    Copied(&'a [u8]),
}

#[test]
fn a_copy_reaches_the_host_only_in_place_of_a_missing_packet() {
    let mut reception = {
        let frame = framed(0, flow(4000).reversed(), &rtp(1, 0));
        Reception::begin(Kind::Rtp, Position::End, &passing(0, &frame)).unwrap()
    };
    let mut sender = Sender::new(SenderConfig::default(), [1; 32]);
    let mut pass = |packet: Packet<'_>| match packet {
        Packet::Arrives(packet) => reception.on_arriving(packet, &mut sender, clock()).0,
        Packet::Copied(copy) => reception.on_copy(copy, &mut sender, clock()).into(),
    };
    let with = |number, change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = rtp(1, number);
        change(&mut packet);
        packet
    };
    for number in 65_500..65_530_u16 {
        assert_eq!(pass(Packet::Arrives(&rtp(1, number))), 0);
    }
    assert_eq!(pass(Packet::Arrives(&rtp(1, 4))), 10, "65,530 to 3");
    // One of the missing is late.
    assert_eq!(pass(Packet::Arrives(&rtp(1, 65_532))), 0);
    for refused in [
        rtp(1, 65_529),
        rtp(1, 65_532),
        rtp(1, 4),
        rtp(1, 13),
        rtp(2, 65_531),
        with(65_531, &|packet| packet.truncate(100)),
        with(65_531, &|packet| packet.push(0)),
        with(65_531, &|packet| packet[1] = 96),
        with(65_531, &|packet| packet[0] = 0x90),
        b"anything".to_vec(),
    ] {
        assert_eq!(pass(Packet::Copied(&refused)), 0, "{refused:?}");
    }
    let marked = with(65_531, &|packet| packet[1] |= 0x80);
    assert_eq!(pass(Packet::Copied(&marked)), 1, "the marker bit differs from packet to packet");
    // The missing ones, and the next eight, which the proxy may have.
    for number in [65_530, 65_533, 65_534, 65_535, 0, 1, 2, 3, 5, 6, 8, 12] {
        assert_eq!(pass(Packet::Copied(&rtp(1, number))), 1, "{number}");
        assert_eq!(pass(Packet::Copied(&rtp(1, number))), 0, "{number} again");
    }
    // Copies ahead do not count as missing when a higher number arrives.
    assert_eq!(pass(Packet::Arrives(&rtp(1, 11))), 3, "7, 9 and 10");
    assert_eq!(pass(Packet::Copied(&rtp(1, 12))), 0, "it was there before");
    assert_eq!(pass(Packet::Copied(&rtp(1, 13))) + pass(Packet::Copied(&rtp(1, 9))), 2);
    // Far behind, and wherever the numbering begins again.
    assert_eq!(pass(Packet::Arrives(&rtp(1, 11 + 500))), 499 - 2, "12 and 13 were copied");
    assert_eq!(pass(Packet::Copied(&rtp(1, 10))), 1, "501 behind");
    assert_eq!(pass(Packet::Arrives(&rtp(1, 11 + 504))), 3);
    assert_eq!(pass(Packet::Copied(&rtp(1, 7))), 0, "508 behind");
    assert_eq!(pass(Packet::Arrives(&rtp(1, 30_000))), 0);
    assert_eq!(pass(Packet::Copied(&rtp(1, 29_999))), 0);
}

#[test]
fn a_false_proxy_fills_gaps_alone() {
    let mut net = Net::call(flow(4000), limits(), |number| rtp(1, number));
    net.loss_percent = 10;
    let mut genuine = BTreeSet::new();
    for number in 0..1000 {
        let packet = rtp(1, number);
        net.send_here(flow(4000), &packet);
        genuine.insert(packet);
        // The proxy claims that these passed it, too.
        for false_one in [rtp(1, number + 300), rtp(2, number), vec![number.to_be_bytes()[1]; 500]]
        {
            net.proxy.keep(&flow(4000).reversed(), 0, &false_one, net.now);
        }
        let mut altered = rtp(1, number);
        altered[20] ^= 1;
        net.proxy.keep(&flow(4000).reversed(), 0, &altered, net.now);
        net.run(4 * MS);
    }
    net.run(100 * MS);
    let totals = net.agent.totals();
    let number = |packet: &[u8]| u16::from_be_bytes([packet[2], packet[3]]);
    let mut numbers: Vec<_> = net.received.iter().map(|packet| number(packet)).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().all(|number| *number < 1000), "{totals:?}");
    let received = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), received, "no number arrives twice: {totals:?}");
    assert!(totals.delivered > 50, "{totals:?}");
    // What was not lost is genuine.
    let altered = net.received.iter().filter(|packet| !genuine.contains(*packet)).count();
    assert!(altered as u64 <= totals.missed, "{altered}: {totals:?}");
}

#[test]
fn a_flow_from_a_group_gets_no_help() {
    let mut net = Net::new(limits(), MS, 0);
    let group = Flow { source: "239.1.2.3:5004".parse().unwrap(), ..flow(4000) };
    for number in 0..20 {
        net.arriving(group.reversed(), &rtp(1, number));
    }
    assert_eq!((net.agent.counts().0, net.agent.totals().markers), (0, 0));
}

/// The numbers of `WireGuard` have 64 bits.
#[test]
fn numbers_may_pass_the_greatest_signed_one() {
    let packet = |counter: u64| {
        let tag = counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let head = [4, 0, 0, 0, 9, 9, 9, 9];
        [&head[..], &counter.to_le_bytes(), &[7; 904], &tag.to_be_bytes()].concat()
    };
    let mut net = Net::call(flow(4000), limits(), tunnelled);
    net.loss_percent = 10;
    let greatest = u64::try_from(i64::MAX).unwrap();
    let missing = net.stream_here((greatest - 100..greatest + 100).map(packet), MS);
    assert!(missing <= 2, "{missing}: {:?}", net.agent.totals());
}

#[test]
fn flows_without_visible_numbers_cause_no_requests() {
    let long = [&[0xc3, 0, 0, 0, 1, 8][..], &[5; 1194]].concat();
    let short: Vec<_> =
        (0..200_u8).map(|number| [&[0x40; 60][..], &[number; 4]].concat()).collect();
    let mut net = Net::new(limits(), MS, 0);
    net.send(flow(4000), &long);
    net.send_here(flow(4000), &long);
    for packet in &short {
        net.send_next(flow(4000));
        net.send_here(flow(4000), packet);
        net.run(MS);
    }
    assert_eq!(net.agent.counts().1, 1, "it is helped");
    let keeps = |net: &Net| net.proxy.stats().keeps_unproven;
    assert_eq!(keeps(&net), 0);
    // Without a TUN device, a call causes none either.
    let mut silent = Net::new(Limits { delivers: false, ..limits() }, MS, 0);
    for number in 0..200 {
        silent.send_next(flow(4000));
        silent.send_here(flow(4000), &rtp(1, number));
        silent.run(MS);
    }
    assert_eq!((keeps(&silent), silent.agent.counts().1), (0, 1));
}

#[test]
fn nothing_is_requested_while_a_queue_grows() {
    let mut net = Net::call(flow(4000), limits(), |number| rtp(1, number));
    for number in 0..300 {
        // The agent's messages wait in the queue, too, so the proxy's answers are late, and show
        // the queue.
        net.delay = MS * u32::from(number.min(30));
        net.send_here(flow(4000), &rtp(1, number));
        net.run(MS);
    }
    let before = net.agent.totals().copies_requested;
    net.loss_percent = 5;
    let missing = net.stream_here((300..800).map(|number| rtp(1, number)), MS);
    let totals = net.agent.totals();
    assert!(missing > 10 && totals.missed > 10, "{missing}: {totals:?}");
    assert_eq!(totals.copies_requested, before, "{totals:?}");
}

proptest! {
    #[test]
    fn nothing_that_arrives_ends_the_help(
        packets in prop::collection::vec(
            (any::<bool>(), any::<u16>(), prop::collection::vec(any::<u8>(), 0..40)),
            0..200,
        ),
    ) {
        let mut net = Net::call(flow(4000), limits(), |number| rtp(1, number));
        for (is_rtp, number, bytes) in packets {
            net.arriving(flow(4000).reversed(), &if is_rtp { rtp(3, number) } else { bytes });
            net.drain();
        }
        net.run(Duration::from_secs(1));
        net.loss_percent = 10;
        let missing = net.stream_here((0..200).map(|number| rtp(1, number)), 20 * MS);
        prop_assert!(missing <= 2, "{} {:?}", missing, net.agent.totals());
    }
}

#[test]
fn what_a_full_queue_drops_is_not_requested() {
    let mut reception = {
        let frame = framed(0, flow(4000).reversed(), &rtp(1, 0));
        Reception::begin(Kind::Rtp, Position::End, &passing(0, &frame)).unwrap()
    };
    let mut sender = Sender::new(SenderConfig::default(), [1; 32]);
    let mut now = clock();
    let (mut missed, mut left) = (0, 0);
    // A proxy had a copy of the first one that was missing.
    sender.on_received(1200, now);
    sender.on_missing(u64::MAX, 1, now + MS);
    sender.on_fate(u64::MAX, Fate::Lost(1));
    for number in 0..6000_u16 {
        // A policer lets 300 packets a second pass.
        let is_fast = number % 2000 >= 1000;
        now += if is_fast { 2 * MS } else { 4 * MS };
        if is_fast && number % 5 < 2 {
            continue;
        }
        let counts = reception.on_arriving(&rtp(1, number), &mut sender, now);
        (missed, left) = (missed + counts.0, left + counts.1);
    }
    assert!(missed > 1000 && 10 * left > 9 * missed, "{left} of {missed}");
}

#[test]
fn requests_wait_for_packets_that_are_often_late() {
    let mut net = Net::call(flow(4000), limits(), |number| rtp(1, number));
    let mut requested = Vec::new();
    for number in 0..1000 {
        // Every third one is late, by less than a round trip to the proxy.
        net.queue = if number % 3 == 0 { 3 * MS / 2 } else { Duration::ZERO };
        net.send_here(flow(4000), &rtp(1, number));
        net.run(MS);
        requested.push(net.agent.totals().copies_requested);
    }
    let totals = net.agent.totals();
    assert!(totals.missed > 250 && totals.copies_requested > 0, "{totals:?}");
    assert_eq!(requested.last(), requested.get(100), "{totals:?}");
    assert_eq!(net.duplicates() as u64, totals.delivered, "the late ones follow their copies");
}
