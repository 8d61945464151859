//! A proxy that sees less than it forwards, or tells what is not so.

use std::time::Instant;

use sidekick_protocol::HEAD_LEN;
use sidekick_protocol::wire::{Body, Message, Quack, Sums};

use super::{Chance, Schedule};
use crate::record::FaultCounts;
use crate::scenario::{Fault, Lie};
use crate::units::Percent;

/// The prime of the power sums (SPEC.md, section 3): a sum is below it, or the quACK would not be looked at.
const PRIME: u64 = 4_294_967_291;
/// The share of packets that a proxy lies about which claims too much or too little.
const SHARE_PERCENT: f64 = 25.0;

/// What the observer does not see, sees without its being there, and has to say in place of the truth.
#[derive(Debug)]
pub(in crate::sim) struct Lies {
    schedule: Schedule,
    capture: Chance,
    omission: Chance,
    addition: Chance,
    invention: Chance,
    garbage: Chance,
    /// What has happened so far.
    pub(in crate::sim) counts: FaultCounts,
}

impl Lies {
    /// The lies of a run with these faults, which draw from streams 8 to 12 of the faults.
    pub(in crate::sim) fn new(schedule: Schedule, seed: u64) -> Self {
        let chance = |number| Chance::new(seed, number);
        Self {
            schedule,
            capture: chance(8),
            omission: chance(9),
            addition: chance(10),
            invention: chance(11),
            garbage: chance(12),
            counts: FaultCounts::default(),
        }
    }

    /// Whether the observer sees, and takes note of, the packet that comes in now.
    pub(in crate::sim) fn sees(&mut self, now: Instant) -> bool {
        let drops = self.schedule.in_force(now, |fault| match fault {
            Fault::CaptureDrops(share) => Some(share),
            _ => None,
        });
        let missed = self.capture.strikes(drops);
        let omitted = self.omission.strikes(self.share_of(Lie::TooLittle, now));
        if missed || omitted {
            self.counts.packets_not_seen += 1;
        }
        !missed && !omitted
    }

    /// The head of a packet that nobody sent, but that the observer is to count now.
    pub(in crate::sim) fn invents(&mut self, now: Instant) -> Option<[u8; HEAD_LEN]> {
        if !self.addition.strikes(self.share_of(Lie::TooMuch, now)) {
            return None;
        }
        self.counts.packets_invented += 1;
        let mut head = [0; HEAD_LEN];
        self.invention.fill(&mut head);
        if let Some(first) = head.first_mut() {
            // A short header.
            *first &= 0x7f;
        }
        Some(head)
    }

    /// Puts random numbers in the place of what a quACK has to say, if it is one and the proxy tells garbage.
    pub(in crate::sim) fn falsify(&mut self, message: &mut [u8], now: Instant) {
        if self.lie(now) != Some(Lie::Garbage) {
            return;
        }
        let Ok(Message { session, body: Body::Quack(quack) }) = Message::parse(message) else { return };
        let (epoch, sequence, token, age_us) = (quack.epoch, quack.sequence, quack.token, quack.age_us);
        let sums: Vec<u32> = (0..quack.sums.len()).map(|_| self.number()).collect();
        let (first, last, count) = (self.number(), self.number(), self.number());
        let quack = Quack { epoch, sequence, token, age_us, first, last, count, sums: Sums::new(&sums) };
        let emitted = Message { session, body: Body::Quack(quack) }.emit(message);
        debug_assert!(emitted.is_ok(), "it is as long as the true one");
        self.counts.quacks_falsified += 1;
    }

    fn number(&mut self) -> u32 {
        u32::try_from(self.garbage.next() % PRIME).unwrap_or_default()
    }

    fn lie(&self, now: Instant) -> Option<Lie> {
        self.schedule.in_force(now, |fault| match fault {
            Fault::ProxyLies(lie) => Some(lie),
            _ => None,
        })
    }

    fn share_of(&self, lie: Lie, now: Instant) -> Option<Percent> {
        (self.lie(now) == Some(lie)).then(|| Percent::new(SHARE_PERCENT)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use crate::sim::faults::tests::schedule;
    use sidekick_protocol::wire::SessionId;
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
    fn shares_are_as_said() {
        assert_eq!(shares("proxy-restart at 0"), (0, 0));
        for (events, unseen, invented) in [
            ("capture-drops 5 at 0", 450..550, 0..1),
            ("proxy-lies too-little at 0", 2300..2700, 0..1),
            ("proxy-lies too-much at 0", 0..1, 2300..2700),
        ] {
            let (no, more) = shares(events);
            assert!(unseen.contains(&no) && invented.contains(&more), "{events}: {no}, {more}");
        }
    }

    #[test]
    fn garbage_is_a_quack_of_the_same_session_and_lasts_as_long_as_said() {
        let (mut lies, start) = lies("proxy-lies garbage at 10 for 5");
        let sums = [1, 2, 3];
        let quack = Quack {
            epoch: 7,
            sequence: 8,
            token: 9,
            age_us: 10,
            first: 11,
            last: 12,
            count: 13,
            sums: Sums::new(&sums),
        };
        let mut buffer = [0; 100];
        let length = Message { session: SessionId(6), body: Body::Quack(quack) }.emit(&mut buffer).unwrap();
        let truth = &buffer[..length];
        let mut told = |ms| {
            let mut message = truth.to_vec();
            lies.falsify(&mut message, start + Duration::from_millis(ms));
            message
        };
        assert_eq!((told(9), told(15)), (truth.to_vec(), truth.to_vec()));
        let told = told(10);
        let Message { session, body: Body::Quack(told) } = Message::parse(&told).unwrap() else { panic!() };
        assert_eq!(
            (session, told.epoch, told.sequence, told.token, told.age_us),
            (SessionId(6), 7, 8, 9, 10)
        );
        assert_eq!(told.sums.len(), 3);
        assert!(told.first != 11 && told.last != 12 && told.count != 13 && told.sums != Sums::new(&sums));
        assert!(told.sums.iter().all(|sum| u64::from(sum) < PRIME));
    }
}
