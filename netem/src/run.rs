//! One run: a fresh path, the real programs on it, and a record of what happened.

use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::Path as FilePath;
use std::time::Duration;

use serde::Deserialize;

use crate::path::{Backend, Path, PathCounters, PathError};
use crate::programs::{Ended, Program, ProgramError, Programs};
use crate::progress::Progress;
use crate::record::{Packets, Quacks, RunRecord};
use crate::scenario::{Mode, ProxyFate, Scenario, Sidekick};
use crate::source::{SourceFile, sha256};
use crate::topology::{NEAR, NOBODY, PROXY_NEAR, PROXY_PORT, RECEIVER, SERVER_PORT};

mod audio;

pub use audio::{AUDIO_PROGRAMS, Call, Sound};

/// The programs that an upload needs.
pub const UPLOAD_PROGRAMS: [&str; 3] = ["h3-upload-server", "h3-upload", "sidekick-proxy"];

/// The name under which the server stores the upload.
const UPLOAD: &str = "upload";

/// How often progress is looked at.
const TICK: Duration = Duration::from_millis(250);
/// A path on which nothing at all arrives for so long will not bring the upload to its end.
const SILENCE: Duration = Duration::from_secs(90);

/// The client's report, as far as it is used here.
#[derive(Debug, Deserialize)]
struct ClientReport {
    bytes: u64,
    time_s: f64,
    goodput_mbit_s: f64,
    assisted: bool,
    assistance: String,
    packets: ClientPackets,
    quacks: Quacks,
    near_rtt_ms: Option<f64>,
    rtt_ms: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct ClientPackets {
    sent: u64,
    retransmitted: u64,
    lost_end_to_end: u64,
    lost_early: u64,
    spurious: u64,
}

/// Why a run came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A program.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The client said that the upload failed.
    #[error("the upload failed: {0}")]
    Failed(String),
    /// The client's report cannot be read.
    #[error("h3-upload printed no report that the lab can read")]
    Report(#[from] serde_json::Error),
    /// The sender or the receiver said that the call failed.
    #[error("the call failed: {0}")]
    Call(String),
    /// The report of one of the two cannot be read.
    #[error("{program} printed no report that the lab can read")]
    CallReport {
        /// The program.
        program: &'static str,
        /// What is wrong with the report.
        source: serde_json::Error,
    },
    /// The proxy did not last.
    #[error("sidekick-proxy ended during the run: {0}")]
    ProxyEnded(String),
    /// The path fell silent.
    #[error("the run stalled: no packet has arrived for {} s", SILENCE.as_secs())]
    Stalled,
    /// The server stored something else.
    #[error("the server stored {stored} where {sent} was sent")]
    Different {
        /// SHA-256 of the stored file.
        stored: String,
        /// SHA-256 of the file that was sent.
        sent: String,
    },
    /// Files of the run.
    #[error("cannot {what}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// What stays the same over many runs.
#[derive(Clone, Debug)]
pub struct Bench<'a> {
    /// Who makes the links.
    pub backend: Backend,
    /// Where the programs are.
    pub programs: &'a Programs,
    /// Where the files of a run may be put.
    pub directory: &'a FilePath,
    /// Where pcap files go, a directory for each seed.
    pub pcap: Option<&'a FilePath>,
}

impl Bench<'_> {
    /// Uploads `file` over the path of `scenario` once, and checks that it arrived as it was.
    ///
    /// # Errors
    ///
    /// [`RunError`], also when the upload itself failed.
    pub fn upload(
        &self,
        scenario: &Scenario,
        seed: u64,
        file: &SourceFile,
        progress: &mut Progress,
    ) -> Result<RunRecord, RunError> {
        let io = |what| move |source| RunError::Io { what, source };
        let directory = tempfile::Builder::new()
            .prefix("run-")
            .tempdir_in(self.directory)
            .map_err(io("make a directory for the run"))?;
        let (store, ca) = (directory.path().join("store"), directory.path().join("ca.pem"));
        std::fs::create_dir(&store).map_err(io("make a directory for the server"))?;

        let pcap = self.pcap.map(|directory| directory.join(format!("seed-{seed}")));
        let mut path = Path::build_with_pcap(self.backend, scenario, seed, pcap.as_deref())?;
        let hosts = path.topology();
        let start = |name, arguments: Vec<String>, host| {
            Program::start(self.programs, name, &arguments, host, directory.path())
        };
        let mut server = start("h3-upload-server", server_arguments(&store, &ca), &hosts.receiver)?;
        let mut proxy = match scenario.sidekick {
            Sidekick { mode: Mode::Off, .. } | Sidekick { proxy: ProxyFate::Absent, .. } => None,
            _ => Some(start("sidekick-proxy", proxy_arguments(), &hosts.proxy)?),
        };
        server.wait_until_ready()?;
        if let Some(proxy) = &mut proxy {
            proxy.wait_until_ready()?;
        }
        let client =
            start("h3-upload", client_arguments(scenario, &file.path, &ca), &hosts.sender)?;
        let half = (scenario.sidekick.proxy == ProxyFate::Dies).then_some(file.bytes / 2);
        let ended = watch(client, &mut path, progress, |carried| {
            if half.is_some_and(|half| carried >= half) {
                // A guard that is dropped kills its program.
                proxy = None;
            }
        })?;
        let links = path.counters()?;
        if let Some(mut proxy) = proxy {
            if let Some(last_words) = proxy.ended().map_err(io("look at sidekick-proxy"))? {
                return Err(RunError::ProxyEnded(last_words));
            }
            proxy.stop();
        }
        server.stop();
        if !ended.status.success() {
            return Err(RunError::Failed(ended.why()));
        }
        let report: ClientReport = serde_json::from_str(&ended.output)?;
        let stored = sha256(&store.join(UPLOAD)).map_err(io("read what the server stored"))?;
        if stored != file.sha256 {
            return Err(RunError::Different { stored, sent: file.sha256.clone() });
        }
        Ok(record(scenario, self.backend, seed, report, stored, links))
    }
}

/// Waits for the client to end, and shows how far it is: to the user, and to `at` as bytes on the
/// far side.
fn watch(
    mut client: Program,
    path: &mut Path,
    progress: &mut Progress,
    mut at: impl FnMut(u64),
) -> Result<Ended, RunError> {
    let mut last = 0;
    let mut silent = Duration::ZERO;
    loop {
        let ended = client
            .wait(TICK)
            .map_err(|source| RunError::Io { what: "wait for the sender", source })?;
        if let Some(ended) = ended {
            return Ok(ended);
        }
        let (packets, bytes) = path.arrived()?;
        silent = if packets == last { silent + TICK } else { Duration::ZERO };
        last = packets;
        if silent > SILENCE {
            return Err(RunError::Stalled);
        }
        progress.show(bytes);
        at(bytes);
    }
}

fn record(
    scenario: &Scenario,
    backend: Backend,
    seed: u64,
    report: ClientReport,
    sha256: String,
    links: PathCounters,
) -> RunRecord {
    let ClientPackets { sent, retransmitted, lost_end_to_end, lost_early, spurious } =
        report.packets;
    RunRecord {
        scenario: scenario.name.clone(),
        backend: backend.name().to_owned(),
        seed,
        flow: scenario.flow.kind.name().to_owned(),
        mode: scenario.sidekick.mode.name().to_owned(),
        cc: scenario.congestion_control().name().to_owned(),
        bytes: report.bytes,
        time_s: report.time_s,
        goodput_mbit_s: report.goodput_mbit_s,
        packets: Packets {
            sent,
            retransmitted,
            lost_near: links.near.to_receiver.link.lost(),
            lost_far: links.far.to_receiver.link.lost(),
            spurious,
            lost_early,
            lost_end_to_end,
        },
        quacks: report.quacks,
        ack_packets: links.far.to_sender.link.packets,
        assisted: report.assisted,
        assistance: report.assistance,
        near_rtt_ms: report.near_rtt_ms,
        rtt_ms: report.rtt_ms,
        sha256,
        links,
        ..RunRecord::default()
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

fn server_arguments(store: &FilePath, ca: &FilePath) -> Vec<String> {
    let (host, listen) =
        (RECEIVER.to_string(), SocketAddrV4::new(RECEIVER, SERVER_PORT).to_string());
    let (store, ca) = (store.display().to_string(), ca.display().to_string());
    words(&["--dir", &store, "--listen", &listen, "--self-signed", &host, "--write-ca", &ca])
}

fn proxy_arguments() -> Vec<String> {
    words(&["--interface", NEAR, "--listen", &proxy().to_string()])
}

fn proxy() -> SocketAddr {
    SocketAddrV4::new(PROXY_NEAR, PROXY_PORT).into()
}

/// Where the sender is told that the proxy is, if it is told.
fn asked_proxy(fate: ProxyFate) -> Option<SocketAddr> {
    match fate {
        ProxyFate::Found => None,
        ProxyFate::WrongAddress => Some(SocketAddrV4::new(NOBODY, PROXY_PORT).into()),
        ProxyFate::OnPath | ProxyFate::Absent | ProxyFate::Dies => Some(proxy()),
    }
}

fn client_arguments(scenario: &Scenario, file: &FilePath, ca: &FilePath) -> Vec<String> {
    let sidekick = &scenario.sidekick;
    let url = format!("https://{RECEIVER}:{SERVER_PORT}/{UPLOAD}");
    let (file, ca) = (file.display().to_string(), ca.display().to_string());
    let cc = scenario.congestion_control().name();
    let mut arguments = words(&[&file, &url, "--cafile", &ca, "--json", "--quiet", "--cc", cc]);
    arguments.extend(sidekick_arguments(sidekick));
    arguments
}

/// What the sending programs are told of the proxy.
fn sidekick_arguments(sidekick: &Sidekick) -> Vec<String> {
    let mut arguments = words(&["--sidekick", sidekick.mode.name()]);
    if sidekick.mode != Mode::Off {
        let poll = if sidekick.poll { "on" } else { "off" };
        if let Some(proxy) = asked_proxy(sidekick.proxy) {
            arguments.extend(words(&["--proxy", &proxy.to_string()]));
        }
        arguments.extend(words(&["--poll", poll]));
        arguments.extend(words(&["--quack-every-ms", &sidekick.every_ms.to_string()]));
        arguments.extend(words(&["--threshold", &sidekick.threshold.to_string()]));
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
        let line =
            "/f https://10.77.2.2:4433/upload --cafile /ca --json --quiet --cc bbr2 --sidekick off";
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
        let line = "/f https://10.77.2.2:4433/upload --cafile /ca --json --quiet --cc cubic-rfc9438 --sidekick pacubic \
                    --proxy 10.77.1.2:5252 --poll off --quack-every-ms 30 --threshold 16 --quack-every-packets 8";
        assert_eq!(client(&settings), line);
    }
}
