//! A download with the real programs.

use std::path::Path as FilePath;

use super::{
    Bench, ClientReport, RunError, Testbed, failed, report, server_arguments, sidekick_arguments,
    with_report,
};
use crate::progress::Progress;
use crate::record::{Packets, RunRecord};
use crate::scenario::{Mode, Scenario};
use crate::source::{SourceFile, sha256};
use crate::topology::{RECEIVER, SERVER_PORT};
use crate::words;

/// The programs that a download needs.
pub const DOWNLOAD_PROGRAMS: [&str; 3] = ["h3-upload-server", "h3-download", "sidekick-proxy"];

/// The name under which the server has the file.
const DOWNLOAD: &str = "download";

impl Bench<'_> {
    /// Downloads `file` over the path of `scenario` once, and checks that it arrived as it was. The
    /// server knows nothing of the proxy, and has its own congestion controller.
    ///
    /// # Errors
    ///
    /// [`RunError`], also when the download itself failed.
    pub fn download(
        &self,
        scenario: &Scenario,
        seed: u64,
        file: &SourceFile,
        progress: &mut Progress,
    ) -> Result<RunRecord, RunError> {
        let mut testbed = Testbed::new(self, scenario, seed)?;
        let directory = testbed.directory.path();
        let (store, ca) = (directory.join("store"), directory.join("ca.pem"));
        let arrived = directory.join("arrived");
        std::fs::create_dir(&store).map_err(failed("make a directory for the server"))?;
        std::fs::copy(&file.path, store.join(DOWNLOAD)).map_err(failed("copy the file"))?;
        let server = testbed.start_receiver("h3-upload-server", &server_arguments(&store, &ca))?;
        let arguments = client_arguments(scenario, &arrived, &ca);
        let client = testbed.run_sender("h3-download", &arguments, file.bytes, progress)?;
        let links = testbed.finish()?;
        server.stop();
        if !client.status.success() {
            return Err(RunError::Failed(format!("the download failed: {}", client.why())));
        }
        let report: ClientReport = report("h3-download", &client.output)?;
        let repeats = report.repeats.filter(|_| scenario.sidekick.mode != Mode::Off);
        let arrived = sha256(&arrived).map_err(failed("read what the client stored"))?;
        if arrived != file.sha256 {
            let sent = &file.sha256;
            return Err(RunError::Failed(format!(
                "the client stored {arrived} where {sent} was sent"
            )));
        }
        let record = RunRecord::of(scenario, self.backend.name(), seed, links);
        // The client's report is of what it sent itself, which is not the data.
        let packets = Packets { sent: record.links.far.to_sender.link.packets, ..record.packets };
        Ok(RunRecord { sha256: arrived, packets, repeats, ..with_report(record, report) })
    }
}

fn client_arguments(scenario: &Scenario, file: &FilePath, ca: &FilePath) -> Vec<String> {
    let url = format!("https://{RECEIVER}:{SERVER_PORT}/{DOWNLOAD}");
    let (file, ca) = (file.display().to_string(), ca.display().to_string());
    let mut arguments = words(&[&url, "-o", &file, "--cafile", &ca, "--json", "--quiet"]);
    arguments.extend(sidekick_arguments(&scenario.sidekick));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_reach_the_client() {
        let mut scenario = Scenario::load("download-paper").unwrap();
        scenario.apply(&["sidekick.mode=receive"]).unwrap();
        let line = "https://10.77.2.2:4433/download -o /f --cafile /ca --json --quiet --sidekick receive \
                    --proxy 10.77.1.2:5252 --poll on --quack-every-ms 30 --threshold 20";
        assert_eq!(client_arguments(&scenario, "/f".as_ref(), "/ca".as_ref()).join(" "), line);
    }
}
