//! Shard files: the outcomes of one machine's runs, and how to merge the files of all machines.
//!
//! A file has one JSON object in each line: first a header that names the list of runs and the
//! shard, then each run, with its record or the reason of its failure.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::job::Outcome;
use super::plan::{NoShard, Plan, Shard};
use super::quantity::Results;
use crate::files::{self, FileError, write_whole};
use crate::record::RunRecord;

const HINT: &str = "this is no shard file of this version; run the shard again";

/// The first line of a shard file.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    version: String,
    /// Digest of the list of runs.
    plan: String,
    runs: usize,
    /// Which shard this is, as `1/4`.
    shard: String,
}

/// Each other line: one run.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Line {
    /// The run's place in the list.
    index: usize,
    /// The run in words, for readers.
    run: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    record: Option<RunRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Why shards cannot be written, read or merged.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// A file that cannot be read or written, or is no shard file.
    #[error(transparent)]
    File(#[from] FileError),
    /// There are no files to merge, runs are missing, or a file has other runs.
    #[error("{0}")]
    Mismatch(String),
}

pub(crate) fn file_name(shard: Shard) -> String {
    format!("shard-{}.jsonl", shard.to_string().replace('/', "-of-"))
}

/// Writes the outcomes of a shard's runs, in the order of [`Plan::shard`], to its file in
/// `directory`. An error leaves no partial file.
pub(crate) fn write(
    plan: &Plan,
    shard: Shard,
    outcomes: &[Outcome],
    directory: &Path,
) -> Result<PathBuf, StoreError> {
    let path = directory.join(file_name(shard));
    let header = Header {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        plan: plan.digest().to_owned(),
        runs: plan.jobs().len(),
        shard: shard.to_string(),
    };
    let text = || -> serde_json::Result<String> {
        let mut text = serde_json::to_string(&header)? + "\n";
        for ((index, job), outcome) in plan.shard(shard).zip(outcomes) {
            let (record, error) = (outcome.clone().ok(), outcome.clone().err());
            text += &serde_json::to_string(&Line { index, run: job.identity(), record, error })?;
            text += "\n";
        }
        Ok(text)
    };
    let text = text().map_err(|error| FileError::io("write", &path)(error.into()))?;
    write_whole(&path, text.as_bytes())?;
    Ok(path)
}

/// Reads the shard files among `paths` and merges them. Each path is a file, or a directory of
/// files.
pub(crate) fn merge(plan: &Plan, paths: &[PathBuf]) -> Result<Results, StoreError> {
    let mut outcomes: BTreeMap<usize, Outcome> = BTreeMap::new();
    let mut cut: Option<(PathBuf, Shard)> = None;
    for path in shard_files(paths)? {
        let (shard, lines) = read(plan, &path)?;
        if let Some((other, first)) = &cut
            && first.of() != shard.of()
        {
            let (path, other, of) = (path.display(), other.display(), first.of());
            return Err(StoreError::Mismatch(format!(
                "{path} is shard {shard}, but {other} belongs to a division into {of} shards; \
                 remove the files of one division"
            )));
        }
        cut.get_or_insert((path, shard));
        outcomes.extend(lines);
    }
    let Some((_, first)) = cut else {
        let path = paths.first().cloned().unwrap_or_default();
        let path = path.display();
        return Err(StoreError::Mismatch(format!(
            "there is no shard file in {path}; write them with `sidekick-lab figures --shard I/N \
             --out {path}`"
        )));
    };
    let missing: Vec<String> = first
        .siblings()
        .filter(|shard| plan.shard(*shard).any(|(index, _)| !outcomes.contains_key(&index)))
        .map(|shard| shard.to_string())
        .collect();
    if !missing.is_empty() {
        return Err(StoreError::Mismatch(format!(
            "these shards are missing or incomplete: {}; run each with `sidekick-lab figures \
             --shard I/N --out DIR`",
            missing.join(", ")
        )));
    }
    let jobs = plan.jobs().iter().cloned().enumerate();
    Ok(jobs.filter_map(|(index, job)| Some((job, outcomes.remove(&index)?))).collect())
}

fn shard_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, StoreError> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let failed = FileError::io("read", path);
        for entry in fs::read_dir(path).map_err(&failed)? {
            let entry = entry.map_err(&failed)?.path();
            let name = entry.file_name().and_then(OsStr::to_str).unwrap_or_default();
            if name.starts_with("shard-") && name.ends_with(".jsonl") {
                files.push(entry);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn read(plan: &Plan, path: &Path) -> Result<(Shard, Vec<(usize, Outcome)>), StoreError> {
    let malformed =
        |line, problem: &dyn ToString| FileError::line(path, line, problem.to_string(), HINT);
    let text = files::read(path)?;
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    let header: Header = serde_json::from_str(first).map_err(|error| malformed(1, &error))?;
    let our_version = env!("CARGO_PKG_VERSION");
    if (header.plan.as_str(), header.version.as_str()) != (plan.digest(), our_version) {
        let (path, ours) = (path.display(), plan.jobs().len());
        let Header { runs, version, .. } = header;
        return Err(StoreError::Mismatch(format!(
            "{path} has runs of another list ({runs} of version {version}, here {ours} of version \
             {our_version}); repeat the options of that run (--quick, --only, --compare), or \
             run the shard again"
        )));
    }
    let shard = header.shard.parse().map_err(|error: NoShard| malformed(1, &error))?;
    let mut outcomes = Vec::new();
    for (text, number) in lines.zip(2..) {
        let line: Line = serde_json::from_str(text).map_err(|error| malformed(number, &error))?;
        let outcome = match (line.record, line.error) {
            (Some(record), None) => Ok(record),
            (None, Some(error)) => Err(error),
            _ => return Err(malformed(number, &"neither a record nor an error").into()),
        };
        outcomes.push((line.index, outcome));
    }
    Ok((shard, outcomes))
}

#[cfg(test)]
mod tests;
