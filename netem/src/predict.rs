//! `sidekick-lab predict`: what help does over a recorded link.
//!
//! The near segment of a path replays the recording. Each flow runs alone, and with each kind of
//! help, with the same seeds. A seed is another beginning within the recording.

use std::time::Duration;

use serde::Serialize;
use sidekick_proxy::Summary;

use crate::figures::job::Outcome;
use crate::figures::quantity;
use crate::record::RunRecord;
use crate::report::{self, Column};
use crate::scenario::{Scenario, ScenarioError};
use crate::units::BitRate;

/// The least rate of the near segment, in Mbit/s.
const LEAST_MBIT: f64 = 1.0;
/// The size of a transfer.
const TRANSFER: &[&str] = &["flow.bytes=5000000"];
/// The length of a call, and when a packet is late: as in the demonstration of a call.
const CALL: &[&str] = &["flow.seconds=30", "flow.playout_ms=40"];

/// A flow, and the scenario that it changes.
#[derive(Clone, Copy, Debug)]
struct FlowOf {
    name: &'static str,
    scenario: &'static str,
    settings: &'static [&'static str],
    is_call: bool,
    senders: &'static [Sender],
}

/// A controller and a kind of help, with the settings that choose them.
#[derive(Clone, Copy, Debug)]
struct Sender {
    controller: &'static str,
    help: &'static str,
    settings: &'static [&'static str],
}

const fn sender(
    controller: &'static str,
    help: &'static str,
    settings: &'static [&'static str],
) -> Sender {
    Sender { controller, help, settings }
}

const ALONE: &str = "alone";
const LINKED: &str = "linked";
const AGENT: &str = "agent";
const IN_ORDER: &str = "agent, in order";

const UPLOAD: FlowOf = FlowOf {
    name: "upload",
    scenario: "upload-paper",
    settings: TRANSFER,
    is_call: false,
    senders: &[
        sender("CUBIC", ALONE, &["sidekick.mode=off", "flow.cc=cubic"]),
        sender("CUBIC", AGENT, &["sidekick.mode=agent", "flow.cc=cubic"]),
        sender("BBR2", ALONE, &["sidekick.mode=off", "flow.cc=bbr2"]),
        sender("BBR2", LINKED, &["sidekick.mode=auto"]),
        sender("BBR2", AGENT, &["sidekick.mode=agent", "flow.cc=bbr2"]),
    ],
};
const DOWNLOAD: FlowOf = FlowOf {
    name: "download",
    scenario: "download-paper",
    settings: TRANSFER,
    is_call: false,
    senders: &[
        sender("CUBIC", ALONE, &["sidekick.mode=off", "flow.cc=cubic"]),
        sender("CUBIC", LINKED, &["sidekick.mode=auto", "flow.cc=cubic"]),
        sender("CUBIC", AGENT, &["sidekick.mode=agent", "flow.cc=cubic"]),
        sender("CUBIC", IN_ORDER, &["sidekick.mode=agent-in-order", "flow.cc=cubic"]),
        sender("BBR2", ALONE, &["sidekick.mode=off", "flow.cc=bbr2"]),
        sender("BBR2", LINKED, &["sidekick.mode=auto", "flow.cc=bbr2"]),
        sender("BBR2", AGENT, &["sidekick.mode=agent", "flow.cc=bbr2"]),
        sender("BBR2", IN_ORDER, &["sidekick.mode=agent-in-order", "flow.cc=bbr2"]),
    ],
};
const TALK: FlowOf = FlowOf {
    name: "call, you talk",
    scenario: "audio-paper",
    settings: CALL,
    is_call: true,
    senders: &[
        sender("-", ALONE, &["sidekick.mode=off"]),
        // A quACK when a packet does not arrive: the quickest repair for the fewest bytes.
        sender(
            "-",
            LINKED,
            &[
                "sidekick.mode=reinject",
                "sidekick.poll=on",
                "sidekick.steady=on",
                "sidekick.every_packets=1",
                "sidekick.threshold=1",
            ],
        ),
        sender("-", AGENT, &["sidekick.mode=agent"]),
    ],
};
const LISTEN: FlowOf = FlowOf {
    name: "call, you listen",
    scenario: "audio-far-proxy",
    settings: CALL,
    is_call: true,
    senders: &[
        sender("-", ALONE, &["sidekick.mode=off"]),
        sender("-", LINKED, &["sidekick.mode=receive"]),
        sender("-", AGENT, &["sidekick.mode=agent"]),
        sender("-", IN_ORDER, &["sidekick.mode=agent-in-order"]),
    ],
};
const FLOWS: [FlowOf; 4] = [UPLOAD, DOWNLOAD, TALK, LISTEN];

/// The path of a prediction.
#[derive(Clone, Debug)]
pub(crate) struct Prediction {
    /// The file of the recording.
    pub file: String,
    pub summary: Summary,
    /// The user's settings, which replace those of the prediction.
    pub set: Vec<String>,
}

/// A flow with one kind of help, ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    flow: FlowOf,
    sender: Sender,
    pub scenario: Scenario,
    settings: Vec<String>,
}

/// A run of a planned flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run<'a> {
    pub planned: &'a Planned,
    pub seed: u64,
}

/// The figures of a flow with one kind of help.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    pub flow: &'static str,
    /// The congestion controller of the data's sender.
    pub controller: &'static str,
    /// The help that the client has.
    pub help: &'static str,
    pub runs: u64,
    /// Runs that failed, such as by a timeout. They count as a goodput of 0, or as a call of which
    /// nothing arrived.
    pub failed: u64,
    /// Of a transfer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_mbit_s: Option<Spread>,
    /// Of a call: packets that arrived too late to be played, or never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_percent: Option<Spread>,
    /// The command line that repeats all runs.
    pub command: String,
}

/// A figure over all runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Prediction {
    /// Whether the user sets one of these settings.
    fn sets(&self, settings: &[&str]) -> bool {
        let names = || self.set.iter().filter_map(|set| Some(set.split_once('=')?.0.trim()));
        names().any(|name| settings.contains(&name))
    }

    /// Whether the recorded rate stands for that of the link.
    pub(crate) fn guesses_the_rate(&self) -> bool {
        let sets_each = self.sets(&["near.rate_to_mbit"]) && self.sets(&["near.rate_from_mbit"]);
        !sets_each && !self.sets(&["near.rate_mbit", "near.trace"])
    }

    /// Whether the path lacks a delay, because no round trip was recorded and the user sets none.
    pub(crate) fn lacks_a_delay(&self) -> bool {
        self.summary.near_rtt_ms.is_none() && !self.sets(&["near.delay_ms"])
    }

    /// The settings of the near segment that follow from the recording.
    fn of_the_recording(&self) -> Vec<String> {
        let mut settings = vec!["near.loss_percent=0".to_owned()];
        if let Some(rtt) = self.summary.near_rtt_ms {
            settings.push(format!("near.delay_ms={}", thousandths(rtt.least / 2.0)));
        }
        let rate = if self.sets(&["near.trace"]) {
            "unlimited".to_owned()
        } else {
            let [up, down] = [&self.summary.up, &self.summary.down].map(|way| way.peak_mbit_s);
            thousandths(up.max(down).max(LEAST_MBIT))
        };
        settings.push(format!("near.rate_mbit={rate}"));
        settings
    }

    /// Every flow with each kind of help.
    ///
    /// # Errors
    ///
    /// [`ScenarioError`] if the user's settings do not fit.
    pub(crate) fn plan(&self) -> Result<Vec<Planned>, ScenarioError> {
        let mut planned = Vec::new();
        let mut recorded = Scenario::default();
        recorded.set("near.replay", &self.file)?;
        for flow in FLOWS {
            let mut settings = self.of_the_recording();
            settings.extend(crate::words(flow.settings));
            let mut base = Scenario::with(flow.scenario, &settings)?;
            // Read once for all flows, because it may be long.
            base.near.replay.clone_from(&recorded.near.replay);
            settings.push(format!("near.replay={}", self.file));
            for sender in flow.senders {
                let mut changes = crate::words(sender.settings);
                changes.extend(self.set.iter().cloned());
                let mut scenario = base.clone();
                scenario.apply(&changes)?;
                let settings = [settings.clone(), changes].concat();
                planned.push(Planned { flow, sender: *sender, scenario, settings });
            }
        }
        Ok(planned)
    }

    /// What the figures assume, in sentences.
    pub(crate) fn assumptions(&self, planned: &[Planned], runs: u64) -> String {
        let Some(Planned { scenario, .. }) = planned.first() else { return String::new() };
        let rate = |rate: Option<BitRate>| {
            rate.map_or_else(|| "no limit".to_owned(), |rate| rate.to_string())
        };
        let (near, far) = (&scenario.near.both, &scenario.far.both);
        let ms = |delay: Duration| thousandths(delay.as_secs_f64() * 1e3);
        let near_rate = match self.guesses_the_rate() {
            true => format!("{} each way", rate(near.rate)),
            false => "the rate that you set".to_owned(),
        };
        let mut text = format!(
            "\nThe path: to the proxy this link, {} ms and {near_rate}; behind it {} ms and {}.\n",
            ms(near.delay),
            ms(far.delay),
            rate(far.rate),
        );
        if self.guesses_the_rate() {
            text += "The rate is the most that was recorded in either direction. The link may be \
                     faster:\nset its own by --set near.rate_mbit=N, and what is behind the proxy \
                     by far.rate_mbit\nand far.delay_ms.\n";
        }
        if self.summary.change.is_some() {
            text += "The link changed during the recording, so do not trust the spread of the \
                     runs.\nRecord it again, for longer.\n";
        }
        if let Some(call) = planned.iter().find(|it| it.flow.is_call) {
            let ms = ms(call.scenario.flow.playout);
            text += &format!("A packet of a call is late if it is missing for {ms} ms.\n");
        }
        text + &match runs {
            1 => "One run of each; --runs N shows the spread.\n".to_owned(),
            _ => format!("{runs} runs of each: the median (the least to the most).\n"),
        }
    }
}

/// A number with three decimals at most.
fn thousandths(number: f64) -> String {
    ((number * 1e3).round() / 1e3).to_string()
}

/// Every run: all seeds from 1 on of each planned flow.
pub(crate) fn runs(planned: &[Planned], runs: u64) -> Vec<Run<'_>> {
    planned.iter().flat_map(|planned| (1..=runs).map(move |seed| Run { planned, seed })).collect()
}

impl Run<'_> {
    /// The command line that repeats it.
    pub(crate) fn command(&self) -> String {
        format!("{} --seed {}", self.planned.command(), self.seed)
    }
}

impl Planned {
    fn command(&self) -> String {
        let set = self.settings.iter().map(|setting| format!(" --set '{setting}'"));
        format!("sidekick-lab run {}{}", self.flow.scenario, set.collect::<String>())
    }

    /// The figures of its runs.
    fn row(&self, outcomes: &[Outcome]) -> Row {
        let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count() as u64;
        let spread = |figure: fn(&RunRecord) -> f64, of_failed| {
            let figures = outcomes.iter().map(|it| it.as_ref().map_or(of_failed, figure));
            let summary = quantity::Summary::of(figures)?;
            let quantity::Summary { median, least, most, .. } = summary;
            Some(Spread { median, least, most })
        };
        let Self { flow: FlowOf { name, is_call, .. }, sender, .. } = self;
        let runs = outcomes.len() as u64;
        Row {
            flow: name,
            controller: sender.controller,
            help: sender.help,
            runs,
            failed,
            goodput_mbit_s: spread(|it| it.goodput_mbit_s, 0.0).filter(|_| !is_call),
            late_percent: spread(late_percent, 100.0).filter(|_| *is_call),
            command: format!("{} --runs {runs}", self.command()),
        }
    }
}

/// The packets of a call that arrived too late to be played, or never.
fn late_percent(record: &RunRecord) -> f64 {
    let audio = record.audio.unwrap_or_default();
    100.0 * audio.late as f64 / (audio.late + audio.played).max(1) as f64
}

/// A row for each planned flow, from the outcomes of all [`runs`] in their order.
pub(crate) fn rows(planned: &[Planned], outcomes: &[Outcome]) -> Vec<Row> {
    let each = outcomes.len() / planned.len().max(1);
    planned.iter().zip(outcomes.chunks(each.max(1))).map(|(it, of)| it.row(of)).collect()
}

const COLUMNS: [Column<Row>; 5] = [
    ("flow", |row| row.flow.to_owned()),
    ("controller", |row| row.controller.to_owned()),
    ("help", |row| row.help.to_owned()),
    ("Mbit/s", |row| report::or_dash(row.goodput_mbit_s.map(|it| it.text(2)))),
    ("late or lost, %", |row| report::or_dash(row.late_percent.map(|it| it.text(1)))),
];

/// The rows as a table.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = format!("{}\n", report::table_of(&COLUMNS, rows, 3));
    let failed: u64 = rows.iter().map(|row| row.failed).sum();
    if failed > 0 {
        text += &format!(
            "{failed} runs failed, and count as 0 Mbit/s or as 100 % lost: a connection may time \
             out.\n"
        );
    }
    text
}

impl Spread {
    fn text(self, decimals: usize) -> String {
        let Self { median, least, most } = self;
        quantity::Summary { median, least, most, runs: 0 }.text(decimals)
    }
}

#[cfg(test)]
mod tests;
