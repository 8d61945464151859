//! Fewer quACKs while no packet is lost, and those of the terms once one is (SPEC.md, section 7.4).

use super::{Epoch, Established};
use crate::clock::{micros, scale};
use crate::sender::config::SenderConfig;
use crate::sender::effects::Context;
use crate::terms::Terms;
use crate::wire::Pace;
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
/// The most requests in an epoch without an answer. A proxy that does not support PACE drops it.
const ATTEMPTS: u32 = 5;

/// When quACKs leave. The default stands for the schedule of the terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Schedule {
    every: Duration,
    every_packets: u16,
}

impl Schedule {
    const TERMS: Self = Self { every: Duration::ZERO, every_packets: 0 };

    /// One quACK in this time, or that of the terms if that is longer.
    fn at_least(terms: &Terms, every: Duration) -> Self {
        let longer = terms.every.filter(|of_terms| *of_terms < every);
        longer.map_or(Self::TERMS, |_| Self { every, every_packets: 0 })
    }

    /// A schedule with fewer quACKs than the terms specify, but at least one per `longest`. Returns
    /// that of the terms if it would save too little.
    fn sparse(terms: &Terms, longest: Duration) -> Self {
        let every = terms.every.unwrap_or_default();
        let longer = longest.min(every * FACTOR);
        if every <= LEAST || longer < 2 * every {
            return Self::TERMS;
        }
        let packets = terms.every_packets.map_or(0, std::num::NonZeroU16::get);
        let every_packets = packets.saturating_mul(FACTOR_PACKETS).min(MOST_PACKETS).max(packets);
        Self { every: longer, every_packets }
    }
}

/// The latest request of an epoch.
#[derive(Clone, Copy, Debug)]
struct Asked {
    schedule: Schedule,
    token: u16,
    again: Instant,
}

/// How often the proxy reports.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    wanted: Schedule,
    /// The schedule that the proxy follows; `None` between a request and its answer.
    agreed: Option<Schedule>,
    asked: Option<Asked>,
    /// Requests in this epoch since an answer.
    unanswered: u32,
    /// The longest interval that the proxy may follow; 0 for that of the terms.
    longest: Duration,
    /// The proxy has answered a PACE.
    is_supported: bool,
    /// When the present time without losses began, and the count of the quACK at that time.
    quiet: Option<(Instant, u32)>,
    /// Losses while quACKs were fewer, at most [`MAX_LAPSES`].
    lapses: u32,
}

impl Pacing {
    /// Resets the state, because an epoch begins with the schedule of the terms.
    pub(super) fn begin_epoch(&mut self) {
        let Self { is_supported, lapses, .. } = *self;
        let lapses = lapses + u32::from(self.wanted != Schedule::TERMS);
        *self = Self { is_supported, lapses: lapses.min(MAX_LAPSES), ..Self::default() };
    }

    /// Records that the proxy answered the message with this token.
    pub(super) fn answered(&mut self, token: u16) {
        if let Some(asked) = self.asked.filter(|asked| asked.token == token) {
            self.agreed = Some(asked.schedule);
            self.longest = asked.schedule.every;
            (self.asked, self.unanswered, self.is_supported) = (None, 0, true);
        }
    }

    /// Returns to the schedule of the terms, because a packet was lost or may be.
    pub(super) fn return_to_terms(&mut self) {
        self.quiet = None;
        if self.wanted != Schedule::TERMS {
            self.wanted = Schedule::TERMS;
            self.lapses = (self.lapses + 1).min(MAX_LAPSES);
        }
    }
}

impl Established {
    /// The interval of timed quACKs that the proxy follows, or the longest one that it may follow.
    pub(super) fn every(&self) -> Option<Duration> {
        let longest = if self.pacing.is_supported { self.pacing.longest } else { Duration::ZERO };
        self.granted.every.map(|every| every.max(longest))
    }

    /// Requests the quACKs of the terms again.
    pub(in crate::sender) fn return_to_terms(&mut self) {
        self.pacing.return_to_terms();
    }

    /// Whether a frugal sender lets packets pass without polls, because none was lost lately.
    pub(super) fn is_frugal(&self, config: &SenderConfig) -> bool {
        config.frugal.is_some()
            && self.pacing.wanted != Schedule::TERMS
            && self.pacing.agreed == Some(self.pacing.wanted)
    }

    /// When to request fewer quACKs, or those of the terms again.
    pub(super) fn pace_at(&self) -> Option<Instant> {
        let pacing = &self.pacing;
        if pacing.agreed.unwrap_or_default() == pacing.wanted && pacing.asked.is_none() {
            return None;
        }
        let Epoch { sequence, wanted_sums, .. } = self.epoch;
        if sequence.is_none() || wanted_sums > 0 || self.renewing.is_some() {
            return None;
        }
        if pacing.unanswered >= ATTEMPTS && !pacing.is_supported {
            return None;
        }
        let asked = pacing.asked.filter(|asked| asked.schedule == pacing.wanted);
        Some(asked.map_or(self.last_quack_at, |asked| asked.again))
    }

    /// Queues a PACE, which the proxy answers like a POLL.
    pub(super) fn ask_for_pace(&mut self, context: &mut Context<'_>) {
        let Some((token, _)) = self.begin_poll(context) else { return };
        let again = context.now + self.near_rtt.retry_interval();
        let pacing = &mut self.pacing;
        let schedule = pacing.wanted;
        pacing.asked = Some(Asked { schedule, token, again });
        pacing.agreed = None;
        pacing.longest = pacing.longest.max(schedule.every);
        pacing.unanswered = pacing.unanswered.saturating_add(1);
        self.pace_waits = Some(Pace {
            epoch: self.epoch.number,
            token,
            every_packets: schedule.every_packets,
            every_us: micros(schedule.every),
        });
    }

    /// Handles a quACK of `count` packets that decoded and showed no loss.
    pub(super) fn note_quiet(&mut self, count: u32, config: &SenderConfig, now: Instant) {
        // A steady flow requests fewer quACKs by STEADY.
        let longest = config.sparse.filter(|_| config.steady.is_none());
        let longest = longest.filter(|_| !self.epoch.steady.holds()).unwrap_or_default();
        let pacing = &mut self.pacing;
        let (since, from) = *pacing.quiet.get_or_insert((now, count));
        let (time, packets) = (now.saturating_duration_since(since), count.wrapping_sub(from));
        if let Some(first) = config.frugal {
            let every = scale(time, FRUGAL_SHARE, packets).min(FRUGAL_LONGEST);
            let is_frugal = pacing.wanted != Schedule::TERMS;
            let enough = if pacing.lapses == 0 { first } else { FRUGAL_PACKETS << pacing.lapses };
            // A small change is not worth a request.
            let differs = every > 2 * pacing.wanted.every || pacing.wanted.every > 2 * every;
            if (is_frugal || packets >= enough.max(1)) && differs {
                pacing.wanted = Schedule::at_least(&self.granted, every);
            }
            return;
        }
        let enough = PACKETS_PER_SUM * u32::from(self.granted.threshold);
        let longest = longest.min(scale(time, enough, packets));
        if pacing.wanted != Schedule::TERMS {
            // A small change is not worth a request.
            if pacing.wanted.every > scale(longest, 3, 2) {
                pacing.wanted = Schedule::sparse(&self.granted, longest);
            }
            return;
        }
        if packets < QUIET_PACKETS << pacing.lapses {
            return;
        }
        let rounds = QUIET_ROUNDS * self.near_rtt.smoothed().unwrap_or_default();
        if time >= QUIET.max(rounds) {
            pacing.wanted = Schedule::sparse(&self.granted, longest);
        }
    }
}
