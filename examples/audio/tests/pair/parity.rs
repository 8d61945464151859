//! Calls with parity for the listener. The proxy is beside the talker.

use crate::path::{MS, Passing, Path, proxy};
use audio::listener::{Protected, sender_config};
use audio::{End as _, ListenerConfig, TalkerConfig};
use std::cell::Cell;
use std::time::Duration;

/// The one-way delay between the listener and the proxy.
const NEAR: Duration = Duration::from_millis(30);
const INTERVAL: Duration = Duration::from_millis(20);
/// A NACK waits this long after the parity that may replace it is due.
const SLACK: Duration = Duration::from_millis(5);

/// A call with this share of parity, of which the path loses datagrams.
fn call<L: FnMut(Passing) -> bool>(share: Option<f64>, loses: L) -> Path<L> {
    let talks = TalkerConfig { packets: 400, ..TalkerConfig::of_simulation(1) };
    let protected = share.map(|share| Protected {
        sender: sender_config(proxy()),
        share,
        interval: INTERVAL,
        seed: [7; 32],
    });
    let listens = ListenerConfig { protected, ..ListenerConfig::default() };
    Path::new(talks, listens, [Duration::ZERO, NEAR], loses)
}

/// Whether the listener's hop loses the first transmission of one of these packets.
fn hop(lost: &[u32], passing: Passing) -> bool {
    matches!(passing, Passing::Far { sequence, attempt: 0 } if lost.contains(&sequence))
}

/// Whether the first transmission of one of these packets is lost before the proxy.
fn before(lost: &[u32], passing: Passing) -> bool {
    matches!(passing, Passing::Near { sequence, attempt: 0 } if lost.contains(&sequence))
}

impl<L> Path<L> {
    fn nacks(&self) -> u64 {
        self.listener.report().nacks.packets
    }
}

/// When the packet with this number leaves.
fn leaves(packet: u32) -> Duration {
    packet * INTERVAL
}

#[test]
fn a_lost_packet_is_rebuilt_before_it_is_requested() {
    let lost: Vec<_> = (50..350).step_by(7).collect();
    // A NACK and its answer take a round trip.
    for (share, rebuilt, nacks, waits) in [(Some(1.0), 43, 0, 0.0..1.0), (None, 0, 43, 59.0..61.0)]
    {
        let mut call = call(share, |passing| hop(&lost, passing));
        call.run_until(leaves(400) + 2000 * MS);
        let report = call.listener.report();
        assert!(report.complete && call.listener.is_finished());
        assert_eq!((report.played, report.late, report.nacks.packets), (400, 0, nacks));
        assert_eq!(report.parity.as_ref().map_or(0, |parity| parity.rebuilt), rebuilt);
        let longest = report.dejitter_ms.max;
        assert!(waits.contains(&longest), "{longest} ms");
    }
}

#[test]
fn a_nack_waits_for_parity_while_some_arrives() {
    let without_parity = Cell::new(false);
    let mut call = call(Some(0.5), |passing| match passing {
        Passing::Parity => without_parity.get(),
        other => hop(&[100, 140, 180], other),
    });
    call.run_until(leaves(100) - MS);
    assert!(call.listener.report().parity.unwrap().received > 20);
    without_parity.set(true);
    // The loss shows when the next packet arrives.
    let shows = leaves(101) + NEAR;
    call.run_until(shows + 2 * INTERVAL + SLACK - MS);
    assert_eq!(call.nacks(), 0, "parity may still arrive");
    call.run_until(shows + 2 * INTERVAL + SLACK);
    assert_eq!(call.nacks(), 1);
    // No parity has arrived for a long time.
    call.run_until(leaves(141) + NEAR - MS);
    assert_eq!(call.nacks(), 1);
    call.run_until(leaves(141) + NEAR);
    assert_eq!(call.nacks(), 2);
    // Parity arrives again when the windows no longer contain these losses.
    call.run_until(leaves(160));
    without_parity.set(false);
    call.run_until(leaves(200));
    let report = call.listener.report();
    assert_eq!((report.nacks.packets, report.parity.unwrap().rebuilt), (2, 1));
}

#[test]
fn a_nack_of_a_loss_before_the_proxy_waits_only_for_a_list() {
    let mut call = call(Some(0.5), |passing| before(&[100, 120, 121, 300], passing));
    // A list arrives with this packet or the next one.
    for (packet, nacks) in [(101, 1), (122, 3), (301, 4)] {
        call.run_until(leaves(packet) + NEAR - MS);
        assert!(call.nacks() < nacks, "{packet}");
        call.run_until(leaves(packet + 1) + NEAR);
        assert_eq!(call.nacks(), nacks, "{packet}");
    }
    call.run_until(leaves(400) + 2000 * MS);
    let report = call.listener.report();
    assert_eq!((report.played, report.late, report.nacks.packets), (400, 0, 4));
    assert_eq!(report.parity.unwrap().rebuilt, 0);
}

#[test]
fn a_refused_datagram_begins_no_gap() {
    // The proxy did not list the refused datagram, so no list shows what passed after it.
    for refused in [&[0x80; 200][..], b"no packet"] {
        let mut call = call(Some(0.5), |passing| before(&[100], passing));
        call.run_until(leaves(99) + NEAR + MS);
        assert!(call.listener.handle_input(refused, call.now).is_err());
        call.run_until(leaves(102) + NEAR);
        assert_eq!(call.nacks(), 1, "{refused:?}");
    }
}

#[test]
fn a_burst_is_requested_at_once() {
    let mut call = call(Some(0.5), |passing| hop(&[100, 120, 121, 122, 123], passing));
    call.run_until(leaves(103) + NEAR);
    assert_eq!((call.nacks(), call.listener.played()), (0, 104));
    // The necessary repair symbols take longer than a round trip.
    call.run_until(leaves(124) + NEAR);
    assert_eq!(call.nacks(), 4);
}

#[test]
fn parity_lasts_as_long_as_the_call() {
    let mut call = call(Some(0.5), |_| false);
    call.run_until(leaves(390));
    let parity = call.listener.report().parity.unwrap();
    // The first parity follows after a few round trips.
    assert!((170..=200).contains(&parity.received), "{parity:?}");
    assert!(call.listener.report().packets.rejected == 0, "an answer is no packet");
}
