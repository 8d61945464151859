//! The same runs on several backends, side by side, and whether they agree.

use std::collections::BTreeMap;
use std::path::Path;

use super::job::Case;
use super::quantity::{Measure, Quantity, Results, Summary, measures};
use super::sheet::{Sheet, or_nothing};
use crate::files::{self, FileError};
use crate::record::RunRecord;
use crate::report::{MOST_LATE_PERCENT, late_percent};

/// The largest difference in goodput from `sim`, as a share of `sim`'s goodput.
const GOODPUT_WITHIN: f64 = 0.1;
/// The largest difference in the 99th percentile of the de-jitter delay from `sim`, in
/// milliseconds.
const DEJITTER_WITHIN_MS: f64 = 5.0;
/// The largest difference of the number of lost packets from the expected one, in standard
/// deviations of a binomial distribution.
const DEVIATIONS: f64 = 5.0;
/// A backend that ignores the seed needs at least this many runs. Fewer prove little.
const SEVERAL: usize = 3;
/// The number of seeds that `sim` runs for a comparison. They cost little, and their median is
/// steady.
const SEEDS: u64 = 10;

/// Records of other backends, each with the same case on `sim`.
#[derive(Debug)]
pub struct Agreement {
    /// Its name in file names.
    pub id: &'static str,
    others: Vec<Other>,
}

/// The records of one case from another backend.
#[derive(Debug)]
struct Other {
    backend: String,
    case: Case,
    words: String,
    records: Vec<RunRecord>,
}

const HINT: &str = "use lines that `sidekick-lab run --json` printed";

/// Reads the records of a file, one a line.
pub(crate) fn read(path: &Path) -> Result<Vec<RunRecord>, FileError> {
    let text = files::read(path)?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let record = |(number, line)| {
        serde_json::from_str(line).map_err(|error| FileError::line(path, number + 1, error, HINT))
    };
    lines.map(record).collect()
}

impl Agreement {
    /// Groups records by case. It omits those of `sim` itself.
    pub(crate) fn of(records: &[RunRecord]) -> Self {
        type Key<'a> = (&'a str, &'a [String], &'a str);
        let mut groups: BTreeMap<Key<'_>, Vec<RunRecord>> = BTreeMap::new();
        for record in records.iter().filter(|record| record.backend != "sim") {
            let key =
                (record.scenario.as_str(), record.settings.as_slice(), record.backend.as_str());
            groups.entry(key).or_default().push(record.clone());
        }
        let other = |((scenario, settings, backend), records): (Key<'_>, _)| Other {
            backend: backend.to_owned(),
            case: Case::of(scenario).with(settings).seeds(SEEDS),
            words: [scenario, &settings.join(" ")].join(" ").trim_end().to_owned(),
            records,
        };
        Self { id: "agreement", others: groups.into_iter().map(other).collect() }
    }

    /// The cases to run on `sim`.
    pub(crate) fn cases(&self) -> impl Iterator<Item = &Case> {
        self.others.iter().map(|other| &other.case)
    }

    /// A row for each figure of each comparison.
    pub(crate) fn sheet(&self, results: &Results) -> Sheet {
        let columns =
            ["what was run", "figure", "sim", "backend", "there", "difference", "verdict"]
                .map(str::to_owned);
        let rows =
            self.others.iter().flat_map(|other| other.rows(results)).map(|row| row.words).collect();
        Sheet { columns: columns.into(), rows }
    }

    pub(crate) fn verdict(&self, results: &Results) -> Verdict {
        let mut trusted = self.others.iter().filter(|other| other.distrust().is_none()).peekable();
        if trusted.peek().is_none() {
            return Verdict::NothingToTrust;
        }
        let agree = trusted.all(|other| other.rows(results).iter().all(|row| row.agrees));
        if agree { Verdict::Agree } else { Verdict::Differ }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All results that can be trusted agree.
    Agree,
    /// A result that can be trusted does not agree.
    Differ,
    /// The machine was too slow in every run.
    NothingToTrust,
}

struct Row {
    words: Vec<String>,
    agrees: bool,
}

impl Other {
    fn rows(&self, results: &Results) -> Vec<Row> {
        vec![self.main_row(results), self.loss_row(results)]
    }

    /// The share of packets that the near segment lost at random. The goodput alone cannot show
    /// that a link loses too few packets.
    fn loss_row(&self, results: &Results) -> Row {
        fn share<'a>(records: impl Iterator<Item = &'a RunRecord>) -> (u64, u64) {
            let near = records.map(|record| (record.is_download(), record.links.near));
            let links = near.map(|(down, near)| match down {
                false => near.to_receiver.link,
                true => near.to_sender.link,
            });
            links.fold((0, 0), |(lost, all), link| (lost + link.lost_random, all + link.packets))
        }
        let jobs: Vec<_> = self.case.jobs().collect();
        let sim = jobs.iter().filter_map(|job| results.get(job)?.as_ref().ok());
        let ((sim_lost, sim_all), (lost, all)) = (share(sim), share(self.records.iter()));
        let percent = |lost: u64, all: u64| lost as f64 * 100.0 / all.max(1) as f64;
        let chance = percent(sim_lost, sim_all) / 100.0;
        let expected = all as f64 * chance;
        let deviation = (expected * (1.0 - chance)).sqrt();
        let agrees = (lost as f64 - expected).abs() <= DEVIATIONS * deviation.max(1.0);
        let [sim, there] = [(sim_lost, sim_all), (lost, all)]
            .map(|(lost, all)| format!("{:.2}", percent(lost, all)));
        let difference = format!("{:+.0} packets of {all}", lost as f64 - expected);
        self.row("lost near, %", [sim, there], difference, verdict(agrees).to_owned(), agrees)
    }

    fn row(
        &self,
        figure: &str,
        [sim, there]: [String; 2],
        difference: String,
        verdict: String,
        agrees: bool,
    ) -> Row {
        let (words, backend) = (self.words.clone(), self.backend.clone());
        let words = vec![words, figure.to_owned(), sim, backend, there, difference, verdict];
        Row { words, agrees }
    }

    fn main_row(&self, results: &Results) -> Row {
        if self.records.iter().any(|record| record.audio.is_some()) {
            // The percentile lies on a step, whose height is the round trip of a repair. A few late
            // frames move a run to the next step. On `sim` this happens in one run of twenty. So it
            // is chance, unless all of several runs differ.
            let near = |sim: f64, record: &RunRecord| {
                measures::DEJITTER_P99(record)
                    .is_some_and(|there| (there - sim).abs() <= DEJITTER_WITHIN_MS)
            };
            self.compare(results, "de-jitter p99, ms", measures::DEJITTER_P99, 1, |sim, there| {
                let difference = there - sim;
                let one_of_several = self.records.len() >= SEVERAL
                    && self.records.iter().any(|record| near(sim, record));
                let agrees = difference.abs() <= DEJITTER_WITHIN_MS || one_of_several;
                (format!("{difference:+.1} ms"), agrees)
            })
        } else {
            self.compare(results, "goodput, Mbit/s", measures::GOODPUT, 2, |sim, there| {
                let difference = there / sim - 1.0;
                (format!("{:+.1} %", difference * 100.0), difference.abs() <= GOODPUT_WITHIN)
            })
        }
    }

    fn compare(
        &self,
        results: &Results,
        figure: &str,
        measure: Measure,
        decimals: usize,
        compare: impl Fn(f64, f64) -> (String, bool),
    ) -> Row {
        let sim = Quantity::Of(self.case.clone(), measure).summary(results);
        let there = Summary::of(self.records.iter().filter_map(measure));
        let text = |summary| or_nothing(summary, |summary| summary.text(decimals));
        let (difference, verdict, agrees) = match (sim, there) {
            (Some(sim), Some(there)) => {
                let (difference, agrees) = compare(sim.median, there.median);
                (difference, verdict(agrees), agrees)
            }
            (None, _) => (String::new(), "no run of sim succeeded", false),
            (_, None) => (String::new(), "no such figure", false),
        };
        let doubt = self.doubt().map_or_else(String::new, |doubt| format!("; {doubt}"));
        let verdict = format!("{verdict}{doubt}");
        self.row(figure, [text(sim), text(there)], difference, verdict, agrees)
    }

    /// Why the records cannot be trusted. `None` unless the machine that made them was too slow.
    fn distrust(&self) -> Option<String> {
        let overruns: u64 = self.records.iter().map(|record| record.links.overruns()).sum();
        if overruns > 0 {
            return Some(format!(
                "not to be trusted: that machine was too slow for {overruns} packets, which count \
                 as losses"
            ));
        }
        let late = self.records.iter().map(late_percent).fold(0.0, f64::max);
        (late > MOST_LATE_PERCENT).then(|| {
            format!(
                "not to be trusted: on that machine {late:.1} % of packets left a link over a \
                 millisecond late"
            )
        })
    }

    /// A remark on these records, if necessary.
    fn doubt(&self) -> Option<String> {
        let few = self.backend == "tc" && self.records.len() < SEVERAL;
        let few = few
            .then(|| "the kernel takes no seed, so fewer than three runs prove little".to_owned());
        self.distrust().or(few)
    }
}

fn verdict(agrees: bool) -> &'static str {
    if agrees { "agrees" } else { "differs" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Audio, Percentiles};
    use std::fs;

    fn record(backend: &str, goodput: f64) -> RunRecord {
        RunRecord {
            scenario: "upload-paper".into(),
            backend: backend.into(),
            settings: vec!["flow.cc=bbr2".into()],
            goodput_mbit_s: goodput,
            ..RunRecord::default()
        }
    }

    fn verdict(others: &[RunRecord], sim: &RunRecord) -> Verdict {
        let agreement = Agreement::of(others);
        let results =
            agreement.cases().flat_map(Case::jobs).map(|job| (job, Ok(sim.clone()))).collect();
        agreement.verdict(&results)
    }

    fn verdicts(others: &[RunRecord], sim: &RunRecord) -> Vec<String> {
        let agreement = Agreement::of(others);
        let results =
            agreement.cases().flat_map(Case::jobs).map(|job| (job, Ok(sim.clone()))).collect();
        let rows = agreement.sheet(&results).rows;
        rows.iter().filter(|row| row[1] != "lost near, %").map(|row| row[5..].join(", ")).collect()
    }

    #[test]
    fn goodput_agrees_within_a_tenth() {
        let sim = record("sim", 8.0);
        let others =
            [record("user", 8.7), record("user", 8.76), record("user", 9.9), record("sim", 1.0)];
        assert_eq!(verdicts(&others, &sim), ["+9.5 %, agrees"]);
        assert_eq!(verdicts(&[record("user", 7.12)], &sim), ["-11.0 %, differs"]);
        assert_eq!(verdict(&others, &sim), Verdict::Agree);
        assert_eq!(verdict(&[record("user", 7.12)], &sim), Verdict::Differ);
    }

    #[test]
    fn dejitter_agrees_within_five_milliseconds() {
        let audio = |backend, p99| {
            let dejitter_ms = Percentiles { p99, ..Percentiles::default() };
            RunRecord {
                audio: Some(Audio { dejitter_ms, ..Audio::default() }),
                ..record(backend, 0.1)
            }
        };
        let sim = audio("sim", 22.4);
        assert_eq!(verdicts(&[audio("user", 27.4)], &sim), ["+5.0 ms, agrees"]);
        assert_eq!(verdicts(&[audio("user", 16.0)], &sim), ["-6.4 ms, differs"]);
        let steps = [70.7, 70.8, 25.0].map(|p99| audio("tc", p99));
        assert_eq!(verdicts(&steps, &sim), ["+48.3 ms, agrees"], "one of three is no other step");
        assert_eq!(verdict(&steps[..2], &sim), Verdict::Differ, "two prove nothing");
        let all = [70.7, 70.8, 70.9].map(|p99| audio("tc", p99));
        assert_eq!(verdicts(&all, &sim), ["+48.4 ms, differs"]);
    }

    #[test]
    fn a_link_without_its_losses_does_not_agree() {
        let losing = |backend: &str, lost_random| {
            let mut record = record(backend, 8.0);
            record.links.near.to_receiver.link.packets = 5000;
            record.links.near.to_receiver.link.lost_random = lost_random;
            record
        };
        let sim = losing("sim", 50);
        assert_eq!(verdict(&[losing("tc", 81)], &sim), Verdict::Agree);
        assert_eq!(verdict(&[losing("tc", 0)], &sim), Verdict::Differ);
        assert_eq!(verdict(&[losing("tc", 100)], &sim), Verdict::Differ);
        // A download loses packets in the other direction.
        let download = |backend| {
            let mut record = RunRecord { flow: "download".into(), ..losing(backend, 0) };
            record.links.near.to_sender.link.packets = 5000;
            record
        };
        let mut sim = download("sim");
        sim.links.near.to_sender.link.lost_random = 50;
        assert_eq!(verdict(&[download("tc")], &sim), Verdict::Differ);
    }

    #[test]
    fn the_verdict_marks_untrusted_runs() {
        let mut slow = record("user", 8.0);
        slow.links.near.to_receiver.overruns = 7;
        slow.goodput_mbit_s = 6.0;
        assert_eq!(
            verdict(std::slice::from_ref(&slow), &record("sim", 8.0)),
            Verdict::NothingToTrust
        );
        let beside = RunRecord { backend: "tc".into(), ..record("tc", 8.1) };
        assert_eq!(
            verdict(&[slow.clone(), beside], &record("sim", 8.0)),
            Verdict::Agree,
            "of the rest"
        );
        let [verdict] = verdicts(&[slow], &record("sim", 8.0)).try_into().unwrap();
        assert!(
            verdict.contains("differs; not to be trusted: that machine was too slow for 7 packets"),
            "{verdict}"
        );
        let mut busy = RunRecord { audio: Some(Audio::default()), ..record("user", 6.0) };
        busy.links.far.to_receiver.link.delivered = 1000;
        busy.links.far.to_receiver.late = 3;
        let [verdict] = verdicts(&[busy], &record("sim", 8.0)).try_into().unwrap();
        assert!(
            verdict
                .ends_with("on that machine 0.3 % of packets left a link over a millisecond late"),
            "{verdict}"
        );
        let [verdict] = verdicts(&[record("tc", 8.0)], &record("sim", 8.0)).try_into().unwrap();
        assert!(verdict.contains("the kernel takes no seed"), "{verdict}");
    }

    #[test]
    fn a_file_of_records_is_read_line_by_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("records");
        let line = serde_json::to_string(&record("tc", 8.0)).unwrap();
        fs::write(&path, format!("{line}\n\n{line}\n")).unwrap();
        assert_eq!(read(&path).unwrap(), [record("tc", 8.0), record("tc", 8.0)]);
        fs::write(&path, format!("{line}\n{{}}\n")).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("records, line 2: "));
        let absent = read(&directory.path().join("none")).unwrap_err().to_string();
        assert!(absent.starts_with("cannot read "), "{absent}");
    }
}
