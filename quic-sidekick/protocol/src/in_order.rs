//! When the gate of a flow holds datagrams, and what it asks of the proxy (SPEC.md, section 7.13).

mod leaving;
pub(crate) mod steps;

use crate::gate::{Delivery, Gate, GateCounters, Hold, ListedGap};
use crate::policy::{CARRIED_WAIT_MS, MindsOrder};
use crate::repair::{
    MOSTLY, NEAR_PART, ParityState, Planner, Protection, ReceiveRepair, ReceiveState, RoundTrips,
    longest_hold,
};
use crate::sender::{Fate, Sender, SentOrder};
use crate::wire::Protect;
pub use leaving::LeaveInOrder;
use sidekick_parity::Between;
use std::collections::VecDeque;
use std::mem;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use steps::{FAR_LIST, Pace, Steps};

/// The longest near round trip for a flow that has not shown the whole one: a fifth of a path of 65
/// ms.
pub(crate) const UNKNOWN_FAR: Duration = Duration::from_millis(13);
/// After a loss on the near segment the gate holds for this time, or does not, by its cause.
const LOSSY: Duration = Duration::from_secs(10);
/// A flow that may expect losses holds for so many of its first datagrams, since the first loss
/// ends slow start.
const FIRST: u32 = 256;
/// A list beside parity names no more of these.
const FIRST_EVERY: u8 = 2;
/// While the gate holds: a list for so many datagrams, or after this part of a near round trip.
const EVERY: u8 = 4;
const LIST_PART: u32 = 4;
const LEAST_LIST: Duration = Duration::from_micros(500);
const MOST_LIST: Duration = Duration::from_millis(2);
/// The datagrams of three lists, since two of them may be lost.
const WINDOW: u8 = 3 * EVERY;
/// While it only watches: lists cost less than 0.5 % of a flow of full datagrams.
const RARELY: u8 = 40;
const RARE_LIST: Duration = Duration::from_millis(60);
/// Without parity a datagram waits for its list for two intervals of lists, half a near round trip,
/// and this time.
const LIST_MORE: Duration = Duration::from_millis(4);
/// Copies by the second link wait for those before them that it lost: long enough for a second
/// request, and for no more of them than 60 Mbit/s bring meanwhile.
const CARRIED_WAIT: Duration = Duration::from_millis(CARRIED_WAIT_MS as u64);
const MOST_CARRIED: usize = 512;

/// What the gate does now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InOrderState {
    /// No proxy keeps copies, or it is too far away for requests and sends no parity, or what
    /// arrives mostly acknowledges what leaves.
    #[default]
    Idle,
    /// The near segment has lost nothing for some time. Datagrams pass at once.
    Watching,
    /// Datagrams wait for those before them, which are requested.
    Ordering,
    /// The same, where the proxy is far away: its parity rebuilds most of them.
    Protected,
    /// A queue grows before the client, or what is lost is congestion, so nothing waits.
    Congested,
}

/// A gap that waits for parity.
#[derive(Debug)]
struct Patient {
    gap: ListedGap,
    /// When its copies are requested, if they are.
    due: Option<Instant>,
}

/// Puts the reverse flow in order, with one gate.
///
/// Begin before the flow's first datagram arrives, so that the proxy keeps and lists it, too. Pass
/// all that arrives on the flow, call [`update`](Self::update) after each input of the sender, and
/// pass the copies that it returns, and those that [parity rebuilds](Self::next_rebuilt). Then take
/// the [deliveries](Self::poll_delivery).
#[derive(Debug)]
pub struct InOrder<T> {
    gate: Gate<T>,
    state: InOrderState,
    planner: Planner,
    protection: Protection,
    /// The receiver authenticates datagrams, and so drops what it has.
    drops_duplicates: bool,
    /// Parity is wanted now.
    protected: bool,
    /// How long a gap waits before its copies are requested; `None` if they are not.
    request_after: Option<Duration>,
    patient: Vec<Patient>,
    steps: Steps<T>,
    pace: Pace,
    /// The proxy that was asked for parity.
    proxy: Option<SocketAddr>,
    lossy_until: Option<Instant>,
    /// The gap that ended a time without losses, and its only datagram, as long as it is the latest
    /// random loss: a list may have overtaken it.
    doubtful: Option<(u64, u32)>,
    congested_until: Option<Instant>,
    /// Copies that came by the second link, while the first is silent, and wait for those before
    /// them; and since when.
    carried: VecDeque<(u32, T)>,
    carried_since: Option<Instant>,
    minds_order: MindsOrder,
    /// How many of the first datagrams are still to come.
    first: u32,
    /// Whether any has arrived.
    has_begun: bool,
    /// The round trip of the whole path, if it is known.
    whole: Option<Duration>,
    is_acknowledged: bool,
    unfilled: Vec<u64>,
}

impl<T> InOrder<T> {
    /// For a flow that begins. `is_clean` says that other flows lately lost nothing on the near
    /// segment, so that the first datagrams need not wait for their lists. Choose
    /// [`ReceiveRepair::Requests`] if the receiver does not authenticate datagrams, as parity may
    /// rebuild wrong ones.
    #[must_use]
    pub fn new(repair: ReceiveRepair, is_clean: bool) -> Self {
        Self {
            gate: Gate::new(Hold::default()),
            state: InOrderState::Idle,
            planner: Planner::new(repair),
            drops_duplicates: repair != ReceiveRepair::Requests,
            protection: Protection::default(),
            protected: false,
            request_after: None,
            patient: Vec::new(),
            steps: Steps::default(),
            pace: Pace::default(),
            proxy: None,
            lossy_until: None,
            doubtful: None,
            congested_until: None,
            carried: VecDeque::new(),
            carried_since: None,
            minds_order: MindsOrder::default(),
            first: if is_clean { 0 } else { FIRST },
            has_begun: false,
            whole: None,
            is_acknowledged: false,
            unfilled: Vec::new(),
        }
    }

    /// Sets the round-trip time of the whole path, once it is known.
    pub fn set_whole(&mut self, whole: Duration) {
        self.whole = Some(whole);
    }

    /// Sets whether what arrives [mostly acknowledges](LeaveInOrder::is_acknowledged) what leaves.
    /// Then nothing waits.
    pub fn set_acknowledged(&mut self, is_acknowledged: bool) {
        self.is_acknowledged = is_acknowledged;
    }

    /// What the gate does now.
    #[must_use]
    pub fn state(&self) -> InOrderState {
        self.state
    }

    /// What became of datagrams so far.
    #[must_use]
    pub fn counters(&self) -> GateCounters {
        self.gate.counters()
    }

    /// How many datagrams wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.gate.waiting() + self.steps.waiting.len() + self.carried.len()
    }

    /// Whether the near segment lost a datagram lately; `None` while too few have arrived, or no
    /// list would show a loss.
    #[must_use]
    pub fn is_lossy(&self, now: Instant) -> Option<bool> {
        match self.state {
            _ if self.lossy_until.is_some_and(|until| now < until) => Some(true),
            InOrderState::Idle => None,
            _ => self.is_clean(now).then_some(false),
        }
    }

    fn is_clean(&self, now: Instant) -> bool {
        self.first == 0 && self.lossy_until.is_none_or(|until| until <= now)
    }

    /// A datagram of the reverse flow arrived. `identifier` is that of a copy of it. Without one it
    /// is in no list, so it is delivered at once.
    pub fn on_arrival(
        &mut self,
        payload: &[u8],
        identifier: Option<u32>,
        datagram: T,
        sender: &mut Sender,
        now: Instant,
    ) {
        sender.on_arrival(payload);
        sender.on_received(payload.len(), now);
        self.has_begun = true;
        if !self.carried.is_empty() {
            // The first link is back.
            self.carried_since = None;
            self.pass_carried(sender, now);
        }
        self.pace.on_arrival(now);
        if self.protected {
            self.protection.note_arrival();
        }
        let Some(identifier) = identifier else {
            self.steps.ready.push_back(Delivery { datagram, waited: Duration::ZERO });
            return;
        };
        sender.on_progress(identifier, now);
        if self.state != InOrderState::Idle {
            self.first = self.first.saturating_sub(1);
        }
        if let Some(gap) = self.gate.on_arrival(identifier, datagram, now) {
            sender.on_late(gap, now);
        }
        if let Some((gap, _)) = self.doubtful.take_if(|(_, of)| *of == identifier) {
            sender.on_late(gap, now);
            self.lossy_until = None;
            self.plan(sender, now);
        }
        self.follow(sender, now);
    }

    /// A copy of a payload arrived. Returns it if nothing lacks it.
    pub fn on_copy(
        &mut self,
        payload: &[u8],
        identifier: u32,
        datagram: T,
        sender: &mut Sender,
        now: Instant,
    ) -> Option<T> {
        let late = self.gate.counters().late;
        let mut unwanted = self.gate.on_copy(identifier, datagram, now);
        if self.drops_duplicates && sender.first_link_is_silent() && !self.gate.has(identifier) {
            // No list arrives, so copies stand for what passed the proxy.
            if let Some(datagram) = unwanted.take() {
                self.take_carried(payload, identifier, datagram, sender, now);
            }
        }
        if self.gate.counters().late > late {
            self.steps.ready.extend(self.gate.poll_delivery());
        }
        self.follow(sender, now);
        unwanted
    }

    /// Takes a copy that came by the second link in place of its original. It waits for those
    /// before it that are lost on this way, unless it needs no order.
    fn take_carried(
        &mut self,
        payload: &[u8],
        identifier: u32,
        datagram: T,
        sender: &mut Sender,
        now: Instant,
    ) {
        let place = |of: u32| self.carried.iter().position(|(known, _)| *known == of);
        if place(identifier).is_some() {
            return;
        }
        let before = sender.copy_fills_before();
        if before.is_none() {
            sender.on_progress(identifier, now);
        }
        if !self.minds_order.note(payload.len()) {
            let _ = self.gate.on_arrival(identifier, datagram, now);
            return;
        }
        match before.and_then(place) {
            Some(place) => self.carried.insert(place, (identifier, datagram)),
            None => self.carried.push_back((identifier, datagram)),
        }
        self.carried_since.get_or_insert(now);
        self.pass_carried(sender, now);
    }

    /// Passes these copies on, unless one is missing among them.
    fn pass_carried(&mut self, sender: &Sender, now: Instant) {
        let waits = sender.first_link_is_silent()
            && sender.lacks_copies()
            && self.carried.len() < MOST_CARRIED
            && self.carried_since.is_some_and(|since| now < since + CARRIED_WAIT);
        if waits {
            return;
        }
        self.carried_since = None;
        for (identifier, datagram) in self.carried.drain(..) {
            let _ = self.gate.on_arrival(identifier, datagram, now);
        }
    }

    /// Replaces the contents of `out` by the next datagram that parity rebuilt. Pass it as a copy.
    /// Call this after each [`update`](Self::update), until it returns false.
    pub fn next_rebuilt(&mut self, out: &mut Vec<u8>, sender: &mut Sender, now: Instant) -> bool {
        // The server must hear of congestion.
        let is_congested = sender.is_reverse_congested(now);
        while sender.next_rebuilt(out, now) {
            if !is_congested {
                return true;
            }
        }
        false
    }

    /// Takes a list that the sender's latest input held, and serves the timer.
    pub fn update(&mut self, sender: &mut Sender, now: Instant) {
        self.plan(sender, now);
        // Until a datagram arrives, the latest list waits: the flow may come another way, and all
        // that is listed would be missing.
        if self.has_begun
            && let Some(list) = sender.take_list()
        {
            // A contradiction shows a forged list, or that the proxy counts anew.
            if self.gate.on_list(list.first, list.identifiers().iter().copied(), now).is_err() {
                self.gate.open(now);
            }
        }
        self.pass_carried(sender, now);
        self.gate.on_timeout(now);
        self.follow(sender, now);
        self.request_patient(sender, now);
    }

    /// When [`update`](Self::update) is due, if nothing arrives before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let due = self.patient.iter().filter_map(|patient| patient.due).min();
        let carried = self.carried_since.map(|since| since + CARRIED_WAIT);
        let own = [due, self.steps.poll_timeout(), carried];
        self.gate.poll_timeout().into_iter().chain(own.into_iter().flatten()).min()
    }

    /// The next datagram to deliver.
    pub fn poll_delivery(&mut self) -> Option<Delivery<T>> {
        self.steps.ready.pop_front()
    }

    /// Lets what leaves the gate go. Holds are short if the proxy is near.
    fn step(&mut self, now: Instant) {
        while let Some(delivery) = self.gate.poll_delivery() {
            self.steps.push(delivery, now);
        }
        if self.protected && self.gate.hold() != Hold::default() {
            self.steps.on_timeout(now);
        } else {
            self.steps.release(usize::MAX, now);
            self.steps.pace = None;
        }
    }

    /// Forgets what it knows of the path and its proxy, because the flow has changed to another
    /// path. Delivers all that waits.
    pub fn change_path(&mut self, sender: &mut Sender, now: Instant) {
        self.gate.set_hold(Hold::default(), now);
        self.gate.open(now);
        self.follow(sender, now);
        (self.state, self.protected, self.first) = (InOrderState::Idle, false, FIRST);
        (self.lossy_until, self.congested_until, self.doubtful) = (None, None, None);
        (self.whole, self.protection, self.pace) = Default::default();
        (self.has_begun, self.is_acknowledged, self.request_after) = Default::default();
    }

    /// Delivers all that waits, because the help ends.
    pub fn open(&mut self, sender: &mut Sender, now: Instant) {
        self.gate.set_hold(Hold::default(), now);
        self.gate.open(now);
        self.follow(sender, now);
        sender.end_parity(now);
    }

    /// Decides what to hold, and what to ask of the proxy.
    fn plan(&mut self, sender: &mut Sender, now: Instant) {
        // What a list names has passed the proxy, so a gap is no loss elsewhere.
        let parity = match self.protection.state() {
            ParityState::Quiet | ParityState::Lossless => ParityState::Lossy,
            other => other,
        };
        let near = sender.keeper_rtt().unwrap_or_default();
        // An unknown round trip is no shorter than its near part.
        let whole = self.whole.or((near > UNKNOWN_FAR).then_some(near));
        let rtts = RoundTrips::of(sender, whole).without_losses();
        let plan = self.planner.plan(rtts, parity, now);
        let longest = longest_list(near);
        let often = Protect::lists(EVERY, WINDOW, longest);
        let rarely = Protect::lists(RARELY, RARELY, RARE_LIST);
        let list = if plan.parity { FAR_LIST } else { 2 * longest + LIST_MORE + near / 2 };
        let hold = plan.hold.map(|gap| Hold { gap, list });
        self.request_after = plan.request_after;
        let is_congested = self.congested_until.is_some_and(|until| now < until);
        let (state, wanted, hold) = match (plan.state, hold) {
            _ if sender.first_link_is_silent() => (self.state, None, None),
            _ if self.is_acknowledged => (InOrderState::Idle, None, None),
            // Lists show when that ends.
            (ReceiveState::Congested, _) => (InOrderState::Congested, Some(rarely), None),
            // Parity covers what passes before the proxy's answer arrives.
            (ReceiveState::NotKept, _) if plan.parity && !self.is_clean(now) => {
                let near = sender.future_keeper_rtt().unwrap_or_default();
                (InOrderState::Idle, Some(self.parity(near, sender, now)), None)
            }
            (ReceiveState::Repairing, Some(_)) | (ReceiveState::Protected, _) if is_congested => {
                (InOrderState::Congested, Some(rarely), None)
            }
            (ReceiveState::Repairing, Some(_)) | (ReceiveState::Protected, _)
                if self.is_clean(now) =>
            {
                (InOrderState::Watching, Some(rarely), None)
            }
            (ReceiveState::Repairing, Some(hold)) => {
                (InOrderState::Ordering, Some(often), Some(hold))
            }
            (ReceiveState::Protected, hold) => {
                (InOrderState::Protected, Some(self.parity(near, sender, now)), hold)
            }
            _ => (InOrderState::Idle, None, None),
        };
        let hold = hold.unwrap_or_default();
        if hold != self.gate.hold() {
            self.gate.set_hold(hold, now);
        }
        self.state = state;
        let protected = wanted.is_some_and(|wanted| wanted.share > 0);
        if mem::replace(&mut self.protected, protected) && !protected {
            self.protection.pause();
        }
        // Else lists would soon name what arrived before a new decoder.
        let may_return = matches!(state, InOrderState::Congested | InOrderState::Watching);
        if !protected && !may_return && sender.collects_arrivals() {
            sender.end_parity(now);
        }
        sender.protect(wanted, now);
    }

    /// The parity and the lists to ask for.
    fn parity(&mut self, near: Duration, sender: &Sender, now: Instant) -> Protect {
        let proxy = sender.proxy().map(|(address, _)| address);
        if proxy != self.proxy {
            self.proxy = proxy;
            self.protection.expect_answers();
        }
        let wanted = self.protection.wanted(sender.parity_counts(), near, now);
        // What waits for a list is acknowledged late, which ends a slow start early.
        let list = if self.first > 0 { self.pace.every.min(FIRST_EVERY) } else { self.pace.every };
        Protect { list, ..wanted }
    }

    /// Requests new gaps, and gives up those that nobody fills.
    fn follow(&mut self, sender: &mut Sender, now: Instant) {
        while let Some(gap) = self.gate.poll_gap() {
            self.begin(gap, sender, now);
        }
        sender.drain_unfilled(&mut self.unfilled);
        while let Some(gap) = self.unfilled.pop() {
            self.gate.give_up(gap, now);
        }
        while let Some(gap) = self.gate.poll_closed() {
            self.patient.retain(|patient| patient.gap.number != gap);
            sender.close_gap(gap);
        }
        self.step(now);
    }

    /// Requests the gaps that parity has not closed in time, or cannot close.
    fn request_patient(&mut self, sender: &mut Sender, now: Instant) {
        let mut patient = mem::take(&mut self.patient);
        let is_congested = sender.is_reverse_congested(now);
        patient.retain(|Patient { gap, due }| {
            let missing = sender.missing_at(gap.first, gap.datagrams);
            let is_hopeless = match missing {
                Between::Missing { count, hopeless } => {
                    hopeless || !self.protection.may_rebuild(count)
                }
                // It is so old that the decoder has forgotten it.
                Between::Unlisted => true,
                // What was rebuilt is about to be delivered.
                Between::Nothing => false,
            };
            let waits =
                self.protected && !is_congested && !is_hopeless && due.is_none_or(|due| now < due);
            if !waits && (is_congested || !self.request(gap, sender, now)) {
                self.gate.give_up(gap.number, now);
            }
            waits
        });
        let gave_up = patient.len() < self.patient.len();
        self.patient = patient;
        if gave_up {
            self.follow(sender, now);
        }
    }

    /// Requests copies of a gap. Returns false if nobody repeats them now.
    fn request(&self, gap: &ListedGap, sender: &mut Sender, now: Instant) -> bool {
        self.request_after.is_some() && sender.request_listed(gap, now)
    }

    fn begin(&mut self, gap: ListedGap, sender: &mut Sender, now: Instant) {
        let ListedGap { number, datagrams, last, .. } = gap;
        let congestion = sender.on_missing(number, datagrams.into(), now);
        sender.on_fate(number, Fate::Lost(datagrams));
        if congestion {
            if sender.reverse_near_loss().congestion > MOSTLY {
                // What waits leaves in bursts, which a short queue drops: then losses cause losses.
                self.congested_until = Some(now + LOSSY);
                self.plan(sender, now);
            }
            self.gate.give_up(number, now);
            return;
        }
        let was_clean = self.is_clean(now);
        self.doubtful = (was_clean && datagrams == 1).then_some((number, last));
        let was_open = self.congested_until.take().is_some() || was_clean;
        self.lossy_until = Some(now + LOSSY);
        if was_open {
            self.plan(sender, now);
        }
        let holds = matches!(self.state, InOrderState::Ordering | InOrderState::Protected);
        let waits = holds && !was_open && self.gate.hold() != Hold::default();
        if waits && self.protected {
            let due = self.request_after.and_then(|after| now.checked_add(after));
            self.patient.push(Patient { gap, due });
        } else if !waits || !self.request(&gap, sender, now) {
            self.gate.give_up(number, now);
        }
    }
}

/// The longest time that a datagram waits for its list.
fn longest_list(near: Duration) -> Duration {
    (near / LIST_PART).clamp(LEAST_LIST, MOST_LIST)
}

/// How a proxy at this near round trip puts a flow in order, and the whole one if it is known.
/// `None` if the proxy is too far away.
fn order(near: Duration, whole: Option<Duration>) -> Option<SentOrder> {
    if near > whole.map_or(UNKNOWN_FAR, |whole| whole / NEAR_PART) {
        return None;
    }
    let longest = longest_list(near);
    let hold = Hold { gap: longest_hold(near, whole), list: 2 * longest + LIST_MORE };
    Some(SentOrder { every: EVERY, longest, hold, parity: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_waits_for_a_distant_proxy() {
        let ms = Duration::from_millis;
        for (near, whole, waits) in
            [(13, None, true), (14, None, false), (20, Some(60), true), (21, Some(60), false)]
        {
            let order = order(ms(near), whole.map(ms));
            assert_eq!(order.is_some(), waits, "{near} ms of {whole:?}");
            // The server's probe timeout must not expire.
            let longest = whole.map_or(6 * near + 5, |whole| whole / 2);
            assert!(order.is_none_or(|order| order.hold.gap <= ms(longest)));
        }
    }
}
