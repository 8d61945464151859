//! The demonstration: one file, several senders, and the same path. Two tables show uploads and the
//! third downloads, each with sentences below that explain it. Others show downloads over a
//! satellite, a call, and an agent.

use std::path::Path;
use std::{fmt, io};

pub(crate) mod agent;
pub(crate) mod call;
mod downloads;
pub(crate) mod summary;

use serde::Serialize;

use crate::figures::draw::DrawError;
use crate::figures::sender::{
    BBR2, CUBIC as STOCK_CUBIC, CUBIC_RFC9438 as RFC_CUBIC, PACUBIC, PATH_AWARE_BBR2, Sender,
};
use crate::files::FileError;
use crate::pool::in_lanes;
use crate::progress::Bars;
use crate::record::RunRecord;
use crate::report::{Column, or_dash, remarks, seconds, short_hash, table_of};
use crate::run::{Bench, RunError};
use crate::scenario::{Scenario, ScenarioError};
use crate::source::SourceFile;

/// The programs that the demonstration needs.
pub(crate) const PROGRAMS: [&str; 4] =
    ["h3-upload-server", "h3-upload", "h3-download", "sidekick-proxy"];

pub(crate) const DEFAULT_BYTES: u64 = 10 * 1024 * 1024;
/// In a shorter file, the congestion controllers hardly differ.
pub(crate) const LEAST_BYTES: u64 = 4 * 1024 * 1024;
/// Size of the file that the demonstration of a satellite downloads.
pub(crate) const SATELLITE_BYTES: u64 = 1024 * 1024;
/// Size of the file of the agent's demonstration. Without help, it takes 40 seconds each way.
pub(crate) const AGENT_BYTES: u64 = 5 * 1024 * 1024;
/// The second table uploads this much of the file, and the third downloads this much. Without help,
/// they have 1 to 2 Mbit/s, and more of the file would only take longer.
const SECOND_BYTES: u64 = 6 * 1024 * 1024;
const THIRD_BYTES: u64 = 3 * 1024 * 1024;

const UPLOAD: &str = "upload-paper";
/// Goodputs that differ by at most this share count as equal.
const AS_GOOD: f64 = 0.1;

/// The number of runs at a time. Each takes about a fifth of a core, so two measure what each
/// measures alone.
const LANES: usize = 2;

/// Does `work` for each job, two at a time. Returns their results in the order of the jobs.
fn side_by_side<J: Sync, T: Send>(
    jobs: &[J],
    work: impl Fn(&J) -> Result<T, DemoError> + Sync,
) -> Result<Vec<T>, DemoError> {
    in_lanes(LANES, jobs, work, |_, _| ())
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub sender: &'static str,
    pub runs: usize,
    /// Goodput of its slowest and its fastest run, in Mbit/s.
    pub goodput_range_mbit_s: (f64, f64),
    /// The record of the run with the median goodput.
    #[serde(flatten)]
    pub record: RunRecord,
}

/// A claim, measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Check {
    pub claim: String,
    /// The least ratio that passes the check.
    pub wanted: f64,
    pub measured: f64,
    /// Whether the ratio is large enough, and the file of every sender arrived unchanged.
    pub passed: bool,
}

impl Check {
    /// A check that fails if not all files arrived `whole`.
    fn of(claim: String, wanted: f64, measured: f64, whole: bool) -> Self {
        Self { claim, wanted, measured, passed: whole && measured >= wanted }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claim, measured, passed, .. } = self;
        let verdict = if *passed { "passed" } else { "FAILED" };
        writeln!(f, "Check: {claim}: {measured:.2} times, {verdict}.")
    }
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    /// Loss on the near segment, each way.
    pub near_loss_percent: f64,
    pub rows: Vec<Row>,
    #[serde(skip)]
    columns: &'static [Column<Row>],
    /// What the table shows, in sentences.
    pub says: String,
    pub check: Check,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Demo {
    /// The file. `None` if the demonstration made it: it is deleted at the end.
    pub file: Option<String>,
    pub bytes: u64,
    pub sha256: String,
    pub comparisons: Vec<Comparison>,
    pub passed: bool,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error("{who}")]
    Run {
        /// The sender or the call.
        who: &'static str,
        source: RunError,
    },
    /// The file of a table that transfers only the head cannot be prepared.
    #[error("cannot copy the head of the file")]
    Head(#[source] io::Error),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Draw(#[from] DrawError),
}

/// What differs between the tables.
struct Plan {
    scenario: &'static str,
    loss: &'static str,
    /// The number of runs of each sender. It is odd, so that the median is one of the runs.
    runs: u64,
    senders: &'static [Sender],
    slow: Sender,
    fast: Sender,
    wanted: f64,
    sentence: fn(&[Row]) -> String,
    columns: &'static [Column<Row>],
}

const FIRST: Plan = Plan {
    scenario: UPLOAD,
    loss: "1",
    runs: 1,
    senders: &[STOCK_CUBIC, RFC_CUBIC, BBR2, PACUBIC],
    slow: RFC_CUBIC,
    fast: PACUBIC,
    wanted: 3.0,
    sentence: first_sentence,
    columns: &COLUMNS,
};
const SECOND: Plan = Plan {
    loss: "15",
    // At this loss, one run of BBR2 may be twice as fast as the next.
    runs: 3,
    senders: &[BBR2, PATH_AWARE_BBR2],
    slow: BBR2,
    fast: PATH_AWARE_BBR2,
    wanted: 2.5,
    sentence: second_sentence,
    ..FIRST
};

/// Runs all tables. Passes each table to `show` as soon as it is complete.
pub(crate) fn run(
    bench: &Bench<'_>,
    file: &SourceFile,
    seed: u64,
    show: impl FnMut(&Comparison, &SourceFile),
) -> Result<Demo, DemoError> {
    let head = |name, bytes| file.head(&bench.directory.join(name), bytes).map_err(DemoError::Head);
    let (most, part) = (head("second", SECOND_BYTES)?, head("third", THIRD_BYTES)?);
    let tables = [(&FIRST, file), (&SECOND, &most), (&downloads::THIRD, &part)];
    compare_all(bench, &tables, file, seed, show)
}

/// Downloads a file over a satellite. Passes the table to `show`.
pub(crate) fn over_satellite(
    bench: &Bench<'_>,
    file: &SourceFile,
    seed: u64,
    show: impl FnMut(&Comparison, &SourceFile),
) -> Result<Demo, DemoError> {
    compare_all(bench, &[(&downloads::SATELLITE, file)], file, seed, show)
}

fn compare_all(
    bench: &Bench<'_>,
    tables: &[(&Plan, &SourceFile)],
    file: &SourceFile,
    seed: u64,
    mut show: impl FnMut(&Comparison, &SourceFile),
) -> Result<Demo, DemoError> {
    let mut comparisons = Vec::new();
    for (plan, file) in tables {
        let comparison = compare(bench, plan, file, seed)?;
        show(&comparison, file);
        comparisons.push(comparison);
    }
    let passed = comparisons.iter().all(|comparison| comparison.check.passed);
    Ok(Demo {
        // The lab deletes this directory, and the file that it made there.
        file: (!file.path.starts_with(bench.directory)).then(|| file.path.display().to_string()),
        bytes: file.bytes,
        sha256: file.sha256.clone(),
        comparisons,
        passed,
    })
}

fn compare(
    bench: &Bench<'_>,
    plan: &Plan,
    file: &SourceFile,
    seed: u64,
) -> Result<Comparison, DemoError> {
    let mut scenario = Scenario::load(plan.scenario)?;
    scenario.set("near.loss_percent", plan.loss)?;
    // All senders run with one seed before the next seed, so other load on this machine affects all
    // of them.
    let jobs: Vec<(u64, Sender)> = (0..plan.runs)
        .flat_map(|number| plan.senders.iter().map(move |sender| (number, *sender)))
        .collect();
    let bars = Bars::default();
    let records = side_by_side(&jobs, |(number, sender)| {
        let mut scenario = scenario.clone();
        scenario.apply(sender.settings)?;
        let mut label = format!("{}, {} % loss", sender.name, plan.loss);
        if plan.runs > 1 {
            label += &format!(", {} of {}", number + 1, plan.runs);
        }
        let progress = bars.begin(label, file.bytes);
        bench
            .transfer(&scenario, seed.wrapping_add(*number), file, progress)
            .map_err(|source| DemoError::Run { who: sender.name, source })
    })?;
    let rows: Vec<Row> = plan
        .senders
        .iter()
        .enumerate()
        .filter_map(|(place, sender)| {
            let records = records.iter().skip(place).step_by(plan.senders.len());
            Row::of(*sender, records.cloned().collect(), file)
        })
        .collect();
    Ok(Comparison::of(plan, rows, file))
}

impl Comparison {
    fn of(plan: &Plan, rows: Vec<Row>, file: &SourceFile) -> Self {
        let Plan { slow, fast, wanted, columns, .. } = *plan;
        Self {
            near_loss_percent: plan.loss.parse().unwrap_or_default(),
            says: (plan.sentence)(&rows),
            check: check(&rows, slow, fast, wanted, file),
            columns,
            rows,
        }
    }

    fn is_download(&self) -> bool {
        self.rows.iter().any(|row| row.record.is_download())
    }

    /// What was transferred, and the loss of its path.
    fn title(&self) -> String {
        let what = if self.is_download() { "Download" } else { "Upload" };
        format!("{what} at {} % near loss", self.near_loss_percent)
    }
}

impl Row {
    /// The row of a sender's runs. A run whose file did not arrive unchanged stands in place of the
    /// median run, so that the row shows it.
    fn of(sender: Sender, mut records: Vec<RunRecord>, file: &SourceFile) -> Option<Self> {
        records.sort_by(|one, other| one.goodput_mbit_s.total_cmp(&other.goodput_mbit_s));
        let goodput_range_mbit_s =
            (records.first()?.goodput_mbit_s, records.last()?.goodput_mbit_s);
        let runs = records.len();
        let spoilt = records.iter().position(|record| record.sha256 != file.sha256);
        let record = records.swap_remove(spoilt.unwrap_or(runs / 2));
        Some(Self { sender: sender.name, runs, goodput_range_mbit_s, record })
    }

    fn goodput(&self) -> String {
        let (goodput, (least, most)) = (self.record.goodput_mbit_s, self.goodput_range_mbit_s);
        match self.runs {
            1 => format!("{goodput:.2}"),
            _ => format!("{goodput:.2} ({least:.2} to {most:.2})"),
        }
    }
}

fn goodput(rows: &[Row], sender: Sender) -> f64 {
    rows.iter().find(|row| row.sender == sender.name).map_or(0.0, |row| row.record.goodput_mbit_s)
}

/// How many times as fast one sender was as another.
fn ratio(rows: &[Row], fast: Sender, slow: Sender) -> f64 {
    let slow = goodput(rows, slow);
    if slow > 0.0 { goodput(rows, fast) / slow } else { 0.0 }
}

fn check(rows: &[Row], slow: Sender, fast: Sender, wanted: f64, file: &SourceFile) -> Check {
    let measured = ratio(rows, fast, slow);
    let whole =
        rows.iter().all(|row| row.record.sha256 == file.sha256 && row.record.bytes == file.bytes);
    let claim = format!("{} at least {wanted} times as fast as {}", fast.name, slow.name);
    Check::of(claim, wanted, measured, whole)
}

/// How one goodput compares with another, in words.
fn beside(figure: f64, other: f64) -> &'static str {
    if figure > other * (1.0 + AS_GOOD) {
        "is faster"
    } else if figure < other * (1.0 - AS_GOOD) {
        "is slower"
    } else {
        "is as good"
    }
}

fn first_sentence(rows: &[Row]) -> String {
    let (helped, plain) = (goodput(rows, PACUBIC), goodput(rows, BBR2));
    format!(
        "The proxy reports to PACUBIC which packets were lost before it. PACUBIC is {:.1} times as \
         fast as CUBIC of RFC 9438, and {:.1} times as fast as quiche's own CUBIC.{} Plain BBR2 \
         needs no proxy. It {} at this loss: {plain:.2} against {helped:.2} Mbit/s.",
        ratio(rows, PACUBIC, RFC_CUBIC),
        ratio(rows, PACUBIC, STOCK_CUBIC),
        early_share(rows, PACUBIC),
        beside(plain, helped),
    )
}

fn second_sentence(rows: &[Row]) -> String {
    let (plain, helped) = (goodput(rows, BBR2), goodput(rows, PATH_AWARE_BBR2));
    format!(
        "At this loss BBR2 alone has {plain:.2} Mbit/s. Path-aware BBR2 does not count losses \
         before the proxy as congestion. It has {helped:.2} Mbit/s, {:.1} times as much.{}",
        ratio(rows, PATH_AWARE_BBR2, BBR2),
        early_share(rows, PATH_AWARE_BBR2),
    )
}

fn early_share(rows: &[Row], sender: Sender) -> String {
    let Some(row) = rows.iter().find(|row| row.sender == sender.name) else { return String::new() };
    let packets = &row.record.packets;
    let Some(end_to_end) = packets.lost_end_to_end else { return String::new() };
    let all = packets.lost_early + end_to_end;
    format!(" It detected {} of its {all} losses by the proxy's reports.", packets.lost_early)
}

const COLUMNS: [Column<Row>; 8] = [
    ("sender", |row| row.sender.to_owned()),
    TIME,
    GOODPUT,
    PACKETS,
    ("losses detected early", |row| row.record.packets.lost_early.to_string()),
    ("detected end to end", |row| or_dash(row.record.packets.lost_end_to_end)),
    ("quACKs", |row| row.record.quacks.received.to_string()),
    HASH,
];
const TIME: Column<Row> = ("time", |row| seconds(row.record.time_s));
const GOODPUT: Column<Row> = ("Mbit/s", Row::goodput);
const PACKETS: Column<Row> = ("packets sent", |row| row.record.packets.sent.to_string());
const LOST_NEAR: Column<Row> = ("lost near", |row| row.record.packets.lost_near.to_string());
const COPIES: Column<Row> = ("copies", |row| downloads::repeats(row).repeats_received.to_string());
const HASH: Column<Row> = ("SHA-256", |row| short_hash(&row.record.sha256));

/// The table of a comparison, with the sentences below it.
pub(crate) fn print(comparison: &Comparison, file: &SourceFile) -> String {
    let what = if comparison.is_download() { " downloaded" } else { "" };
    let runs = comparison.rows.iter().map(|row| row.runs).max().unwrap_or(1);
    let median =
        if runs > 1 { format!("; of {runs} runs each, the median run") } else { String::new() };
    let mut text = format!(
        "\n{} bytes{what} over the lossy path, {} % loss each way on the near segment{median}\n\
         {}\n{}\n",
        file.bytes,
        comparison.near_loss_percent,
        table_of(comparison.columns, &comparison.rows, 1),
        comparison.says,
    );
    for row in &comparison.rows {
        text += &remarks_of(row.sender, &row.record);
    }
    text + &comparison.check.to_string()
}

/// The remarks on a run, each on a line of its own.
fn remarks_of(name: &str, record: &RunRecord) -> String {
    remarks(record).iter().map(|remark| format!("{name}: {remark}\n")).collect()
}

/// The other demonstrations, each with the command that builds and runs it.
pub(crate) fn others() -> String {
    let of = |what: &str, command: &str| format!("  {what}\n      make {command}\n");
    [
        "\nThe other demonstrations:\n".to_owned(),
        of(
            "A satellite: parity repairs a download where a request would take too long.",
            "demo-satellite",
        ),
        of("A call: re-injection repairs audio before it is too late to play.", "demo-audio"),
        of("Unmodified programs: an agent repairs an upload, a download and a call.", "demo-agent"),
    ]
    .concat()
}

/// Why a file does not suit the demonstration, in a sentence. `None` if it does.
pub(crate) fn objection(path: &Path) -> Option<String> {
    let path_text = path.display();
    match std::fs::metadata(path) {
        Err(error) => Some(format!("cannot read {path_text}: {error}")),
        Ok(about) if !about.is_file() => Some(format!("{path_text} is not a file")),
        Ok(about) if about.len() < LEAST_BYTES => Some(format!(
            "{path_text} has {} bytes; use a file of at least {LEAST_BYTES} bytes, because a \
             shorter one shows no difference",
            about.len()
        )),
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests;
