//! A status as text for people.

use std::fmt::{Display, Write as _};

use super::subject::{InterfaceReport, Origin, Program};

/// A text that grows part by part. Writing to a String cannot fail.
pub(crate) struct Sheet(String);

impl Sheet {
    /// Begins with the program and its version.
    pub(crate) fn of(origin: &Origin) -> Self {
        let Origin { program, version, uptime, .. } = origin;
        Self(format!("{program} {version}, up {}\n", duration(*uptime)))
    }

    /// Adds a line.
    pub(crate) fn say(&mut self, name: &str, value: impl Display) {
        let _ = writeln!(self.0, "{name:<12}{value}");
    }

    /// Adds a table, as [`table`] makes it.
    pub(crate) fn table(
        &mut self,
        headings: &[&str],
        alignment: &str,
        rows: impl Iterator<Item = Vec<String>>,
    ) {
        let _ = write!(self.0, "\n{}", table(headings, alignment, rows));
    }

    /// Adds a table of the interfaces.
    pub(crate) fn interfaces<'a>(&mut self, interfaces: impl Iterator<Item = &'a InterfaceReport>) {
        let rows = interfaces.map(|of| {
            vec![
                of.name.clone(),
                of.backend.clone().unwrap_or_else(|| "-".to_owned()),
                of.state().to_owned(),
                of.captured.to_string(),
                of.dropped.to_string(),
            ]
        });
        self.table(&["interface", "backend", "state", "captured", "dropped"], "lllrr", rows);
    }

    /// Adds a table of sessions or flows, if there are any, and how many more of those that are
    /// open it does not show.
    pub(crate) fn rows(
        &mut self,
        program: Program,
        headings: &[&str],
        alignment: &str,
        rows: impl ExactSizeIterator<Item = Vec<String>>,
        open: usize,
    ) {
        let more = open.saturating_sub(rows.len());
        if rows.len() > 0 {
            self.table(headings, alignment, rows);
            if more > 0 {
                let _ = writeln!(self.0, "and {more} more {} (--all shows them)", program.rows);
            }
        }
    }

    /// The text, which is harmless.
    pub(crate) fn finish(self) -> String {
        harmless(&self.0)
    }
}

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
fn duration(seconds: u64) -> String {
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
