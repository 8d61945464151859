//! A proxy that counts less than it forwards, or reports falsehoods.

use std::time::Instant;

use sidekick_protocol::HEAD_LEN;
use sidekick_protocol::wire::discovery::Marker;

use super::{Chance, Schedule, in_force, share};
use crate::record::FaultCounts;
use crate::scenario::{Fault, Lie};

/// The place of a four-byte identifier in packets of the lab's senders: the default.
const IDENTIFIER: std::ops::Range<usize> = 21..25;

/// The packets that the observer misses, invents, or counts by another identifier.
#[derive(Debug)]
pub(in crate::sim) struct Lies {
    schedule: Schedule,
    capture: Chance,
    omission: Chance,
    addition: Chance,
    invention: Chance,
    garbage: Chance,
    garbling: Chance,
    /// Whether the observer counted a packet by another identifier since the last quACK.
    is_falsified: bool,
    pub(in crate::sim) counts: FaultCounts,
}

impl Lies {
    /// The lies of a run with these faults, which draw from streams 8 to 13 of the faults.
    pub(in crate::sim) fn new(schedule: Schedule, seed: u64) -> Self {
        let chance = |number| Chance::new(seed, number);
        Self {
            schedule,
            capture: chance(8),
            omission: chance(9),
            addition: chance(10),
            invention: chance(11),
            garbage: chance(12),
            garbling: chance(13),
            is_falsified: false,
            counts: FaultCounts::default(),
        }
    }

    /// Whether the observer counts the packet that arrives now.
    pub(in crate::sim) fn sees(&mut self, now: Instant) -> bool {
        let drops = in_force!(self.schedule, now, Fault::CaptureDrops);
        let missed = self.capture.strikes(drops);
        let omitted = self.omission.strikes(share!(self.lie(now), Lie::TooLittle));
        if missed || omitted {
            self.counts.packets_not_seen += 1;
        }
        !missed && !omitted
    }

    /// The head of an invented packet that the observer counts now.
    pub(in crate::sim) fn invents(&mut self, now: Instant) -> Option<[u8; HEAD_LEN]> {
        if !self.addition.strikes(share!(self.lie(now), Lie::TooMuch)) {
            return None;
        }
        self.counts.packets_invented += 1;
        let mut head = [0; HEAD_LEN];
        self.invention.fill(&mut head);
        if let Some(first) = head.first_mut() {
            // This makes a short header.
            *first &= 0x7f;
        }
        Some(head)
    }

    /// The head of the packet with this payload, with a random identifier in place of its own, if
    /// the proxy reports garbage now. A marker keeps its identifier, because it does not count.
    pub(in crate::sim) fn renames(
        &mut self,
        payload: &[u8],
        now: Instant,
    ) -> Option<[u8; HEAD_LEN]> {
        let (random, chance) = (self.garbage.next(), self.garbling.next());
        let mut head = *payload.first_chunk::<HEAD_LEN>()?;
        let garbled = matches!(self.lie(now), Some(Lie::Garbage(share)) if share.strikes(chance));
        if !garbled || Marker::parse(payload).is_ok() {
            return None;
        }
        let [identifier @ .., _, _, _, _] = random.to_be_bytes();
        head.get_mut(IDENTIFIER)?.copy_from_slice(&identifier);
        Some(head)
    }

    /// Records that the observer counted a packet by another identifier.
    pub(in crate::sim) fn on_renamed(&mut self) {
        self.is_falsified = true;
    }

    pub(in crate::sim) fn on_quack(&mut self) {
        self.counts.quacks_falsified += u64::from(std::mem::take(&mut self.is_falsified));
    }

    fn lie(&self, now: Instant) -> Option<Lie> {
        in_force!(self.schedule, now, Fault::ProxyLies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use crate::sim::faults::tests::schedule;
    use sidekick_protocol::wire::discovery::{MARKER_LEN, Reply};
    use std::time::Duration;

    fn lies(events: &str) -> (Lies, Instant) {
        let (schedule, start) = schedule(&Scenario::load("upload-paper").unwrap(), events);
        (Lies::new(schedule, 3), start)
    }

    fn shares(events: &str) -> (usize, usize) {
        let (mut lies, now) = lies(events);
        let unseen = (0..10_000).filter(|_| !lies.sees(now)).count();
        (unseen, (0..10_000).filter(|_| lies.invents(now).is_some()).count())
    }

    #[test]
    fn shares_are_as_configured() {
        assert_eq!(shares("proxy-restart at 0"), (0, 0));
        for (events, unseen, invented) in [
            ("capture-drops 5 at 0", 450..550, 0..1),
            ("proxy-lies too-little at 0", 2300..2700, 0..1),
            ("proxy-lies too-much at 0", 0..1, 2300..2700),
            ("proxy-lies too-little 10 at 0", 900..1100, 0..1),
            ("proxy-lies too-much 5 at 0", 0..1, 450..550),
        ] {
            let (no, more) = shares(events);
            assert!(unseen.contains(&no) && invented.contains(&more), "{events}: {no}, {more}");
        }
    }

    #[test]
    fn garbage_is_another_identifier_during_its_event() {
        let (mut lies, start) = lies("proxy-lies garbage at 10 for 5");
        let payload: Vec<u8> = (0x40..0x7f).collect();
        let mut renamed =
            |ms, payload: &[u8]| lies.renames(payload, start + Duration::from_millis(ms));
        assert_eq!((renamed(9, &payload), renamed(15, &payload)), (None, None));
        assert_eq!(renamed(10, &payload[..24]), None, "it has no identifier");
        let (one, other) = (renamed(10, &payload).unwrap(), renamed(14, &payload).unwrap());
        assert_eq!((&one[..21], &other[..21]), (&payload[..21], &payload[..21]));
        assert!(one[21..] != payload[21..25] && other[21..] != payload[21..25] && one != other);

        let mut marker = [0; MARKER_LEN];
        Marker { handle: [1; 20], nonce: [2; 16], reply: Reply::Path }.emit(&mut marker).unwrap();
        assert_eq!(renamed(10, &marker), None);
    }

    #[test]
    fn a_quack_counts_as_falsified_after_a_renamed_packet() {
        let (mut lies, _) = lies("proxy-lies garbage at 0");
        let mut falsified = |renamed: usize| {
            (0..renamed).for_each(|_| lies.on_renamed());
            lies.on_quack();
            lies.counts.quacks_falsified
        };
        assert_eq!([0, 1, 0, 5, 0].map(&mut falsified), [0, 1, 1, 2, 2]);
    }
}
