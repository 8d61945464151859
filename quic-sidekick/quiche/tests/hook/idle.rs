//! Without a session, the hooked quiche sends the same datagrams as the pristine one.
//!
//! Both upload the same data over the same seeded path in virtual time, with the same random
//! numbers. Every datagram must have the same time, direction and size.

use crate::hooked::transfer::Assist;
use crate::{hooked, stock};
use quiche::sidekick::Reaction;
use quiche::Connection;

const CONTROLLERS: [&str; 3] = ["cubic", "reno", "bbr2_gcongestion"];
/// Losses on the near segment, on the far one and of acknowledgements, in 1/1000.
const LOSSES: [(u64, u64, u64); 4] = [(0, 0, 0), (20, 0, 0), (10, 10, 10), (80, 20, 50)];

fn scenarios() -> impl Iterator<Item = hooked::transfer::Scenario> {
    CONTROLLERS.into_iter().flat_map(|controller| {
        LOSSES.into_iter().zip(1..).map(move |((near_loss, far_loss, ack_loss), seed)| {
            hooked::transfer::Scenario {
                near_loss,
                far_loss,
                ack_loss,
                ..hooked::transfer::Scenario::new(controller, seed)
            }
        })
    })
}

fn run_hooked(
    scenario: &hooked::transfer::Scenario,
    assist: &mut dyn Assist,
) -> hooked::transfer::Outcome {
    hooked::transfer::upload(scenario, assist).0
}

/// The pristine engine over the same path. Its outcome has another module's types with the same
/// fields.
fn run_stock(scenario: &hooked::transfer::Scenario) -> hooked::transfer::Outcome {
    let scenario = stock::transfer::Scenario {
        near_loss: scenario.near_loss,
        far_loss: scenario.far_loss,
        ack_loss: scenario.ack_loss,
        ..stock::transfer::Scenario::new(scenario.controller, scenario.seed)
    };
    let outcome = stock::transfer::upload(&scenario, &mut stock::transfer::Unassisted).0;
    hooked::transfer::Outcome {
        finished: outcome.finished,
        datagrams: outcome.datagrams,
        received: outcome.received,
        lost: outcome.lost,
    }
}

#[track_caller]
fn assert_same(a: &hooked::transfer::Outcome, b: &hooked::transfer::Outcome, what: &str) {
    let differs = a.datagrams.iter().zip(&b.datagrams).position(|(a, b)| a != b);
    assert_eq!(differs, None, "datagrams differ: {what}");
    assert_eq!(a.datagrams.len(), b.datagrams.len(), "{what}");
    assert!(a == b, "{what}");
}

#[test]
fn idle_hook_sends_what_stock_sends() {
    for scenario in scenarios() {
        let stock = run_stock(&scenario);
        assert!(stock.received == hooked::transfer::payload(scenario.bytes), "{scenario:?}");
        assert_same(
            &run_hooked(&scenario, &mut hooked::transfer::Unassisted),
            &stock,
            &format!("{scenario:?}"),
        );
    }
}

/// Keeps the log, and may report one packet that was not lost.
struct Listener {
    report: bool,
    seen: usize,
}

impl Assist for Listener {
    fn attach(&mut self, client: &mut Connection) {
        client.sidekick_log(64);
    }

    fn sent(
        &mut self,
        client: &mut Connection,
        _datagram: &[u8],
        _now: u64,
        _at_proxy: Option<u64>,
    ) {
        let last = client.sidekick_logged().last().copied();
        client.sidekick_clear_log();
        let Some(packet) = last else { return };
        self.seen += 1;
        if self.report && self.seen == 100 {
            let numbers = [packet.packet_number];
            let declared = client.sidekick_early_lost(
                packet.path_id,
                &numbers,
                Reaction::Neutered,
                packet.time_sent,
            );
            assert_eq!(declared, 1);
        }
    }
}

#[test]
fn log_alone_changes_nothing() {
    for scenario in scenarios() {
        let mut listener = Listener { report: false, seen: 0 };
        let hooked = run_hooked(&scenario, &mut listener);
        assert_same(&hooked, &run_stock(&scenario), &format!("{scenario:?}"));
        assert!(listener.seen > 700, "the log saw {} packets", listener.seen);
    }
}

/// Reports gaps, as a client does that has not found a proxy that keeps copies.
struct Receiver {
    gaps: usize,
}

impl Assist for Receiver {
    fn begin(&mut self, client: &mut Connection) {
        client.sidekick_report_gaps();
    }

    fn sent(
        &mut self,
        client: &mut Connection,
        _datagram: &[u8],
        _now: u64,
        _at_proxy: Option<u64>,
    ) {
        self.gaps += std::iter::from_fn(|| client.sidekick_gap_event()).count();
    }
}

#[test]
fn reports_of_gaps_alone_change_nothing() {
    for scenario in scenarios() {
        let mut receiver = Receiver { gaps: 0 };
        let hooked = run_hooked(&scenario, &mut receiver);
        assert_same(&hooked, &run_stock(&scenario), &format!("{scenario:?}"));
        assert!(receiver.gaps > 0);
    }
}

/// The comparison can fail: one early loss in one upload is enough.
#[test]
fn one_report_makes_a_difference() {
    for scenario in scenarios() {
        let hooked = run_hooked(&scenario, &mut Listener { report: true, seen: 0 });
        assert!(hooked.received == hooked::transfer::payload(scenario.bytes), "{scenario:?}");
        assert!(hooked.datagrams != run_stock(&scenario).datagrams, "{scenario:?}");
    }
}
