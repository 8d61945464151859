//! Packets that overtake others on the path, so that copies are requested for nothing.

use std::time::Duration;

/// The weight of the latest missing packet.
const WEIGHT: f32 = 1.0 / 16.0;
/// With a smaller share of late packets among those that are missing, waiting costs more than it
/// saves.
const WORTHWHILE: f32 = 1.0 / 8.0;

/// How many of the missing packets arrive after all, and how late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Overtaking {
    share: f32,
    longest: Duration,
}

impl Overtaking {
    /// Notes missing packets. Whether they are late shows later.
    pub(super) fn on_missing(&mut self, packets: u64) {
        let packets = i32::try_from(packets).unwrap_or(i32::MAX);
        self.share *= (1.0 - WEIGHT).powi(packets);
    }

    /// Notes a missing packet that arrived so long after its gap was found.
    pub(super) fn on_late(&mut self, after: Duration) {
        self.share = (self.share + WEIGHT).min(1.0);
        self.longest =
            after.max(self.longest - (self.longest.saturating_sub(after)).mul_f32(WEIGHT));
    }

    /// How long a gap waits for late packets before copies are requested.
    pub(super) fn patience(&self) -> Duration {
        let longest = self.longest + self.longest / 8;
        if self.share >= WORTHWHILE { longest } else { Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_gap_waits_where_many_packets_are_late() {
        let mut overtaking = Overtaking::default();
        assert_eq!(overtaking.patience(), Duration::ZERO);
        for late in [2, 1, 2, 1] {
            overtaking.on_missing(1);
            overtaking.on_late(late * MS);
        }
        let patience = overtaking.patience();
        assert!((2 * MS..3 * MS).contains(&patience), "{patience:?}");
        // The path is in order again, and loses packets.
        (0..16).for_each(|_| overtaking.on_missing(1));
        assert_eq!(overtaking.patience(), Duration::ZERO);
    }

    #[test]
    fn a_single_late_packet_does_not_count_for_long() {
        let mut overtaking = Overtaking::default();
        (0..8).for_each(|_| overtaking.on_late(2 * MS));
        overtaking.on_late(100 * MS);
        (0..100).for_each(|_| overtaking.on_late(2 * MS));
        assert!(overtaking.patience() < 3 * MS, "{overtaking:?}");
    }
}
