//! How much parity the proxy is asked for, by the near segment's losses.

use crate::wire::Protect;
use sidekick_parity::Counts as ParityCounts;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Until the fate of this many datagrams is known, much loss is assumed: a slow start that ends
/// early costs more than a few datagrams of parity.
const EARLY: u64 = 200;
const EARLY_SHARE: f64 = 0.33;
/// For the first of them even more. A proxy grants that for a few only: it caps all parity at 35 %
/// by default, and lets 16 KiB pass beyond that.
const FIRST: u64 = 64;
const FIRST_SHARE: f64 = 0.5;
/// The losses of this many datagrams make a sample. The latest samples count.
const SAMPLE: u64 = 32;
const SAMPLES: usize = 16;
/// This many datagrams without a loss show that there are none, and this many after a loss.
const LOSSLESS: u64 = 64;
const LOSSLESS_AGAIN: u64 = 512;
/// Two gaps without a datagram are losses on the far segment if fewer are listed in between.
const SKIPPED: u64 = 32;
/// Such losses count while no more datagrams than these are listed. A full queue comes back.
const LOST_FAR: u64 = 4096;
/// Parity in proportion to the loss, and the least.
const FACTOR: f64 = 2.75;
const MARGIN: f64 = 0.01;
const LEAST: f64 = 0.045;
/// The least while no loss at all is known.
const LEAST_WITHOUT_LOSS: f64 = 0.03;
const MOST: f64 = 0.6;
/// A proxy sends at most 35 % of parity, unless its operator allows more. That rebuilds hardly half
/// of the datagrams that such a loss takes.
const OVERWHELMED: f64 = 1.0 / 6.0;
/// A change by less than this is not worth a message.
const CHANGE: f64 = 0.1;
/// Datagrams in a window, and where losses come in bursts. Such a mean length is a burst.
const WINDOW: f64 = 30.0;
const BURST_WINDOW: f64 = 60.0;
const MAX_WINDOW: f64 = 64.0;
/// A window is at least this many times as long as the interval between two repair symbols.
const LISTED: f64 = 1.25;
const BURST: f64 = 2.0;
/// Unless the near segment loses nothing, the proxy sends a list of passed datagrams after this
/// many. The list soon reveals a loss on the far segment.
const LIST: u8 = 8;
/// After this many datagrams and this time without a list, the proxy counts as one that sends none.
const UNANSWERED: u64 = 64;
const UNANSWERED_RTTS: u32 = 3;
const UNANSWERED_MORE: Duration = Duration::from_millis(200);
/// After so many repair symbols in a row that do not arrive, none will: they are longer than the
/// datagrams that they cover, and may exceed the path's MTU.
const ABSENT: f64 = 24.0;
/// Parity of the last datagrams, if no others follow for this time.
const FLUSH: Duration = Duration::from_millis(3);
/// A longer silence, as a part of the near round trip, where that is long: the hold is, too.
const FLUSH_PART: u32 = 16;
const MOST_FLUSH: Duration = Duration::from_millis(10);

/// Some datagrams that passed the proxy.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    datagrams: u64,
    lost: u64,
    /// Runs of lost ones.
    runs: u64,
}

impl Sample {
    /// The difference between the counts `after` and `before`.
    fn between(before: &ParityCounts, after: &ParityCounts) -> Self {
        Self {
            datagrams: after.judged - before.judged,
            lost: after.lost.saturating_sub(before.lost),
            runs: after.runs.saturating_sub(before.runs),
        }
    }

    fn plus(self, other: &Self) -> Self {
        Self {
            datagrams: self.datagrams + other.datagrams,
            lost: self.lost + other.lost,
            runs: self.runs + other.runs,
        }
    }

    /// The part that was lost.
    fn loss(self) -> f64 {
        self.lost as f64 / self.datagrams.max(1) as f64
    }

    /// How many were lost in a row, on average.
    fn burst(self) -> f64 {
        self.lost as f64 / self.runs.max(1) as f64
    }
}

/// The state of the near segment and of the proxy's parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParityState {
    /// The proxy sends none.
    Unanswered,
    /// The near segment has lost none of the latest datagrams, and the far one has. Then gaps are
    /// losses there, and the peer must hear of them at once.
    Lossless,
    /// Neither has lost any. A gap may be the near segment's first loss, or a number that the peer
    /// skipped.
    Quiet,
    /// It has lost some, or nothing is known.
    Lossy,
    /// It loses more than the usual share of parity rebuilds.
    Overwhelmed,
}

/// The parity that a path needs.
#[derive(Debug, Default)]
pub struct Protection {
    /// The counts at the end of the latest sample.
    counts: ParityCounts,
    samples: VecDeque<Sample>,
    /// Their sum.
    all: Sample,
    share: f64,
    window: f64,
    /// The share before it fell lately. The proxy hears of that late, and symbols are under way.
    fell: Option<(f64, Instant)>,
    /// The latest counts.
    latest: ParityCounts,
    /// How many datagrams were listed when a list last showed one that had not arrived.
    shown: Option<u64>,
    /// How many datagrams were listed at the latest gap in which the proxy had nothing, and at the
    /// latest losses on the far segment.
    nothing: Option<u64>,
    lost_far: Option<u64>,
    /// The datagrams that arrived while parity was wanted and no list came, and since when.
    arrivals: u64,
    arrivals_since: Option<Instant>,
    unanswered: bool,
    /// Repair symbols that the lists promise since the latest one that arrived. After a pause,
    /// lists promise none until the proxy may have answered.
    owed: f64,
    owed_from: Option<Instant>,
    flush: Duration,
    /// No parity was wanted since the latest counts.
    paused: bool,
    /// Samples begin when the fate of this many datagrams is known.
    judged_from: u64,
}

impl Protection {
    /// Notes a datagram that arrived.
    pub fn note_arrival(&mut self) {
        self.arrivals += 1;
    }

    /// Notes that no parity is wanted now, so that the proxy owes none.
    pub fn pause(&mut self) {
        (self.arrivals, self.arrivals_since) = (0, None);
        self.paused = true;
    }

    /// Notes that another proxy may send parity, although the one before did not.
    pub fn expect_answers(&mut self) {
        (self.arrivals, self.arrivals_since, self.unanswered) = (0, None, false);
        self.owed = 0.0;
    }

    /// Whether the proxy has answered by a list. The parity to ask for follows from the losses and
    /// the near round trip alone then.
    #[inline]
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.latest.listed > 0
    }

    /// The state of the near segment, and of the proxy's parity.
    #[inline]
    #[must_use]
    pub fn state(&self) -> ParityState {
        if self.unanswered {
            ParityState::Unanswered
        } else if self.is_lossless() {
            if self.loses_far() { ParityState::Lossless } else { ParityState::Quiet }
        } else if self.all.datagrams >= EARLY && self.all.loss() > OVERWHELMED {
            ParityState::Overwhelmed
        } else {
            ParityState::Lossy
        }
    }

    /// Notes a gap in which the proxy had nothing: a loss on the far segment, or a number that the
    /// peer skipped. Peers skip numbers seldom, so a second such gap soon after shows losses.
    pub fn note_nothing(&mut self) {
        let listed = self.latest.listed;
        let before = self.nothing.replace(listed);
        if before.is_some_and(|before| listed.saturating_sub(before) < SKIPPED) {
            self.lost_far = Some(listed);
        }
    }

    fn loses_far(&self) -> bool {
        let since = |lost| self.latest.listed.saturating_sub(lost);
        self.lost_far.is_some_and(|lost| since(lost) < LOST_FAR)
    }

    fn is_lossless(&self) -> bool {
        let listed = self.latest.listed;
        let since = self.shown.map_or(u64::MAX, |shown| listed.saturating_sub(shown));
        self.all.lost == 0 && listed >= LOSSLESS && since >= LOSSLESS_AGAIN
    }

    /// Whether parity can rebuild so many lost in a row: each is in as many windows as repair
    /// symbols are sent for one.
    #[inline]
    #[must_use]
    pub fn may_rebuild(&self, lost: u32) -> bool {
        let share = self.fell.map_or(self.share, |(before, _)| before.max(self.share));
        f64::from(lost) <= (share * self.window).max(1.0)
    }

    /// The parity to ask for, by the losses so far and the near round trip.
    pub fn wanted(&mut self, counts: ParityCounts, near: Duration, now: Instant) -> Protect {
        if counts.listed == 0 && self.counts.listed == 0 && self.arrivals > 0 {
            // Many may arrive at once, and the list with them.
            let since = *self.arrivals_since.get_or_insert(now);
            let late = since + patience(near);
            self.unanswered = self.arrivals >= UNANSWERED && late <= now;
        }
        if counts.judged < self.counts.judged {
            // Another session counts from 0.
            (self.counts, self.latest, self.shown) = Default::default();
            (self.nothing, self.lost_far, self.judged_from) = Default::default();
        }
        if std::mem::take(&mut self.paused) {
            // A queue dropped the datagrams listed last. Parity for them would fill it again.
            (self.latest, self.judged_from) = (counts, counts.listed);
            self.owed_from = Some(now + patience(near));
        }
        if self.counts.judged < self.judged_from {
            self.counts = counts;
        }
        if counts.absent > self.latest.absent {
            self.shown = Some(counts.listed);
        }
        self.owed_from.take_if(|from| *from <= now);
        if counts.symbols == self.latest.symbols && self.owed_from.is_none() {
            self.owed += self.share * counts.listed.saturating_sub(self.latest.listed) as f64;
        } else {
            self.owed = 0.0;
        }
        self.unanswered |= self.owed >= ABSENT;
        self.latest = counts;
        if counts.judged - self.counts.judged >= SAMPLE {
            if self.samples.len() >= SAMPLES {
                self.samples.pop_front();
            }
            self.samples.push_back(Sample::between(&self.counts, &counts));
            self.counts = counts;
            self.all = self.samples.iter().fold(Sample::default(), Sample::plus);
        }
        let all = self.all;
        let least = if all.lost > 0 { LEAST } else { LEAST_WITHOUT_LOSS };
        let share = if all.datagrams < EARLY {
            if counts.listed < FIRST { FIRST_SHARE } else { EARLY_SHARE }
        } else {
            (all.loss() * FACTOR + MARGIN).clamp(least, MOST)
        };
        self.fell.take_if(|(_, until)| *until <= now);
        if (share - self.share).abs() > self.share * CHANGE {
            if share < self.share {
                let before = self.fell.map_or(self.share, |(before, _)| before.max(self.share));
                self.fell = Some((before, now + 2 * near));
            }
            self.share = share;
        }
        let window = if all.burst() >= BURST { BURST_WINDOW } else { WINDOW };
        // Each datagram needs a list, and the lists are as long as windows.
        self.window = window.max(LISTED / self.share).min(MAX_WINDOW).floor();
        let flush = (near / FLUSH_PART).clamp(FLUSH, MOST_FLUSH);
        // A small change is not worth a message.
        if flush.abs_diff(self.flush) > self.flush / 3 {
            self.flush = flush;
        }
        let list = if self.is_lossless() { 0 } else { LIST };
        #[allow(clippy::cast_possible_truncation, reason = "from 30 to 64")]
        #[allow(clippy::cast_sign_loss, reason = "from 30 to 64")]
        let window = self.window as u8;
        Protect { list, ..Protect::of(self.share, window, self.flush) }
    }
}

/// How long the proxy may take to answer.
fn patience(near: Duration) -> Duration {
    UNANSWERED_RTTS * near + UNANSWERED_MORE
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEAR: Duration = Duration::from_millis(20);

    /// Asks at each of this many datagrams, of which every `n`-th is lost, `run` in a row.
    fn after(protection: &mut Protection, datagrams: u64, n: u64, run: u64) -> Protect {
        let mut counts = protection.latest;
        for _ in 0..datagrams {
            counts.listed += 1;
            counts.symbols += 1;
            counts.judged = counts.listed.saturating_sub(64);
            let place = counts.judged % n;
            counts.lost += u64::from(counts.judged > 0 && place < run);
            counts.runs += u64::from(counts.judged > 0 && place == 0 && run > 0);
            counts.absent += u64::from(counts.listed % n < run);
            protection.wanted(counts, NEAR, now());
        }
        protection.wanted(counts, NEAR, now())
    }

    #[allow(clippy::disallowed_methods, reason = "any instant will do")]
    fn now() -> Instant {
        Instant::now()
    }

    fn share(protect: Protect) -> f64 {
        f64::from(protect.share) / f64::from(Protect::WHOLE)
    }

    #[test]
    fn much_at_first_and_then_by_the_loss() {
        for (n, low, high) in [(100, 0.04, 0.05), (25, 0.11, 0.14), (10, 0.26, 0.31)] {
            let mut protection = Protection::default();
            let earliest = after(&mut protection, 60, n, 1);
            assert!((share(earliest) - FIRST_SHARE).abs() < 0.01, "{earliest:?}");
            let early = after(&mut protection, 140, n, 1);
            assert!((share(early) - EARLY_SHARE).abs() < 0.01, "{early:?}");
            let late = after(&mut protection, 2000, n, 1);
            assert!((low..=high).contains(&share(late)), "1 of {n}: {late:?}");
            assert!(!protection.is_lossless());
        }
        let all = after(&mut Protection::default(), 2000, 2, 1);
        assert!((share(all) - MOST).abs() < 0.01, "{all:?}");
    }

    #[test]
    fn a_loss_of_a_fifth_overwhelms_the_parity() {
        for (n, state) in [(8, ParityState::Lossy), (5, ParityState::Overwhelmed)] {
            let mut protection = Protection::default();
            after(&mut protection, 100, n, 1);
            assert_eq!(protection.state(), ParityState::Lossy, "too few are known");
            after(&mut protection, 1000, n, 1);
            assert_eq!(protection.state(), state, "1 of {n}");
        }
    }

    /// A proxy sends so many symbols for a window as its share of it.
    #[test]
    fn more_lost_in_a_row_than_symbols_are_not_rebuilt() {
        let mut protection = Protection::default();
        let wanted = after(&mut protection, 2000, 50, 4);
        protection.fell = None;
        let most = (1..100).take_while(|lost| protection.may_rebuild(*lost)).last();
        let symbols = share(wanted) * f64::from(wanted.window);
        assert_eq!(most, Some(14), "{symbols}");
        assert!((14.0..15.0).contains(&symbols), "{symbols}");
        // What was asked for before is still under way.
        let mut falls = Protection::default();
        let begin = now();
        let at = |protection: &mut Protection, judged, ms| {
            let listed = judged + 64;
            let counts = ParityCounts { listed, symbols: listed, judged, ..Default::default() };
            protection.wanted(counts, NEAR, begin + Duration::from_millis(ms));
            protection.may_rebuild(5)
        };
        let rebuilds = [(0, 0), (EARLY, 10), (EARLY, 49), (EARLY, 50)];
        assert_eq!(
            rebuilds.map(|(judged, ms)| at(&mut falls, judged, ms)),
            [true, true, true, false]
        );
    }

    #[test]
    fn bursts_widen_the_window() {
        assert_eq!(after(&mut Protection::default(), 2000, 25, 1).window, 30);
        assert_eq!(after(&mut Protection::default(), 2000, 100, 4).window, 60);
    }

    #[test]
    fn without_losses_little_is_asked_for() {
        let mut protection = Protection::default();
        assert!(!protection.is_lossless(), "nothing is known");
        let little = after(&mut protection, 2000, 1, 0);
        assert!(protection.is_lossless());
        assert!(share(little) < 0.035, "{little:?}");
        // Each datagram is in a window.
        assert!(f64::from(little.window) * share(little) >= 1.2, "{little:?}");
        // One that had not arrived ends that at once, before it is judged.
        let mut counts = protection.latest;
        (counts.listed, counts.absent) = (counts.listed + 1, counts.absent + 1);
        protection.wanted(counts, NEAR, now());
        assert!(!protection.is_lossless());
    }

    #[test]
    fn gaps_close_together_are_losses_before_the_proxy() {
        let mut protection = Protection::default();
        after(&mut protection, 1000, 1, 0);
        assert_eq!(protection.state(), ParityState::Quiet);
        // Numbers that the peer skips are far apart.
        for _ in 0..3 {
            protection.note_nothing();
            after(&mut protection, SKIPPED, 1, 0);
            assert_eq!(protection.state(), ParityState::Quiet);
        }
        protection.note_nothing();
        assert_eq!(protection.state(), ParityState::Quiet);
        protection.note_nothing();
        assert_eq!(protection.state(), ParityState::Lossless);
        after(&mut protection, LOST_FAR - 1, 1, 0);
        assert_eq!(protection.state(), ParityState::Lossless);
        after(&mut protection, 1, 1, 0);
        assert_eq!(protection.state(), ParityState::Quiet);
    }

    #[test]
    fn drops_of_a_queue_before_a_pause_request_no_parity() {
        for pauses in [false, true] {
            let mut protection = Protection::default();
            after(&mut protection, 1000, 1, 0);
            let mut counts = protection.latest;
            // A third of the last datagrams is lost. Not all are judged yet.
            (counts.listed, counts.judged) = (counts.listed + 300, counts.judged + 300);
            (counts.absent, counts.lost, counts.runs) = (100, 90, 90);
            if pauses {
                protection.pause();
            }
            protection.wanted(counts, NEAR, now());
            (counts.listed, counts.judged) = (counts.listed + 64, counts.judged + 64);
            (counts.lost, counts.runs) = (100, 100);
            let wanted = protection.wanted(counts, NEAR, now());
            assert_eq!(share(wanted) > 0.3, !pauses, "{wanted:?}");
            assert_eq!(protection.all.lost == 0, pauses, "{:?}", protection.all);
            protection.latest = counts;
            let later = after(&mut protection, 1000, 25, 1);
            assert!(share(later) > 0.1, "losses count again: {later:?}");
        }
    }

    #[test]
    fn another_session_counts_from_zero() {
        let mut protection = Protection::default();
        after(&mut protection, 2000, 10, 1);
        let next = protection.wanted(ParityCounts::default(), NEAR, now());
        assert!(share(next) > 0.25, "the path is the same: {next:?}");
        assert!(!protection.is_lossless());
    }

    #[test]
    fn a_flush_waits_longer_on_a_long_path() {
        let flush =
            |near| Protection::default().wanted(ParityCounts::default(), near, now()).flush_us;
        let ms = Duration::from_millis;
        assert_eq!([ms(20), ms(80), ms(560)].map(flush), [3000, 5000, 10_000]);
    }

    #[test]
    fn a_proxy_without_parity_is_given_up() {
        let (mut protection, begin) = (Protection::default(), now());
        for ms in 0..400 {
            protection.note_arrival();
            let at = begin + Duration::from_millis(ms);
            protection.wanted(ParityCounts::default(), NEAR, at);
            assert_eq!(protection.state() == ParityState::Unanswered, ms >= 260, "{ms}");
        }
        // Lists arrive, but no symbol: at half a symbol a datagram, 24 are owed after the 49th.
        let mut long = Protection::default();
        for listed in 1..100 {
            let counts = ParityCounts { listed, ..ParityCounts::default() };
            long.wanted(counts, NEAR, begin);
            assert_eq!(long.state() == ParityState::Unanswered, listed >= 49, "{listed}");
        }
        // After a pause, the lists of before go on until the proxy hears of it.
        let mut paused = Protection::default();
        after(&mut paused, 100, 1, 0);
        paused.pause();
        let mut counts = paused.latest;
        for (ms, unanswered) in [(0, false), (30, false), (259, false), (260, true)] {
            paused.wanted(counts, NEAR, begin + Duration::from_millis(ms));
            assert_eq!(paused.state() == ParityState::Unanswered, unanswered, "{ms}");
            counts.listed += 1000;
        }
        // The connection migrates to another proxy.
        protection.expect_answers();
        assert!(protection.state() != ParityState::Unanswered);
        // A burst long after the request, before its list is read.
        let mut burst = Protection::default();
        burst.wanted(ParityCounts::default(), NEAR, begin);
        let late = begin + Duration::from_secs(9);
        (0..1000).for_each(|_| burst.note_arrival());
        burst.wanted(ParityCounts::default(), NEAR, late);
        assert!(burst.state() != ParityState::Unanswered);
        // A pause in between, in which none is wanted.
        burst.pause();
        burst.wanted(ParityCounts::default(), NEAR, late + Duration::from_secs(1));
        assert!(burst.state() != ParityState::Unanswered);
        let mut answered = Protection::default();
        after(&mut answered, 10, 10, 1);
        for ms in 0..400 {
            answered.note_arrival();
            answered.wanted(answered.latest, NEAR, begin + Duration::from_millis(ms));
        }
        assert!(answered.state() != ParityState::Unanswered);
    }
}
