//! The commands `demo`, `demo-satellite`, `demo-audio` and `demo-agent`.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::cli::{self, Common};
use super::{print, print_json, source};
use crate::demo::{self, Comparison, Demo, DemoError};
use crate::run::{AUDIO_PROGRAMS, Bench, UNMODIFIED_PROGRAMS};
use crate::source::SourceFile;

pub(super) fn transfers(demo: &cli::Demo) -> Result<ExitCode> {
    let check = || check_file(demo).map(|()| demo::PROGRAMS.to_vec());
    in_enclosure(&demo.path, check, |bench| {
        let Common { seed, json, .. } = demo.path.common;
        let file = source(demo.file.as_deref(), bench.directory, demo::DEFAULT_BYTES, seed)?;
        eprintln!("The transfers take about two minutes, two at a time.");
        let result = tables(json, |show| demo::run(bench, &file, seed, show))?;
        draw_summary(demo, &result)?;
        if !json {
            print(&demo::others())?;
        }
        Ok(verdict(result.passed, "a check of the demo failed; the table shows which"))
    })
}

pub(super) fn satellite(demo: &cli::DemoPath) -> Result<ExitCode> {
    let check = || Ok(demo::PROGRAMS.to_vec());
    in_enclosure(demo, check, |bench| {
        let Common { seed, json, .. } = demo.common;
        let file = source(None, bench.directory, demo::SATELLITE_BYTES, seed)?;
        let result = tables(json, |show| demo::over_satellite(bench, &file, seed, show))?;
        Ok(verdict(result.passed, "a check of the demo failed; the table shows which"))
    })
}

pub(super) fn agent(demo: &cli::DemoPath) -> Result<ExitCode> {
    let check = || Ok(UNMODIFIED_PROGRAMS.to_vec());
    in_enclosure(demo, check, |bench| {
        let file = source(None, bench.directory, demo::AGENT_BYTES, demo.common.seed)?;
        let result = demo::agent::run(bench, &file, demo.common.seed)?;
        show(&demo.common, &result, demo::agent::print)?;
        Ok(verdict(result.passed, "a check of the demo failed; the table shows how"))
    })
}

pub(super) fn audio(demo: &cli::DemoAudio) -> Result<ExitCode> {
    let check = || check_sound(demo).map(|()| AUDIO_PROGRAMS.to_vec());
    in_enclosure(&demo.path, check, |bench| {
        // The programs have other working directories.
        let out = std::path::absolute(&demo.out)?;
        let wav = demo.wav.as_deref().map(std::path::absolute).transpose()?;
        let seed = demo.path.common.seed;
        let result = demo::call::run(bench, &out, wav.as_deref(), demo.seconds, seed)?;
        show(&demo.path.common, &result, demo::call::print)?;
        Ok(verdict(result.passed, "the check of the demo failed; the table shows how"))
    })
}

fn in_enclosure(
    demo: &cli::DemoPath,
    check: impl FnOnce() -> Result<Vec<&'static str>>,
    inside: impl FnOnce(&Bench<'_>) -> Result<bool>,
) -> Result<ExitCode> {
    super::in_enclosure(&demo.backend, &demo.common, None, check, inside)
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

/// Whether all checks passed. If not, a sentence states so.
fn verdict(passed: bool, sentence: &str) -> bool {
    if !passed {
        eprintln!("sidekick-lab: {sentence}");
    }
    passed
}

/// Prints a result as JSON or as text.
fn show<T: Serialize>(common: &Common, result: &T, text: fn(&T) -> String) -> Result<()> {
    if common.json { print_json(result) } else { print(&text(result)) }
}

/// Prints each table of a demonstration as soon as it is complete, or everything as JSON at the
/// end.
fn tables(
    json: bool,
    run: impl FnOnce(&mut dyn FnMut(&Comparison, &SourceFile)) -> Result<Demo, DemoError>,
) -> Result<Demo> {
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
    Ok(result)
}

fn draw_summary(demo: &cli::Demo, result: &Demo) -> Result<()> {
    let Some(out) = &demo.out else { return Ok(()) };
    let path = out.join("summary.svg");
    let picture = demo::summary::draw(&result.comparisons)?;
    std::fs::write(&path, picture).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("The picture of all tables is {}", path.display());
    Ok(())
}
