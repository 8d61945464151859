//! The summary, or the JSON object, of an upload.

use std::path::Path;

use h3_client::options::Plan;
use h3_client::report::{self, Common, Speed};
use indicatif::HumanBytes;
use serde::Serialize;

use crate::request::Outcome;

#[derive(Debug, Serialize)]
struct Report<'a> {
    file: String,
    url: String,
    #[serde(flatten)]
    speed: Speed,
    sha256: &'a str,
    server_sha256: &'a str,
    #[serde(flatten)]
    common: Common,
}

/// Shows a finished upload, as the plan demands.
pub(crate) fn show(file: &Path, plan: &Plan, outcome: &Outcome) -> anyhow::Result<()> {
    let report = Report {
        file: file.display().to_string(),
        url: plan.target.url(),
        speed: Speed::of(outcome.sent.bytes, &outcome.measured),
        sha256: &outcome.sent.sha256,
        server_sha256: &outcome.receipt.sha256,
        common: Common::new(plan, &outcome.measured),
    };
    report::show(plan, &report, &summary(&report))
}

fn summary(report: &Report<'_>) -> String {
    let Report { file, url, speed, common, sha256, .. } = report;
    format!(
        "{file} -> {url}\n  {} in {:.2} s, {:.2} Mbit/s, congestion control {}\n{}{}  sha256 \
         {sha256}\n",
        HumanBytes(speed.bytes),
        speed.time_s,
        speed.goodput_mbit_s,
        common.cc(),
        common.packets(),
        common.help(),
    )
}
