//! The goodput of every sender by loss, in virtual time. Snapshots show each change of behaviour as
//! a difference. Other tests compare the goodput with published figures.
//!
//! `make tables` accepts a new table. Commit it together with the change that made it.

use sidekick_netem::record::RunRecord;

use crate::support::jobs::{goodput, median_of, runs, times};
use crate::support::seeds::some;
use crate::support::table::{Table, is_whole};

/// The rows of a table: the name and the settings of each.
const SENDERS: [(&str, &[&str]); 11] = [
    ("stock CUBIC", &["flow.cc=cubic"]),
    ("RFC 9438 CUBIC", &["flow.cc=cubic-rfc9438"]),
    ("Reno", &["flow.cc=reno"]),
    ("BBR2", &["flow.cc=bbr2"]),
    ("early loss, RFC 9438 CUBIC", &["sidekick.mode=early-loss", "flow.cc=cubic-rfc9438"]),
    ("PACUBIC", &["sidekick.mode=pacubic"]),
    ("path-aware BBR2", &["sidekick.mode=path-aware-bbr"]),
    ("path-aware BBR2, every 2 ms", &["sidekick.mode=path-aware-bbr", "sidekick.every_ms=2"]),
    ("re-injection, stock CUBIC", &["sidekick.mode=reinject", "flow.cc=cubic"]),
    ("auto", &["sidekick.mode=auto"]),
    ("split proxy, RFC 9438 CUBIC", &["flow.split=near", "flow.cc=cubic-rfc9438"]),
];
const LOSSES: [&str; 7] = ["0", "1", "2", "4", "8", "15", "30"];

const SNAPSHOT: &str = include_str!("../snapshots/tables__goodput_against_near_loss.snap");

fn table() -> Table {
    Table {
        corner: "near loss, percent",
        columns: LOSSES.map(str::to_owned).to_vec(),
        rows: SENDERS.map(|(name, _)| name.to_owned()).to_vec(),
        name: 28,
        width: 7,
        slow: &[],
    }
}

#[test]
fn goodput_against_near_loss() {
    const SEEDS: u64 = 10;
    assert_snapshot!(
        "tables__goodput_against_near_loss",
        table().text(SNAPSHOT, |row, column| {
            let loss = format!("near.loss_percent={}", LOSSES[column]);
            let settings = [SENDERS[row].1, &[&loss, "flow.bytes=4194304"]];
            format!("{:.2}", goodput(&runs("upload-paper", SEEDS, &settings)))
        })
    );
}

/// The least goodput of `auto`, of PACUBIC, and of re-injection over the most usual controller: 10
/// MiB, as in the paper.
#[test]
fn loss_before_the_proxy_costs_no_goodput() {
    const SEEDS: u64 = 9;
    let senders = [
        (&["sidekick.mode=auto"][..], [9.1, 9.0, 9.1, 9.1, 9.05, 9.0, 8.6]),
        (&["sidekick.mode=pacubic"], [8.9, 8.9, 8.9, 8.8, 7.5, 6.3, 1.2]),
        (&["sidekick.mode=reinject", "flow.cc=cubic"], [8.8, 8.8, 8.8, 8.8, 7.9, 7.4, 6.2]),
    ];
    let cases = senders.into_iter().flat_map(|(sender, least)| {
        LOSSES.into_iter().zip(least).map(move |(loss, least)| (sender, loss, least))
    });
    for (sender, loss, least) in some(8, cases) {
        let loss = format!("near.loss_percent={loss}");
        let settings = [sender, &[loss.as_str()]];
        let goodput = goodput(&runs("upload-paper", SEEDS, &settings));
        println!("{settings:?}: {goodput:.2} Mbit/s");
        assert!(goodput >= least, "{settings:?}: {goodput} Mbit/s, and not {least}");
    }
}

/// Bursts of losses with five packets on average, as on a radio link: Gilbert-Elliott.
#[test]
fn bursts_of_loss_before_the_proxy_cost_little() {
    const SEEDS: u64 = 10;
    for (loss, least) in some(4, [(1.0, 9.1), (4.0, 9.0), (15.0, 8.9), (30.0, 8.4)]) {
        // A packet leaves the bad state with probability 1/5. The chance to enter it gives a mean
        // loss of `loss`.
        let enter = format!("near.bad_enter_percent={:.4}", 20.0 * loss / (100.0 - loss));
        let settings =
            ["sidekick.mode=auto", "near.loss_percent=0", "near.bad_leave_percent=20", &enter];
        let records = runs("upload-paper", SEEDS, &[&settings]);
        let goodput = goodput(&records);
        let lost = |record: &RunRecord| {
            100.0 * record.packets.lost_near as f64
                / record.links.near.to_receiver.link.packets as f64
        };
        let mean = median_of(&records, lost);
        println!("bursts, {mean:.1} % of {loss} %: {goodput:.2} Mbit/s");
        assert!((mean / loss - 1.0).abs() < 0.2, "{mean} % lost where {loss} % was meant");
        assert!(goodput >= least, "{settings:?}: {goodput} Mbit/s, and not {least}");
    }
}

/// Small uploads consist of handshakes and tails, where a loss costs a timeout. There are no more
/// timeouts than without help, and far fewer long ones. BBR2 paces its first packets. That costs it
/// 3 ms of 120, compared with CUBIC.
#[test]
fn small_uploads_wait_for_fewer_timeouts() {
    const SEEDS: u64 = 200;
    let of = |sender: &str, bytes: &str, loss: &str| {
        let settings = [sender, bytes, loss];
        let (p50, p99) = times(&runs("upload-paper", SEEDS, &[&settings]));
        println!("{settings:?}: {p50:.0} ms, 99th percentile {p99:.0} ms");
        (p50, p99)
    };
    for bytes in some(3, ["flow.bytes=10000", "flow.bytes=100000", "flow.bytes=1000000"]) {
        for (loss, of_cubic) in [("near.loss_percent=1", 0.45), ("near.loss_percent=4", 0.3)] {
            let auto = of("sidekick.mode=auto", bytes, loss);
            let bbr2 = of("flow.cc=bbr2", bytes, loss);
            let cubic = of("flow.cc=cubic", bytes, loss);
            assert!(
                auto.0 <= 1.03 * bbr2.0.min(cubic.0),
                "{bytes}, {loss}: {auto:?} {bbr2:?} {cubic:?}"
            );
            assert!(
                auto.1 <= (0.85 * bbr2.1).min(of_cubic * cubic.1),
                "{bytes}, {loss}: {auto:?} {bbr2:?} {cubic:?}"
            );
        }
    }
}

/// A loss on a stream delays all messages behind it until the sender detects it.
#[test]
fn messages_hardly_wait_for_those_lost_before_the_proxy() {
    const SEEDS: u64 = 5;
    let p99 = |settings: &[&str]| {
        let records = runs("messages", SEEDS, &[settings]);
        let p99 = median_of(&records, |record| record.head_of_line_ms.unwrap().p99);
        println!("{settings:?}: 99th percentile of the head-of-line delay {p99:.1} ms");
        p99
    };
    let plain = p99(&["flow.cc=bbr2"]);
    assert!(plain > 50.0, "the sender cannot detect a loss within a round trip: {plain} ms");
    // This also holds with the quACKs of the default schedule, where the polls do the work.
    for frequency in ["sidekick.every_packets=1", "sidekick.every_packets=off"] {
        let helped = p99(&["sidekick.mode=auto", frequency]);
        assert!(helped <= plain / 4.0, "{frequency}: {helped} ms, and {plain} ms without help");
    }
}

/// A loss-based sender that waits until a whole packet fits its window sends fewer packets. It is
/// no slower, with help and without.
#[test]
fn whole_packets_are_fewer() {
    const SEEDS: u64 = 3;
    let senders = [
        &["flow.cc=cubic"][..],
        &["sidekick.mode=reinject", "flow.cc=cubic"],
        &["sidekick.mode=pacubic"],
    ];
    for sender in some(3, senders) {
        let run = |whole| {
            let settings = [sender, &["near.loss_percent=1", whole]];
            let records = runs("upload-paper", SEEDS, &settings);
            let sent = median_of(&records, |record| record.packets.sent as f64);
            let goodput = goodput(&records);
            println!("{settings:?}: {sent} packets, {goodput:.2} Mbit/s");
            (sent, goodput)
        };
        let ((usual, before), (whole, after)) =
            (run("flow.whole_packets=off"), run("flow.whole_packets=on"));
        assert!(whole <= 0.85 * usual, "{sender:?}: {whole} packets, and {usual}");
        assert!(after >= before, "{sender:?}: {after} Mbit/s, and {before}");
    }
}

/// A receiver acknowledges every 50 ms if the proxy reports to its sender. The transfer takes no
/// longer.
#[test]
fn acknowledgements_can_be_few() {
    const SEEDS: u64 = 5;
    let run = |settings: &[&str]| {
        let records = runs("ack-reduction-paper", SEEDS, &[settings]);
        let goodput = goodput(&records);
        let packets = median_of(&records, |record| record.ack_packets as f64);
        println!("{settings:?}: {packets} packets from the receiver, {goodput:.2} Mbit/s");
        (packets, goodput)
    };
    let seldom = ["sidekick.mode=ack-reduction", "flow.ack_packets=65535", "flow.ack_delay_ms=50"];
    let (usual, plain) = run(&["flow.cc=cubic"]);
    let (few, helped) = run(&seldom);
    assert!(
        few <= 0.03 * usual && helped >= 0.99 * plain,
        "{few} of {usual}, {helped} of {plain} Mbit/s"
    );
    let losses = [
        // The receiver reports losses behind the proxy, and the sender detects them as before.
        ("far.loss_percent=1", 1.0),
        // The proxy reports losses before it. The sender detects these sooner, so stock CUBIC
        // undoes fewer of its reactions.
        ("near.loss_percent=1", 0.9),
    ];
    for (loss, least) in some(2, losses) {
        let (_, plain) = run(&["flow.cc=cubic", loss]);
        let (_, helped) = run(&[&seldom[..], &[loss]].concat());
        assert!(helped >= least * plain, "{loss}: {helped} and {plain} Mbit/s");
    }
}

/// In this mode, a proxy near the sender brings no gain, and costs nothing.
#[test]
fn ack_reduction_costs_nothing_past_a_near_proxy() {
    let run = |mode: &str| {
        goodput(&runs("upload-paper", 10, &[&[mode, "flow.cc=cubic", "flow.bytes=4194304"]]))
    };
    let (plain, helped) = (run("sidekick.mode=off"), run("sidekick.mode=ack-reduction"));
    assert!(helped >= 0.9 * plain, "{helped} and {plain} Mbit/s");
}

#[test]
fn cubic_of_rfc_9438_does_as_the_published_quic() {
    const SEEDS: u64 = 10;
    let published = include_str!("../../reference/nsdi24-upload-by-loss.csv");
    for loss in some(3, ["1.0", "2.0", "4.0"]) {
        let row =
            published.lines().find(|line| line.starts_with(&format!("quic,{loss},"))).unwrap();
        let wanted: f64 = row.split(',').nth(2).unwrap().parse().unwrap();
        let loss = format!("near.loss_percent={loss}");
        let settings = ["flow.cc=cubic-rfc9438", &loss];
        let goodput = goodput(&runs("upload-paper", SEEDS, &[&settings]));
        assert!(
            (goodput / wanted - 1.0).abs() <= 0.25,
            "{loss}: {goodput} Mbit/s, published {wanted}"
        );
    }
}

/// README has some of the rows, and docs/results.md all but one.
#[test]
fn the_documents_show_the_table_as_it_is() {
    let readme = include_str!("../../../README.md");
    let results = include_str!("../../../docs/results.md");
    let mut in_readme = 0;
    for (name, sender) in [
        ("CUBIC, stock quiche", "stock CUBIC"),
        ("CUBIC, RFC 9438", "RFC 9438 CUBIC"),
        ("Reno", "Reno"),
        ("BBR2", "BBR2"),
        ("Sidekick, early loss, CUBIC, RFC 9438", "early loss, RFC 9438 CUBIC"),
        ("**Sidekick, PACUBIC**", "PACUBIC"),
        ("**Sidekick, path-aware BBR2**", "path-aware BBR2"),
        ("**Sidekick, re-injection, stock CUBIC**", "re-injection, stock CUBIC"),
        ("**Sidekick, auto**", "auto"),
        ("split proxy, CUBIC, RFC 9438", "split proxy, RFC 9438 CUBIC"),
    ] {
        let row = table().markdown(SNAPSHOT, sender, name);
        assert!(results.contains(&row), "docs/results.md lacks {row}");
        if readme.contains(&format!("| {name} |")) {
            assert!(readme.contains(&row), "README.md lacks {row}");
            in_readme += 1;
        }
    }
    assert_eq!(in_readme, 4, "README.md has other rows");
}

/// What takes long: flows that share by chance, and figures of docs/results.md without a snapshot.
mod full {
    use super::*;

    /// docs/results.md shows the paths where help is slower. Only `make tables` computes all of
    /// these rows.
    #[test]
    fn some_help_is_slower_than_none() {
        let median = |path: &[&str], sender: &[&str], seeds| {
            goodput(&runs("upload-paper", seeds, &[path, sender]))
        };
        let mut rows = Vec::new();
        for delay in [10, 25] {
            for loss in [1, 8] {
                if !is_whole() && (delay, loss) != (25, 1) {
                    continue;
                }
                let path = [format!("near.delay_ms={delay}"), format!("near.loss_percent={loss}")];
                let path = [path[0].as_str(), path[1].as_str()];
                let helped = median(&path, &["sidekick.mode=pacubic"], 10);
                let plain = median(&path, &["flow.cc=bbr2"], 10);
                rows.push(format!(
                    "| near segment {delay} ms, near loss {loss} % | PACUBIC | {helped:.2} | \
                     BBR2 | {plain:.2} |\n"
                ));
            }
        }
        let path = [
            "far.delay_ms=50",
            "near.loss_percent=0",
            "near.bad_enter_percent=0.1",
            "near.bad_leave_percent=20",
            "flow.cc=cubic-rfc9438",
        ];
        if is_whole() {
            let helped = median(&path, &["sidekick.mode=early-loss"], 40);
            let plain = median(&path, &["sidekick.mode=off"], 40);
            rows.push(format!(
                "| far segment 50 ms, near loss in bursts | early loss, CUBIC, RFC 9438 | \
                 {helped:.2} | CUBIC, RFC 9438 | {plain:.2} |\n"
            ));
        }
        let results = include_str!("../../../docs/results.md");
        for row in rows {
            assert!(results.contains(&row), "docs/results.md lacks {row}");
        }
    }

    /// A controller without these losses must not take bandwidth from others. Beside a plain flow,
    /// the shares are as even as those of two plain flows. This holds for a bottleneck behind the
    /// proxy. It also holds for one before the proxy, whose losses mean congestion.
    #[test]
    fn who_is_helped_shares_as_without_help() {
        const SEEDS: u64 = 3;
        let bottlenecks: [&[&str]; 2] = [
            &["near.loss_percent=0"],
            &["near.loss_percent=0", "near.rate_mbit=10", "far.rate_mbit=100"],
        ];
        let run = ["flow.bytes=1000000000", "flow.seconds=40", "competitor.start_ms=5000"];
        let pairs = [
            ("sidekick.mode=auto", "flow.cc=bbr2", "competitor.cc=cubic"),
            ("sidekick.mode=auto", "flow.cc=bbr2", "competitor.cc=bbr2"),
            ("sidekick.mode=pacubic", "flow.cc=cubic-rfc9438", "competitor.cc=cubic-rfc9438"),
            ("sidekick.mode=pacubic", "flow.cc=cubic-rfc9438", "competitor.cc=reno"),
            ("sidekick.mode=reinject", "flow.cc=cubic", "competitor.cc=cubic"),
            ("sidekick.mode=reinject", "flow.cc=reno", "competitor.cc=reno"),
        ];
        for bottleneck in bottlenecks {
            for (helped, alone, beside) in pairs {
                let jain = |mode| {
                    let settings = [bottleneck, &run, &[beside, alone, mode]];
                    let records = runs("upload-paper", SEEDS, &settings);
                    median_of(&records, |record| record.competitor.as_ref().unwrap().jain)
                };
                let (plain, with_help) = (jain("sidekick.mode=off"), jain(helped));
                println!(
                    "{bottleneck:?}, {helped}, {beside}: {with_help:.3}, and {plain:.3} without \
                     help"
                );
                let what = format!(
                    "{bottleneck:?}, {helped}, {beside}: {with_help}, and {plain} without help"
                );
                assert!(with_help >= 0.95 * plain, "{what}");
            }
        }
    }
}
