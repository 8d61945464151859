//! The last datagrams sent, for re-injection: sending them again unchanged.
//!
//! A datagram that was lost before the proxy can cross the near segment a second time. It is the
//! sender's own ciphertext, byte for byte, and the proxy need not decrypt it. So this serves any
//! UDP sender whose receiver drops duplicates, such as QUIC, SRTP or WireGuard.

use crate::allowance::Allowance;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The largest budget, in bytes.
const MAX_ALLOWANCE: usize = 256 * 1024;

/// Datagrams by tag, up to a number of bytes. The oldest are evicted first.
///
/// An [`Allowance`] bounds what is sent again; it saves up at most 256 KiB.
///
/// ```
/// use sidekick_protocol::Store;
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let mut store = Store::new(1 << 20, Duration::from_millis(100));
/// store.push(7, vec![0x40; 1200], start);
/// let mut len = |age| store.get_for_resend(7, start + age).map(<[u8]>::len);
/// assert_eq!(len(Duration::from_millis(10)), Some(1200));
/// assert_eq!(len(Duration::from_millis(200)), None, "too old");
/// ```
#[derive(Debug)]
pub struct Store {
    kept: VecDeque<Kept>,
    bytes: usize,
    max_bytes: usize,
    max_age: Duration,
    allowance: Allowance,
    /// The buffer of an evicted datagram.
    spare: Vec<u8>,
}

#[derive(Debug)]
struct Kept {
    tag: u64,
    datagram: Vec<u8>,
    sent: Instant,
}

impl Store {
    /// A store of at most `max_bytes`. Datagrams older than `max_age` are not sent again.
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

    /// Keeps a datagram that was sent for the first time. Tags must increase; a datagram with a tag
    /// that does not, and an empty one, are ignored.
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

    /// As [`Store::push`], with a copy of `datagram`. Allocates only until the store is full.
    pub fn push_copy(&mut self, tag: u64, datagram: &[u8], now: Instant) {
        let mut copy = std::mem::take(&mut self.spare);
        copy.clear();
        copy.extend_from_slice(datagram);
        self.push(tag, copy, now);
    }

    /// The datagram with this tag, whatever its age. Spends no budget.
    pub(crate) fn get(&self, tag: u64) -> Option<&[u8]> {
        let index = self.kept.binary_search_by_key(&tag, |kept| kept.tag).ok()?;
        self.kept.get(index).map(|kept| kept.datagram.as_slice())
    }

    /// The datagram with this tag, to be sent again. Returns `None` if it is not kept, is too old,
    /// or exceeds the budget.
    pub fn get_for_resend(&mut self, tag: u64, now: Instant) -> Option<&[u8]> {
        let index = self.kept.binary_search_by_key(&tag, |kept| kept.tag).ok()?;
        let kept = self.kept.get(index)?;
        if now.saturating_duration_since(kept.sent) > self.max_age {
            return None;
        }
        self.allowance.spend(kept.datagram.len()).then_some(kept.datagram.as_slice())
    }

    /// Returns `len` bytes to the budget, which [`Store::get_for_resend`] spent on a datagram that
    /// was not sent.
    pub fn refund(&mut self, len: usize) {
        self.allowance.refund(len);
    }

    /// Removes all datagrams, because the flow left their path. The budget stays.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allowance::INITIAL_ALLOWANCE;

    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn start() -> Instant {
        Instant::now()
    }

    const AGE: Duration = Duration::from_millis(100);

    #[test]
    fn the_oldest_are_evicted_and_the_old_are_not_sent() {
        let now = start();
        let mut store = Store::new(3000, AGE);
        for tag in 0..10 {
            store.push(2 * tag, vec![7; 1000], now);
        }
        let kept: Vec<u64> =
            (0..30).filter(|tag| store.get_for_resend(*tag, now).is_some()).collect();
        assert_eq!(kept, [14, 16, 18]);
        assert!(store.get_for_resend(18, now + AGE).is_some());
        assert!(store.get_for_resend(18, now + AGE + Duration::from_nanos(1)).is_none());
        store.push(18, vec![8; 1], now);
        store.push(5, vec![8; 1], now);
        store.push(20, Vec::new(), now);
        assert_eq!(store.get_for_resend(18, now), Some(&[7; 1000][..]), "tags ascend");
        store.clear();
        assert!(store.get_for_resend(18, now).is_none());
        store.push(1, vec![1; 3001], now);
        assert!(store.get_for_resend(1, now).is_none(), "a datagram larger than the store");
    }

    #[test]
    fn half_of_what_is_sent_may_be_sent_again() {
        let now = start();
        let mut store = Store::new(1 << 30, AGE);
        let (mut sent, mut again) = (0, 0);
        for tag in 0..10_000 {
            store.push(tag, vec![0; 1000], now);
            sent += 1000;
            while let Some(datagram) = store.get_for_resend(tag, now) {
                again += datagram.len();
            }
            assert!(again <= sent / 2 + INITIAL_ALLOWANCE);
        }
        assert!(again > sent / 2);
        assert!(store.get_for_resend(9_999, now).is_none());
        store.refund(1000);
        assert!(store.get_for_resend(9_999, now).is_some());
        // The budget has an upper bound.
        for tag in 10_000..20_000 {
            store.push(tag, vec![0; 1000], now);
        }
        let burst = std::iter::from_fn(|| store.get_for_resend(19_999, now).map(<[u8]>::len))
            .sum::<usize>();
        assert_eq!(burst, MAX_ALLOWANCE / 1000 * 1000);
    }
}
