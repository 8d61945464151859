//! `sidekick-lab`: experiments over an emulated path.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde::Serialize;
use sidekick_netem::path::Backend;
use sidekick_netem::programs::Programs;
use sidekick_netem::progress::Progress;
use sidekick_netem::run::{Bench, UPLOAD_PROGRAMS};
use sidekick_netem::scenario::{SETTINGS, Scenario, built_in};
use sidekick_netem::source::SourceFile;
use sidekick_netem::{demo, enclosure, report};

mod cli;

use cli::{Cli, Command, Common};

fn main() -> ExitCode {
    match work(&Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sidekick-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work(command: &Command) -> Result<ExitCode> {
    match command {
        Command::List => list().map(|()| ExitCode::SUCCESS),
        Command::Run(run) => {
            in_enclosure(&run.common, || prepare_run(run).map(drop), |bench| do_run(run, bench))
        }
        Command::Demo(demo) => in_enclosure(&demo.common, || check_file(demo), |bench| do_demo(demo, bench)),
    }
}

/// Checks outside the enclosure all that can be checked there, then does the work inside.
fn in_enclosure(
    common: &Common,
    check: impl FnOnce() -> Result<()>,
    inside: impl FnOnce(&Bench<'_>) -> Result<bool>,
) -> Result<ExitCode> {
    let backend = backend(&common.backend)?;
    let programs = Programs::find(common.programs.as_deref())?;
    let Some(directory) = enclosure::inside() else {
        check()?;
        for name in UPLOAD_PROGRAMS {
            programs.path(name)?;
        }
        return Ok(ExitCode::from(enclosure::enter()?));
    };
    enclosure::end_with_outer(directory.clone());
    let bench = Bench { backend, programs: &programs, directory: &directory };
    Ok(if inside(&bench)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn backend(name: &str) -> Result<Backend> {
    match name {
        "user" => Ok(Backend::User),
        "tc" => Ok(Backend::Tc),
        "sim" => bail!("backend sim is not in this build; take user, or tc where the kernel has sch_netem"),
        other => bail!("there is no backend `{other}`; take user, or tc where the kernel has sch_netem"),
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
    for setting in SETTINGS {
        text += &format!("  {:24} {}: {}\n", setting.key, setting.meaning, setting.takes);
    }
    print(&text)
}

fn prepare_run(run: &cli::Run) -> Result<Scenario> {
    let mut scenario = Scenario::load(&run.scenario)?;
    scenario.apply(&run.set)?;
    if let Some(path) = &run.file {
        let about = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        if !about.is_file() || about.len() == 0 {
            bail!("{} is no file with anything in it", path.display());
        }
        scenario.flow.bytes = about.len();
    }
    Ok(scenario)
}

fn source(file: Option<&Path>, directory: &Path, bytes: u64, seed: u64) -> Result<SourceFile> {
    match file {
        Some(path) => SourceFile::open(path).with_context(|| format!("cannot read {}", path.display())),
        None => SourceFile::generate(&directory.join("file"), bytes, seed)
            .context("cannot make the file to upload"),
    }
}

fn do_run(run: &cli::Run, bench: &Bench<'_>) -> Result<bool> {
    let scenario = prepare_run(run)?;
    let mut records = Vec::new();
    for seed in (0..run.runs).map(|number| run.common.seed.wrapping_add(number)) {
        let file = source(run.file.as_deref(), bench.directory, scenario.flow.bytes, seed)?;
        let mut progress = Progress::begin(format!("{}, seed {seed}", scenario.name), file.bytes);
        let record = bench.upload(&scenario, seed, &file, &mut progress)?;
        progress.end(&report::outcome(&record));
        for remark in report::remarks(&record) {
            eprintln!("seed {seed}: {remark}");
        }
        if run.common.json {
            print_json(&record)?;
        }
        records.push(record);
    }
    if !run.common.json {
        let (mode, cc) = (scenario.sidekick.mode.name(), scenario.congestion_control().name());
        let mut text = format!("{}: sidekick {mode}, {cc}\n{}\n", scenario.name, report::runs(&records));
        if let Some((median, least, most)) =
            report::median(records.iter().map(|record| record.goodput_mbit_s))
        {
            text += &format!("Median goodput {median:.2} Mbit/s (from {least:.2} to {most:.2}).\n");
        }
        print(&text)?;
    }
    Ok(true)
}

fn check_file(demo: &cli::Demo) -> Result<()> {
    match demo.file.as_deref().and_then(demo::objection) {
        None => Ok(()),
        Some(objection) => bail!(objection),
    }
}

fn do_demo(demo: &cli::Demo, bench: &Bench<'_>) -> Result<bool> {
    let Common { seed, json, .. } = demo.common;
    let file = source(demo.file.as_deref(), bench.directory, demo::DEFAULT_BYTES, seed)?;
    let mut printed = Ok(());
    let result = demo::run(bench, &file, seed, |comparison, file| {
        if !json && printed.is_ok() {
            printed = print(&demo::print(comparison, file));
        }
    })?;
    printed?;
    if json {
        print_json(&result)?;
    }
    if !result.passed {
        eprintln!("sidekick-lab: a check of the demo failed; its table says which");
    }
    Ok(result.passed)
}
