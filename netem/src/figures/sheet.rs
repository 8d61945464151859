//! Rows of text, for a page or a CSV file.

use super::quantity::Summary;
use crate::words;

/// The text of an entry without a result.
const NOTHING: &str = "–";

/// The rows of a part of the page.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sheet {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Sheet {
    pub(super) fn new(columns: &[&str]) -> Self {
        Self { columns: words(columns), rows: Vec::new() }
    }

    /// As a CSV file. An error means that a row has more or fewer entries than there are columns.
    pub(super) fn csv(&self) -> Result<Vec<u8>, csv::Error> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(&self.columns)?;
        for row in &self.rows {
            writer.write_record(row)?;
        }
        writer.into_inner().map_err(|error| error.into_error().into())
    }
}

pub(super) fn or_nothing(summary: Option<Summary>, text: impl Fn(&Summary) -> String) -> String {
    summary.as_ref().map_or_else(|| NOTHING.to_owned(), text)
}
