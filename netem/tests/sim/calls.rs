//! Calls in virtual time: how long packets wait for earlier ones, and the bytes that help costs.
//! The tests compare both with published figures, and with tables in snapshots. `make tables`
//! accepts a new table.

use sidekick_netem::figures::reference;
use sidekick_netem::record::{Audio, RunRecord};

use crate::support::jobs::{median_of, runs};

/// Each call lasts a minute.
const SEEDS: u64 = 5;
/// Calls past a far proxy. Three packets determine the 99.9th percentile of a call.
const FAR_SEEDS: u64 = 20;

const POLLING: &[&str] = &[
    "sidekick.mode=reinject",
    "sidekick.every_packets=1",
    "sidekick.poll=on",
    "sidekick.threshold=1",
];

/// With [`POLLING`], a quACK when a packet does not arrive.
const STEADY: &str = "sidekick.steady=on";

/// A talker past a far proxy, with the quACKs of `audio-paper`: one of 8 sums after every second
/// packet.
const TALKER: &[&str] = &[
    "flow.kind=audio",
    "sidekick.mode=reinject",
    "sidekick.poll=off",
    "sidekick.every_packets=2",
    "sidekick.every_ms=0",
    "sidekick.threshold=8",
];

/// A listener with parity. Its cap allows a repair symbol for nearly every packet.
const RECEIVE: &[&str] = &["sidekick.mode=receive"];
const WHOLE: &[&str] = &["sidekick.parity_percent=100"];

/// Calls with the same settings and different seeds.
struct Calls(Vec<RunRecord>);

impl Calls {
    fn new(settings: &[&str]) -> Self {
        Self::of("audio-paper", SEEDS, settings)
    }

    fn of(scenario: &'static str, seeds: u64, settings: &[&str]) -> Self {
        let calls = Self::any(scenario, seeds, settings);
        assert!(calls.each().all(|audio| (audio.played, audio.late) == (3000, 0)), "{settings:?}");
        calls
    }

    /// Calls in which some packets may be too late.
    fn any(scenario: &'static str, seeds: u64, settings: &[&str]) -> Self {
        Self(runs(scenario, seeds, &[settings]))
    }

    fn each(&self) -> impl Iterator<Item = Audio> {
        self.0.iter().map(|record| record.audio.unwrap())
    }

    fn p95(&self) -> f64 {
        median_of(&self.0, |record| record.audio.unwrap().dejitter_ms.p95)
    }

    fn p99(&self) -> f64 {
        median_of(&self.0, |record| record.audio.unwrap().dejitter_ms.p99)
    }

    fn p999(&self) -> f64 {
        median_of(&self.0, |record| record.audio.unwrap().dejitter_ms.p999)
    }

    /// The longest wait.
    fn max(&self) -> f64 {
        self.each().map(|audio| audio.dejitter_ms.max).fold(0.0, f64::max)
    }

    /// The bytes of quACKs, polls and repairs, in percent of the media's bytes. All have UDP and IP
    /// headers.
    fn cost(&self) -> f64 {
        let sum = |bytes: fn(Audio) -> u64| self.each().map(bytes).sum::<u64>() as f64;
        100.0 * sum(|audio| audio.help_bytes) / sum(|audio| audio.media_bytes)
    }

    /// Packets that NACKs requested, for each minute.
    fn nacks(&self) -> f64 {
        60.0 * self.rate(|record| record.packets.lost_end_to_end.unwrap())
    }

    /// A count over all calls, for each second.
    fn rate(&self, count: fn(&RunRecord) -> u64) -> f64 {
        self.0.iter().map(count).sum::<u64>() as f64
            / self.0.iter().map(|record| record.time_s).sum::<f64>()
    }
}

/// The waits of calls with polls, and the bytes that help costs.
fn waits(more: &[&str], path: &[&str]) -> ([f64; 3], f64) {
    let calls = Calls::any("audio-paper", SEEDS, &[POLLING, more, path].concat());
    let waits = [calls.p99(), calls.p999(), calls.max()];
    println!("{path:?}: {waits:?} ms for {:.1} % of the bytes", calls.cost());
    (waits, calls.cost())
}

/// A line of a table: a name in `width` characters, and figures.
fn line(name: &str, width: usize, figures: &[f64]) -> String {
    let figures = figures.iter().map(|figure| format!("{figure:10.1}"));
    format!("\n{name:width$}") + &figures.collect::<String>()
}

/// The first line of a table.
fn header(width: usize, names: &[&str]) -> String {
    let names = names.iter().map(|name| format!("{name:>10}"));
    format!("{:width$}", "de-jitter, ms") + &names.collect::<String>()
}

fn published(series: &str, percentile: f64) -> f64 {
    let figures = reference::audio(series);
    figures.into_iter().find(|(at, _)| *at == percentile).unwrap().1
}

#[test]
fn what_help_spares_a_call_and_costs_it() {
    // Each row has a name, the name in the published figures, and settings.
    let calls: [(&str, Option<&str>, &[&str]); 10] = [
        ("end to end", Some("base"), &[]),
        (
            "every 8, 32 sums",
            Some("sidekick_8p_t32"),
            &["sidekick.mode=reinject", "sidekick.every_packets=8", "sidekick.threshold=32"],
        ),
        (
            "every 4, 16 sums",
            Some("sidekick_4p_t16"),
            &["sidekick.mode=reinject", "sidekick.every_packets=4", "sidekick.threshold=16"],
        ),
        ("every 2, 8 sums", Some("sidekick_2p_t8"), &["sidekick.mode=reinject"]),
        ("every 2, 2 sums", None, &["sidekick.mode=reinject", "sidekick.threshold=2"]),
        ("every 1, 8 sums", None, &["sidekick.mode=reinject", "sidekick.every_packets=1"]),
        (
            "every 2, 1 sum, polls",
            None,
            &["sidekick.mode=reinject", "sidekick.poll=on", "sidekick.threshold=1"],
        ),
        (
            "every 1, 8 sums, polls",
            None,
            &["sidekick.mode=reinject", "sidekick.poll=on", "sidekick.every_packets=1"],
        ),
        ("every 1, 1 sum, polls", None, POLLING),
        ("steady, 1 sum, polls", None, &[POLLING, &[STEADY]].concat()),
    ];
    let mut table = header(24, &["p95", "p99", "p99.9", "max", "quACKs/s", "polls/s", "bytes, %"]);
    for (name, series, settings) in calls {
        let calls = Calls::new(settings);
        if let Some(series) = series {
            let (measured, wanted) = (calls.p99(), published(series, 99.0));
            assert!((measured - wanted).abs() <= 5.0, "{name}: {measured} ms, published {wanted}");
        }
        let quacks = calls.rate(|record| record.quack_styles.map_or(0, |sent| sent.messages));
        let polls = calls.rate(|record| record.quacks.polls);
        let waits = [calls.p95(), calls.p99(), calls.p999(), calls.max()];
        table += &line(name, 24, &[&waits[..], &[quacks, polls, calls.cost()]].concat());
    }
    assert_snapshot!("calls__what_help_spares_a_call_and_costs_it", table);
}

#[test]
fn the_results_show_the_far_table_as_it_is() {
    let snapshot =
        include_str!("../snapshots/calls__what_parity_spares_a_call_past_a_far_proxy.snap");
    the_results_show(snapshot, 32, &["talker, every 2, 8 sums", "talker, every 1, 1 sum, polls"]);
}

/// Bursts of three packets on average need more parity than arrives in a round trip.
#[test]
fn parity_makes_bursts_no_worse() {
    let bursts =
        ["near.loss_percent=0", "near.bad_enter_percent=1.24", "near.bad_leave_percent=33.3"];
    let calls = |settings: &[&str]| {
        let calls = Calls::any("audio-far-proxy", FAR_SEEDS, &[&bursts, settings].concat());
        let waits = [calls.p95(), calls.p99()];
        println!("{settings:?}: p95 and p99 {waits:?} ms");
        waits
    };
    let [plain, some, all] = [&[], RECEIVE, &[RECEIVE, WHOLE].concat()].map(calls);
    assert!(some[0] < plain[0] && some[1] <= plain[1] + 1.0, "{some:?}, plain {plain:?}");
    assert!(all[0] < 1.0 && all[1] < plain[1], "{all:?}, plain {plain:?}");
}

/// Parity repairs losses before the proxy, but none behind it.
#[test]
fn a_loss_at_the_far_segment_is_still_requested() {
    let far = ["near.loss_percent=0", "far.loss_percent=3.6"];
    let plain = Calls::of("audio-far-proxy", FAR_SEEDS, &far);
    let calls = Calls::of("audio-far-proxy", FAR_SEEDS, &[&far[..], RECEIVE].concat());
    assert!(calls.nacks() >= 80.0, "{} NACKs a minute", calls.nacks());
    // The listener waits until a list shows that the packets passed no proxy.
    let (late, before) = (calls.p99(), plain.p99());
    println!("p99 {late} ms, and {before} without parity");
    assert!(late <= before + 60.0, "p99 {late} ms, and {before} without parity");
    let rebuilt: u64 = calls.0.iter().map(|call| call.repeats.unwrap().parity_rebuilt).sum();
    assert_eq!(rebuilt, 0);
}

#[test]
fn end_to_end_a_call_is_as_the_published_one() {
    let calls = Calls::new(&[]);
    for (measured, percentile) in [(calls.p99(), 99.0), (calls.p999(), 99.9)] {
        let wanted = published("base", percentile);
        assert!(
            (measured / wanted - 1.0).abs() < 0.1,
            "p{percentile}: {measured} ms, published {wanted}"
        );
    }
}

#[test]
fn a_quack_every_two_packets_does_as_the_published_sidekick() {
    let calls = Calls::new(&["sidekick.mode=reinject"]);
    let (p99, p999) = (calls.p99(), calls.p999());
    // If a quACK or a repair is lost, a NACK takes the path's round trip of 52.3 ms.
    assert!(p99 <= 22.5 && p999 <= 52.5, "p99 {p99} ms, p99.9 {p999} ms");
    assert!(
        p99 <= published("sidekick_2p_t8", 99.0) + 0.1
            && p999 <= published("sidekick_2p_t8", 99.9) + 0.1
    );
}

#[test]
fn a_poll_when_a_quack_stays_away_spares_the_wait() {
    let calls = Calls::new(POLLING);
    let (p99, p999, max, cost) = (calls.p99(), calls.p999(), calls.max(), calls.cost());
    assert!(p99 <= 1.0 && p999 <= 12.0 && max <= 25.0, "p99 {p99}, p99.9 {p999}, at most {max} ms");
    assert!(cost <= 30.0, "{cost} % of the media's bytes");
}

#[test]
fn help_shortens_waits_under_heavy_loss_and_bursts() {
    // The bursts have three packets on average, and as many losses as in the paper.
    let bursts =
        ["near.loss_percent=0", "near.bad_enter_percent=1.24", "near.bad_leave_percent=33.3"];
    for path in [&["near.loss_percent=10"][..], &bursts] {
        let [polling, steady] = [&[][..], &[STEADY]].map(|more| waits(more, path));
        assert!(polling.0[0] < 0.1 && polling.0[1] < 10.0, "{path:?}: {polling:?} ms");
        assert!(steady.0[1] < 0.1 && steady.0[2] < 25.0, "{path:?}: {steady:?} ms");
        assert!(steady.1 < 0.6 * polling.1, "{path:?}: {polling:?} and {steady:?} %");
    }
}

/// A quACK reports a missing packet at any interval, and on a path with jitter.
#[test]
fn a_quack_when_a_packet_stays_away_spares_most_bytes() {
    let calls = Calls::new(&[POLLING, &[STEADY]].concat());
    let (p99, p999, max, cost) = (calls.p99(), calls.p999(), calls.max(), calls.cost());
    assert!(p99 <= 0.1 && p999 <= 2.0 && max <= 20.0, "{p99}, {p999}, at most {max} ms");
    assert!(cost <= 10.0, "{cost} % of the media's bytes");
    for path in [
        &["flow.frame_ms=10", "flow.frame_bytes=120"][..],
        &["flow.frame_ms=60", "flow.frame_bytes=720"],
        &["near.jitter_ms=2"],
        &["near.jitter_ms=5"],
    ] {
        let [polling, steady] = [&[][..], &[STEADY]].map(|more| waits(more, path));
        assert!(steady.0[0] <= polling.0[0] + 1.0, "{path:?}: {polling:?} and {steady:?} ms");
        assert!(steady.1 < 0.6 * polling.1, "{path:?}: {polling:?} and {steady:?} %");
    }
}

#[test]
fn the_results_show_the_table_as_it_is() {
    the_results_show(
        include_str!("../snapshots/calls__what_help_spares_a_call_and_costs_it.snap"),
        24,
        &[
            "every 8, 32 sums",
            "every 4, 16 sums",
            "every 2, 2 sums",
            "every 2, 1 sum, polls",
            "every 1, 8 sums, polls",
        ],
    );
}

/// The page begins with p95, p99, the longest wait and the bytes of two rows.
#[test]
fn the_results_begin_with_two_calls() {
    let results = include_str!("../../../docs/results.md");
    let snapshot = include_str!("../snapshots/calls__what_help_spares_a_call_and_costs_it.snap");
    let calls = [("end to end", "end to end"), ("steady, 1 sum, polls", "**with Sidekick**")];
    for (name, shown) in calls {
        let figures = snapshot.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let figures: Vec<_> = figures.split_whitespace().collect();
        let row = format!("| {shown} | {} |", [0, 1, 3, 6].map(|at| figures[at]).join(" | "));
        assert!(results.contains(&row), "docs/results.md lacks {row}");
    }
}

/// Checks the rows of a snapshot, but for those that the page leaves out. The row names have
/// `width` characters.
fn the_results_show(snapshot: &str, width: usize, omitted: &[&str]) {
    let results = include_str!("../../../docs/results.md");
    let rows = snapshot.lines().skip_while(|line| !line.starts_with("de-jitter")).skip(1);
    let rows: Vec<_> = rows.map(|line| line.split_at(width)).collect();
    assert!(!rows.is_empty(), "the snapshot has no rows");
    for (name, figures) in rows.into_iter().filter(|(name, _)| !omitted.contains(&name.trim())) {
        let figures: Vec<_> = figures.split_whitespace().collect();
        let row = format!("| {} | {} |", name.trim(), figures.join(" | "));
        assert!(results.contains(&row), "docs/results.md lacks {row}");
    }
}

/// What takes long: the rows of the table are also compared with each other.
mod full {
    use super::*;

    /// The proxy is 30 ms away from the end behind the lossy hop. A talker there re-injects. A
    /// listener there rebuilds packets from parity.
    #[test]
    fn what_parity_spares_a_call_past_a_far_proxy() {
        let calls: [(&str, &[&str]); 7] = [
            ("talker, end to end", &["flow.kind=audio"]),
            ("talker, every 2, 8 sums", TALKER),
            ("talker, every 1, 8 sums", &[TALKER, &["sidekick.every_packets=1"]].concat()),
            ("talker, every 1, 1 sum, polls", &[TALKER, POLLING].concat()),
            ("listener, end to end", &[]),
            ("listener, parity 35 %", RECEIVE),
            ("listener, parity 100 %", &[RECEIVE, WHOLE].concat()),
        ];
        let mut table = header(32, &["p95", "p99", "p99.9", "max", "NACKs/min", "bytes, %"]);
        let mut waits = Vec::new();
        for (name, settings) in calls {
            let calls = Calls::of("audio-far-proxy", FAR_SEEDS, settings);
            let figures = [calls.p95(), calls.p99(), calls.p999(), calls.max()];
            table += &line(name, 32, &[&figures[..], &[calls.nacks(), calls.cost()]].concat());
            waits.push((figures, calls.cost()));
        }
        assert_snapshot!("calls__what_parity_spares_a_call_past_a_far_proxy", table);
        let [_, reinject @ .., end_to_end, some, all] = &waits[..] else { panic!("seven rows") };
        for (figures, _) in reinject {
            // Parity needs no round trip.
            assert!(some.0[1] < figures[1] && some.0[2] <= figures[2], "{some:?}, {figures:?}");
        }
        assert!(end_to_end.0[1] > 100.0, "{end_to_end:?}");
        // In a call, more than half of the parity repairs nothing. The cap does not count headers.
        assert!(some.1 <= 45.0 && all.1 <= 110.0, "{} and {} % of the bytes", some.1, all.1);
        assert!(all.0[1] < 1.0 && all.0[2] < 21.0, "{all:?}");
    }
}
