//! A proxy whose copies differ from the datagrams that passed, and which loses messages about them.

use std::time::Instant;

use super::{Chance, Schedule, in_force, share};
use crate::link::flip_a_bit;
use crate::record::FaultCounts;
use crate::scenario::{Fault, Lie};

/// The identifier is at the end of a kept datagram. These are its bytes.
const IDENTIFIER_LEN: usize = 4;

/// The copies that the observer keeps, and the messages about them that are lost.
#[derive(Debug)]
pub(in crate::sim) struct Copies {
    schedule: Schedule,
    wrong: Chance,
    place: Chance,
    withheld: Chance,
    unasked: Chance,
    invention: Chance,
    message: Chance,
    repeat: Chance,
    earlier: Vec<u8>,
    scratch: Vec<u8>,
    pub(in crate::sim) counts: FaultCounts,
}

impl Copies {
    /// The faults of a run with this schedule, which draw from streams 16 to 22 of the faults.
    pub(in crate::sim) fn new(schedule: Schedule, seed: u64) -> Self {
        let chance = |number| Chance::new(seed, number);
        Self {
            schedule,
            wrong: chance(16),
            place: chance(17),
            withheld: chance(18),
            unasked: chance(19),
            invention: chance(20),
            message: chance(21),
            repeat: chance(22),
            earlier: Vec::new(),
            scratch: Vec::new(),
            counts: FaultCounts::default(),
        }
    }

    /// Passes the datagrams to `keep` that the observer keeps for the datagram that passes now, in
    /// its order. `keep` returns whether it kept a copy. `asked` states whether a session asked for
    /// copies of this datagram.
    pub(in crate::sim) fn keep(
        &mut self,
        datagram: &[u8],
        asked: bool,
        now: Instant,
        mut keep: impl FnMut(&[u8]) -> bool,
    ) {
        let lie = in_force!(self.schedule, now, Fault::ProxyLies);
        let wrong = self.wrong.strikes(share!(lie, Lie::WrongCopies));
        let withheld = self.withheld.strikes(share!(lie, Lie::NoCopies));
        let unasked = self.unasked.strikes(share!(lie, Lie::UnaskedCopies));
        let (place, invention) = (self.place.next(), self.invention.next());
        if unasked {
            self.counts.copies_invented +=
                u64::from(self.keep_another(datagram, invention, &mut keep));
        }
        if withheld {
            self.counts.copies_withheld += u64::from(asked);
            return;
        }
        if wrong {
            self.scratch.clear();
            self.scratch.extend_from_slice(datagram);
            // The identifier stays.
            let contents = self.scratch.len().saturating_sub(IDENTIFIER_LEN);
            flip_a_bit(self.scratch.get_mut(..contents).unwrap_or_default(), place);
            self.counts.copies_falsified += u64::from(keep(&self.scratch));
        } else {
            keep(datagram);
        }
        if invention % 64 == 0 {
            self.earlier.clear();
            self.earlier.extend_from_slice(datagram);
        }
    }

    /// Keeps a copy of an earlier datagram, or of one that no host sent.
    fn keep_another(
        &mut self,
        datagram: &[u8],
        random: u64,
        keep: &mut impl FnMut(&[u8]) -> bool,
    ) -> bool {
        if random & 1 == 0 && !self.earlier.is_empty() {
            return keep(&self.earlier);
        }
        self.scratch.clear();
        self.scratch.resize(datagram.len(), 0);
        self.invention.fill(&mut self.scratch);
        if let Some(first) = self.scratch.first_mut() {
            // This makes a short header.
            *first = *first & 0x7f | 0x40;
        }
        keep(&self.scratch)
    }

    /// Whether a message to the proxy is lost as it arrives.
    pub(in crate::sim) fn loses_message(&mut self, now: Instant) -> bool {
        let lost = self.message.strikes(in_force!(self.schedule, now, Fault::MessageLoss));
        self.counts.messages_lost += u64::from(lost);
        lost
    }

    /// Whether a copy is lost as it leaves the proxy.
    pub(in crate::sim) fn loses_repeat(&mut self, now: Instant) -> bool {
        let lost = self.repeat.strikes(in_force!(self.schedule, now, Fault::RepeatLoss));
        self.counts.repeats_lost += u64::from(lost);
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use crate::sim::faults::tests::schedule;

    const DATAGRAMS: u32 = 10_000;

    /// A datagram that passed, and the copy that was kept.
    type Pair = (Vec<u8>, Vec<u8>);

    /// Passes several datagrams. Returns each with its copy.
    fn kept(events: &str) -> (Vec<Pair>, FaultCounts) {
        kept_for(true, events)
    }

    /// Like `kept`, for a session that has asked for copies, or has not.
    fn kept_for(asked: bool, events: &str) -> (Vec<Pair>, FaultCounts) {
        let (schedule, now) = schedule(&Scenario::load("download-paper").unwrap(), events);
        let mut copies = Copies::new(schedule, 3);
        let mut kept = Vec::new();
        for number in 0..DATAGRAMS {
            let datagram = [[0x40; 100].as_slice(), &number.to_be_bytes()].concat();
            copies.keep(&datagram, asked, now, |copy| {
                kept.push((datagram.clone(), copy.to_vec()));
                asked
            });
        }
        (kept, copies.counts)
    }

    #[test]
    fn without_a_lie_all_is_kept_as_it_is() {
        let (kept, counts) = kept("proxy-restart at 0");
        assert!(kept.len() == 10_000 && kept.iter().all(|(passed, copy)| passed == copy));
        assert_eq!(counts, FaultCounts::default());
    }

    #[test]
    fn a_wrong_copy_has_one_wrong_bit_and_its_identifier() {
        let (kept, counts) = kept("proxy-lies wrong-copies 50 at 0");
        let wrong = kept.iter().filter(|(passed, copy)| passed != copy).count();
        assert_eq!((kept.len(), counts.copies_falsified), (10_000, wrong as u64));
        assert!((4700..5300).contains(&wrong), "{wrong}");
        for (passed, copy) in &kept {
            assert_eq!(passed[100..], copy[100..]);
            let differing = passed.iter().zip(copy).map(|(a, b)| (a ^ b).count_ones());
            assert!(differing.sum::<u32>() <= 1);
        }
    }

    #[test]
    fn withheld_copies_are_missing_and_unasked_copies_are_additional() {
        let (without, counts) = kept("proxy-lies no-copies at 0");
        assert_eq!(without.len() as u64 + counts.copies_withheld, 10_000);
        assert!((2300..2700).contains(&counts.copies_withheld), "{counts:?}");
        let (with, counts) = kept("proxy-lies unasked-copies at 0");
        assert_eq!(with.len() as u64, 10_000 + counts.copies_invented);
        assert!((2300..2700).contains(&counts.copies_invented), "{counts:?}");
        let others: Vec<_> = with.iter().filter(|(passed, copy)| passed != copy).collect();
        let earlier = |copy: &[u8]| copy.starts_with(&[0x40; 100]);
        let repeated = others.iter().filter(|(_, copy)| earlier(copy)).count();
        assert!((900..1500).contains(&repeated) && others.len() > repeated, "{repeated}");
        assert_eq!(with.iter().filter(|(passed, copy)| passed == copy).count(), 10_000);
    }

    #[test]
    fn without_a_session_no_copy_is_a_lie() {
        for lie in ["wrong-copies", "no-copies", "unasked-copies"] {
            let (_, counts) = kept_for(false, &format!("proxy-lies {lie} at 0"));
            assert_eq!(counts, FaultCounts::default(), "{lie}");
        }
    }

    #[test]
    fn messages_and_copies_are_lost_as_configured() {
        let events = "message-loss 20 at 0; repeat-loss 40 at 0";
        let (schedule, now) = schedule(&Scenario::load("download-paper").unwrap(), events);
        let mut copies = Copies::new(schedule, 3);
        for _ in 0..10_000 {
            copies.loses_message(now);
            copies.loses_repeat(now);
        }
        let FaultCounts { messages_lost, repeats_lost, .. } = copies.counts;
        assert!((1800..2200).contains(&messages_lost), "{messages_lost}");
        assert!((3800..4200).contains(&repeats_lost), "{repeats_lost}");
    }
}
