//! The summary, or the JSON object, of a download.

use h3_client::options::Plan;
use h3_client::report::{self, Common, Speed};
use indicatif::HumanBytes;
use serde::Serialize;

use crate::digest::hex;
use crate::output::Output;
use crate::request::Outcome;

#[derive(Debug, Serialize)]
struct Report {
    url: String,
    file: String,
    #[serde(flatten)]
    speed: Speed,
    sha256: String,
    /// `null` if the server sent none. A download with another hash fails.
    server_sha256: Option<String>,
    #[serde(flatten)]
    common: Common,
}

/// Shows a finished download, as the plan demands.
pub(crate) fn show(output: &Output, plan: &Plan, outcome: &Outcome) -> anyhow::Result<()> {
    let sha256 = hex(&outcome.received.sha256);
    let report = Report {
        url: plan.target.url(),
        file: output.name(),
        speed: Speed::of(outcome.received.bytes, &outcome.measured),
        server_sha256: outcome.announced_digest.then(|| sha256.clone()),
        sha256,
        common: Common::new(plan, &outcome.measured),
    };
    report::show(plan, &report, &summary(&report))
}

fn summary(report: &Report) -> String {
    let Report { url, file, speed, sha256, server_sha256, common } = report;
    let check = match server_sha256 {
        Some(_) => "as the server announced",
        None => "the server announced none",
    };
    format!(
        "{url} -> {file}\n  {} in {:.2} s, {:.2} Mbit/s; {} packets received\n{}{}  sha256 \
         {sha256}, {check}\n",
        HumanBytes(speed.bytes),
        speed.time_s,
        speed.goodput_mbit_s,
        common.packets_received(),
        common.packets(),
        common.help(),
    )
}
