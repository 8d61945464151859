//! What a link counts.

use serde::{Deserialize, Serialize};

/// What became of a packet that was pushed. A packet that CoDel drops has been accepted before: see
/// [`LinkCounters::lost_aqm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was sent on its way.
    Accepted,
    /// Lost at random.
    LostAtRandom,
    /// Lost in an outage.
    LostInOutage,
    /// Larger than the MTU.
    TooLarge,
    /// Dropped by RED.
    DroppedEarly,
    /// The queue was full.
    QueueFull,
}

/// Counts of one direction of a link. Bytes are those of whole frames.
///
/// `packets + duplicated` is always `delivered + lost()` and what is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkCounters {
    /// Packets that reached the link.
    pub packets: u64,
    /// Packets that left it at the other end, damaged and doubled ones among them.
    pub delivered: u64,
    /// Bytes of the delivered packets.
    pub delivered_bytes: u64,
    /// Packets lost at random.
    pub lost_random: u64,
    /// Packets dropped by a full queue.
    pub lost_queue: u64,
    /// Packets dropped by RED or CoDel while there was room.
    pub lost_aqm: u64,
    /// Packets lost in an outage.
    pub lost_outage: u64,
    /// Packets lost because they were larger than the MTU.
    pub lost_mtu: u64,
    /// Packets that the link made a second one of.
    pub duplicated: u64,
    /// Packets that were damaged; the receiver's checksum will drop them.
    pub corrupted: u64,
    /// Packets that were spared the delay.
    pub reordered: u64,
    /// Packets that RED or CoDel marked.
    pub marked: u64,
}

impl LinkCounters {
    /// Packets that the link dropped, whatever the cause.
    pub fn lost(&self) -> u64 {
        self.lost_random + self.lost_queue + self.lost_aqm + self.lost_outage + self.lost_mtu
    }
}
