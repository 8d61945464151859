//! Pacing that does not count what was lost before the proxy.
//!
//! The pacing rate is that of the bottleneck. When it lies behind the proxy, packets lost before
//! the proxy leave gaps there, and a pacer that makes their repair wait its turn never fills them:
//! at 15 % loss the bottleneck stays 15 % idle. So for each packet lost on the near segment one
//! goes at once, and the schedule of the others stays as it is.
#![warn(missing_docs, missing_debug_implementations, unreachable_pub, unused_qualifications)]
#![warn(clippy::all, clippy::cast_possible_truncation, clippy::expect_used, clippy::unwrap_used)]

use super::{Pacer, INITIAL_UNPACED_BURST};
use crate::recovery::{ReleaseDecision, ReleaseTime};

impl Pacer {
    /// Lets one packet go at once for each that was lost on the near segment, but not more than an
    /// initial burst together.
    pub(in crate::recovery::gcongestion) fn sidekick_make_up(&mut self, packets: usize) {
        self.sidekick_repairs = (self.sidekick_repairs + packets).min(INITIAL_UNPACED_BURST);
    }

    /// The release of a repair, if one is due.
    pub(super) fn sidekick_release(&self) -> Option<ReleaseDecision> {
        (self.sidekick_repairs > 0)
            .then_some(ReleaseDecision { time: ReleaseTime::Immediate, allow_burst: true })
    }

    /// Whether the packet that was just sent went as a repair; it does not move the schedule then.
    pub(in crate::recovery::gcongestion) fn sidekick_repaired(&mut self) -> bool {
        let repair = self.sidekick_repairs > 0;
        self.sidekick_repairs -= usize::from(repair);
        repair
    }
}
