//! Tables of simulated figures. A snapshot has each table, and a document shows its rows.
//!
//! A whole table takes minutes. So a test computes one figure of every eighth row, or of every
//! second one if `SIDEKICK_SEEDS` is `all`, and expects it in the snapshot. Its column moves on
//! from row to row. The figures are exact, so they show nearly any change of behaviour. `make
//! tables` computes all figures, and accepts the new ones. `cargo insta` would accept a mixture of
//! new and old ones.

use super::seeds::few_or_all;

/// Compares a table with the snapshot of this name in `netem/tests/snapshots`.
macro_rules! assert_snapshot {
    ($name:literal, $text:expr) => {
        insta::with_settings!(
            { snapshot_path => "../snapshots", prepend_module_to_snapshot => false },
            { insta::assert_snapshot!($name, $text) }
        )
    };
}

/// Whether to compute all figures: `make tables` runs.
pub(crate) fn is_whole() -> bool {
    std::env::var_os("INSTA_UPDATE").is_some_and(|update| update == "always")
}

/// What a table has beside its figures.
pub(crate) struct Table {
    /// The heading of the rows' names.
    pub(crate) corner: &'static str,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<String>,
    /// The width of the rows' names.
    pub(crate) name: usize,
    /// The width of a column.
    pub(crate) width: usize,
    /// Words in the names of rows that take long, and that help does not change or other rows
    /// represent. Only `make tables` computes these rows. The tests compute some of the rest.
    pub(crate) slow: &'static [&'static str],
}

impl Table {
    /// The text of the table. `snapshot` is the file with its figures, and `figure` computes the
    /// figure in a row and a column. Figures that are not computed are those of the snapshot.
    pub(crate) fn text(
        &self,
        snapshot: &str,
        mut figure: impl FnMut(usize, usize) -> String,
    ) -> String {
        let known = self.figures(snapshot);
        let is_whole = is_whole();
        let chosen = std::env::var("SIDEKICK_ROWS").unwrap_or_default();
        let one_in = few_or_all(8, 2);
        let mut sampled = 0;
        let mut lines = vec![format!("{:1$}", self.corner, self.name)];
        lines[0].extend(self.columns.iter().map(|column| format!("{column:>0$}", self.width)));
        for (row, name) in self.rows.iter().enumerate() {
            let mut line = format!("{name:0$}", self.name);
            let is_due = match (is_whole, chosen.is_empty()) {
                (true, true) => true,
                (true, false) => chosen.split(',').any(|word| name.contains(word)),
                (false, _) if self.slow.iter().any(|word| name.contains(word)) => false,
                (false, _) => {
                    sampled += 1;
                    // The first rows of most tables have no help.
                    sampled % one_in == 3 % one_in
                }
            };
            for column in 0..self.columns.len() {
                let known = known.get(row).and_then(|figures| figures.get(column)?.clone());
                let is_next = is_whole || column == (sampled / one_in + 1) % self.columns.len();
                let known = known.filter(|_| !is_due || !is_next);
                let figure = known.unwrap_or_else(|| figure(row, column));
                line.push_str(&format!("{figure:>0$}", self.width));
            }
            lines.push(line);
        }
        lines.join("\n")
    }

    /// The figures of each row in the text of a table. `None` stands for a figure that it lacks.
    pub(crate) fn figures(&self, text: &str) -> Vec<Vec<Option<String>>> {
        let lines: Vec<_> =
            text.lines().filter_map(|line| line.split_at_checked(self.name)).collect();
        let of_row = |row: &String| {
            let line = lines.iter().find(|(name, _)| name.trim_end() == row);
            let mut cells = line.map_or("", |(_, cells)| cells);
            let mut next = || {
                let (cell, rest) = cells.split_at_checked(self.width)?;
                cells = rest;
                Some(cell.trim().to_owned())
            };
            self.columns.iter().map(|_| next()).collect()
        };
        self.rows.iter().map(of_row).collect()
    }

    /// A row of the snapshot in Markdown, with the name that the document has for it.
    pub(crate) fn markdown(&self, snapshot: &str, row: &str, name: &str) -> String {
        let at = self.rows.iter().position(|known| known == row).unwrap();
        let figures: Vec<_> =
            self.figures(snapshot)[at].iter().map(|it| it.clone().unwrap_or_default()).collect();
        format!("| {name} | {} |\n", figures.join(" | "))
    }

    /// Checks that a document has those rows of the snapshot that it shows, in Markdown. `is_shown`
    /// tells by a row's name.
    pub(crate) fn assert_shown(
        &self,
        snapshot: &str,
        document: &str,
        is_shown: impl Fn(&str) -> bool,
    ) {
        for name in self.rows.iter().filter(|name| is_shown(name)) {
            let row = self.markdown(snapshot, name, name);
            assert!(document.contains(&row), "the document lacks {row}");
        }
    }
}
