//! What a sender keeps for one proxy: the session with it, and which packets it has not reported
//! (SPEC.md, section 7).

use super::history::History;
use super::last_quack::LastQuack;
use super::reconcile::Reconciler;
use super::rtt::NearRtt;
use super::timers::{Backoff, Probe};
use super::{Assistance, HandleError, Reason, SenderConfig, SenderStats};
use crate::clock::Numbers;
use crate::keys::{
    HandshakeError, HandshakeMessage, Initiator, OpenError, Plain, PublicKey, Seal, pattern,
};
use crate::wire::{
    Accept, Cookie, Datagram, Hello, Message, Poll, Refusal, SEAL_LEN, SessionNumber,
};
use crate::{Flow, Terms};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A proxy that says nothing for this long, although packets wait to be reported, is lost.
pub(super) const SILENCE: Duration = Duration::from_secs(1);
/// The proxy forgets a session whose sender is silent for a minute.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Where the sender stands with the proxy.
#[derive(Debug)]
pub(super) enum Phase {
    /// It was left, for good or until the path is searched anew.
    Off,
    /// HELLO was sent, or will be at `retry_at`.
    Seeking {
        /// HELLOs since the proxy was last known to be there.
        attempts: u32,
        retry_at: Instant,
        handshake: Option<Handshake>,
        /// RETRY has come.
        retried: bool,
    },
    /// ACCEPT came.
    Joined(Box<Joined>),
}

/// A handshake that waits for the proxy's message.
#[derive(Debug)]
pub(super) struct Handshake {
    initiator: Initiator,
    message: HandshakeMessage,
}

#[derive(Debug)]
pub(super) struct Joined {
    seal: Seal,
    /// The number that the proxy has chosen.
    pub(super) number: SessionNumber,
    pub(super) epoch: u16,
    pub(super) granted: Terms,
    pub(super) kept_sums: u8,
    /// The number of the message that began the epoch.
    pub(super) began: u32,
    /// The newest quACK's number.
    pub(super) sequence: Option<u32>,
    /// A new epoch was asked for; none of this one is believed any more.
    pub(super) renewing: Option<Backoff>,
    /// The proxy says that it does not know the session, or somebody else does.
    pub(super) doubt: Option<Doubt>,
    /// Before this another doubt does not begin.
    next_doubt: Instant,
    pub(super) last_heard: Instant,
    pub(super) last_said: Instant,
    pub(super) undecodable: u32,
    /// New epochs that were asked for since a quACK could be decoded.
    pub(super) fruitless: u32,
    /// When the proxy began the first of those epochs by itself that have brought no quACK which
    /// decodes.
    pub(super) unasked_since: Option<Instant>,
    /// When a packet was last reported that was not known to have arrived; at first, when the epoch
    /// began.
    pub(super) last_progress: Instant,
    /// Packets given up since then because an answer to a poll lacked them.
    pub(super) tail_declared: usize,
    /// An answer to a poll has lacked more packets than can be lost by chance.
    pub(super) doubtful: bool,
    pub(super) probe: Probe,
    /// Sums that polls ask for because a quACK was too small; 0 if none was.
    pub(super) wanted_sums: u8,
}

/// A claim that the session is unknown. When nothing authentic comes in answer to several polls, it
/// is believed.
#[derive(Debug)]
pub(super) struct Doubt {
    /// When the next poll is due, or the claim is believed.
    pub(super) until: Instant,
    /// Polls that are still to be sent.
    pub(super) polls: u32,
}

/// Polls that have to stay without an authentic answer before a claim that the session is unknown
/// is believed.
const DOUBT_POLLS: u32 = 3;
/// From the last poll of one doubt to the first of the next. Anyone can forge a claim, and each
/// doubt costs a poll. A restart right behind a false claim is noticed about as soon as a proxy
/// that falls silent.
const DOUBT_INTERVAL: Duration = SILENCE;

/// How a proxy came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// By its address alone: it is asked again and again.
    Configured,
    /// By its answer to a marker. When it is lost, the path is searched anew.
    Discovered {
        /// The flow as the proxy sees it.
        flow: Flow,
        /// The answer's.
        cookie: Cookie,
    },
}

/// The sender's state machine for one proxy.
#[derive(Debug)]
pub(super) struct Contact {
    pub(super) config: SenderConfig,
    numbers: Numbers,
    pub(super) proxy: SocketAddr,
    pub(super) origin: Origin,
    /// What HELLO says of the flow.
    flow: Flow,
    cookie: Cookie,
    /// The number that was chosen here for the session.
    pub(super) session: SessionNumber,
    /// The key that the proxy has shown.
    pub(super) key: Option<PublicKey>,
    pub(super) phase: Phase,
    pub(super) assistance: Assistance,
    pub(super) history: History,
    pub(super) reconciler: Reconciler,
    pub(super) near_rtt: NearRtt,
    pub(super) hello_sent: Option<Instant>,
    pub(super) last_sent: Option<Instant>,
    pub(super) lost: Vec<u64>,
    pub(super) stats: SenderStats,
    pub(super) last_quack: Option<LastQuack>,
    /// Messages that wait to be sent; at most one of each kind is useful.
    pub(super) say_hello: bool,
    pub(super) say_poll: Option<Poll>,
    pub(super) say_new_epoch: bool,
    say_bye: Option<[u8; SEAL_LEN + 1]>,
    /// Why a proxy that was discovered is no longer asked, if it is not because it was left.
    pub(super) gone: Option<Reason>,
    /// Times in a row that the proxy was given up without having reported a packet.
    pub(super) failures: u32,
    /// It has reported and fell silent: it may come back at any moment.
    pub(super) missed: bool,
}

impl Contact {
    /// Asks the proxy for help with `flow`.
    pub(super) fn new(
        config: SenderConfig,
        seed: [u8; 32],
        (proxy, origin): (SocketAddr, Origin),
        flow: Flow,
        now: Instant,
    ) -> Self {
        let (flow, cookie) = match origin {
            Origin::Configured => (flow, Cookie::NONE),
            Origin::Discovered { flow, cookie } => (flow, cookie),
        };
        let mut contact = Self {
            config,
            numbers: Numbers::new(seed),
            proxy,
            origin,
            flow,
            cookie,
            session: SessionNumber(0),
            key: None,
            phase: Phase::Off,
            assistance: Assistance::Seeking,
            history: History::default(),
            reconciler: Reconciler::default(),
            near_rtt: NearRtt::default(),
            hello_sent: None,
            last_sent: None,
            lost: Vec::new(),
            stats: SenderStats::default(),
            last_quack: None,
            say_hello: false,
            say_poll: None,
            say_new_epoch: false,
            say_bye: None,
            gone: None,
            failures: 0,
            missed: false,
        };
        contact.begin(now);
        contact
    }

    /// Says goodbye, if there is a session, and stops.
    pub(super) fn stop(&mut self) {
        self.leave();
        self.phase = Phase::Off;
        self.forget();
    }

    /// Whether the proxy is asked, or will be.
    pub(super) fn is_live(&self) -> bool {
        !matches!(self.phase, Phase::Off)
    }

    /// Whether the contact is over and has nothing more to say.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Off) && self.say_bye.is_none()
    }

    /// Says goodbye to the proxy, if there is a session.
    pub(super) fn leave(&mut self) {
        if let Phase::Joined(joined) = &mut self.phase {
            let mut bye = [0; SEAL_LEN + 1];
            self.say_bye = joined.seal.seal(joined.number, &Message::Bye, &mut bye).map(|_| bye);
        }
    }

    pub(super) fn on_sent(&mut self, tag: u64, identifier: u32, now: Instant) {
        if matches!(self.phase, Phase::Off) {
            return;
        }
        self.last_sent = Some(now);
        if self.history.is_empty()
            && let Phase::Joined(joined) = &mut self.phase
        {
            // Until now there was nothing to report.
            joined.probe.progress();
            if joined.tail_declared == 0 {
                joined.last_progress = now;
            }
        }
        if self.history.push(identifier, tag, now) {
            self.reconciler.forget_oldest();
        }
    }

    /// A datagram from the proxy's address.
    pub(super) fn handle_input(
        &mut self,
        datagram: Datagram<'_>,
        len: usize,
        now: Instant,
    ) -> Result<(), HandleError> {
        match datagram {
            Datagram::Retry { session, echo, cookie } => self.on_retry(session, echo, cookie, now),
            Datagram::Accept { session, handshake } => self.on_accept(session, handshake, now),
            Datagram::Refuse { session, echo, why } => {
                self.is_answer(session, echo)?;
                let reason = match why {
                    Refusal::Full => Reason::ProxyFull,
                    Refusal::Terms => Reason::TermsRefused,
                    Refusal::Taken => Reason::FlowTaken,
                };
                self.lose(reason, now);
                Ok(())
            }
            Datagram::UnknownSession { session } => self.on_unknown(session, now),
            Datagram::Sealed { session, sequence, ciphertext } => {
                self.on_sealed(session, sequence, ciphertext, len, now)
            }
            Datagram::Hello(_) => {
                self.stats.malformed += 1;
                Err(HandleError::NotForSender)
            }
        }
    }

    /// Whether something unauthenticated answers our HELLO: who has not seen it cannot know what it
    /// repeats.
    fn is_answer(&self, number: SessionNumber, echo: [u8; 8]) -> Result<(), HandleError> {
        match &self.phase {
            Phase::Seeking { handshake: Some(handshake), .. }
                if number == self.session
                    && handshake.message.bytes().first_chunk() == Some(&echo) =>
            {
                Ok(())
            }
            _ => Err(HandleError::OtherSession),
        }
    }

    fn on_retry(
        &mut self,
        number: SessionNumber,
        echo: [u8; 8],
        cookie: Cookie,
        now: Instant,
    ) -> Result<(), HandleError> {
        self.is_answer(number, echo)?;
        if matches!(self.origin, Origin::Discovered { .. }) {
            // Its own cookie is too old.
            self.lose(Reason::ProxyLost, now);
            return Ok(());
        }
        if self.cookie == cookie {
            return Err(HandleError::Outdated);
        }
        self.cookie = cookie;
        if matches!(&self.phase, Phase::Seeking { retried: true, .. }) {
            // The one before has become too old. It goes with the next HELLO, whose time is not for
            // others to say.
            return Ok(());
        }
        self.sample_hello(now);
        self.hello_sent = Some(now);
        self.say_hello = true;
        // It is there: what is lost from here on is asked for again soon.
        let soon = now + self.hello_interval();
        if let Phase::Seeking { attempts, retry_at, retried, .. } = &mut self.phase {
            (*attempts, *retry_at, *retried) = (1, soon, true);
        }
        Ok(())
    }

    /// The first HELLO, with or without cookie, was answered just now. A repeated one leaves it
    /// unclear which was.
    fn sample_hello(&mut self, now: Instant) {
        let (Some(sent), Phase::Seeking { attempts, .. }) = (self.hello_sent, &self.phase) else {
            return;
        };
        let time = now.saturating_duration_since(sent);
        if *attempts == 1 {
            self.near_rtt.sample(super::rtt::Sample::Handshake(time), now);
        } else {
            self.near_rtt.guess(time);
        }
    }

    fn on_accept(
        &mut self,
        number: SessionNumber,
        message: &[u8],
        now: Instant,
    ) -> Result<(), HandleError> {
        let Phase::Seeking { handshake: Some(handshake), .. } = &mut self.phase else {
            return Err(HandleError::OtherSession);
        };
        if number != self.session {
            return Err(HandleError::OtherSession);
        }
        let accept = match handshake.initiator.read(message) {
            Ok(accept) => accept,
            Err(HandshakeError::Failed) => {
                self.stats.forged += 1;
                return Err(HandleError::Forged);
            }
            Err(HandshakeError::Malformed(error)) => {
                // The proxy itself has said so: the handshake is spent, and nothing better is to be
                // expected.
                self.stats.malformed += 1;
                self.lose(Reason::Unintelligible, now);
                return Err(error.into());
            }
        };
        if !super::status::grants_no_more(&self.config.terms, &accept.terms) {
            // The handshake is spent, and nothing better is to be expected.
            self.stats.malformed += 1;
            self.lose(Reason::TermsRefused, now);
            return Err(HandleError::Impossible);
        }
        self.sample_hello(now);
        let Phase::Seeking { handshake, .. } = std::mem::replace(&mut self.phase, Phase::Off)
        else {
            return Err(HandleError::OtherSession);
        };
        let keys = handshake.and_then(|handshake| handshake.initiator.finish().ok());
        let Some((seal, key)) = keys else {
            self.lose(Reason::ProxyLost, now);
            return Err(HandleError::Forged);
        };
        self.key = Some(key);
        self.join(seal, &accept, now);
        Ok(())
    }

    fn join(&mut self, seal: Seal, accept: &Accept, now: Instant) {
        self.phase = Phase::Joined(Box::new(Joined {
            seal,
            number: accept.session,
            epoch: 0,
            granted: accept.terms,
            kept_sums: super::reports::usable_sums(accept),
            began: 0,
            sequence: None,
            renewing: None,
            doubt: None,
            next_doubt: now,
            last_heard: now,
            last_said: now,
            undecodable: 0,
            fruitless: 0,
            unasked_since: None,
            last_progress: now,
            tail_declared: 0,
            doubtful: false,
            probe: Probe::default(),
            wanted_sums: 0,
        }));
        self.say_hello = false;
        self.begin_epoch(1, now);
    }

    /// The proxy, or somebody else, says that there is no such session. It gets a chance to prove
    /// the opposite, once the last such chance is long enough ago.
    fn on_unknown(&mut self, number: SessionNumber, now: Instant) -> Result<(), HandleError> {
        match &mut self.phase {
            Phase::Joined(joined) if joined.number == number => {
                if joined.doubt.is_some() {
                    return Err(HandleError::Outdated);
                }
                joined.doubt =
                    Some(Doubt { until: joined.next_doubt.max(now), polls: DOUBT_POLLS });
                self.on_doubt(now);
                Ok(())
            }
            _ => Err(HandleError::OtherSession),
        }
    }

    /// Polls if the doubt's time has come, and after the last poll believes the claim.
    pub(super) fn on_doubt(&mut self, now: Instant) {
        let patience = self.near_rtt.retry_interval();
        let Phase::Joined(joined) = &mut self.phase else { return };
        let Some(doubt) = joined.doubt.as_mut().filter(|doubt| doubt.until <= now) else { return };
        if doubt.polls == 0 {
            self.restarted(now);
            return;
        }
        doubt.polls -= 1;
        doubt.until = now + patience;
        joined.next_doubt = now + DOUBT_INTERVAL;
        self.poll(now);
    }

    fn on_sealed(
        &mut self,
        number: SessionNumber,
        sequence: u32,
        ciphertext: &[u8],
        len: usize,
        now: Instant,
    ) -> Result<(), HandleError> {
        let Phase::Joined(joined) = &mut self.phase else { return Err(HandleError::OtherSession) };
        if number != self.session {
            return Err(HandleError::OtherSession);
        }
        let mut plain = Plain::default();
        let message = match joined.seal.open(sequence, ciphertext, &mut plain) {
            Ok(message) => message,
            Err(OpenError::Replay) => return Err(HandleError::Outdated),
            Err(OpenError::Forged) => {
                self.stats.forged += 1;
                return Err(HandleError::Forged);
            }
            Err(OpenError::Malformed(error)) => {
                self.stats.malformed += 1;
                return Err(error.into());
            }
        };
        self.on_message(message, sequence, len, now)
    }

    /// What the proxy says, in a datagram of `len` bytes.
    pub(super) fn on_message(
        &mut self,
        message: Message<'_>,
        sequence: u32,
        len: usize,
        now: Instant,
    ) -> Result<(), HandleError> {
        if let Phase::Joined(joined) = &mut self.phase {
            joined.doubt = None;
        }
        match message {
            Message::Quack(quack) => self.on_quack(&quack, sequence, len, now),
            Message::ShortQuack(short) => {
                let quack = self.complete(&short, sequence, now)?;
                self.on_quack(&quack, sequence, len, now)
            }
            Message::Epoch { epoch } => self.on_epoch(epoch, sequence, now),
            Message::Bye => {
                self.lose(Reason::ProxyLost, now);
                Ok(())
            }
            Message::Poll(_) | Message::NewEpoch { .. } => {
                self.stats.malformed += 1;
                Err(HandleError::NotForSender)
            }
        }
    }

    pub(super) fn poll(&mut self, now: Instant) {
        let token = self.numbers.token();
        if self.is_exhausted() {
            self.seek(now);
        }
        if let Phase::Joined(joined) = &mut self.phase {
            joined.probe.sent(token, now);
            joined.last_said = now;
            self.say_poll = Some(Poll { epoch: joined.epoch, token, sums: joined.wanted_sums });
            self.stats.polls += 1;
        }
    }

    /// Asks for a new epoch; packets of the old one that are still unreported are left to the
    /// end-to-end mechanism.
    pub(super) fn renew(&mut self, now: Instant) {
        if let Phase::Joined(joined) = &mut self.phase {
            joined.renewing = Some(Backoff::start(now, self.near_rtt.retry_interval()));
            joined.last_said = now;
            joined.fruitless += 1;
            self.say_new_epoch = true;
        }
    }

    /// Begins to look for the proxy anew. One that was discovered has to be discovered again: it
    /// may be another.
    pub(super) fn seek(&mut self, now: Instant) {
        self.forget();
        match self.origin {
            Origin::Configured => self.begin(now),
            Origin::Discovered { .. } => {
                self.phase = Phase::Off;
                self.gone = Some(Reason::ProxyLost);
            }
        }
    }

    fn begin(&mut self, now: Instant) {
        self.phase = Phase::Seeking { attempts: 0, retry_at: now, handshake: None, retried: false };
        self.on_timeout(now);
    }

    /// Begins a handshake under a new number.
    pub(super) fn begin_handshake(&mut self) -> Option<Handshake> {
        self.session = SessionNumber(self.numbers.next_u32().max(1));
        let (seed, pinned) = (self.numbers.array(), self.config.key.as_ref());
        let begun = Initiator::begin(pinned, self.session, &self.flow, &self.config.terms, seed);
        let (initiator, message) = begun.ok()?;
        Some(Handshake { initiator, message })
    }

    /// The proxy is of no help: goes on without, and looks again after a while.
    pub(super) fn lose(&mut self, reason: Reason, now: Instant) {
        self.forget();
        self.missed = false;
        self.assistance = Assistance::Unassisted(reason);
        if matches!(self.origin, Origin::Discovered { .. }) {
            self.phase = Phase::Off;
            self.gone = Some(reason);
            return;
        }
        let retry_at = now + super::timers::return_after(self.failures);
        self.failures = self.failures.saturating_add(1);
        let attempts = super::timers::HELLO_ATTEMPTS + super::timers::QUICK_HELLOS;
        self.phase = Phase::Seeking { attempts, retry_at, handshake: None, retried: false };
    }

    fn forget(&mut self) {
        self.history.clear();
        self.say_hello = false;
        self.say_poll = None;
        self.say_new_epoch = false;
        self.last_sent = None;
        if self.origin == Origin::Configured {
            // It may have been restarted since.
            self.cookie = Cookie::NONE;
        }
    }

    /// Writes the next waiting datagram to `out` and gives its length.
    pub(super) fn poll_transmit(&mut self, out: &mut [u8]) -> Option<usize> {
        if let Some(bye) = self.say_bye.take() {
            out.get_mut(..bye.len())?.copy_from_slice(&bye);
            return Some(bye.len());
        }
        match &mut self.phase {
            Phase::Off => None,
            Phase::Seeking { handshake, .. } => {
                if !std::mem::take(&mut self.say_hello) {
                    return None;
                }
                let Handshake { message, .. } = handshake.as_ref()?;
                let hello = Hello {
                    session: self.session,
                    flow: self.flow,
                    cookie: self.cookie,
                    pattern: pattern(self.config.key.as_ref()),
                    handshake: message.bytes(),
                };
                Datagram::Hello(hello).emit(out).ok()
            }
            Phase::Joined(joined) => {
                let message = if std::mem::take(&mut self.say_new_epoch) {
                    Message::NewEpoch { epoch: joined.epoch }
                } else {
                    Message::Poll(self.say_poll.take()?)
                };
                joined.seal.seal(joined.number, &message, out)
            }
        }
    }

    /// Whether all sequence numbers of the session are used up.
    fn is_exhausted(&self) -> bool {
        matches!(&self.phase, Phase::Joined(joined) if joined.seal.is_exhausted())
    }

    /// Whether the proxy sees the flow as `flow`.
    pub(super) fn sees(&self, flow: &Flow) -> bool {
        !matches!(&self.origin, Origin::Discovered { flow: seen, .. } if seen != flow)
    }

    /// Whether answers to polls lack what was sent before them: the packets may not pass by the
    /// proxy any more.
    pub(super) fn is_losing_track(&self) -> bool {
        matches!(&self.phase, Phase::Joined(joined)
            if joined.doubtful || joined.tail_declared >= super::reports::SUSPICIOUS_TAIL)
    }

    /// The terms granted, while there is a session.
    pub(super) fn granted(&self) -> Option<&Terms> {
        match &self.phase {
            Phase::Joined(joined) => Some(&joined.granted),
            _ => None,
        }
    }
}
