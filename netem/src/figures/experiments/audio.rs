//! Audio over a lossy first hop: figure 4a of the Sidekick paper.

use super::{Scope, words};
use crate::figures::job::Case;
use crate::figures::model::{Axis, Curve, Entry, Experiment, Part, Scale};
use crate::figures::quantity::{Measure, Quantity, measures};
use crate::figures::reference;
use crate::figures::sender::{BLUE, Colour, GREEN, GREY, ORANGE, VIOLET};
use crate::record::RunRecord;

/// A sender: its name, its colour, its settings, and its published series.
struct Row {
    name: &'static str,
    colour: Colour,
    settings: &'static [&'static str],
    published: Option<&'static str>,
}

const REINJECT: &str = "sidekick.mode=reinject";
const ROWS: [Row; 5] = [
    Row {
        name: "end to end",
        colour: GREY,
        settings: &["sidekick.mode=off"],
        published: Some("base"),
    },
    Row {
        name: "Sidekick, quACK every 2 packets",
        colour: VIOLET,
        settings: &[REINJECT, "sidekick.every_packets=2", "sidekick.threshold=8"],
        published: Some("sidekick_2p_t8"),
    },
    Row {
        name: "Sidekick, every 4",
        colour: GREEN,
        settings: &[REINJECT, "sidekick.every_packets=4", "sidekick.threshold=16"],
        published: Some("sidekick_4p_t16"),
    },
    Row {
        name: "Sidekick, every 8",
        colour: ORANGE,
        settings: &[REINJECT, "sidekick.every_packets=8", "sidekick.threshold=32"],
        published: Some("sidekick_8p_t32"),
    },
    Row {
        name: "Sidekick, every packet, and polls",
        colour: BLUE,
        settings: &[
            REINJECT,
            "sidekick.every_packets=1",
            "sidekick.threshold=1",
            "sidekick.poll=on",
        ],
        published: None,
    },
];

impl Row {
    /// Its published percentiles and delays.
    fn published(&self) -> Vec<(f64, f64)> {
        self.published.map(reference::audio).unwrap_or_default()
    }
}

const PERCENTILES: Axis =
    Axis { scale: Scale::Nines, ..Axis::linear("percentile of all packets", 1) };

fn percentiles(record: &RunRecord) -> Vec<(f64, f64)> {
    let Some(audio) = record.audio else { return Vec::new() };
    let of = audio.dejitter_ms;
    vec![(50.0, of.p50), (90.0, of.p90), (95.0, of.p95), (99.0, of.p99), (99.9, of.p999)]
}

pub(super) fn experiment(scope: Scope) -> Experiment {
    let case = |row: &Row| Case::of("audio-paper").with(row.settings).seeds(scope.pick(3, 10));
    let ours = ROWS.iter().map(|row| Curve::traced(row.name, row.colour, case(row), percentiles));
    let published = |row: &Row| {
        let points = row.published().into_iter().filter(|(percentile, _)| *percentile <= 99.9);
        Curve::published(format!("published: {}", row.name), row.colour, points.collect())
    };
    let known = ROWS.iter().filter(|row| row.published.is_some());
    let axes = (PERCENTILES, Axis::linear("delay, ms", 1));
    let curves = ours.chain(known.map(published));
    let plot = Part::plot("audio-dejitter", "Delay in the de-jitter buffer", axes, curves);
    Experiment {
        id: "audio",
        title: "Audio over a first hop with 3.6 % loss",
        shows: vec![
            "Figure 4a of the Sidekick paper: small packets at a constant rate. The receiver plays \
             each packet once all earlier ones have arrived. Without help, a packet lost before \
             the proxy arrives a whole round trip late. With a Sidekick, the sender sends it again \
             as soon as a quACK reports the loss. If the proxy sends a quACK for each packet, the \
             sender polls when a quACK does not arrive. The repair then arrives before the next \
             packet. The curve shows the share of packets that waited at most so long.",
        ],
        parts: vec![plot, table(case)],
    }
}

fn table(case: impl Fn(&Row) -> Case) -> Part {
    let figures: [(Measure, &str, f64); 3] = [
        (measures::DEJITTER_P99, "p99, ms", 99.0),
        (|record| record.audio.map(|audio| audio.dejitter_ms.p999), "p99.9, ms", 99.9),
        (|record| record.audio.map(|audio| audio.dejitter_ms.max), "longest, ms", 100.0),
    ];
    let mut columns = words(&["sender"]);
    for (_, name, _) in figures {
        columns.extend([name.to_owned(), "published".to_owned()]);
    }
    columns.extend(words(&["packets never played", "bytes for help, % of the media's"]));
    let row = |row: &Row| {
        let mut entries = vec![Entry::text(row.name)];
        for (measure, _, percentile) in figures {
            let published = row.published();
            let published = published.iter().find(|(at, _)| *at == percentile);
            entries.push(Entry::Figure(Quantity::Of(case(row), measure), 1));
            entries.push(Entry::text(
                published.map_or_else(String::new, |(_, ms)| format!("{ms:.1}")),
            ));
        }
        let figure = |measure, decimals| Entry::Figure(Quantity::Of(case(row), measure), decimals);
        entries.push(figure(|record| record.audio.map(|audio| audio.late as f64), 0));
        entries.push(figure(|record| Some(record.audio?.help_percent()), 1));
        entries
    };
    Part::table("audio-tail", "The longest waits", columns, ROWS.iter().map(row))
}
