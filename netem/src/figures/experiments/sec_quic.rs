//! Payload, acknowledgement delay, size and loss: the tables of SEC-QUIC, beside `tune`.

use super::{GOODPUT, Scope, words};
use crate::figures::job::Case;
use crate::figures::model::{Axis, Curve, Entry, Experiment, Part};
use crate::figures::quantity::{Quantity, measures};
use crate::figures::sender::{BLUE, BROWN, Colour, GREEN, ORANGE, PURPLE, SKY, VERMILION};

/// The settings of both endpoints in a group of cells.
struct Ends {
    name: &'static str,
    settings: &'static [&'static str],
}

/// Without the rule for every second packet, the delay alone decides, as in SEC-QUIC.
const ENDS: [Ends; 3] = [
    Ends { name: "CUBIC", settings: &["flow.cc=cubic-rfc9438", "flow.ack_packets=65535"] },
    Ends { name: "BBR2", settings: &["flow.cc=bbr2", "flow.ack_packets=65535"] },
    Ends {
        name: "BBR2, every second packet acknowledged",
        settings: &["flow.cc=bbr2", "flow.ack_packets=2"],
    },
];
/// The endpoints of the plots.
const CUBIC: &Ends = &ENDS[0];
const TUNE: [&str; 1] = ["flow.tune=on"];

const LOSSES: [&str; 2] = ["0.1", "1"];
const SIZES: [(&str, u64); 5] = [
    ("1 kB", 1_000),
    ("10 kB", 10_000),
    ("1 MB", 1_000_000),
    ("10 MB", 10_000_000),
    ("100 MB", 100_000_000),
];
/// The name of a payload, and its settings.
const PAYLOADS: [(&str, &[&str]); 3] = [
    ("1200", &["flow.payload_bytes=1200"]),
    ("1400", &["flow.payload_bytes=1400"]),
    ("found", &["flow.payload_bytes=1452", "flow.pmtud=on"]),
];
const ACK_DELAYS: [&str; 3] = ["15", "25", "35"];
/// Payload, ack delay, colour of the curve.
const CURVES: [(usize, &str, Colour); 6] = [
    (0, "15", SKY),
    (0, "25", BLUE),
    (0, "35", GREEN),
    (1, "15", ORANGE),
    (1, "25", VERMILION),
    (1, "35", BROWN),
];

fn case(scope: Scope, loss: &str, bytes: u64) -> Case {
    let seeds = match bytes {
        ..10_000_000 => scope.pick(3, 9),
        10_000_000 => scope.pick(1, 5),
        _ => 2,
    };
    Case::of("upload-paper")
        .with(&["sidekick.mode=off", "near.delay_ms=5", "far.delay_ms=95"])
        .with(&["near.rate_mbit=100", "far.rate_mbit=100"])
        // The queues hold what the path does: 100 Mbit/s for 200 ms.
        .with(&["near.queue_bytes=2500000", "far.queue_bytes=2500000"])
        .set("near.loss_percent", loss)
        .set("flow.bytes", bytes)
        .seeds(seeds)
}

/// The case of one cell: these endpoints with a payload and a delay.
fn cell(case: &Case, ends: &Ends, payload: usize, ack_delay: &str) -> Case {
    let (_, payload) = PAYLOADS[payload];
    case.clone().with(ends.settings).with(payload).set("flow.ack_delay_ms", ack_delay)
}

/// All cells of these endpoints.
fn cells(case: &Case, ends: &Ends) -> Vec<Case> {
    let of = |payload| ACK_DELAYS.map(|ack_delay| cell(case, ends, payload, ack_delay));
    (0..PAYLOADS.len()).flat_map(of).collect()
}

pub(super) fn experiment(scope: Scope) -> Experiment {
    let sizes = scope.pick(&SIZES[..4], &SIZES);
    let rows = || {
        LOSSES.iter().flat_map(move |&loss| {
            sizes.iter().map(move |&(size, bytes)| ([loss, size], case(scope, loss, bytes)))
        })
    };
    Experiment {
        id: "sec-quic",
        title: "Payload and acknowledgement delay, and settings by context",
        shows: vec![
            "The questions of SEC-QUIC at a round trip of 200 ms over 100 Mbit/s: does a larger \
             payload help, and does a shorter delay of acknowledgements? Here the delay alone \
             decides when the receiver acknowledges. If it also acknowledged every second packet, \
             the delay would hardly matter. The authors of SEC-QUIC found up to 60 % more \
             throughput with 1400 bytes, and a best delay of 25 ms. Here the shortest delay is the \
             best. It gains the most with CUBIC of RFC 9438, for 1 MB and 10 MB at 0.1 %.",
            "`tune` is one call, `quic_sidekick::tune`, without information about the path. Its \
             receiver acknowledges every second packet, and each packet within 25 ms. The second \
             table shows its time beside the best of each nine cells. These are three payloads by \
             three delays. Path MTU discovery finds the last payload.",
            "Virtual time does not model processors, so all ciphers take the same time here. \
             docs/results.md has the cost of each cipher in instructions.",
        ],
        parts: vec![plot(scope, sizes, "0.1"), plot(scope, sizes, "1"), best(rows()), all(rows())],
    }
}

fn plot(scope: Scope, sizes: &'static [(&'static str, u64)], loss: &str) -> Part {
    let curve = |name: String, colour, of: &dyn Fn(&Case) -> Case| {
        let points = sizes.iter().map(|(_, bytes)| {
            let quantity = Quantity::Of(of(&case(scope, loss, *bytes)), measures::GOODPUT);
            (*bytes as f64 / 1e3, quantity)
        });
        Curve::measured(name, colour, points)
    };
    let mut curves: Vec<_> = CURVES
        .iter()
        .map(|&(payload, ack_delay, colour)| {
            let name = format!("CUBIC, {} bytes, {ack_delay} ms", PAYLOADS[payload].0);
            curve(name, colour, &|case| cell(case, CUBIC, payload, ack_delay))
        })
        .collect();
    curves.push(curve("tune".to_owned(), PURPLE, &|case| case.clone().with(&TUNE)));
    let title = format!("{loss} % loss: payload and ack delay");
    let axes = (Axis::logarithmic("size, kB", 0), GOODPUT);
    Part::plot(format!("sec-quic-{loss}-percent"), title, axes, curves)
}

/// The best of each nine cells, and `tune` beside the best of all.
fn best(rows: impl Iterator<Item = ([&'static str; 2], Case)>) -> Part {
    let measure = measures::SECONDS;
    let mut columns = words(&["loss, %", "size"]);
    columns.extend(ENDS.iter().map(|ends| format!("best with {}: s", ends.name)));
    columns.extend(words(&["tune: s", "tune, ratio to the best of all"]));
    let rows = rows.map(|(words, case)| {
        let mut row: Vec<_> = words.map(Entry::text).into();
        let tune = case.clone().with(&TUNE);
        row.extend(
            ENDS.iter().map(|ends| Entry::Figure(Quantity::Least(cells(&case, ends), measure), 3)),
        );
        let among = ENDS.iter().flat_map(|ends| cells(&case, ends)).collect();
        row.push(Entry::Figure(Quantity::Of(tune.clone(), measure), 3));
        row.push(Entry::Figure(Quantity::ToLeast { of: tune, among, measure }, 2));
        row
    });
    Part::table("sec-quic-tune", "Settings by context, beside the best cells", columns, rows)
}

fn all(rows: impl Iterator<Item = ([&'static str; 2], Case)>) -> Part {
    let names = PAYLOADS.iter().flat_map(|(payload, _)| {
        ACK_DELAYS.map(|ack_delay| format!("{payload} bytes, {ack_delay} ms: s"))
    });
    let mut columns = words(&["loss, %", "size", "ends"]);
    columns.extend(names);
    let rows = rows.flat_map(|(words, case)| {
        let row = move |ends: &Ends| {
            let mut row: Vec<_> = words.into_iter().chain([ends.name]).map(Entry::text).collect();
            let figure = |case| Entry::Figure(Quantity::Of(case, measures::SECONDS), 3);
            row.extend(cells(&case, ends).into_iter().map(figure));
            row
        };
        ENDS.iter().map(row).collect::<Vec<_>>()
    });
    Part::table("sec-quic-all", "All cells", columns, rows)
}
