//! Copies of the reverse flow: the sender asks the proxy to keep them, and requests them (SPEC.md,
//! section 7.10).

use super::Established;
use super::parity::ReceivedParity;
use crate::clock::{Spacing, earlier, scale};
use crate::keys::Link;
use crate::sender::effects::Context;
use crate::sender::fetcher::{Asked, Fetcher, MAX_WANTED, NotAsked};
use crate::sender::status::{HandleError, SenderStats};
use crate::wire::discovery::{Answer, HANDLE_LEN, NONCE_LEN};
use crate::wire::{Cookie, Keep, MAX_RANGES, Message, Part, Range, Ranges, Repeat, Request};
use sidekick_parity::Origin;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The interval between two KEEPs doubles with every second one, at most this often.
const MAX_DOUBLINGS: u32 = 9;
/// The sender sends this many KEEPs with a proof at once. If all of them or their answers are lost,
/// the proxy keeps no copies of the first data.
const TIMES_WITH_PROOF: usize = 2;
/// The longest interval between two KEEPs, unless the near RTT is longer.
const MAX_INTERVAL: Duration = Duration::from_secs(1);
/// The most requests that wait to be sent: as many as name all ranges that are wanted, twice.
const MAX_REQUESTS: usize = 2 * MAX_WANTED.div_ceil(MAX_RANGES);
/// The interval of near RTT measurements while the reverse flow is active. The sender must detect a
/// queue before it grows.
pub(super) const MEASURE: Duration = Duration::from_millis(25);
/// Where datagrams are far apart, the sender measures the near RTT once in this many of them.
const MEASURED: u32 = 8;
/// The same for a frugal sender that has missed no datagram for some time: at first the shortest of
/// these, and after each datagram that it misses then, twice as long, up to the longest.
const MEASURE_RARELY: Duration = Duration::from_secs(3);
const MISSED: Duration = Duration::from_secs(10);
const MISSED_LONGEST: Duration = Duration::from_secs(320);
/// Behind such a time, this many samples must show that no queue grows before copies are requested.
const SAMPLES: u32 = 3;
/// Where these take longer, what a list shows is requested at once.
const SAMPLED_WITHIN: Duration = Duration::from_millis(15);
/// With parity, the sender ignores TAILs this soon after a datagram. Parity of the
/// last datagrams arrives sooner than copies.
const PARITY_PATIENCE: Duration = Duration::from_millis(20);
/// Parity of datagrams that are farther apart than this arrives later than a copy.
const SPACED: Duration = Duration::from_millis(4);
/// If a message may overtake a datagram by more than this, a TAIL right after a datagram shows no
/// loss. This applies where datagrams are farther apart than [`SPACED`].
const CALM: Duration = Duration::from_millis(4);
/// Requests wait for late datagrams for so many times that a copy takes, at most.
const PATIENCE: u32 = 2;
/// For this time after congestion, the sender ignores TAILs, and drops what parity rebuilds.
const CONGESTED: Duration = Duration::from_millis(100);
/// With a second link, the proxy is to keep copies for as long as it may: it takes time to see that
/// the first one is silent. A datagram that arrived longer ago may not be among them.
pub(in crate::sender) const KEEP_LONG: Duration = Duration::from_secs(1);
const KEPT_FOR: Duration = Duration::from_millis(700);
/// The reverse flow is active if a datagram arrived within this time.
const ACTIVE: Duration = Duration::from_millis(100);

/// Whether the proxy keeps copies.
#[derive(Clone, Copy, Debug, Default)]
enum Agreement {
    /// The sender wants none.
    #[default]
    Unwanted,
    /// The sender asks for copies.
    Asked { keep: Keep, again: Instant, keeps: u32 },
    /// The proxy keeps them.
    Kept,
    /// The proxy keeps none.
    Refused,
}

/// A session's state for the reverse flow.
#[derive(Debug, Default)]
pub(in crate::sender) struct Keeping {
    agreement: Agreement,
    pub(in crate::sender) fetcher: Fetcher,
    /// The sender requests no copies at present.
    paused: bool,
    /// The KEEP that waits to be sent, and how many times.
    keep_waits: Option<(Keep, usize)>,
    /// Requests that wait to be sent, each by its link.
    requests: VecDeque<(Link, Asked)>,
    /// When the newest datagram of the reverse flow arrived, and its identifier.
    latest: Option<(Instant, u32)>,
    /// For a frugal sender: when it last missed a datagram, for how long it then measures often,
    /// and how many samples must come before it requests copies.
    missed: Option<Instant>,
    misses_for: Duration,
    samples_left: u32,
    /// The datagram that the latest TAIL named. A TAIL may overtake datagrams, so where none has
    /// been missing for some time, only another one shows that it is.
    named: Option<u32>,
    spacing: Spacing,
    /// When congestion was last found on the near segment.
    congested: Option<Instant>,
    pub(in crate::sender) protection: ReceivedParity,
}

impl Keeping {
    /// When [`Established::on_keeping_timeout`] is due.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let keep = match self.agreement {
            Agreement::Asked { again, .. } => Some(again),
            _ => None,
        };
        // Requests wait for samples.
        let fetch = self.fetcher.poll_timeout().filter(|_| self.samples_left == 0);
        earlier(keep, fetch)
    }

    /// When to measure the near RTT again after the latest sample or poll, at `last`; with
    /// `rarely`, only rarely while no datagram is missing.
    pub(super) fn measure_at(&self, last: Instant, rarely: bool) -> Option<Instant> {
        let (latest, _) = self.latest?;
        if rarely && !self.misses(latest) {
            let at = last + MEASURE_RARELY;
            return (self.is_kept() && at <= latest + ACTIVE).then_some(at);
        }
        let few = self.spacing.least_above(MEASURE / MEASURED) * MEASURED;
        let at = last + MEASURE.max(few);
        (self.is_kept() && at <= latest + ACTIVE.max(few)).then_some(at)
    }

    /// When the newest datagram of the reverse flow arrived.
    pub(super) fn latest_at(&self) -> Option<Instant> {
        self.latest.map(|(at, _)| at)
    }

    /// Whether a datagram was missing not long before.
    fn misses(&self, now: Instant) -> bool {
        self.missed.is_some_and(|missed| now < missed + self.misses_for)
    }

    /// Notes for a frugal sender that a datagram is missing. Returns whether that is the first for
    /// some time.
    fn note_missing(&mut self, now: Instant) -> bool {
        let is_first = !self.misses(now);
        if is_first {
            self.misses_for = (2 * self.misses_for).clamp(MISSED, MISSED_LONGEST);
            self.samples_left = SAMPLES;
        }
        self.missed = Some(now);
        is_first
    }

    /// Whether requests wait for samples of the near RTT.
    pub(super) fn awaits_samples(&self) -> bool {
        self.samples_left > 0
    }

    fn is_kept(&self) -> bool {
        matches!(self.agreement, Agreement::Kept)
    }

    /// Whether the proxy keeps copies, or will when a KEEP with a proof arrives.
    pub(super) fn may_be_kept(&self) -> bool {
        match self.agreement {
            Agreement::Kept => true,
            Agreement::Asked { keep, .. } => keep.cookie != Cookie::NONE,
            Agreement::Unwanted | Agreement::Refused => false,
        }
    }

    /// Whether no message waits to be sent.
    #[inline]
    pub(super) fn is_silent(&self) -> bool {
        self.keep_waits.is_none() && !self.protection.waits() && self.requests.is_empty()
    }

    /// The next message that waits to be sent, and its link. A REQUEST borrows from `asked`.
    pub(super) fn next_message<'a>(
        &mut self,
        asked: &'a mut Option<Asked>,
    ) -> Option<(Link, Message<'a>)> {
        if let Some((keep, times)) = self.keep_waits.take() {
            self.keep_waits = times.checked_sub(2).map(|left| (keep, left + 1));
            return Some((Link::First, Message::Keep(keep)));
        }
        if let Some(protect) = self.protection.take_message() {
            return Some((Link::First, Message::Protect(protect)));
        }
        let (link, next) = self.requests.pop_front()?;
        let asked = asked.insert(next);
        let ranges = Ranges::new(asked.ranges());
        Some((link, Message::Request(Request { number: asked.number, ranges })))
    }
}

impl Established {
    /// Whether the proxy keeps copies of the reverse flow.
    pub(in crate::sender) fn keeps(&self) -> bool {
        self.keeping.is_kept()
    }

    /// Whether the proxy keeps copies of the reverse flow, or will soon.
    pub(in crate::sender) fn may_keep(&self) -> bool {
        self.keeping.may_be_kept()
    }

    /// Whether the proxy was asked to keep copies of the reverse flow.
    pub(in crate::sender) fn has_asked_to_keep(&self) -> bool {
        !matches!(self.keeping.agreement, Agreement::Unwanted)
    }

    /// Whether copies are requested: the proxy keeps them, and nothing pauses the requests.
    pub(in crate::sender) fn fetches(&self) -> bool {
        self.keeping.is_kept() && !self.keeping.paused
    }

    /// Asks the proxy to keep copies for `age`. The answer on the path repeats `handle`. `nonce`
    /// must be random: it shows that an answer is the proxy's.
    pub(in crate::sender) fn ask_to_keep(
        &mut self,
        age: Duration,
        handle: [u8; HANDLE_LEN],
        nonce: [u8; NONCE_LEN],
        now: Instant,
    ) {
        let age_ms = u16::try_from(age.as_millis()).unwrap_or(u16::MAX).max(1);
        let keep = Keep { age_ms, handle, nonce, cookie: Cookie::NONE };
        self.keep(keep, 1, now);
    }

    fn keep(&mut self, keep: Keep, keeps: u32, now: Instant) {
        let has_proof = keep.cookie != Cookie::NONE;
        self.keeping.keep_waits = Some((keep, if has_proof { TIMES_WITH_PROOF } else { 1 }));
        if has_proof {
            self.keeping.protection.ask_again(now);
        }
        // The first intervals are short, because a handshake is under way. Then they double.
        let doubled = 1 << (keeps / 2).min(MAX_DOUBLINGS);
        let timeout = self.near_rtt.keep_interval();
        let again = now + scale(timeout, doubled, 1).min(MAX_INTERVAL.max(timeout));
        self.keeping.agreement = Agreement::Asked { keep, again, keeps };
    }

    /// Uses the cookie of an answer on the path, if the answer belongs to this session's KEEP.
    /// Returns whether it does.
    pub(in crate::sender) fn on_path_answer(&mut self, answer: &Answer, now: Instant) -> bool {
        let Agreement::Asked { keep, .. } = self.keeping.agreement else { return false };
        let matches = answer.nonce == keep.nonce;
        // The proxy answers a KEEP with an expired cookie by a new cookie.
        if matches && keep.cookie != answer.cookie {
            self.keep(Keep { cookie: answer.cookie, ..keep }, 1, now);
        }
        matches
    }

    /// Sets whether copies are requested.
    pub(in crate::sender) fn set_fetching(&mut self, fetching: bool) {
        let before = std::mem::replace(&mut self.keeping.paused, !fetching);
        // While requests are paused, the fetcher wants nothing.
        if !fetching && !before {
            self.keeping.fetcher.clear();
            self.keeping.requests.clear();
        }
    }

    /// Records the newest datagram of the reverse flow that arrived.
    pub(in crate::sender) fn on_progress(&mut self, identifier: u32, now: Instant) {
        // The caller may pass the same datagram again.
        if self.keeping.latest.is_none_or(|(_, latest)| latest != identifier) {
            self.keeping.latest = Some((now, identifier));
            self.keeping.spacing.note(now);
        }
    }

    /// How long requests wait for late datagrams at most.
    pub(in crate::sender) fn longest_patience(&self) -> Duration {
        PATIENCE * self.near_rtt.copy_timeout()
    }

    /// Requests the datagrams in a gap of the reverse flow from `due` on, which the receiver gives
    /// up at `until`. `is_listed` says that a list showed it.
    pub(in crate::sender) fn want(
        &mut self,
        gap: u64,
        range: Range,
        (due, until): (Instant, Instant),
        is_listed: bool,
        context: &mut Context<'_>,
    ) {
        // What waits for the copy can hardly wait for long samples, too.
        let near = self.near_rtt.smoothed().unwrap_or_default();
        if !is_listed || SAMPLES * near <= SAMPLED_WITHIN {
            self.note_missing(context);
        }
        self.keeping.fetcher.want(gap, range, due, until);
        self.request(context.stats, context.now);
    }

    /// Requests the datagrams in a gap once or twice, to learn whether the proxy has them.
    pub(in crate::sender) fn ask_about(
        &mut self,
        gap: u64,
        range: Range,
        context: &mut Context<'_>,
    ) {
        self.note_missing(context);
        self.keeping.fetcher.ask_about(gap, range, context.now);
        self.request(context.stats, context.now);
    }

    /// Gives up all gaps: the near segment is congested, and copies would make it worse.
    pub(in crate::sender) fn on_congestion(&mut self, now: Instant) {
        self.keeping.congested = Some(now);
        self.keeping.fetcher.give_up();
        self.keeping.requests.clear();
    }

    /// Whether the near segment was congested a short time ago.
    pub(in crate::sender) fn is_congested(&self, now: Instant) -> bool {
        self.keeping.congested.is_some_and(|at| now < at + CONGESTED)
    }

    /// Notes that a datagram is missing. A frugal sender begins to measure.
    fn note_missing(&mut self, context: &mut Context<'_>) {
        if context.config.is_frugal_after().is_some() && self.keeping.note_missing(context.now) {
            self.poll(context);
        }
    }

    /// Notes a sample of the near RTT. It may be the last one before copies are requested.
    pub(super) fn note_sample(&mut self, context: &mut Context<'_>) {
        if let Some(left) = self.keeping.samples_left.checked_sub(1) {
            self.keeping.samples_left = left;
            self.request(context.stats, context.now);
        }
    }

    /// Queues the requests that are due.
    fn request(&mut self, stats: &mut SenderStats, now: Instant) {
        let link = self.link_of_repairs(now);
        let retry = self.copy_timeout(link);
        while self.keeping.samples_left == 0
            && self.keeping.requests.len() + 1 < MAX_REQUESTS
            && let Some(asked) = self.keeping.fetcher.poll_request(retry, now)
        {
            self.last_message_at = now;
            for message in [Some(asked), asked.again()].into_iter().flatten() {
                stats.repeats_requested += u64::try_from(message.ranges().len()).unwrap_or(0);
                self.keeping.requests.push_back((link, message));
                self.second.note_use(link);
            }
        }
    }

    /// Handles a KEPT, which answers a KEEP or changes that answer. It changes nothing if the
    /// sender did not ask.
    pub(super) fn on_kept(&mut self, age_ms: u16, now: Instant) {
        self.keeping.agreement = match (self.keeping.agreement, age_ms) {
            (Agreement::Unwanted, _) => Agreement::Unwanted,
            (_, 0) => Agreement::Refused,
            _ => Agreement::Kept,
        };
        if self.keeping.is_kept() {
            self.keeping.protection.ask_unless_answered(now);
        } else {
            self.keeping.protection = ReceivedParity::default();
            self.keeping.fetcher.give_up();
            self.keeping.requests.clear();
        }
    }

    /// Handles a copy.
    pub(super) fn on_repeat(
        &mut self,
        copy: &Repeat<'_>,
        context: &mut Context<'_>,
    ) -> Result<(), HandleError> {
        let retry = self.copy_timeout(self.link_of_repairs(context.now));
        let joined = match copy.part {
            Part::Whole => None,
            Part::First | Part::Second => match self.keeping.fetcher.join(copy) {
                Ok(Some(joined)) => Some(joined),
                Ok(None) => return Ok(()),
                Err(NotAsked) => {
                    context.stats.malformed += 1;
                    return Err(HandleError::Outdated);
                }
            },
        };
        let datagram = joined.as_deref().unwrap_or(copy.datagram);
        let copy = &Repeat { datagram, ..*copy };
        let identifier = self.granted.identification.position.of_copy(copy.datagram);
        let longest = context.effects.longest_copy;
        if !self.keeping.fetcher.on_repeat(copy, identifier, longest, retry, context.now) {
            context.stats.malformed += 1;
            return Err(HandleError::Outdated);
        }
        context.stats.repeats_received += 1;
        self.on_arrival(copy.datagram, Origin::Copy);
        context.effects.joined = joined;
        self.request(context.stats, context.now);
        Ok(())
    }

    /// Handles a report that the proxy has no datagram in these ranges of a request.
    pub(super) fn on_nothing(&mut self, number: u16, ranges: u16) {
        self.keeping.fetcher.on_nothing(number, ranges);
    }

    /// Handles a report that the reverse flow is silent.
    pub(super) fn on_tail(&mut self, last: u32, context: &mut Context<'_>) {
        let latest = self.keeping.latest.map(|(_, identifier)| identifier);
        let spaced = self.keeping.spacing.least_above(SPACED);
        let is_due = self.keeping.latest.is_none_or(|(at, _)| {
            if spaced.is_zero() {
                // Parity of the last datagrams may be in flight.
                let patience = if self.is_protected() { PARITY_PATIENCE } else { Duration::ZERO };
                return at + patience <= context.now;
            }
            // Jitter may delay the latest datagram by more than the proxy waited.
            let is_calm = self.near_rtt.overtaking_by_jitter().is_none_or(|time| time <= CALM);
            is_calm || at + scale(spaced, 3, 2) <= context.now
        });
        // A frugal sender asks for nothing that came before its flow had a datagram.
        let is_congested = self.is_congested(context.now);
        let has_begun = latest.is_some() || context.config.is_frugal_after().is_none();
        let is_frugal =
            context.config.is_frugal_after().is_some() && !self.keeping.misses(context.now);
        let is_news = self.keeping.named.replace(last) != Some(last);
        if is_frugal && is_news {
            return;
        }
        if self.fetches() && !is_congested && is_due && has_begun && latest != Some(last) {
            self.note_missing(context);
            self.keeping.fetcher.want_tail(latest, context.now);
            self.request(context.stats, context.now);
        }
    }

    /// Requests what passed the proxy behind the newest datagram that arrived, by the second link.
    /// Congestion of the first does not matter.
    pub(in crate::sender) fn fetch_tail(&mut self, context: &mut Context<'_>) {
        // The proxy does not keep an older one any longer.
        let latest = self.keeping.latest.filter(|(at, _)| context.now < *at + KEPT_FOR);
        let latest = latest.map(|(_, identifier)| identifier);
        if self.keeping.is_kept() {
            self.keeping.fetcher.want_newer(latest, context.now);
            self.request(context.stats, context.now);
        }
    }

    /// Seals any message, also one that a sender does not send.
    #[cfg(test)]
    pub(in crate::sender) fn seal_for_test(
        &mut self,
        message: &Message<'_>,
        out: &mut [u8],
    ) -> usize {
        self.seal.seal(Link::First, self.remote_number, message, out).unwrap_or(0)
    }

    /// Queues the KEEP and the requests that are due.
    pub(super) fn on_keeping_timeout(&mut self, context: &mut Context<'_>) {
        let now = context.now;
        if let Agreement::Asked { keep, again, keeps } = self.keeping.agreement
            && again <= now
        {
            self.keep(keep, keeps.saturating_add(1), now);
        }
        self.request(context.stats, now);
    }
}
