//! When the gate of a flow holds datagrams, and what it asks of the proxy (SPEC.md, section 7.13).

use crate::gate::{Delivery, Gate, GateCounters, Hold, ListedGap};
use crate::sender::{Fate, Sender, SentOrder};
use crate::wire::Protect;
use std::time::{Duration, Instant};

/// Holds last for this many near round trips, and the time below: two requests and their copies.
const HOLD_RTTS: u32 = 6;
const HOLD_MORE: Duration = Duration::from_millis(5);
/// They last no longer than this part of the whole round trip, but at least [`LEAST_HOLD`].
const HOLD_PART: u32 = 2;
const LEAST_HOLD: Duration = Duration::from_millis(10);
/// A gate holds nothing where the near round trip is more than this part of the whole one: a copy
/// would come when the hold has ended.
pub(crate) const NEAR_PART: u32 = 3;
/// The longest near round trip for a flow that has not shown the whole one: a fifth of a path of 65
/// ms.
pub(crate) const UNKNOWN_FAR: Duration = Duration::from_millis(13);
/// After a loss on the near segment the gate holds for this time, or does not, by its cause.
const LOSSY: Duration = Duration::from_secs(10);
/// A flow that may expect losses holds for so many of its first datagrams, since the first loss
/// ends slow start.
const FIRST: u32 = 256;
/// After a queue grew before the client, it holds nothing for this time.
const PAUSE: Duration = Duration::from_millis(100);
/// If more than this part of the losses is congestion, it holds nothing until the next random loss.
const MOSTLY: f32 = 0.5;
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
/// A datagram waits for its list for two intervals of lists, half a near round trip, and this time.
const LIST_MORE: Duration = Duration::from_millis(4);

/// What the gate does now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InOrderState {
    /// No proxy keeps copies, or it is too far away for requests.
    #[default]
    Idle,
    /// The near segment has lost nothing for some time. Datagrams pass at once.
    Watching,
    /// Datagrams wait for those before them.
    Ordering,
    /// A queue grows before the client, or what is lost is congestion, so nothing waits.
    Congested,
}

/// Puts the reverse flow in order, with one gate.
///
/// Begin before the flow's first datagram arrives, so that the proxy keeps and lists it, too. Pass
/// all that arrives on the flow, call [`update`](Self::update) after each input of the sender, and
/// pass the copies that it returns. Then take the [deliveries](Self::poll_delivery).
#[derive(Debug)]
pub struct InOrder<T> {
    gate: Gate<T>,
    state: InOrderState,
    lossy_until: Option<Instant>,
    /// The gap that ended a time without losses, and its only datagram, as long as it is the latest
    /// random loss: a list may have overtaken it.
    doubtful: Option<(u64, u32)>,
    congested_until: Option<Instant>,
    /// How many of the first datagrams are still to come.
    first: u32,
    /// Whether any has arrived.
    has_begun: bool,
    paused_until: Option<Instant>,
    /// The round trip of the whole path, if it is known.
    whole: Option<Duration>,
    unfilled: Vec<u64>,
}

impl<T> InOrder<T> {
    /// For a flow that begins. `is_clean` says that other flows lately lost nothing on the near
    /// segment, so that the first datagrams need not wait for their lists.
    #[must_use]
    pub fn new(is_clean: bool) -> Self {
        Self {
            gate: Gate::new(Hold::default()),
            state: InOrderState::Idle,
            lossy_until: None,
            doubtful: None,
            congested_until: None,
            first: if is_clean { 0 } else { FIRST },
            has_begun: false,
            paused_until: None,
            whole: None,
            unfilled: Vec::new(),
        }
    }

    /// Sets the round-trip time of the whole path, once it is known.
    pub fn set_whole(&mut self, whole: Duration) {
        self.whole = Some(whole);
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
        self.gate.waiting()
    }

    /// Whether the near segment lost a datagram lately; `None` while too few have arrived.
    #[must_use]
    pub fn is_lossy(&self, now: Instant) -> Option<bool> {
        let lossy = self.lossy_until.is_some_and(|until| now < until);
        (lossy || self.first == 0).then_some(lossy)
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
        let Some(identifier) = identifier else {
            self.gate.pass(datagram);
            return;
        };
        sender.on_progress(identifier, now);
        self.first = self.first.saturating_sub(1);
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

    /// A copy arrived. Returns it if nothing lacks it.
    pub fn on_copy(
        &mut self,
        identifier: u32,
        datagram: T,
        sender: &mut Sender,
        now: Instant,
    ) -> Option<T> {
        let unwanted = self.gate.on_copy(identifier, datagram, now);
        self.follow(sender, now);
        unwanted
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
        self.gate.on_timeout(now);
        self.follow(sender, now);
    }

    /// When [`update`](Self::update) is due, if nothing arrives before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.gate.poll_timeout()
    }

    /// The next datagram to deliver.
    pub fn poll_delivery(&mut self) -> Option<Delivery<T>> {
        self.gate.poll_delivery()
    }

    /// Delivers all that waits, because the help ends.
    pub fn open(&mut self, sender: &mut Sender, now: Instant) {
        self.gate.set_hold(Hold::default(), now);
        self.gate.open(now);
        self.follow(sender, now);
        sender.protect(None, now);
    }

    /// Decides what to hold, and what to ask of the proxy.
    fn plan(&mut self, sender: &mut Sender, now: Instant) {
        if sender.keeper_queue_grows() {
            self.paused_until = Some(now + PAUSE);
        }
        let order = sender.keeper_rtt().and_then(|near| Some((near, order(near, self.whole)?)));
        let (state, wanted, hold) = match order {
            Some((near, SentOrder { longest, hold, .. })) => {
                let hold = Hold { list: hold.list + near / 2, ..hold };
                let often = Protect::lists(EVERY, WINDOW, longest);
                let rarely = Protect::lists(RARELY, RARELY, RARE_LIST);
                if self.paused_until.is_some_and(|until| now < until) {
                    (InOrderState::Congested, Some(rarely), Hold::default())
                } else if self.congested_until.is_some_and(|until| now < until) {
                    // Lists show when that ends.
                    (InOrderState::Congested, Some(often), Hold::default())
                } else if self.is_lossy(now) == Some(false) {
                    (InOrderState::Watching, Some(rarely), Hold::default())
                } else {
                    (InOrderState::Ordering, Some(often), hold)
                }
            }
            None => (InOrderState::Idle, None, Hold::default()),
        };
        if hold != self.gate.hold() {
            self.gate.set_hold(hold, now);
        }
        self.state = state;
        sender.protect(wanted, now);
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
            sender.close_gap(gap);
        }
    }

    fn begin(&mut self, gap: ListedGap, sender: &mut Sender, now: Instant) {
        let ListedGap { number, datagrams, after, last } = gap;
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
        let was_clean = self.is_lossy(now) == Some(false);
        self.doubtful = (was_clean && datagrams == 1).then_some((number, last));
        let was_open = self.congested_until.take().is_some() || was_clean;
        self.lossy_until = Some(now + LOSSY);
        if was_open {
            self.plan(sender, now);
        }
        let waits = self.state == InOrderState::Ordering && !was_open;
        if !waits || !sender.request_listed(number, after, last, now) {
            self.gate.give_up(number, now);
        }
    }
}

/// How a flow with this near round trip is put in order, and the whole one if it is known. `None`
/// if the proxy is too far away.
fn order(near: Duration, whole: Option<Duration>) -> Option<SentOrder> {
    if near > whole.map_or(UNKNOWN_FAR, |whole| whole / NEAR_PART) {
        return None;
    }
    let longest = (near / LIST_PART).clamp(LEAST_LIST, MOST_LIST);
    let gap = HOLD_RTTS * near + HOLD_MORE;
    let most = whole.map_or(gap, |whole| (whole / HOLD_PART).max(LEAST_HOLD));
    let hold = Hold { gap: gap.min(most), list: 2 * longest + LIST_MORE };
    Some(SentOrder { every: EVERY, longest, hold })
}

/// Asks a proxy to put a flow in the order in which it left (SPEC.md, section 7.14).
///
/// Call [`update`](Self::update) after each input of the sender.
#[derive(Debug)]
pub struct LeaveInOrder {
    lossy_until: Option<Instant>,
    /// How many of the first datagrams are still to leave.
    first: u32,
}

impl LeaveInOrder {
    /// For a flow that begins. `is_clean` is as for [`InOrder::new`].
    #[must_use]
    pub fn new(is_clean: bool) -> Self {
        Self { lossy_until: None, first: if is_clean { 0 } else { FIRST } }
    }

    /// A datagram left that repeats no other.
    pub fn on_sent(&mut self) {
        self.first = self.first.saturating_sub(1);
    }

    /// The near segment lost a datagram. `is_repaired` says that its repair follows.
    pub fn on_lost(&mut self, is_repaired: bool, sender: &mut Sender, now: Instant) {
        self.lossy_until = Some(now + LOSSY);
        if !is_repaired {
            sender.release_order();
        }
    }

    /// Whether the near segment lost a datagram lately; `None` while too few have left.
    #[must_use]
    pub fn is_lossy(&self, now: Instant) -> Option<bool> {
        let lossy = self.lossy_until.is_some_and(|until| now < until);
        (lossy || self.first == 0).then_some(lossy)
    }

    /// Decides whether the proxy holds datagrams now. `repairs` says that losses are repaired now,
    /// and `whole` is the round trip of the whole path, if it is known.
    pub fn update(
        &self,
        repairs: bool,
        whole: Option<Duration>,
        sender: &mut Sender,
        now: Instant,
    ) {
        let wants = repairs && sender.may_order() && self.is_lossy(now) != Some(false);
        let near = sender.near_rtt().filter(|_| wants);
        sender.order(near.and_then(|near| order(near, whole)));
    }
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
