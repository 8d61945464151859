//! Tables and sentences about runs.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Table};

use crate::record::{Percentiles, RunRecord};
use crate::scenario::{FlowKind, Scenario};

/// The largest share of packets that may leave a link late, in percent. Above it, a call's delays
/// cannot be trusted, because its 99th percentile depends on one packet in a hundred.
pub const MOST_LATE_PERCENT: f64 = 0.1;

/// Digits of a SHA-256 that a table shows.
const SHORT_HASH: usize = 12;

/// A column of a table: its header, and its entry in the row of a `T`.
pub type Column<T> = (&'static str, fn(&T) -> String);

/// A table with a row for each of `rows`. Its first `words` columns have text, the others numbers.
pub fn table_of<T>(columns: &[Column<T>], rows: &[T], words: usize) -> Table {
    let header: Vec<_> = columns.iter().map(|(name, _)| *name).collect();
    let entries = |row| columns.iter().map(|(_, entry)| entry(row)).collect();
    table(&header, rows.iter().map(entries), words)
}

/// A table. Its first `words` columns have text, the others numbers.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>, words: usize) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header.iter().copied());
    for row in rows {
        table.add_row(row.into_iter().enumerate().map(|(column, text)| {
            let side = if column < words { CellAlignment::Left } else { CellAlignment::Right };
            Cell::new(text).set_alignment(side)
        }));
    }
    table
}

const UPLOAD: [Column<RunRecord>; 4] = [
    ("seed", |run| run.seed.to_string()),
    ("time", |run| seconds(run.time_s)),
    ("Mbit/s", |run| format!("{:.2}", run.goodput_mbit_s)),
    ("packets sent", |run| run.packets.sent.to_string()),
];
/// Head-of-line delay of messages, de-jitter delay of calls.
const WAITS: [Column<RunRecord>; 7] = [
    ("seed", |run| run.seed.to_string()),
    ("p50 ms", |run| format!("{:.1}", waits(run).p50)),
    ("p90 ms", |run| format!("{:.1}", waits(run).p90)),
    ("p95 ms", |run| format!("{:.1}", waits(run).p95)),
    ("p99 ms", |run| format!("{:.1}", waits(run).p99)),
    ("p99.9 ms", |run| format!("{:.1}", waits(run).p999)),
    ("max ms", |run| format!("{:.1}", waits(run).max)),
];
const CALL: [Column<RunRecord>; 2] = [
    ("played", |run| run.audio.unwrap_or_default().played.to_string()),
    ("late", |run| run.audio.unwrap_or_default().late.to_string()),
];
const LOST_NEAR: Column<RunRecord> = ("lost near", |run| run.packets.lost_near.to_string());
const LOST_MIDDLE: Column<RunRecord> =
    ("lost in the middle", |run| or_dash(run.packets.lost_middle));
const LOST_FAR: Column<RunRecord> = ("lost far", |run| run.packets.lost_far.to_string());
const FOUND: [Column<RunRecord>; 4] = [
    ("detected early", |run| run.packets.lost_early.to_string()),
    ("found end to end", |run| or_dash(run.packets.lost_end_to_end)),
    ("spurious", |run| run.packets.spurious.to_string()),
    ("quACKs", |run| run.quacks.received.to_string()),
];
const ACKS: Column<RunRecord> = ("ACK packets", |run| run.ack_packets.to_string());
const TIMEOUTS: Column<RunRecord> = ("PTOs", |run| or_dash(run.packets.probe_timeouts));
/// Columns for a flow whose receiver uses help.
const REPEATS: [Column<RunRecord>; 6] = [
    ("requests", |run| run.repeats.unwrap_or_default().repeats_requested.to_string()),
    ("repeats", |run| run.repeats.unwrap_or_default().repeats_received.to_string()),
    ("rebuilt", |run| run.repeats.unwrap_or_default().parity_rebuilt.to_string()),
    ("added %", |run| format!("{:.1}", run.repeats.unwrap_or_default().near_overhead_percent)),
    ("filled near", |run| run.repeats.unwrap_or_default().repaired_near.to_string()),
    ("held p99 ms", |run| format!("{:.1}", run.repeats.unwrap_or_default().held_ms.p99)),
];

fn waits(run: &RunRecord) -> Percentiles {
    let of_call = run.audio.map(|call| call.dejitter_ms);
    of_call.or(run.head_of_line_ms).unwrap_or_default()
}

/// The runs of one scenario as a table. For transfers, it adds the median.
pub fn summary(scenario: &Scenario, records: &[RunRecord]) -> String {
    let lost = [LOST_NEAR, LOST_MIDDLE, LOST_FAR];
    let lost = if scenario.middle.is_some() { &lost[..] } else { &[LOST_NEAR, LOST_FAR] };
    let name = &scenario.name;
    let (mode, cc) = records.first().map_or(("", ""), |record| (&record.mode, &record.cc));
    let print = |title: String, columns: &[Column<RunRecord>]| {
        format!("{name}: {title}\n{}\n", table_of(columns, records, 0))
    };
    match scenario.flow.kind {
        FlowKind::Audio | FlowKind::Listen => {
            let helped = records.iter().any(|record| record.repeats.is_some());
            let parity = if helped { &REPEATS[2..4] } else { &[] };
            let columns = [&WAITS[..], &CALL, &[LOST_NEAR], &FOUND, parity].concat();
            print(format!("sidekick {mode}"), &columns)
        }
        FlowKind::Messages => {
            let columns = [&WAITS[..], lost, &FOUND].concat();
            print(format!("head-of-line delay, sidekick {mode}, {cc}"), &columns)
        }
        FlowKind::Upload | FlowKind::Download | FlowKind::Requests | FlowKind::Page => {
            let helped = records.iter().any(|record| record.repeats.is_some());
            let repeats = if helped { &REPEATS[..] } else { &[] };
            let rest = [ACKS, TIMEOUTS];
            let columns = [&UPLOAD[..], lost, &FOUND, repeats, &rest].concat();
            let text = print(format!("sidekick {mode}, {cc}"), &columns);
            let goodput = median(records.iter().map(|record| record.goodput_mbit_s));
            let time =
                |percent| percentile(records.iter().map(|record| record.time_s * 1e3), percent);
            text + &goodput.map_or_else(String::new, |(median, least, most)| {
                format!("Median goodput {median:.2} Mbit/s (from {least:.2} to {most:.2}).\n")
            }) + &time(50).zip(time(99)).map_or_else(String::new, |(p50, p99)| {
                format!("Time p50 {p50:.0} ms, p99 {p99:.0} ms.\n")
            })
        }
    }
}

/// The result of one run, in a few words.
pub fn outcome(record: &RunRecord) -> String {
    let what = match (record.audio, record.head_of_line_ms) {
        (Some(_), _) => "de-jitter delay",
        (None, Some(_)) => "head-of-line delay",
        (None, None) => {
            return format!("{:.2} Mbit/s in {}", record.goodput_mbit_s, seconds(record.time_s));
        }
    };
    let Percentiles { p99, max, .. } = waits(record);
    format!("{what} p99 {p99:.1} ms, at most {max:.1} ms, in {}", seconds(record.time_s))
}

/// A figure, or a dash if it is missing.
pub fn or_dash(figure: Option<impl ToString>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string())
}

/// A time in seconds.
pub fn seconds(time: f64) -> String {
    format!("{time:.1} s")
}

/// The first digits of a hash.
pub fn short_hash(hash: &str) -> String {
    hash.chars().take(SHORT_HASH).collect()
}

/// The median, the least and the greatest of some figures. `None` without figures.
pub fn median(figures: impl IntoIterator<Item = f64>) -> Option<(f64, f64, f64)> {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    let (least, most) = (*figures.first()?, *figures.last()?);
    let upper = *figures.get(figures.len() / 2)?;
    let lower = *figures.get((figures.len() - 1) / 2)?;
    Some(((lower + upper) / 2.0, least, most))
}

/// The least figure that at least `percent` percent of the figures do not exceed (the nearest
/// rank). `None` without figures.
pub fn percentile(figures: impl IntoIterator<Item = f64>, percent: usize) -> Option<f64> {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    let rank = (figures.len() * percent).div_ceil(100);
    figures.get(rank.saturating_sub(1)).copied()
}

/// The share of packets that this machine delayed, in percent. It counts only for a call, whose
/// figures are delays, and for a run with an agent, whose repairs must be quick.
pub fn late_percent(record: &RunRecord) -> f64 {
    let counts = record.audio.is_some() || record.agent.is_some();
    if counts { record.links.late_percent() } else { 0.0 }
}

/// Remarks that readers of a run's figures need.
pub fn remarks(record: &RunRecord) -> Vec<String> {
    let mut remarks = Vec::new();
    if record.mode != "off" && !record.assisted {
        remarks.push(format!("the sender was not assisted: {}", record.assistance));
    }
    remarks.extend(slowness(record.links.overruns(), late_percent(record)));
    remarks
}

/// Remarks about a machine that was too slow for `overruns` packets, or sent this share of packets
/// late.
pub(crate) fn slowness(overruns: u64, late_percent: f64) -> impl Iterator<Item = String> {
    let lost = (overruns > 0).then(|| {
        format!(
            "this machine was too slow for {overruns} packets, which count as losses; run it again \
             while the machine does nothing else"
        )
    });
    let late = (late_percent > MOST_LATE_PERCENT).then(|| {
        format!(
            "this machine was busy: {late_percent:.1} % of packets left a link more than a \
             millisecond late, so delays are longer than the scenario's; run it again while the \
             machine does nothing else"
        )
    });
    lost.into_iter().chain(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_comes_with_its_range() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0)));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some((2.5, 1.0, 4.0)));
        assert_eq!(median([]), None);
    }

    #[test]
    fn words_stand_left_and_numbers_right() {
        let text =
            table(&["sender", "time"], [vec!["a".to_owned(), "1 s".to_owned()]], 1).to_string();
        assert!(text.contains("│ a      ┆  1 s │"), "{text}");
    }
}
