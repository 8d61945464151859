//! Tables and sentences about runs.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Table};

use crate::run::RunRecord;

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

/// What one run came to, in a few words.
pub fn outcome(record: &RunRecord) -> String {
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
        let text = table(&["sender", "time"], [vec!["a".to_owned(), "1 s".to_owned()]], 1).to_string();
        assert!(text.contains("│ a      ┆  1 s │"), "{text}");
    }
}
