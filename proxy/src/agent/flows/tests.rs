//! The agent beside a proxy, in virtual time.

mod arriving;
mod handshake;
mod messages;
mod named;
mod net;
mod order;
mod room;

use proptest::prelude::*;
use sidekick_protocol::MAX_DATAGRAM_LEN;
use tracing::Level;

use super::*;
use crate::agent::journal::tests::log_of;
use crate::packet::{Link, parse};
use handshake::initial;
use net::*;
pub(in crate::agent) use net::{encrypted, frames};
use sidekick_protocol::policy::Withheld;

#[test]
fn packets_lost_on_the_near_segment_are_sent_again() {
    let mut net = Net::new(limits(), MS, 0);
    assert_eq!(net.stream(flow(4000), 100), 0);
    assert_eq!(net.agent.counts().1, 1, "assisted");
    net.loss_percent = 10;
    let missing = net.stream(flow(4000), 2000);
    let totals = net.agent.totals();
    // A repair may be lost, too, and the repair of that repair. The first losses show late.
    assert!(missing <= 8, "{missing} of 2000, {totals:?}");
    assert!((150..350).contains(&totals.lost), "{totals:?}");
    // Of the first hundred with losses, each leaves twice.
    assert!((totals.lost - 8..totals.lost + 40).contains(&totals.resent), "{totals:?}");
    assert!(totals.quacks > 1000, "{totals:?}");
    assert_eq!(totals.flows, 1);
    let [report] = &net.agent.flows(9, |_| "eth0".to_owned(), net.now)[..] else { panic!() };
    assert_eq!((report.state.as_str(), report.near_rtt_ms), ("helped", Some(2.0)));
}

/// A line for a collector of metrics.
fn metric(number: u64) -> Vec<u8> {
    format!("app.requests.latency:{number}|ms|@0.1").into_bytes()
}

#[test]
fn a_program_that_reads_markers_as_data_gets_none() {
    for (only, is_helped) in [(vec![], false), (vec!["443".parse().unwrap()], true)] {
        let filter = Filter { only, except: Vec::new() };
        let mut net = Net::new(Limits { filter, ..limits() }, MS, 10);
        for number in 0..1000 {
            net.send(flow(4000), &metric(number));
            net.run(MS);
        }
        net.run(100 * MS);
        let totals = net.agent.totals();
        assert_eq!(totals.markers > 0, is_helped, "{totals:?}");
        assert_eq!((totals.resent > 0, totals.left), (is_helped, u64::from(!is_helped)));
        let missing = (0..1000).filter(|number| !net.passed.contains(&metric(*number))).count();
        assert_eq!(missing < 20, is_helped, "{missing}: {totals:?}");
        if is_helped {
            let [report] = &net.agent.flows(9, |_| String::new(), net.now)[..] else { panic!() };
            assert!(report.state.starts_with("helped, though"), "{report:?}");
            // No second copies.
            assert!(totals.resent <= totals.lost, "{totals:?}");
        }
    }
}

/// Its users see an error message for each datagram that is not its own.
#[test]
fn mosh_gets_no_marker() {
    let mut net = Net::new(limits(), MS, 0);
    net.agent.set_local(&HashSet::from([flow(4000).source.ip()]), &HashSet::new());
    let keys = |number: u64| [&number.to_be_bytes()[..], &encrypted(number)[1..60]].concat();
    let mut number = 0;
    let mut typed = |net: &mut Net, count: u64| {
        let sent: Vec<_> = (number..number + count).map(keys).collect();
        number += count;
        for payload in &sent {
            net.send(flow(4000), payload);
            net.run(50 * MS);
        }
        sent.iter().filter(|payload| !net.passed.contains(*payload)).count()
    };
    typed(&mut net, 100);
    let totals = net.agent.totals();
    assert_eq!((totals.markers, totals.flows, totals.left), (0, 0, 1), "{totals:?}");
    // One other flow finds a proxy, which its destination may be.
    net.stream(flow(4001), 100);
    typed(&mut net, 100);
    assert_eq!(net.agent.totals().flows, 1);
    net.stream(Flow { destination: "203.0.113.9:443".parse().unwrap(), ..flow(4002) }, 100);
    let markers = net.agent.totals().markers;
    typed(&mut net, 100);
    net.loss_percent = 5;
    let missing = typed(&mut net, 1000);
    let totals = net.agent.totals();
    assert!(missing <= 5, "{missing}: {totals:?}");
    assert_eq!((totals.markers, totals.flows), (markers, 3), "{totals:?}");
}

#[test]
fn packets_that_end_alike_are_told_apart() {
    let call = |number: u16| {
        let mut packet = arriving::rtp(1, number);
        // Silence begins behind the first words.
        let silence = if number < 300 { packet.len() } else { 12 };
        packet[silence..].fill(0xff);
        packet
    };
    let mut net = Net::new(limits(), MS, 0);
    (0..100).for_each(|number| {
        net.send(flow(4000), &call(number));
        net.run(20 * MS);
    });
    net.loss_percent = 5;
    for number in 100..2000 {
        net.send(flow(4000), &call(number));
        net.run(20 * MS);
    }
    net.run(100 * MS);
    let missing = (0..2000).filter(|number| !net.passed.contains(&call(*number))).count();
    let totals = net.agent.totals();
    // A few are lost while the terms change.
    assert!(missing <= 5, "{missing}: {totals:?}");
    assert!(totals.resent > 60 && totals.resent <= totals.lost, "{totals:?}");
}

#[test]
fn the_state_says_that_packets_are_the_same() {
    let filter = Filter { only: vec!["443".parse().unwrap()], except: Vec::new() };
    let mut net = Net::new(Limits { filter, ..limits() }, MS, 5);
    for _ in 0..500 {
        net.send(flow(4000), b"alive");
        net.run(10 * MS);
    }
    let [report] = &net.agent.flows(9, |_| String::new(), net.now)[..] else { panic!() };
    assert!(report.state.starts_with("its packets cannot be told apart"), "{report:?}");
}

#[test]
fn a_proxy_that_reports_false_losses_is_not_believed_for_long() {
    // Without the judgement, the agent sends as many packets again as the proxy denies, up to half.
    for denied_percent in [10, 50] {
        let mut net = Net::new(limits(), MS, 0);
        net.stream(flow(4000), 100);
        net.denied_percent = denied_percent;
        net.stream(flow(4000), 40_000);
        let totals = net.agent.totals();
        assert!(totals.resent * 25 < totals.sent, "{denied_percent}: {totals:?}");
        let [report] = &net.agent.flows(9, |_| "eth0".to_owned(), net.now)[..] else { panic!() };
        assert!(report.state.starts_with("the proxy reports more losses"), "{report:?}");
    }
    // A link that loses as many packets loses polls, too.
    let mut net = Net::new(limits(), MS, 0);
    net.stream(flow(4000), 100);
    net.loss_percent = 10;
    let missing = net.stream(flow(4000), 40_000);
    let totals = net.agent.totals();
    assert!(missing <= 80, "{missing}: {totals:?}");
    assert!(totals.messages < totals.sent / 10, "{totals:?}");
}

/// Each flow ends before its proxy is found out.
#[test]
fn false_losses_of_short_flows_count_together() {
    let mut net = Net::new(Limits { max_flows: 100, ..limits() }, MS, 0);
    net.denied_percent = 50;
    for port in 0..80 {
        net.stream(flow(5000 + port), 150);
    }
    let totals = net.agent.totals();
    assert!(totals.resent * 6 < totals.sent, "{totals:?}");
}

#[test]
fn a_flow_may_change_its_interface() {
    let mut net = Net::new(limits(), MS, 0);
    for interface in [1, 0, 1, 2] {
        net.shown_on = vec![interface];
        let before = net.agent.totals();
        // At first the packets on the new interface count as duplicates. Then the agent searches
        // for the proxy.
        net.stream(flow(4000), 300);
        net.loss_percent = 10;
        let missing = net.stream(flow(4000), 500);
        net.loss_percent = 0;
        let (totals, counts) = (net.agent.totals(), net.agent.counts());
        assert_eq!((totals.flows, counts.1), (1, 1), "{totals:?}");
        assert!(missing <= 3, "{missing} by {interface}: {totals:?}");
        assert!(totals.resent > before.resent + 20, "{totals:?}");
        assert!(totals.seen_twice <= before.seen_twice + 100, "{totals:?}");
    }
}

#[test]
fn a_repair_that_waits_in_the_local_queue_is_not_lost() {
    let mut net = Net::new(limits(), MS, 0);
    net.local_queue = 10 * MS;
    net.stream(flow(4000), 300);
    net.loss_percent = 5;
    let missing = net.stream(flow(4000), 4000);
    let totals = net.agent.totals();
    assert!(missing <= 4, "{missing}: {totals:?}");
    // Of these losses, some are of repairs.
    assert!((150..300).contains(&totals.lost), "{totals:?}");
    assert!(totals.resent >= totals.lost - missing as u64, "{totals:?}");
    assert!(totals.resent * 5 <= totals.lost * 6, "{totals:?}");
    // Help begins with the eighth.
    assert_eq!((totals.captured, totals.sent), (4300, 4293), "{totals:?}");
}

#[test]
fn a_packet_shown_by_two_interfaces_counts_once() {
    let configured = SenderConfig::of(PROXY.parse().unwrap());
    for sender in [SenderConfig::default(), configured] {
        for shown_on in [[1, 2], [2, 1]] {
            let mut net = Net::new(Limits { sender: sender.clone(), ..limits() }, MS, 0);
            net.shown_on = shown_on.to_vec();
            net.stream(flow(4000), 300);
            net.loss_percent = 10;
            let missing = net.stream(flow(4000), 1000);
            let totals = net.agent.totals();
            assert_eq!(net.agent.counts().1, 1, "{totals:?}");
            assert!(missing <= 3, "{missing}: {totals:?}");
            let counted = (totals.captured, totals.seen_twice, totals.sent);
            assert_eq!(counted, (2 * 1300, 1300, 1293), "{totals:?}");
        }
    }
}

/// A stranger, or the destination, can send what looks like packets of any protocol.
#[test]
fn arrivals_do_not_make_a_plain_flow_one_that_bears_markers() {
    for arrival in [initial(1), arriving::tunnelled(1), vec![0x30, 0, 0x88, 0xb6, 0, 0, 0, 1]] {
        let mut net = Net::new(limits(), MS, 0);
        for number in 0..100_u16 {
            net.send(flow(4000), &metric(number.into()));
            net.answer(flow(4000), &arrival);
            net.answer(flow(4000), &arriving::rtp(1, number));
            net.run(MS);
        }
        assert_eq!((net.agent.totals().markers, net.agent.counts().0), (0, 0));
    }
}

#[test]
fn losses_of_a_queue_are_left_to_the_flow() {
    let mut net = Net::new(limits(), MS, 0);
    net.stream(flow(4000), 300);
    // The queue grows to 30 ms, then loses packets.
    for step in 0..300 {
        net.queue = MS * step.min(30);
        net.send_next(flow(4000));
        net.run(MS);
    }
    net.loss_percent = 5;
    net.stream(flow(4000), 500);
    let totals = net.agent.totals();
    assert!(totals.withheld_congested > 10, "{totals:?}");
    assert_eq!(totals.resent, 0, "{totals:?}");
}

#[test]
fn on_a_link_that_reorders_only_losses_are_repaired() {
    let mut net = Net::new(limits(), MS, 0);
    net.stream(flow(4000), 300);
    net.overtaken_percent = 20;
    net.stream(flow(4000), 1000);
    let before = net.agent.totals();
    assert!((64..128).contains(&before.lost), "{before:?}");
    assert!(before.turned_up * 4 >= before.lost * 3, "{before:?}");
    net.stream(flow(4000), 2000);
    let after = net.agent.totals();
    assert!(after.resent <= before.resent + 20, "{before:?} {after:?}");
    net.loss_percent = 5;
    let missing = net.stream(flow(4000), 2000);
    let totals = net.agent.totals();
    assert!(missing <= 4, "{missing}: {totals:?}");
    // Lost packets do not arrive later.
    assert!(totals.turned_up <= after.turned_up + 20, "{after:?} {totals:?}");
}

#[test]
fn a_lasting_queue_pauses_the_help() {
    let mut net = Net::new(limits(), MS, 0);
    net.stream(flow(4000), 300);
    // The proxy's messages may fill the queue.
    net.queue = 40 * MS;
    net.delay = 20 * MS;
    net.stream(flow(4000), 3000);
    let [report] = &net.agent.flows(9, |_| String::new(), net.now)[..] else { panic!() };
    assert!(report.state.contains("without help for a while"), "{report:?}");
    assert!(!report.assisted && net.agent.counts().1 == 0, "{report:?}");
    let quacks = net.agent.totals().quacks;
    net.stream(flow(4000), 1000);
    // A call may begin meanwhile. The pause goes on.
    for sequence in 0..1000_u16 {
        net.send(flow(4000), &arriving::rtp(1, sequence));
        net.run(MS);
    }
    let [report] = &net.agent.flows(9, |_| String::new(), net.now)[..] else { panic!() };
    assert_eq!((report.kind.as_str(), report.assisted), ("RTP", false), "{report:?}");
    assert_eq!(net.agent.totals().quacks, quacks, "the proxy is silent");
    (net.queue, net.delay) = (Duration::ZERO, MS);
    net.stream(flow(4000), 9000);
    let [report] = &net.agent.flows(9, |_| String::new(), net.now)[..] else { panic!() };
    assert_eq!(report.state, "helped");
}

/// Otherwise a path that becomes longer now and then would lose the help for good.
#[test]
fn after_long_help_the_next_pause_is_the_shortest() {
    let mut net = Net::new(limits(), MS, 0);
    net.stream(flow(4000), 300);
    let rests = |net: &Net| {
        net.agent.flows(9, |_| String::new(), net.now)[0].state.contains("without help for a while")
    };
    for (helped_ms, pause_s) in [(1000, 10), (1000, 20), (45_000, 10)] {
        net.stream(flow(4000), helped_ms);
        (net.queue, net.delay) = (40 * MS, 20 * MS);
        while !rests(&net) {
            net.stream(flow(4000), 100);
        }
        (net.queue, net.delay) = (Duration::ZERO, MS);
        let began = net.now;
        while rests(&net) {
            net.stream(flow(4000), 100);
        }
        let pause = (net.now - began).as_secs_f64();
        assert!((pause - f64::from(pause_s)).abs() < 0.5, "{pause} s after {helped_ms} ms");
    }
}

#[test]
fn an_unmeasured_near_rtt_is_not_called_too_far() {
    let mut net = Net::new(limits(), MS, 100);
    let withheld = |net: &Net| net.agent.helped().next().unwrap().withheld(net.now);
    net.stream(flow(4000), 20);
    assert_eq!(withheld(&net), Some(Withheld::Unmeasured));
    net.loss_percent = 0;
    net.stream(flow(4000), 1000);
    assert_eq!(withheld(&net), None);
}

/// A marker of a program with its own sender.
fn own_marker(flow: Flow, now: Instant) -> Vec<u8> {
    let mut sender = Sender::new(SenderConfig::default(), [3; 32]);
    sender.start(flow, now);
    sender.on_timeout(now);
    let mut marker = vec![0; MAX_DATAGRAM_LEN];
    let size = sender.poll_transmit(&mut marker).unwrap().size;
    marker.truncate(size);
    marker
}

/// At -v the log names helped flows, and at -vv also the others, each once.
#[test]
fn the_log_names_the_reason_why_a_flow_is_left_alone() {
    for (level, candidates) in [(Level::INFO, 0), (Level::DEBUG, 1)] {
        let said = log_of(level, || {
            let mut net = Net::new(limits(), MS, 0);
            net.stream(flow(1), 100);
            for _ in 0..3 {
                net.send(flow(1), &own_marker(flow(1), net.now));
                net.send_next(flow(2));
                net.send(flow(2), &own_marker(flow(2), net.now));
            }
            let all = Flow { destination: ([192, 0, 2, 255], 27_036).into(), ..flow(3) };
            for number in 0..100 {
                let mut frame = framed(1, all, &encrypted(number));
                frame[..6].fill(0xff);
                net.agent.on_leaving(passing(1, &frame), net.now);
            }
        });
        for (line, count) in [
            ("192.0.2.1:1 to 198.51.100.7:443: the help ends: its program searches for a", 1),
            ("192.0.2.1:2 to 198.51.100.7:443: no help: its program searches for a", candidates),
            ("192.0.2.1:3 to 192.0.2.255:27036: no help: its packets have headers", candidates),
        ] {
            assert_eq!(said.matches(line).count(), count, "{line}: {said}");
        }
    }
}

#[test]
fn a_program_with_its_own_sender_is_left_alone() {
    let mut net = Net::new(limits(), MS, 0);
    net.stream(flow(4000), 100);
    net.send(flow(4000), &own_marker(flow(4000), net.now));
    let before = net.agent.totals();
    net.loss_percent = 10;
    net.stream(flow(4000), 300);
    assert_eq!((net.agent.totals().sent, net.agent.counts().0), (before.sent, 0));
}

#[test]
fn the_datagrams_of_a_merged_frame_are_repaired_one_by_one() {
    let mut net = Net::new(limits(), MS, 0);
    net.stream(flow(4000), 100);
    let payload: Vec<u8> =
        (0..25_000_u32).flat_map(|i| (i * 77).to_be_bytes()).take(3500).collect();
    let frame = packet(flow(4000), &payload);
    let datagram = parse(Link::Ip, &frame, frame.len()).unwrap();
    let leaving =
        Passing { interface: 0, link: Link::Ip, datagram, each: Some(1200), frame: &frame };
    net.agent.on_leaving(leaving, net.now);
    // All three are lost. Later packets reveal it.
    let missing: Vec<_> = payload.chunks(1200).map(<[u8]>::to_vec).collect();
    net.stream(flow(4000), 20);
    assert!(missing.iter().all(|payload| net.passed.contains(payload)));
    assert_eq!(net.agent.totals().resent, 3 + 1, "twice, as far as a new proxy may cost");
}

#[test]
fn a_flow_to_the_whole_network_gets_no_help() {
    let mut net = Net::new(limits(), MS, 0);
    let all = Flow { destination: ([192, 0, 2, 255], 27_036).into(), ..flow(4000) };
    for number in 0..100_u8 {
        let mut frame = framed(1, all, &[number; 60]);
        frame[..6].fill(0xff);
        net.agent.on_leaving(passing(1, &frame), net.now);
        net.run(MS);
        assert!(net.agent.pop().is_none());
    }
    assert_eq!((net.agent.totals().flows, net.agent.counts().0), (0, 0));
}

#[test]
fn copies_of_all_flows_together_are_bounded() {
    let memory = 20_000;
    let mut net = Net::new(Limits { memory, ..limits() }, MS, 0);
    let mut most = 0;
    for _ in 0..2000 {
        for port in 1..=4 {
            net.send_next(flow(port));
        }
        net.run(MS);
        let bytes = net.agent.counts().2;
        most = most.max(bytes);
        // A flow ends, and its copies with it.
        if net.next == 4000 {
            net.send(flow(1), &own_marker(flow(1), net.now));
        }
        assert_eq!(net.agent.common.memory as u64, net.agent.counts().2);
    }
    assert!((20_000 - 200..20_000 + 200).contains(&most), "{most}");
    assert_eq!(net.agent.counts().1, 3, "one has its own sender");
}

#[test]
fn a_flow_has_one_timer() {
    let mut net = Net::new(limits(), MS, 0);
    for _ in 0..15_000 / 20 {
        for port in 1..=4 {
            net.send_next(flow(port));
        }
        net.run(20 * MS);
        assert!(net.agent.common.timers.len() <= 4);
    }
    assert_eq!((net.agent.counts().1, net.agent.common.timers.len()), (4, 4));
}

#[test]
fn copies_are_kept_as_long_as_a_repair_is_possible() {
    // Without a proxy on the path, with one, and with one that does not answer.
    let configured = SenderConfig::of(PROXY.parse().unwrap());
    for (sender, answers, kept) in [
        (SenderConfig::default(), false, false),
        (SenderConfig::default(), true, true),
        (configured, false, false),
    ] {
        let mut net = Net::new(Limits { sender, ..limits() }, MS, 0);
        if !answers {
            net.loss_percent = 100;
        }
        for number in 0..5000 {
            net.send_next(flow(4000));
            net.run(MS);
            let bytes = net.agent.counts().2;
            // Those of 200 ms, with a packet each millisecond.
            assert!(bytes <= 201 * 200, "{bytes}");
            assert!(number < 4000 || (bytes > 0) == kept, "{bytes}");
        }
    }
}

#[test]
fn the_port_of_the_agent_is_free_for_others() {
    let only = vec!["1-65535".parse().unwrap()];
    let filter = Filter { only, except: Vec::new() };
    let mut net = Net::new(Limits { filter, ..limits() }, MS, 0);
    let source = ([192, 0, 2, 9], 6000).into();
    net.stream(Flow { source, ..flow(4000) }, 100);
    assert_eq!(net.agent.counts().1, 1);
    let captured = net.agent.totals().captured;
    let own = Flow { source: AGENT.parse().unwrap(), destination: PROXY.parse().unwrap() };
    for number in 0..20 {
        net.agent.on_leaving(passing(0, &packet(own, &[number; 60])), net.now);
    }
    let totals = net.agent.totals();
    assert_eq!((totals.captured, totals.flows), (captured, 1));
}

#[test]
fn flows_without_room_are_counted() {
    let mut net = Net::new(limits(), MS, 0);
    for number in 0..5000_u16 {
        let about = (0, flow(4000).source.ip());
        let message = number.to_be_bytes();
        net.agent.common.outbox.push_message(PROXY.parse().unwrap(), about, &message);
    }
    assert_eq!(net.agent.totals().unsent, 5000 - 4096);
    while let Some((_, buffer)) = net.agent.pop() {
        net.agent.give_back(buffer);
    }
    net.stream(flow(4000), 100);
    assert_eq!((net.agent.totals().unsent, net.agent.counts().1), (5000 - 4096, 1));
}

proptest! {
    #[test]
    fn nothing_from_the_network_ends_the_agent(
        message in prop::collection::vec(any::<u8>(), 0..200),
        number in any::<bool>(),
        flip in 0_usize..1600,
    ) {
        let mut net = Net::new(limits(), MS, 0);
        net.stream(flow(4000), 40);
        let mut message = message;
        if let (true, Some(known)) = (number, net.agent.common.numbers.keys().next()) {
            let header: Vec<u8> = [0x13].into_iter().chain(known.to_be_bytes()).collect();
            message.splice(..0, header);
        }
        net.agent.on_message(PROXY.parse().unwrap(), &message, net.now);
        net.answer(flow(4000), &message);
        let answer = [&[6][..], &[0; 20], b"Sidekick", &message].concat();
        net.answer(flow(4000), &answer);
        let mut frame = packet(flow(4000), &message);
        let bit = flip % (frame.len() * 8);
        frame[bit / 8] ^= 1 << (bit % 8);
        if let Ok(datagram) = parse(Link::Ip, &frame, frame.len()) {
            net.programs.insert(datagram.flow);
            let leaving =
                Passing { interface: 0, link: Link::Ip, datagram, each: Some(3), frame: &frame };
            net.agent.on_leaving(leaving, net.now);
        }
        net.drain();
        net.loss_percent = 10;
        let missing = net.stream(flow(4000), 200);
        prop_assert!(missing <= 4, "{} {:?}", missing, net.agent.totals());
    }
}
