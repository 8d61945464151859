//! Parts of a status as text for people.

use std::fmt::Write as _;

/// The text without characters that control a terminal: another program may answer at the port.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().map(|char| if char.is_control() && char != '\n' { '?' } else { char }).collect()
}

/// A table. `alignment` has a letter for each column: `l` left, `r` right.
pub(crate) fn table(
    headings: &[&str],
    alignment: &str,
    rows: impl Iterator<Item = Vec<String>>,
) -> String {
    let headings = headings.iter().map(|heading| (*heading).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(headings).chain(rows).collect();
    let mut widths: Vec<usize> = Vec::new();
    for row in &rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for ((cell, width), aligned) in row.iter().zip(&widths).zip(alignment.chars()) {
            let _ = if aligned == 'l' {
                write!(line, "{cell:<width$}  ")
            } else {
                write!(line, "{cell:>width$}  ")
            };
        }
        text += line.trim_end();
        text += "\n";
    }
    text
}

/// A time in the two largest units that fit.
pub(crate) fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        for (seconds, said) in
            [(0, "0 s"), (59, "59 s"), (61, "1 min"), (7_260, "2 h 1 min"), (90_000, "1 d 1 h")]
        {
            assert_eq!(duration(seconds), said);
        }
    }
}
