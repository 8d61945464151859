//! One run: a fresh path, the real programs on it, and a record of what happened.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path as FilePath, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde::de::DeserializeOwned;
use sidekick_proxy::Trace;
use tempfile::TempDir;

use crate::link::{ReplayError, replay};
use crate::namespace::Namespace;
use crate::path::{Backend, Path, PathCounters, PathError};
use crate::programs::{Ended, Program, ProgramError, Programs};
use crate::progress::Progress;
use crate::record::AgentRecord;
use crate::scenario::{Flow, Mode, ProxyFate, Repair, Scenario, Sidekick};
use crate::topology::{NEAR, PROXY_NEAR, PROXY_PORT, SECOND, Topology};
use crate::words;

mod audio;
mod exec;
mod transfer;

pub(crate) use audio::{AUDIO_PROGRAMS, Call, PLAYOUT_LIMIT_MS, Sound};
pub(crate) use exec::{ExecRecord, Signals, Task};
pub(crate) use transfer::{DOWNLOAD_PROGRAMS, UNMODIFIED_PROGRAMS, UPLOAD_PROGRAMS};

/// The program that helps the flows of other programs, from the sender's host.
pub(crate) const AGENT: &str = "sidekick-agent";
/// The program between the segments.
const PROXY: &str = "sidekick-proxy";

/// What an agent says when it is ready and puts in order what arrives.
const IN_ORDER: &str = ", in order";

/// The interval between checks of the progress.
const TICK: Duration = Duration::from_millis(250);
/// If no packet arrives for this long, the transfer has stalled.
const SILENCE: Duration = Duration::from_secs(90);

#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Trace(#[from] ReplayError),
    /// The transfer failed or stalled, the proxy ended, the file changed on the way, or a command
    /// could not start.
    #[error("{0}")]
    Failed(String),
    #[error("{program} printed no report that the lab can read: use the programs of this version")]
    Report { program: &'static str, source: serde_json::Error },
    #[error("cannot {what}")]
    Io { what: &'static str, source: io::Error },
}

/// What many runs have in common.
#[derive(Clone, Debug)]
pub(crate) struct Bench<'a> {
    pub backend: Backend,
    pub programs: &'a Programs,
    /// The directory for the files of a run.
    pub directory: &'a FilePath,
    /// The directory for pcap files, with a directory for each seed.
    pub pcap: Option<&'a FilePath>,
}

/// The environment of a run of real programs: a fresh path, files, and the proxy if the scenario
/// has one.
struct Testbed<'a> {
    bench: &'a Bench<'a>,
    scenario: &'a Scenario,
    // Dropped in this order: programs end before their hosts and files disappear.
    agent: Option<Program>,
    proxy: Option<Program>,
    path: Path,
    directory: TempDir,
}

impl<'a> Testbed<'a> {
    fn new(bench: &'a Bench<'_>, scenario: &'a Scenario, seed: u64) -> Result<Self, RunError> {
        let directory = tempfile::Builder::new()
            .prefix("run-")
            .tempdir_in(bench.directory)
            .map_err(failed("make a directory for the run"))?;
        let pcap = bench.pcap.map(|directory| directory.join(format!("seed-{seed}")));
        let path = Path::build_with_pcap(bench.backend, scenario, seed, pcap.as_deref())?;
        Ok(Self { bench, scenario, agent: None, proxy: None, path, directory })
    }

    fn start(
        &self,
        name: &'static str,
        arguments: &[String],
        host: fn(&Topology) -> &Namespace,
    ) -> Result<Program, RunError> {
        let (host, directory) = (host(self.path.topology()), self.directory.path());
        Ok(Program::start(self.bench.programs, name, arguments, host, directory)?)
    }

    /// Starts the receiving program, and the proxy and the agent if the run has them. Returns when
    /// all are ready.
    fn start_receiver(
        &mut self,
        name: &'static str,
        arguments: &[String],
    ) -> Result<Program, RunError> {
        let mut receiver = self.start(name, arguments, |hosts| &hosts.receiver)?;
        self.start_proxy()?;
        receiver.wait_until_ready()?;
        if let Some(proxy) = &mut self.proxy {
            proxy.wait_until_ready()?;
        }
        if self.scenario.sidekick.mode.is_of_agent() {
            self.agent = Some(self.start_agent(&self.bench.programs.path(AGENT)?)?);
        }
        Ok(receiver)
    }

    /// Starts the proxy if the scenario has one.
    fn start_proxy(&mut self) -> Result<(), RunError> {
        self.start_proxy_at(PROXY_NEAR.into())
    }

    /// Starts the proxy if the scenario has one. It listens at this address, or at every address if
    /// this one is unspecified.
    fn start_proxy_at(&mut self, address: IpAddr) -> Result<(), RunError> {
        if self.scenario.sidekick.has_proxy() {
            let arguments =
                [proxy_arguments(address), in_order(self.scenario.sidekick.mode.orders())].concat();
            let proxy = self.start(PROXY, &arguments, |hosts| &hosts.proxy)?;
            self.proxy = Some(proxy);
        }
        Ok(())
    }

    /// Starts this program as an agent on the sender's host, to help or to measure. Returns when it
    /// is ready.
    fn start_agent(&self, program: &FilePath) -> Result<Program, ProgramError> {
        let mut command = Command::new(program);
        let mode = self.scenario.sidekick.mode;
        if mode == Mode::Measure {
            command.args(["measure", "--for", "1440m", "--trace"]).arg(self.trace());
        }
        command.args(["--interface", NEAR, "--json"]).args(in_order(mode == Mode::AgentInOrder));
        command.args(self.scenario.sidekick.upload_parity.then_some("--upload-parity"));
        if self.scenario.second.is_some() {
            let carry = self.scenario.sidekick.carry_mbit.to_string();
            command.args(["--second-uplink", SECOND, "--carry", &carry]);
        }
        let (host, directory) = (&self.path.topology().sender, self.directory.path());
        let mut agent = Program::start_command(AGENT, command, host, directory)?;
        agent.wait_until_ready()?;
        if mode == Mode::AgentInOrder {
            agent.is_ready_and(IN_ORDER)?;
        }
        Ok(agent)
    }

    /// Runs the client or the sending program to its end, and shows how many of the `bytes` have
    /// arrived. If the scenario demands it, kills the proxy after half of them.
    fn run_sender(
        &mut self,
        name: &'static str,
        arguments: &[String],
        bytes: u64,
        progress: &mut Progress,
    ) -> Result<Ended, RunError> {
        self.path.begin();
        let mut sender = self.start(name, arguments, |hosts| &hosts.sender)?;
        let mut last = 0;
        let mut silent = Duration::ZERO;
        loop {
            if let Some(ended) = sender.wait(TICK).map_err(failed("wait for the sender"))? {
                return Ok(ended);
            }
            let (packets, carried) = self.path.arrived(self.scenario.flow.kind)?;
            silent = if packets == last { silent + TICK } else { Duration::ZERO };
            last = packets;
            if silent > SILENCE {
                let seconds = SILENCE.as_secs();
                return Err(RunError::Failed(format!(
                    "the run stalled: no packet arrived for {seconds} s; try less loss or \
                     another seed"
                )));
            }
            progress.show(carried);
            if self.scenario.sidekick.proxy == ProxyFate::Dies && carried >= bytes / 2 {
                // The drop kills the program.
                self.proxy = None;
            }
        }
    }

    /// Stops the agent and the proxy.
    fn finish(&mut self) -> Result<Finished, RunError> {
        let links = self.path.counters()?;
        let agent = match self.agent.take() {
            None => None,
            Some(agent) => {
                let ended = lasting(AGENT, agent)?.end(Signal::SIGINT);
                let ended = ended.map_err(failed("wait for sidekick-agent"))?.ok_or_else(|| {
                    RunError::Failed(format!("{AGENT} did not end, and was killed"))
                })?;
                if !ended.status.success() {
                    return Err(RunError::Failed(format!("{AGENT} failed: {}", ended.why())));
                }
                Some(report(AGENT, ended.output.lines().last().unwrap_or_default())?)
            }
        };
        let measures = agent.is_some() && self.scenario.sidekick.mode == Mode::Measure;
        let trace = measures.then(|| replay::read(&self.trace())).transpose()?;
        if let Some(proxy) = self.proxy.take() {
            lasting(PROXY, proxy)?.stop();
        }
        Ok(Finished { links, agent, trace })
    }

    /// The file of an agent that measures.
    fn trace(&self) -> PathBuf {
        self.directory.path().join("near.trace")
    }
}

struct Finished {
    links: PathCounters,
    agent: Option<AgentRecord>,
    trace: Option<Trace>,
}

/// A program that must last as long as the run.
fn lasting(name: &'static str, mut program: Program) -> Result<Program, RunError> {
    match program.ended().map_err(failed("look at the programs of the run"))? {
        None => Ok(program),
        Some(last_words) => {
            Err(RunError::Failed(format!("{name} ended during the run: {last_words}")))
        }
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> RunError {
    move |source| RunError::Io { what, source }
}

fn report<T: DeserializeOwned>(program: &'static str, output: &str) -> Result<T, RunError> {
    serde_json::from_str(output).map_err(|source| RunError::Report { program, source })
}

fn proxy_arguments(address: IpAddr) -> Vec<String> {
    let listen = SocketAddr::new(address, PROXY_PORT).to_string();
    words(&["--interface", NEAR, "--listen", &listen, "--json"])
}

/// The flag of a proxy or an agent that puts packets in order.
fn in_order(orders: bool) -> Vec<String> {
    if orders { words(&["--in-order"]) } else { Vec::new() }
}

/// The clients' options for their settings. By default, they are the same as in virtual time.
fn tune_arguments(flow: &Flow) -> Vec<String> {
    match flow.tune {
        true => words(&["--network", &flow.network.to_string()]),
        false => words(&["--tune", "off"]),
    }
}

/// The sending programs' options for the proxy.
fn sidekick_arguments(sidekick: &Sidekick) -> Vec<String> {
    if !sidekick.mode.is_of_program() {
        return words(&["--sidekick", "off"]);
    }
    let mut arguments = words(&["--sidekick", sidekick.mode.name()]);
    if sidekick.proxy != ProxyFate::Found {
        arguments.extend(words(&["--proxy", &sidekick.proxy_address().to_string()]));
    }
    // A socket has no other options.
    if sidekick.mode != Mode::Socket {
        let poll = if sidekick.poll { "on" } else { "off" };
        arguments.extend(words(&["--poll", poll]));
        arguments.extend(words(&["--quack-every-ms", &sidekick.every_ms.to_string()]));
        arguments.extend(words(&["--threshold", &sidekick.threshold.to_string()]));
        let receives = matches!(sidekick.mode, Mode::Receive | Mode::Auto);
        if receives && sidekick.repair != Repair::Auto {
            arguments.extend(words(&["--repair", sidekick.repair.name()]));
        }
        if let Some(packets) = sidekick.every_packets {
            arguments.extend(words(&["--quack-every-packets", &packets.to_string()]));
        }
    }
    arguments
}
