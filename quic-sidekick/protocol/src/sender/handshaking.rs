//! A session before the proxy accepts it (SPEC.md, section 7.1).

use super::config::SenderConfig;
use super::effects::{Context, Transition};
use super::established::Established;
use super::history::History;
use super::rtt::{NearRtt, Sample};
use super::status::{Assistance, HandleError, Reason, grants_no_more};
use crate::clock::{Numbers, scale};
use crate::identify::Flow;
use crate::keys::{HandshakeError, HandshakeMessage, Initiator, pattern};
use crate::wire::{Cookie, Datagram, ECHO_LEN, FIRST_EPOCH, Hello, Refusal, SessionNumber};
use std::time::{Duration, Instant};

/// Consecutive HELLOs before the sender reports that nothing answers.
const HELLO_ATTEMPTS: u32 = 6;
/// The interval after the first HELLO while the near RTT is unknown. Even after a lost HELLO, the
/// proxy should help the connection's handshake.
const FIRST_INTERVAL: Duration = Duration::from_millis(10);
/// The interval after the second. It doubles with each retransmission.
const HELLO_INTERVAL: Duration = Duration::from_millis(50);
/// HELLOs at equal intervals to a proxy whose near RTT is known: the proxy exists, and the path
/// loses messages.
const QUICK_HELLOS: u32 = 6;
/// The pause after a proxy refuses, ends the session, or does not see the flow. It doubles each
/// time.
const RETURN: Duration = Duration::from_secs(2);
/// The longest interval between HELLOs.
const HELLO_MAX: Duration = Duration::from_secs(60);
/// The longest interval between HELLOs or markers to a proxy that may return at any moment.
const MAY_RETURN_MAX: Duration = Duration::from_millis(800);
/// The number of these intervals: half a minute, in which a restarted proxy returns.
const MAY_RETURN_ATTEMPTS: u32 = 40;

/// The pause after `failures` earlier failures.
pub(super) fn return_after(failures: u32) -> Duration {
    scale(RETURN, 1 << failures.min(8), 1).min(HELLO_MAX)
}

/// The interval before the next HELLO or marker, after `attempts`, with `first` as the first
/// interval. `may_return`: a proxy has disappeared, and may return at any moment.
pub(super) fn seeking_interval(first: Duration, attempts: u32, may_return: bool) -> Duration {
    let most =
        if may_return && attempts < MAY_RETURN_ATTEMPTS { MAY_RETURN_MAX } else { HELLO_MAX };
    scale(first, 1 << attempts.min(11), 1).min(most)
}

/// How the sender knows the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// By its configured address. The sender keeps retrying.
    Configured,
    /// By its answer to a marker. If it fails, the sender searches the path again.
    Discovered {
        /// The flow as the proxy sees it.
        flow: Flow,
        /// The answer's cookie.
        cookie: Cookie,
    },
}

/// A handshake that awaits the proxy's message.
#[derive(Debug)]
struct Offer {
    initiator: Initiator,
    message: HandshakeMessage,
}

/// The state of a session that the sender requests.
#[derive(Debug)]
pub(super) struct Handshaking {
    origin: Origin,
    flow: Flow,
    cookie: Cookie,
    /// The number that the sender chose for the session.
    pub(super) number: SessionNumber,
    offer: Option<Offer>,
    /// The session, once the proxy accepts.
    pub(super) established: Option<Box<Established>>,
    /// HELLOs since the proxy's last answer.
    attempts: u32,
    /// When the next HELLO is due.
    pub(super) retry_at: Instant,
    /// A RETRY arrived.
    retried: bool,
    /// The proxy reported packets, then fell silent. It may return at any moment.
    may_return: bool,
    hello_sent: Option<Instant>,
    /// When the HELLO before it was sent, if both have the same cookie.
    earlier_hello_sent: Option<Instant>,
    /// A HELLO waits to be sent.
    pub(super) hello_waits: bool,
    pub(super) near_rtt: NearRtt,
    /// Packets sent since the first HELLO. An epoch may begin with any of them.
    pub(super) history: History,
}

impl Handshaking {
    /// A handshake that begins now. The caller must call [`Self::send_hello`] next.
    pub(super) fn new(
        origin: Origin,
        flow: Flow,
        near_rtt: NearRtt,
        may_return: bool,
        now: Instant,
    ) -> Self {
        let cookie = match origin {
            Origin::Configured => Cookie::NONE,
            Origin::Discovered { cookie, .. } => cookie,
        };
        Self {
            origin,
            flow,
            cookie,
            number: SessionNumber(0),
            offer: None,
            established: None,
            attempts: 0,
            retry_at: now,
            retried: false,
            may_return,
            hello_sent: None,
            earlier_hello_sent: None,
            hello_waits: false,
            near_rtt,
            history: History::default(),
        }
    }

    /// A handshake that begins at `retry_at`, after the proxy failed. Its HELLOs are far apart.
    pub(super) fn later(origin: Origin, flow: Flow, near_rtt: NearRtt, retry_at: Instant) -> Self {
        let attempts = HELLO_ATTEMPTS + QUICK_HELLOS;
        Self { attempts, ..Self::new(origin, flow, near_rtt, false, retry_at) }
    }

    /// Records a packet. The history keeps at most `most` packets.
    #[inline(never)]
    pub(super) fn on_sent(&mut self, most: usize, tag: u64, identifier: u32, now: Instant) {
        self.history.push_within(most, identifier, tag, now);
    }

    pub(super) fn on_datagram(
        &mut self,
        datagram: Datagram<'_>,
        context: &mut Context<'_>,
    ) -> Result<(), HandleError> {
        match datagram {
            Datagram::Retry { session, echo, cookie } => {
                self.check_echo(session, echo)?;
                self.on_retry(cookie, context)
            }
            Datagram::Refuse { session, echo, why } => {
                self.check_echo(session, echo)?;
                context.leave(Transition::Failed(match why {
                    Refusal::Full => Reason::ProxyFull,
                    Refusal::Terms => Reason::TermsRefused,
                    Refusal::Taken => Reason::FlowTaken,
                }));
                Ok(())
            }
            Datagram::Accept { session, handshake } if session == self.number => {
                self.on_accept(handshake, context)
            }
            _ => Err(HandleError::OtherSession),
        }
    }

    /// Checks the echo of an unauthenticated answer: only a party that saw the HELLO knows it.
    fn check_echo(&self, number: SessionNumber, echo: [u8; ECHO_LEN]) -> Result<(), HandleError> {
        let sent = self.offer.as_ref().and_then(|offer| offer.message.bytes().first_chunk());
        if number == self.number && sent == Some(&echo) {
            Ok(())
        } else {
            Err(HandleError::OtherSession)
        }
    }

    fn on_retry(&mut self, cookie: Cookie, context: &mut Context<'_>) -> Result<(), HandleError> {
        if self.origin != Origin::Configured {
            // The answer's cookie expired.
            context.leave(Transition::Failed(Reason::ProxyLost));
            return Ok(());
        }
        if self.cookie == cookie {
            return Err(HandleError::Outdated);
        }
        self.cookie = cookie;
        if self.retried {
            // The previous cookie expired. The next HELLO carries the new one, at its scheduled
            // time.
            return Ok(());
        }
        self.sample_hello(context.now);
        (self.hello_sent, self.earlier_hello_sent) = (Some(context.now), None);
        self.hello_waits = true;
        // The proxy exists: retransmit quickly if the path loses the next messages.
        (self.attempts, self.retried) = (1, true);
        self.retry_at = context.now + self.hello_interval();
        Ok(())
    }

    /// Measures the near RTT if the sender sent a single HELLO, with or without a cookie. Otherwise
    /// it is unclear which HELLO the answer belongs to, and the time is only a guess.
    fn sample_hello(&mut self, now: Instant) {
        let Some(sent) = self.hello_sent else { return };
        let since = |sent| now.saturating_duration_since(sent);
        if self.attempts == 1 {
            self.near_rtt.sample(Sample::Handshake(since(sent)), now);
        } else {
            let earlier = self.earlier_hello_sent.unwrap_or(sent);
            self.near_rtt.guess(since(sent), since(earlier));
        }
    }

    fn on_accept(&mut self, message: &[u8], context: &mut Context<'_>) -> Result<(), HandleError> {
        let Some(offer) = &mut self.offer else { return Err(HandleError::OtherSession) };
        let accept = match offer.initiator.read(message) {
            Ok(accept) => accept,
            Err(HandshakeError::Failed) => {
                context.stats.forged += 1;
                return Err(HandleError::Forged);
            }
            Err(HandshakeError::Malformed(error)) => {
                // The message is authentic, so the handshake cannot continue.
                context.stats.malformed += 1;
                context.leave(Transition::Failed(Reason::Unintelligible));
                return Err(error.into());
            }
        };
        if !grants_no_more(&context.config.terms, &accept.terms) {
            // The handshake cannot continue here, either.
            context.stats.malformed += 1;
            context.leave(Transition::Failed(Reason::TermsRefused));
            return Err(HandleError::Impossible);
        }
        self.sample_hello(context.now);
        let keys = self.offer.take().and_then(|offer| offer.initiator.finish().ok());
        let Some((seal, key)) = keys else {
            context.leave(Transition::Failed(Reason::ProxyLost));
            return Err(HandleError::Forged);
        };
        let near_rtt = std::mem::take(&mut self.near_rtt);
        let history = std::mem::take(&mut self.history);
        let mut established =
            Established::new(seal, key, self.number, &accept, near_rtt, history, context.now);
        established.begin_epoch(FIRST_EPOCH, 0, context);
        self.established = Some(Box::new(established));
        context.leave(Transition::Established);
        Ok(())
    }

    /// The interval after a first HELLO.
    fn hello_interval(&self) -> Duration {
        if self.near_rtt.is_known_roughly() {
            self.near_rtt.retry_interval()
        } else {
            HELLO_INTERVAL
        }
    }

    /// The number of HELLOs before their intervals double. It is one if the proxy has not answered
    /// yet.
    fn quick_hellos(&self) -> u32 {
        if self.near_rtt.is_known_roughly() { QUICK_HELLOS } else { 1 }
    }

    /// Sends the next HELLO if it is due.
    pub(super) fn on_timeout(&mut self, context: &mut Context<'_>) {
        if self.retry_at > context.now {
            return;
        }
        if self.attempts >= HELLO_ATTEMPTS + self.quick_hellos() {
            if self.origin != Origin::Configured {
                // Another proxy may answer the next marker.
                context.leave(Transition::Failed(Reason::NoAnswer));
                return;
            }
            if context.assistance == Assistance::Seeking {
                context.effects.assistance = Some(Assistance::Unassisted(Reason::NoAnswer));
            }
        }
        self.send_hello(context.config, context.numbers, context.now);
    }

    /// Queues a HELLO, and sets the time of the next.
    pub(super) fn send_hello(
        &mut self,
        config: &SenderConfig,
        numbers: &mut Numbers,
        now: Instant,
    ) {
        let quick = self.quick_hellos();
        let doublings = self.attempts.saturating_sub(quick);
        self.retry_at = now
            + if self.attempts == 0 && !self.near_rtt.is_known_roughly() {
                FIRST_INTERVAL
            } else {
                seeking_interval(self.hello_interval(), doublings, self.may_return)
            };
        self.attempts = self.attempts.saturating_add(1);
        // An epoch can only begin with a packet sent from now on.
        if self.attempts > HELLO_ATTEMPTS + quick || self.attempts == 1 {
            self.history.clear();
        }
        self.earlier_hello_sent = self.hello_sent.replace(now);
        self.hello_waits = true;
        if self.offer.is_none() {
            self.number = SessionNumber(numbers.next_u32().max(1));
            let (seed, pinned) = (numbers.array(), config.key.as_ref());
            let begun = Initiator::begin(pinned, self.number, &self.flow, &config.terms, seed);
            self.offer = begun.ok().map(|(initiator, message)| Offer { initiator, message });
        }
    }

    /// Writes the waiting HELLO to `out` and returns its length.
    pub(super) fn poll_transmit(&mut self, config: &SenderConfig, out: &mut [u8]) -> Option<usize> {
        if !std::mem::take(&mut self.hello_waits) {
            return None;
        }
        let hello = Hello {
            session: self.number,
            flow: self.flow,
            cookie: self.cookie,
            pattern: pattern(config.key.as_ref()),
            handshake: self.offer.as_ref()?.message.bytes(),
        };
        Datagram::Hello(hello).emit(out).ok()
    }
}
