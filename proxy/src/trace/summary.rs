//! What a trace says of its link.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Direction, Fate, Packet, Trace};

/// A time in which a direction lost all of at least so many packets is an outage.
const OUTAGE: Duration = Duration::from_millis(100);
const OUTAGE_PACKETS: u64 = 3;
/// The time over which the highest rate is measured.
const PEAK: Duration = Duration::from_millis(100);
/// The link changed if a part of the recording loses packets differently from all by so many
/// standard deviations, and by this factor.
const PARTS: u32 = 6;
const DEVIATIONS: f64 = 4.0;
const FACTOR: f64 = 2.0;
/// A 95 % interval, in standard deviations.
const INTERVAL: f64 = 1.96;

/// What a trace says of its link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How long it was recorded, in seconds.
    pub seconds: f64,
    /// Towards the proxy.
    pub up: DirectionSummary,
    /// From the proxy.
    pub down: DirectionSummary,
    /// Round trips to the proxy; `None` if none was measured.
    pub near_rtt_ms: Option<RoundTripSummary>,
    /// When the link changed most, if it did.
    pub change: Option<Change>,
}

/// What a trace says of a direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DirectionSummary {
    /// The packets whose fate is known.
    pub packets: u64,
    /// Those that were lost.
    pub lost: u64,
    /// Their share, and the interval in which that of a longer recording lies, at 95 %.
    pub loss_percent: f64,
    /// The interval's lower end.
    pub loss_least_percent: f64,
    /// Its upper end.
    pub loss_most_percent: f64,
    /// How many packets in a row were lost, on average.
    pub run_packets: f64,
    /// How long such a run lasted, on average: from the middle between the packets around its begin
    /// to that around its end.
    pub run_ms: f64,
    /// Runs by their length, each twice as long as the one before.
    pub runs: Vec<Run>,
    /// Times of at least 100 ms in which nothing arrived.
    pub outages: u64,
    /// All of them together.
    pub outage_ms: f64,
    /// The longest.
    pub longest_outage_ms: f64,
    /// The share of packets that arrived after the next one.
    pub late_percent: f64,
    /// By how much, in the median.
    pub late_ms: f64,
    /// The most that arrived in a tenth of a second: the link is at least so fast.
    pub peak_mbit_s: f64,
}

/// Runs of lost packets of about one length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// They had at least so many packets, and fewer than twice as many.
    pub packets: u64,
    /// How many runs.
    pub count: u64,
    /// The longest of them.
    pub longest_ms: f64,
}

/// What a trace says of round trips, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundTripSummary {
    /// The shortest.
    pub least: f64,
    /// The median.
    pub median: f64,
    /// 95 % took no longer.
    pub p95: f64,
    /// How far a round trip is from the one before, in the median.
    pub jitter: f64,
}

/// A part of a recording in which the link was another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The direction that changed most.
    pub direction: Direction,
    /// When it began, in seconds.
    pub from: f64,
    /// When it ended.
    pub to: f64,
    /// What it lost, of the direction that changed.
    pub loss_percent: f64,
    /// What the rest lost.
    pub otherwise_percent: f64,
}

/// Lost packets in a row.
#[derive(Clone, Copy, Debug, Default)]
struct Lost {
    packets: u64,
    at: Duration,
    lasted: Duration,
}

impl Summary {
    pub(super) fn of(trace: &Trace) -> Self {
        let ways = [Direction::Up, Direction::Down];
        let mut changes: Vec<_> = ways
            .iter()
            .filter_map(|way| change(*way, trace.packets(*way), trace.length()))
            .collect();
        changes.sort_by(|a, b| a.loss_percent.total_cmp(&b.loss_percent));
        let [up, down] = ways.map(|way| DirectionSummary::of(trace.packets(way)));
        let near_rtt_ms = RoundTripSummary::of(trace);
        let seconds = trace.length().as_secs_f64();
        Self { seconds, up, down, near_rtt_ms, change: changes.pop() }
    }
}

impl DirectionSummary {
    fn of(packets: &[Packet]) -> Self {
        let runs = runs(packets);
        let (count, lost) = (packets.len() as u64, runs.iter().map(|run| run.packets).sum());
        let share = |part: f64| 100.0 * part / (count as f64).max(1.0);
        // Runs are independent, packets are not.
        let deviation = runs.iter().map(|run| (run.packets as f64).powi(2)).sum::<f64>().sqrt();
        let late: Vec<_> = packets.iter().filter_map(Packet::lateness).collect();
        let outages =
            || runs.iter().filter(|it| it.lasted >= OUTAGE && it.packets >= OUTAGE_PACKETS);
        let mean = |sum: f64| sum / (runs.len() as f64).max(1.0);
        Self {
            packets: count,
            lost,
            loss_percent: share(lost as f64),
            loss_least_percent: share((lost as f64 - INTERVAL * deviation).max(0.0)),
            // Three losses may happen where none did.
            loss_most_percent: share((lost as f64 + INTERVAL * deviation).max(3.0)).min(100.0),
            run_packets: mean(lost as f64),
            run_ms: mean(total(runs.iter().map(|run| ms(run.lasted)))),
            runs: histogram(&runs),
            outages: outages().count() as u64,
            outage_ms: total(outages().map(|it| ms(it.lasted))),
            longest_outage_ms: outages().map(|it| ms(it.lasted)).fold(0.0, f64::max),
            late_percent: share(late.len() as f64),
            late_ms: quantile(late, 0.5),
            peak_mbit_s: peak(packets),
        }
    }
}

impl Packet {
    fn lateness(&self) -> Option<f64> {
        match self.fate {
            Fate::Late(by) => Some(ms(by)),
            Fate::Arrived | Fate::Lost => None,
        }
    }
}

/// The runs of lost packets.
fn runs(packets: &[Packet]) -> Vec<Lost> {
    let mut runs = Vec::new();
    let mut before = None;
    let mut rest = packets;
    while let Some(first) = rest.first() {
        let len = rest.iter().take_while(|it| it.fate == Fate::Lost).count();
        if len == 0 {
            before = Some(first.at);
            rest = rest.split_at(1).1;
            continue;
        }
        let (lost, after) = rest.split_at(len);
        let last = lost.last().unwrap_or(first).at;
        let begin = before.map_or(first.at, |before| (before + first.at) / 2);
        // A sender that hears of the loss pauses, and the link does not.
        let steps = lost.windows(2).map(|pair| pair[1].at.saturating_sub(pair[0].at));
        let pause = steps.chain([2 * first.at.saturating_sub(begin)]).max().unwrap_or_default();
        let gap = after.first().map_or(Duration::ZERO, |after| after.at.saturating_sub(last));
        let end = last + gap.min(pause) / 2;
        let lasted = end.saturating_sub(begin);
        runs.push(Lost { packets: len as u64, at: first.at, lasted });
        before = Some(last);
        rest = after;
    }
    runs
}

fn histogram(runs: &[Lost]) -> Vec<Run> {
    let mut all: Vec<Run> = Vec::new();
    for run in runs {
        let bucket = run.packets.checked_ilog2().unwrap_or(0) as usize;
        while all.len() <= bucket {
            all.push(Run { packets: 1 << all.len(), count: 0, longest_ms: 0.0 });
        }
        if let Some(bucket) = all.get_mut(bucket) {
            bucket.count += 1;
            bucket.longest_ms = bucket.longest_ms.max(ms(run.lasted));
        }
    }
    all
}

/// The highest rate of what arrived.
fn peak(packets: &[Packet]) -> f64 {
    let mut most = 0;
    let (mut sum, mut from) = (0, 0);
    for packet in packets {
        if packet.fate == Fate::Lost {
            continue;
        }
        sum += u64::from(packet.bytes);
        while let Some(first) = packets.get(from).filter(|it| it.at + PEAK <= packet.at) {
            sum -= if first.fate == Fate::Lost { 0 } else { u64::from(first.bytes) };
            from += 1;
        }
        most = most.max(sum);
    }
    most as f64 * 8.0 / PEAK.as_secs_f64() / 1e6
}

/// The part of the recording in which most differs. Runs of losses are the events.
fn change(direction: Direction, packets: &[Packet], length: Duration) -> Option<Change> {
    let runs = runs(packets);
    let part_of = |at: Duration| {
        let part = at.as_secs_f64() / length.as_secs_f64() * f64::from(PARTS);
        (0..PARTS).rev().find(|it| f64::from(*it) <= part).unwrap_or(0)
    };
    // By all losses: a part with few of them says little of how they vary.
    let squares: f64 = runs.iter().map(|run| (run.packets as f64).powi(2)).sum();
    let each = squares / (packets.len() as f64).max(1.0);
    let mut found: Option<(f64, Change)> = None;
    for part in 0..PARTS {
        let inside = packets.iter().filter(|it| part_of(it.at) == part).count() as f64;
        let outside = packets.len() as f64 - inside;
        let lost = |is_inside: bool| {
            let of = runs.iter().filter(|run| (part_of(run.at) == part) == is_inside);
            of.map(|run| run.packets as f64).sum::<f64>()
        };
        if inside == 0.0 || outside == 0.0 {
            continue;
        }
        let (loss, otherwise) = (lost(true) / inside, lost(false) / outside);
        let variance = each / inside + each / outside;
        let deviations = (loss - otherwise).abs() / variance.sqrt();
        let differs = loss.max(otherwise) > FACTOR * loss.min(otherwise);
        if differs && deviations > found.map_or(DEVIATIONS, |(most, _)| most) {
            let second = |part: u32| length.as_secs_f64() / f64::from(PARTS) * f64::from(part);
            let (loss_percent, otherwise_percent) = (100.0 * loss, 100.0 * otherwise);
            let (from, to) = (second(part), second(part + 1));
            let change = Change { direction, from, to, loss_percent, otherwise_percent };
            found = Some((deviations, change));
        }
    }
    found.map(|(_, change)| change)
}

impl RoundTripSummary {
    fn of(trace: &Trace) -> Option<Self> {
        let all: Vec<_> = trace.round_trips().iter().map(|it| ms(it.took)).collect();
        let least = all.iter().copied().reduce(f64::min)?;
        let steps = all.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
        let (median, p95) = (quantile(all.clone(), 0.5), quantile(all, 0.95));
        Some(Self { least, median, p95, jitter: quantile(steps, 0.5) })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:26}{:>14}{:>14}", "", "sent", "received")?;
        let [up, down] = [&self.up, &self.down];
        let mut line = |name: &str, [sent, received]: [String; 2]| {
            writeln!(f, "{name:26}{sent:>14}{received:>14}")
        };
        let both = |value: &dyn Fn(&DirectionSummary) -> String| [up, down].map(value);
        let some = |is: bool, text: String| if is { text } else { "-".to_owned() };
        line("packets", both(&|it| it.packets.to_string()))?;
        line("lost", both(&|it| some(it.packets > 0, format!("{:.2} %", it.loss_percent))))?;
        let likely = |it: &DirectionSummary| {
            format!("{:.2} to {:.2}", it.loss_least_percent, it.loss_most_percent)
        };
        line("  95 % likely", both(&|it| some(it.packets > 0, likely(it))))?;
        let run = |it: &DirectionSummary| format!("{:.1}", it.run_packets);
        line("lost in a row, on average", both(&|it| some(it.lost > 0, run(it))))?;
        line("  lasting", both(&|it| some(it.lost > 0, format!("{:.1} ms", it.run_ms))))?;
        line("outages over 100 ms", both(&|it| it.outages.to_string()))?;
        let longest = |it: &DirectionSummary| format!("{:.0} ms", it.longest_outage_ms);
        line("  the longest", both(&|it| some(it.outages > 0, longest(it))))?;
        // No report shows in which order packets passed the proxy.
        let unseen = || "not seen".to_owned();
        line("out of order", [unseen(), format!("{:.2} %", down.late_percent)])?;
        let late = format!("{:.1} ms", down.late_ms);
        line("  late by", ["-".to_owned(), some(down.late_percent > 0.0, late)])?;
        line("fastest seen", both(&|it| format!("{:.1} Mbit/s", it.peak_mbit_s)))?;
        if let Some(RoundTripSummary { least, median, p95, jitter }) = self.near_rtt_ms {
            writeln!(
                f,
                "\nRound trip to the proxy: {median:.1} ms, mostly {least:.1} to {p95:.1}."
            )?;
            writeln!(f, "It varies by {jitter:.1} ms from one to the next.")?;
        }
        if let Some(change) = self.change {
            let Change { direction, from, to, loss_percent, otherwise_percent } = change;
            let way = match direction {
                Direction::Up => "to",
                Direction::Down => "from",
            };
            writeln!(
                f,
                "\nThe link changed: from second {from:.0} to {to:.0}, {loss_percent:.2} % were lost {way} the \
                 proxy,\nand {otherwise_percent:.2} % in the rest of the time."
            )?;
        }
        Ok(())
    }
}

/// A sum, which of nothing is 0, and not the -0 of `Iterator::sum`.
fn total(of: impl Iterator<Item = f64>) -> f64 {
    of.fold(0.0, |sum, it| sum + it)
}

/// A quantile, or 0 of nothing.
fn quantile(mut of: Vec<f64>, part: f64) -> f64 {
    of.sort_by(f64::total_cmp);
    #[allow(clippy::cast_possible_truncation, reason = "it is less than the length")]
    #[allow(clippy::cast_sign_loss, reason = "the part is from 0 to 1")]
    let place = ((of.len() as f64 - 1.0).max(0.0) * part).round() as usize;
    of.get(place).copied().unwrap_or(0.0)
}

fn ms(of: Duration) -> f64 {
    of.as_secs_f64() * 1e3
}
