//! The counts of a link.

use serde::{Deserialize, Serialize};

/// The outcome of a push. CoDel drops packets that were accepted before: see
/// [`LinkCounters::lost_aqm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The link accepted the packet.
    Accepted,
    /// Lost at random.
    LostAtRandom,
    /// Lost in an outage.
    LostInOutage,
    /// Larger than the MTU.
    TooLarge,
    /// Dropped by the policer.
    Policed,
    /// Dropped by RED.
    DroppedEarly,
    /// The queue was full.
    QueueFull,
}

/// Counts of one direction of a link. Bytes count whole frames.
///
/// `packets + duplicated` always equals `delivered + lost()` plus the packets in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkCounters {
    /// Packets that reached the link.
    pub packets: u64,
    /// Packets that left at the other end, with damaged and duplicate ones.
    pub delivered: u64,
    /// Bytes of the delivered packets.
    pub delivered_bytes: u64,
    /// Packets lost at random.
    pub lost_random: u64,
    /// Packets dropped by a full queue.
    pub lost_queue: u64,
    /// Packets that RED or CoDel dropped before the queue was full.
    pub lost_aqm: u64,
    /// Packets that exceeded the rate of the policer.
    pub lost_policer: u64,
    /// Packets lost in an outage.
    pub lost_outage: u64,
    /// Packets lost because they were larger than the MTU.
    pub lost_mtu: u64,
    /// Packets that the link duplicated.
    pub duplicated: u64,
    /// Packets that were damaged. The checksum at the receiver drops them.
    pub corrupted: u64,
    /// Packets that skipped the delay.
    pub reordered: u64,
    /// Packets that RED or CoDel marked.
    pub marked: u64,
}

impl LinkCounters {
    /// Packets that the link dropped, whatever the cause.
    pub fn lost(&self) -> u64 {
        self.lost_random + self.congested() + self.lost_outage + self.lost_mtu
    }

    /// Packets that the link dropped because too many came: by a full queue, RED, CoDel or the
    /// policer.
    pub fn congested(&self) -> u64 {
        self.lost_queue + self.lost_aqm + self.lost_policer
    }
}
