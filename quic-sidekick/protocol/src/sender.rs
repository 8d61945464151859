//! The sender's half: discovers proxies, reads their quACKs, and detects packets lost on the near
//! segment (SPEC.md, section 7).

mod config;
mod effects;
mod established;
mod fetcher;
mod handshaking;
mod history;
mod introduction;
mod last_quack;
mod listing;
mod one_way;
mod queries;
mod receive;
mod reconcile;
mod rtt;
mod search;
mod second_link;
mod selector;
mod session;
mod status;
mod symbols;

use crate::clock::{Numbers, earlier};
use crate::identify::{Flow, Payload, canonical};
use crate::keys::{Link, PublicKey};
use crate::loss_floor::{LossFloor, Lost};
use crate::terms::Terms;
use crate::transmit::{Route, Transmit};
use crate::wire::discovery::{Answer, HANDLE_LEN, Marker};
use crate::wire::{Datagram, ParseError, Part, REPEAT_HEADER_LEN};
pub use config::SenderConfig;
use effects::Effects;
use handshaking::Origin;
use introduction::Introductions;
pub use last_quack::{LastQuack, QuackOutcome};
use listing::Listing;
pub use listing::SentOrder;
use receive::Arrivals;
pub use receive::{Copied, Fate, List};
use search::Search;
pub use second_link::{LostRelay, RelayAs};
use selector::ProxySelector;
pub use selector::{Selection, SelectionReason};
use session::ProxySession;
use status::Distrust;
pub use status::{Assistance, HandleError, Reason, SenderStats};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The most sessions at once, each with another proxy.
const MAX_SESSIONS: usize = 4;

/// The sender's state when the caller stopped it.
#[derive(Clone, Copy, Debug)]
struct Stopped {
    assistance: Assistance,
    near_rtt: Option<Duration>,
    proxy: Option<(SocketAddr, PublicKey)>,
}

/// The state machine of a sender.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    numbers: Numbers,
    flow: Option<Flow>,
    sessions: Vec<ProxySession>,
    search: Search,
    introductions: Introductions,
    selector: ProxySelector,
    /// Why the last session failed.
    last_reason: Option<Reason>,
    distrust: Distrust,
    stood_down: bool,
    /// The state at the last stop, until the next start.
    stopped: Option<Stopped>,
    /// Counters of ended sessions, and of events outside sessions.
    stats: SenderStats,
    /// The effects of inputs. The packet tags in it wait until the caller drains them.
    effects: Effects,
    /// How many of the losses in it are of earlier inputs.
    settled: usize,
    last_quack: Option<LastQuack>,
    /// Which losses are congestion.
    floor: LossFloor,
    /// The same of the reverse flow.
    arrivals: Arrivals,
    /// What left, for a proxy that puts it in order.
    listing: Listing,
}

impl Sender {
    /// A sender that is idle until [`Sender::start`]. It derives keys and nonces from `seed`, which
    /// must be random, and replaces terms that the wire cannot carry by the nearest ones that it
    /// can.
    #[must_use]
    pub fn new(config: SenderConfig, seed: [u8; 32]) -> Self {
        Self {
            config: SenderConfig {
                proxy: config.proxy.map(canonical),
                terms: config.terms.normalised(),
                packet_threshold: config.packet_threshold.max(1),
                unanswered: config.unanswered.clamp(1, history::MAX_PENDING),
                ..config
            },
            numbers: Numbers::new(seed),
            flow: None,
            sessions: Vec::new(),
            search: Search::default(),
            introductions: Introductions::default(),
            selector: ProxySelector::default(),
            last_reason: None,
            distrust: Distrust::default(),
            stood_down: false,
            stopped: None,
            stats: SenderStats::default(),
            effects: Effects::default(),
            settled: 0,
            last_quack: None,
            floor: LossFloor::new(0.0),
            arrivals: Arrivals::default(),
            listing: Listing::default(),
        }
    }

    /// Sets the port of the adjacent socket, so that a proxy can answer markers there instead of
    /// along the path. 0 means unknown.
    pub fn set_adjacent_port(&mut self, port: u16) {
        self.search.adjacent_port = port;
    }

    /// Sets the handle, which identifies the connection on a socket that several share: answers on
    /// the path repeat it behind their first byte, in the place of a QUIC packet's connection ID.
    /// The default is zeros.
    pub fn set_handle(&mut self, handle: [u8; HANDLE_LEN]) {
        self.search.handle = handle;
        self.sessions.iter_mut().for_each(|session| session.handle = handle);
    }

    /// Requests these terms in sessions that begin from now on. [`Sender::start`] with the same
    /// flow begins one.
    pub fn set_terms(&mut self, terms: Terms) {
        self.config.terms = terms.normalised();
    }

    /// Disables [`SenderConfig::keep`] for sessions that begin from now on. A session that keeps
    /// copies goes on.
    pub fn want_no_copies(&mut self) {
        self.config.keep = None;
        self.sessions.iter_mut().for_each(ProxySession::want_no_copies);
        // What arrives from now on shows nothing to the sender.
        self.arrivals = Arrivals::default();
    }

    /// Sets [`SenderConfig::packet_threshold`], for example after the caller detects reordering. It
    /// also applies to packets that were sent before and are not declared lost.
    pub fn set_packet_threshold(&mut self, packets: u32) {
        self.config.packet_threshold = packets.max(1);
        for session in &mut self.sessions {
            session.set_packet_threshold(packets.max(1));
        }
    }

    /// Sets the share of losses that the flow's congestion controller ignores, from 0 to 1: 0 by
    /// default, and for BBR2 some part of the 2 % of a round trip that it ignores. Of a smaller
    /// loss on the near segment, [`Lost::congestion`] is true. Above, it is true of what exceeds
    /// the loss at lower loads (SPEC.md, section 7.12).
    pub fn set_tolerated_loss(&mut self, share: f32) {
        self.floor.set_tolerated(share);
    }

    /// Sets [`SenderConfig::steady`], because the interval of the flow's packets changed.
    /// [`Sender::on_timeout`] queues the requests to the proxies.
    pub fn set_steady(&mut self, interval: Option<Duration>) {
        self.config.steady = interval;
        self.sessions.iter_mut().for_each(|session| session.set_steady(interval));
    }

    /// Sets [`SenderConfig::frugal`]. `None` suits a path that reorders packets: few reports show
    /// whether one is lost or late.
    pub fn set_frugal(&mut self, packets: Option<u32>) {
        self.config.frugal = packets;
        self.sessions.iter_mut().for_each(|session| session.set_frugal(packets));
    }

    /// Sets [`SenderConfig::sparse`], for example because the path's round-trip time changed. It
    /// applies from the next quACK on.
    pub fn set_sparse(&mut self, longest: Option<Duration>) {
        self.config.sparse = longest;
        self.sessions.iter_mut().for_each(|session| session.set_sparse(longest));
    }

    /// Asks all proxies to keep copies for `age` (see [`SenderConfig::keep`]). A session that has
    /// not asked yet asks now, because a caller may learn late that it can detect gaps.
    pub fn want_copies(&mut self, age: Duration, now: Instant) {
        self.config.keep = Some(age);
        self.sessions.iter_mut().for_each(|session| session.want_copies(age, now));
    }

    /// Requests assistance for `flow`. After a migration of the connection, the caller passes the
    /// new flow.
    pub fn start(&mut self, flow: Flow, now: Instant) {
        if self.stood_down {
            return;
        }
        let flow = flow.canonical();
        self.stop();
        self.retire();
        self.flow = Some(flow);
        (self.last_reason, self.stopped) = (None, None);
        self.floor = LossFloor::new(self.floor.tolerated());
        self.arrivals = Arrivals::default();
        match self.config.proxy {
            Some(proxy) => self.ask(proxy, Origin::Configured, now),
            None => self.search.begin(now),
        }
    }

    fn ask(&mut self, proxy: SocketAddr, origin: Origin, now: Instant) {
        let Some(Flow { source, destination }) = self.flow else { return };
        // The proxy sees the source's address itself, and a wildcard socket does not know it.
        let unspecified = match destination {
            SocketAddr::V4(_) => SocketAddr::from(([0; 4], source.port())),
            SocketAddr::V6(_) => SocketAddr::from(([0u16; 8], source.port())),
        };
        let flow = Flow { source: unspecified, destination };
        let seed = self.numbers.array();
        let mut session = ProxySession::new(self.config.clone(), seed, proxy, origin, flow, now);
        session.handle = self.search.handle;
        self.sessions.push(session);
    }

    /// Ends all sessions with a BYE. [`Sender::assistance`] and [`Sender::near_rtt`] keep their
    /// values.
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

    /// Stops because there is no socket for messages to proxies ([`Reason::NoSocket`]).
    pub fn abandon(&mut self) {
        self.stop();
        // No BYE can be sent.
        for session in self.sessions.drain(..) {
            self.stats += session.stats;
        }
        self.stopped = Some(Stopped {
            assistance: Assistance::Unassisted(Reason::NoSocket),
            near_rtt: self.near_rtt(),
            proxy: None,
        });
    }

    /// Reports that the receiver acknowledged `count` packets that [`Sender::drain_lost`] returned,
    /// as original transmissions: their loss was spurious. If that happens too often, the sender
    /// stands down for good (SPEC.md, section 7.6).
    pub fn on_spurious(&mut self, count: u64) {
        self.stats.spurious += count;
        if self.distrust.record_spurious(count) && self.flow.is_some() {
            self.stop();
            self.stood_down = true;
        }
    }

    /// Reports that the caller will never learn the fate of `count` packets that
    /// [`Sender::drain_lost`] returned. They count neither for nor against the proxy's reports.
    pub fn on_undecided(&mut self, count: u64) {
        self.distrust.record_undecided(count);
    }

    /// Records that the caller sent a datagram of the flow. `tag` is the caller's name for it, such
    /// as its packet number. The sender ignores datagrams that do not count.
    ///
    /// Call this for each transmission, including each re-injection of the same datagram. Two
    /// transmissions may share a tag, but then [`Sender::drain_lost`] and
    /// [`Sender::drain_received`] do not distinguish them. With several proxies, `drain_lost`
    /// returns a tag once, even if both transmissions are lost.
    ///
    /// The tags of datagrams that are sent for the first time increase, each by less than 2^62,
    /// modulo 2^64. A datagram with another tag counts as a repetition, whose bytes are no load of
    /// their own when [`Lost::congestion`] is decided.
    #[inline]
    pub fn on_sent(&mut self, tag: u64, payload: Payload<'_>, now: Instant) {
        if let Some(identifier) = self.config.terms.identification.identifier(payload) {
            self.sessions.iter_mut().for_each(|session| session.on_sent(tag, identifier, now));
            self.floor.on_sent(tag, payload.len(), now);
            self.listing.on_sent(tag, identifier, payload, now);
        }
    }

    /// Handles a datagram that arrived at the adjacent socket from the address `from`. Returns a
    /// copy of a datagram of the reverse flow, if it holds one or completes one. A copy longer than
    /// 1200 bytes, and than all that [`Sender::on_received`] recorded of late, is not returned: the
    /// peer might take it for proof that the path carries its length.
    ///
    /// # Errors
    /// [`HandleError`] states why the datagram changed nothing. No error requires an action.
    pub fn handle_input(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        now: Instant,
    ) -> Result<Option<Copied>, HandleError> {
        if Answer::is_one(datagram) {
            return self.handle_on_path(datagram, now).map(|()| None);
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
        let is_whole = matches!(&parsed, Datagram::Repeat(copy) if copy.part == Part::Whole);
        self.effects.longest_copy = self.arrivals.longest_copy(now);
        let outcome = session.on_datagram(parsed, datagram.len(), &mut self.effects, now);
        self.settle(now);
        let joined = self.effects.joined.take().map(Copied::Joined);
        let whole = is_whole.then_some(Copied::Within(REPEAT_HEADER_LEN..datagram.len()));
        let longest = self.effects.longest_copy;
        let passes = |copy: &Copied| copy.bytes(datagram).len() <= longest;
        outcome.map(|()| joined.or(whole).filter(passes))
    }

    /// Whether a datagram that arrived at the flow's own socket may be a proxy's answer to a
    /// marker, by its first bytes. If so, pass it to [`Sender::handle_on_path`].
    #[must_use]
    pub fn is_answer(datagram: &[u8]) -> bool {
        Answer::is_one(datagram)
    }

    /// Whether an outgoing datagram may be a marker, by its first bytes. If so, the program that
    /// sends the flow runs a sender of its own.
    #[must_use]
    pub fn is_marker(datagram: &[u8]) -> bool {
        Marker::is_one(datagram)
    }

    /// The operator expects a proxy at this address, so answers may name it although it is private
    /// and the flow's source is not.
    pub fn expect_proxy(&mut self, proxy: SocketAddr) {
        self.introductions.expected = Some(canonical(proxy));
    }

    /// Handles an answer on the path to a KEEP of a session. Returns false, and changes nothing,
    /// for any other datagram: it may answer a marker. A caller that does not accept help from
    /// every proxy needs this distinction.
    pub fn handle_proof(&mut self, datagram: &[u8], now: Instant) -> bool {
        Answer::parse(datagram).is_ok_and(|answer| self.on_proof(&answer, now))
    }

    fn on_proof(&mut self, answer: &Answer, now: Instant) -> bool {
        self.sessions.iter_mut().any(|session| session.on_path_answer(answer, now))
    }

    /// Handles a datagram that arrived at the flow's own socket and may be a proxy's answer to a
    /// marker. [`Sender::is_answer`] decides whether to call this.
    ///
    /// # Errors
    /// [`HandleError`] states why the datagram changed nothing.
    pub fn handle_on_path(&mut self, datagram: &[u8], now: Instant) -> Result<(), HandleError> {
        let answer = Answer::parse(datagram).inspect_err(|error| match error {
            ParseError::Version(_) => self.stats.other_version += 1,
            _ => self.stats.malformed += 1,
        })?;
        if self.on_proof(&answer, now) {
            return Ok(());
        }
        if !self.search.matches(&answer) {
            // An attacker off the path does not know the nonce.
            self.stats.forged += 1;
            return Err(HandleError::Forged);
        }
        let proxy = canonical(answer.proxy);
        // The search of a sender without a flow matches no answer.
        let admitted =
            self.flow.is_some_and(|flow| self.introductions.admits(proxy, flow.source.ip(), now));
        let origin = Origin::Discovered { flow: answer.flow, cookie: answer.cookie };
        if let Some(known) =
            self.sessions.iter_mut().find(|session| session.proxy == proxy && session.is_live())
        {
            if known.sees(&answer.flow) {
                return Err(HandleError::Outdated);
            }
            if !admitted {
                return Err(HandleError::NotAsked);
            }
            // The same proxy sees another source: a NAT rebound the flow.
            known.close();
        }
        if self.sessions.iter().filter(|session| session.is_live()).count() >= MAX_SESSIONS {
            return Err(HandleError::Outdated);
        }
        if !admitted {
            return Err(HandleError::NotAsked);
        }
        self.search.record_answer();
        self.introductions.on_asked(proxy, now);
        self.ask(proxy, origin, now);
        Ok(())
    }

    /// Completes every input: removes ended sessions, selects a proxy, and restarts the search if
    /// necessary.
    fn settle(&mut self, now: Instant) {
        self.last_quack = self.effects.quack.take().or(self.last_quack);
        self.selector.deduplicate(&mut self.effects.lost, self.settled, self.sessions.len());
        self.judge_losses(now);
        self.note_fates(now);
        self.settled = self.effects.lost.len();
        for session in &mut self.sessions {
            if let Some(reason) = session.failure.take() {
                self.last_reason = Some(reason);
                self.search.record_failure(reason);
            }
            if session.assistance == Assistance::Assisted {
                self.introductions.on_answer(session.proxy);
            }
        }
        self.retire();
        if self.flow.is_none() {
            return;
        }
        if let Some(kept) = self.selector.select(&self.sessions, now) {
            for (index, session) in self.sessions.iter_mut().enumerate() {
                if kept != index {
                    session.close();
                }
            }
        }
        if self.config.proxy.is_none() {
            let assisted =
                self.sessions.iter().any(|session| session.assistance == Assistance::Assisted);
            let suspicious = self.sessions.iter().any(ProxySession::may_be_off_path);
            let live = self.sessions.iter().any(ProxySession::is_live);
            self.search.settle(live, assisted, suspicious, now);
        }
    }

    /// Judges which of the latest losses are congestion.
    fn judge_losses(&mut self, now: Instant) {
        let until = self.effects.reported.take();
        let near = self.leading().and_then(ProxySession::near_rtt);
        let near = near.map(|near| (near.latest_queue(), near.smoothed().unwrap_or_default()));
        let reported = until.zip(near);
        if let Some((until, (queue, _))) = reported {
            self.floor.on_queue(queue, until);
        }
        self.floor.judge(self.effects.lost.get_mut(self.settled..).unwrap_or_default(), now);
        for sent in self.effects.turned_up.drain(..) {
            self.floor.on_turned_up(sent);
        }
        if let Some((until, (_, near))) = reported {
            self.floor.on_reported(until, near, now);
        }
    }

    /// Removes ended sessions, but keeps their counters.
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

    /// Appends the packets declared lost since the last call to `out`.
    pub fn drain_lost(&mut self, out: &mut Vec<Lost>) {
        self.distrust.record_declared(u64::try_from(self.effects.lost.len()).unwrap_or(0));
        out.append(&mut self.effects.lost);
        self.settled = 0;
    }

    /// Appends the tags of the packets that the latest quACK was the first to report to `out`. Call
    /// it after each handled message to receive all of them.
    pub fn drain_received(&mut self, out: &mut Vec<u64>) {
        out.append(&mut self.effects.received);
    }

    /// When [`Sender::on_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let sessions = self.sessions.iter().filter_map(ProxySession::next_timeout).min();
        let search = self.flow.and_then(|_| self.search.poll_timeout());
        let listing = self.listing.poll_timeout();
        let others = earlier(listing, self.selector.poll_timeout(&self.sessions));
        earlier(earlier(sessions, search), others)
    }

    /// Handles the timeouts that are due at `now`.
    pub fn on_timeout(&mut self, now: Instant) {
        self.listing.on_timeout(now);
        for session in &mut self.sessions {
            session.on_timeout(&mut self.effects, now);
        }
        // The end of a session may restart the search at once.
        self.settle(now);
        if self.flow.is_some() && self.search.poll_timeout().is_some_and(|at| at <= now) {
            self.search.queue_marker(self.numbers.array(), now);
        }
    }

    /// Polls each proxy now, beside the polls that are due by themselves. A caller that polls at
    /// random, such as with every sixteenth packet, learns from [`Sender::stats`] how many of its
    /// own messages are lost on the near segment: at least as many as of its packets, unless the
    /// proxy lies about these.
    pub fn poll_now(&mut self, now: Instant) {
        for session in &mut self.sessions {
            session.poll(&mut self.effects, now);
        }
        self.settle(now);
    }

    /// Writes the next waiting datagram to `out`, at least [`crate::MAX_DATAGRAM_LEN`] bytes, and
    /// returns its destination. Call it until it returns `None`.
    ///
    /// The route of a message to a proxy is [`Route::Session`], or after
    /// [`Sender::set_second_link`] also [`Route::SecondLink`], and that of a marker is
    /// [`Route::Path`].
    pub fn poll_transmit(&mut self, out: &mut [u8]) -> Option<Transmit> {
        self.transmit_to_proxies(out).or_else(|| self.transmit_on_path(out))
    }

    /// As [`Sender::poll_transmit`], but only for datagrams to proxies, for a caller that sends
    /// from two places.
    pub fn transmit_to_proxies(&mut self, out: &mut [u8]) -> Option<Transmit> {
        let list = self.transmit_list(out);
        let mut sessions = self.sessions.iter_mut().enumerate();
        let listed = list.map(|(place, size)| (place, (size, Link::First)));
        let (place, (size, link)) = listed.or_else(|| {
            sessions.find_map(|(at, session)| Some((at, session.poll_transmit(out)?)))
        })?;
        let destination = self.sessions.get(place)?.proxy;
        let route = match link {
            Link::First => Route::Session,
            Link::Second => Route::SecondLink,
        };
        Some(Transmit { destination, source_ip: None, size, route })
    }

    /// As [`Sender::poll_transmit`], but only for datagrams along the flow's own path, for a caller
    /// that sends from two places.
    pub fn transmit_on_path(&mut self, out: &mut [u8]) -> Option<Transmit> {
        let Flow { source, destination } = self.flow?;
        let size = self.search.poll_transmit(out)?;
        self.stats.markers += 1;
        let route = Route::Path { source, interface: None };
        Some(Transmit { destination, source_ip: None, size, route })
    }
}

#[cfg(test)]
mod tests;
