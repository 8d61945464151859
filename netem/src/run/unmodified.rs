//! Unmodified programs. [`Bench::agent`] selects whether an agent helps them.

use std::path::Path as FilePath;

use serde::Deserialize;

use super::{AGENT, Bench, PROXY, RunError, Testbed, Transfer, UPLOAD};
use crate::progress::Progress;
use crate::record::{Packets, QUINN_CC, RunRecord};
use crate::scenario::Scenario;
use crate::source::SourceFile;
use crate::topology::{RECEIVER, SERVER_PORT};
use crate::words;

/// The programs that an upload and a call need, without an agent and with one.
pub const UNMODIFIED_PROGRAMS: [&str; 6] =
    ["h3-upload-server", CLIENT, "audio-receive", "audio-send", PROXY, AGENT];

/// The client: quinn and h3.
const CLIENT: &str = "quinn-upload";

/// The part of the client's report that the record needs.
#[derive(Debug, Deserialize)]
struct Report {
    bytes: u64,
    time_s: f64,
    goodput_mbit_s: f64,
    packets_sent: u64,
    packets_lost: u64,
}

impl Bench<'_> {
    /// Uploads `file` once over the path of `scenario` by a client on quinn, and checks that the
    /// same file arrived. The client uses no proxy, in any scenario.
    ///
    /// # Errors
    ///
    /// [`RunError`] if a step or the upload itself failed.
    pub fn quinn_upload(
        &self,
        scenario: &Scenario,
        seed: u64,
        file: &SourceFile,
        progress: &mut Progress,
    ) -> Result<RunRecord, RunError> {
        let testbed = Testbed::new(self, scenario, seed)?;
        let arrived = testbed.store()?.join(UPLOAD);
        let arguments = client_arguments(&file.path, &testbed.ca());
        let (record, report): (_, Report) = testbed.transfer(
            &Transfer { name: "upload", client: CLIENT, arguments, file, arrived },
            seed,
            progress,
        )?;
        let packets = Packets {
            sent: report.packets_sent,
            lost_end_to_end: Some(report.packets_lost),
            ..record.packets
        };
        Ok(RunRecord {
            cc: QUINN_CC.to_owned(),
            bytes: report.bytes,
            time_s: report.time_s,
            goodput_mbit_s: report.goodput_mbit_s,
            packets,
            assistance: "off".to_owned(),
            ..record
        })
    }
}

fn client_arguments(file: &FilePath, ca: &FilePath) -> Vec<String> {
    let url = format!("https://{RECEIVER}:{SERVER_PORT}/{UPLOAD}");
    words(&["--cafile", &ca.display().to_string(), &file.display().to_string(), &url])
}
