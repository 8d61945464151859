//! Rate limits on the work and bytes that unproven peers can cause (SPEC.md, sections 6.1 and 6.2):
//! one for all sources together, and one for each.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The rate of all sources together, and its burst.
const ALL: Pace = Pace { interval: Duration::from_millis(4), burst: 256 };
/// The rate of the sources that share a slot, and its burst.
const EACH: Pace = Pace { interval: Duration::from_millis(50), burst: 64 };
/// Slots of the table. A secret key decides which sources share one.
const SLOTS: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Pace {
    interval: Duration,
    burst: u32,
}

impl Pace {
    /// When the next event is due after one at `now`, or `None` if there are too many. `until` is
    /// the last return value.
    fn next(self, until: Option<Instant>, now: Instant) -> Option<Instant> {
        let from = until.map_or(now, |until| until.max(now));
        let admitted = from.saturating_duration_since(now) < self.interval * self.burst;
        admitted.then(|| from + self.interval)
    }
}

/// A limit on the time that events of different cost use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Occupancy {
    /// When all admitted events are over, if each uses its time.
    until: Option<Instant>,
}

impl Occupancy {
    /// Whether admitted events are over within `burst` from now on.
    pub(super) fn admits(&self, burst: Duration, now: Instant) -> bool {
        self.until.is_none_or(|until| until.saturating_duration_since(now) < burst)
    }

    /// Adds an event that uses this time.
    pub(super) fn charge(&mut self, cost: Duration, now: Instant) {
        self.until = Some(self.until.map_or(now, |until| until.max(now)) + cost);
    }
}

/// A rate limiter for events by source. Each of the `CLASSES` kinds has rates of its own, so that
/// no kind starves another.
#[derive(Debug)]
pub(super) struct Limiter<const CLASSES: usize> {
    classes: Box<[Class; CLASSES]>,
    all: Pace,
    key: [u8; 16],
}

/// When the next event is due: of all sources, and of those that share a slot.
#[derive(Clone, Copy, Debug)]
struct Class {
    all: Option<Instant>,
    each: [Option<Instant>; SLOTS],
}

impl<const CLASSES: usize> Limiter<CLASSES> {
    /// A limiter that shares the rate of all sources with the other `shards`. `key` hides which
    /// sources share a slot.
    pub(super) fn new(key: [u8; 16], shards: u16) -> Self {
        let class = Class { all: None, each: [None; SLOTS] };
        let shards = u32::from(shards.max(1));
        let all = Pace { interval: ALL.interval * shards, burst: ALL.burst.div_ceil(shards) };
        Self { classes: Box::new([class; CLASSES]), all, key }
    }

    /// Admits an event of this source and class (below `CLASSES`), or returns false.
    pub(super) fn admit(&mut self, source: IpAddr, class: usize, now: Instant) -> bool {
        let mut hasher = DefaultHasher::new();
        (self.key, site(source)).hash(&mut hasher);
        let index = usize::try_from(hasher.finish()).unwrap_or(0) % SLOTS;
        let Some(Class { all, each }) = self.classes.get_mut(class) else { return false };
        let Some(each) = each.get_mut(index) else { return false };
        match (EACH.next(*each, now), self.all.next(*all, now)) {
            (Some(next_of_each), Some(next_of_all)) => {
                (*each, *all) = (Some(next_of_each), Some(next_of_all));
                true
            }
            _ => false,
        }
    }
}

/// The unit of the limit per source: an IPv4 address, or the IPv6 /64 of which one host can use any
/// address.
pub(super) fn site(source: IpAddr) -> IpAddr {
    match source {
        IpAddr::V4(_) => source,
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            [a, b, c, d, 0, 0, 0, 0].into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn a_source_exceeds_neither_its_rate_nor_that_of_all() {
        let now = Instant::now();
        let mut limiter = Limiter::<2>::new([1; 16], 1);
        let of = |last: u8| IpAddr::from([192, 0, 2, last]);
        let admitted = |limiter: &mut Limiter<2>, source, at| {
            (0..1000).filter(|_| limiter.admit(source, 0, at)).count()
        };
        assert_eq!(admitted(&mut limiter, of(1), now), 64);
        let others: usize = (2..200).map(|last| admitted(&mut limiter, of(last), now)).sum();
        assert_eq!(others, 256 - 64, "all together");
        assert!(limiter.admit(of(1), 1, now), "the other class has its own rate");
        assert!(!limiter.admit(of(201), 2, now), "there is no third class");
        assert_eq!(
            admitted(&mut limiter, of(1), now + Duration::from_secs(1)),
            20,
            "a second later"
        );
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn shards_share_the_rate_of_all() {
        let now = Instant::now();
        let admitted = |shards: u16| {
            let mut limiter = Limiter::<1>::new([1; 16], shards);
            let sources = (0..1000).map(|n: u32| IpAddr::from(n.to_be_bytes()));
            let (begin, later) = (now, now + Duration::from_secs(1));
            let first = sources.clone().filter(|source| limiter.admit(*source, 0, begin)).count();
            (first, sources.filter(|source| limiter.admit(*source, 0, later)).count())
        };
        // One event per 16 ms.
        assert_eq!((admitted(1), admitted(4)), ((256, 250), (256 / 4, 1000_usize.div_ceil(16))));
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn the_addresses_of_a_prefix_share_a_rate() {
        let now = Instant::now();
        let mut limiter = Limiter::<1>::new([1; 16], 1);
        let admitted = (0..1000u16).filter(|last| {
            limiter.admit(IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, *last]), 0, now)
        });
        assert_eq!(admitted.count(), 64);
    }
}
