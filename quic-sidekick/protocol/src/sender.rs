//! The sender's half: finds proxies, reads their quACKs, and says which packets were lost on the
//! near segment (SPEC.md, section 7).

mod config;
mod effects;
mod error;
mod established;
mod handshaking;
mod history;
mod last_quack;
mod reconcile;
mod rtt;
mod search;
mod selector;
mod session;
mod status;

use crate::clock::{Numbers, earlier};
use crate::flow::{Flow, canonical};
use crate::identify::Payload;
use crate::keys::PublicKey;
use crate::terms::Terms;
use crate::wire::discovery::{Answer, HANDLE_LEN};
use crate::wire::{Datagram, ParseError};
pub use config::SenderConfig;
use effects::Effects;
pub use error::HandleError;
use handshaking::Origin;
pub use last_quack::{LastQuack, QuackOutcome};
use search::Search;
use selector::ProxySelector;
pub use selector::{Selection, SelectionReason};
use session::ProxySession;
use status::Distrust;
pub use status::{Assistance, Reason, SenderStats};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Where a datagram that [`Sender::poll_transmit`] wrote is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// From the adjacent socket to this address.
    Proxy(SocketAddr),
    /// From the flow's source to its destination, by the socket that carries the flow.
    Path,
}

/// The sender asks no more proxies at once.
const MAX_SESSIONS: usize = 4;

/// How the flow was assisted when the caller stopped the sender.
#[derive(Clone, Copy, Debug)]
struct Stopped {
    assistance: Assistance,
    near_rtt: Option<Duration>,
    proxy: Option<(SocketAddr, PublicKey)>,
}

/// The sender's state machine.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    numbers: Numbers,
    flow: Option<Flow>,
    sessions: Vec<ProxySession>,
    search: Search,
    selector: ProxySelector,
    /// Why there is no session.
    last_reason: Option<Reason>,
    distrust: Distrust,
    stood_down: bool,
    /// Set from the end of one flow to the beginning of the next.
    stopped: Option<Stopped>,
    /// What sessions that are over have counted, and what belongs to none.
    stats: SenderStats,
    /// What sessions led to; the packets in it wait for the caller.
    effects: Effects,
    last_quack: Option<LastQuack>,
}

impl Sender {
    /// A sender that does nothing until [`Sender::start`]. `seed` makes keys and nonces: draw it at
    /// random from the system. Terms that the wire cannot carry are brought to the nearest that it
    /// can.
    #[must_use]
    pub fn new(config: SenderConfig, seed: [u8; 32]) -> Self {
        Self {
            config: SenderConfig {
                proxy: config.proxy.map(canonical),
                terms: config.terms.normalised(),
                packet_threshold: config.packet_threshold.max(1),
                ..config
            },
            numbers: Numbers::new(seed),
            flow: None,
            sessions: Vec::new(),
            search: Search::default(),
            selector: ProxySelector::default(),
            last_reason: None,
            distrust: Distrust::default(),
            stood_down: false,
            stopped: None,
            stats: SenderStats::default(),
            effects: Effects::default(),
            last_quack: None,
        }
    }

    /// Tells the port of the adjacent socket: a proxy then need not answer a marker along the path.
    /// 0 is no port.
    pub fn set_adjacent_port(&mut self, port: u16) {
        self.search.adjacent_port = port;
    }

    /// Has answers to markers carry these bytes behind their first one, where a QUIC packet has its
    /// connection ID: a socket that several connections share finds the connection by it. The
    /// default is zeros.
    pub fn set_handle(&mut self, handle: [u8; HANDLE_LEN]) {
        self.search.handle = handle;
    }

    /// Asks for help with `flow`, or with another flow than before (the connection has migrated).
    pub fn start(&mut self, flow: Flow, now: Instant) {
        if self.stood_down {
            return;
        }
        let flow = flow.canonical();
        self.stop();
        self.retire();
        self.flow = Some(flow);
        (self.last_reason, self.stopped) = (None, None);
        match self.config.proxy {
            Some(proxy) => self.ask(proxy, Origin::Configured, now),
            None => self.search.begin(now),
        }
    }

    fn ask(&mut self, proxy: SocketAddr, origin: Origin, now: Instant) {
        let Some(Flow { source, destination }) = self.flow else { return };
        // The proxy sees the source's address for itself; which one it is, a sender behind any
        // address may not know.
        let unspecified = match destination {
            SocketAddr::V4(_) => SocketAddr::from(([0; 4], source.port())),
            SocketAddr::V6(_) => SocketAddr::from(([0u16; 8], source.port())),
        };
        let flow = Flow { source: unspecified, destination };
        let seed = self.numbers.array();
        let session = ProxySession::new(self.config.clone(), seed, proxy, origin, flow, now);
        self.sessions.push(session);
    }

    /// Says goodbye and stops. [`Sender::assistance`] and [`Sender::near_rtt`] keep what they were.
    pub fn stop(&mut self) {
        if self.flow.is_some() {
            self.stopped = Some(Stopped {
                assistance: self.assistance(),
                near_rtt: self.near_rtt(),
                proxy: self.proxy(),
            });
        }
        self.search.end();
        self.selector = ProxySelector::default();
        self.sessions.iter_mut().for_each(ProxySession::close);
        self.flow = None;
    }

    /// Stops because proxies cannot be spoken to (any more).
    pub fn abandon(&mut self) {
        self.stop();
        // Their goodbyes cannot be said.
        for session in self.sessions.drain(..) {
            self.stats += session.stats;
        }
        self.stopped = Some(Stopped {
            assistance: Assistance::Unassisted(Reason::ProxyLost),
            near_rtt: self.near_rtt(),
            proxy: None,
        });
    }

    /// The receiver has refuted the loss of `count` packets that [`Sender::drain_lost`] had given
    /// out: it had them in their turn. When that happens too often, the reports are wrong and the
    /// sender stands down for good (SPEC.md, section 7.6).
    pub fn on_spurious(&mut self, count: u64) {
        self.stats.spurious += count;
        if self.distrust.spurious(count) && self.flow.is_some() {
            self.stop();
            self.stood_down = true;
        }
    }

    /// Whether `count` packets that [`Sender::drain_lost`] had given out were lost, nothing will
    /// tell: they say nothing for the reports, and nothing against them.
    pub fn on_undecided(&mut self, count: u64) {
        self.distrust.undecided(count);
    }

    /// A datagram of the flow has left. `tag` is the caller's name for it (its packet number).
    /// Datagrams that do not count are passed over.
    pub fn on_sent(&mut self, tag: u64, payload: Payload<'_>, now: Instant) {
        if let Some(identifier) = self.config.terms.identification.identifier(payload) {
            self.sessions.iter_mut().for_each(|session| session.on_sent(tag, identifier, now));
        }
    }

    /// A datagram that came to the adjacent socket from the address `from`.
    ///
    /// # Errors
    /// [`HandleError`] says why it changed nothing. None of them needs an action.
    pub fn handle_input(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        now: Instant,
    ) -> Result<(), HandleError> {
        if Answer::is_one(datagram) {
            return self.handle_on_path(datagram, now);
        }
        let parsed = Datagram::parse(datagram).inspect_err(|error| match error {
            ParseError::Version(_) => self.stats.other_version += 1,
            _ => self.stats.malformed += 1,
        })?;
        let from = canonical(from);
        let Some(session) =
            self.sessions.iter_mut().find(|session| session.proxy == from && session.is_live())
        else {
            return Err(HandleError::Stranger);
        };
        let outcome = session.on_datagram(parsed, datagram.len(), &mut self.effects, now);
        self.settle(now);
        outcome
    }

    /// A datagram that came to the socket that carries the flow and is none of the flow's: it may
    /// be a proxy's answer to a marker. [`Answer::is_one`] tells whether to call this.
    ///
    /// # Errors
    /// [`HandleError`] says why it changed nothing.
    pub fn handle_on_path(&mut self, datagram: &[u8], now: Instant) -> Result<(), HandleError> {
        let answer = Answer::parse(datagram).inspect_err(|error| match error {
            ParseError::Version(_) => self.stats.other_version += 1,
            _ => self.stats.malformed += 1,
        })?;
        if !self.search.asked(&answer) {
            // Whoever is not on the path cannot know the nonce.
            self.stats.forged += 1;
            return Err(HandleError::Forged);
        }
        let proxy = canonical(answer.proxy);
        let origin = Origin::Discovered { flow: answer.flow, cookie: answer.cookie };
        if let Some(known) =
            self.sessions.iter_mut().find(|session| session.proxy == proxy && session.is_live())
        {
            if known.sees(&answer.flow) {
                return Err(HandleError::Outdated);
            }
            // The same proxy sees the flow come from elsewhere: a NAT has given it another port.
            known.close();
        }
        if self.sessions.iter().filter(|session| session.is_live()).count() >= MAX_SESSIONS {
            return Err(HandleError::Outdated);
        }
        self.search.answered();
        self.ask(proxy, origin, now);
        Ok(())
    }

    /// Cleans up behind whatever has happened: sessions that are over, and a path that has to be
    /// searched (again).
    fn settle(&mut self, now: Instant) {
        self.last_quack = self.effects.quack.take().or(self.last_quack);
        self.selector.deduplicate(&mut self.effects.lost, self.sessions.len());
        for session in &mut self.sessions {
            if let Some(reason) = session.failure.take() {
                self.last_reason = Some(reason);
                self.search.failed(reason);
            }
        }
        self.retire();
        if self.flow.is_none() {
            return;
        }
        if let Some(kept) = self.selector.judge(&self.sessions, now) {
            for (index, session) in self.sessions.iter_mut().enumerate() {
                if kept != index {
                    session.close();
                }
            }
        }
        if self.config.proxy.is_none() {
            let assisted =
                self.sessions.iter().any(|session| session.assistance == Assistance::Assisted);
            let suspicious = self.sessions.iter().any(ProxySession::is_losing_track);
            let live = self.sessions.iter().any(ProxySession::is_live);
            self.search.settle(live, assisted, suspicious, now);
        }
    }

    /// Forgets sessions that are over, but for their counters.
    fn retire(&mut self) {
        let Self { sessions, stats, .. } = self;
        sessions.retain(|session| {
            let over = session.is_over();
            if over {
                *stats += session.stats;
            }
            !over
        });
    }

    /// Moves the packets found lost since the last call to the end of `out`, by their tags.
    pub fn drain_lost(&mut self, out: &mut Vec<u64>) {
        self.distrust.declared(u64::try_from(self.effects.lost.len()).unwrap_or(0));
        out.append(&mut self.effects.lost);
    }

    /// Moves the packets that the proxy's latest quACK has shown to have reached it to the end of
    /// `out`, by their tags, each once. Who wants them all asks after each message that was
    /// handled.
    pub fn drain_received(&mut self, out: &mut Vec<u64>) {
        out.append(&mut self.effects.received);
    }

    /// When [`Sender::on_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let sessions = self.sessions.iter().filter_map(ProxySession::next_timeout).min();
        let search = self.flow.and_then(|_| self.search.poll_timeout());
        earlier(earlier(sessions, search), self.selector.poll_timeout(&self.sessions))
    }

    /// Does what is due at `now`.
    pub fn on_timeout(&mut self, now: Instant) {
        for session in &mut self.sessions {
            session.on_timeout(&mut self.effects, now);
        }
        // A session that ends here may have the path searched at once.
        self.settle(now);
        if self.flow.is_some() && self.search.poll_timeout().is_some_and(|at| at <= now) {
            self.search.mark(self.numbers.array(), now);
        }
    }

    /// Writes the next waiting datagram to `out`, at least [`crate::MAX_DATAGRAM_LEN`] bytes, and
    /// gives its length and where to send it; call until it gives `None`.
    pub fn poll_transmit(&mut self, out: &mut [u8]) -> Option<(Target, usize)> {
        for session in &mut self.sessions {
            if let Some(len) = session.poll_transmit(out) {
                return Some((Target::Proxy(session.proxy), len));
            }
        }
        Some((Target::Path, self.transmit_on_path(out)?))
    }

    /// As [`Sender::poll_transmit`], but only what goes the flow's own path, for a caller that has two
    /// places to send from.
    pub fn transmit_on_path(&mut self, out: &mut [u8]) -> Option<usize> {
        let len = self.search.poll_transmit(out)?;
        self.stats.markers += 1;
        Some(len)
    }

    /// Whether the sender is helped now, and if not, why.
    #[must_use]
    pub fn assistance(&self) -> Assistance {
        if self.stood_down {
            return Assistance::Unassisted(Reason::StoodDown);
        }
        if let Some(stopped) = self.stopped {
            return stopped.assistance;
        }
        let live = || self.sessions.iter().filter(|session| session.is_live());
        if live().any(|session| session.assistance == Assistance::Assisted) {
            return Assistance::Assisted;
        }
        if live().any(|session| session.assistance == Assistance::Seeking) {
            return Assistance::Seeking;
        }
        let reason = live().find_map(|session| match session.assistance {
            Assistance::Unassisted(reason) => Some(reason),
            _ => None,
        });
        match reason.or(self.last_reason) {
            Some(reason) => Assistance::Unassisted(reason),
            None if self.flow.is_some() && self.search.has_failed() => {
                Assistance::Unassisted(Reason::NotFound)
            }
            None => Assistance::Seeking,
        }
    }

    /// Counters since the beginning.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        let mut stats = self.stats;
        self.sessions.iter().for_each(|session| stats += session.stats);
        stats
    }

    /// The session that counts: the one chosen, or that which is farthest of those that report.
    fn leading(&self) -> Option<&ProxySession> {
        let reporting = self.sessions.iter().filter(|session| session.is_assisted());
        reporting.max_by_key(|session| session.smoothed_rtt())
    }

    /// The smoothed round-trip time of the near segment, once it was measured.
    #[must_use]
    pub fn near_rtt(&self) -> Option<Duration> {
        if let Some(stopped) = self.stopped {
            return stopped.near_rtt;
        }
        let measured = self.sessions.iter().filter_map(ProxySession::smoothed_rtt).max();
        self.leading().and_then(ProxySession::smoothed_rtt).or(measured)
    }

    /// By how much the near segment's round-trip time, smoothed, is longer than the shortest of the
    /// last ten seconds: by a queue, or by a radio.
    #[must_use]
    pub fn near_queueing(&self) -> Option<Duration> {
        self.leading()?.near_rtt()?.queueing()
    }

    /// By how much the near segment's round-trip time was longer than the shortest of the last ten
    /// seconds each time of the last 16 that it was measured: by a queue. A radio does not delay
    /// all packets.
    #[must_use]
    pub fn near_standing_queue(&self) -> Option<Duration> {
        self.leading()?.near_rtt()?.standing()
    }

    /// The terms granted, while there is a session.
    #[must_use]
    pub fn granted(&self) -> Option<&Terms> {
        self.leading()
            .and_then(ProxySession::granted)
            .or_else(|| self.sessions.iter().find_map(ProxySession::granted))
    }

    /// The proxy that reports, and its key.
    #[must_use]
    pub fn proxy(&self) -> Option<(SocketAddr, PublicKey)> {
        if let Some(stopped) = self.stopped {
            return stopped.proxy;
        }
        let leading = self.leading()?;
        Some((leading.proxy, leading.key?))
    }

    /// Which of several proxies was chosen, and why; `None` while there was no choice to make.
    #[must_use]
    pub fn selection(&self) -> Option<Selection> {
        self.selector.made
    }

    /// What the latest quACK led to; [`SenderStats::quacks_received`] counts them.
    #[must_use]
    pub fn last_quack(&self) -> Option<&LastQuack> {
        self.last_quack.as_ref()
    }
}

#[cfg(test)]
mod tests;
