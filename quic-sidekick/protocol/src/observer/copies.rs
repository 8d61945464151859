//! Copies of datagrams that passed, for a while and within a budget (SPEC.md, section 6.8).
//!
//! A session's [`Copies`] fill blocks of the [`Pool`] in the order in which datagrams pass. They
//! return each block when all datagrams in it are too old. Keeping a datagram copies its bytes
//! once, and allocates nothing once the pool has grown.

use super::pacer::{self, Passed};
use super::pool::{BLOCK, Block, Pool};
use crate::identify::Position;
use crate::wire::{MAX_KEPT_LEN, Part, Range};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

/// The most datagrams that a session keeps.
const MAX_KEPT: usize = 8192;
/// The most repetitions of a datagram.
const MAX_REPEATS: u8 = 16;

/// A kept datagram. Its bytes are in the block with the number `block`.
#[derive(Clone, Copy, Debug)]
struct Kept {
    at: Instant,
    block: u64,
    offset: u32,
    len: u16,
    repeats: u8,
}

/// The datagrams between two others, by position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// The position of the first.
    pub(super) first: u64,
    /// How many there are.
    pub(super) len: usize,
}

/// The kept datagrams of one flow, in the order in which they passed. Each has a *position*: the
/// number of datagrams before it.
#[derive(Debug)]
pub(super) struct Copies {
    /// The prefix of the flow's source.
    source: IpAddr,
    /// What identifies a copy.
    position: Position,
    /// The session's share of the pool, in blocks.
    max_blocks: usize,
    max_age: Duration,
    blocks: VecDeque<Block>,
    /// The number of the first block.
    first_block: u64,
    kept: VecDeque<Kept>,
    /// The identifiers of `kept`, apart so that a search reads little memory.
    identifiers: VecDeque<u32>,
    /// The position of the first kept datagram.
    first: u64,
    /// The cost of all kept datagrams for the pacer.
    cost: usize,
    /// The interface whose datagrams are kept: the first that showed one while none was kept.
    interface: Option<u32>,
}

impl Copies {
    /// Keeps datagrams for `max_age`, and at most `max_bytes` of them.
    pub(super) fn new(max_bytes: usize, max_age: Duration) -> Self {
        Self {
            source: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            position: Position::End,
            max_blocks: max_bytes / BLOCK,
            max_age,
            blocks: VecDeque::new(),
            first_block: 0,
            kept: VecDeque::new(),
            identifiers: VecDeque::new(),
            first: 0,
            cost: 0,
            interface: None,
        }
    }

    /// Sets the prefix of the flow's source, and what identifies a copy, before anything is kept.
    pub(super) fn set_flow(&mut self, source: IpAddr, position: Position) {
        (self.source, self.position) = (source, position);
    }

    /// Whether copies are identified by their last four bytes, as parity needs it.
    pub(super) fn end_in_identifiers(&self) -> bool {
        self.position != Position::Whole
    }

    pub(super) fn set_max_age(&mut self, max_age: Duration) {
        self.max_age = max_age;
    }

    /// The number of datagrams that are kept.
    pub(super) fn count(&self) -> usize {
        self.kept.len()
    }

    /// The position of the oldest datagram that is kept, or of the next to pass.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// The number of datagrams that passed since keeping began.
    pub(super) fn passed(&self) -> u64 {
        self.first + u64::try_from(self.kept.len()).unwrap_or(0)
    }

    /// The identifier of the latest datagram, if it is still kept.
    pub(super) fn latest(&self) -> Option<u32> {
        self.identifiers.back().copied()
    }

    /// When the latest datagram passed, if it is still kept.
    pub(super) fn latest_at(&self) -> Option<Instant> {
        self.kept.back().map(|kept| kept.at)
    }

    /// When the latest datagram is too old, and with it all others.
    pub(super) fn expiry(&self) -> Option<Instant> {
        self.latest_at().map(|at| at + self.max_age)
    }

    /// Keeps a datagram that `interface` captured. Returns whether it was kept: the session keeps
    /// those of one interface, and none that is too long or has no identifier.
    pub(super) fn keep(
        &mut self,
        datagram: &[u8],
        interface: u32,
        now: Instant,
        pool: &mut Pool,
    ) -> bool {
        let Some(identifier) = self.position.of_copy(datagram) else { return false };
        if datagram.len() > MAX_KEPT_LEN {
            return false;
        }
        self.expire(now, pool);
        if self.kept.is_empty() {
            // The flow may have moved.
            self.interface = None;
        }
        if *self.interface.get_or_insert(interface) != interface {
            return false;
        }
        if self.kept.len() >= MAX_KEPT {
            self.forget_first(pool);
        }
        let has_room = |block: &Block| block.len() + datagram.len() <= BLOCK;
        if !self.blocks.back().is_some_and(has_room) && !self.add_block(pool) {
            return false;
        }
        let Some(block) = self.blocks.back_mut() else { return false };
        let (Ok(offset), Ok(len)) = (u32::try_from(block.len()), u16::try_from(datagram.len()))
        else {
            return false;
        };
        block.extend_from_slice(datagram);
        let block = self.first_block + u64::try_from(self.blocks.len() - 1).unwrap_or(0);
        self.kept.push_back(Kept { at: now, block, offset, len, repeats: 0 });
        self.identifiers.push_back(identifier);
        self.cost += pacer::cost(datagram.len());
        true
    }

    /// Appends a block: one of the pool's, or this session's own oldest.
    fn add_block(&mut self, pool: &mut Pool) -> bool {
        let has_room = self.blocks.len() < self.max_blocks;
        let new = has_room.then(|| pool.take(self.source, self.max_blocks)).flatten();
        let Some(mut block) = new.or_else(|| self.forget_block()) else { return false };
        block.clear();
        self.blocks.push_back(block);
        true
    }

    /// Takes the first block from the session, and forgets the datagrams in it.
    fn forget_block(&mut self) -> Option<Block> {
        while self.kept.front().is_some_and(|kept| kept.block == self.first_block) {
            self.forget_one();
        }
        let block = self.blocks.pop_front()?;
        self.first_block += 1;
        Some(block)
    }

    /// Changes the session's share of the pool. Returns the first blocks beyond it.
    pub(super) fn resize(&mut self, max_bytes: usize, pool: &mut Pool) {
        self.max_blocks = max_bytes / BLOCK;
        while self.blocks.len() > self.max_blocks
            && let Some(block) = self.forget_block()
        {
            pool.give(self.source, block);
        }
    }

    /// Returns the first block if the pool has lent more than its limits. Returns false if it has
    /// not, or the session has no block.
    pub(super) fn return_excess(&mut self, pool: &mut Pool) -> bool {
        let exceeds = pool.exceeds(self.source, self.max_blocks);
        let block = exceeds.then(|| self.forget_block()).flatten();
        block.map(|block| pool.give(self.source, block)).is_some()
    }

    fn forget_one(&mut self) {
        if let Some(kept) = self.kept.pop_front() {
            self.cost -= pacer::cost(kept.len.into());
            self.identifiers.pop_front();
            self.first += 1;
        }
    }

    /// Forgets the first datagram, and returns blocks without datagrams.
    fn forget_first(&mut self, pool: &mut Pool) {
        self.forget_one();
        let needed = self.kept.front().map_or(u64::MAX, |kept| kept.block);
        while self.first_block < needed
            && let Some(block) = self.blocks.pop_front()
        {
            pool.give(self.source, block);
            self.first_block += 1;
        }
    }

    /// Forgets datagrams that are too old.
    pub(super) fn expire(&mut self, now: Instant, pool: &mut Pool) {
        let old = |kept: &Kept| now.saturating_duration_since(kept.at) >= self.max_age;
        let count = self.kept.iter().take_while(|kept| old(kept)).count();
        for _ in 0..count {
            self.forget_first(pool);
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self, pool: &mut Pool) {
        while !self.kept.is_empty() {
            self.forget_first(pool);
        }
        while let Some(block) = self.blocks.pop_front() {
            pool.give(self.source, block);
            self.first_block += 1;
        }
        self.interface = None;
    }

    /// Reads the fields that [`Copies::keep`] needs, so that they are in the cache.
    #[inline]
    pub(super) fn touch(&self) -> u8 {
        let memory = self.blocks.back().and_then(|block| block.last()).copied();
        let repeats = self.kept.back().map_or(0, |kept| kept.repeats);
        let oldest = self.kept.front().map_or(0, |kept| kept.repeats);
        let identifier = self.identifiers.back().map_or(0, |id| id.to_be_bytes()[0]);
        memory.unwrap_or(0) ^ repeats ^ oldest ^ identifier
    }

    /// The datagrams of a range. Its ends are the latest with these identifiers, which hardly ever
    /// repeat. `None` if a named datagram is not kept in this order. While every datagram that
    /// passed is kept, `after` may name an earlier datagram: the range then has everything before
    /// its end.
    pub(super) fn find(&self, range: &Range) -> Option<Found> {
        let Range { after, before, inclusive, .. } = *range;
        let end = match before {
            Some(before) => {
                self.identifiers.iter().rposition(|id| *id == before)? + usize::from(inclusive)
            }
            None => self.identifiers.len(),
        };
        let start = match after {
            Some(after) => {
                let earlier = self.identifiers.iter().take(end);
                match earlier.rev().position(|id| *id == after) {
                    Some(from_end) => end - from_end,
                    None if self.first == 0 && !self.identifiers.contains(&after) => 0,
                    None => return None,
                }
            }
            None => 0,
        };
        let first = self.first + u64::try_from(start).ok()?;
        Some(Found { first, len: end - start })
    }

    /// The traffic since the oldest kept datagram.
    pub(super) fn passed_lately(&self, now: Instant) -> Passed {
        let first = self.kept.front().map_or(now, |kept| kept.at);
        Passed { cost: self.cost, span: now.saturating_duration_since(first) }
    }

    /// The length of the datagram at a position; `None` if it cannot be repeated. `begun`: its
    /// first part was sent, and the second one is to follow.
    pub(super) fn len_at(&self, position: u64, begun: bool) -> Option<usize> {
        let index = usize::try_from(position.checked_sub(self.first)?).ok()?;
        let kept = self.kept.get(index).filter(|kept| begun || kept.repeats < MAX_REPEATS)?;
        Some(kept.len.into())
    }

    /// The identifier of the datagram at a position; `None` if it is no longer kept.
    pub(super) fn identifier_at(&self, position: u64) -> Option<u32> {
        let index = usize::try_from(position.checked_sub(self.first)?).ok()?;
        self.identifiers.get(index).copied()
    }

    /// The datagram at a position; `None` if it is no longer kept.
    pub(super) fn at(&self, position: u64) -> Option<&[u8]> {
        let index = usize::try_from(position.checked_sub(self.first)?).ok()?;
        self.bytes(self.kept.get(index)?)
    }

    fn bytes(&self, kept: &Kept) -> Option<&[u8]> {
        let block = usize::try_from(kept.block - self.first_block).ok()?;
        let offset = usize::try_from(kept.offset).ok()?;
        self.blocks.get(block)?.get(offset..offset + usize::from(kept.len))
    }

    /// The datagram at a position, to repeat it. `None` if it is no longer kept or was repeated too
    /// often. A second part belongs to the repetition that the first one began.
    pub(super) fn repeat(&mut self, position: u64, part: Part) -> Option<&[u8]> {
        let index = usize::try_from(position.checked_sub(self.first)?).ok()?;
        let begins = u8::from(part != Part::Second);
        let may_repeat = |repeats: u8| repeats + begins <= MAX_REPEATS;
        let kept = self.kept.get_mut(index).filter(|kept| may_repeat(kept.repeats))?;
        kept.repeats += begins;
        let kept = *kept;
        self.bytes(&kept)
    }
}

/// A position modulo 2^32, as messages have it.
pub(super) fn low(position: u64) -> u32 {
    u32::try_from(position & u64::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Numbers;
    use crate::testing::key;

    const MS: Duration = Duration::from_millis(1);

    #[allow(clippy::disallowed_methods, reason = "any instant will do to begin with")]
    fn start() -> Instant {
        Instant::now()
    }

    /// A datagram whose last bytes are `identifier`.
    fn datagram(identifier: u32, len: usize) -> Vec<u8> {
        let mut datagram = vec![identifier.to_be_bytes()[3]; len];
        datagram[len - 4..].copy_from_slice(&identifier.to_be_bytes());
        datagram
    }

    /// The kept datagrams, as a list.
    #[derive(Default)]
    struct Model {
        kept: VecDeque<(u32, Instant, Vec<u8>)>,
        /// Nothing was dropped yet.
        is_whole: bool,
    }

    impl Model {
        fn find(&self, range: &Range) -> Option<Vec<Vec<u8>>> {
            let Range { after, before, inclusive, .. } = *range;
            let position =
                |id: u32, to: usize| self.kept.iter().take(to).rposition(|kept| kept.0 == id);
            let end = match before {
                Some(id) => position(id, self.kept.len())? + usize::from(inclusive),
                None => self.kept.len(),
            };
            let start = match after {
                None => 0,
                Some(id) if self.is_whole && position(id, self.kept.len()).is_none() => 0,
                Some(id) => position(id, end)? + 1,
            };
            Some(self.kept.range(start..end).map(|kept| kept.2.clone()).collect())
        }
    }

    #[test]
    fn kept_datagrams_are_found() {
        let mut numbers = Numbers::new(key(1));
        let mut draw = |below: u32| numbers.next_u32() % below;
        let age = 100 * MS;
        let mut pool = Pool::new(10 * BLOCK);
        let mut copies = Copies::new(4 * BLOCK, age);
        let (mut model, mut now) = (Model { is_whole: true, ..Model::default() }, start());
        let mut found = 0;
        for step in 0..20_000_u32 {
            now += Duration::from_micros(u64::from(draw(1200)));
            let len = usize::try_from(draw(1500) + 4).unwrap();
            // Some identifiers repeat.
            let next = datagram(step - draw(2) * draw(5).min(step), len);
            let kept = copies.keep(&next, 0, now, &mut pool);
            assert_eq!(kept, len <= MAX_KEPT_LEN);
            copies.expire(now, &mut pool);
            while model.kept.front().is_some_and(|(_, at, _)| now - *at >= age) {
                model.kept.pop_front();
                model.is_whole = false;
            }
            if kept {
                model.kept.push_back((Position::End.of_copy(&next).unwrap(), now, next));
            }
            // The copies may have had room for less: never for the latest 3 blocks.
            while model.kept.len() > copies.kept.len() {
                model.kept.pop_front();
                model.is_whole = false;
            }
            let bytes: usize = model.kept.iter().map(|kept| kept.2.len()).sum();
            let oldest = model.kept.front().map_or(Duration::ZERO, |kept| now - kept.1);
            assert!(bytes > 2 * BLOCK || oldest < age && model.kept.len() == copies.kept.len());
            let ends = [step.saturating_sub(draw(90)), step.saturating_sub(draw(90))];
            let [after, before] = ends.map(|id| (id % 7 > 0).then_some(id));
            let inclusive = before.is_some() && draw(2) == 0;
            let asked = Range { inclusive, ..Range::new(after, before) };
            let (expected, range) = (model.find(&asked), copies.find(&asked));
            assert_eq!(range.map(|range| range.len), expected.as_ref().map(Vec::len));
            if let (Some(range), Some(expected)) = (range, expected) {
                for (position, expected) in (range.first..).zip(&expected).take(5) {
                    // Unless it was repeated too often.
                    if let Some(copy) = copies.repeat(position, Part::Whole) {
                        assert_eq!(copy, expected);
                        found += 1;
                    }
                }
            }
            assert!(copies.blocks.len() <= 4);
            assert_eq!(pool.used_bytes(), copies.blocks.len() * BLOCK);
        }
        assert!(found > 5_000, "{found}");
        copies.clear(&mut pool);
        assert_eq!((pool.used_bytes(), copies.latest()), (0, None));
        assert!(copies.keep(&datagram(1, 100), 7, now, &mut pool), "another interface, now");
        copies.expire(now + age + MS, &mut pool);
        assert_eq!(pool.used_bytes(), 0, "without datagrams no block is used");
    }

    #[test]
    fn sessions_share_the_pool_and_take_nothing_from_each_other() {
        let (now, mut pool) = (start(), Pool::new(3 * BLOCK + 100));
        let mut greedy = Copies::new(100 * BLOCK, MS);
        let mut modest = Copies::new(100 * BLOCK, MS);
        assert!(modest.keep(&datagram(1, 1000), 0, now, &mut pool));
        for id in 0..500 {
            assert!(greedy.keep(&datagram(id, 1000), 0, now, &mut pool));
        }
        assert_eq!(greedy.blocks.len(), 2, "the blocks that the pool has left");
        assert_eq!(modest.find(&Range::new(None, None)), Some(Found { first: 0, len: 1 }));
        assert_eq!(greedy.latest(), Some(499));
        assert_eq!(greedy.passed(), 500);
        let mut late = Copies::new(100 * BLOCK, MS);
        assert!(!late.keep(&datagram(1, 1000), 0, now, &mut pool), "the pool is exhausted");
        modest.clear(&mut pool);
        assert!(late.keep(&datagram(1, 1000), 0, now, &mut pool));
    }

    #[test]
    fn a_source_takes_no_more_than_its_part_of_the_pool() {
        let (now, mut pool) = (start(), Pool::new(16 * BLOCK));
        let mut sessions = [(); 6].map(|()| Copies::new(2 * BLOCK, MS));
        for (number, session) in (0..).zip(&mut sessions) {
            session.set_flow(IpAddr::from([10, 0, 0, number / 5]), Position::End);
        }
        let mut kept = [0; 6];
        for id in 0..500 {
            for (session, kept) in sessions.iter_mut().zip(&mut kept) {
                *kept += u32::from(session.keep(&datagram(id, 1000), 0, now, &mut pool));
            }
        }
        let blocks = sessions.each_ref().map(|session| session.blocks.len());
        assert_eq!(blocks.iter().take(5).sum::<usize>(), 4, "a quarter: {blocks:?}");
        assert_eq!((blocks[5], kept[5]), (2, 500), "another source has its own part");
        assert_eq!(pool.used_bytes(), 6 * BLOCK);
        for session in &mut sessions {
            session.clear(&mut pool);
        }
        assert_eq!((pool.used_bytes(), pool.sources()), (0, 0));
    }

    #[test]
    fn a_flow_that_moved_is_kept_on_its_new_interface() {
        let (now, mut pool) = (start(), Pool::new(BLOCK));
        let mut copies = Copies::new(BLOCK, 10 * MS);
        assert!(copies.keep(&datagram(1, 100), 3, now, &mut pool));
        assert!(!copies.keep(&datagram(2, 100), 4, now + 9 * MS, &mut pool));
        assert!(copies.keep(&datagram(3, 100), 4, now + 10 * MS, &mut pool), "no copy is left");
        assert!(!copies.keep(&datagram(4, 100), 3, now + 10 * MS, &mut pool));
        assert_eq!(copies.find(&Range::new(None, None)), Some(Found { first: 1, len: 1 }));
    }

    #[test]
    fn a_datagram_is_repeated_a_limited_number_of_times() {
        let (now, mut pool) = (start(), Pool::new(BLOCK));
        let mut copies = Copies::new(BLOCK, MS);
        assert!(copies.keep(&datagram(9, 50), 0, now, &mut pool));
        for _ in 0..MAX_REPEATS {
            assert_eq!(copies.repeat(0, Part::Whole), Some(&datagram(9, 50)[..]));
        }
        assert_eq!(copies.repeat(0, Part::Whole), None);
        assert_eq!(copies.repeat(0, Part::First), None);
        assert!(copies.repeat(0, Part::Second).is_some(), "it belongs to the last one");
        assert_eq!(copies.repeat(1, Part::Whole), None);
    }

    #[test]
    fn short_long_and_doubly_captured_datagrams_are_not_kept() {
        let (now, mut pool) = (start(), Pool::new(BLOCK));
        let mut copies = Copies::new(BLOCK, MS);
        assert!(copies.keep(&datagram(1, 4), 3, now, &mut pool));
        assert!(!copies.keep(&[1, 2, 3], 3, now, &mut pool));
        assert!(copies.keep(&datagram(2, MAX_KEPT_LEN), 3, now, &mut pool));
        assert!(!copies.keep(&datagram(3, MAX_KEPT_LEN + 1), 3, now, &mut pool));
        assert!(!copies.keep(&datagram(4, 100), 4, now, &mut pool), "another interface");
        assert_eq!(copies.passed(), 2);
    }
}
