//! An audio call with the real programs.

use std::net::SocketAddrV4;
use std::path::{Path as FilePath, PathBuf};
use std::time::Duration;

use audio::ListenerReport;

use super::{Bench, Finished, PROXY, RunError, Testbed, failed, report, sidekick_arguments};
use crate::programs::{Ended, Program};
use crate::progress::Progress;
use crate::record::RunRecord;
use crate::report::outcome;
use crate::scenario::{Flow, Mode, Scenario};
use crate::topology::RECEIVER;
use crate::words;

/// The programs that a call needs.
pub(crate) const AUDIO_PROGRAMS: [&str; 3] = ["audio-receive", "audio-send", PROXY];

/// With sound, the player waits at most this long for a missing packet. The path's round trip is
/// 52 ms.
pub(crate) const PLAYOUT_LIMIT_MS: u16 = 40;

const PORT: u16 = 5004;
/// The longest time that the receiver may take to end after the sender: it stays for half a second,
/// and on a busy machine may get no processor for a while.
const RECEIVER_ENDS_WITHIN: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(crate) struct Sound {
    /// The WAV file to send; a tone if `None`.
    pub wav: Option<PathBuf>,
    /// The path of the WAV file with what the listener hears.
    pub heard: PathBuf,
    /// The path of the distribution of waits (`.hgrm`).
    pub waits: PathBuf,
}

impl Sound {
    /// A call of `wav` or a tone, with the listener's files under this name in a directory.
    pub(crate) fn within(directory: &FilePath, name: &str, wav: Option<&FilePath>) -> Self {
        let file = |kind| directory.join(name).with_extension(kind);
        Self { wav: wav.map(FilePath::to_owned), heard: file("wav"), waits: file("hgrm") }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub record: RunRecord,
    pub listener: ListenerReport,
}

impl Bench<'_> {
    /// Makes the call of `scenario` once over its path. Without `sound` it carries random bytes.
    pub(crate) fn call(
        &self,
        scenario: &Scenario,
        seed: u64,
        sound: Option<&Sound>,
        mut progress: Progress,
    ) -> Result<Call, RunError> {
        let mut testbed = Testbed::new(self, scenario, seed)?;
        // The receiver makes the session. When it reports that it is ready, it has written the
        // description with the key.
        let sdp = testbed.directory.path().join("call.sdp");
        let listen = SocketAddrV4::new(RECEIVER, PORT).to_string();
        let mut arguments =
            words(&["--listen", &listen, "--json", "--write-sdp", &sdp.display().to_string()]);
        arguments.extend(receiver_arguments(&scenario.flow, sound));
        let receiver = testbed.start_receiver("audio-receive", &arguments)?;
        let arguments = sender_arguments(scenario, seed, &sdp, sound);
        let bytes = scenario.flow.total_bytes();
        let sender = testbed.run_sender("audio-send", &arguments, bytes, &mut progress)?;
        if !sender.status.success() {
            return Err(call_failed(&sender.why()));
        }
        let receiver = ended(receiver)?;
        let Finished { links, agent, trace } = testbed.finish()?;
        let talker = report("audio-send", &sender.output)?;
        // The report follows the line `ready`.
        let last = receiver.output.lines().last().unwrap_or_default();
        let listener = report("audio-receive", last)?;
        let backend = self.backend.name();
        let mut record =
            RunRecord::of_call(scenario, backend, seed, talker, &listener, links, None);
        record.add_agent(agent, trace);
        progress.end(&outcome(&record));
        Ok(Call { record, listener })
    }
}

/// Waits until the receiver has also detected the end of the call.
fn ended(mut receiver: Program) -> Result<Ended, RunError> {
    match receiver.wait(RECEIVER_ENDS_WITHIN).map_err(failed("wait for audio-receive"))? {
        Some(ended) if ended.status.success() => Ok(ended),
        Some(ended) => Err(call_failed(&ended.why())),
        None => Err(call_failed("audio-receive did not end after the call")),
    }
}

fn call_failed(why: &str) -> RunError {
    RunError::Failed(format!("the call failed: {why}"))
}

fn receiver_arguments(flow: &Flow, sound: Option<&Sound>) -> Vec<String> {
    let Some(sound) = sound else {
        let limit = flow.playout.as_millis().to_string();
        return words(&["--raw", "--playout-limit-ms", &limit]);
    };
    let (heard, waits) = (sound.heard.display().to_string(), sound.waits.display().to_string());
    words(&["--wav", &heard, "--hgrm", &waits, "--playout-limit-ms", &PLAYOUT_LIMIT_MS.to_string()])
}

fn sender_arguments(
    scenario: &Scenario,
    seed: u64,
    sdp: &FilePath,
    sound: Option<&Sound>,
) -> Vec<String> {
    let Scenario { flow, sidekick, .. } = scenario;
    let dest = SocketAddrV4::new(RECEIVER, PORT).to_string();
    let (seconds, interval) = (flow.length().as_secs_f64(), flow.frame_interval.as_millis());
    let (bytes, seed) = (flow.frame_bytes.to_string(), seed.to_string());
    let mut arguments = words(&[&dest, "--json", "--sdp", &sdp.display().to_string()]);
    arguments.extend(words(&["--seed", &seed, "--seconds", &seconds.to_string()]));
    arguments.extend(words(&["--interval-ms", &interval.to_string()]));
    match sound {
        None => arguments.extend(words(&["--raw", "--bytes", &bytes])),
        Some(Sound { wav: Some(wav), .. }) => {
            arguments.extend(words(&["--wav", &wav.display().to_string()]));
        }
        Some(_) => {}
    }
    arguments.extend(sidekick_arguments(sidekick));
    if sidekick.mode != Mode::Off {
        let steady = if sidekick.steady { "on" } else { "off" };
        arguments.extend(words(&["--steady", steady]));
    }
    if sidekick.mode != Mode::Off && sidekick.every_packets.is_none() {
        arguments.extend(words(&["--quack-every-packets", "0"]));
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(settings: &[&str]) -> String {
        let scenario = Scenario::with("audio-paper", settings).unwrap();
        sender_arguments(&scenario, 3, FilePath::new("call.sdp"), None).join(" ")
    }

    #[test]
    fn the_settings_reach_the_sender() {
        let call = "10.77.2.2:5004 --json --sdp call.sdp --seed 3 --seconds 60 --interval-ms 20 --raw --bytes 240";
        assert_eq!(sender(&[]), format!("{call} --sidekick off"));
        let line = format!(
            "{call} --sidekick reinject --proxy 10.77.1.2:5252 --poll off --quack-every-ms 0 --threshold 8"
        );
        let packets = "--quack-every-packets 2";
        let call = ["sidekick.mode=reinject"];
        assert_eq!(sender(&call), format!("{line} {packets} --steady off"));
        let call = ["sidekick.mode=reinject", "sidekick.steady=on"];
        assert_eq!(sender(&call), format!("{line} {packets} --steady on"));
        let by_time =
            ["sidekick.mode=reinject", "sidekick.every_packets=off", "sidekick.every_ms=20"];
        let line = line.replace("--quack-every-ms 0", "--quack-every-ms 20");
        assert_eq!(sender(&by_time), format!("{line} --steady off --quack-every-packets 0"));
    }

    #[test]
    fn a_minute_has_three_thousand_packets() {
        assert_eq!(Scenario::load("audio-paper").unwrap().flow.total_bytes(), 3000 * 240);
    }
}
