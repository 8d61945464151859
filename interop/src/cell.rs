//! One try: a path, a server, a proxy, a client.

use std::net::{IpAddr, SocketAddr};
use std::path::Path as FilePath;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use sidekick_netem::path::{Backend, Path, PathCounters};
use sidekick_netem::programs::{Ended, Program, Programs};
use sidekick_netem::record::Repeats;
use sidekick_netem::scenario::Scenario;
use sidekick_netem::topology::{
    NEAR, PROXY_NEAR, PROXY_NEAR_V6, PROXY_PORT, RECEIVER, RECEIVER_V6, SERVER_PORT, Topology,
};

use crate::case::{Case, Sender};
use crate::files::{Files, NAME};
use crate::name_server::NameServer;
use crate::peer::Peer;

/// The longest wait for a client. At a tenth of the slowest measured rate it needs less.
const PATIENCE: Duration = Duration::from_secs(300);

/// Hides the processor's AES instructions from BoringSSL, so that a client prefers ChaCha20 and a
/// server accepts it. BoringSSL reads this variable only on x86.
const NO_AES: (&str, &str) = ("OPENSSL_ia32cap", "~0x200000200000000");

/// One try with a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) case: Case,
    pub(crate) sender: Sender,
    pub(crate) near_loss: f64,
    pub(crate) seed: u64,
}

/// The result of a try.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub(crate) enum Outcome {
    /// The bytes and their hash are right, and the client closed the connection without an error.
    Passed(Box<Measured>),
    /// Something of that is wrong.
    Failed { why: String },
    /// The peer is known not to support the case.
    Unsupported { why: String },
    /// The peer could not be installed.
    Missing { why: String },
}

impl From<anyhow::Result<Measured>> for Outcome {
    fn from(result: anyhow::Result<Measured>) -> Self {
        match result {
            Ok(measured) => Self::Passed(Box::new(measured)),
            Err(error) => Self::Failed { why: format!("{error:#}") },
        }
    }
}

impl Outcome {
    /// Why it failed, if it did.
    pub(crate) fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed { why } | Self::Missing { why } => Some(why),
            Self::Passed(_) | Self::Unsupported { .. } => None,
        }
    }
}

/// The fields of the client's report that the matrix uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
    pub(crate) time_s: f64,
    pub(crate) goodput_mbit_s: f64,
    pub(crate) assisted: bool,
    pub(crate) assistance: String,
    pub(crate) packets: Packets,
    /// How h3-upload found the server.
    #[serde(default)]
    pub(crate) found: String,
    #[serde(default)]
    pub(crate) longest_payload: usize,
    #[serde(default)]
    pub(crate) cipher: String,
    #[serde(default)]
    pub(crate) server_cid_length: usize,
    #[serde(default)]
    pub(crate) key_updates: u32,
    #[serde(default)]
    pub(crate) at_new_port: u64,
    #[serde(default)]
    pub(crate) at_old_port: u64,
    #[serde(default)]
    pub(crate) early_data_accepted: bool,
    /// Whether a proxy kept copies of what the client received.
    #[serde(default)]
    pub(crate) copies_kept: bool,
    /// The repairs by copies.
    #[serde(flatten)]
    pub(crate) repeats: Option<Repeats>,
    /// Frames towards the client that the near segment lost.
    #[serde(default)]
    pub(crate) near_lost_down: u64,
    /// Frames that this machine sent more than a millisecond late, in percent.
    #[serde(default)]
    pub(crate) late_percent: f64,
    /// Frames that this machine lost because it was too slow, in addition to the path's losses.
    #[serde(default)]
    pub(crate) overruns: u64,
}

/// The packet counts of the reporting end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Packets {
    pub(crate) sent: u64,
    pub(crate) lost_end_to_end: u64,
    pub(crate) lost_early: u64,
    pub(crate) spurious: u64,
}

impl Cell<'_> {
    /// The title for users.
    pub(crate) fn title(&self) -> String {
        let Self { peer, case, sender, near_loss, .. } = self;
        format!("{}: {}, {}, {near_loss} % near loss", peer.folder, case.name(), sender.name)
    }

    /// Runs the try. Its files are in a directory of its own.
    pub(crate) fn run(&self, files: &Files, caches: &FilePath, directory: &FilePath) -> Outcome {
        if let Some(why) = self.peer.missing(caches) {
            return Outcome::Missing { why };
        }
        if let Some(why) = self.peer.unsupported(self.case) {
            return Outcome::Unsupported { why: why.to_owned() };
        }
        if self.case == Case::ChaCha20 && !cfg!(any(target_arch = "x86", target_arch = "x86_64")) {
            let why = "the machine is not x86, and BoringSSL can prefer ChaCha20 only there";
            return Outcome::Unsupported { why: why.to_owned() };
        }
        self.attempt(files, caches, directory).into()
    }

    fn attempt(
        &self,
        files: &Files,
        caches: &FilePath,
        directory: &FilePath,
    ) -> anyhow::Result<Measured> {
        let mut scenario = Scenario::load("upload-paper")?;
        scenario.apply(&[format!("near.loss_percent={}", self.near_loss)])?;
        let mut path = Path::build(Backend::User, &scenario, self.seed)?;
        if self.case == Case::Ipv6 {
            path.topology().add_ipv6()?;
        }
        let programs = Programs::find(None)?;
        let mut server = self.server(files, caches, path.topology(), directory)?;
        let start =
            || start_proxy(&programs, NEAR, self.proxy_address(), path.topology(), directory);
        let proxy = self.sender.helped.then(start).transpose()?;
        server.wait_until_ready()?;
        let name_server = match self.case {
            Case::HttpsRecord => Some(NameServer::start(&path.topology().receiver)?),
            _ => None,
        };
        let resolver = name_server.as_ref().map(|server| server.address);
        let client = self.client(&programs, files, path.topology(), resolver, directory)?;
        let ended = finish(client, directory)?;
        let counters = path.counters()?;
        let judged = || -> anyhow::Result<Measured> {
            if let Some(why) = server.ended()? {
                bail!("the server ended: {why}");
            }
            server.stop();
            stop_proxy(proxy)?;
            ensure!(ended.status.success(), "{}", ended.why());
            let measured: Measured = serde_json::from_str(&ended.output)
                .context("cannot read the report that the client printed")?;
            self.check(&measured, files)?;
            Ok(measured)
        };
        with_counters(judged(), &counters)
    }

    fn server(
        &self,
        files: &Files,
        caches: &FilePath,
        hosts: &Topology,
        directory: &FilePath,
    ) -> anyhow::Result<Program> {
        let mut command = self.peer.serve(caches)?;
        command.args(["--listen", &self.server_address().to_string()]);
        files.add_server_options(&mut command);
        command.args(self.case.server_options()).current_dir(directory);
        if self.case == Case::ChaCha20 {
            command.env(NO_AES.0, NO_AES.1);
        }
        Ok(Program::start_command("the server", command, &hosts.receiver, directory)?)
    }

    fn client(
        &self,
        programs: &Programs,
        files: &Files,
        hosts: &Topology,
        resolver: Option<SocketAddr>,
        directory: &FilePath,
    ) -> anyhow::Result<Program> {
        let source = files.source(self.case)?;
        let server = self.server_address();
        let mut command;
        if self.case.is_for_h3_upload() {
            command = Command::new(programs.path("h3-upload")?);
            // So that the senders differ in the help alone.
            command.arg(&source.path).args(["--json", "--quiet", "--tune", "off"]);
            match resolver {
                // The URL's own port is closed.
                Some(resolver) => command
                    .arg(format!("https://{NAME}/upload"))
                    .args(["--resolver", &resolver.to_string()]),
                None => command.arg(format!("https://{server}/upload")),
            };
            if let Some((name, _)) = self.sender.controller {
                command.args(["--cc", name]);
            }
        } else {
            command = Command::new(programs.path("interop-client")?);
            command.args(["--server", &server.to_string(), "--name", NAME]);
            command.args(self.case.client_options());
            if let Some((_, quiche)) = self.sender.controller {
                command.args(["--cc", quiche]);
            }
        }
        command.arg("--cafile").arg(&files.root_certificate);
        if self.sender.helped {
            command.args([
                "--sidekick",
                self.sender.name,
                "--proxy",
                &self.proxy_address().to_string(),
            ]);
        }
        match self.case {
            case if case.is_for_h3_upload() => {}
            case if case.is_upload() => {
                command.arg("put").arg(&source.path);
            }
            case => {
                command.args([
                    "get",
                    &case.bytes().to_string(),
                    "--times",
                    &case.times().to_string(),
                ]);
            }
        }
        if self.case == Case::ChaCha20 {
            command.env(NO_AES.0, NO_AES.1);
        }
        Ok(Program::start_command("the client", command, &hosts.sender, directory)?)
    }

    fn server_address(&self) -> SocketAddr {
        let ip: IpAddr = if self.case == Case::Ipv6 { RECEIVER_V6.into() } else { RECEIVER.into() };
        (ip, SERVER_PORT).into()
    }

    fn proxy_address(&self) -> SocketAddr {
        let ip: IpAddr =
            if self.case == Case::Ipv6 { PROXY_NEAR_V6.into() } else { PROXY_NEAR.into() };
        (ip, PROXY_PORT).into()
    }

    /// Checks a report against the requirements of the case.
    fn check(&self, measured: &Measured, files: &Files) -> anyhow::Result<()> {
        let source = files.source(self.case)?;
        let bytes = source.bytes * self.case.times();
        ensure!(measured.bytes == bytes, "{} of {bytes} bytes arrived", measured.bytes);
        ensure!(measured.sha256 == source.sha256, "the received bytes differ from the sent ones");
        if self.sender.helped && self.case.has_to_be_assisted() {
            ensure!(measured.assisted, "the sender was not helped: {}", measured.assistance);
        }
        if self.sender.receives() && self.case == Case::Download {
            ensure!(measured.copies_kept, "the proxy kept no copies");
            let repaired = measured.repeats.unwrap_or_default().repaired_near;
            ensure!(
                self.near_loss == 0.0 || repaired > 0,
                "copies repaired nothing of {} lost packets",
                measured.near_lost_down
            );
        }
        match self.case {
            Case::EarlyData => {
                ensure!(measured.early_data_accepted, "the server rejected the early data");
            }
            Case::KeyUpdate => {
                ensure!(measured.key_updates > 0, "the server did not update the keys");
            }
            // A server that does not follow sends the acknowledgements of the second half to the
            // old port. How many there are depends on the bursts in which packets arrive.
            Case::Migration => ensure!(
                measured.at_new_port > measured.at_old_port,
                "the server did not follow to the new port: it received {} datagrams, and the old \
                 port {}",
                measured.at_new_port,
                measured.at_old_port
            ),
            Case::HttpsRecord => {
                ensure!(
                    measured.found == "https-record",
                    "the client did not use the record: {}",
                    measured.found
                );
            }
            Case::Aes => {
                ensure!(measured.cipher.contains("AES"), "the cipher was {}", measured.cipher);
            }
            Case::ChaCha20 => {
                ensure!(measured.cipher.contains("CHACHA20"), "the cipher was {}", measured.cipher);
            }
            Case::Payload1200 => check_payload(measured, 1200)?,
            Case::Payload1400 => check_payload(measured, 1400)?,
            Case::Cid0 => check_cid(measured, 0)?,
            Case::Cid20 => check_cid(measured, 20)?,
            _ => {}
        }
        Ok(())
    }
}

fn check_payload(measured: &Measured, length: usize) -> anyhow::Result<()> {
    let longest = measured.longest_payload;
    ensure!(longest == length, "the longest UDP payload had {longest} bytes");
    Ok(())
}

fn check_cid(measured: &Measured, length: usize) -> anyhow::Result<()> {
    let had = measured.server_cid_length;
    ensure!(had == length, "the server's connection IDs had {had} bytes");
    Ok(())
}

/// Starts a proxy at this interface and address.
pub(crate) fn start_proxy(
    programs: &Programs,
    interface: &str,
    address: SocketAddr,
    hosts: &Topology,
    directory: &FilePath,
) -> anyhow::Result<Program> {
    let mut command = Command::new(programs.path("sidekick-proxy")?);
    command.args(["--interface", interface, "--listen", &address.to_string()]);
    let mut proxy = Program::start_command("the proxy", command, &hosts.proxy, directory)?;
    proxy.wait_until_ready()?;
    Ok(proxy)
}

/// Waits for the client's end, and stores its report beside its log.
pub(crate) fn finish(mut client: Program, directory: &FilePath) -> anyhow::Result<Ended> {
    let ended = client.wait(PATIENCE)?;
    let ended =
        ended.with_context(|| format!("the client did not end within {} s", PATIENCE.as_secs()))?;
    std::fs::write(directory.join("the client.stdout"), &ended.output)
        .context("cannot store the client's report")?;
    Ok(ended)
}

/// Adds to the result of a try what the path counted, and whether this machine was fast enough.
pub(crate) fn with_counters(
    result: anyhow::Result<Measured>,
    counters: &PathCounters,
) -> anyhow::Result<Measured> {
    let overruns = counters.overruns();
    match result {
        Ok(mut measured) => {
            measured.late_percent = counters.late_percent();
            measured.overruns = overruns;
            measured.near_lost_down = counters.near.to_sender.link.lost();
            Ok(measured)
        }
        Err(error) if overruns > 0 => {
            Err(anyhow!("{error:#}; this machine was too slow, and lost {overruns} frames"))
        }
        Err(error) => Err(error),
    }
}

/// Stops the proxy, which must still run.
pub(crate) fn stop_proxy(proxy: Option<Program>) -> anyhow::Result<()> {
    let Some(mut proxy) = proxy else { return Ok(()) };
    if let Some(why) = proxy.ended()? {
        bail!("the proxy ended: {why}");
    }
    proxy.stop();
    Ok(())
}
