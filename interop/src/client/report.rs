//! The output at the end.

use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use quic_sidekick::{Assistance, ReceiveState, Status};
use serde::Serialize;
use sidekick_netem::record::{HeldMs, Repeats};

use crate::cli::Cli;
use crate::exchange::Exchange;
use crate::session::Session;

/// One JSON object on standard output.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Bytes of all bodies.
    bytes: u64,
    /// The hash of one body.
    sha256: String,
    time_s: f64,
    goodput_mbit_s: f64,
    cc: String,
    mode: String,
    assisted: bool,
    assistance: String,
    packets: Packets,
    /// Whether a proxy keeps copies of what this end receives.
    copies_kept: bool,
    /// Whether copies repair what this end receives, and if not, why.
    receiving: String,
    #[serde(flatten)]
    repeats: Option<Repeats>,
    near_rtt_ms: Option<f64>,
    rtt_ms: f64,
    /// Bytes of the longest UDP payload sent.
    longest_payload: usize,
    cipher: String,
    /// The length of the server's connection IDs.
    server_cid_length: usize,
    key_updates: u32,
    /// Datagrams that arrived at the client's new port.
    at_new_port: u64,
    /// Datagrams that arrived at the old port after the change.
    at_old_port: u64,
    resumed: bool,
    early_data_accepted: bool,
    /// Errors that the network reported at the client's sockets.
    socket_errors: u64,
}

#[derive(Debug, Serialize)]
struct Packets {
    sent: usize,
    received: usize,
    lost_end_to_end: usize,
    lost_early: u64,
    spurious: u64,
}

impl Report {
    pub(crate) fn new(
        cli: &Cli,
        session: &mut Session,
        exchange: &Exchange,
        took: Duration,
    ) -> Self {
        let cipher = session.cipher();
        let (help, conn) = (session.help(), session.conn());
        let stats = help.map(|status| status.stats).unwrap_or_default();
        Self {
            bytes: exchange.bytes(),
            sha256: exchange.digest().sha256(),
            time_s: took.as_secs_f64(),
            goodput_mbit_s: exchange.bytes() as f64 * 8.0 / took.as_secs_f64().max(1e-9) / 1e6,
            cc: cli.controller().to_owned(),
            mode: cli.sidekick.map_or_else(|| "off".to_owned(), |mode| mode.to_string()),
            assisted: help.is_some_and(|status| status.assistance == Assistance::Assisted),
            assistance: help
                .map_or_else(|| "off".to_owned(), |status| status.assistance.to_string()),
            packets: Packets {
                sent: conn.stats().sent,
                received: conn.stats().recv,
                lost_end_to_end: conn.stats().lost,
                lost_early: stats.early_lost,
                spurious: stats.spurious,
            },
            copies_kept: help.is_some_and(|status| {
                !matches!(status.received.state, ReceiveState::Off | ReceiveState::NotKept)
            }),
            receiving: help
                .map_or_else(|| "off".to_owned(), |status| status.received.state.to_string()),
            repeats: help.and_then(repeats),
            near_rtt_ms: help.and_then(|status| status.near_rtt).map(milliseconds),
            rtt_ms: conn
                .path_stats()
                .find(|path| path.active)
                .map(|path| milliseconds(path.rtt))
                .unwrap_or_default(),
            longest_payload: session.longest(),
            cipher,
            server_cid_length: conn.destination_id().len(),
            key_updates: session.key_updates(),
            at_new_port: session.at_new_port(),
            at_old_port: session.at_old_port(),
            resumed: conn.is_resumed(),
            early_data_accepted: session.early_data_accepted(),
            socket_errors: session.socket_errors(),
        }
    }

    pub(crate) fn print(&self) -> anyhow::Result<()> {
        let line = serde_json::to_string(self).context("cannot write the report")?;
        writeln!(std::io::stdout(), "{line}").context("cannot write the report to standard output")
    }
}

/// The repairs by copies, in the mode that requests them.
fn repeats(status: Status) -> Option<Repeats> {
    let received = status.received;
    let [p50, p99, max] = received.held.map(milliseconds);
    (received.state != ReceiveState::Off).then_some(Repeats {
        repeats_requested: status.stats.repeats_requested,
        repeats_received: status.stats.repeats_received,
        repaired_near: received.filled,
        held_ms: HeldMs { p50, p99, max },
        ..Repeats::default()
    })
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
