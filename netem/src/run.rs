//! One run: a fresh path, the real programs on it, and a record of what happened.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::path::{Path as FilePath, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use crate::namespace::Namespace;
use crate::path::{Backend, Path, PathCounters, PathError};
use crate::programs::{Ended, Program, ProgramError, Programs};
use crate::progress::Progress;
use crate::record::{AgentRecord, Packets, Quacks, Repeats, RunRecord};
use crate::scenario::{Flow, Mode, ProxyFate, Repair, Scenario, Sidekick};
use crate::source::{SourceFile, sha256};
use crate::topology::{NEAR, PROXY_NEAR, PROXY_PORT, RECEIVER, SERVER_PORT, Topology};
use crate::words;

mod audio;
mod download;
mod exec;
mod unmodified;

pub use audio::{AUDIO_PROGRAMS, Call, Sound};
pub use download::DOWNLOAD_PROGRAMS;
pub use exec::{ExecRecord, Signals, Task};
pub use unmodified::UNMODIFIED_PROGRAMS;

/// The programs that an upload needs.
pub const UPLOAD_PROGRAMS: [&str; 3] = ["h3-upload-server", "h3-upload", PROXY];
/// The program that helps the flows of other programs, from the sender's host.
pub const AGENT: &str = "sidekick-agent";
/// The program between the segments.
const PROXY: &str = "sidekick-proxy";

/// The name under which the server stores the upload.
const UPLOAD: &str = "upload";

/// The interval between checks of the progress.
const TICK: Duration = Duration::from_millis(250);
/// If no packet arrives for this long, the transfer has stalled.
const SILENCE: Duration = Duration::from_secs(90);

/// The part of the client's report that the record needs.
#[derive(Debug, Deserialize)]
struct ClientReport {
    bytes: u64,
    time_s: f64,
    goodput_mbit_s: f64,
    assisted: bool,
    assistance: String,
    packets: Packets,
    quacks: Quacks,
    near_rtt_ms: Option<f64>,
    rtt_ms: Option<f64>,
    /// The figures of the help for what the client received.
    #[serde(flatten)]
    repeats: Option<Repeats>,
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The path could not be built, or failed.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A program could not start, or failed.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The transfer failed or stalled, the proxy ended, the file changed on the way, or a command
    /// could not start.
    #[error("{0}")]
    Failed(String),
    /// The report of a program cannot be read.
    #[error("{program} printed no report that the lab can read: use the programs of this version")]
    Report {
        /// The program.
        program: &'static str,
        /// What is wrong with the report.
        source: serde_json::Error,
    },
    /// A file of the run cannot be used.
    #[error("cannot {what}")]
    Io {
        /// What failed.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// What many runs have in common.
#[derive(Clone, Debug)]
pub struct Bench<'a> {
    /// What emulates the links.
    pub backend: Backend,
    /// The programs' directory.
    pub programs: &'a Programs,
    /// The directory for the files of a run.
    pub directory: &'a FilePath,
    /// The directory for pcap files, with a directory for each seed.
    pub pcap: Option<&'a FilePath>,
    /// Whether an agent runs on the sender's host. With an agent, a proxy runs between the segments
    /// in any scenario.
    pub agent: bool,
}

impl Bench<'_> {
    /// Uploads `file` once over the path of `scenario`, and checks that the same file arrived.
    ///
    /// # Errors
    ///
    /// [`RunError`] if a step or the upload itself failed.
    pub fn upload(
        &self,
        scenario: &Scenario,
        seed: u64,
        file: &SourceFile,
        progress: &mut Progress,
    ) -> Result<RunRecord, RunError> {
        let testbed = Testbed::new(self, scenario, seed)?;
        let store = testbed.store()?;
        let arguments = client_arguments(scenario, &file.path, &testbed.ca());
        let arrived = store.join(UPLOAD);
        let (record, report) = testbed.transfer(
            &Transfer { name: "upload", client: "h3-upload", arguments, file, arrived },
            seed,
            progress,
        )?;
        Ok(with_report(record, report))
    }
}

/// The transfer of one file from a client to the server, or back.
struct Transfer<'a> {
    /// Its name in errors.
    name: &'static str,
    /// The client's program. Its arguments follow.
    client: &'static str,
    arguments: Vec<String>,
    file: &'a SourceFile,
    /// The path of the file after the transfer.
    arrived: PathBuf,
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

    /// Makes the server's directory.
    fn store(&self) -> Result<PathBuf, RunError> {
        let store = self.directory.path().join("store");
        std::fs::create_dir(&store).map_err(failed("make a directory for the server"))?;
        Ok(store)
    }

    /// The path to which the server writes its root certificate.
    fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Transfers the file between a client and the server of [`Testbed::store`], and checks that
    /// the same file arrived. Returns the record without the client's report, and that report.
    fn transfer<R: DeserializeOwned>(
        mut self,
        transfer: &Transfer<'_>,
        seed: u64,
        progress: &mut Progress,
    ) -> Result<(RunRecord, R), RunError> {
        let Transfer { name, client, arguments, file, arrived } = transfer;
        let server = server_arguments(&self.directory.path().join("store"), &self.ca());
        let server = self.start_receiver("h3-upload-server", &server)?;
        let ended = self.run_sender(client, arguments, file.bytes, progress)?;
        let Finished { links, agent } = self.finish()?;
        server.stop();
        if !ended.status.success() {
            return Err(RunError::Failed(format!("the {name} failed: {}", ended.why())));
        }
        let report = report(client, &ended.output)?;
        let sha256 = sha256(arrived).map_err(failed("read the file that arrived"))?;
        if sha256 != file.sha256 {
            let sent = &file.sha256;
            return Err(RunError::Failed(format!(
                "the {name} changed the file: SHA-256 {sent} was sent, and {sha256} arrived"
            )));
        }
        let record = RunRecord::of(self.scenario, self.bench.backend.name(), seed, links);
        Ok((RunRecord { sha256, agent, ..record }, report))
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
        if self.bench.agent {
            self.agent = Some(self.start_agent(&self.bench.programs.path(AGENT)?)?);
        }
        Ok(receiver)
    }

    /// Starts the proxy if the scenario has one, or the agent needs one.
    fn start_proxy(&mut self) -> Result<(), RunError> {
        self.start_proxy_at(PROXY_NEAR.into())
    }

    /// Starts the proxy if the run has one. It listens at this address, or at every address if this
    /// one is unspecified.
    fn start_proxy_at(&mut self, address: IpAddr) -> Result<(), RunError> {
        if self.scenario.sidekick.has_proxy() || self.bench.agent {
            let proxy = self.start(PROXY, &proxy_arguments(address), |hosts| &hosts.proxy)?;
            self.proxy = Some(proxy);
        }
        Ok(())
    }

    /// Starts this program as an agent on the sender's host. Returns when it is ready.
    fn start_agent(&self, program: &FilePath) -> Result<Program, ProgramError> {
        let mut command = Command::new(program);
        command.args(["--interface", NEAR, "--json"]);
        let (host, directory) = (&self.path.topology().sender, self.directory.path());
        let mut agent = Program::start_command(AGENT, command, host, directory)?;
        agent.wait_until_ready()?;
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
                Some(report(AGENT, ended.output.lines().last().unwrap_or_default())?)
            }
        };
        if let Some(proxy) = self.proxy.take() {
            lasting(PROXY, proxy)?.stop();
        }
        Ok(Finished { links, agent })
    }
}

/// The results of a finished run.
struct Finished {
    /// The counts of the links.
    links: PathCounters,
    /// The agent's summary, if one ran.
    agent: Option<AgentRecord>,
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

fn with_report(record: RunRecord, report: ClientReport) -> RunRecord {
    let Packets { lost_near, lost_far, .. } = record.packets;
    RunRecord {
        bytes: report.bytes,
        time_s: report.time_s,
        goodput_mbit_s: report.goodput_mbit_s,
        packets: Packets { lost_near, lost_far, ..report.packets },
        quacks: report.quacks,
        assisted: report.assisted,
        assistance: report.assistance,
        near_rtt_ms: report.near_rtt_ms,
        rtt_ms: report.rtt_ms,
        ..record
    }
}

fn server_arguments(store: &FilePath, ca: &FilePath) -> Vec<String> {
    let (host, listen) =
        (RECEIVER.to_string(), SocketAddrV4::new(RECEIVER, SERVER_PORT).to_string());
    let (store, ca) = (store.display().to_string(), ca.display().to_string());
    words(&["--dir", &store, "--listen", &listen, "--self-signed", &host, "--write-ca", &ca])
}

fn proxy_arguments(address: IpAddr) -> Vec<String> {
    let listen = SocketAddr::new(address, PROXY_PORT).to_string();
    words(&["--interface", NEAR, "--listen", &listen, "--json"])
}

fn client_arguments(scenario: &Scenario, file: &FilePath, ca: &FilePath) -> Vec<String> {
    let sidekick = &scenario.sidekick;
    let url = format!("https://{RECEIVER}:{SERVER_PORT}/{UPLOAD}");
    let (file, ca) = (file.display().to_string(), ca.display().to_string());
    let cc = scenario.congestion_control().name();
    let mut arguments = words(&[&file, &url, "--cafile", &ca, "--json", "--quiet", "--cc", cc]);
    arguments.extend(tune_arguments(&scenario.flow));
    arguments.extend(sidekick_arguments(sidekick));
    arguments
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
    let mut arguments = words(&["--sidekick", sidekick.mode.name()]);
    if sidekick.mode != Mode::Off {
        let poll = if sidekick.poll { "on" } else { "off" };
        if sidekick.proxy != ProxyFate::Found {
            arguments.extend(words(&["--proxy", &sidekick.proxy_address().to_string()]));
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn client(settings: &[&str]) -> String {
        let mut scenario = Scenario::load("upload-paper").unwrap();
        scenario.apply(settings).unwrap();
        client_arguments(&scenario, "/f".as_ref(), "/ca".as_ref()).join(" ")
    }

    #[test]
    fn a_plain_upload_asks_for_no_help() {
        let line = "/f https://10.77.2.2:4433/upload --cafile /ca --json --quiet --cc bbr2 \
             --tune off --sidekick off";
        assert_eq!(client(&["flow.cc=bbr2"]), line);
    }

    #[test]
    fn the_settings_reach_the_client() {
        let settings = [
            "sidekick.mode=pacubic",
            "sidekick.poll=off",
            "sidekick.every_packets=8",
            "sidekick.threshold=16",
        ];
        let line = "/f https://10.77.2.2:4433/upload --cafile /ca --json --quiet --cc cubic-rfc9438 --tune off --sidekick pacubic \
                    --proxy 10.77.1.2:5252 --poll off --quack-every-ms 30 --threshold 16 --quack-every-packets 8";
        assert_eq!(client(&settings), line);
    }
}
