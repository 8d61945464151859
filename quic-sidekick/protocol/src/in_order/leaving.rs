//! When a proxy puts what leaves in order (SPEC.md, section 7.14).

use super::{FIRST, LOSSY, order};
use crate::sender::Sender;
use std::time::{Duration, Instant};

/// A direction with so many times fewer bytes than the other has acknowledgements alone, compared
/// over the latest bytes, at least so many. A later acknowledgement makes up for one that is lost,
/// and if they wait, the data of the other direction wait with them.
const FEWER: usize = 4;
const COMPARED: usize = 1 << 14;

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
}

impl LeaveInOrder {
    /// For a flow that begins. `is_clean` is as for [`InOrder::new`](super::InOrder::new).
    #[must_use]
    pub fn new(is_clean: bool) -> Self {
        let first = if is_clean { 0 } else { FIRST };
        Self { lossy_until: None, first, balance: Balance::default() }
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
        let wants = repairs
            && sender.may_order()
            && self.is_lossy(now) != Some(false)
            && !self.acknowledges();
        let near = sender.near_rtt().filter(|_| wants);
        sender.order(near.and_then(|near| order(near, whole)));
    }
}
