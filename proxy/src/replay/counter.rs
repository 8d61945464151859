//! Counting packets that were captured before.

use std::time::{Duration, Instant};

use sidekick_protocol::observer::ConfigError;
use sidekick_protocol::{
    Flow, MAX_DATAGRAM_LEN, Observed, Observer, ObserverConfig, ObserverStats, Seen, SessionStatus,
    Terms,
};

use crate::capture::{BATCH, Batch, Counters};
use crate::packet::{Datagram, Skip};

/// Datagrams that are longer were not on a wire like this: the machine that captured them had
/// merged some into one.
const LONGEST_ON_A_WIRE: usize = 9000;

/// A capture that lasts longer, by its clock, stands still from then on.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

/// An observer that is shown old packets, and whose quACKs nobody gets.
#[derive(Debug)]
pub struct Replay {
    observer: Observer,
    terms: Terms,
    /// The present, as the packets tell it; and what their clock showed when it began.
    now: Instant,
    first: Option<Duration>,
    begun: Instant,
    counters: Counters,
    untold: u64,
    out: [u8; MAX_DATAGRAM_LEN],
}

impl Replay {
    /// Counts up to so many flows, of each what `terms` say, from `now` on.
    ///
    /// # Errors
    /// When there can be no such number of flows.
    pub fn new(flows: usize, terms: Terms, now: Instant) -> Result<Self, ConfigError> {
        let config = ObserverConfig {
            max_sessions: flows,
            max_sessions_per_source: flows,
            kept_sums: terms.threshold,
            max_threshold: terms.threshold,
            min_every: Duration::ZERO,
            // As long as any file: nobody is there to be heard.
            idle_timeout: 2 * LONGEST,
            ..ObserverConfig::default()
        };
        let observer = Observer::new(config, [0; 32])?;
        let (begun, out) = (now, [0; MAX_DATAGRAM_LEN]);
        let counters = Counters::default();
        Ok(Self { observer, terms, now, first: None, begun, counters, untold: 0, out })
    }

    /// What a frame holds, which was captured when the capture's clock showed `time`; without that,
    /// at once after the one before. A clock that was set back stands still.
    pub fn take(&mut self, found: Result<Datagram<'_>, Skip>, time: Option<Duration>) {
        self.take_all(&[found], time);
    }

    /// What frames hold that were captured together.
    pub fn take_all(&mut self, found: &[Result<Datagram<'_>, Skip>], time: Option<Duration>) {
        if let Some(time) = time {
            let first = *self.first.get_or_insert(time);
            self.now = self.now.max(self.begun + time.saturating_sub(first).min(LONGEST));
        }
        while let Some(deadline) =
            self.observer.poll_timeout().filter(|deadline| *deadline <= self.now)
        {
            self.observer.on_timeout(deadline);
            self.send();
        }
        for found in found.chunks(BATCH) {
            self.count(found);
        }
    }

    fn count(&mut self, found: &[Result<Datagram<'_>, Skip>]) {
        let Self { observer, counters, out, terms, now, untold, .. } = self;
        let mut batch = Batch::default();
        for found in found {
            match found {
                Ok(datagram) => {
                    counters.datagrams += 1;
                    counters.unsplit += u64::from(datagram.len > LONGEST_ON_A_WIRE);
                    batch.push(Seen { flow: datagram.flow, payload: datagram.payload() });
                }
                Err(Skip::NotUdp) => {}
                Err(Skip::Fragment) => counters.fragments += 1,
                Err(Skip::Malformed | Skip::Cut) => counters.malformed += 1,
            }
        }
        let seen = batch.seen();
        let mut next = seen.iter();
        observer.observe_all(seen, 0, *now, |observer, mut observed| {
            let Some(Seen { flow, payload }) = next.next() else { return };
            if observed == Observed::NoSession {
                // Refused where the limit is reached, and where a packet before it in the batch has
                // opened the session: all of them were looked up before.
                let _ = observer.adopt(*flow, *terms, *now);
                observed = observer.observe(flow, 0, *payload, *now);
                *untold += u64::from(observed == Observed::NoSession);
            }
            if observed == Observed::Counted {
                while observer.poll_transmit(out).is_some() {}
            }
        });
    }

    /// Has quACKs written, as for sending.
    fn send(&mut self) {
        while self.observer.poll_transmit(&mut self.out).is_some() {}
    }

    /// What the frames were.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What was counted.
    #[must_use]
    pub fn stats(&self) -> &ObserverStats {
        self.observer.stats()
    }

    /// Datagrams of flows that were too many.
    #[must_use]
    pub fn untold(&self) -> u64 {
        self.untold
    }

    /// How long it took, by the packets' clock.
    #[must_use]
    pub fn span(&self) -> Duration {
        self.now.saturating_duration_since(self.begun)
    }

    /// How each flow stands, that with the most packets first.
    #[must_use]
    pub fn flows(&self) -> Vec<SessionStatus> {
        let mut flows: Vec<_> = self.observer.statuses().collect();
        let order = |flow: &Flow| (flow.source, flow.destination);
        flows.sort_by(|a, b| b.counted.cmp(&a.counted).then(order(&a.flow).cmp(&order(&b.flow))));
        flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::clock;
    use std::num::NonZeroU16;

    fn datagram(flow: u16, identifier: u32) -> ([u8; 40], Flow) {
        let mut payload = [0x40; 40];
        payload[21..25].copy_from_slice(&identifier.to_be_bytes());
        let source = ([192, 0, 2, 1], flow).into();
        (payload, Flow { source, destination: ([198, 51, 100, 7], 443).into() })
    }

    #[test]
    fn each_flow_is_counted_for_itself() {
        let terms = Terms { every_packets: NonZeroU16::new(4), every: None, ..Terms::default() };
        let mut replay = Replay::new(2, terms, clock()).unwrap();
        for (flow, identifier, at) in
            [(1, 10, 5), (1, 11, 6), (2, 12, 7), (3, 13, 8), (1, 14, 4), (1, 15, 9)]
        {
            let (payload, flow) = datagram(flow, identifier);
            let found = Ok(Datagram { flow, payload: &payload, len: 40 });
            replay.take(found, Some(Duration::from_secs(at)));
        }
        for skip in [Skip::NotUdp, Skip::Cut, Skip::Malformed, Skip::Fragment] {
            replay.take(Err(skip), None);
        }
        let told: Vec<_> = replay
            .flows()
            .iter()
            .map(|flow| (flow.flow.source.port(), flow.counted, flow.ends, flow.quacks))
            .collect();
        assert_eq!(told, [(1, 4, Some((10, 15)), 1), (2, 1, Some((12, 12)), 0)]);
        assert_eq!((replay.untold(), replay.span()), (1, Duration::from_secs(4)));
        let counters = replay.counters();
        assert_eq!((counters.datagrams, counters.malformed, counters.fragments), (6, 2, 1));
    }

    #[test]
    fn a_clock_that_leaps_ends_nothing() {
        let mut replay = Replay::new(9, Terms::default(), clock()).unwrap();
        let times =
            [Duration::from_secs(5), Duration::MAX, Duration::ZERO, Duration::from_secs(1 << 40)];
        for (identifier, time) in (0..).zip(times) {
            let (payload, flow) = datagram(1, identifier);
            replay.take(Ok(Datagram { flow, payload: &payload, len: 40 }), Some(time));
        }
        assert_eq!((replay.stats().counted, replay.span()), (4, LONGEST));
        assert_eq!(replay.flows().len(), 1, "as long as any file");
    }

    #[test]
    fn quacks_leave_when_their_time_had_come() {
        let mut replay = Replay::new(9, Terms::default(), clock()).unwrap();
        for (identifier, at) in [(1, 0), (2, 29), (3, 31), (4, 95), (5, 200)] {
            let (payload, flow) = datagram(1, identifier);
            replay.take(
                Ok(Datagram { flow, payload: &payload, len: 40 }),
                Some(Duration::from_millis(at)),
            );
        }
        // After 30, 61 and 125 ms.
        assert_eq!((replay.stats().quacks_sent, replay.stats().counted), (3, 5));
    }
}
