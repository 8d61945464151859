//! Tables and sentences about runs.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Table};

use crate::record::{Percentiles, RunRecord};
use crate::scenario::{FlowKind, Scenario};

/// More packets than this leaving a link late spoil a run's delays, in percent: a call's 99th
/// percentile stands on one in a hundred.
pub const MOST_LATE_PERCENT: f64 = 0.1;

/// Digits of a SHA-256 that a table shows.
const SHORT_HASH: usize = 12;

/// A table whose first `words` columns are words and whose others are numbers.
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

/// The runs of one scenario, a row each.
pub fn runs(records: &[RunRecord]) -> Table {
    let header = [
        "seed",
        "time",
        "Mbit/s",
        "packets sent",
        "lost near",
        "lost far",
        "found early",
        "found end to end",
        "spurious",
        "quACKs",
        "ACK packets",
    ];
    let rows = records.iter().map(|record| {
        let packets = &record.packets;
        vec![
            record.seed.to_string(),
            seconds(record.time_s),
            format!("{:.2}", record.goodput_mbit_s),
            packets.sent.to_string(),
            packets.lost_near.to_string(),
            packets.lost_far.to_string(),
            packets.lost_early.to_string(),
            packets.lost_end_to_end.to_string(),
            packets.spurious.to_string(),
            record.quacks.received.to_string(),
            record.ack_packets.to_string(),
        ]
    });
    table(&header, rows, 0)
}

/// The waits of one flow of messages, a row each: head-of-line delay.
pub fn messages(records: &[RunRecord]) -> Table {
    let header = ["lost near", "lost far", "found early", "found end to end", "spurious", "quACKs"];
    let header: Vec<_> = WAITS.into_iter().chain(header).collect();
    let rows = records.iter().map(|record| {
        let packets = &record.packets;
        let counts = [
            packets.lost_near,
            packets.lost_far,
            packets.lost_early,
            packets.lost_end_to_end,
            packets.spurious,
            record.quacks.received,
        ];
        let mut row = waits(record, &record.head_of_line_ms.unwrap_or_default());
        row.extend(counts.map(|count| count.to_string()));
        row
    });
    table(&header, rows, 0)
}

/// What the columns of [`waits`] are.
const WAITS: [&str; 7] = ["seed", "p50 ms", "p90 ms", "p95 ms", "p99 ms", "p99.9 ms", "max ms"];

fn waits(record: &RunRecord, waits: &Percentiles) -> Vec<String> {
    let waits = [waits.p50, waits.p90, waits.p95, waits.p99, waits.p999, waits.max];
    let mut row = vec![record.seed.to_string()];
    row.extend(waits.map(|wait| format!("{wait:.1}")));
    row
}

/// The calls of one scenario, a row each.
pub fn calls(records: &[RunRecord]) -> Table {
    let header =
        ["played", "late", "lost near", "found early", "found end to end", "spurious", "quACKs"];
    let header: Vec<_> = WAITS.into_iter().chain(header).collect();
    let rows = records.iter().map(|record| {
        let (packets, call) = (&record.packets, record.audio.unwrap_or_default());
        let mut row = waits(record, &call.dejitter_ms);
        let counts = [
            call.played,
            call.late,
            packets.lost_near,
            packets.lost_early,
            packets.lost_end_to_end,
        ];
        row.extend(
            counts
                .into_iter()
                .chain([packets.spurious, record.quacks.received])
                .map(|n| n.to_string()),
        );
        row
    });
    table(&header, rows, 0)
}

/// The runs of one scenario: a table, and the median.
pub fn summary(scenario: &Scenario, records: &[RunRecord]) -> String {
    let mode = if scenario.flow.split { "split proxy" } else { scenario.sidekick.mode.name() };
    if scenario.flow.kind == FlowKind::Audio {
        return format!("{}: sidekick {mode}\n{}\n", scenario.name, calls(records));
    }
    let cc = scenario.congestion_control().name();
    if scenario.flow.kind == FlowKind::Messages {
        return format!(
            "{}: head-of-line delay, sidekick {mode}, {cc}\n{}\n",
            scenario.name,
            messages(records)
        );
    }
    let mut text = format!("{}: sidekick {mode}, {cc}\n{}\n", scenario.name, runs(records));
    if let Some((median, least, most)) = median(records.iter().map(|record| record.goodput_mbit_s))
    {
        text += &format!("Median goodput {median:.2} Mbit/s (from {least:.2} to {most:.2}).\n");
    }
    text
}

/// What one run came to, in a few words.
pub fn outcome(record: &RunRecord) -> String {
    if let Some(call) = &record.audio {
        let waits = &call.dejitter_ms;
        return format!(
            "de-jitter latency p99 {:.1} ms, at most {:.1} ms, in {}",
            waits.p99,
            waits.max,
            seconds(record.time_s)
        );
    }
    if let Some(waits) = &record.head_of_line_ms {
        return format!(
            "head-of-line delay p99 {:.1} ms, at most {:.1} ms, in {}",
            waits.p99,
            waits.max,
            seconds(record.time_s)
        );
    }
    format!("{:.2} Mbit/s in {}", record.goodput_mbit_s, seconds(record.time_s))
}

/// A time in seconds.
pub fn seconds(time: f64) -> String {
    format!("{time:.1} s")
}

/// The first digits of a hash.
pub fn short_hash(hash: &str) -> String {
    hash.chars().take(SHORT_HASH).collect()
}

/// Median, least and most of some figures; `None` of no figures.
pub fn median(figures: impl IntoIterator<Item = f64>) -> Option<(f64, f64, f64)> {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    let (least, most) = (*figures.first()?, *figures.last()?);
    let upper = *figures.get(figures.len() / 2)?;
    let lower = *figures.get((figures.len() - 1) / 2)?;
    Some(((lower + upper) / 2.0, least, most))
}

/// The share of packets that this machine delayed, in percent, where a run is about delays: a call.
pub fn late_percent(record: &RunRecord) -> f64 {
    if record.audio.is_some() { record.links.late_percent() } else { 0.0 }
}

/// What must be said besides the figures of a run, if anything.
pub fn remarks(record: &RunRecord) -> Vec<String> {
    let mut remarks = Vec::new();
    if record.mode != "off" && !record.assisted {
        remarks.push(format!("the sender was not assisted: {}", record.assistance));
    }
    let overruns = record.links.overruns();
    if overruns > 0 {
        remarks.push(format!(
            "this machine was too slow for {overruns} packets, which look like losses that the scenario does not have; \
             run it again with less going on"
        ));
    }
    let late = late_percent(record);
    if late > MOST_LATE_PERCENT {
        remarks.push(format!(
            "this machine was busy: {late:.1} % of packets left a link more than a millisecond late, so that delays are longer \
             than the scenario's; run it again with less going on"
        ));
    }
    remarks
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
