//! A talker's SSRCs and first numbers.

use super::Sources;
use crate::ntp::low16;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub(super) sources: Sources,
    /// The first packet's number, in the lower half. So a listener that misses the first packets
    /// still counts rollovers correctly (RFC 4568, section 6.4, recommends it).
    pub(super) first: u16,
    pub(super) first_timestamp: u32,
    /// The first retransmission's number.
    pub(super) first_rtx: u16,
}

impl Identity {
    pub(super) fn drawn(seed: [u8; 32]) -> Self {
        let mut random = ChaCha8Rng::from_seed(seed);
        let media = random.next_u32();
        let mut rtx = random.next_u32();
        while rtx == media {
            rtx = random.next_u32();
        }
        let mut number = || low16(random.next_u32() >> 16) & 0x7fff;
        let (first, first_rtx) = (number(), number());
        Self {
            sources: Sources { media, rtx },
            first,
            first_timestamp: random.next_u32(),
            first_rtx,
        }
    }
}
