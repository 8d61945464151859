//! The other direction: downloads from a server on the hooked quiche, whose sending a proxy helps.
//!
//! A proxy helps a sender on its first hop. A server's first hop is seldom the bad one, and a proxy
//! beside its client is far from the server. The matrix tries both places.

use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};
use sidekick_netem::path::{Backend, Path};
use sidekick_netem::programs::{Ended, Program, Programs};
use sidekick_netem::scenario::Scenario;
use sidekick_netem::source::SourceFile;
use sidekick_netem::topology::{FAR, PROXY_FAR, PROXY_PORT, RECEIVER, SERVER_PORT};

use crate::case::{Case, SENDERS, Sender};
use crate::cell::{Measured, Outcome, Packets, finish, start_proxy, stop_proxy, with_counters};
use crate::files::{Files, NAME};

/// The case whose file goes down here, from the senders that upload it there.
const FILE: Case = Case::Upload;
/// The longest wait for the server's end after its client's.
const SERVER_END: Duration = Duration::from_secs(60);

/// The place of the losses. The path is that of `upload-paper`, or its reverse. One of its segments
/// is short and fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Place {
    /// On the server's first hop, short and fast, with the proxy at its end.
    FirstHop,
    /// On the long and slow segment between the server and a proxy beside the client.
    BeforeProxy,
    /// On the client's last hop, short and fast, behind a proxy beside it.
    LastHop,
}

impl Place {
    pub(crate) const ALL: [Self; 3] = [Self::FirstHop, Self::BeforeProxy, Self::LastHop];

    /// The description in tables.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Self::FirstHop => "on the server's first hop, the proxy at its end",
            Self::BeforeProxy => "on the long way to a proxy beside the client",
            Self::LastHop => "on the client's last hop, behind the proxy",
        }
    }

    /// The settings of the scenario. The path begins at the client, so its far segment is the
    /// server's first one.
    fn settings(self, loss: f64) -> Vec<String> {
        let lossy = |segment| {
            vec!["near.loss_percent=0".to_owned(), format!("{segment}.loss_percent={loss}")]
        };
        match self {
            Self::FirstHop => {
                let swapped = [
                    "near.delay_ms=25",
                    "near.rate_mbit=10",
                    "far.delay_ms=1",
                    "far.rate_mbit=100",
                ];
                lossy("far").into_iter().chain(swapped.map(str::to_owned)).collect()
            }
            Self::BeforeProxy => lossy("far"),
            Self::LastHop => lossy("near"),
        }
    }
}

/// One download.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(crate) sender: Sender,
    pub(crate) place: Place,
    pub(crate) loss: f64,
    pub(crate) seed: u64,
}

/// A download, and its result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ServedResult {
    pub(crate) sender: &'static str,
    pub(crate) place: Place,
    pub(crate) loss_percent: f64,
    pub(crate) seed: u64,
    /// The client's figures for the file, and the server's for packets and help, because the server
    /// sends here.
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

/// The fields of the server's report that the matrix uses.
#[derive(Debug, Deserialize)]
struct SenderReport {
    assisted: bool,
    assistance: String,
    packets: Packets,
}

impl Served {
    /// The downloads by all senders, with losses at all places.
    pub(crate) fn all(loss: f64, seed: u64) -> Vec<Self> {
        let senders = || SENDERS.into_iter().filter(|sender| sender.takes(FILE));
        let at = |place| senders().map(move |sender| Self { sender, place, loss, seed });
        Place::ALL.into_iter().flat_map(at).collect()
    }

    /// The title for users.
    pub(crate) fn title(&self) -> String {
        format!("our server: {}, {} % lost {}", self.sender.name, self.loss, self.place.about())
    }

    pub(crate) fn run(&self, files: &Files, directory: &FilePath) -> Outcome {
        self.attempt(files, directory).into()
    }

    /// The download with its result.
    pub(crate) fn with(&self, outcome: Outcome) -> ServedResult {
        let Self { sender, place, loss, seed } = *self;
        ServedResult { sender: sender.name, place, loss_percent: loss, seed, outcome }
    }

    fn attempt(&self, files: &Files, directory: &FilePath) -> anyhow::Result<Measured> {
        let mut scenario = Scenario::load("upload-paper")?;
        scenario.apply(&self.place.settings(self.loss))?;
        let mut path = Path::build(Backend::User, &scenario, self.seed)?;
        let programs = Programs::find(None)?;
        let hosts = path.topology();

        let proxy_address = SocketAddr::from((PROXY_FAR, PROXY_PORT));
        let start = || start_proxy(&programs, FAR, proxy_address, hosts, directory);
        let proxy = self.sender.helped.then(start).transpose()?;

        let server_address = format!("{RECEIVER}:{SERVER_PORT}");
        let mut command = Command::new(programs.path("interop-server")?);
        command.args(["--listen", &server_address, "--once"]);
        files.add_server_options(&mut command);
        if let Some((_, quiche)) = self.sender.controller {
            command.args(["--cc", quiche]);
        }
        if self.sender.helped {
            command.args(["--sidekick", self.sender.name]);
            command.args(["--proxy", &proxy_address.to_string()]);
        }
        let mut server = Program::start_command("the server", command, &hosts.receiver, directory)?;
        server.wait_until_ready()?;

        let source = files.source(FILE)?;
        let mut command = Command::new(programs.path("interop-client")?);
        command
            .args(["--server", &server_address, "--name", NAME])
            .arg("--cafile")
            .arg(&files.root_certificate);
        command.args(["get", &source.bytes.to_string()]);
        let ended = finish(
            Program::start_command("the client", command, &hosts.sender, directory)?,
            directory,
        )?;
        let counters = path.counters()?;
        with_counters(self.judge(&ended, server, proxy, source), &counters)
    }

    fn judge(
        &self,
        client: &Ended,
        mut server: Program,
        proxy: Option<Program>,
        source: &SourceFile,
    ) -> anyhow::Result<Measured> {
        if !client.status.success() {
            if let Some(why) = server.ended()? {
                bail!("the server ended: {why}");
            }
            stop_proxy(proxy)?;
            bail!("{}", client.why());
        }
        let mut measured: Measured = serde_json::from_str(&client.output)
            .context("cannot read the report that the client printed")?;
        ensure!(measured.sha256 == source.sha256, "the received bytes differ from the sent ones");
        // The server's connection outlives the client's by a few probe timeouts. If the client's
        // close is lost, it lasts until the idle timeout.
        let server = server.wait(SERVER_END)?.context("the server did not end after its client")?;
        stop_proxy(proxy)?;
        ensure!(server.status.success(), "the server failed: {}", server.why());
        let report = server.output.lines().last().unwrap_or_default();
        let report: SenderReport = serde_json::from_str(report)
            .context("cannot read the report that the server printed")?;
        measured.assisted = report.assisted;
        measured.assistance = report.assistance;
        measured.packets = report.packets;
        if self.sender.helped {
            ensure!(measured.assisted, "the server was not helped: {}", measured.assistance);
        }
        Ok(measured)
    }
}
