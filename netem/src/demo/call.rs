//! The demonstration of a call: the same sound over the same path, end to end and with a Sidekick.
//! The user can listen to both.

use std::path::{Path, PathBuf};

use audio::quality::Quality;
use serde::Serialize;

use super::DemoError;
use super::lanes::side_by_side;
use super::waits::{self, Waits};
use crate::files::{self, FileError};
use crate::progress::Bars;
use crate::record::{Audio, RunRecord};
use crate::report::{Column, or_dash, outcome, remarks, table_of};
use crate::run::{Bench, Call, Sound};
use crate::scenario::Scenario;

const SCENARIO: &str = "audio-paper";
/// The player waits at most this long for a missing packet. The path's round trip is 52 ms.
pub const PLAYOUT_LIMIT_MS: u16 = 40;
/// The least gain: frames that are late end to end for each late frame with Sidekick.
const FEWER: u64 = 4;

/// The calls to compare: a name, a name for files, and the settings.
const CALLERS: [(&str, &str, &[&str]); 2] = [
    ("end to end", "end-to-end", &["sidekick.mode=off"]),
    (
        "Sidekick",
        "sidekick",
        &[
            "sidekick.mode=reinject",
            "sidekick.every_packets=1",
            "sidekick.poll=on",
            "sidekick.threshold=1",
        ],
    ),
];

/// One of the calls.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The name of the call.
    pub caller: &'static str,
    /// The WAV file of what the listener heard.
    pub wav: PathBuf,
    /// The distribution of the waits, for HdrHistogram's plotter.
    pub hgrm: PathBuf,
    /// Frames for which the player played a substitute.
    pub concealed: Option<u64>,
    /// The estimated quality of the sound.
    pub quality: Option<Quality>,
    /// The record, as for every run.
    #[serde(flatten)]
    pub record: RunRecord,
}

/// Both calls.
#[derive(Clone, Debug, Serialize)]
pub struct CallDemo {
    /// The calls: end to end, and with Sidekick.
    pub calls: Vec<Row>,
    /// The plot of their waits.
    pub plot: PathBuf,
    /// Whether the check passed.
    pub passed: bool,
}

/// Makes both calls, each of `seconds`, with the sound of `wav` or a tone. Writes to `directory`
/// what the receivers heard.
///
/// # Errors
///
/// [`DemoError`]. A failed check is no error: the result shows it.
pub fn run(
    bench: &Bench<'_>,
    directory: &Path,
    wav: Option<&Path>,
    seconds: u32,
    seed: u64,
) -> Result<CallDemo, DemoError> {
    std::fs::create_dir_all(directory).map_err(FileError::io("make the directory", directory))?;
    let bars = Bars::default();
    let done = side_by_side(&CALLERS, |&(caller, name, settings)| {
        let mut scenario = Scenario::load(SCENARIO)?;
        scenario.apply(settings)?;
        scenario.set("flow.seconds", &seconds.to_string())?;
        scenario.check()?;
        // A finished sound moves to its place. So an interrupted demonstration leaves no partial
        // file.
        let sound = Sound {
            wav: wav.map(Path::to_owned),
            heard: bench.directory.join(name).with_extension("wav"),
            waits: bench.directory.join(name).with_extension("hgrm"),
            playout_limit_ms: PLAYOUT_LIMIT_MS,
        };
        let mut progress = bars.begin(caller, scenario.flow.total_bytes());
        let Call { record, listener } = bench
            .call(&scenario, seed, Some(&sound), &mut progress)
            .map_err(|source| DemoError::Run { who: caller, source })?;
        progress.end(&outcome(&record));
        let curve = Waits::of(caller, &files::read(&sound.waits)?);
        let [wav, hgrm] = ["wav", "hgrm"].map(|kind| directory.join(name).with_extension(kind));
        for (from, to) in [(&sound.heard, &wav), (&sound.waits, &hgrm)] {
            std::fs::copy(from, to).map_err(FileError::io("write", to))?;
        }
        let (concealed, quality) = (listener.concealed, listener.quality);
        Ok((Row { caller, wav, hgrm, concealed, quality, record }, curve))
    })?;
    let (calls, curves): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    let plot = directory.join("waits.svg");
    std::fs::write(&plot, waits::draw(&curves)?).map_err(FileError::io("write", &plot))?;
    let passed = passed(&calls);
    Ok(CallDemo { calls, plot, passed })
}

fn passed(calls: &[Row]) -> bool {
    let late: Vec<u64> = calls.iter().map(|row| audio(row).late).collect();
    // If hardly any frame is late end to end, a gain cannot be measured.
    matches!(late[..], [plain, helped] if helped * FEWER <= plain || plain < FEWER && helped <= plain)
}

fn audio(row: &Row) -> Audio {
    row.record.audio.unwrap_or_default()
}

const COLUMNS: [Column<Row>; 12] = [
    ("call", |row| row.caller.to_owned()),
    ("p50", |row| format!("{:.1} ms", audio(row).dejitter_ms.p50)),
    ("p99", |row| format!("{:.1} ms", audio(row).dejitter_ms.p99)),
    ("p99.9", |row| format!("{:.1} ms", audio(row).dejitter_ms.p999)),
    ("max", |row| format!("{:.1} ms", audio(row).dejitter_ms.max)),
    ("frames late", |row| audio(row).late.to_string()),
    ("concealed", |row| or_dash(row.concealed)),
    ("MOS", |row| or_dash(row.quality.as_ref().map(|quality| format!("{:.2}", quality.mos)))),
    ("sent again", |row| or_dash(row.record.packets.retransmitted)),
    ("quACKs", |row| row.record.quacks.received.to_string()),
    ("polls", |row| row.record.quacks.polls.to_string()),
    ("bytes for help", |row| format!("{:.1} %", audio(row).help_percent())),
];

/// The table, and the paths of the files.
pub fn print(demo: &CallDemo) -> String {
    let mut text = format!(
        "\nHow long packets waited for those before them. The player waits at most \
         {PLAYOUT_LIMIT_MS} ms, and then plays a substitute.\n{}\n{}\n",
        table_of(&COLUMNS, &demo.calls, 1),
        says(demo),
    );
    for row in &demo.calls {
        text += &format!("{}: listen to {}\n", row.caller, row.wav.display());
        for remark in remarks(&row.record) {
            text += &format!("{}: {remark}\n", row.caller);
        }
    }
    text += &format!(
        "The waits of both: {} (.hgrm beside it, for HdrHistogram's plotter)\n",
        demo.plot.display()
    );
    let verdict = if demo.passed { "passed" } else { "FAILED" };
    text +=
        &format!("Check: at most one late frame for each {FEWER} late end to end: {verdict}.\n");
    text
}

fn says(demo: &CallDemo) -> String {
    let late: Vec<String> = demo.calls.iter().map(|row| audio(row).late.to_string()).collect();
    let sent = demo.calls.last().map_or(0, |row| row.record.packets.lost_early);
    format!(
        "End to end, the sender learns of a loss on the first hop by the receiver's NACK, which \
         crosses the whole path. With Sidekick, the proxy's quACKs show the loss in a few \
         milliseconds. The sender sent {sent} packets again because of them. Frames late: {}.",
        late.join(" against ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Percentiles, Quacks};

    fn row(caller: &'static str, late: u64) -> Row {
        let dejitter_ms = Percentiles { p99: 40.1, max: 41.7, ..Percentiles::default() };
        let audio = Audio {
            dejitter_ms,
            late,
            played: 3000 - late,
            media_bytes: 870_000,
            help_bytes: 261_000,
        };
        let record = RunRecord {
            audio: Some(audio),
            quacks: Quacks { received: 3300, polls: 250, ..Quacks::default() },
            ..RunRecord::default()
        };
        let (wav, hgrm) =
            (Path::new("out").join(caller).with_extension("wav"), PathBuf::from("out/x.hgrm"));
        Row { caller, wav, hgrm, concealed: Some(late), quality: None, record }
    }

    fn demo(plain: u64, helped: u64) -> CallDemo {
        let calls = vec![row("plain", plain), row("helped", helped)];
        let passed = passed(&calls);
        CallDemo { calls, plot: "out/waits.svg".into(), passed }
    }

    #[test]
    fn a_quarter_of_the_late_frames_passes() {
        for (plain, helped, passed) in [
            (99, 0, true),
            (99, 24, true),
            (99, 25, false),
            (0, 0, true),
            (2, 2, true),
            (4, 2, false),
            (1, 2, false),
        ] {
            assert_eq!(demo(plain, helped).passed, passed, "{plain} and {helped}");
        }
    }

    #[test]
    fn the_output_names_the_files_to_listen_to() {
        let text = print(&demo(99, 0));
        for word in [
            "40.1 ms",
            "30.0 %",
            "3300",
            "out/helped.wav",
            "out/waits.svg",
            "99 against 0",
            "passed",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(print(&demo(9, 9)).contains("FAILED"));
    }
}
