//! When quACKs leave: few while no packet is lost, those of the terms once one is, and reports of
//! overdue packets in a flow with a steady interval (SPEC.md, section 7.4).

use super::{Epoch, Established};
use crate::clock::{micros, scale};
use crate::sender::config::SenderConfig;
use crate::sender::effects::Context;
use crate::terms::Terms;
use crate::wire::{Schedule, Timing};
use std::time::{Duration, Instant};

/// The time without losses after which the sender requests fewer quACKs. It also lasts this many
/// near round trips and this many packets. The packets matter for a slow flow, which shows few
/// losses in a short time.
const QUIET: Duration = Duration::from_secs(2);
const QUIET_ROUNDS: u32 = 8;
const QUIET_PACKETS: u32 = 2000;
/// Each loss while quACKs are fewer doubles this number of packets, up to this power of two.
const MAX_LAPSES: u32 = 5;
/// The interval of quACKs grows by at most this factor.
const FACTOR: u32 = 4;
/// For quACKs by number of packets: the largest factor, and the largest number.
const FACTOR_PACKETS: u16 = 8;
const MOST_PACKETS: u16 = 16;
/// An interval has at most this many packets for each sum of a quACK. Then a quACK still has enough
/// sums if the path suddenly loses several percent.
const PACKETS_PER_SUM: u32 = 16;
/// A frugal sender asks for one quACK in so many packets, and for one in this time. It does so
/// after so many packets without a loss, but for the first time.
const FRUGAL_SHARE: u32 = 128;
/// It polls if twice as many are unreported.
pub(super) const FRUGAL_MOST: u16 = 256;
const FRUGAL_LONGEST: Duration = Duration::from_secs(2);
const FRUGAL_PACKETS: u32 = 256;
/// At intervals up to this one, the sender waits for each quACK instead of polling.
const LEAST: Duration = Duration::from_millis(1);
/// The proxy also reports a steady flow about this often, so that the sender detects a silent
/// proxy.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// The most packets of a steady flow between two quACKs.
const WATCH_PACKETS: u128 = 64;
/// For this many intervals, the proxy may still report a packet of a steady flow that was declared
/// lost.
const GRACE: u32 = 3;

/// The timing of the terms.
const TERMS: Timing = Timing { every_packets: 0, every: Duration::ZERO, interval: Duration::ZERO };

/// One quACK in this time, or that of the terms if that is longer.
fn at_least(terms: &Terms, every: Duration) -> Timing {
    let longer = terms.every.filter(|of_terms| *of_terms < every);
    longer.map_or(TERMS, |_| Timing { every, ..TERMS })
}

/// Fewer quACKs than the terms specify, but at least one per `longest`. Returns the timing of the
/// terms if this would save too little.
fn sparse(terms: &Terms, longest: Duration) -> Timing {
    let every = terms.every.unwrap_or_default();
    let longer = longest.min(every * FACTOR);
    if every <= LEAST || longer < 2 * every {
        return TERMS;
    }
    let packets = terms.every_packets.map_or(0, std::num::NonZeroU16::get);
    let every_packets = packets.saturating_mul(FACTOR_PACKETS).min(MOST_PACKETS).max(packets);
    Timing { every: longer, every_packets, ..TERMS }
}

/// Reports of overdue packets, in a flow whose packets leave at this interval.
fn watch(interval: Duration) -> Timing {
    let packets = WATCH_INTERVAL.as_micros().checked_div(interval.as_micros()).unwrap_or(1);
    let every_packets = u16::try_from(packets.clamp(1, WATCH_PACKETS)).unwrap_or(u16::MAX);
    Timing { every_packets, interval, ..TERMS }
}

/// The latest request of an epoch.
#[derive(Clone, Copy, Debug)]
struct Asked {
    timing: Timing,
    token: u16,
    again: Instant,
}

/// When the proxy reports.
#[derive(Debug, Default)]
pub(super) struct Scheduling {
    /// The timing that a flow without a steady interval deserves.
    wanted: Timing,
    /// That of the latest answered request. The proxy follows it unless a later request waits for
    /// its answer, and watches the flow by it if its interval is not zero.
    answered: Timing,
    asked: Option<Asked>,
    /// The longest interval of timed quACKs that the proxy may follow; 0 for that of the terms.
    longest: Duration,
    /// When the present time without losses began, and the count of the quACK at that time.
    quiet: Option<(Instant, u32)>,
    /// Losses while quACKs were fewer, at most [`MAX_LAPSES`].
    lapses: u32,
}

impl Scheduling {
    /// Resets the state, because an epoch begins with the timing of the terms.
    pub(super) fn begin_epoch(&mut self) {
        let lapses = self.lapses + u32::from(self.wanted != TERMS);
        *self = Self { lapses: lapses.min(MAX_LAPSES), ..Self::default() };
    }

    /// Records that the proxy answered the message with this token.
    pub(super) fn answered(&mut self, token: u16) {
        if let Some(asked) = self.asked.filter(|asked| asked.token == token) {
            self.answered = asked.timing;
            self.longest = asked.timing.every;
            self.asked = None;
        }
    }

    /// Whether the proxy follows this timing.
    fn follows(&self, timing: Timing) -> bool {
        self.asked.is_none() && self.answered == timing
    }

    /// The interval of the packets if the proxy watches the flow, and otherwise zero.
    pub(super) fn interval(&self) -> Duration {
        self.answered.interval
    }

    /// Whether the proxy reports overdue packets.
    pub(super) fn watches(&self) -> bool {
        !self.interval().is_zero()
    }

    /// While it does so, it also sends a quACK after this many packets.
    pub(super) fn watched_packets(&self) -> u16 {
        self.answered.every_packets
    }

    /// How much longer than in other flows the proxy may report a packet that was declared lost.
    pub(super) fn grace(&self) -> Duration {
        scale(self.interval(), GRACE, 1)
    }

    /// Returns to the timing of the terms, because a packet was lost or may be.
    pub(super) fn return_to_terms(&mut self) {
        self.quiet = None;
        if self.wanted != TERMS {
            self.wanted = TERMS;
            self.lapses = (self.lapses + 1).min(MAX_LAPSES);
        }
    }
}

impl Established {
    /// The interval of timed quACKs that the proxy follows, or the longest one that it may follow.
    pub(super) fn every(&self) -> Option<Duration> {
        self.granted.every.map(|every| every.max(self.scheduling.longest))
    }

    /// Requests the quACKs of the terms again.
    pub(in crate::sender) fn return_to_terms(&mut self) {
        self.scheduling.return_to_terms();
    }

    /// Whether a frugal sender lets packets pass without polls, because none was lost lately.
    pub(super) fn is_frugal(&self, config: &SenderConfig) -> bool {
        config.is_frugal_after().is_some()
            && self.scheduling.wanted != TERMS
            && self.scheduling.follows(self.scheduling.wanted)
    }

    /// The timing that the flow deserves now.
    fn wanted_timing(&self, config: &SenderConfig) -> Timing {
        let steady = config.steady.filter(|interval| *interval <= Timing::LONGEST_INTERVAL);
        let interval = Duration::from_micros(steady.map_or(0, micros).into());
        if interval.is_zero() { self.scheduling.wanted } else { watch(interval) }
    }

    /// When to ask for another timing. The sender waits until it can read the quACKs of the epoch.
    pub(super) fn schedule_at(&self, config: &SenderConfig) -> Option<Instant> {
        let scheduling = &self.scheduling;
        let wanted = self.wanted_timing(config);
        if scheduling.follows(wanted) {
            return None;
        }
        let Epoch { sequence, wanted_sums, .. } = self.epoch;
        if sequence.is_none() || wanted_sums > 0 || self.renewing.is_some() {
            return None;
        }
        if !wanted.interval.is_zero() {
            // Without both, the sender cannot tell when the proxy misses a packet.
            self.near_rtt.smoothed()?;
            self.reconciler.aligned_count()?;
        }
        let asked = scheduling.asked.filter(|asked| asked.timing == wanted);
        Some(asked.map_or(self.last_quack_at, |asked| asked.again))
    }

    /// Queues a SCHEDULE, which the proxy answers like a POLL.
    pub(super) fn ask_for_schedule(&mut self, context: &mut Context<'_>) {
        let Some((token, _)) = self.begin_poll(context) else { return };
        let timing = self.wanted_timing(context.config);
        let again = context.now + self.near_rtt.retry_interval();
        let scheduling = &mut self.scheduling;
        scheduling.asked = Some(Asked { timing, token, again });
        scheduling.longest = scheduling.longest.max(timing.every);
        self.queue.schedule = Some(Schedule { epoch: self.epoch.number, token, timing });
    }

    /// Handles a quACK of `count` packets that decoded and showed no loss.
    pub(super) fn note_quiet(&mut self, count: u32, config: &SenderConfig, now: Instant) {
        // A steady flow has a timing of its own.
        let is_steady = config.steady.is_some() || self.scheduling.watches();
        let longest = config.sparse.filter(|_| !is_steady).unwrap_or_default();
        let scheduling = &mut self.scheduling;
        let (since, from) = *scheduling.quiet.get_or_insert((now, count));
        let (time, packets) = (now.saturating_duration_since(since), count.wrapping_sub(from));
        if let Some(first) = config.is_frugal_after() {
            let every = scale(time, FRUGAL_SHARE, packets).min(FRUGAL_LONGEST);
            let is_frugal = scheduling.wanted != TERMS;
            let enough =
                if scheduling.lapses == 0 { first } else { FRUGAL_PACKETS << scheduling.lapses };
            // A small change is not worth a request.
            let differs =
                every > 2 * scheduling.wanted.every || scheduling.wanted.every > 2 * every;
            if (is_frugal || packets >= enough.max(1)) && differs {
                scheduling.wanted = at_least(&self.granted, every);
            }
            return;
        }
        let enough = PACKETS_PER_SUM * u32::from(self.granted.threshold);
        let longest = longest.min(scale(time, enough, packets));
        if scheduling.wanted != TERMS {
            // A small change is not worth a request.
            if scheduling.wanted.every > scale(longest, 3, 2) {
                scheduling.wanted = sparse(&self.granted, longest);
            }
            return;
        }
        if packets < QUIET_PACKETS << scheduling.lapses {
            return;
        }
        let rounds = QUIET_ROUNDS * self.near_rtt.smoothed().unwrap_or_default();
        if time >= QUIET.max(rounds) {
            scheduling.wanted = sparse(&self.granted, longest);
        }
    }
}
