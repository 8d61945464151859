//! The agent's state that all flows share.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use sidekick_protocol::Flow;
use sidekick_protocol::policy::{Carry, Trusts};

use super::super::flow::{HelpedFlow, Sighting};
use super::super::frame::Passing;
use super::super::outbox::Outbox;
use super::super::report::Totals;
use crate::trace::Recorder;

/// A proxy that reports flows of the host's own.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownProxy {
    pub(super) proxy: SocketAddr,
    /// The destination of one of these flows, and whether it reports flows to others, too. A
    /// destination may pose as a proxy, and must not learn of other flows.
    pub(super) destination: IpAddr,
    pub(super) others: bool,
    pub(super) seen: Instant,
}

/// When a flow is due, and its addresses.
type Timer = (Instant, [SocketAddr; 2]);

/// The agent's state that all flows share.
#[derive(Default)]
pub(super) struct Common {
    /// The flow of a session's number.
    pub(super) numbers: HashMap<u32, Flow>,
    /// When each flow with a deadline is due.
    pub(super) timers: BTreeSet<Timer>,
    /// Bytes of copies.
    pub(super) memory: usize,
    pub(super) outbox: Outbox,
    scratch: Vec<u64>,
    trusts: Trusts,
    /// What the second uplink may carry.
    carry: Carry,
    /// What the link does, if the agent only watches.
    pub(super) recorder: Option<Recorder>,
    pub(super) totals: Totals,
}

impl Common {
    /// No flows, and a second uplink that may carry so much.
    pub(super) fn new(carry: Carry) -> Self {
        Self { carry, ..Self::default() }
    }

    /// The bytes that the second uplink may still carry.
    pub(super) fn carry_left(&self) -> u64 {
        self.carry.left()
    }

    /// Charges the second uplink for a copy of this length that it carried.
    pub(super) fn charge(&mut self, len: usize) {
        self.carry.charge(len);
    }

    /// Counts a leaving datagram of a program.
    pub(super) fn count(&mut self, payload: &[u8]) {
        self.totals.captured += 1;
        self.totals.captured_bytes += payload.len() as u64;
    }

    /// Notes leaving datagrams of one frame of a helped flow. `most`: bytes of copies, of all flows
    /// together.
    ///
    /// # Errors
    /// Why the agent must leave the flow alone.
    pub(super) fn on_leaving<'a>(
        &mut self,
        helped: &mut HelpedFlow,
        leaving: &Passing<'_>,
        payloads: impl Iterator<Item = &'a [u8]>,
        most: usize,
        now: Instant,
    ) -> Result<(), &'static str> {
        for payload in payloads {
            let before = helped.resender.memory();
            let sighting = helped.on_leaving(leaving, payload, self.memory < most, now);
            self.memory = (self.memory + helped.resender.memory()).saturating_sub(before);
            if sighting != Sighting::FromAgent {
                self.count(payload);
            }
            match sighting {
                Sighting::FromProgram => {
                    self.totals.sent += 1;
                    if let Some(recorder) = &mut self.recorder {
                        helped.watch_leaving(payload.len(), recorder, now);
                    }
                }
                Sighting::Duplicate => self.totals.seen_twice += 1,
                Sighting::FromAgent => {}
                Sighting::Excluded(why) => return Err(why),
            }
        }
        self.settle(helped, now);
        Ok(())
    }

    /// Completes an input of a flow: queues what it has ready, and sets its timer.
    pub(super) fn settle(&mut self, helped: &mut HelpedFlow, now: Instant) {
        let Self { outbox, scratch, trusts, carry, totals, numbers, timers, recorder, .. } = self;
        let (flow, ends) = (helped.flow, helped.ends());
        if let Some(recorder) = recorder {
            helped.record(recorder, totals, now);
        }
        helped.flush((outbox, scratch), (trusts, carry), totals, now);
        if !helped.resender.sender.session_numbers().eq(helped.numbers.iter().copied()) {
            recorder.iter_mut().for_each(|recorder| helped.record_lists(recorder));
            forget_numbers(numbers, helped);
            helped.numbers.clear();
            helped.numbers.extend(helped.resender.sender.session_numbers());
            numbers.extend(helped.numbers.iter().map(|number| (*number, flow)));
        }
        if let Some(due) = helped.poll_timeout()
            && helped.armed.is_none_or(|armed| due < armed)
        {
            if let Some(armed) = helped.armed.replace(due) {
                timers.remove(&(armed, ends));
            }
            timers.insert((due, ends));
        }
    }

    /// Ends the help for a flow, for the reason `why`.
    pub(super) fn end(&mut self, mut helped: Box<HelpedFlow>, why: &str, now: Instant) {
        helped.log_end(why);
        helped.resender.sender.stop();
        let Self { outbox, scratch, trusts, carry, totals, .. } = self;
        helped.end_order(outbox, totals, now);
        self.recorder.iter_mut().for_each(|recorder| helped.record_end(recorder));
        helped.flush((outbox, scratch), (trusts, carry), totals, now);
        self.totals.add(helped.resender.sender.stats());
        self.memory = self.memory.saturating_sub(helped.resender.memory());
        if let Some(armed) = helped.armed {
            self.timers.remove(&(armed, helped.ends()));
        }
        forget_numbers(&mut self.numbers, &helped);
    }
}

fn forget_numbers(numbers: &mut HashMap<u32, Flow>, helped: &HelpedFlow) {
    for number in &helped.numbers {
        // Two senders may draw the same session number.
        if numbers.get(number) == Some(&helped.flow) {
            numbers.remove(number);
        }
    }
}
