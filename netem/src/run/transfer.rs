//! A transfer of one file between a client and `h3-upload-server`.

use std::io;
use std::path::{Path as FilePath, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{
    AGENT, Bench, Finished, PROXY, RunError, Testbed, failed, report, sidekick_arguments,
    tune_arguments,
};
use crate::progress::Progress;
use crate::record::{Packets, QUINN_CC, Quacks, Repeats, RunRecord};
use crate::report::outcome;
use crate::scenario::{Mode, Scenario, Sidekick};
use crate::source::{SourceFile, sha256};
use crate::topology::{RECEIVER, SECOND, SERVER_PORT};
use crate::words;

pub(crate) const UPLOAD_PROGRAMS: [&str; 3] = [SERVER, "h3-upload", PROXY];
pub(crate) const DOWNLOAD_PROGRAMS: [&str; 3] = [SERVER, "h3-download", PROXY];
/// The programs that transfers and a call need, without an agent and with one.
pub(crate) const UNMODIFIED_PROGRAMS: [&str; 6] =
    [SERVER, QUINN, "audio-receive", "audio-send", PROXY, AGENT];

const SERVER: &str = "h3-upload-server";
/// An unmodified client: quinn and h3.
const QUINN: &str = "quinn-client";

/// The names under which the server stores an upload, and offers a file.
const UPLOAD: &str = "upload";
const DOWNLOAD: &str = "download";

/// The part of a client's report that the record needs.
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

#[derive(Debug, Deserialize)]
struct QuinnReport {
    bytes: u64,
    time_s: f64,
    goodput_mbit_s: f64,
    sha256: String,
    packets_sent: u64,
    packets_lost: u64,
}

impl Bench<'_> {
    /// Uploads or downloads `file` once over the path of `scenario`, and checks that the same file
    /// arrived. The server is unmodified, and has its own congestion controller.
    pub(crate) fn transfer(
        &self,
        scenario: &Scenario,
        seed: u64,
        file: &SourceFile,
        progress: Progress,
    ) -> Result<RunRecord, RunError> {
        let testbed = Testbed::new(self, scenario, seed)?;
        let store = testbed.store(file)?;
        let down = scenario.flow.kind.is_download();
        let (client, arrived) = if down {
            ("h3-download", testbed.directory.path().join("arrived"))
        } else {
            ("h3-upload", store.join(UPLOAD))
        };
        let local = if down { &arrived } else { &file.path };
        let arguments = client_arguments(scenario, local, &testbed.ca());
        let finish = |record: RunRecord, report: ClientReport| {
            let (packets, repeats) = if down {
                let repeats = report.repeats.filter(|_| scenario.sidekick.mode.is_of_program());
                let sent = record.links.far.to_sender.link.packets;
                (server_packets(sent, record.packets, report.packets), repeats)
            } else {
                let Packets { lost_near, lost_far, .. } = record.packets;
                (Packets { lost_near, lost_far, ..report.packets }, None)
            };
            RunRecord {
                bytes: report.bytes,
                time_s: report.time_s,
                goodput_mbit_s: report.goodput_mbit_s,
                packets,
                quacks: report.quacks,
                assisted: report.assisted,
                assistance: report.assistance,
                near_rtt_ms: report.near_rtt_ms,
                rtt_ms: report.rtt_ms,
                repeats,
                ..record
            }
        };
        let digest = |_: &ClientReport| sha256(&arrived);
        testbed.transfer(client, &arguments, (file, digest), seed, progress, finish)
    }

    /// Uploads or downloads `file` once over the path of `scenario` by a client on quinn, and
    /// checks that the same file arrived. The client uses no proxy, in any scenario.
    pub(crate) fn quinn_transfer(
        &self,
        scenario: &Scenario,
        seed: u64,
        file: &SourceFile,
        progress: Progress,
    ) -> Result<RunRecord, RunError> {
        let testbed = Testbed::new(self, scenario, seed)?;
        let store = testbed.store(file)?;
        let down = scenario.flow.kind.is_download();
        let [ca, from] = [&testbed.ca(), &file.path].map(|path| path.display().to_string());
        let arguments = if down {
            words(&["--cafile", &ca, &url(DOWNLOAD)])
        } else {
            words(&["--cafile", &ca, "--upload", &from, &url(UPLOAD)])
        };
        let finish = |record: RunRecord, report: QuinnReport| {
            let packets = if down {
                let sent = record.links.far.to_sender.link.packets;
                server_packets(sent, record.packets, Packets::default())
            } else {
                let (sent, lost) = (report.packets_sent, Some(report.packets_lost));
                Packets { sent, lost_end_to_end: lost, ..record.packets }
            };
            RunRecord {
                cc: QUINN_CC.to_owned(),
                bytes: report.bytes,
                time_s: report.time_s,
                goodput_mbit_s: report.goodput_mbit_s,
                packets,
                assistance: "off".to_owned(),
                ..record
            }
        };
        let digest = |report: &QuinnReport| match down {
            true => Ok(report.sha256.clone()),
            false => sha256(&store.join(UPLOAD)),
        };
        testbed.transfer(QUINN, &arguments, (file, digest), seed, progress, finish)
    }
}

impl Testbed<'_> {
    /// Makes the server's directory, with the file if it is to be downloaded.
    fn store(&self, file: &SourceFile) -> Result<PathBuf, RunError> {
        let store = self.directory.path().join("store");
        std::fs::create_dir(&store).map_err(failed("make a directory for the server"))?;
        if self.scenario.flow.kind.is_download() {
            std::fs::copy(&file.path, store.join(DOWNLOAD)).map_err(failed("copy the file"))?;
        }
        Ok(store)
    }

    /// The path to which the server writes its root certificate.
    fn ca(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Transfers the file between a client and the server of [`Testbed::store`], and checks that
    /// what arrived has the same digest. `finish` adds the client's report to the record.
    fn transfer<R: DeserializeOwned>(
        mut self,
        client: &'static str,
        arguments: &[String],
        (file, digest): (&SourceFile, impl FnOnce(&R) -> io::Result<String>),
        seed: u64,
        mut progress: Progress,
        finish: impl FnOnce(RunRecord, R) -> RunRecord,
    ) -> Result<RunRecord, RunError> {
        let down = self.scenario.flow.kind.is_download();
        let name = if down { DOWNLOAD } else { UPLOAD };
        let server = server_arguments(&self.directory.path().join("store"), &self.ca());
        let server = self.start_receiver(SERVER, &server)?;
        let ended = self.run_sender(client, arguments, file.bytes, &mut progress)?;
        let Finished { links, agent, trace } = self.finish()?;
        server.stop();
        if !ended.status.success() {
            return Err(RunError::Failed(format!("the {name} failed: {}", ended.why())));
        }
        let report = report(client, &ended.output)?;
        let sha256 = digest(&report).map_err(failed("read the file that arrived"))?;
        if sha256 != file.sha256 {
            let sent = &file.sha256;
            return Err(RunError::Failed(format!(
                "the {name} changed the file: SHA-256 {sent} was sent, and {sha256} arrived"
            )));
        }
        let record = RunRecord::of(self.scenario, self.bench.backend.name(), seed, links);
        let mut record = finish(RunRecord { sha256, ..record }, report);
        record.add_agent(agent, trace);
        progress.end(&outcome(&record));
        Ok(record)
    }
}

/// The packets of the server, which reports nothing: `sent` is what reached its link. The client
/// reports only the packets that it sent itself, which carry no data. The help acts on these.
fn server_packets(sent: u64, counted: Packets, client: Packets) -> Packets {
    let Packets { lost_early, spurious, .. } = client;
    Packets { sent, lost_early, spurious, ..counted }
}

fn url(name: &str) -> String {
    format!("https://{RECEIVER}:{SERVER_PORT}/{name}")
}

fn server_arguments(store: &FilePath, ca: &FilePath) -> Vec<String> {
    let (host, listen) = (RECEIVER.to_string(), format!("{RECEIVER}:{SERVER_PORT}"));
    let (store, ca) = (store.display().to_string(), ca.display().to_string());
    words(&["--dir", &store, "--listen", &listen, "--self-signed", &host, "--write-ca", &ca])
}

/// The arguments of a client that uploads a file, or downloads to it.
fn client_arguments(scenario: &Scenario, file: &FilePath, ca: &FilePath) -> Vec<String> {
    let (file, ca) = (file.display().to_string(), ca.display().to_string());
    let mut arguments = if scenario.flow.kind.is_download() {
        words(&[&url(DOWNLOAD), "-o", &file, "--cafile", &ca, "--json", "--quiet"])
    } else {
        let cc = scenario.congestion_control().name();
        words(&[&file, &url(UPLOAD), "--cafile", &ca, "--json", "--quiet", "--cc", cc])
    };
    arguments.extend(tune_arguments(&scenario.flow));
    arguments.extend(sidekick_arguments(&scenario.sidekick));
    let Sidekick { mode, carry_mbit, .. } = &scenario.sidekick;
    if scenario.second.is_some() && matches!(mode, Mode::Auto | Mode::Receive) {
        let carry = carry_mbit.to_string();
        arguments.extend(words(&["--second-uplink", SECOND, "--carry", &carry]));
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_of_a_download_reports_what_its_help_did() {
        let counted = Packets { lost_near: 4, ..Packets::default() };
        let client = Packets { sent: 9, lost_early: 2, spurious: 1, ..Packets::default() };
        let packets = server_packets(50, counted, client);
        assert_eq!((packets.sent, packets.lost_near), (50, 4));
        assert_eq!((packets.lost_early, packets.spurious), (2, 1));
    }

    #[test]
    fn the_settings_reach_the_client() {
        let upload = "/f https://10.77.2.2:4433/upload --cafile /ca --json --quiet --cc";
        let download = "https://10.77.2.2:4433/download -o /f --cafile /ca --json --quiet";
        let helped = [
            "sidekick.mode=pacubic",
            "sidekick.poll=off",
            "sidekick.every_packets=8",
            "sidekick.threshold=16",
        ];
        for (scenario, settings, line) in [
            (
                "upload-paper",
                &["flow.cc=bbr2"][..],
                format!("{upload} bbr2 --tune off --sidekick off"),
            ),
            (
                "upload-paper",
                &helped,
                format!(
                    "{upload} cubic-rfc9438 --tune off --sidekick pacubic --proxy 10.77.1.2:5252 \
                     --poll off --quack-every-ms 30 --threshold 16 --quack-every-packets 8"
                ),
            ),
            (
                "download-paper",
                &["sidekick.mode=receive"],
                format!(
                    "{download} --tune off --sidekick receive --proxy 10.77.1.2:5252 --poll on \
                     --quack-every-ms 30 --threshold 20"
                ),
            ),
        ] {
            let scenario = Scenario::with(scenario, settings).unwrap();
            let arguments = client_arguments(&scenario, "/f".as_ref(), "/ca".as_ref());
            assert_eq!(arguments.join(" "), line);
        }
    }
}
