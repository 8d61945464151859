//! Parity from a proxy near the listener: the request for it, the rebuilt datagrams, and the time
//! for which a NACK waits (SPEC.md, sections 6.9 and 7.11).

use crate::report::ParityReport;
use sidekick_protocol::sender::HandleError;
use sidekick_protocol::{Between, Filter, Flow, Payload, Protect, Sender, SenderConfig};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::ops::Range;
use std::time::{Duration, Instant};

/// How long the proxy keeps datagrams: longer than a window lasts.
const KEEP: Duration = Duration::from_millis(500);
/// The proxy sends a quACK after this many of the listener's own datagrams. No repair depends on
/// these quACKs.
const EVERY_PACKETS: NonZeroU16 = NonZeroU16::new(64).expect("it is not 0");
const THRESHOLD: u8 = 8;
/// The least number of datagrams in a window.
const WINDOW: f64 = 8.0;
/// A window has at least this many times the datagrams between two repair symbols. So two symbols
/// cover each datagram.
const LISTED: f64 = 2.0;
/// The most datagrams in a window.
const MAX_WINDOW: f64 = 64.0;
/// After this silence, in intervals between packets, the proxy sends parity of the last packets.
/// With less than an interval, it would do so after each packet.
const FLUSH: f64 = 1.5;
/// The least silence. With it, the proxy sends no TAILs between packets.
const LEAST_FLUSH: Duration = Duration::from_millis(20);
/// The proxy sends parity together with a packet. It arrives at most this long after the packet.
const SLACK: Duration = Duration::from_millis(5);
/// NACKs stop waiting for parity if none has arrived for this many intervals between repair
/// symbols.
const MISSED: u32 = 8;
/// The most gaps whose NACKs wait.
const MAX_GAPS: usize = 64;
/// The listener names the newest datagram to its sender this often. The sender asks for parity for
/// five seconds after that. It also measures the near RTT by polls for a tenth of a second.
const PROGRESS: Duration = Duration::from_secs(4);

/// Parity of the talker's datagrams, from a proxy on the path near the listener.
///
/// ```
/// use audio::listener::{Protected, sender_config};
/// use audio::{Listener, ListenerConfig, TalkerConfig};
/// use std::time::Duration;
///
/// let protected = Protected {
///     sender: sender_config("192.0.2.1:5252".parse().unwrap()),
///     share: 0.3,
///     interval: Duration::from_millis(20),
///     // Random bytes, except in an example.
///     seed: [1; 32],
/// };
/// let config = ListenerConfig { protected: Some(protected), ..ListenerConfig::default() };
/// let listener = Listener::new(config, TalkerConfig::of_simulation(1).session).unwrap();
/// assert_eq!(listener.report().parity.map(|parity| parity.received), Some(0));
/// ```
#[derive(Clone, Debug)]
pub struct Protected {
    /// The proxy, and the terms to request: [`sender_config`].
    pub sender: SenderConfig,
    /// The repair symbols for each packet, above 0 and at most 1. Less than 1/32 counts as 1/32:
    /// two symbols have to cover each packet, and a window has at most 64. A proxy limits the
    /// bytes, to 35 % of the flow's by default. With its identifiers, a repair symbol is about a
    /// sixth longer than a packet of 240 bytes.
    pub share: f64,
    /// The interval between the talker's packets. NACKs wait by it.
    pub interval: Duration,
    /// Determines the session's keys. Must be random, except in a simulation that repeats itself.
    pub seed: [u8; 32],
}

/// The default terms for a listener's session with the proxy at this address.
#[must_use]
pub fn sender_config(proxy: SocketAddr) -> SenderConfig {
    let mut config = SenderConfig { keep: Some(KEEP), poll: false, ..SenderConfig::of(proxy) };
    // Every datagram of the flow counts. QUIC's filter would reject RTCP.
    config.terms.identification.filter = Filter::All;
    config.terms.threshold = THRESHOLD;
    (config.terms.every, config.terms.every_packets) = (None, Some(EVERY_PACKETS));
    config
}

/// Missing packets whose NACK waits, between two datagrams that arrived one after the other.
#[derive(Debug)]
struct Gap {
    places: Range<u32>,
    after: Option<u32>,
    before: u32,
    until: Instant,
}

/// A listener's session with a proxy.
#[derive(Debug)]
pub(super) struct Parity {
    pub(super) sender: Sender,
    wanted: Protect,
    /// The longest time between two repair symbols.
    between: Duration,
    flow: Option<Flow>,
    /// When the listener last named the newest datagram to the sender.
    progress: Option<Instant>,
    /// The PARITYs so far, and when the last arrived.
    received: u64,
    latest: Option<Instant>,
    gaps: VecDeque<Gap>,
    /// The identifier of the last datagram that was accepted.
    last: Option<u32>,
    rebuilt: u64,
    flow_bytes: u64,
    /// The datagrams to the talker.
    sent: u64,
}

impl Parity {
    pub(super) fn new(protected: Protected) -> Self {
        let Protected { sender, share, interval, seed } = protected;
        let share = share.clamp(1.0 / MAX_WINDOW * LISTED, 1.0);
        #[allow(clippy::cast_possible_truncation, reason = "from 8 to 64")]
        #[allow(clippy::cast_sign_loss, reason = "from 8 to 64")]
        let window = (LISTED / share).ceil().clamp(WINDOW, MAX_WINDOW) as u8;
        Self {
            sender: Sender::new(sender, seed),
            wanted: Protect::of(share, window, interval.mul_f64(FLUSH).max(LEAST_FLUSH)),
            between: interval.mul_f64((1.0 / share).ceil()),
            flow: None,
            progress: None,
            received: 0,
            latest: None,
            gaps: VecDeque::new(),
            last: None,
            rebuilt: 0,
            flow_bytes: 0,
            sent: 0,
        }
    }

    /// Begins a session for this flow, unless there is one.
    pub(super) fn follow(&mut self, flow: Flow, now: Instant) {
        if self.flow != Some(flow) {
            self.flow = Some(flow);
            (self.progress, self.last) = (None, None);
            self.gaps.clear();
            self.sender.start(flow, now);
        }
    }

    /// Handles a proxy's answer along the path. Returns whether the datagram is one.
    pub(super) fn takes_answer(&mut self, datagram: &[u8], now: Instant) -> bool {
        let is_answer = Sender::is_answer(datagram);
        if is_answer {
            // The sender counts an unusable answer.
            let _ = self.sender.handle_on_path(datagram, now);
            self.ask(now);
        }
        is_answer
    }

    /// Records a datagram of the talker, whatever it contains.
    pub(super) fn on_arrival(&mut self, datagram: &[u8], now: Instant) {
        self.sender.on_arrival(datagram);
        self.flow_bytes += u64::try_from(datagram.len()).unwrap_or(0);
        // The sender records arrivals only in a session. A new session starts without any.
        if !self.sender.collects_arrivals() {
            self.progress = None;
        } else if self.progress.is_none_or(|last| last + PROGRESS <= now)
            && let Some(last) = datagram.last_chunk()
        {
            self.progress = Some(now);
            self.sender.on_progress(u32::from_be_bytes(*last), now);
        }
    }

    /// Records a datagram to the talker. The proxy counts it.
    pub(super) fn on_sent(&mut self, datagram: &[u8], now: Instant) {
        self.sent += 1;
        self.sender.on_sent(self.sent, Payload::whole(datagram), now);
    }

    pub(super) fn handle_proxy(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        now: Instant,
    ) -> Result<(), HandleError> {
        let handled = self.sender.handle_input(from, datagram, now);
        self.ask(now);
        let received = self.sender.stats().parity_received;
        if received > self.received {
            (self.received, self.latest) = (received, Some(now));
        }
        handled.map(|_| ())
    }

    /// Requests parity in each session. Drops the losses that quACKs report, because a later report
    /// or NACK replaces a lost one.
    fn ask(&mut self, now: Instant) {
        self.sender.set_fetching(false);
        self.sender.protect(Some(self.wanted), now);
        self.sender.drain_received(&mut Vec::new());
        self.sender.drain_lost(&mut Vec::new());
    }

    /// Replaces the contents of `out` by the next datagram that parity rebuilt. False if there is
    /// none.
    pub(super) fn next_rebuilt(&mut self, out: &mut Vec<u8>, now: Instant) -> bool {
        let is_one = self.sender.next_rebuilt(out, now);
        self.rebuilt += u64::from(is_one);
        is_one
    }

    /// How long the first NACK of a packet waits. While repair symbols arrive, it waits until the
    /// next one is due.
    pub(super) fn patience(&self, now: Instant) -> Duration {
        let limit = MISSED * self.between;
        let arrives = self.latest.is_some_and(|latest| now <= latest + limit);
        if arrives { self.between + SLACK } else { Duration::ZERO }
    }

    /// Records the packets that are missing before this accepted datagram, if any. Their NACK
    /// waits.
    pub(super) fn note(&mut self, datagram: &[u8], missing: Range<u32>, now: Instant) {
        let before = datagram.last_chunk().map(|last| u32::from_be_bytes(*last));
        let (after, until) = (self.last, now + self.patience(now));
        self.last = before;
        if let Some(before) = before.filter(|_| !missing.is_empty() && until > now) {
            self.gaps.truncate(MAX_GAPS - 1);
            self.gaps.push_front(Gap { places: missing, after, before, until });
        }
    }

    /// Removes and returns missing packets that parity will not rebuild. Either a list shows that
    /// they were lost before the proxy, or no later repair symbol covers them.
    pub(super) fn next_hopeless(&mut self, now: Instant) -> Option<Range<u32>> {
        let Self { gaps, sender, .. } = self;
        gaps.retain(|gap| gap.until > now);
        let is_hopeless = |gap: &Gap| match sender.between(gap.after, gap.before) {
            Between::Nothing => true,
            Between::Missing { hopeless, .. } => hopeless,
            Between::Unlisted => false,
        };
        let place = gaps.iter().position(is_hopeless)?;
        gaps.remove(place).map(|gap| gap.places)
    }

    pub(super) fn on_timeout(&mut self, now: Instant) {
        self.sender.on_timeout(now);
        self.ask(now);
    }

    pub(super) fn report(&self) -> ParityReport {
        let stats = self.sender.stats();
        ParityReport {
            received: stats.parity_received,
            rebuilt: self.rebuilt,
            bytes: stats.added_bytes,
            flow_bytes: self.flow_bytes,
            assistance: self.sender.assistance().to_string(),
            near_rtt_ms: self.sender.near_rtt().map(|rtt| rtt.as_secs_f64() * 1000.0),
        }
    }
}
