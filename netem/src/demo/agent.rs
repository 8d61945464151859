//! The demonstration of the agent: unmodified programs without an agent on the sender's host, and
//! with one that puts packets in order. A client on quinn uploads a file and downloads it, and then
//! two programs make a call.

use serde::Serialize;

use super::{Check, DemoError, remarks_of, side_by_side};
use crate::progress::Bars;
use crate::record::{AgentRecord, Audio, RunRecord};
use crate::report::{Column, or_dash, seconds, short_hash, table};
use crate::run::{Bench, Call, PLAYOUT_LIMIT_MS, Sound};
use crate::scenario::{Scenario, ScenarioError};
use crate::source::SourceFile;

const UPLOAD: &str = "upload-paper";
const DOWNLOAD: &str = "download-paper";
const CALL: &str = "audio-paper";
const LOSS_PERCENT: &str = "4";
/// The length of each call, in seconds.
const CALL_SECONDS: &str = "20";
/// The least gain of a transfer: how many times as fast it is with the agent.
const FASTER: f64 = 3.0;
/// The least gain of the call: packets missed without an agent for each packet missed with one.
const FEWER: f64 = 4.0;

/// What runs twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Upload,
    Download,
    Call,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Transfer {
    pub with_agent: bool,
    #[serde(flatten)]
    pub record: RunRecord,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Conversation {
    pub with_agent: bool,
    /// Requests for single packets (NACKs) that the receiver sent.
    pub nacks: u64,
    #[serde(flatten)]
    pub record: RunRecord,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct AgentDemo {
    pub bytes: u64,
    pub sha256: String,
    /// Loss on the near segment, each way.
    pub near_loss_percent: f64,
    /// The uploads: without an agent, and with one. The same below.
    pub uploads: [Transfer; 2],
    pub downloads: [Transfer; 2],
    pub calls: [Conversation; 2],
    /// What the figures show, in sentences.
    pub says: String,
    /// The checks of the uploads, the downloads and the calls.
    pub checks: [Check; 3],
    pub passed: bool,
}

/// Uploads `file` twice, downloads it twice, and makes two calls.
pub(crate) fn run(bench: &Bench<'_>, file: &SourceFile, seed: u64) -> Result<AgentDemo, DemoError> {
    let bars = Bars::default();
    let transfers = |what| both(|with_agent| transfer(bench, what, file, seed, with_agent, &bars));
    let (uploads, downloads) = (transfers(What::Upload)?, transfers(What::Download)?);
    // A call's delays are measured while no transfer loads this machine.
    let calls = both(|with_agent| call(bench, seed, with_agent, &bars))?;
    AgentDemo::of(file, uploads, downloads, calls)
}

/// A run without an agent, and beside it the same with one.
fn both<T: Send>(run: impl Fn(bool) -> Result<T, DemoError> + Sync) -> Result<[T; 2], DemoError> {
    let done = side_by_side(&[false, true], |with_agent| run(*with_agent))?;
    Ok(done.try_into().unwrap_or_else(|_| unreachable!("each of the two jobs has a result")))
}

impl What {
    /// A scenario whose programs use no Sidekick.
    fn scenario(self, with_agent: bool) -> Result<Scenario, ScenarioError> {
        let name = match self {
            Self::Upload => UPLOAD,
            Self::Download => DOWNLOAD,
            Self::Call => CALL,
        };
        let loss = format!("near.loss_percent={LOSS_PERCENT}");
        let mode = if with_agent { "sidekick.mode=agent-in-order" } else { "sidekick.mode=off" };
        Scenario::with(name, &[loss.as_str(), mode])
    }

    fn words(self) -> &'static str {
        match self {
            Self::Upload => "upload by quinn",
            Self::Download => "download by quinn",
            Self::Call => "call",
        }
    }

    /// The name of a run in the progress display.
    fn name(self, with_agent: bool) -> String {
        let how = if with_agent { "with the agent" } else { "without an agent" };
        format!("{}, {how}", self.words())
    }
}

fn transfer(
    bench: &Bench<'_>,
    what: What,
    file: &SourceFile,
    seed: u64,
    with_agent: bool,
    bars: &Bars,
) -> Result<Transfer, DemoError> {
    let scenario = what.scenario(with_agent)?;
    let progress = bars.begin(what.name(with_agent), file.bytes);
    let record = bench
        .quinn_transfer(&scenario, seed, file, progress)
        .map_err(|source| DemoError::Run { who: what.words(), source })?;
    Ok(Transfer { with_agent, record })
}

fn call(
    bench: &Bench<'_>,
    seed: u64,
    with_agent: bool,
    bars: &Bars,
) -> Result<Conversation, DemoError> {
    let mut scenario = What::Call.scenario(with_agent)?;
    scenario.set("flow.seconds", CALL_SECONDS)?;
    let sound = Sound::within(bench.directory, &format!("call-{with_agent}"), None);
    let progress = bars.begin(What::Call.name(with_agent), scenario.flow.total_bytes());
    let Call { record, listener } = bench
        .call(&scenario, seed, Some(&sound), progress)
        .map_err(|source| DemoError::Run { who: What::Call.words(), source })?;
    Ok(Conversation { with_agent, nacks: listener.nacks.packets, record })
}

impl AgentDemo {
    fn of(
        file: &SourceFile,
        uploads: [Transfer; 2],
        downloads: [Transfer; 2],
        calls: [Conversation; 2],
    ) -> Result<Self, DemoError> {
        let [missed, still_missed] = calls.each_ref().map(Conversation::missed);
        // If the call misses no packet with the agent, the ratio counts one.
        let fewer = missed as f64 / still_missed.max(1) as f64;
        let of_transfers = |what: &str, transfers: &[Transfer; 2]| {
            let [plain, helped] = transfers.each_ref().map(Transfer::goodput);
            let whole = transfers.iter().all(|Transfer { record, .. }| {
                record.sha256 == file.sha256 && record.bytes == file.bytes
            });
            let claim = format!("with the agent the {what} is at least {FASTER} times as fast");
            Check::of(claim, FASTER, helped / plain, whole)
        };
        let of_calls =
            format!("without an agent the call misses at least {FEWER} times as many packets");
        let checks = [
            of_transfers("upload", &uploads),
            of_transfers("download", &downloads),
            Check::of(of_calls, FEWER, fewer, true),
        ];
        let [[slow_up, up], [slow_down, down]] =
            [&uploads, &downloads].map(|both| both.each_ref().map(Transfer::goodput));
        let says = format!(
            "The agent sends again what was lost on its way to the proxy, and fetches copies of \
             what was lost on its way back. Both arrive in order, so neither end of a transfer \
             slows down: quinn uploads {up:.2} Mbit/s, not {slow_up:.2}, and downloads \
             {down:.2}, not {slow_down:.2}. The call misses {still_missed} packets, not {missed}."
        );
        Ok(Self {
            bytes: file.bytes,
            sha256: file.sha256.clone(),
            near_loss_percent: What::Upload.scenario(false)?.near.both.loss.get(),
            passed: checks.iter().all(|check| check.passed),
            uploads,
            downloads,
            calls,
            says,
            checks,
        })
    }
}

impl Transfer {
    fn goodput(&self) -> f64 {
        self.record.goodput_mbit_s
    }
}

impl Conversation {
    fn audio(&self) -> Audio {
        self.record.audio.unwrap_or_default()
    }

    /// Packets that arrived too late to be played, or never.
    fn missed(&self) -> u64 {
        self.audio().late
    }
}

/// A figure of an agent; a dash if none ran.
fn of_agent(record: &RunRecord, figure: fn(AgentRecord) -> u64) -> String {
    or_dash(record.agent.map(figure))
}

const UPLOADS: [Column<Transfer>; 7] = [
    ("upload: time", |run| seconds(run.record.time_s)),
    ("Mbit/s", |run| format!("{:.2}", run.record.goodput_mbit_s)),
    ("packets sent", |run| run.record.packets.sent.to_string()),
    ("lost near", |run| run.record.packets.lost_near.to_string()),
    ("sent again by the agent", |run| of_agent(&run.record, |agent| agent.resent)),
    ("losses that quinn detected", |run| or_dash(run.record.packets.lost_end_to_end)),
    ("SHA-256", |run| short_hash(&run.record.sha256)),
];

const DOWNLOADS: [Column<Transfer>; 6] = [
    ("download: time", |run| seconds(run.record.time_s)),
    ("Mbit/s", |run| format!("{:.2}", run.record.goodput_mbit_s)),
    ("packets sent", |run| run.record.packets.sent.to_string()),
    ("lost near", |run| run.record.packets.lost_near.to_string()),
    ("copies by the agent", |run| of_agent(&run.record, |agent| agent.delivered)),
    ("SHA-256", |run| short_hash(&run.record.sha256)),
];

const CALLS: [Column<Conversation>; 6] = [
    ("call: packets played", |run| run.audio().played.to_string()),
    ("packets missed", |run| run.missed().to_string()),
    ("NACKs", |run| run.nacks.to_string()),
    ("p99 de-jitter delay", |run| format!("{:.1} ms", run.audio().dejitter_ms.p99)),
    ("lost near", |run| run.record.packets.lost_near.to_string()),
    ("sent again by the agent", |run| of_agent(&run.record, |agent| agent.resent)),
];

/// A row for each figure: its name, its value without an agent, and its value with one.
fn beside<T>(figures: &[Column<T>], [plain, helped]: &[T; 2]) -> Vec<Vec<String>> {
    figures
        .iter()
        .map(|(name, figure)| vec![(*name).to_owned(), figure(plain), figure(helped)])
        .collect()
}

/// The table, and the sentences below it.
pub(crate) fn print(demo: &AgentDemo) -> String {
    let AgentDemo { bytes, near_loss_percent, uploads, downloads, calls, says, checks, .. } = demo;
    let rows = [beside(&UPLOADS, uploads), beside(&DOWNLOADS, downloads), beside(&CALLS, calls)];
    let table = table(&["", "without an agent", "with the agent"], rows.concat(), 1);
    let mut text = format!(
        "\n{bytes} bytes uploaded and downloaded by quinn, and a call of {CALL_SECONDS} s, which \
         waits {PLAYOUT_LIMIT_MS} ms at most for a packet; {near_loss_percent} % loss each way on \
         the near segment\n{table}\n{says}\n"
    );
    let transfers = [(What::Upload, uploads), (What::Download, downloads)];
    let transfers = transfers
        .iter()
        .flat_map(|(what, both)| both.iter().map(|run| (*what, run.with_agent, &run.record)));
    let calls = calls.iter().map(|run| (What::Call, run.with_agent, &run.record));
    for (what, with_agent, record) in transfers.chain(calls) {
        let name = what.name(with_agent);
        if record.agent.is_some_and(|agent| agent.flows_assisted == 0) {
            text += &format!("{name}: the agent found no proxy\n");
        }
        text += &remarks_of(&name, record);
    }
    checks.iter().for_each(|check| text += &check.to_string());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::tests::file;
    use crate::record::{Packets, Percentiles};

    fn transfer(goodput_mbit_s: f64, agent: Option<AgentRecord>) -> Transfer {
        let (bytes, sha256) = (file().bytes, file().sha256);
        let lost_end_to_end = Some(if agent.is_some() { 12 } else { 40 });
        let packets = Packets { lost_end_to_end, ..Packets::default() };
        let record =
            RunRecord { bytes, goodput_mbit_s, sha256, agent, packets, ..RunRecord::default() };
        Transfer { with_agent: agent.is_some(), record }
    }

    fn call(late: u64, agent: Option<AgentRecord>) -> Conversation {
        let dejitter_ms = Percentiles { p99: 40.25, ..Percentiles::default() };
        let audio = Audio { late, played: 1000 - late, dejitter_ms, ..Audio::default() };
        let record = RunRecord { audio: Some(audio), agent, ..RunRecord::default() };
        Conversation { with_agent: agent.is_some(), nacks: 7 * late, record }
    }

    const AGENT: AgentRecord = AgentRecord {
        flows_assisted: 1,
        sent: 900,
        lost: 38,
        resent: 37,
        resent_bytes: 9000,
        withheld_congested: 0,
        withheld_far: 0,
        withheld_late: 1,
        delivered: 35,
    };

    fn demo(goodputs: [f64; 2], missed: [u64; 2], agent: AgentRecord) -> AgentDemo {
        let uploads = [transfer(goodputs[0], None), transfer(goodputs[1], Some(agent))];
        let downloads = [transfer(1.0, None), transfer(4.0, Some(agent))];
        let calls = [call(missed[0], None), call(missed[1], Some(agent))];
        AgentDemo::of(&file(), uploads, downloads, calls).unwrap()
    }

    #[test]
    fn the_checks_pass_at_their_bounds_and_not_below() {
        for (goodputs, missed, passed) in [
            ([1.0, 3.0], [40, 10], [true, true, true]),
            ([1.0, 2.99], [40, 11], [false, true, false]),
            ([0.0, 9.0], [4, 0], [true, true, true]),
            ([1.0, 9.0], [3, 0], [true, true, false]),
            ([0.0, 0.0], [0, 0], [false, true, false]),
        ] {
            let demo = demo(goodputs, missed, AGENT);
            assert_eq!(demo.checks.each_ref().map(|check| check.passed), passed, "{demo:?}");
            assert_eq!(demo.passed, passed == [true; 3], "{demo:?}");
        }
    }

    #[test]
    fn a_file_that_differs_fails_the_check() {
        let uploads = [transfer(1.0, None), transfer(9.0, Some(AGENT))];
        let mut downloads = uploads.clone();
        downloads[0].record.sha256 = "cd".to_owned();
        let calls = [call(40, None), call(0, Some(AGENT))];
        let demo = AgentDemo::of(&file(), uploads, downloads, calls).unwrap();
        assert_eq!(demo.checks.each_ref().map(|check| check.passed), [true, false, true]);
    }

    #[test]
    fn the_figures_stand_beside_each_other_and_in_the_sentence() {
        let text = print(&demo([1.25, 8.75], [39, 2], AGENT));
        let row = |name: &str| {
            let line = text.lines().find(|line| line.contains(name)).unwrap();
            let entries = line.split(['│', '┆']).map(str::trim);
            entries.filter(|entry| !entry.is_empty()).skip(1).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(row("Mbit/s"), "1.25 8.75");
        assert_eq!(row("quinn detected"), "40 12");
        assert_eq!(row("packets missed"), "39 2");
        assert_eq!(row("NACKs"), "273 14");
        assert_eq!(row("p99 de-jitter"), "40.2 ms 40.2 ms");
        assert_eq!(row("sent again by the agent"), "- 37");
        assert_eq!(row("copies by the agent"), "- 35");
        for words in [
            "uploads 8.75 Mbit/s, not 1.25, and downloads 4.00, not 1.00",
            "misses 2 packets, not 39",
            "as fast: 7.00 times, passed",
            "packets: 19.50 times, passed",
            "4 % loss each way",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("found no proxy"), "{text}");
    }

    #[test]
    fn the_text_reports_an_agent_without_a_proxy() {
        let text = print(&demo([1.0, 1.0], [40, 40], AgentRecord::default()));
        assert!(text.contains("call, with the agent: the agent found no proxy"), "{text}");
        assert!(text.contains("1.00 times, FAILED"), "{text}");
    }
}
