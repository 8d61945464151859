//! When a proxy puts what leaves in order (SPEC.md, section 7.14).

use super::steps::FAR_LIST;
use super::{FIRST, LOSSY, order};
use crate::gate::Hold;
use crate::loss_floor::Lost;
use crate::repair::{FAR_AWAY, MOSTLY, ParityState, Protection, parity_hold};
use crate::sender::{Sender, SentOrder};
use sidekick_parity::Counts;
use std::time::{Duration, Instant};

/// A direction with so many times fewer bytes than the other has acknowledgements alone, compared
/// over the latest bytes, at least so many. A later acknowledgement makes up for one that is lost,
/// and if they wait, the data of the other direction wait with them.
const FEWER: usize = 4;
const COMPARED: usize = 1 << 14;

/// Beside parity: a list for so many datagrams, or after this time. A proxy waits for a list for
/// four times as long, since lists may be lost.
const FAR_EVERY: u8 = 8;
const FAR_LONGEST: Duration = FAR_LIST.checked_div(4).unwrap();

/// What becomes of datagrams before a proxy that gets parity of them.
#[derive(Debug, Default)]
struct Coverage {
    protection: Protection,
    counts: Counts,
    latest_lost: Option<u64>,
    congested_until: Option<Instant>,
}

impl Coverage {
    fn note(&mut self, received: usize, lost: &[Lost]) {
        let counts = &mut self.counts;
        for Lost { tag, .. } in lost {
            let follows = self.latest_lost.replace(*tag) == tag.checked_sub(1);
            counts.runs += u64::from(!follows);
            counts.lost += 1;
        }
        counts.judged += (received + lost.len()) as u64;
        // The proxy reports no repair symbols, and what it counts is what it would list.
        (counts.listed, counts.symbols, counts.absent) =
            (counts.judged, counts.judged, counts.lost);
    }
}

/// Bytes that left and that arrived lately.
#[derive(Clone, Copy, Debug, Default)]
struct Balance {
    left: usize,
    arrived: usize,
}

impl Balance {
    fn add(&mut self, left: usize, arrived: usize) {
        (self.left, self.arrived) = (self.left + left, self.arrived + arrived);
        if self.left.max(self.arrived) >= COMPARED {
            (self.left, self.arrived) = (self.left / 2, self.arrived / 2);
        }
    }
}

/// Asks a proxy to put a flow in the order in which it left (SPEC.md, section 7.14).
///
/// Call [`update`](Self::update) after each input of the sender.
#[derive(Debug)]
pub struct LeaveInOrder {
    lossy_until: Option<Instant>,
    /// How many of the first datagrams are still to leave.
    first: u32,
    balance: Balance,
    /// `None` if no parity may be sent.
    coverage: Option<Box<Coverage>>,
}

impl LeaveInOrder {
    /// For a flow that begins. `is_clean` is as for [`InOrder::new`](super::InOrder::new).
    #[must_use]
    pub fn new(is_clean: bool) -> Self {
        let first = if is_clean { 0 } else { FIRST };
        Self { lossy_until: None, first, balance: Balance::default(), coverage: None }
    }

    /// The same, which sends parity to proxies at some distance, if `may_protect`.
    pub(crate) fn protecting(self, may_protect: bool) -> Self {
        Self { coverage: may_protect.then(Box::default), ..self }
    }

    /// Whether parity may be sent at all.
    pub(crate) fn is_protecting(&self) -> bool {
        self.coverage.is_some()
    }

    /// Whether parity may go to a proxy at this near round trip. If it cannot rebuild enough, it
    /// does where repairs are too late. `is_sent` says that it goes there now.
    pub(crate) fn may_protect(&self, near: Duration, is_far: bool, is_sent: bool) -> bool {
        let least = if is_sent { FAR_AWAY * 4 / 5 } else { FAR_AWAY };
        let is_enough = |it: &Coverage| it.protection.state() != ParityState::Overwhelmed;
        near >= least && self.coverage.as_deref().is_some_and(|it| is_far || is_enough(it))
    }

    /// Notes how many datagrams reached the proxy, and which did not.
    pub(crate) fn note_fates(&mut self, received: usize, lost: &[Lost]) {
        self.coverage.iter_mut().for_each(|coverage| coverage.note(received, lost));
    }

    /// A datagram of this length left that repeats no other.
    pub fn on_sent(&mut self, bytes: usize) {
        self.first = self.first.saturating_sub(1);
        self.balance.add(bytes, 0);
    }

    /// A datagram of this length arrived.
    pub fn on_received(&mut self, bytes: usize) {
        self.balance.add(0, bytes);
    }

    /// Whether what arrives mostly acknowledges what leaves.
    #[must_use]
    pub fn is_acknowledged(&self) -> bool {
        let Balance { left, arrived } = self.balance;
        left >= COMPARED / 2 && left > FEWER * arrived
    }

    /// Whether what leaves mostly acknowledges what arrives.
    fn acknowledges(&self) -> bool {
        let Balance { left, arrived } = self.balance;
        arrived >= COMPARED / 2 && arrived > FEWER * left
    }

    /// The near segment lost a datagram. `is_repaired` says that its repair follows.
    pub fn on_lost(&mut self, is_repaired: bool, sender: &mut Sender, now: Instant) {
        self.lossy_until = Some(now + LOSSY);
        let is_congested = !is_repaired && sender.near_loss().congestion > MOSTLY;
        if let Some(coverage) = &mut self.coverage {
            // Parity would add to congestion, and hide some. As of what arrives, a random loss
            // shows that it has ended.
            coverage.congested_until = is_congested.then(|| now + LOSSY);
        }
        if !is_repaired && (is_congested || !sender.covers_order()) {
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
        let wants = repairs
            && sender.may_order()
            && self.is_lossy(now) != Some(false)
            && !self.acknowledges();
        let near = sender.near_rtt().filter(|_| wants);
        sender.order(near.and_then(|near| order(near, whole)));
    }

    /// In place of [`update`](Self::update) where parity takes the place of repairs: sends it, and
    /// has the proxy hold what follows a loss until parity has rebuilt it. Returns false, and does
    /// nothing, while no parity is wanted.
    pub(crate) fn protect(
        &mut self,
        whole: Option<Duration>,
        sender: &mut Sender,
        now: Instant,
    ) -> bool {
        let is_idle = self.is_lossy(now) == Some(false) || self.acknowledges();
        let Some(coverage) = &mut self.coverage else { return false };
        let is_congested = coverage.congested_until.is_some_and(|until| now < until);
        let wants = !is_idle && !is_congested && sender.may_protect();
        let Some(near) = sender.near_rtt().filter(|_| wants) else {
            coverage.protection.pause();
            return false;
        };
        let parity = Some(coverage.protection.wanted(coverage.counts, near, now));
        // Waiting is useless where parity cannot rebuild the loss.
        let waits = coverage.protection.state() != ParityState::Overwhelmed;
        let gap = if waits { parity_hold(whole) } else { Duration::ZERO };
        let hold = Hold { gap, list: FAR_LIST };
        sender.order(Some(SentOrder { every: FAR_EVERY, longest: FAR_LONGEST, hold, parity }));
        true
    }
}
