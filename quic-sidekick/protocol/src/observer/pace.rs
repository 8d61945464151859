//! How many handshakes a proxy takes on (SPEC.md, section 6.2): each costs some multiplications on the curve, during which
//! packets wait to be counted.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Time for a handshake, and how many may come at once after a rest, of all sources together; for those who have proven an
/// address and for those who have proven a path alike, so that neither can keep out the other.
const ALL: Pace = Pace { interval: Duration::from_millis(4), burst: 256 };
/// The same for the sources that share a place in the table.
const EACH: Pace = Pace { interval: Duration::from_millis(50), burst: 64 };
/// Places in the table. Which sources share one nobody can know.
const PLACES: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Pace {
    interval: Duration,
    burst: u32,
}

impl Pace {
    /// Whether one more may come at `now`, if so many are paid for until `until`; if so, takes note of it.
    fn admit(self, until: &mut Option<Instant>, now: Instant) -> bool {
        let from = until.map_or(now, |until| until.max(now));
        let admitted = from.saturating_duration_since(now) < self.interval * self.burst;
        if admitted {
            *until = Some(from + self.interval);
        }
        admitted
    }
}

/// What was taken on lately.
#[derive(Debug)]
pub(super) struct Handshakes {
    /// Of those who have proven an address, and of those who have proven a path.
    all: [Option<Instant>; 2],
    each: Box<[Option<Instant>; PLACES]>,
    key: [u8; 16],
}

impl Handshakes {
    /// Nothing was taken on yet. `key` keeps from others which sources share a place.
    pub(super) fn new(key: [u8; 16]) -> Self {
        Self { all: [None; 2], each: Box::new([None; PLACES]), key }
    }

    /// Whether a handshake of this source may be taken on.
    pub(super) fn admit(&mut self, source: IpAddr, path_proven: bool, now: Instant) -> bool {
        let mut hasher = DefaultHasher::new();
        (self.key, source).hash(&mut hasher);
        let index = usize::try_from(hasher.finish()).unwrap_or(0) % PLACES;
        let Some(each) = self.each.get_mut(index) else { return false };
        let [address, path] = &mut self.all;
        let mut next = *each;
        if !EACH.admit(&mut next, now) || !ALL.admit(if path_proven { path } else { address }, now) {
            return false;
        }
        *each = next;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "any instant will do for a start")]
    fn nobody_takes_more_than_a_share() {
        let now = Instant::now();
        let mut handshakes = Handshakes::new([1; 16]);
        let of = |last: u8| IpAddr::from([192, 0, 2, last]);
        let admitted = |handshakes: &mut Handshakes, source, at| {
            (0..1000).filter(|_| handshakes.admit(source, false, at)).count()
        };
        assert_eq!(admitted(&mut handshakes, of(1), now), 64);
        let others: usize = (2..200).map(|last| admitted(&mut handshakes, of(last), now)).sum();
        assert_eq!(others, 256 - 64, "all together");
        assert!(handshakes.admit(of(201), true, now), "but for who has proven a path");
        assert_eq!(admitted(&mut handshakes, of(1), now + Duration::from_secs(1)), 20, "a second later");
    }
}
