//! `sidekick-lab`: experiments over an emulated path.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde::Serialize;
use sidekick_netem::demo::{Comparison, Demo, DemoError};
use sidekick_netem::figures::agreement::{self, Agreement, Verdict};
use sidekick_netem::figures::job::{Case, Job};
use sidekick_netem::figures::sheet::Sheet;
use sidekick_netem::path::Backend;
use sidekick_netem::programs::Programs;
use sidekick_netem::progress::Progress;
use sidekick_netem::record::RunRecord;
use sidekick_netem::run::{
    AUDIO_PROGRAMS, Bench, DOWNLOAD_PROGRAMS, UNMODIFIED_PROGRAMS, UPLOAD_PROGRAMS,
};
use sidekick_netem::scenario::{FlowKind, Scenario, built_in, settings};
use sidekick_netem::source::SourceFile;
use sidekick_netem::{demo, enclosure, report, sim};

/// The interval between updates of the progress display.
const TICK: Duration = Duration::from_millis(100);

mod cli;
mod exec_command;
mod figures_command;
mod sweep_command;

virtual_time::in_force!();

use cli::{Cli, Command, Common};

fn main() -> ExitCode {
    let command = Cli::parse().command;
    match work(&command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sidekick-lab: {error:#}");
            match command {
                Command::Exec(_) => ExitCode::from(exec_command::LAB_FAILED),
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
        Command::Exec(exec) => exec_command::run(exec),
        Command::Figures(figures) => figures_command::run(figures),
        Command::Sweep(sweep) => sweep_command::run(sweep),
        Command::Compare(compare) => compare_backends(compare),
        Command::Demo(demo) => {
            let check = || check_file(demo).map(|()| demo::PROGRAMS);
            in_enclosure(&demo.backend, &demo.common, None, check, |bench| do_demo(demo, bench))
        }
        Command::DemoSatellite(demo) => {
            let check = || Ok(demo::PROGRAMS);
            in_enclosure(&demo.backend, &demo.common, None, check, |bench| {
                do_demo_satellite(&demo.common, bench)
            })
        }
        Command::DemoAgent(demo) => {
            let check = || Ok(UNMODIFIED_PROGRAMS);
            in_enclosure(&demo.backend, &demo.common, None, check, |bench| {
                do_demo_agent(&demo.common, bench)
            })
        }
        Command::DemoAudio(demo) => {
            let check = || check_sound(demo).map(|()| AUDIO_PROGRAMS);
            in_enclosure(&demo.backend, &demo.common, None, check, |bench| {
                do_demo_audio(demo, bench)
            })
        }
    }
}

/// Checks outside the enclosure as much as possible, with the programs that `check` names. Then
/// does the work inside.
fn in_enclosure<const N: usize>(
    backend: &str,
    common: &Common,
    pcap: Option<&Path>,
    check: impl FnOnce() -> Result<[&'static str; N]>,
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
    let bench = Bench { backend, programs: &programs, directory: &directory, pcap, agent: false };
    Ok(if inside(&bench)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A backend of real programs.
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

fn programs_of(scenario: &Scenario) -> [&'static str; 3] {
    match scenario.flow.kind {
        FlowKind::Audio | FlowKind::Listen => AUDIO_PROGRAMS,
        FlowKind::Download | FlowKind::Requests | FlowKind::Page => DOWNLOAD_PROGRAMS,
        FlowKind::Upload | FlowKind::Messages => UPLOAD_PROGRAMS,
    }
}

fn prepare_run(run: &cli::Run) -> Result<Scenario> {
    let mut scenario = Scenario::load(&run.scenario)?;
    scenario.apply(&run.set)?;
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

/// Adds the settings to the record of a run. With `--json`, prints the record.
fn keep(run: &cli::Run, record: RunRecord) -> Result<RunRecord> {
    let record = RunRecord { settings: run.set.clone(), ..record };
    if run.common.json {
        print_json(&record)?;
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
    let outcomes = figures_command::simulate(&jobs_of, None);
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

fn check_file(demo: &cli::Demo) -> Result<()> {
    if let Some(out) = &demo.out {
        std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    }
    let objection = demo.file.as_deref().and_then(demo::objection);
    objection.map_or(Ok(()), |objection| bail!(objection))
}

fn check_sound(demo: &cli::DemoAudio) -> Result<()> {
    if let Some(wav) = &demo.wav {
        // audio-send checks the contents, and its error ends the demonstration.
        std::fs::File::open(wav).with_context(|| format!("cannot read {}", wav.display()))?;
    }
    std::fs::create_dir_all(&demo.out)
        .with_context(|| format!("cannot make {}", demo.out.display()))
}

fn do_demo_audio(demo: &cli::DemoAudio, bench: &Bench<'_>) -> Result<bool> {
    let Common { seed, json, .. } = demo.common;
    // The programs have other working directories.
    let out = std::path::absolute(&demo.out)?;
    let wav = demo.wav.as_deref().map(std::path::absolute).transpose()?;
    let result = demo::call::run(bench, &out, wav.as_deref(), demo.seconds, seed)?;
    if json {
        print_json(&result)?;
    } else {
        print(&demo::call::print(&result))?;
    }
    if !result.passed {
        eprintln!("sidekick-lab: the check of the demo failed; the table shows how");
    }
    Ok(result.passed)
}

fn do_demo(demo: &cli::Demo, bench: &Bench<'_>) -> Result<bool> {
    let Common { seed, json, .. } = demo.common;
    let file = source(demo.file.as_deref(), bench.directory, demo::DEFAULT_BYTES, seed)?;
    eprintln!("The transfers take about two minutes, two at a time.");
    let mut drawn = Ok(());
    let passed = show_tables(json, |show| {
        let result = demo::run(bench, &file, seed, show)?;
        drawn = draw_summary(demo, &result);
        Ok(result)
    })?;
    drawn?;
    if !json {
        print(&demo::others())?;
    }
    Ok(passed)
}

fn draw_summary(demo: &cli::Demo, result: &Demo) -> Result<()> {
    let Some(out) = &demo.out else { return Ok(()) };
    let path = out.join("summary.svg");
    let picture = demo::summary::draw(&result.comparisons)?;
    std::fs::write(&path, picture).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("The picture of all tables is {}", path.display());
    Ok(())
}

fn do_demo_satellite(common: &Common, bench: &Bench<'_>) -> Result<bool> {
    let file = source(None, bench.directory, demo::SATELLITE_BYTES, common.seed)?;
    show_tables(common.json, |show| demo::over_satellite(bench, &file, common.seed, show))
}

fn do_demo_agent(common: &Common, bench: &Bench<'_>) -> Result<bool> {
    let file = source(None, bench.directory, demo::DEFAULT_BYTES, common.seed)?;
    let result = demo::agent::run(bench, &file, common.seed)?;
    if common.json {
        print_json(&result)?;
    } else {
        print(&demo::agent::print(&result))?;
    }
    if !result.passed {
        eprintln!("sidekick-lab: a check of the demo failed; the table shows how");
    }
    Ok(result.passed)
}

/// Prints each table of a demonstration as soon as it is complete, or everything as JSON at the
/// end. Returns whether all checks passed.
fn show_tables(
    json: bool,
    run: impl FnOnce(&mut dyn FnMut(&Comparison, &SourceFile)) -> Result<Demo, DemoError>,
) -> Result<bool> {
    let mut printed = Ok(());
    let result = run(&mut |comparison, file| {
        if !json && printed.is_ok() {
            printed = print(&demo::print(comparison, file));
        }
    })?;
    printed?;
    if json {
        print_json(&result)?;
    }
    if !result.passed {
        eprintln!("sidekick-lab: a check of the demo failed; the table shows which");
    }
    Ok(result.passed)
}
