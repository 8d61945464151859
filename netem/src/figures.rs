//! `sidekick-lab figures`: runs every experiment, draws its results, and writes one page.
//!
//! - `job`: the runs; `quantity`: the figures from their records; `model`: what the page
//!   shows, which determines the runs; `sender`: the senders and their colours;
//! - `experiments`: the experiments; `reference`: what others published; `agreement`:
//!   backends side by side;
//! - `plan`: the list of all runs and its shards; `store`: shard files;
//! - `draw`, `data`, `page`: plots, tables, the page. [`write()`] writes all of it to a
//!   directory.

use std::path::{Path, PathBuf};

pub(crate) mod agreement;
pub(crate) mod data;
pub(crate) mod draw;
pub mod experiments;
pub mod job;
pub mod model;
pub mod page;
pub mod plan;
pub mod quantity;
pub mod reference;
pub(crate) mod sender;
pub(crate) mod sheet;
pub(crate) mod store;

use plan::Plan;
use quantity::Results;

use crate::files::{FileError, write_whole};

/// The name of the page.
pub const PAGE: &str = "index.html";

/// Why the page or a CSV file cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The drawing failed.
    #[error(transparent)]
    Draw(#[from] draw::DrawError),
    /// A CSV file cannot be made.
    #[error("cannot make {name}")]
    Csv {
        /// The file's name.
        name: String,
        /// Why.
        source: csv::Error,
    },
    /// A file cannot be written.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Writes the page and the CSV files into `directory`, the page last. An error leaves no partial
/// file.
///
/// # Errors
///
/// [`WriteError`].
pub fn write(
    plan: &Plan,
    results: &Results,
    about: &page::About,
    directory: &Path,
) -> Result<PathBuf, WriteError> {
    let write = |name: &str, bytes: &[u8]| -> Result<PathBuf, WriteError> {
        let path = directory.join(name);
        write_whole(&path, bytes)?;
        Ok(path)
    };
    let page = page::page(plan, results, about)?;
    for part in plan.experiments().iter().flat_map(|experiment| &experiment.parts) {
        let name = page::csv_name(part);
        let csv = data::for_programs(part, results).csv();
        write(&name, &csv.map_err(|source| WriteError::Csv { name: name.clone(), source })?)?;
    }
    write(PAGE, page.as_bytes())
}
