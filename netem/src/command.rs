//! The commands of `sidekick-lab`.

use std::fs::{File, create_dir_all};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crate::figures::agreement::{self, Agreement, Verdict};
use crate::figures::job::{Case, Job};
use crate::figures::sheet::Sheet;
use crate::path::Backend;
use crate::programs::Programs;
use crate::progress::Progress;
use crate::record::RunRecord;
use crate::run::{AGENT, AUDIO_PROGRAMS, Bench, DOWNLOAD_PROGRAMS, UPLOAD_PROGRAMS};
use crate::scenario::{FlowKind, Mode, Scenario, built_in, settings};
use crate::source::SourceFile;
use crate::{enclosure, report, sim, tc};
use anyhow::{Context, Result, bail};
use clap::Parser;
use serde::Serialize;

/// The interval between updates of the progress display.
const TICK: Duration = Duration::from_millis(100);

mod cli;
mod demo;
mod exec;
mod figures;
mod predict;
mod sweep;

use cli::{Cli, Command, Common};

/// Does what the command line asks for. Errors go to standard error.
pub fn main() -> ExitCode {
    let command = Cli::parse().command;
    match work(&command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sidekick-lab: {error:#}");
            match command {
                Command::Exec(_) => ExitCode::from(exec::LAB_FAILED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn work(command: &Command) -> Result<ExitCode> {
    match command {
        Command::List => list().map(|()| ExitCode::SUCCESS),
        Command::Run(run) if run.backend == "sim" => simulate(run).map(|()| ExitCode::SUCCESS),
        Command::Run(run) => {
            let pcap = run.pcap.as_deref();
            let check = || prepare_real_run(run).map(|scenario| programs_of(&scenario));
            in_enclosure(&run.backend, &run.common, pcap, check, |bench| do_run(run, bench))
        }
        Command::Exec(exec) => exec::run(exec),
        Command::Figures(figures) => figures::run(figures),
        Command::Predict(predict) => predict::run(predict),
        Command::Sweep(sweep) => sweep::run(sweep),
        Command::Compare(compare) => compare_backends(compare),
        Command::Demo(demo) => demo::transfers(demo),
        Command::DemoSatellite(demo) => demo::satellite(demo),
        Command::DemoAgent(demo) => demo::agent(demo),
        Command::DemoAudio(demo) => demo::audio(demo),
    }
}

/// Checks outside the enclosure as much as possible, with the programs that `check` names. Then
/// does the work inside.
fn in_enclosure(
    backend: &str,
    common: &Common,
    pcap: Option<&Path>,
    check: impl FnOnce() -> Result<Vec<&'static str>>,
    inside: impl FnOnce(&Bench<'_>) -> Result<bool>,
) -> Result<ExitCode> {
    let backend = real_backend(backend)?;
    let programs = Programs::find(common.programs.as_deref())?;
    let Some(directory) = enclosure::inside() else {
        for name in check()? {
            programs.path(name)?;
        }
        return Ok(ExitCode::from(enclosure::enter()?));
    };
    enclosure::end_with_outer(directory.clone())?;
    let bench = Bench { backend, programs: &programs, directory: &directory, pcap };
    Ok(if inside(&bench)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn real_backend(name: &str) -> Result<Backend> {
    match name {
        "user" => Ok(Backend::User),
        "tc" => Ok(Backend::Tc),
        "sim" => {
            bail!(
                "the demo runs real programs; use --backend user, or tc if the kernel has sch_netem"
            )
        }
        other => {
            bail!("there is no backend `{other}`; use sim, user, or tc if the kernel has sch_netem")
        }
    }
}

fn print(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")
}

fn print_json(value: &impl Serialize) -> Result<()> {
    print(&(serde_json::to_string(value)? + "\n"))
}

fn list() -> Result<()> {
    let mut text = "Scenarios:\n".to_owned();
    for (name, description) in built_in() {
        text += &format!("  {name:24} {description}\n");
    }
    text += "\nSettings, for --set and for scenario files:\n";
    let width = settings().map(|setting| setting.name().len()).max().unwrap_or_default();
    for setting in settings() {
        text += &format!("  {:width$} {}: {}\n", setting.name(), setting.meaning, setting.takes);
    }
    print(&text)
}

fn programs_of(scenario: &Scenario) -> Vec<&'static str> {
    let programs = match scenario.flow.kind {
        FlowKind::Audio | FlowKind::Listen => AUDIO_PROGRAMS,
        FlowKind::Download | FlowKind::Requests | FlowKind::Page => DOWNLOAD_PROGRAMS,
        FlowKind::Upload | FlowKind::Messages => UPLOAD_PROGRAMS,
    };
    let agent = Some(AGENT).filter(|_| scenario.sidekick.mode.is_of_agent());
    programs.into_iter().chain(agent).collect()
}

fn prepare_run(run: &cli::Run) -> Result<Scenario> {
    let mut scenario = Scenario::with(&run.scenario, &run.set)?;
    if run.trace.is_some() && scenario.sidekick.mode != Mode::Measure {
        bail!("only sidekick.mode = measure records a trace; set it, or omit --trace");
    }
    if let Some(path) = &run.file {
        if scenario.flow.kind.is_call() {
            bail!("{} is a call, which uploads no file; omit --file", scenario.name);
        }
        let about =
            std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        if !about.is_file() || about.len() == 0 {
            bail!("{} is empty or no file; give --file a file with contents", path.display());
        }
        scenario.flow.bytes = about.len();
    }
    Ok(scenario)
}

fn prepare_real_run(run: &cli::Run) -> Result<Scenario> {
    let scenario = prepare_run(run)?;
    if let Some(setting) = scenario.only_in_virtual_time() {
        let backend = &run.backend;
        bail!(
            "backend {backend} does not support {setting}; use --backend sim, or omit the setting"
        );
    }
    if run.backend == Backend::Tc.name() {
        tc::check(&scenario)?;
    }
    Ok(scenario)
}

fn source(file: Option<&Path>, directory: &Path, bytes: u64, seed: u64) -> Result<SourceFile> {
    match file {
        Some(path) => {
            SourceFile::open(path).with_context(|| format!("cannot read {}", path.display()))
        }
        None => SourceFile::generate(&directory.join("file"), bytes, seed)
            .context("cannot make the file to carry"),
    }
}

/// Runs a scenario in virtual time.
fn simulate(run: &cli::Run) -> Result<()> {
    if run.file.is_some() {
        bail!("backend sim makes its own contents; omit --file, or use --backend user");
    }
    let scenario = prepare_run(run)?;
    let mut records = Vec::new();
    for seed in seeds(run) {
        // A failed run affects no other.
        let record = match simulate_once(&scenario, seed, run.pcap.as_deref()) {
            Ok(record) => record,
            Err(error) if run.runs > 1 => {
                eprintln!("seed {seed}: {error:#}");
                continue;
            }
            Err(error) => return Err(error),
        };
        records.push(keep(run, record)?);
    }
    summarize(run, &scenario, &records)?;
    match run.runs - records.len() as u64 {
        0 => Ok(()),
        failed => bail!(
            "{failed} of {} runs failed, and the summary leaves them out; the lines above state why",
            run.runs
        ),
    }
}

/// Adds the settings to the record of a run. With `--json`, prints the record. With `--trace`,
/// writes what was recorded.
fn keep(run: &cli::Run, record: RunRecord) -> Result<RunRecord> {
    let record = RunRecord { settings: run.set.clone(), ..record };
    if run.common.json {
        print_json(&record)?;
    }
    if let (Some(directory), Some(trace)) = (&run.trace, &record.trace) {
        let path = directory.join(format!("seed-{}.trace", record.seed));
        let write = || {
            create_dir_all(directory)?;
            let mut file = BufWriter::new(File::create(&path)?);
            trace.write(&mut file)?;
            file.flush()
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(record)
}

/// Prints the records as a table, unless `--json` is given.
fn summarize(run: &cli::Run, scenario: &Scenario, records: &[RunRecord]) -> Result<()> {
    if run.common.json { Ok(()) } else { print(&report::summary(scenario, records)) }
}

/// One run on a thread of its own. This thread shows the progress, in real time.
fn simulate_once(scenario: &Scenario, seed: u64, pcap: Option<&Path>) -> Result<RunRecord> {
    let pcap = pcap.map(|directory| directory.join(format!("seed-{seed}")));
    let bytes = scenario.flow.total_bytes();
    let mut progress = Progress::begin_later(format!("{}, seed {seed}", scenario.name), bytes);
    let (delivered, passed) = (AtomicU64::new(0), AtomicU64::new(0));
    let (running, end) = mpsc::channel::<()>();
    let record = std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            // Dropped at the end, also after a panic.
            let _running = running;
            let watch = &mut |time: Duration, bytes| {
                delivered.store(bytes, Ordering::Relaxed);
                passed
                    .store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
            };
            sim::run(scenario, seed, pcap.as_deref(), watch)
        });
        while end.recv_timeout(TICK) == Err(mpsc::RecvTimeoutError::Timeout) {
            let time = Duration::from_millis(passed.load(Ordering::Relaxed));
            progress.show_virtual(delivered.load(Ordering::Relaxed), time);
        }
        run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    progress.end(&report::outcome(&record));
    Ok(record)
}

/// Runs the cases of the files' records on `sim`, and prints both results side by side.
fn compare_backends(compare: &cli::Compare) -> Result<ExitCode> {
    let mut others = Vec::new();
    for file in &compare.files {
        others.extend(agreement::read(file)?);
    }
    let agreement = Agreement::of(&others);
    let jobs: Vec<Job> = agreement.cases().flat_map(Case::jobs).collect();
    if jobs.is_empty() {
        bail!(
            "the files have no runs of backend user or tc; record some with `sidekick-lab run \
             --json`"
        );
    }
    let jobs_of = jobs.iter().collect::<Vec<_>>();
    let outcomes = figures::simulate(&jobs_of, None);
    let results = jobs.into_iter().zip(outcomes).collect();
    let Sheet { columns, rows } = agreement.sheet(&results);
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    print(&format!("{}\n", report::table(&columns, rows, columns.len())))?;
    match agreement.verdict(&results) {
        Verdict::Agree => Ok(ExitCode::SUCCESS),
        Verdict::Differ => bail!("the backends do not agree; the table shows where"),
        Verdict::NothingToTrust => {
            bail!(
                "no run can be trusted, because the machine was too slow; repeat the runs on an \
                 idle machine"
            )
        }
    }
}

fn seeds(run: &cli::Run) -> impl Iterator<Item = u64> {
    let first = run.common.seed;
    (0..run.runs).map(move |number| first.wrapping_add(number))
}

fn do_run(run: &cli::Run, bench: &Bench<'_>) -> Result<bool> {
    let scenario = prepare_real_run(run)?;
    let mut records = Vec::new();
    for seed in seeds(run) {
        let label = format!("{}, seed {seed}", scenario.name);
        let record = if scenario.flow.kind == FlowKind::Audio {
            let progress = Progress::begin(label, scenario.flow.total_bytes());
            bench.call(&scenario, seed, None, progress)?.record
        } else {
            let file = source(run.file.as_deref(), bench.directory, scenario.flow.bytes, seed)?;
            let progress = Progress::begin(label, file.bytes);
            bench.transfer(&scenario, seed, &file, progress)?
        };
        for remark in report::remarks(&record) {
            eprintln!("seed {seed}: {remark}");
        }
        records.push(keep(run, record)?);
    }
    summarize(run, &scenario, &records)?;
    Ok(true)
}
