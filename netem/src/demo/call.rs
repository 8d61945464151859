//! The demonstration of a call: the same sound over the same path, end to end and with a Sidekick.
//! The user can listen to both.

use std::path::{Path, PathBuf};

use audio::quality::Quality;
use serde::Serialize;

use super::{DemoError, remarks_of, side_by_side};
use crate::figures::draw::{DrawError, standalone};
use crate::figures::model::{Axis, Curve, Plot, Scale};
use crate::figures::quantity::Results;
use crate::figures::sender::{BLUE, Colour, VERMILION};
use crate::files::{self, FileError};
use crate::progress::Bars;
use crate::record::{Audio, RunRecord};
use crate::report::{Column, or_dash, table_of};
use crate::run::{Bench, Call, PLAYOUT_LIMIT_MS, Sound};
use crate::scenario::Scenario;

const SCENARIO: &str = "audio-paper";
/// The least gain: frames that are late end to end for each late frame with Sidekick.
const FEWER: u64 = 4;

/// The calls to compare: a name, a name for files, a colour, and the settings.
const CALLERS: [(&str, &str, Colour, &[&str]); 2] = [
    ("end to end", "end-to-end", VERMILION, &["sidekick.mode=off"]),
    (
        "Sidekick",
        "sidekick",
        BLUE,
        &[
            "sidekick.mode=reinject",
            "sidekick.every_packets=1",
            "sidekick.poll=on",
            "sidekick.threshold=1",
        ],
    ),
];

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub caller: &'static str,
    /// The WAV file of what the listener heard.
    pub wav: PathBuf,
    /// The distribution of the waits, for HdrHistogram's plotter.
    pub hgrm: PathBuf,
    /// Frames for which the player played a substitute.
    pub concealed: Option<u64>,
    pub quality: Option<Quality>,
    #[serde(flatten)]
    pub record: RunRecord,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct CallDemo {
    /// The calls: end to end, and with Sidekick.
    pub calls: Vec<Row>,
    pub plot: PathBuf,
    pub passed: bool,
}

/// Makes both calls, each of `seconds`, with the sound of `wav` or a tone. Writes to `directory`
/// what the receivers heard.
pub(crate) fn run(
    bench: &Bench<'_>,
    directory: &Path,
    wav: Option<&Path>,
    seconds: u32,
    seed: u64,
) -> Result<CallDemo, DemoError> {
    std::fs::create_dir_all(directory).map_err(FileError::io("make the directory", directory))?;
    let bars = Bars::default();
    let done = side_by_side(&CALLERS, |&(caller, name, colour, settings)| {
        let length = format!("flow.seconds={seconds}");
        let scenario = Scenario::with(SCENARIO, &[settings, &[&length]].concat())?;
        // A finished sound moves to its place, so an interrupted demonstration leaves no partial
        // file.
        let sound = Sound::within(bench.directory, name, wav);
        let progress = bars.begin(caller, scenario.flow.total_bytes());
        let Call { record, listener } = bench
            .call(&scenario, seed, Some(&sound), progress)
            .map_err(|source| DemoError::Run { who: caller, source })?;
        let curve = Curve::computed(caller, colour, waits(&files::read(&sound.waits)?));
        let [wav, hgrm] = ["wav", "hgrm"].map(|kind| directory.join(name).with_extension(kind));
        for (from, to) in [(&sound.heard, &wav), (&sound.waits, &hgrm)] {
            std::fs::copy(from, to).map_err(FileError::io("write", to))?;
        }
        let (concealed, quality) = (listener.concealed, listener.quality);
        Ok((Row { caller, wav, hgrm, concealed, quality, record }, curve))
    })?;
    let (calls, curves): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    let plot = directory.join("waits.svg");
    std::fs::write(&plot, draw(curves)?).map_err(FileError::io("write", &plot))?;
    let passed = passed(&calls);
    Ok(CallDemo { calls, plot, passed })
}

/// Percentiles and their waits in milliseconds, from a percentile distribution. Other lines do not
/// count.
fn waits(hgrm: &str) -> Vec<(f64, f64)> {
    let point = |line: &str| {
        let columns: Vec<f64> =
            line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        match columns[..] {
            [wait, percentile, _, _] => Some((100.0 * percentile, wait)),
            // The longest wait belongs to one packet of all.
            [wait, 1.0, count] => Some((100.0 * (1.0 - 1.0 / count), wait)),
            _ => None,
        }
    };
    hgrm.lines().filter_map(point).filter(|(_, wait)| wait.is_finite()).collect()
}

/// The plot of the calls' waits. The further to the right, the rarer the waits.
fn draw(curves: Vec<Curve>) -> Result<String, DrawError> {
    let percentiles = Axis {
        scale: Scale::Nines,
        ..Axis::linear("percent of the packets that waited no longer", 2)
    };
    let plot = Plot {
        id: "waits".to_owned(),
        title: String::new(),
        x: percentiles,
        y: Axis::linear("milliseconds", 1),
        curves,
    };
    standalone(&plot, &Results::new())
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
pub(crate) fn print(demo: &CallDemo) -> String {
    let mut text = format!(
        "\nHow long packets waited for those before them. The player waits at most \
         {PLAYOUT_LIMIT_MS} ms, and then plays a substitute.\n{}\n{}\n",
        table_of(&COLUMNS, &demo.calls, 1),
        says(demo),
    );
    for row in &demo.calls {
        text += &format!("{}: listen to {}\n", row.caller, row.wav.display());
        text += &remarks_of(row.caller, &row.record);
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

    fn hgrm(waits: &[(u64, u64)]) -> String {
        let mut histogram = hdrhistogram::Histogram::new_with_bounds(1, 2_000_000, 3).unwrap();
        for (wait_us, count) in waits {
            histogram.record_n(*wait_us, *count).unwrap();
        }
        let mut hgrm = Vec::new();
        audio::hgrm::write(&histogram, &mut hgrm).unwrap();
        String::from_utf8(hgrm).unwrap()
    }

    #[test]
    fn a_distribution_is_read_and_drawn() {
        let some = waits(&hgrm(&[(0, 947), (22_000, 53)]));
        assert_eq!(some.first(), Some(&(0.0, 0.0)));
        let (percentile, wait) = *some.last().unwrap();
        assert!((percentile - 99.9).abs() < 0.01 && (wait - 22.0).abs() < 0.1, "{some:?}");
        assert!(some.iter().all(|(at, wait)| (*wait > 0.0) == (*at > 94.7)), "{some:?}");
        let svg = draw(vec![Curve::computed("a call", BLUE, some)]).unwrap();
        for word in ["<polyline", "a call", "99.9", "milliseconds"] {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        // If no packet waits, the line lies on the axis. Its length follows from the number of
        // packets.
        let none = waits(&hgrm(&[(0, 3000)]));
        let [(first, 0.0), .., (last, 0.0)] = none[..] else { panic!("{none:?}") };
        assert!(first == 0.0 && (last - 100.0 * 2999.0 / 3000.0).abs() < 1e-9, "{none:?}");
    }

    #[test]
    fn an_invalid_distribution_draws_no_curve() {
        let none = waits("Value Percentile\n\n#[Mean = 1, StdDeviation = 2]\nnan 1 2 inf\n");
        assert_eq!(none, []);
        assert!(draw(vec![Curve::computed("none", BLUE, none)]).unwrap().contains("milliseconds"));
    }
}
