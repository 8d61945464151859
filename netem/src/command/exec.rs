//! The command `exec` of `sidekick-lab`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::enclosure;
use crate::path::Backend;
use crate::programs::Programs;
use crate::run::{AGENT, Bench, ExecRecord, Signals, Task};
use crate::scenario::{Mode, ProxyFate, Scenario};
use anyhow::{Context, Result, bail, ensure};

use super::cli::Exec;

/// The exit code if the lab itself fails. Other programs that run a command use the same one.
pub(super) const LAB_FAILED: u8 = 125;

pub(super) fn run(exec: &Exec) -> Result<ExitCode> {
    let scenario = scenario(exec)?;
    let programs = Programs::find(exec.programs.as_deref())?;
    let agent = agent(exec, scenario.sidekick.mode, &programs)?;
    let Some(directory) = enclosure::inside() else {
        if scenario.sidekick.has_proxy() {
            programs.path("sidekick-proxy")?;
        }
        if let Some(file) = &exec.json_file {
            check_writable(file)?;
        }
        return Ok(ExitCode::from(enclosure::enter_for_command()?.unwrap_or(LAB_FAILED)));
    };
    let signals = Signals::default();
    let heard = signals.clone();
    enclosure::follow_outer(directory.clone(), move |signal| heard.hear(signal))?;
    let bench =
        Bench { backend: Backend::User, programs: &programs, directory: &directory, pcap: None };
    let task = Task {
        command: exec.command.clone(),
        peer: exec.peer.clone(),
        peer_log: exec.peer_log.clone(),
        middle: exec.middle.clone(),
        agent,
    };
    let record = bench.exec(&scenario, exec.seed, &task, &signals)?;
    let record = ExecRecord { settings: exec.set.clone(), ..record };
    match &exec.json_file {
        Some(file) => std::fs::write(file, serde_json::to_string(&record)? + "\n")
            .with_context(|| format!("cannot write {}", file.display()))?,
        None => eprint!("{}", record.summary()),
    }
    Ok(ExitCode::from(record.exit_code))
}

/// The scenario, without the settings that only the lab's own programs support.
fn scenario(exec: &Exec) -> Result<Scenario> {
    let mut scenario = Scenario::with(&exec.scenario, &exec.set)?;
    if let Some(fault) = scenario.faults.only_in_virtual_time() {
        bail!("the only faults for a command are outages; omit {fault} from faults.events");
    }
    if scenario.middle.is_some() {
        bail!(
            "a command's path has no middle segment; omit middle.*, or choose another \
             scenario"
        );
    }
    if scenario.competitor.cc.is_some() {
        bail!(
            "a command has no competitor; set competitor.cc to none, and let COMMAND start both \
             flows"
        );
    }
    if scenario.sidekick.proxy == ProxyFate::Dies {
        bail!(
            "sidekick.proxy = dies needs a transfer, of which half has passed; set it to on-path, \
             or use --no-proxy"
        );
    }
    // Without a proxy, the agent helps no flow.
    let is_set = exec.set.iter().any(|change| change.starts_with("sidekick.mode"));
    if exec.agent.is_some() && !is_set && scenario.sidekick.mode == Mode::Off {
        scenario.sidekick.mode = Mode::Agent;
    }
    if exec.no_proxy {
        scenario.sidekick.proxy = ProxyFate::Absent;
    }
    Ok(scenario)
}

/// The path of the agent's program, if the command wants one.
fn agent(exec: &Exec, mode: Mode, programs: &Programs) -> Result<Option<PathBuf>> {
    match &exec.agent {
        None if !mode.is_of_agent() => Ok(None),
        None | Some(None) => match programs.path(AGENT) {
            Ok(path) => Ok(Some(path)),
            Err(error) => bail!("{error}, or --agent PATH"),
        },
        Some(Some(path)) => {
            let shown = path.display();
            ensure!(path.is_file(), "there is no program {shown}; give --agent the path of one");
            // The system would search `PATH` for a path without a directory.
            Ok(Some(std::path::absolute(path)?))
        }
    }
}

fn check_writable(file: &Path) -> Result<()> {
    let there = file.parent().is_none_or(|parent| parent == Path::new("") || parent.is_dir());
    let shown = file.display();
    ensure!(
        there && !file.is_dir(),
        "cannot write {shown}; give --json-file a file in a directory that exists"
    );
    Ok(())
}
