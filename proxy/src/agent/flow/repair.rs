//! Repairs of a flow: which lost packets the agent sends again, and what it sends to the proxy.

use std::iter;
use std::mem;
use std::time::Instant;

use sidekick_protocol::policy::{self, MAX_AGE, Trust, Trusts, Withheld};
use sidekick_protocol::{Assistance, Lost, MAX_DATAGRAM_LEN, Route};

use super::super::outbox::Outbox;
use super::super::report::Totals;
use super::HelpedFlow;

impl HelpedFlow {
    /// Completes an input: sends lost packets again, and the messages that the sender has ready.
    pub(in super::super) fn flush(
        &mut self,
        (outbox, scratch): (&mut Outbox, &mut Vec<u64>),
        trusts: &mut Trusts,
        totals: &mut Totals,
        now: Instant,
    ) {
        self.policy.note_queue(&mut self.sender, now);
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
        let Self { journal, sender, policy, .. } = self;
        journal.note(assistance, policy.rests(), || (sender.proxy(), sender.near_rtt()));
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
        lost.retain(|lost| !policy::is_last(lost.tag));
        let count = lost.len() as u64;
        self.lost += count;
        totals.lost += count;
        let traits = self.traits();
        if count > 0 {
            self.policy.judge(traits, &mut self.sender);
        }
        let mut trust = self.policy.report(&mut self.sender, trusts, count, now);
        let withheld = self.withheld(now);
        let order = self.order.as_ref().map(|order| order.gate().state());
        if self.reception.is_some() || order.is_some() {
            let may_fetch = policy::may_fetch(withheld, order) && self.may_receive(now);
            self.sender.set_fetching(may_fetch);
        }
        if count > 0
            && let Some(why) = withheld
        {
            self.journal.note_withheld(why);
        }
        let repairs = withheld.is_none() && traits.minds_order;
        self.policy.order(repairs, &lost, &mut self.sender, now);
        match withheld {
            None => {
                for Lost { tag, congestion, .. } in lost.drain(..) {
                    if congestion {
                        totals.withheld_congested += 1;
                        continue;
                    }
                    let names = policy::names(tag, traits);
                    self.repair(tag, names, trust.as_deref_mut(), outbox, totals, now);
                }
            }
            Some(Withheld::Unbelieved) => totals.withheld_late += count,
            Some(Withheld::Congested) => totals.withheld_congested += count,
            Some(Withheld::Far | Withheld::Unmeasured) => totals.withheld_far += count,
        }
        lost.clear();
        self.found_lost = lost;
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
            let name = iter::once(policy::last_name(tag));
            self.repair(tag, name, None, outbox, totals, now);
        }
        self.uncounted = uncounted;
    }

    /// Sends a datagram again, once for each of these names.
    fn repair(
        &mut self,
        tag: u64,
        names: impl Iterator<Item = u64>,
        mut trust: Option<&mut Trust>,
        outbox: &mut Outbox,
        totals: &mut Totals,
        now: Instant,
    ) {
        for name in names {
            if !self.under_way.has_room(MAX_AGE, now) {
                totals.withheld_late += u64::from(name == tag);
                return;
            }
            let Some(payload) = self.store.get_for_resend(tag, now) else {
                totals.withheld_late += u64::from(name == tag);
                return;
            };
            let len = payload.len();
            if trust.as_mut().is_some_and(|trust| !trust.spend(name, len)) {
                totals.withheld_late += u64::from(name == tag);
                self.store.refund(len);
                return;
            }
            if outbox.push_frame(&self.template, payload) {
                self.resent += 1;
                self.policy.on_repaired();
                totals.resent += 1;
                totals.resent_bytes += len as u64;
                self.under_way.push_repair(name, payload, now);
            } else {
                self.store.refund(len);
            }
        }
    }
}
