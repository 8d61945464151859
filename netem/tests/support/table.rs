//! Tables of simulated figures. A snapshot has each, and a document shows its rows.
//!
//! A whole table takes minutes. So a test computes one figure of each row, in a column that moves
//! on from row to row, and expects it in the snapshot. The figures are exact, so nearly any change
//! of behaviour shows. `make tables` computes all of them.

/// What a table has beside its figures.
pub(crate) struct Table<'a> {
    /// What stands above the names of the rows.
    pub(crate) corner: &'a str,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<String>,
    /// The width of the names of the rows.
    pub(crate) name: usize,
    /// The width of a column.
    pub(crate) width: usize,
}

impl Table<'_> {
    /// The text of the table. `snapshot` is the file with its figures, and `figure` computes the
    /// one in a row and a column. Figures that are not computed are those of the snapshot.
    pub(crate) fn text(
        &self,
        snapshot: &str,
        mut figure: impl FnMut(usize, usize) -> String,
    ) -> String {
        let known = self.figures(snapshot);
        let is_whole = std::env::var_os("INSTA_UPDATE").is_some() || known.len() < self.rows.len();
        let mut text = format!("{:1$}", self.corner, self.name);
        let mut add = |text: &mut String, cell: &str| {
            text.push_str(&format!("{cell:>0$}", self.width));
        };
        self.columns.iter().for_each(|column| add(&mut text, column));
        for (row, name) in self.rows.iter().enumerate() {
            text.push_str(&format!("\n{name:0$}", self.name));
            for column in 0..self.columns.len() {
                let known = known.get(row).and_then(|figures| figures.get(column));
                match known {
                    Some(known) if !is_whole && column != row % self.columns.len() => {
                        add(&mut text, known);
                    }
                    _ => add(&mut text, &figure(row, column)),
                }
            }
        }
        text
    }

    /// The figures of each row, as a snapshot has them.
    fn figures(&self, snapshot: &str) -> Vec<Vec<String>> {
        let line_of = |name: &String| {
            let split = |line| str::split_at_checked(line, self.name);
            let mut lines = snapshot.lines().filter_map(split);
            lines.find(|(start, _)| start.trim_end() == name.as_str())
        };
        let columns = |figures: &str| {
            let cells = figures.as_bytes().chunks(self.width);
            cells.map(|cell| String::from_utf8_lossy(cell).trim().to_owned()).collect()
        };
        self.rows.iter().filter_map(line_of).map(|(_, figures)| columns(figures)).collect()
    }

    /// The rows of the snapshot, as a document in Markdown shows them.
    pub(crate) fn markdown_rows(&self, snapshot: &str) -> Vec<String> {
        let figures = self.figures(snapshot);
        let row = |(name, figures): (&String, Vec<String>)| {
            format!("| {name} | {} |\n", figures.join(" | "))
        };
        self.rows.iter().zip(figures).map(row).collect()
    }
}
