//! Counting packets that were captured before.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use sidekick_protocol::observer::ConfigError;
use sidekick_protocol::{
    Flow, MAX_DATAGRAM_LEN, Observed, Observer, ObserverConfig, ObserverStats, Seen, SessionStatus,
    Terms,
};

use crate::capture::{BATCH, Batch};
use crate::packet::{Datagram, Skip};

/// Longest datagram on a wire. A longer one is several, which the capturing machine merged.
const LONGEST_ON_A_WIRE: usize = 9000;

/// Longest capture by its clock. The clock of a longer one stops there.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

/// What the packets contained.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Found {
    /// UDP datagrams.
    pub datagrams: u64,
    /// Datagrams of flows beyond the limit.
    pub other_flows: u64,
    /// IP fragments.
    pub fragments: u64,
    /// Packets with headers that contradict themselves.
    pub malformed: u64,
    /// Packets of which the capture lacks the headers, or the bytes that count.
    pub cut: u64,
    /// Packets inside each encapsulation that is not read, by its name.
    pub encapsulated: BTreeMap<&'static str, u64>,
    /// Datagrams that are too long for a wire, which the capturing machine has merged.
    pub merged: u64,
}

/// Counts packets that were captured before. It writes quACKs, and sends none.
#[derive(Debug)]
pub struct Replay {
    observer: Observer,
    terms: Terms,
    /// The time of the current packet.
    now: Instant,
    /// The capture's clock at the first packet with a time.
    first: Option<Duration>,
    /// The time of the first packet.
    begun: Instant,
    /// What the packets contained so far.
    pub found: Found,
    out: [u8; MAX_DATAGRAM_LEN],
}

impl Replay {
    /// A replay that counts at most `flows` flows, each by `terms`. It begins at `now`.
    ///
    /// # Errors
    /// When the limit of flows or the terms are impossible.
    pub fn new(flows: usize, terms: Terms, now: Instant) -> Result<Self, ConfigError> {
        let config = ObserverConfig {
            max_sessions: flows,
            max_sessions_per_source: flows,
            kept_sums: terms.threshold,
            max_threshold: terms.threshold,
            min_every: Duration::ZERO,
            // Longer than any file: no sender sends messages here.
            idle_timeout: 2 * LONGEST,
            ..ObserverConfig::default()
        };
        let observer = Observer::new(config, [0; 32])?;
        let (begun, out) = (now, [0; MAX_DATAGRAM_LEN]);
        Ok(Self { observer, terms, now, first: None, begun, found: Found::default(), out })
    }

    /// Counts what a frame contains. `time` is the capture's clock, or `None` for the time of the
    /// previous frame. A clock that was set back stops until it reaches its old value.
    pub fn observe(&mut self, found: Result<Datagram<'_>, Skip>, time: Option<Duration>) {
        self.observe_all(&[found], time);
    }

    /// Counts what frames contain that were captured together.
    pub fn observe_all(&mut self, found: &[Result<Datagram<'_>, Skip>], time: Option<Duration>) {
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
        let Self { observer, found: counts, out, terms, now, .. } = self;
        let mut batch = Batch::default();
        for found in found {
            match found {
                Ok(datagram) if terms.identification.is_hidden(datagram.payload()) => {
                    counts.datagrams += 1;
                    counts.cut += 1;
                }
                Ok(datagram) => {
                    counts.datagrams += 1;
                    counts.merged += u64::from(datagram.len > LONGEST_ON_A_WIRE);
                    batch.push(Seen { flow: datagram.flow, payload: datagram.payload() });
                }
                Err(Skip::NotUdp) => {}
                Err(Skip::Encapsulated(name)) => *counts.encapsulated.entry(name).or_default() += 1,
                Err(Skip::Fragment) => counts.fragments += 1,
                Err(Skip::Malformed) => counts.malformed += 1,
                Err(Skip::Cut) => counts.cut += 1,
            }
        }
        let seen = batch.seen();
        let mut next = seen.iter();
        observer.observe_all(seen, 0, *now, |observer, mut observed| {
            let Some(Seen { flow, payload }) = next.next() else { return };
            if observed == Observed::NoSession {
                // This fails at the limit. It also fails if an earlier packet of the batch has
                // opened the session: the observer looks up the whole batch at the beginning.
                let _ = observer.adopt(*flow, *terms, *now);
                observed = observer.observe(flow, 0, *payload, *now);
                counts.other_flows += u64::from(observed == Observed::NoSession);
            }
            if observed == Observed::Counted {
                while observer.poll_transmit(out).is_some() {}
            }
        });
    }

    /// Writes due quACKs.
    fn send(&mut self) {
        while self.observer.poll_transmit(&mut self.out).is_some() {}
    }

    /// The observer's counters.
    #[must_use]
    pub fn stats(&self) -> &ObserverStats {
        self.observer.stats()
    }

    /// The time from the first packet to the last, by the capture's clock.
    #[must_use]
    pub fn span(&self) -> Duration {
        self.now.saturating_duration_since(self.begun)
    }

    /// The status of each flow. The flow with the most packets is the first.
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
    fn each_flow_is_counted_separately() {
        let terms = Terms { every_packets: NonZeroU16::new(4), every: None, ..Terms::default() };
        let mut replay = Replay::new(2, terms, clock()).unwrap();
        for (flow, identifier, at) in
            [(1, 10, 5), (1, 11, 6), (2, 12, 7), (3, 13, 8), (1, 14, 4), (1, 15, 9)]
        {
            let (payload, flow) = datagram(flow, identifier);
            let found = Ok(Datagram { flow, payload: &payload, len: 40 });
            replay.observe(found, Some(Duration::from_secs(at)));
        }
        let (gre, mpls) = (Skip::Encapsulated("GRE"), Skip::Encapsulated("MPLS"));
        for skip in [Skip::NotUdp, Skip::Cut, Skip::Malformed, Skip::Fragment, gre, mpls, gre] {
            replay.observe(Err(skip), None);
        }
        let found = &replay.found;
        assert_eq!(found.encapsulated, BTreeMap::from([("GRE", 2), ("MPLS", 1)]));
        let flows: Vec<_> = replay
            .flows()
            .iter()
            .map(|flow| (flow.flow.source.port(), flow.counted, flow.ends, flow.quacks))
            .collect();
        assert_eq!(flows, [(1, 4, Some((10, 15)), 1), (2, 1, Some((12, 12)), 0)]);
        assert_eq!((found.other_flows, replay.span()), (1, Duration::from_secs(4)));
        assert_eq!((found.datagrams, found.malformed, found.fragments, found.cut), (6, 1, 1, 1));
    }

    #[test]
    fn a_datagram_without_the_bytes_that_count_is_cut() {
        let mut replay = Replay::new(9, Terms::default(), clock()).unwrap();
        let (payload, flow) = datagram(1, 7);
        for (kept, len) in [(24, 40), (25, 40), (24, 24), (0, 40)] {
            replay.observe(Ok(Datagram { flow, payload: &payload[..kept], len }), None);
        }
        let mut long = payload;
        long[0] |= 0x80;
        replay.observe(Ok(Datagram { flow, payload: &long[..24], len: 40 }), None);
        // What shows no first byte may have a long header, and so is ignored.
        assert_eq!((replay.stats().counted, replay.stats().ignored), (1, 3));
        assert_eq!((replay.found.cut, replay.found.datagrams), (1, 5));
    }

    #[test]
    fn a_jump_of_the_clock_ends_no_flow() {
        let mut replay = Replay::new(9, Terms::default(), clock()).unwrap();
        let times =
            [Duration::from_secs(5), Duration::MAX, Duration::ZERO, Duration::from_secs(1 << 40)];
        for (identifier, time) in (0..).zip(times) {
            let (payload, flow) = datagram(1, identifier);
            replay.observe(Ok(Datagram { flow, payload: &payload, len: 40 }), Some(time));
        }
        assert_eq!((replay.stats().counted, replay.span()), (4, LONGEST));
        assert_eq!(replay.flows().len(), 1, "longer than any file");
    }

    #[test]
    fn quacks_follow_the_clock_of_the_capture() {
        let mut replay = Replay::new(9, Terms::default(), clock()).unwrap();
        for (identifier, at) in [(1, 0), (2, 29), (3, 31), (4, 95), (5, 200)] {
            let (payload, flow) = datagram(1, identifier);
            replay.observe(
                Ok(Datagram { flow, payload: &payload, len: 40 }),
                Some(Duration::from_millis(at)),
            );
        }
        // After 30, 61 and 125 ms.
        assert_eq!((replay.stats().quacks_sent, replay.stats().counted), (3, 5));
    }
}
