//! The sender's half: finds a proxy, reads its quACKs, and says which packets were lost on the near segment
//! (SPEC.md, section 7).

mod history;
mod reconcile;
mod reports;
mod rtt;
mod status;
mod timers;

use crate::clock::Numbers;
use crate::wire::{Body, Hello, Message, ParseError, Poll, Refusal, SessionId};
use crate::{Flow, Terms};
use history::History;
use reconcile::Reconciler;
use rtt::NearRtt;
use status::Distrust;
pub use status::{Assistance, Reason, SenderStats};
use std::time::{Duration, Instant};
use thiserror::Error;
use timers::{Backoff, Probe};

/// What a sender asks for.
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// The terms to ask for.
    pub terms: Terms,
    /// Whether to poll when packets stay unreported for longer than the near segment's probe timeout. Without it the
    /// loss of a lone or last packet is left to the end-to-end mechanism. Polls that set the session up, until the near
    /// RTT is known, and that keep it alive are sent in any case.
    pub poll: bool,
    /// How many packets sent after a missing one must have been seen before it counts as lost at once; at least 1. The
    /// default is 3 (kPacketThreshold of RFC 9002, section 6.1.1). A flow whose packets are too far apart to overtake each
    /// other takes 1.
    pub packet_threshold: u32,
}

impl Default for SenderConfig {
    fn default() -> Self {
        Self { terms: Terms::default(), poll: true, packet_threshold: 3 }
    }
}

/// Why a datagram from the proxy changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandleError {
    /// It is not a message.
    #[error("malformed: {0}")]
    Malformed(#[from] ParseError),
    /// It is a message that only a sender sends.
    #[error("a message that only a sender sends")]
    NotForSender,
    /// It is of another session, or none is asked for.
    #[error("not of this session")]
    OtherSession,
    /// It reports another epoch, or is older than what is known already.
    #[error("outdated")]
    Outdated,
    /// Its contents cannot be: more granted than was asked, or sums out of range.
    #[error("impossible contents")]
    Impossible,
}

/// A proxy that says nothing for this long, although packets wait to be reported, is lost.
const SILENCE: Duration = Duration::from_secs(1);
/// The proxy forgets a session whose sender is silent for a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Where the sender stands with the proxy.
#[derive(Debug)]
enum Phase {
    /// No flow, or assistance was given up for good.
    Off,
    /// HELLO was sent, or will be at `retry_at`.
    Seeking { attempts: u32, retry_at: Instant },
    /// ACCEPT came.
    Joined(Joined),
}

#[derive(Debug)]
struct Joined {
    epoch: u32,
    granted: Terms,
    kept_sums: u8,
    /// The newest quACK's number.
    sequence: Option<u32>,
    /// A new epoch was asked for; none of this one is believed any more.
    renewing: Option<Backoff>,
    last_heard: Instant,
    last_said: Instant,
    undecodable: u32,
    /// When a packet was last reported that was not known to have arrived; at first, when the epoch began.
    last_progress: Instant,
    /// Packets given up since then because an answer to a poll lacked them.
    tail_declared: usize,
    /// The epoch before, whose ACCEPT may still be on its way.
    previous_epoch: u32,
    probe: Probe,
    /// Sums that polls ask for because a quACK was too small; 0 if none was.
    wanted_sums: u8,
}

/// The sender's state machine.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    numbers: Numbers,
    flow: Option<Flow>,
    session: SessionId,
    phase: Phase,
    assistance: Assistance,
    history: History,
    reconciler: Reconciler,
    near_rtt: NearRtt,
    hello_sent: Option<Instant>,
    last_sent: Option<Instant>,
    lost: Vec<u64>,
    stats: SenderStats,
    /// Messages that wait to be sent; at most one of each kind is useful.
    say_hello: bool,
    say_poll: Option<Poll>,
    say_new_epoch: bool,
    say_bye: Option<SessionId>,
    /// Times in a row that a proxy was given up without having reported a packet.
    failures: u32,
    distrust: Distrust,
}

impl Sender {
    /// A sender that does nothing until [`Sender::start`]. `seed` makes session ids and poll tokens: draw it at random from
    /// the system. Terms that the wire cannot carry are brought to the nearest that it can.
    #[must_use]
    pub fn new(config: SenderConfig, seed: [u8; 32]) -> Self {
        Self {
            config: SenderConfig {
                terms: config.terms.normalised(),
                packet_threshold: config.packet_threshold.max(1),
                ..config
            },
            numbers: Numbers::new(seed),
            flow: None,
            session: SessionId(0),
            phase: Phase::Off,
            assistance: Assistance::Seeking,
            history: History::default(),
            reconciler: Reconciler::default(),
            near_rtt: NearRtt::default(),
            hello_sent: None,
            last_sent: None,
            lost: Vec::new(),
            stats: SenderStats::default(),
            say_hello: false,
            say_poll: None,
            say_new_epoch: false,
            say_bye: None,
            failures: 0,
            distrust: Distrust::default(),
        }
    }

    /// Asks the proxy for help with `flow`, or with another flow than before (the connection has migrated).
    pub fn start(&mut self, flow: Flow, now: Instant) {
        if self.assistance == Assistance::Unassisted(Reason::StoodDown) {
            return;
        }
        self.flow = Some(flow.canonical());
        self.assistance = Assistance::Seeking;
        self.near_rtt = NearRtt::default();
        self.failures = 0;
        self.leave();
        self.seek(now);
    }

    /// Says goodbye to the proxy and stops. [`Sender::assistance`] keeps what it was.
    pub fn stop(&mut self) {
        self.leave();
        self.phase = Phase::Off;
        self.forget();
    }

    /// Stops because the proxy cannot be spoken to (any more).
    pub fn abandon(&mut self) {
        self.stop();
        self.assistance = Assistance::Unassisted(Reason::ProxyLost);
    }

    /// Says goodbye to the proxy, if there is a session.
    fn leave(&mut self) {
        if matches!(self.phase, Phase::Joined(_)) {
            self.say_bye = Some(self.session);
        }
    }

    /// The receiver has acknowledged `count` packets that [`Sender::drain_lost`] had given out as lost. When that
    /// happens too often, the reports are wrong and the sender stands down for good (SPEC.md, section 7.6).
    pub fn on_spurious(&mut self, count: u64) {
        self.stats.spurious += count;
        if self.distrust.spurious(count) && !matches!(self.phase, Phase::Off) {
            self.stop();
            self.assistance = Assistance::Unassisted(Reason::StoodDown);
        }
    }

    /// A datagram of the flow has left. `tag` is the caller's name for it (its packet number); `head` and `payload_len`
    /// are as in [`crate::Observer::observe`]. Datagrams that do not count are passed over.
    pub fn on_sent(&mut self, tag: u64, head: &[u8], payload_len: usize, now: Instant) {
        if matches!(self.phase, Phase::Off) {
            return;
        }
        let identification = self.config.terms.identification;
        if let Some(identifier) = identification.identifier(head, payload_len) {
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
    }

    /// A datagram that came from the proxy's address.
    ///
    /// # Errors
    /// [`HandleError`] says why it changed nothing. None of them needs an action.
    pub fn handle(&mut self, datagram: &[u8], now: Instant) -> Result<(), HandleError> {
        let message = Message::parse(datagram).inspect_err(|_| self.stats.malformed += 1)?;
        if message.session != self.session || matches!(self.phase, Phase::Off) {
            return Err(HandleError::OtherSession);
        }
        match message.body {
            Body::Accept(accept) => self.on_accept(&accept, now),
            Body::Quack(quack) => {
                self.on_quack(&quack, now)?;
                self.stats.quacks_received += 1;
                self.stats.quack_bytes += u64::try_from(datagram.len()).unwrap_or(u64::MAX);
                Ok(())
            }
            Body::UnknownSession => {
                if matches!(self.phase, Phase::Joined(_)) {
                    if self.failures == 0 {
                        // It was restarted: join again at once.
                        self.failures = 1;
                        self.assistance = Assistance::Seeking;
                        self.seek(now);
                    } else {
                        self.lose(Reason::ProxyLost, now);
                    }
                }
                Ok(())
            }
            Body::Bye => {
                self.lose(Reason::ProxyLost, now);
                Ok(())
            }
            Body::Refuse(why) => {
                let reason = match why {
                    Refusal::Full => Reason::ProxyFull,
                    Refusal::Terms => Reason::TermsRefused,
                };
                self.lose(reason, now);
                Ok(())
            }
            _ => {
                self.stats.malformed += 1;
                Err(HandleError::NotForSender)
            }
        }
    }

    /// Moves the packets found lost since the last call to the end of `out`, by their tags.
    pub fn drain_lost(&mut self, out: &mut Vec<u64>) {
        out.append(&mut self.lost);
    }

    fn poll(&mut self, now: Instant) {
        let token = self.numbers.next_u32();
        if let Phase::Joined(joined) = &mut self.phase {
            joined.probe.sent(token, now);
            joined.last_said = now;
            self.say_poll = Some(Poll { epoch: joined.epoch, token, sums: joined.wanted_sums });
            self.stats.polls += 1;
        }
    }

    /// Asks for a new epoch; packets of the old one that are still unreported are left to the end-to-end mechanism.
    fn renew(&mut self, now: Instant) {
        if let Phase::Joined(joined) = &mut self.phase {
            joined.renewing = Some(Backoff::start(now, self.near_rtt.retry_interval()));
            joined.last_said = now;
            self.say_new_epoch = true;
        }
    }

    /// Begins to look for the proxy anew.
    fn seek(&mut self, now: Instant) {
        self.forget();
        self.session = SessionId(self.numbers.next_u64());
        self.phase = Phase::Seeking { attempts: 0, retry_at: now };
        self.on_deadline(now);
    }

    /// The proxy is of no help: goes on without, and looks again after a while.
    fn lose(&mut self, reason: Reason, now: Instant) {
        self.forget();
        self.assistance = Assistance::Unassisted(reason);
        self.session = SessionId(self.numbers.next_u64());
        let retry_at = now + timers::return_after(self.failures);
        self.failures = self.failures.saturating_add(1);
        self.phase = Phase::Seeking { attempts: timers::HELLO_ATTEMPTS, retry_at };
    }

    fn forget(&mut self) {
        self.history.clear();
        self.say_hello = false;
        self.say_poll = None;
        self.say_new_epoch = false;
        self.last_sent = None;
    }

    /// Writes the next waiting message to `out`, at least [`crate::MAX_MESSAGE_LEN`] bytes, and gives its length. Send
    /// it to the proxy; call until it gives `None`.
    pub fn transmit(&mut self, out: &mut [u8]) -> Option<usize> {
        if let Some(session) = self.say_bye.take() {
            return Message { session, body: Body::Bye }.emit(out).ok();
        }
        let body = if std::mem::take(&mut self.say_hello) {
            let flow = self.flow?;
            Body::Hello(Hello {
                source_port: flow.source.port(),
                destination: flow.destination,
                terms: self.config.terms,
            })
        } else if std::mem::take(&mut self.say_new_epoch) {
            let Phase::Joined(joined) = &self.phase else { return None };
            Body::NewEpoch { epoch: joined.epoch }
        } else {
            Body::Poll(self.say_poll.take()?)
        };
        Message { session: self.session, body }.emit(out).ok()
    }

    /// Whether the sender is helped now, and if not, why.
    #[must_use]
    pub fn assistance(&self) -> Assistance {
        self.assistance
    }

    /// Counters since the beginning.
    #[must_use]
    pub fn stats(&self) -> &SenderStats {
        &self.stats
    }

    /// The smoothed round-trip time of the near segment, once it was measured.
    #[must_use]
    pub fn near_rtt(&self) -> Option<Duration> {
        self.near_rtt.smoothed()
    }

    /// The terms granted, while there is a session.
    #[must_use]
    pub fn granted(&self) -> Option<&Terms> {
        match &self.phase {
            Phase::Joined(joined) => Some(&joined.granted),
            _ => None,
        }
    }
}

#[cfg(test)]
mod adversity;
#[cfg(test)]
mod tests;
