//! Pacing that excludes packets lost before the proxy.
//!
//! The pacing rate is that of the bottleneck. If the bottleneck lies behind the proxy, packets lost
//! before the proxy leave gaps there. If their repairs waited for the pacer, they would never fill
//! the gaps: at 15 % loss the bottleneck would stay 15 % idle. So one packet is sent at once for
//! each packet lost on the near segment, and the schedule of the others stays.
#![warn(missing_docs, missing_debug_implementations, unreachable_pub, unused_qualifications)]
#![warn(clippy::all, clippy::cast_possible_truncation, clippy::expect_used, clippy::unwrap_used)]

use super::{Pacer, INITIAL_UNPACED_BURST};
use crate::recovery::{ReleaseDecision, ReleaseTime};

impl Pacer {
    /// Releases one packet at once for each that was lost on the near segment, at most an initial
    /// burst.
    pub(in crate::recovery::gcongestion) fn sidekick_make_up(&mut self, packets: usize) {
        self.sidekick_repairs = (self.sidekick_repairs + packets).min(INITIAL_UNPACED_BURST);
    }

    /// The release time of a repair, if one is due.
    pub(super) fn sidekick_release(&self) -> Option<ReleaseDecision> {
        (self.sidekick_repairs > 0)
            .then_some(ReleaseDecision { time: ReleaseTime::Immediate, allow_burst: true })
    }

    /// Whether the packet just sent was a repair, which does not move the schedule.
    pub(in crate::recovery::gcongestion) fn sidekick_repaired(&mut self) -> bool {
        let repair = self.sidekick_repairs > 0;
        self.sidekick_repairs -= usize::from(repair);
        repair
    }
}
