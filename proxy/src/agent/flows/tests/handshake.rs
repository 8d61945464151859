//! Handshakes, and the round trip that they show.

use super::*;

/// An Initial packet of QUIC (RFC 9000, section 17.2.2), with this end.
pub(super) fn initial(end: u8) -> Vec<u8> {
    [&[0xc3, 0, 0, 0, 1, 8][..], &[5; 1190], &[end; 4]].concat()
}

#[test]
fn a_repair_that_would_be_late_is_not_sent() {
    for (near, whole, repairs) in [(2, 100, true), (9, 100, true), (11, 100, false)] {
        let mut net = Net::new(limits(), near * MS, 0);
        net.send(flow(4000), &[&[0xc3, 0, 0, 0, 1, 8][..], &[5; 1194]].concat());
        net.run(whole * MS);
        net.answer(flow(4000), &[0x40; 50]);
        net.stream(flow(4000), 300);
        let handshake = net.agent.totals().resent;
        net.loss_percent = 5;
        net.stream(flow(4000), 1000);
        let totals = net.agent.totals();
        assert!(totals.lost > 20, "{totals:?}");
        assert_eq!(totals.resent > handshake, repairs, "{near} of {whole}: {totals:?}");
        assert_eq!(totals.withheld_far > 0, !repairs, "{near} of {whole}: {totals:?}");
    }
}

#[test]
fn a_handshake_that_no_proxy_counted_is_sent_again() {
    for lost in [0, 100] {
        let mut net = Net::new(limits(), MS, 0);
        for number in [1, 2] {
            // The marker behind it arrives.
            net.loss_percent = lost;
            net.programs.insert(flow(4000));
            net.leave(0, framed(0, flow(4000), &initial(number)));
            net.loss_percent = 0;
            net.drain();
        }
        // The marker, its answer, and the repair.
        net.run(4 * MS);
        assert!([1, 2].iter().all(|number| net.passed.contains(&initial(*number))), "{lost} %");
        net.run(500 * MS);
        assert_eq!(net.agent.totals().resent, 2, "once each, lost or not");
    }
    // Without a proxy the agent repeats no handshake.
    let mut net = Net::new(limits(), MS, 100);
    net.send(flow(4000), &initial(1));
    net.run(500 * MS);
    assert_eq!(net.agent.totals().resent, 0);
}

/// If the operator names the proxy, the agent asks it at once, and does not wait for its answer.
#[test]
fn few_packets_of_a_handshake_are_sent_again() {
    let sender = SenderConfig::of(PROXY.parse().unwrap());
    let mut net = Net::new(Limits { sender, ..limits() }, MS, 100);
    net.agent.set_local(&HashSet::from([flow(4000).source.ip()]), &HashSet::new());
    for number in 1..=20 {
        net.send(flow(4000), &initial(number));
        let expected = u64::from(number).min(8);
        assert_eq!(net.agent.totals().resent, expected, "after {number}");
    }
    net.run(500 * MS);
    assert_eq!(net.agent.totals().resent, 8);
}

#[test]
fn the_round_trip_is_measured_while_a_flow_is_helped() {
    // Each case has the milliseconds from one Initial packet to the next, and from that to the
    // answer. The proxy is too far away for a round trip of less than 48 ms.
    for (apart, answer, repairs) in [
        (0, 20, false),
        (0, 60, true),
        // The first one was lost.
        (1000, 20, false),
        (1000, 60, true),
        // The first one was not lost: the answer to the second cannot arrive before the proxy's.
        (300, 1, true),
    ] {
        let mut net = Net::new(limits(), 3 * MS, 0);
        net.send(flow(4000), &initial(1));
        net.run(apart * MS);
        net.send(flow(4000), &initial(2));
        assert_eq!(net.agent.counts().0, 1, "helped from its first packet on");
        net.run(answer * MS);
        net.answer(flow(4000), &[0x40; 50]);
        net.stream(flow(4000), 300);
        let handshake = net.agent.totals().resent;
        net.loss_percent = 5;
        net.stream(flow(4000), 500);
        let totals = net.agent.totals();
        let case = format!("{apart} {answer}: {totals:?}");
        assert!(totals.lost > 10, "{case}");
        let repaired = totals.resent > handshake;
        assert_eq!((repaired, totals.withheld_far > 0), (repairs, !repairs), "{case}");
    }
}

#[test]
fn a_round_trip_shorter_than_the_proxy_s_is_rejected() {
    let mut net = Net::new(limits(), 3 * MS, 0);
    net.send(flow(4000), &initial(1));
    net.run(MS);
    net.answer(flow(4000), &[0x40; 50]);
    net.stream(flow(4000), 300);
    net.loss_percent = 5;
    net.stream(flow(4000), 500);
    let totals = net.agent.totals();
    assert!(totals.resent > 10 && totals.withheld_far == 0, "{totals:?}");
    let [report] = &net.agent.flows(9, |_| String::new(), net.now)[..] else { panic!() };
    assert_eq!((report.near_rtt_ms, report.rtt_ms), (Some(6.0), None));
}

#[test]
fn a_flow_that_began_before_the_agent_shows_no_round_trip() {
    let mut net = Net::new(limits(), MS, 0);
    // The next arrival may answer a packet that left long before.
    net.send_next(flow(4000));
    net.run(MS);
    net.answer(flow(4000), &[0x40; 50]);
    net.stream(flow(4000), 300);
    net.loss_percent = 5;
    net.stream(flow(4000), 500);
    let totals = net.agent.totals();
    assert!(totals.resent > 20 && totals.withheld_far == 0, "{totals:?}");
}

#[test]
fn a_handshake_without_memory_spends_no_repairs() {
    let mut net = Net::new(Limits { memory: 0, ..limits() }, MS, 0);
    for number in 1..=20 {
        net.send(flow(4000), &initial(number));
    }
    // There is memory from here on. The packets that the agent kept can still leave again.
    net.agent.limits.memory = 1 << 20;
    for number in 21..=40 {
        net.send(flow(4000), &initial(number));
    }
    net.run(100 * MS);
    assert_eq!(net.agent.totals().resent, 8, "{:?}", net.agent.totals());
}
