//! The session with one proxy (SPEC.md, section 7).
//!
//! A session is in one of three states. A state's methods never replace it: they write to
//! [`Effects`], and only [`ProxySession::apply`] and [`ProxySession::close`] move to another state.
//!
//! ```text
//!              ACCEPT
//!  Handshaking ──────▶ Established
//!       ▲  │ ▲               │
//!       │  │ └───────────────┤ the proxy restarts, falls silent, or does not help
//! again │  ▼                 ▼
//!    Closed: by the caller, or a discovered proxy does not help
//! ```

use super::config::SenderConfig;
use super::effects::{Bye, Context, Effects, Transition};
use super::established::{Established, KEEP_LONG};
use super::handshaking::{Handshaking, Origin, return_after};
use super::rtt::NearRtt;
use super::status::{Assistance, HandleError, Reason, SenderStats};
use crate::clock::Numbers;
use crate::identify::Flow;
use crate::keys::{Link, PublicKey};
use crate::terms::Terms;
use crate::wire::Datagram;
use crate::wire::discovery::{Answer, HANDLE_LEN};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) enum State {
    /// The session is over.
    Closed,
    /// The sender requests the session, now or after a pause.
    Handshaking(Box<Handshaking>),
    /// The proxy accepted.
    Established(Box<Established>),
}

/// The sender's state machine for one proxy.
#[derive(Debug)]
pub(super) struct ProxySession {
    config: SenderConfig,
    numbers: Numbers,
    pub(super) proxy: SocketAddr,
    pub(super) origin: Origin,
    /// The flow in HELLOs.
    flow: Flow,
    /// The handle that answers on the path repeat.
    pub(super) handle: [u8; HANDLE_LEN],
    /// The key that the proxy proved to hold.
    pub(super) key: Option<PublicKey>,
    pub(super) state: State,
    pub(super) assistance: Assistance,
    pub(super) stats: SenderStats,
    /// The BYE that waits to be sent.
    bye: Option<Bye>,
    /// Why a session with a discovered proxy ended; `None` if the caller ended it.
    pub(super) failure: Option<Reason>,
    /// Consecutive failures since the proxy last reported a packet.
    failures: u32,
    /// The proxy reported packets, then fell silent. It may return at any moment.
    may_return: bool,
}

impl ProxySession {
    /// Requests a session for `flow`.
    pub(super) fn new(
        config: SenderConfig,
        seed: [u8; 32],
        proxy: SocketAddr,
        origin: Origin,
        flow: Flow,
        now: Instant,
    ) -> Self {
        let flow = match origin {
            Origin::Configured => flow,
            Origin::Discovered { flow, .. } => flow,
        };
        let mut session = Self {
            config,
            numbers: Numbers::new(seed),
            proxy,
            origin,
            flow,
            handle: [0; HANDLE_LEN],
            key: None,
            state: State::Closed,
            assistance: Assistance::Seeking,
            stats: SenderStats::default(),
            bye: None,
            failure: None,
            failures: 0,
            may_return: false,
        };
        session.ask(NearRtt::default(), now);
        session
    }

    /// The number that the sender chose for the session, if there is one.
    pub(super) fn number(&self) -> Option<u32> {
        match &self.state {
            State::Closed => None,
            State::Handshaking(state) => Some(state.number.0),
            State::Established(state) => Some(state.number().0),
        }
    }

    /// Records that the caller sent a datagram of the flow with this identifier.
    #[inline]
    pub(super) fn on_sent(&mut self, tag: u64, identifier: u32, now: Instant) {
        let most = self.config.unanswered;
        match &mut self.state {
            State::Closed => {}
            State::Handshaking(handshaking) => handshaking.on_sent(most, tag, identifier, now),
            State::Established(established) => established.on_sent(tag, identifier, now),
        }
    }

    /// Handles a datagram of `len` bytes from the proxy's address.
    pub(super) fn on_datagram(
        &mut self,
        datagram: Datagram<'_>,
        len: usize,
        effects: &mut Effects,
        now: Instant,
    ) -> Result<(), HandleError> {
        let (state, mut context) = self.split(effects, now);
        let outcome = match (state, datagram) {
            (_, Datagram::Hello(_)) => {
                context.stats.malformed += 1;
                Err(HandleError::NotForSender)
            }
            (State::Closed, _) => Err(HandleError::OtherSession),
            (State::Handshaking(state), datagram) => state.on_datagram(datagram, &mut context),
            (State::Established(state), datagram) => state.on_datagram(datagram, len, &mut context),
        };
        self.apply(effects, now);
        outcome
    }

    /// When [`Self::on_timeout`] is due.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        match &self.state {
            State::Closed => None,
            State::Handshaking(handshaking) => Some(handshaking.retry_at),
            State::Established(established) => established.next_timeout(&self.config),
        }
    }

    /// Handles the timeouts that are due at `now`.
    pub(super) fn on_timeout(&mut self, effects: &mut Effects, now: Instant) {
        let (state, mut context) = self.split(effects, now);
        match state {
            State::Closed => {}
            State::Handshaking(state) => state.on_timeout(&mut context),
            State::Established(state) => state.on_timeout(&mut context),
        }
        self.apply(effects, now);
    }

    /// Polls the proxy at once, if the session is established.
    pub(super) fn poll(&mut self, effects: &mut Effects, now: Instant) {
        let (state, mut context) = self.split(effects, now);
        if let State::Established(state) = state
            && !state.is_renewing()
        {
            state.poll(&mut context);
        }
        self.apply(effects, now);
    }

    /// Whether certainly no datagram waits. If it returns false, there may still be none.
    #[inline]
    pub(super) fn is_silent(&self) -> bool {
        match &self.state {
            State::Established(state) => self.bye.is_none() && state.is_silent(),
            State::Closed | State::Handshaking(_) => false,
        }
    }

    /// Writes the next waiting datagram to `out`, and returns its length and its link.
    pub(super) fn poll_transmit(&mut self, out: &mut [u8]) -> Option<(usize, Link)> {
        if let Some(bye) = self.bye.take() {
            out.get_mut(..bye.len())?.copy_from_slice(&bye);
            return Some((bye.len(), Link::First));
        }
        match &mut self.state {
            State::Closed => None,
            State::Handshaking(state) => {
                Some((state.poll_transmit(&self.config, out)?, Link::First))
            }
            State::Established(state) => state.poll_transmit(out),
        }
    }

    /// Ends the session. A BYE waits if it was established.
    pub(super) fn close(&mut self) {
        self.write_bye();
        self.state = State::Closed;
    }

    /// Whether the session is not closed.
    pub(super) fn is_live(&self) -> bool {
        !matches!(self.state, State::Closed)
    }

    /// Whether the session is closed and no BYE waits.
    pub(super) fn is_over(&self) -> bool {
        !self.is_live() && self.bye.is_none()
    }

    /// Whether the proxy reports the flow's packets.
    pub(super) fn is_assisted(&self) -> bool {
        self.is_live() && self.assistance == Assistance::Assisted
    }

    /// Whether the proxy sees the flow as `flow`.
    pub(super) fn sees(&self, flow: &Flow) -> bool {
        !matches!(&self.origin, Origin::Discovered { flow: seen, .. } if seen != flow)
    }

    /// The near segment's round-trip time; `None` once closed.
    pub(super) fn near_rtt(&self) -> Option<&NearRtt> {
        match &self.state {
            State::Closed => None,
            State::Handshaking(handshaking) => Some(&handshaking.near_rtt),
            State::Established(established) => Some(&established.near_rtt),
        }
    }

    /// The near segment's smoothed round-trip time, once measured.
    pub(super) fn smoothed_rtt(&self) -> Option<Duration> {
        self.near_rtt().and_then(NearRtt::smoothed)
    }

    /// The session's state while it is established.
    pub(super) fn established(&self) -> Option<&Established> {
        match &self.state {
            State::Established(established) => Some(established),
            State::Closed | State::Handshaking(_) => None,
        }
    }

    /// Whether answers to polls lack earlier packets, which may no longer pass the proxy.
    pub(super) fn may_be_off_path(&self) -> bool {
        self.established().is_some_and(Established::may_be_off_path)
    }

    /// The terms granted, while the session is established.
    pub(super) fn granted(&self) -> Option<&Terms> {
        self.established().map(|established| &established.granted)
    }

    /// The state and the context of its methods.
    pub(super) fn split<'a>(
        &'a mut self,
        effects: &'a mut Effects,
        now: Instant,
    ) -> (&'a mut State, Context<'a>) {
        let Self { config, numbers, stats, state, assistance, .. } = self;
        let assistance = *assistance;
        (state, Context { config, numbers, stats, effects, assistance, now })
    }

    /// Applies the effects of an input. Only this function and [`Self::close`] move the session to
    /// another state.
    pub(super) fn apply(&mut self, effects: &mut Effects, now: Instant) {
        if let Some(assistance) = effects.assistance.take() {
            self.assistance = assistance;
            if assistance == Assistance::Assisted {
                (self.failures, self.may_return) = (0, false);
            }
        }
        match effects.transition.take() {
            None => {}
            Some(Transition::Established) => self.establish(now),
            Some(Transition::Failed(reason)) => {
                self.write_bye();
                self.fail(reason, now);
            }
            Some(Transition::Ended) => self.fail(Reason::ProxyLost, now),
            Some(Transition::Exhausted) => self.ask_again(now),
            Some(Transition::Unknown) if self.failures > 0 => self.fail(Reason::ProxyLost, now),
            Some(Transition::Unknown) => {
                // The proxy restarted. The sender begins one such handshake until a quACK decodes.
                self.failures = 1;
                self.may_return |= self.assistance == Assistance::Assisted;
                self.assistance = Assistance::Seeking;
                self.ask_again(now);
            }
            Some(Transition::Silent) => {
                self.write_bye();
                self.may_return |= self.assistance == Assistance::Assisted;
                self.assistance = Assistance::Unassisted(Reason::ProxyLost);
                // If the proxy only restarted, it answers now.
                self.ask_again(now);
            }
        }
    }

    /// Moves to the established session.
    fn establish(&mut self, now: Instant) {
        if let State::Handshaking(handshaking) = &mut self.state
            && let Some(established) = handshaking.established.take()
        {
            self.key = Some(established.key);
            self.state = State::Established(established);
            self.ask_to_keep(now);
            self.set_second_link(self.config.second_link, now);
        }
    }

    /// Asks the proxy to keep copies of the reverse flow, if they are wanted.
    fn ask_to_keep(&mut self, now: Instant) {
        if let (Some(age), State::Established(established)) = (self.config.keep, &mut self.state) {
            let age = if self.config.carries { KEEP_LONG } else { age };
            established.ask_to_keep(age, self.handle, self.numbers.array(), now);
        }
    }

    pub(super) fn set_packet_threshold(&mut self, packets: u32) {
        self.config.packet_threshold = packets;
    }

    pub(super) fn set_steady(&mut self, interval: Option<Duration>) {
        self.config.steady = interval;
    }

    pub(super) fn set_frugal(&mut self, packets: Option<u32>) {
        self.config.frugal = packets;
        if let State::Established(state) = &mut self.state
            && packets.is_none()
        {
            state.return_to_terms();
        }
    }

    pub(super) fn set_sparse(&mut self, longest: Option<Duration>) {
        self.config.sparse = longest;
    }

    /// Sets [`SenderConfig::second_link`].
    pub(super) fn set_second_link(&mut self, is_there: bool, now: Instant) {
        self.config.second_link = is_there;
        let carries = self.config.carries;
        if let Some(established) = self.established_mut() {
            established.second.set_wanted(is_there, carries, now);
        }
    }

    /// Disables [`SenderConfig::keep`] for the sessions that follow this one.
    pub(super) fn want_no_copies(&mut self) {
        self.config.keep = None;
    }

    /// Asks the proxy to keep copies for `age`, unless the session has asked before.
    pub(super) fn want_copies(&mut self, age: Duration, now: Instant) {
        self.config.keep = Some(age);
        if self.established().is_some_and(|established| !established.has_asked_to_keep()) {
            self.ask_to_keep(now);
        }
    }

    /// Handles an answer on the path if it belongs to a KEEP of this session. Returns whether it
    /// does.
    pub(super) fn on_path_answer(&mut self, answer: &Answer, now: Instant) -> bool {
        self.established_mut().is_some_and(|session| session.on_path_answer(answer, now))
    }

    /// The session's state while it is established.
    pub(super) fn established_mut(&mut self) -> Option<&mut Established> {
        match &mut self.state {
            State::Established(established) => Some(established),
            State::Closed | State::Handshaking(_) => None,
        }
    }

    /// Begins a handshake with a configured proxy at once. Ends the session with a discovered
    /// proxy: the sender searches again, because the path may lead past another.
    fn ask_again(&mut self, now: Instant) {
        match self.origin {
            Origin::Configured => {
                let near_rtt = self.take_near_rtt();
                self.ask(near_rtt, now);
            }
            Origin::Discovered { .. } => self.abandon(Reason::ProxyLost),
        }
    }

    /// Continues without the proxy. After a pause, requests another session from a configured one.
    fn fail(&mut self, reason: Reason, now: Instant) {
        self.may_return = false;
        self.assistance = Assistance::Unassisted(reason);
        if self.origin != Origin::Configured {
            return self.abandon(reason);
        }
        let near_rtt = self.take_near_rtt();
        let pause = return_after(self.failures);
        let handshaking = Handshaking::later(self.origin, self.flow, near_rtt, now + pause);
        self.failures = self.failures.saturating_add(1);
        self.state = State::Handshaking(Box::new(handshaking));
    }

    /// Ends the session with a discovered proxy, so that the sender searches the path again.
    fn abandon(&mut self, reason: Reason) {
        self.state = State::Closed;
        self.failure = Some(reason);
    }

    /// Begins a handshake, and queues its first HELLO.
    fn ask(&mut self, near_rtt: NearRtt, now: Instant) {
        let mut handshaking =
            Handshaking::new(self.origin, self.flow, near_rtt, self.may_return, now);
        handshaking.send_hello(&self.config, &mut self.numbers, now);
        self.state = State::Handshaking(Box::new(handshaking));
    }

    fn take_near_rtt(&mut self) -> NearRtt {
        match &mut self.state {
            State::Closed => NearRtt::default(),
            State::Handshaking(handshaking) => std::mem::take(&mut handshaking.near_rtt),
            State::Established(established) => std::mem::take(&mut established.near_rtt),
        }
    }

    fn write_bye(&mut self) {
        if let State::Established(established) = &mut self.state {
            self.bye = established.seal_bye();
        }
    }
}
