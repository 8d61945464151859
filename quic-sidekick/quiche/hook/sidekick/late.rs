//! Packets that arrive although a later one showed a gap in their place: the path reorders packets.

use std::collections::VecDeque;

use super::gaps::{Gap, GapEvent};

/// The most gaps that are remembered. A packet is rarely overtaken by the packets of more.
const MAX_GAPS: usize = 64;

/// Consecutive packet numbers that were missing when a later packet arrived.
#[derive(Clone, Copy, Debug)]
struct Missing {
    gap: u64,
    first: u64,
    last: u64,
}

/// The missing packets of the latest gaps, until they arrive from the path. A proxy's copy does not
/// stand for the packet here.
#[derive(Debug, Default)]
pub(super) struct Late {
    /// The latest gap is last. Memory is allocated with the first one.
    missing: VecDeque<Missing>,
}

impl Late {
    /// Notes a gap that the packet with this number showed.
    pub(super) fn expect(&mut self, gap: &Gap, packet_number: u64) {
        if gap.missing == 0 {
            return;
        }
        self.push(Missing {
            gap: gap.id,
            first: packet_number.saturating_sub(gap.missing),
            last: packet_number.saturating_sub(1),
        });
    }

    fn push(&mut self, missing: Missing) {
        if self.missing.len() >= MAX_GAPS {
            self.missing.pop_front();
        }
        self.missing.push_back(missing);
    }

    /// Notes a packet that arrived from the path. Returns an event if it was missing.
    pub(super) fn arrive(&mut self, packet_number: u64) -> Option<GapEvent> {
        let is_missing = |gap: &Missing| (gap.first..=gap.last).contains(&packet_number);
        let at = self.missing.iter().rposition(is_missing)?;
        let gap = self.missing.remove(at)?;
        if packet_number > gap.first {
            self.push(Missing { last: packet_number - 1, ..gap });
        }
        if packet_number < gap.last {
            self.push(Missing { first: packet_number + 1, ..gap });
        }
        Some(GapEvent::Late { id: gap.gap })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "any instant will do")]

    use super::*;
    use std::time::Instant;

    fn gap(missing: u64) -> Gap {
        Gap { id: 7, after: None, before: 0, missing, found: Instant::now() }
    }

    #[test]
    fn a_packet_is_late_once() {
        let mut late = Late::default();
        late.expect(&gap(3), 13);
        for number in [11, 10, 12] {
            assert_eq!(late.arrive(number), Some(GapEvent::Late { id: 7 }));
            assert_eq!(late.arrive(number), None, "its duplicate");
        }
        assert_eq!((late.arrive(9), late.arrive(13)), (None, None));
    }

    #[test]
    fn the_latest_gaps_are_remembered() {
        let mut late = Late::default();
        for number in 0..1000 {
            late.expect(&gap(1), 2 * number + 1);
            assert!(late.missing.len() <= MAX_GAPS);
        }
        let remembered = (0..1000).filter(|number| late.arrive(2 * number).is_some());
        assert!(remembered.eq(1000 - MAX_GAPS as u64..1000));
    }
}
