//! Controlled delay (RFC 8289). It drops packets at the head of the queue while all packets wait
//! above the target for too long.

use std::time::Duration;

use super::fifo::{Fifo, Waiting};
use super::frame::Frame;

/// Bytes that may always wait: one full Ethernet frame (RFC 8289, section 4.4: `MAXPACKET`).
const FULL_FRAME: u64 = 1514;

/// The two parameters of CoDel (RFC 8289, sections 4.3 and 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoDelConfig {
    /// The acceptable standing delay.
    pub target: Duration,
    /// About the longest usual round trip time of the path.
    pub interval: Duration,
}

impl Default for CoDelConfig {
    fn default() -> Self {
        Self { target: Duration::from_millis(5), interval: Duration::from_millis(100) }
    }
}

/// The result of one removal from the queue.
#[derive(Debug)]
pub(super) struct Taken<P> {
    pub(super) packet: Option<Waiting<P>>,
    /// Packets that were dropped before it.
    pub(super) dropped: u64,
    /// Whether the packet was marked.
    pub(super) marked: bool,
}

/// The state of CoDel, named as in the pseudocode of RFC 8289, section 5.
#[derive(Debug, Default)]
pub(super) struct CoDel {
    config: CoDelConfig,
    /// When the delay will have been above the target for an interval. `None` while it is not above
    /// it.
    first_above: Option<Duration>,
    dropping: bool,
    drop_next: Duration,
    count: u32,
    last_count: u32,
}

impl CoDel {
    pub(super) fn new(config: CoDelConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// Removes the next packet to send at `now`, and drops the packets before it as CoDel demands.
    /// With `ecn`, it marks and sends packets of an ECN-capable transport instead. RFC 8289,
    /// section 5.4, leaves this to the implementation, and Linux does the same.
    pub(super) fn take<P: Frame>(
        &mut self,
        now: Duration,
        fifo: &mut Fifo<P>,
        ecn: bool,
    ) -> Taken<P> {
        let mut taken = Taken { packet: None, dropped: 0, marked: false };
        let mut too_late = self.next(now, fifo, &mut taken);
        if self.dropping {
            self.dropping = too_late;
            while self.dropping && now >= self.drop_next {
                self.count += 1;
                let marked = self.mark_or_drop(&mut taken, ecn);
                if !marked {
                    too_late = self.next(now, fifo, &mut taken);
                    self.dropping = too_late;
                }
                if self.dropping {
                    self.drop_next = self.control_law(self.drop_next);
                }
                if marked {
                    break;
                }
            }
        } else if too_late {
            if !self.mark_or_drop(&mut taken, ecn) {
                self.next(now, fifo, &mut taken);
            }
            self.dropping = true;
            // Shortly after the last dropping state, its rate of drops is a good one to begin with.
            let more = self.count.saturating_sub(self.last_count);
            let recent = now.saturating_sub(self.drop_next) < 16 * self.config.interval;
            self.count = if more > 1 && recent { more } else { 1 };
            self.last_count = self.count;
            self.drop_next = self.control_law(now);
        }
        taken
    }

    /// Removes the head. Returns whether it may be dropped.
    fn next<P>(&mut self, now: Duration, fifo: &mut Fifo<P>, taken: &mut Taken<P>) -> bool {
        taken.packet = fifo.take();
        let waited = taken.packet.as_ref().map(|packet| now.saturating_sub(packet.since));
        let above =
            waited.is_some_and(|waited| waited >= self.config.target) && fifo.bytes() > FULL_FRAME;
        if !above {
            self.first_above = None;
            return false;
        }
        let since = *self.first_above.get_or_insert(now + self.config.interval);
        now >= since
    }

    /// Returns whether it marked the packet, which can then be sent.
    fn mark_or_drop<P: Frame>(&self, taken: &mut Taken<P>, ecn: bool) -> bool {
        match &mut taken.packet {
            Some(waiting) if ecn && waiting.packet.ecn().is_capable() => {
                waiting.packet.mark_ce();
                taken.marked = true;
            }
            _ => taken.dropped += 1,
        }
        taken.marked
    }

    fn control_law(&self, from: Duration) -> Duration {
        from + self.config.interval.div_f64(f64::from(self.count).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Packet;
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    /// Fills a queue with packets that have waited since 0, and removes one every millisecond.
    /// Returns when packets were dropped, and when they were marked.
    fn overloaded(ecn: bool, capable: bool, steps: u32) -> (Vec<Duration>, Vec<Duration>) {
        let (mut codel, mut fifo) = (CoDel::new(CoDelConfig::default()), Fifo::default());
        for number in 0..3 * steps as usize {
            fifo.put(Duration::ZERO, Packet { number, bytes: 1000, capable, ..Packet::default() });
        }
        let (mut drops, mut marks) = (Vec::new(), Vec::new());
        for now in (0..steps).map(|step| step * MS) {
            let taken = codel.take(now, &mut fifo, ecn);
            drops.extend((0..taken.dropped).map(|_| now));
            marks.extend(taken.marked.then_some(now));
            assert_eq!(taken.packet.unwrap().packet.marked, taken.marked);
        }
        (drops, marks)
    }

    /// When CoDel drops a packet of a standing queue that is above the target from 5 ms on. The
    /// first drop comes after one interval. The others follow at distances of an interval over the
    /// root of the count. Each comes at the next millisecond, because the test then removes a
    /// packet.
    fn law(steps: u32) -> Vec<Duration> {
        let mut times = vec![105.0];
        let mut next = 105.0 + 100.0;
        let mut count = 1.0_f64;
        while next <= f64::from(steps) {
            times.push(next);
            count += 1.0;
            next += 100.0 / count.sqrt();
        }
        let next_step = |ms: f64| MS.mul_f64((ms - 1e-6).ceil());
        times.into_iter().map(next_step).filter(|&time| time < steps * MS).collect()
    }

    #[test]
    fn drops_follow_the_control_law() {
        let (drops, marks) = overloaded(false, true, 3000);
        assert_eq!(drops, law(3000));
        assert!(drops.len() > 100 && marks.is_empty());
    }

    #[test]
    fn marks_take_the_place_of_drops_where_the_transport_is_capable() {
        let (drops, marks) = overloaded(true, true, 1000);
        assert!(drops.is_empty());
        assert_eq!(marks, law(1000));
        assert_eq!(overloaded(true, false, 1000).0, law(1000));
    }

    /// A literal and slow CoDel after RFC 8289. It keeps the record of every packet, and searches
    /// the conditions in it.
    #[derive(Default)]
    struct Oracle {
        queue: Vec<(u64, u64, usize)>,
        above_since: Option<u64>,
        dropping: Option<(f64, u32)>,
        /// The last dropping state: when its next drop was due, its last count, and its first
        /// count.
        last: Option<(f64, u32, u32)>,
        began_with: u32,
    }

    impl Oracle {
        fn head(&mut self, now: u64) -> (Option<usize>, bool) {
            if self.queue.is_empty() {
                self.above_since = None;
                return (None, false);
            }
            let (since, _, number) = self.queue.remove(0);
            let left: u64 = self.queue.iter().map(|&(_, bytes, _)| bytes).sum();
            if now - since < 5_000_000 || left <= 1514 {
                self.above_since = None;
                return (Some(number), false);
            }
            let above_since = *self.above_since.get_or_insert(now);
            (Some(number), now - above_since >= 100_000_000)
        }

        fn take(&mut self, now: u64) -> (Option<usize>, Vec<usize>) {
            let interval = |count: u32| 1e8 / f64::from(count).sqrt();
            let mut dropped = Vec::new();
            let (mut packet, mut may) = self.head(now);
            if let Some((mut next, mut count)) = self.dropping {
                while may && now as f64 >= next - 0.5 {
                    dropped.extend(packet);
                    count += 1;
                    (packet, may) = self.head(now);
                    if may {
                        next += interval(count);
                    }
                }
                self.dropping = may.then_some((next, count));
                if !may {
                    self.last = Some((next, count, self.began_with));
                }
            } else if may {
                dropped.extend(packet);
                (packet, _) = self.head(now);
                let count = match self.last {
                    Some((next, count, began))
                        if count > began + 1 && (now as f64) - next < 1.6e9 =>
                    {
                        count - began
                    }
                    _ => 1,
                };
                self.began_with = count;
                self.dropping = Some((now as f64 + interval(count), count));
            }
            (packet, dropped)
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_slow_reading_of_the_rfc(
            phases in prop::collection::vec((0_u64..4, 100_u64..1500, 1_u32..600), 1..8)
        ) {
            let (mut codel, mut fifo) = (CoDel::new(CoDelConfig::default()), Fifo::default());
            let mut oracle = Oracle::default();
            let (mut now, mut number) = (0_u64, 0);
            for (arrivals, bytes, steps) in phases {
                for _ in 0..steps {
                    // One packet leaves each 1.7 ms. Several may arrive in between.
                    now += 1_700_013;
                    for _ in 0..arrivals {
                        fifo.put(Duration::from_nanos(now), Packet { number, bytes, ..Packet::default() });
                        oracle.queue.push((now, bytes, number));
                        number += 1;
                    }
                    let taken = codel.take(Duration::from_nanos(now), &mut fifo, false);
                    let (packet, dropped) = oracle.take(now);
                    prop_assert_eq!(taken.dropped, dropped.len() as u64);
                    prop_assert_eq!(taken.packet.map(|waiting| waiting.packet.number), packet);
                }
            }
        }
    }
}
