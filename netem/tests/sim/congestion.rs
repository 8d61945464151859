//! Congestion that delays nothing: what a plain flow has beside a helped one, and what is dropped.

use crate::support::jobs::{goodput, median_of, runs};

const SEEDS: u64 = 3;
/// Before the proxy is the bottleneck. Nothing else loses packets.
const PATH: [&str; 9] = [
    "flow.cc=bbr2",
    "flow.bytes=1000000000",
    "flow.seconds=20",
    "near.delay_ms=5",
    "near.loss_percent=0",
    "near.rate_mbit=30",
    "near.queue_bytes=15000",
    "far.rate_mbit=300",
    "far.queue_bytes=1500000",
];

/// The queue delays packets by 4 ms at most.
#[test]
fn help_takes_no_more_of_a_short_queue_than_its_controller() {
    for competitor in ["competitor.cc=bbr2", "competitor.cc=cubic"] {
        let [plain, helped] = ["sidekick.mode=off", "sidekick.mode=auto"].map(|mode| {
            let records = runs("upload-paper", SEEDS, &[&PATH, &[competitor, mode]]);
            let other = median_of(&records, |record| {
                record.competitor.as_ref().map_or(0.0, |flow| flow.goodput_mbit_s)
            });
            let drops = median_of(&records, |record| record.packets.lost_near as f64);
            (goodput(&records), other, drops)
        });
        println!("{competitor}: goodput, the other's, drops: {plain:?}, helped {helped:?}");
        assert!(helped.0 >= 0.9 * plain.0, "{competitor}: the helped flow is slower");
        assert!(helped.1 >= 0.85 * plain.1, "{competitor}: the other flow is slower");
        assert!(helped.2 <= 1.3 * plain.2, "{competitor}: more packets are dropped");
    }
}

/// With random losses besides, the helped flow is at least as fast as if there were none of them,
/// or no queue.
#[test]
fn of_a_mixture_the_random_losses_are_repaired() {
    let with = |settings: &[&str]| goodput(&runs("upload-paper", SEEDS, &[&PATH, settings]));
    let without = with(&["sidekick.mode=off", "near.loss_percent=0"]);
    let mixture = with(&["sidekick.mode=auto", "near.loss_percent=2"]);
    println!("without random loss and help {without:.2}, with 2 % and help {mixture:.2} Mbit/s");
    assert!(mixture >= 0.95 * without);
}

/// CUBIC fills the queue before the proxy if it hears of no random loss, as it does where there are
/// none. Without help it has 1.4 Mbit/s.
#[test]
fn a_queue_alone_withholds_no_repair_for_long() {
    let settings = [
        "sidekick.mode=agent-in-order",
        "flow.bytes=20000000",
        "near.rate_mbit=20",
        "far.rate_mbit=100",
        "near.loss_percent=4",
    ];
    let goodput = goodput(&runs("upload-paper", SEEDS, &[&settings]));
    println!("{goodput:.2} Mbit/s");
    assert!(goodput > 9.0, "{goodput} Mbit/s");
}
