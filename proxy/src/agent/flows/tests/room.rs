//! Which flows have a place.

use sidekick_protocol::{Addresses, Observer, ObserverConfig};

use super::arriving::{pinned, rtp, tunnelled};
use super::*;
use crate::agent::flows::room::{CANDIDATES, CANDIDATES_ARRIVING};

/// A data message of `WireGuard`.
const DATA: [u8; 64] = {
    let mut data = [9; 64];
    (data[0], data[1], data[2], data[3]) = (4, 0, 0, 0);
    data
};

#[test]
fn a_million_flows_are_bounded() {
    let mut net = Net::new(limits(), MS, 0);
    for number in 0..1_000_000_u32 {
        let source = SocketAddr::from((std::net::Ipv4Addr::from(0x0a00_0000 + number), 4000));
        let flow = Flow { source, ..flow(4000) };
        let frame = packet(flow, &DATA);
        for _ in 0..1 + number % 9 {
            net.agent.on_leaving(passing(0, &frame), net.now);
        }
        net.programs.insert(flow);
        net.drain();
        assert!(net.agent.flows.len() <= CANDIDATES + 4);
        assert!(net.agent.common.timers.len() <= 4);
        net.now += MS / 10;
    }
    assert_eq!(net.agent.counts().0, 4);
    net.run(Duration::from_secs(40));
    assert_eq!(net.agent.flows.len(), 0, "all were idle");
    assert!(net.agent.common.numbers.is_empty());
    net.run(Duration::from_secs(40));
    assert_eq!(net.agent.poll_timeout(), None, "no timer is left");
}

#[test]
fn a_scan_of_the_network_keeps_no_flow_out() {
    let mut net = Net::new(limits(), MS, 0);
    for number in 0..20_000_u32 {
        let source = SocketAddr::from((std::net::Ipv4Addr::from(0x0a00_0000 + number), 4000));
        let other = Flow { source, ..flow(4000) };
        net.agent.on_leaving(passing(0, &packet(other, &DATA)), net.now);
        // The program of each fourth one has its own sender.
        if number % 4 == 0 {
            let marker = packet(other, &own_marker(other, net.now));
            net.agent.on_leaving(passing(0, &marker), net.now);
        }
        assert!(net.agent.flows.len() <= CANDIDATES + 4);
        assert!(net.agent.unhelped.len() <= 2 * CANDIDATES);
        if number > 10_000 && number % 20 == 0 {
            net.send_next(flow(4000));
        }
        net.run(MS);
    }
    assert_eq!(net.agent.counts().1, 1);
    // The agent still knows the flows that it leaves alone, if they have packets.
    let alone = net.agent.flows.values().filter(|entry| matches!(entry, Entry::LeftAlone(_)));
    assert!(alone.count() >= 5000 / 4);
}

/// Four flows that pass one packet in so many milliseconds, until another one had some for six
/// seconds, too. Returns whether that one is helped.
fn finds_a_place(
    net: &mut Net,
    others: impl Fn(u16) -> Flow,
    [spacing, its_own]: [u64; 2],
    newcomer: Flow,
) -> bool {
    (1..=4).for_each(|number| (0..8).for_each(|_| drop(net.send_next(others(number)))));
    assert_eq!(net.agent.counts().0, 4);
    for now in 0..10_000 {
        if now % spacing == 0 {
            (1..=4).for_each(|number| drop(net.send_next(others(number))));
        }
        if now > 4000 && now % its_own == 0 {
            net.send_next(newcomer);
        }
        net.run(MS);
    }
    assert_eq!(net.agent.counts().0, 4);
    let helped = net.agent.flows(9, |_| String::new(), net.now);
    helped.iter().any(|report| report.source == newcomer.source)
}

#[test]
fn slow_flows_make_room_for_another() {
    for (spacings, makes_room) in
        [([100_000, 20], true), ([1500, 20], true), ([20, 20], false), ([50, 1], true)]
    {
        let mut net = Net::new(limits(), MS, 0);
        assert_eq!(finds_a_place(&mut net, flow, spacings, flow(9)), makes_room, "{spacings:?}");
    }
}

/// The proxy has places for four flows of an address.
#[test]
fn slow_flows_do_not_keep_the_places_of_a_proxy() {
    let mut net = Net::new(Limits { max_flows: 100, ..limits() }, MS, 0);
    let config = ObserverConfig { max_sessions_per_source: 4, ..ObserverConfig::default() };
    net.proxy = Observer::new(config, [7; 32]).unwrap();
    net.proxy.set_addresses(Addresses::announcing(0, PROXY.parse().unwrap()));
    for port in 1..=4 {
        net.stream(flow(port), 20);
    }
    assert_eq!(net.agent.counts().1, 4);
    for number in 0..20_000 {
        if number % 1000 == 0 {
            (1..=4).for_each(|port| drop(net.send_next(flow(port))));
        }
        if number % 20 == 0 {
            net.send_next(flow(9));
        }
        net.run(MS);
    }
    let helped = net.agent.flows(99, |_| String::new(), net.now);
    let busy = helped.iter().find(|report| report.source.port() == 9).unwrap();
    assert!(busy.assisted, "{helped:?}");
}

#[test]
fn a_host_does_not_take_all_places_of_a_router() {
    let mut net = Net::new(limits(), MS, 0);
    let other = Flow { source: "192.0.2.9:4000".parse().unwrap(), ..flow(9) };
    assert!(finds_a_place(&mut net, flow, [20, 20], other));
    let helped = net.agent.flows(9, |_| String::new(), net.now);
    let count = helped.iter().filter(|report| report.source.ip() == flow(1).source.ip()).count();
    assert_eq!(count, 3, "one gave way");
}

/// A stranger can send such packets, under any address.
#[test]
fn flows_that_only_arrive_leave_room_for_the_hosts_own() {
    let max_flows = 16;
    let mut net = pinned(Limits { max_flows, ..limits() });
    let busy = u16::try_from(max_flows).unwrap();
    // The agent sends along the paths of all flows.
    net.programs.extend((0..busy).map(|port| flow(5000 + port)));
    for number in 0..20 {
        for port in 0..busy {
            net.arriving(flow(5000 + port).reversed(), &tunnelled(number));
        }
        net.drain();
        net.run(10 * MS);
    }
    assert_eq!(net.agent.counts().0, 2, "an eighth");
    assert_eq!(net.agent.totals().flows_refused, u64::from(busy) - 2);
    for port in 4000..4000 + busy {
        for _ in 0..8 {
            net.send_next(flow(port));
        }
    }
    let helped = net.agent.flows(99, |_| String::new(), net.now);
    assert_eq!(helped.len(), max_flows);
    assert!(helped.iter().all(|report| report.source.port() < 5000), "{helped:?}");
    // None of them gives way.
    net.arriving(flow(5000).reversed(), &tunnelled(99));
    assert_eq!(net.agent.flows(99, |_| String::new(), net.now), helped);
}

#[test]
fn arrivals_with_false_sources_keep_no_flow_out() {
    let mut net = pinned(limits());
    (0..4).for_each(|_| drop(net.send_next(flow(4000))));
    for number in 0..20_000_u32 {
        let from = SocketAddr::from((std::net::Ipv4Addr::from(0x0a00_0000 + number), 4000));
        net.arriving(Flow { source: from, destination: flow(9).source }, &rtp(1, 1));
        assert!(net.agent.unhelped_arriving.len() <= CANDIDATES_ARRIVING);
        assert!(net.agent.flows.len() <= 1 + CANDIDATES_ARRIVING);
    }
    assert_eq!(net.agent.totals().forgotten, 20_000 - CANDIDATES_ARRIVING as u64);
    (0..4).for_each(|_| drop(net.send_next(flow(4000))));
    assert_eq!(net.agent.counts().0, 1, "its first packets count");
}

#[test]
fn a_host_that_scans_the_network_keeps_no_other_out() {
    let mut net = Net::new(limits(), MS, 0);
    let slow = Flow { source: "192.0.2.9:4000".parse().unwrap(), ..flow(9) };
    for number in 0..40_000_u32 {
        let to = SocketAddr::from((std::net::Ipv4Addr::from(0x0a00_0000 + number), 4000));
        let scan = Flow { source: flow(1).source, destination: to };
        net.agent.on_leaving(passing(0, &packet(scan, &DATA)), net.now);
        if number % 5000 == 0 {
            net.send_next(slow);
        }
    }
    assert_eq!(net.agent.counts().0, 1);
    assert!(net.agent.totals().forgotten > 30_000);
}
