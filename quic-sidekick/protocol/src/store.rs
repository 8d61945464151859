//! The last datagrams sent, kept to be sent again as they were (re-injection).
//!
//! A datagram that was lost before the proxy can take the near segment a second time. It is the
//! sender's own ciphertext, byte for byte: nobody has to be able to read it, so this serves any UDP
//! sender whose receiver drops duplicates, such as QUIC, SRTP or WireGuard.

use crate::allowance::Allowance;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// No more than this is saved up.
const MAX_ALLOWANCE: usize = 256 * 1024;

/// Datagrams by their tags, at most so many bytes of them; the oldest give way.
///
/// What is sent again has an [`Allowance`], of which 256 KiB may be saved up.
///
/// ```
/// use sidekick_protocol::Store;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let mut store = Store::new(1 << 20, Duration::from_millis(100));
/// store.push(7, vec![0x40; 1200], start);
/// assert_eq!(store.take(7, start + Duration::from_millis(10)).map(<[u8]>::len), Some(1200));
/// assert_eq!(store.take(7, start + Duration::from_millis(200)), None, "it would come too late");
/// ```
#[derive(Debug)]
pub struct Store {
    kept: VecDeque<Kept>,
    bytes: usize,
    max_bytes: usize,
    max_age: Duration,
    allowance: Allowance,
    /// The buffer of a datagram that gave way.
    spare: Vec<u8>,
}

#[derive(Debug)]
struct Kept {
    tag: u64,
    datagram: Vec<u8>,
    sent: Instant,
}

impl Store {
    /// A store of `max_bytes`. What was sent longer than `max_age` ago is not sent again.
    #[must_use]
    pub fn new(max_bytes: usize, max_age: Duration) -> Self {
        Self {
            kept: VecDeque::new(),
            bytes: 0,
            max_bytes,
            max_age,
            allowance: Allowance::new(MAX_ALLOWANCE),
            spare: Vec::new(),
        }
    }

    /// Keeps a datagram that was sent for the first time. Its tag is larger than those before it;
    /// one that is not, and an empty datagram, are passed over.
    pub fn push(&mut self, tag: u64, datagram: Vec<u8>, now: Instant) {
        if datagram.is_empty() || self.kept.back().is_some_and(|last| last.tag >= tag) {
            return;
        }
        self.allowance.earn(datagram.len());
        self.bytes += datagram.len();
        self.kept.push_back(Kept { tag, datagram, sent: now });
        while self.bytes > self.max_bytes {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.bytes -= oldest.datagram.len();
            self.spare = oldest.datagram;
        }
    }

    /// As [`Store::push`], of a copy. It allocates only until the store is full.
    pub fn push_copy(&mut self, tag: u64, datagram: &[u8], now: Instant) {
        let mut copy = std::mem::take(&mut self.spare);
        copy.clear();
        copy.extend_from_slice(datagram);
        self.push(tag, copy, now);
    }

    /// The datagram of this tag, if it is kept, whatever its age; no budget is spent.
    pub(crate) fn get(&self, tag: u64) -> Option<&[u8]> {
        let index = self.kept.binary_search_by_key(&tag, |kept| kept.tag).ok()?;
        self.kept.get(index).map(|kept| kept.datagram.as_slice())
    }

    /// The datagram of this tag, to be sent again; `None` if it is not kept, is too old, or the
    /// budget is spent.
    pub fn take(&mut self, tag: u64, now: Instant) -> Option<&[u8]> {
        let index = self.kept.binary_search_by_key(&tag, |kept| kept.tag).ok()?;
        let kept = self.kept.get(index)?;
        if now.saturating_duration_since(kept.sent) > self.max_age {
            return None;
        }
        self.allowance.spend(kept.datagram.len()).then_some(kept.datagram.as_slice())
    }

    /// Gives back what [`Store::take`] has taken out of the budget for a datagram that was not sent
    /// after all.
    pub fn refund(&mut self, len: usize) {
        self.allowance.refund(len);
    }

    /// Forgets all datagrams, since their path is left; the budget stays.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allowance::INITIAL_ALLOWANCE;

    #[allow(clippy::disallowed_methods, reason = "any instant will do to begin with")]
    fn start() -> Instant {
        Instant::now()
    }

    const AGE: Duration = Duration::from_millis(100);

    #[test]
    fn the_oldest_give_way_and_the_old_stay_away() {
        let now = start();
        let mut store = Store::new(3000, AGE);
        for tag in 0..10 {
            store.push(2 * tag, vec![7; 1000], now);
        }
        let kept: Vec<u64> = (0..30).filter(|tag| store.take(*tag, now).is_some()).collect();
        assert_eq!(kept, [14, 16, 18]);
        assert!(store.take(18, now + AGE).is_some());
        assert!(store.take(18, now + AGE + Duration::from_nanos(1)).is_none());
        store.push(18, vec![8; 1], now);
        store.push(5, vec![8; 1], now);
        store.push(20, Vec::new(), now);
        assert_eq!(store.take(18, now), Some(&[7; 1000][..]), "tags ascend");
        store.clear();
        assert!(store.take(18, now).is_none());
        store.push(1, vec![1; 3001], now);
        assert!(store.take(1, now).is_none(), "one that is larger than the store");
    }

    #[test]
    fn half_of_what_is_sent_may_be_sent_again() {
        let now = start();
        let mut store = Store::new(1 << 30, AGE);
        let (mut sent, mut again) = (0, 0);
        for tag in 0..10_000 {
            store.push(tag, vec![0; 1000], now);
            sent += 1000;
            while let Some(datagram) = store.take(tag, now) {
                again += datagram.len();
            }
            assert!(again <= sent / 2 + INITIAL_ALLOWANCE);
        }
        assert!(again > sent / 2);
        assert!(store.take(9_999, now).is_none());
        store.refund(1000);
        assert!(store.take(9_999, now).is_some());
        // A pause saves up no more than a bound.
        for tag in 10_000..20_000 {
            store.push(tag, vec![0; 1000], now);
        }
        let burst = std::iter::from_fn(|| store.take(19_999, now).map(<[u8]>::len)).sum::<usize>();
        assert_eq!(burst, MAX_ALLOWANCE / 1000 * 1000);
    }
}
