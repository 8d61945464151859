//! Completes an input of a flow: what the agent sends again, and what it sends to the proxy.

use std::time::Instant;

use sidekick_protocol::policy::{Carry, MAX_AGE, Resender, Trusts, Withheld};
use sidekick_protocol::{MAX_DATAGRAM_LEN, Route};

use super::super::outbox::Outbox;
use super::super::report::Totals;
use super::HelpedFlow;

impl HelpedFlow {
    /// Completes an input: sends lost packets again, and the messages that the sender has ready.
    pub(in super::super) fn flush(
        &mut self,
        (outbox, scratch): (&mut Outbox, &mut Vec<u64>),
        (trusts, carry): (&mut Trusts, &mut Carry),
        totals: &mut Totals,
        now: Instant,
    ) {
        let watches = self.watch.is_some();
        let why = if watches { None } else { self.repair((outbox, trusts), totals, now) };
        if !watches {
            self.resender.carry(carry, now);
        }
        let relayed = self.resender.relayed();
        totals.relayed += relayed - self.noted_relayed;
        self.noted_relayed = relayed;
        let Self { journal, resender: Resender { sender, policy, .. }, .. } = self;
        journal.note(sender.assistance(), policy.rests(), || (sender.proxy(), sender.near_rtt()));
        if let Some(why) = why {
            journal.note_withheld(why);
        }
        self.settle_order(outbox, totals, now);
        // No packet waits for another gap that the proxy cannot fill.
        scratch.clear();
        self.resender.sender.drain_unfilled(scratch);
        self.transmit(outbox, totals, now);
    }

    /// Sends lost packets again. If it does not, returns why.
    fn repair(
        &mut self,
        (outbox, trusts): (&mut Outbox, &mut Trusts),
        totals: &mut Totals,
        now: Instant,
    ) -> Option<Withheld> {
        let order = self.order.as_ref().map(|order| order.gate().state());
        let receives = self.reception.is_some() || order.is_some();
        let arrivals = (order, receives && self.may_receive(now));
        let traits = self.traits();
        let Self { resender, under_way, template, resent, .. } = self;
        let settled = resender.settle(traits, trusts, arrivals, now, |name, payload| {
            if !under_way.has_room(MAX_AGE, now) || !outbox.push_frame(template, payload) {
                return false;
            }
            under_way.push_repair(name, payload, now);
            *resent += 1;
            totals.resent += 1;
            totals.resent_bytes += payload.len() as u64;
            true
        });
        totals.flows_assisted += u64::from(settled.begins);
        totals.lost += settled.lost;
        totals.withheld_late += settled.late;
        totals.withheld_congested += settled.congested;
        match settled.withheld {
            None => {}
            Some(Withheld::Unbelieved) => totals.withheld_late += settled.lost,
            Some(Withheld::Congested) => totals.withheld_congested += settled.lost,
            // The proxy rebuilds them, as far as it can.
            Some(Withheld::Protected) => {}
            Some(Withheld::Far | Withheld::Unmeasured) => totals.withheld_far += settled.lost,
        }
        settled.withheld.filter(|_| settled.lost > 0)
    }

    /// Sends the messages and markers that the sender has ready.
    fn transmit(&mut self, outbox: &mut Outbox, totals: &mut Totals, now: Instant) {
        let mut message = [0; MAX_DATAGRAM_LEN];
        while let Some(transmit) = self.resender.sender.poll_transmit(&mut message) {
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
                Route::SecondLink => {
                    totals.second_uplink_bytes += message.len() as u64;
                    outbox.push_by_second(transmit.destination, message);
                }
            }
        }
    }
}
