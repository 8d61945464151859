//! Re-injection for any UDP sender: a datagram that was lost before the proxy is sent again,
//! unchanged.

use crate::flow::Flow;
use crate::identify::Payload;
use crate::sender::{HandleError, Sender, SenderConfig};
use crate::store::Store;
use crate::transmit::Transmit;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The most lost datagrams that wait to be sent again. Further ones are dropped.
const MAX_WAITING: usize = 256;
/// The most second and later attempts that are remembered: as many as a sender keeps unreported
/// packets.
const MAX_ATTEMPTS: usize = 8192;

/// A [`Sender`] and a [`Store`] for a flow of opaque datagrams, such as SRTP. The application needs
/// no other part of the protocol. The receiver must drop duplicates, as SRTP does by sequence
/// numbers, up to the age at which datagrams are still sent again.
///
/// It suits flows with a rate of their own, such as calls. A flow that slows down after losses,
/// such as a VPN that carries TCP, would not learn of a full queue on the near segment. The proxy's
/// address must be known: [`SenderConfig::proxy`].
///
/// # Order of calls
/// Call [`start`](Self::start) once, [`on_sent`](Self::on_sent) after each datagram of the flow,
/// [`handle_input`](Self::handle_input) for each datagram of the adjacent socket, and
/// [`on_timeout`](Self::on_timeout) at [`poll_timeout`](Self::poll_timeout). After each of these
/// send what [`poll_resend`](Self::poll_resend) returns from the flow's own socket, and what
/// [`poll_transmit`](Self::poll_transmit) returns from the adjacent one, until both return `None`.
///
/// ```
/// use sidekick_protocol::{Filter, Flow, Identification, Position, Reinjector, SenderConfig};
/// use std::time::{Duration, Instant};
///
/// let now = Instant::now();
/// let mut config = SenderConfig::of("192.0.2.254:5252".parse()?);
/// // All datagrams of the flow are SRTP, which ends in an authentication tag.
/// config.terms.identification = Identification { position: Position::End, filter: Filter::All };
/// let mut reinjector = Reinjector::new(config, 1 << 20, Duration::from_millis(200), [7; 32]);
/// let (source, destination) = ("0.0.0.0:4000".parse()?, "198.51.100.7:5004".parse()?);
/// reinjector.start(Flow { source, destination }, now);
/// reinjector.on_sent(&[4; 200], now);
/// assert_eq!(reinjector.poll_resend(now), None, "nothing was lost");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Reinjector {
    sender: Sender,
    store: Store,
    /// The tag of the next datagram. Each attempt has its own.
    next: u64,
    /// From the tag of a later attempt to the tag of the first.
    attempts: BTreeMap<u64, u64>,
    waiting: VecDeque<u64>,
    lost: Vec<u64>,
    again: u64,
}

impl Reinjector {
    /// A sender with these terms that keeps the last `max_bytes`. It sends no datagram again whose
    /// first attempt is more than `max_age` old: as long as a late datagram is useful to the
    /// receiver. `seed` makes keys and nonces, and must be random.
    #[must_use]
    pub fn new(config: SenderConfig, max_bytes: usize, max_age: Duration, seed: [u8; 32]) -> Self {
        Self {
            sender: Sender::new(config, seed),
            store: Store::new(max_bytes, max_age),
            next: 0,
            attempts: BTreeMap::new(),
            waiting: VecDeque::new(),
            lost: Vec::new(),
            again: 0,
        }
    }

    /// As [`Sender::start`]: requests assistance for `flow`. Drops what it kept of another flow.
    pub fn start(&mut self, flow: Flow, now: Instant) {
        self.forget();
        self.sender.start(flow, now);
    }

    /// As [`Sender::stop`]. No further datagram is sent again.
    pub fn stop(&mut self) {
        self.forget();
        self.sender.stop();
    }

    fn forget(&mut self) {
        self.store.clear();
        self.attempts.clear();
        self.waiting.clear();
    }

    /// The sender of the protocol, for its state and counters.
    #[must_use]
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// The number of datagrams sent again, with repetitions.
    #[must_use]
    pub fn resent(&self) -> u64 {
        self.again
    }

    /// Records the first transmission of a datagram of the flow.
    pub fn on_sent(&mut self, datagram: &[u8], now: Instant) {
        self.sender.on_sent(self.next, Payload::whole(datagram), now);
        self.store.push_copy(self.next, datagram, now);
        self.next += 1;
    }

    /// The next datagram to send again at `now`, from the flow's own socket.
    pub fn poll_resend(&mut self, now: Instant) -> Option<&[u8]> {
        // Skip datagrams that are too old or exceed the budget.
        let first = loop {
            let first = self.waiting.pop_front()?;
            if self.store.get_for_resend(first, now).is_some() {
                break first;
            }
        };
        let datagram = self.store.get(first)?;
        // The proxy counts it as another packet.
        self.sender.on_sent(self.next, Payload::whole(datagram), now);
        if self.attempts.len() >= MAX_ATTEMPTS {
            self.attempts.pop_first();
        }
        self.attempts.insert(self.next, first);
        self.next += 1;
        self.again += 1;
        Some(datagram)
    }

    /// As [`Sender::handle_input`].
    ///
    /// # Errors
    /// As [`Sender::handle_input`]. No error requires an action.
    pub fn handle_input(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        now: Instant,
    ) -> Result<(), HandleError> {
        let handled = self.sender.handle_input(from, datagram, now);
        self.collect();
        handled
    }

    /// As [`Sender::on_timeout`].
    pub fn on_timeout(&mut self, now: Instant) {
        self.sender.on_timeout(now);
        self.collect();
    }

    /// As [`Sender::poll_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.sender.poll_timeout()
    }

    /// As [`Sender::poll_transmit`].
    pub fn poll_transmit(&mut self, out: &mut [u8]) -> Option<Transmit> {
        self.sender.poll_transmit(out)
    }

    fn collect(&mut self) {
        self.sender.drain_lost(&mut self.lost);
        for tag in self.lost.drain(..) {
            let first = self.attempts.remove(&tag).unwrap_or(tag);
            if self.waiting.len() < MAX_WAITING {
                self.waiting.push_back(first);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Numbers;
    use crate::testing::{PEER, PROXY, key, proxy};
    use crate::{Filter, Identification, MAX_DATAGRAM_LEN, Observer, ObserverConfig};
    use std::num::NonZeroU16;

    const MS: Duration = Duration::from_millis(1);

    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn start() -> Instant {
        Instant::now()
    }

    /// A flow of one datagram per millisecond, a near segment without delay that loses some of
    /// them, and a proxy behind it.
    struct Path {
        reinjector: Reinjector,
        proxy: Observer,
        flow: Flow,
        random: Numbers,
        loss_percent: u64,
        /// Datagrams that arrived, each with the number of its copies.
        arrived: BTreeMap<Vec<u8>, u32>,
        now: Instant,
    }

    impl Path {
        fn new(max_age: Duration, loss_percent: u64) -> Self {
            let mut config = SenderConfig::of(PROXY.parse().unwrap());
            config.terms.identification =
                Identification { filter: Filter::All, ..Identification::default() };
            config.terms.every_packets = NonZeroU16::new(4);
            let now = start();
            let flow = Flow {
                source: "192.0.2.1:4000".parse().unwrap(),
                destination: "198.51.100.7:51820".parse().unwrap(),
            };
            let mut reinjector = Reinjector::new(config, 1 << 20, max_age, key(1));
            reinjector.start(flow, now);
            let mut path = Self {
                reinjector,
                proxy: proxy(ObserverConfig::default(), 2),
                flow,
                random: Numbers::new(key(3)),
                loss_percent,
                arrived: BTreeMap::new(),
                now,
            };
            path.talk();
            path
        }

        fn carry(&mut self, datagram: &[u8]) {
            if u64::from_le_bytes(self.random.array()) % 100 >= self.loss_percent {
                self.proxy.observe(&self.flow, 0, Payload::whole(datagram), self.now);
                *self.arrived.entry(datagram.to_vec()).or_default() += 1;
            }
        }

        fn talk(&mut self) {
            let mut buffer = [0; MAX_DATAGRAM_LEN];
            self.proxy.on_timeout(self.now);
            loop {
                while let Some(datagram) = self.reinjector.poll_resend(self.now).map(<[u8]>::to_vec)
                {
                    self.carry(&datagram);
                }
                while let Some(transmit) = self.reinjector.poll_transmit(&mut buffer) {
                    let _ = self.proxy.handle_input(
                        PEER.parse::<SocketAddr>().unwrap(),
                        &buffer[..transmit.size],
                        self.now,
                    );
                }
                let Some(transmit) = self.proxy.poll_transmit(&mut buffer) else { break };
                self.reinjector
                    .handle_input(PROXY.parse().unwrap(), &buffer[..transmit.size], self.now)
                    .unwrap();
            }
        }

        fn run(&mut self, datagrams: u32) -> Vec<Vec<u8>> {
            let mut sent = Vec::new();
            for number in 0..datagrams + 500 {
                if number < datagrams {
                    let mut datagram = vec![0; 200];
                    let bytes: [u8; 32] = self.random.array();
                    datagram[..32].copy_from_slice(&bytes);
                    self.reinjector.on_sent(&datagram, self.now);
                    self.carry(&datagram);
                    sent.push(datagram);
                }
                self.talk();
                self.now += MS;
                self.reinjector.on_timeout(self.now);
            }
            sent
        }
    }

    #[test]
    fn every_datagram_arrives_although_the_near_segment_loses_a_tenth() {
        let mut path = Path::new(Duration::from_secs(1), 10);
        let sent = path.run(3000);
        // Packets around the epoch's first may pass before the proxy begins to count (SPEC.md,
        // section 7.2).
        let missing =
            sent.iter().skip(12).filter(|datagram| !path.arrived.contains_key(*datagram)).count();
        assert_eq!(missing, 0);
        assert!((250..450).contains(&path.reinjector.resent()), "{}", path.reinjector.resent());
        let twice = path.arrived.values().filter(|times| **times > 1).count();
        assert_eq!(twice, 0, "no datagram that arrived was sent again");
    }

    #[test]
    fn old_datagrams_and_those_of_another_flow_are_not_sent_again() {
        // The sender detects a loss after some milliseconds at the earliest.
        let mut path = Path::new(Duration::ZERO, 10);
        path.run(1000);
        assert!(path.reinjector.sender().stats().early_lost > 50);
        assert_eq!(path.reinjector.resent(), 0);

        let mut path = Path::new(Duration::from_secs(1), 100);
        path.run(20);
        path.loss_percent = 0;
        let flow = Flow { source: "192.0.2.1:4001".parse().unwrap(), ..path.flow };
        path.flow = flow;
        path.reinjector.start(flow, path.now);
        let before = path.reinjector.resent();
        path.run(200);
        assert_eq!(path.reinjector.resent(), before);
    }
}
