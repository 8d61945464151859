//! The latest datagrams sent, for re-injection: the sender sends them again unchanged.

use crate::allowance::Allowance;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The largest budget, in bytes.
const MAX_ALLOWANCE: usize = 256 * 1024;

/// Datagrams by tag, up to a number of bytes. The store evicts the oldest first.
///
/// An [`Allowance`] bounds the bytes that are sent again. It saves up at most 256 KiB.
///
/// # Re-injection
/// A datagram that was lost before the proxy can cross the near segment a second time. It is the
/// sender's own ciphertext, byte for byte, and the proxy need not decrypt it. So a
/// [`Sender`](crate::Sender) and a store serve any UDP sender whose receiver drops duplicates, such
/// as SRTP or WireGuard. The receiver must detect duplicates up to the maximum age of the store's
/// datagrams.
///
/// It suits flows with a rate of their own, such as calls. A flow that slows down after losses,
/// such as a VPN that carries TCP, would not detect a full queue on the near segment.
///
/// ```no_run
/// # let (now, random) = (std::time::Instant::now(), [7; 32]);
/// # let (source, destination) = ("0.0.0.0:4000".parse()?, "198.51.100.7:5004".parse()?);
/// # let flow = sidekick_protocol::Flow { source, destination };
/// # let socket = std::net::UdpSocket::bind(flow.source)?;
/// # socket.connect(flow.destination)?;
/// # let datagram = [4; 200];
/// use sidekick_protocol::{
///     Filter, Flow, Identification, Lost, Payload, Position, Sender, SenderConfig, Store,
/// };
/// use std::time::{Duration, Instant};
///
/// let mut config = SenderConfig::of("192.0.2.254:5252".parse()?);
/// // Every datagram counts. SRTP ends in an authentication tag, which differs in each.
/// config.terms.identification = Identification { position: Position::End, filter: Filter::All };
/// let mut sender = Sender::new(config, random);
/// let mut store = Store::new(1 << 20, Duration::from_millis(200)); // bytes, age
/// let (mut next_tag, mut lost) = (0, Vec::new());
/// sender.start(flow, now);
///
/// // For each datagram:
/// socket.send(&datagram)?;
/// sender.on_sent(next_tag, Payload::whole(&datagram), now);
/// store.push_copy(next_tag, &datagram, now);
/// next_tag += 1;
///
/// // After each sender.handle_input() and sender.on_timeout():
/// sender.drain_lost(&mut lost);
/// for Lost { tag, .. } in lost.drain(..).filter(|lost| !lost.congestion) {
///     // Skip datagrams that are too old or exceed the budget.
///     if let Some(datagram) = store.get_for_resend(tag, now) {
///         socket.send(datagram)?;
///         // The proxy counts it as another packet.
///         sender.on_sent(tag, Payload::whole(datagram), now);
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
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
    /// A store of at most `max_bytes`. It does not return datagrams older than `max_age`.
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

    /// Keeps a datagram that the caller sent for the first time, unless it is empty or its tag does
    /// not increase.
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

    /// As [`Store::push`], with a copy of `datagram`. Removes the oldest datagram if it is too old
    /// to be sent again, so this allocates only until the store is full, or its first datagrams are
    /// too old.
    pub fn push_copy(&mut self, tag: u64, datagram: &[u8], now: Instant) {
        self.expire_at_most(1, now);
        let mut copy = std::mem::take(&mut self.spare);
        copy.clear();
        copy.extend_from_slice(datagram);
        self.push(tag, copy, now);
    }

    /// The datagram with this tag, to be sent again. Returns `None` if the store does not keep it,
    /// or it is too old or exceeds the budget.
    pub fn get_for_resend(&mut self, tag: u64, now: Instant) -> Option<&[u8]> {
        let len = self.get(tag, now)?.len();
        if !self.allowance.spend(len) {
            return None;
        }
        self.get(tag, now)
    }

    /// The datagram with this tag, if the store keeps it and it is not too old. The caller bounds
    /// what is sent again.
    pub(crate) fn get(&self, tag: u64, now: Instant) -> Option<&[u8]> {
        let index = self.kept.binary_search_by_key(&tag, |kept| kept.tag).ok()?;
        let kept = self.kept.get(index)?;
        let is_young = now.saturating_duration_since(kept.sent) <= self.max_age;
        is_young.then_some(kept.datagram.as_slice())
    }

    /// Returns `len` bytes to the budget, which [`Store::get_for_resend`] spent on a datagram that
    /// the caller did not send.
    pub fn refund(&mut self, len: usize) {
        self.allowance.refund(len);
    }

    /// Bytes of the datagrams that are kept.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Removes the datagrams that are too old to be sent again at `now`.
    pub fn expire(&mut self, now: Instant) {
        self.expire_at_most(usize::MAX, now);
    }

    fn expire_at_most(&mut self, most: usize, now: Instant) {
        let mut left = most;
        while left > 0
            && let Some(oldest) = self.kept.front()
            && now.saturating_duration_since(oldest.sent) > self.max_age
            && let Some(oldest) = self.kept.pop_front()
        {
            left -= 1;
            self.bytes -= oldest.datagram.len();
            self.spare = oldest.datagram;
        }
    }

    /// Removes the datagrams with tags below `tag`, which the caller will not send again.
    pub fn remove_before(&mut self, tag: u64) {
        while let Some(oldest) = self.kept.front()
            && oldest.tag < tag
            && let Some(oldest) = self.kept.pop_front()
        {
            self.bytes -= oldest.datagram.len();
            self.spare = oldest.datagram;
        }
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
    use crate::testing::{Near, Simulation, configured};
    use crate::{Filter, Identification, ObserverConfig};
    use std::num::NonZeroU16;

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
        store.expire(now + AGE);
        assert_eq!(store.bytes(), 3000, "none is too old yet");
        assert!(store.get_for_resend(18, now + AGE + Duration::from_nanos(1)).is_none());
        store.push(18, vec![8; 1], now);
        store.push(5, vec![8; 1], now);
        store.push(20, Vec::new(), now);
        assert_eq!(store.get_for_resend(18, now), Some(&[7; 1000][..]), "tags ascend");
        store.expire(now + AGE + Duration::from_nanos(1));
        assert_eq!(store.bytes(), 0);
        store.push(21, vec![8; 1], now);
        store.push(23, vec![8; 2], now);
        store.remove_before(21);
        assert_eq!(store.bytes(), 3, "none is below");
        store.remove_before(22);
        assert_eq!((store.bytes(), store.get_for_resend(21, now)), (2, None));
        store.clear();
        assert_eq!((store.bytes(), store.get_for_resend(23, now)), (0, None));
        store.push(1, vec![1; 3001], now);
        assert!(store.get_for_resend(1, now).is_none(), "a datagram larger than the store");
    }

    #[test]
    fn a_copy_replaces_one_that_is_too_old() {
        let ms = Duration::from_millis(1);
        let (begin, mut store) = (start(), Store::new(1 << 20, AGE));
        for number in 0..1000 {
            store.push_copy(number.into(), &[7; 1000], begin + number * ms);
            let kept = usize::try_from(number + 1).unwrap().min(101);
            assert_eq!(store.bytes(), 1000 * kept);
        }
        // The store removes several old datagrams one by one.
        let now = begin + 1099 * ms + Duration::from_nanos(1);
        for number in 0..200_u64 {
            store.push_copy(1000 + number, &[7; 1000], now);
            let left = 101 - usize::try_from(number + 1).unwrap().min(101);
            assert_eq!(store.bytes(), 1000 * (left + usize::try_from(number + 1).unwrap()));
        }
    }

    #[test]
    fn half_of_the_sent_bytes_may_be_sent_again() {
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

    /// A flow of one datagram per millisecond over a near segment that loses a tenth.
    fn reinjected(max_age: Duration, datagrams: usize) -> Simulation {
        let mut config = configured();
        config.terms.identification =
            Identification { filter: Filter::All, ..Identification::default() };
        config.terms.every_packets = NonZeroU16::new(4);
        let near = Near { delay: Duration::ZERO, jitter: Duration::ZERO, loss_percent: 0 };
        let mut s = Simulation::new(config, ObserverConfig::default(), near, 1);
        s.store = Some(Store::new(1 << 20, max_age));
        s.run(Duration::from_millis(1));
        s.near.loss_percent = 10;
        s.stream(datagrams, Duration::from_millis(1));
        s.run(Duration::from_millis(500));
        s
    }

    #[test]
    fn every_datagram_arrives_although_the_near_segment_loses_a_tenth() {
        let s = reinjected(Duration::from_secs(1), 3000);
        // Packets around the epoch's first may pass before the proxy begins to count (SPEC.md,
        // section 7.2).
        let missing: Vec<_> = (12..3000).filter(|tag| !s.arrived.contains(tag)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!((250..450).contains(&s.resent), "{}", s.resent);
        assert_eq!(s.repeated, 0, "no datagram that arrived was sent again");
    }

    #[test]
    fn old_datagrams_and_those_of_another_flow_are_not_sent_again() {
        // The sender needs at least some milliseconds to detect a loss.
        let s = reinjected(Duration::ZERO, 1000);
        assert!(s.sender.stats().early_lost > 50);
        assert_eq!(s.resent, 0);

        // Twenty datagrams are lost. If the flow stays, they are sent again. If it moves, they stay
        // in the store, but the sender does not declare them lost.
        for moves in [false, true] {
            let mut s = reinjected(Duration::from_secs(1), 20);
            s.near.loss_percent = 100;
            s.stream(20, Duration::from_millis(1));
            s.near.loss_percent = 0;
            if moves {
                s.flow.source = "192.0.2.1:4001".parse().unwrap();
                s.sender.start(s.flow, s.now);
            }
            let before = s.resent;
            s.stream(200, Duration::from_millis(1));
            assert_eq!(s.resent - before, if moves { 0 } else { 20 });
            let (now, store) = (s.now, s.store.as_mut().unwrap());
            assert!(store.get_for_resend(30, now).is_some());
            store.clear();
            assert_eq!((0..240).find(|tag| store.get_for_resend(*tag, now).is_some()), None);
        }
    }
}
