//! Repairs of a flow: which lost packets the agent sends again, and what it sends to the proxy.

use std::mem;
use std::time::{Duration, Instant};

use sidekick_protocol::{Assistance, Lost, MAX_DATAGRAM_LEN, Route};

use super::super::claims::{Counts, Trust, Trusts};
use super::super::journal::Withheld;
use super::super::outbox::Outbox;
use super::super::report::Totals;
use super::super::terms::frugal_after;
use super::{HelpedFlow, MAX_AGE, REST};

/// The agent sends a repair twice for this many of a flow's first packets, if its sender slows
/// down. The repair of a lost repair would be late, and one loss then ends slow start. Later,
/// second copies would take bandwidth from a full far segment.
const TWICE: u64 = 200;
/// The tag of a repair's second copy has this bit. The loss of that copy needs no repair.
const SECOND: u64 = 1 << 63;
/// How long the agent sends no repairs after a queue grew before the proxy.
const CONGESTION_PAUSE: Duration = Duration::from_millis(100);
/// If a queue grows for this long, the agent's own messages may fill it. The agent then pauses the
/// help for the flow.
const FULL: Duration = Duration::from_secs(1);
/// After this many losses, the agent decides whether the link reorders packets.
const JUDGED: u64 = 64;
/// In a flow whose packets overtake each other, a missing packet counts as lost after this many
/// later ones, as in senders (RFC 9002, section 6.1.1).
const REORDERED: u32 = 3;
const LONGEST_REST: Duration = Duration::from_secs(320);

impl HelpedFlow {
    /// Completes an input: sends lost packets again, and the messages that the sender has ready.
    pub(in super::super) fn flush(
        &mut self,
        (outbox, scratch): (&mut Outbox, &mut Vec<u64>),
        trusts: &mut Trusts,
        totals: &mut Totals,
        now: Instant,
    ) {
        self.note_queue(now);
        self.note_assistance(totals);
        if self.has_session {
            self.repeat_uncounted(outbox, totals, now);
        }
        // The sender keeps reported packets until a caller takes them. The agent does not need
        // them.
        scratch.clear();
        self.sender.drain_received(scratch);
        self.repair_lost(outbox, trusts, totals, now);
        self.settle_order(outbox, totals, now);
        // No packet waits for another gap that the proxy cannot fill.
        scratch.clear();
        self.sender.drain_unfilled(scratch);
        self.transmit(outbox, totals, now);
    }

    fn note_assistance(&mut self, totals: &mut Totals) {
        let assistance = self.sender.assistance();
        if !self.was_assisted && assistance == Assistance::Assisted {
            self.was_assisted = true;
            totals.flows_assisted += 1;
        }
        let Self { journal, sender, .. } = self;
        journal
            .note(assistance, self.rests_until.is_some(), || (sender.proxy(), sender.near_rtt()));
        let has_proxy = !matches!(assistance, Assistance::Unassisted(_));
        self.has_session = has_proxy && self.sender.session_numbers().next().is_some();
    }

    /// Sends lost packets again, if nothing speaks against it.
    fn repair_lost(
        &mut self,
        outbox: &mut Outbox,
        trusts: &mut Trusts,
        totals: &mut Totals,
        now: Instant,
    ) {
        let mut lost = mem::take(&mut self.found_lost);
        self.sender.drain_lost(&mut lost);
        lost.retain(|lost| lost.tag & SECOND == 0);
        let count = lost.len() as u64;
        self.lost += count;
        totals.lost += count;
        if count > 0 {
            self.judge_losses();
        }
        let proxy = self.sender.proxy().map(|(proxy, _)| proxy);
        let mut trust = None;
        match proxy {
            Some(proxy) => {
                trusts.note(self.news.1);
                trust = Some(trusts.of(proxy, now));
            }
            None => (self.news, self.is_unbelieved) = (Default::default(), false),
        }
        if let Some(trust) = &mut trust
            && self.report(trust, count, now)
        {
            self.sender.poll_now(now);
        }
        let withheld = self.withheld(now);
        if self.reception.is_some() || self.order.is_some() {
            self.sender.set_fetching(withheld.is_none() && self.may_receive(now));
        }
        if count > 0
            && let Some(why) = withheld
        {
            self.journal.note_withheld(why);
        }
        match withheld {
            None => {
                let twice = self.kind().slows_down();
                for Lost { tag, congestion, .. } in lost.drain(..) {
                    self.leaves.on_lost(!congestion, &mut self.sender, now);
                    if congestion {
                        totals.withheld_congested += 1;
                        continue;
                    }
                    let names = [tag, tag | SECOND];
                    let names = if twice && tag < TWICE { &names[..] } else { &names[..1] };
                    self.repair(tag, names, trust.as_deref_mut(), outbox, totals, now);
                }
            }
            Some(Withheld::Unbelieved) => totals.withheld_late += count,
            Some(Withheld::Congested) => totals.withheld_congested += count,
            Some(Withheld::Far | Withheld::Unmeasured) => totals.withheld_far += count,
        }
        lost.clear();
        self.found_lost = lost;
        let repairs = withheld.is_none() && self.kind().minds_order();
        self.leaves.update(repairs, self.rtt(), &mut self.sender, now);
    }

    /// Sends the messages and markers that the sender has ready.
    fn transmit(&mut self, outbox: &mut Outbox, totals: &mut Totals, now: Instant) {
        let mut message = [0; MAX_DATAGRAM_LEN];
        while let Some(transmit) = self.sender.poll_transmit(&mut message) {
            let message = message.get(..transmit.size).unwrap_or_default();
            match transmit.route {
                // The marker is lost.
                Route::Path { .. } if !self.may_mark(now) => {}
                Route::Path { .. } => {
                    totals.markers += 1;
                    self.under_way.push_marker(message);
                    outbox.push_frame(&self.template, message);
                }
                Route::Session | Route::Stranger { .. } => {
                    totals.messages += 1;
                    totals.message_bytes += message.len() as u64;
                    let about = (self.interface(), self.flow.source.ip());
                    outbox.push_message(transmit.destination, about, message);
                }
            }
        }
    }

    /// Sends the handshake's packets again that left before a proxy counted the flow. No quACK will
    /// report whether they arrived. The agent has asked a proxy: one that answered a marker, or at
    /// once the one that the operator has named.
    fn repeat_uncounted(&mut self, outbox: &mut Outbox, totals: &mut Totals, now: Instant) {
        let mut uncounted = mem::take(&mut self.uncounted);
        for tag in uncounted.drain(..) {
            self.repair(tag, &[tag | SECOND], None, outbox, totals, now);
        }
        self.uncounted = uncounted;
    }

    /// Sends a datagram again, once for each of these names.
    fn repair(
        &mut self,
        tag: u64,
        names: &[u64],
        mut trust: Option<&mut Trust>,
        outbox: &mut Outbox,
        totals: &mut Totals,
        now: Instant,
    ) {
        for name in names.iter().copied() {
            if !self.under_way.has_room(MAX_AGE, now) {
                totals.withheld_late += u64::from(name == tag);
                return;
            }
            let Some(payload) = self.store.get_for_resend(tag, now) else {
                totals.withheld_late += u64::from(name == tag);
                return;
            };
            let len = payload.len();
            if trust.as_mut().is_some_and(|trust| !trust.spend(len)) {
                totals.withheld_late += u64::from(name == tag);
                self.store.refund(len);
                return;
            }
            if outbox.push_frame(&self.template, payload) {
                self.resent += 1;
                self.news.0.packets += 1;
                totals.resent += 1;
                totals.resent_bytes += len as u64;
                self.under_way.push_repair(name, payload, now);
            } else {
                self.store.refund(len);
            }
        }
    }

    /// Asks a proxy for help again after a pause.
    pub(super) fn wake(&mut self, now: Instant) {
        if self.rests_until.take_if(|until| *until <= now).is_some() {
            (self.full_since, self.woke) = (None, Some(now));
            self.sender.start(self.flow, now);
        }
    }

    /// Notes whether a queue grows. Pauses the help if it grows for long.
    fn note_queue(&mut self, now: Instant) {
        if !self.sender.near_queue_grows() && !self.sender.keeper_queue_grows() {
            self.full_since = None;
            return;
        }
        self.congested_until = Some(now + CONGESTION_PAUSE);
        if self.rests_until.is_none() && *self.full_since.get_or_insert(now) + FULL <= now {
            if self.woke.is_some_and(|woke| woke + self.rest <= now) {
                self.rest = REST;
            }
            self.rests_until = Some(now + self.rest);
            self.rest = (2 * self.rest).min(LONGEST_REST);
            self.sender.stop();
        }
    }

    /// Tells the proxy's trust what is new. Returns whether the agent has to poll.
    fn report(&mut self, trust: &mut Trust, lost: u64, now: Instant) -> bool {
        let stats = self.sender.stats();
        let (polls, answers) = mem::replace(&mut self.polls, (stats.polls, stats.polls_answered));
        let (counts, bytes) = mem::take(&mut self.news);
        let polls = stats.polls.saturating_sub(polls);
        let answers = stats.polls_answered.saturating_sub(answers);
        trust.note(Counts { lost, polls, answers, ..counts }, bytes, now);
        self.is_unbelieved = !trust.believes(now);
        let spacing = self.sender.near_rtt().map(|near| near + near / 4);
        spacing.is_some_and(|spacing| trust.wants_poll(spacing, now))
    }

    /// Declares losses as early as the order of packets allows. Where they overtake each other, few
    /// quACKs do not show whether one is lost or late.
    pub(super) fn apply_order(&mut self) {
        let (threshold, frugal) =
            if self.reorders { (REORDERED, None) } else { (1, Some(frugal_after(self.kind()))) };
        self.sender.set_packet_threshold(threshold);
        self.sender.set_frugal(frugal);
    }

    /// Declares losses later from now on if more than a quarter of the last ones turned out to be
    /// late.
    pub(super) fn judge_losses(&mut self) {
        let stats = self.sender.stats();
        let (lost, turned_up) = (stats.early_lost - self.judged.0, stats.turned_up - self.judged.1);
        if lost >= JUDGED {
            self.judged = (stats.early_lost, stats.turned_up);
            if turned_up > lost / 4 {
                self.reorders = true;
                self.apply_order();
            }
        }
    }
}
