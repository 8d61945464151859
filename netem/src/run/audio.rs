//! An audio call with the real programs.

use std::net::SocketAddrV4;
use std::path::{Path as FilePath, PathBuf};

use audio::ListenerReport;

use super::{Bench, RunError, TICK, proxy_arguments, sidekick_arguments, watch, words};
use crate::path::Path;
use crate::programs::{Ended, Program};
use crate::progress::Progress;
use crate::record::RunRecord;
use crate::scenario::{Mode, ProxyFate, Scenario};
use crate::topology::RECEIVER;

/// The programs that a call needs.
pub const AUDIO_PROGRAMS: [&str; 3] = ["audio-receive", "audio-send", "sidekick-proxy"];

const PORT: u16 = 5004;
/// How often to look whether the receiver has ended too: it stays for half a second.
const RECEIVER_TICKS: u32 = 40;

/// A call that somebody listens to.
#[derive(Clone, Debug)]
pub struct Sound {
    /// What is said; a tone if there is no WAV file.
    pub wav: Option<PathBuf>,
    /// Where the WAV file goes of what is heard.
    pub heard: PathBuf,
    /// Where the distribution of waits goes (`.hgrm`).
    pub waits: PathBuf,
    /// How long a missing packet may hold up the others, in milliseconds.
    pub playout_limit_ms: u16,
}

/// What came of a call.
#[derive(Clone, Debug)]
pub struct Call {
    /// As of every run.
    pub record: RunRecord,
    /// What the receiver has heard.
    pub listener: ListenerReport,
}

impl Bench<'_> {
    /// Makes the call of `scenario` once over its path, of random bytes if no `sound` is given.
    ///
    /// # Errors
    ///
    /// [`RunError`], also when the call itself failed.
    pub fn call(
        &self,
        scenario: &Scenario,
        seed: u64,
        sound: Option<&Sound>,
        progress: &mut Progress,
    ) -> Result<Call, RunError> {
        let io = |what| move |source| RunError::Io { what, source };
        let directory = tempfile::Builder::new()
            .prefix("run-")
            .tempdir_in(self.directory)
            .map_err(io("make a directory for the run"))?;
        let mut path = Path::build(self.backend, scenario, seed)?;
        let hosts = path.topology();
        let start = |name, arguments: Vec<String>, host| {
            Program::start(self.programs, name, &arguments, host, directory.path())
        };
        // The receiver makes the session: the description, with the key, is there when it says that
        // it is ready.
        let sdp = directory.path().join("call.sdp");
        let listen = SocketAddrV4::new(RECEIVER, PORT).to_string();
        let mut arguments = words(&["--listen", &listen, "--json", "--write-sdp"]);
        arguments.push(sdp.display().to_string());
        arguments.extend(receiver_arguments(sound));
        let mut receiver = start("audio-receive", arguments, &hosts.receiver)?;
        let mut proxy = match (scenario.sidekick.mode, scenario.sidekick.proxy) {
            (Mode::Off, _) | (_, ProxyFate::Absent) => None,
            _ => Some(start("sidekick-proxy", proxy_arguments(), &hosts.proxy)?),
        };
        receiver.wait_until_ready()?;
        if let Some(proxy) = &mut proxy {
            proxy.wait_until_ready()?;
        }
        let sender =
            start("audio-send", sender_arguments(scenario, seed, &sdp, sound), &hosts.sender)?;
        let half =
            (scenario.sidekick.proxy == ProxyFate::Dies).then_some(scenario.flow.total_bytes() / 2);
        let sender = watch(sender, &mut path, progress, |carried| {
            if half.is_some_and(|half| carried >= half) {
                // A guard that is dropped kills its program.
                proxy = None;
            }
        })?;
        if !sender.status.success() {
            return Err(RunError::Call(sender.why()));
        }
        let receiver = ended(receiver)?;
        let links = path.counters()?;
        if let Some(mut proxy) = proxy {
            if let Some(last_words) = proxy.ended().map_err(io("look at sidekick-proxy"))? {
                return Err(RunError::ProxyEnded(last_words));
            }
            proxy.stop();
        }
        let unreadable = |program| move |source| RunError::CallReport { program, source };
        let talker = serde_json::from_str(&sender.output).map_err(unreadable("audio-send"))?;
        // Behind the line that says that it is ready.
        let report = receiver.output.lines().last().unwrap_or_default();
        let listener = serde_json::from_str(report).map_err(unreadable("audio-receive"))?;
        let backend = self.backend.name();
        let record = RunRecord::of_call(scenario, backend, seed, talker, &listener, links, None);
        Ok(Call { record, listener })
    }
}

/// Waits until the receiver, too, has seen that the call is over.
fn ended(mut receiver: Program) -> Result<Ended, RunError> {
    for _ in 0..RECEIVER_TICKS {
        let ended = receiver
            .wait(TICK)
            .map_err(|source| RunError::Io { what: "wait for audio-receive", source })?;
        match ended {
            Some(ended) if ended.status.success() => return Ok(ended),
            Some(ended) => return Err(RunError::Call(ended.why())),
            None => {}
        }
    }
    Err(RunError::Call("audio-receive did not end after the stream".to_owned()))
}

fn receiver_arguments(sound: Option<&Sound>) -> Vec<String> {
    let Some(sound) = sound else { return words(&["--raw"]) };
    let (heard, waits) = (sound.heard.display().to_string(), sound.waits.display().to_string());
    words(&[
        "--wav",
        &heard,
        "--hgrm",
        &waits,
        "--playout-limit-ms",
        &sound.playout_limit_ms.to_string(),
    ])
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
    if sidekick.mode != Mode::Off && sidekick.every_packets.is_none() {
        arguments.extend(words(&["--quack-every-packets", "0"]));
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(settings: &[&str]) -> String {
        let mut scenario = Scenario::load("audio-paper").unwrap();
        scenario.apply(settings).unwrap();
        sender_arguments(&scenario, 3, FilePath::new("call.sdp"), None).join(" ")
    }

    #[test]
    fn the_settings_reach_the_sender() {
        let call = "10.77.2.2:5004 --json --sdp call.sdp --seed 3 --seconds 60 --interval-ms 20 --raw --bytes 240";
        assert_eq!(sender(&[]), format!("{call} --sidekick off"));
        let line = format!(
            "{call} --sidekick reinject --proxy 10.77.1.2:5252 --poll off --quack-every-ms 0 --threshold 8"
        );
        assert_eq!(sender(&["sidekick.mode=reinject"]), format!("{line} --quack-every-packets 2"));
        let by_time =
            ["sidekick.mode=reinject", "sidekick.every_packets=off", "sidekick.every_ms=20"];
        let line = line.replace("--quack-every-ms 0", "--quack-every-ms 20");
        assert_eq!(sender(&by_time), format!("{line} --quack-every-packets 0"));
    }

    #[test]
    fn a_minute_has_three_thousand_packets() {
        assert_eq!(Scenario::load("audio-paper").unwrap().flow.total_bytes(), 3000 * 240);
    }
}
