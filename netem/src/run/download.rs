//! A download with the real programs.

use std::path::Path as FilePath;

use super::{
    Bench, ClientReport, PROXY, RunError, Testbed, Transfer, failed, sidekick_arguments,
    tune_arguments, with_report,
};
use crate::progress::Progress;
use crate::record::{Packets, RunRecord};
use crate::scenario::{Mode, Scenario};
use crate::source::SourceFile;
use crate::topology::{RECEIVER, SERVER_PORT};
use crate::words;

/// The programs that a download needs.
pub const DOWNLOAD_PROGRAMS: [&str; 3] = ["h3-upload-server", "h3-download", PROXY];

/// The name under which the server offers the file.
const DOWNLOAD: &str = "download";

impl Bench<'_> {
    /// Downloads `file` once over the path of `scenario`, and checks that the same file arrived.
    /// The server is unmodified, and has its own congestion controller.
    ///
    /// # Errors
    ///
    /// [`RunError`] if a step or the download itself failed.
    pub fn download(
        &self,
        scenario: &Scenario,
        seed: u64,
        file: &SourceFile,
        progress: &mut Progress,
    ) -> Result<RunRecord, RunError> {
        let testbed = Testbed::new(self, scenario, seed)?;
        let stored = testbed.store()?.join(DOWNLOAD);
        std::fs::copy(&file.path, stored).map_err(failed("copy the file"))?;
        let arrived = testbed.directory.path().join("arrived");
        let arguments = client_arguments(scenario, &arrived, &testbed.ca());
        let (record, report): (_, ClientReport) = testbed.transfer(
            &Transfer { name: "download", client: "h3-download", arguments, file, arrived },
            seed,
            progress,
        )?;
        let repeats = report.repeats.filter(|_| scenario.sidekick.mode != Mode::Off);
        let sent = record.links.far.to_sender.link.packets;
        let packets = server_packets(sent, record.packets, report.packets);
        Ok(RunRecord { packets, repeats, ..with_report(record, report) })
    }
}

/// The packets of the server, which reports nothing: `sent` is what reached its link. The client
/// reports only the packets that it sent itself, which carry no data. The help acts on these.
fn server_packets(sent: u64, counted: Packets, client: Packets) -> Packets {
    let Packets { lost_early, spurious, .. } = client;
    Packets { sent, lost_early, spurious, ..counted }
}

fn client_arguments(scenario: &Scenario, file: &FilePath, ca: &FilePath) -> Vec<String> {
    let url = format!("https://{RECEIVER}:{SERVER_PORT}/{DOWNLOAD}");
    let (file, ca) = (file.display().to_string(), ca.display().to_string());
    let mut arguments = words(&[&url, "-o", &file, "--cafile", &ca, "--json", "--quiet"]);
    arguments.extend(tune_arguments(&scenario.flow));
    arguments.extend(sidekick_arguments(&scenario.sidekick));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_reports_what_its_help_did() {
        let counted = Packets { lost_near: 4, ..Packets::default() };
        let client = Packets { sent: 9, lost_early: 2, spurious: 1, ..Packets::default() };
        let packets = server_packets(50, counted, client);
        assert_eq!((packets.sent, packets.lost_near), (50, 4));
        assert_eq!((packets.lost_early, packets.spurious), (2, 1));
    }

    #[test]
    fn the_settings_reach_the_client() {
        let mut scenario = Scenario::load("download-paper").unwrap();
        scenario.apply(&["sidekick.mode=receive"]).unwrap();
        let line = "https://10.77.2.2:4433/download -o /f --cafile /ca --json --quiet --tune off --sidekick receive \
                    --proxy 10.77.1.2:5252 --poll on --quack-every-ms 30 --threshold 20";
        assert_eq!(client_arguments(&scenario, "/f".as_ref(), "/ca".as_ref()).join(" "), line);
    }
}
