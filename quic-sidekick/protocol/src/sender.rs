//! The sender's half: finds a proxy, reads its quACKs, and says which packets were lost on the near segment
//! (SPEC.md, section 7).

mod history;
mod reconcile;
mod rtt;
mod status;
mod timers;

use crate::clock::Numbers;
use crate::wire::{Accept, Body, Hello, Message, ParseError, Poll, Quack, Refusal, SessionId};
use crate::{Flow, Terms};
use history::History;
use reconcile::{Outcome, Reconciler};
use rtt::NearRtt;
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
    /// loss of a lone or last packet is left to the end-to-end mechanism.
    pub poll: bool,
}

impl Default for SenderConfig {
    fn default() -> Self {
        Self { terms: Terms::default(), poll: true }
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

/// quACKs in a row that do not decode before a new epoch is asked for.
const UNDECODABLE_LIMIT: u32 = 3;
/// Packets in a row that a proxy which answers must have missed before it is held to be beside the path.
const OFF_PATH_PACKETS: usize = 32;
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
    say_bye: bool,
}

impl Sender {
    /// A sender that does nothing until [`Sender::start`]. `seed` makes session ids and poll tokens: draw it at random.
    #[must_use]
    pub fn new(config: SenderConfig, seed: u64) -> Self {
        Self {
            config,
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
            say_bye: false,
        }
    }

    /// Asks the proxy for help with `flow`, or with another flow than before (the connection has migrated).
    pub fn start(&mut self, flow: Flow, now: Instant) {
        if self.assistance == Assistance::Unassisted(Reason::StoodDown) {
            return;
        }
        self.flow = Some(flow);
        self.assistance = Assistance::Seeking;
        self.near_rtt = NearRtt::default();
        self.seek(now);
    }

    /// Says goodbye to the proxy and stops.
    pub fn stop(&mut self) {
        self.say_bye = matches!(self.phase, Phase::Joined(_));
        self.phase = Phase::Off;
        self.forget();
    }

    /// The receiver has acknowledged `count` packets that [`Sender::drain_lost`] had given out as lost. When that
    /// happens too often, the reports are wrong and the sender stands down for good (SPEC.md, section 7.6).
    pub fn on_spurious(&mut self, count: u64) {
        self.stats.spurious += count;
        if status::too_many_spurious(&self.stats) && !matches!(self.phase, Phase::Off) {
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
                joined.probe.progress();
            }
            self.history.push(identifier, tag, now);
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
                // It was restarted: join again at once.
                if matches!(self.phase, Phase::Joined(_)) {
                    self.seek(now);
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

    fn on_accept(&mut self, accept: &Accept, now: Instant) -> Result<(), HandleError> {
        if !status::grants_no_more(&self.config.terms, &accept.terms) {
            self.stats.malformed += 1;
            return Err(HandleError::Impossible);
        }
        match &self.phase {
            Phase::Joined(joined) if joined.renewing.is_none() || joined.epoch == accept.epoch => {
                return Err(HandleError::Outdated);
            }
            Phase::Joined(_) => {}
            Phase::Seeking { attempts, .. } => {
                // A repeated HELLO makes it unclear which one was answered.
                if let (Some(sent), 1) = (self.hello_sent, attempts) {
                    self.near_rtt.sample(now.saturating_duration_since(sent));
                }
            }
            Phase::Off => return Err(HandleError::OtherSession),
        }
        self.stats.epochs += 1;
        self.say_hello = false;
        self.say_new_epoch = false;
        self.reconciler.begin(accept.kept_sums);
        self.history.begin_epoch();
        self.phase = Phase::Joined(Joined {
            epoch: accept.epoch,
            granted: accept.terms,
            kept_sums: accept.kept_sums,
            sequence: None,
            renewing: None,
            last_heard: now,
            last_said: now,
            undecodable: 0,
            last_progress: now,
            probe: Probe::default(),
            wanted_sums: 0,
        });
        // The epoch in the poll proves to the proxy that it speaks to who asked (SPEC.md, section 6.2).
        self.poll(now);
        Ok(())
    }

    fn on_quack(&mut self, quack: &Quack<'_>, now: Instant) -> Result<(), HandleError> {
        let Phase::Joined(joined) = &mut self.phase else { return Err(HandleError::Outdated) };
        let newer = joined.sequence.is_none_or(|known| {
            let ahead = quack.sequence.wrapping_sub(known);
            ahead != 0 && ahead < 1 << 31
        });
        if quack.epoch != joined.epoch || joined.renewing.is_some() || !newer {
            return Err(HandleError::Outdated);
        }
        if self.reconciler.load(quack).is_err() {
            self.stats.malformed += 1;
            return Err(HandleError::Impossible);
        }
        joined.sequence = Some(quack.sequence);
        joined.last_heard = now;
        let answered = joined.probe.answer(quack.token);
        if let Some(polled_at) = answered {
            self.near_rtt.sample(now.saturating_duration_since(polled_at));
        }
        if quack.count == 0 {
            if answered.is_some_and(|polled_at| self.history.unseen_before(polled_at) >= OFF_PATH_PACKETS) {
                self.blind(now);
            }
            return Ok(());
        }
        let outcome = self.reconciler.reconcile(&mut self.history, quack.first, quack.last, now);
        match outcome {
            Outcome::Decoded { last_sent } => {
                joined.undecodable = 0;
                joined.wanted_sums = 0;
                if let Some(sent) = last_sent {
                    joined.probe.progress();
                    joined.last_progress = now;
                    let age = Duration::from_micros(quack.age_us.into());
                    self.near_rtt.sample(now.saturating_duration_since(sent).saturating_sub(age));
                }
                self.assistance = Assistance::Assisted;
                if let Some(polled_at) = answered {
                    self.tail(polled_at, now);
                }
                self.declare(now);
            }
            Outcome::TooMany { missing } => {
                self.stats.undecodable += 1;
                let all = joined.kept_sums;
                if missing > u32::from(all) || !self.config.poll {
                    self.renew(now);
                } else if joined.wanted_sums == 0 {
                    joined.wanted_sums = all;
                    self.poll(now);
                }
            }
            Outcome::Misaligned => {
                self.stats.undecodable += 1;
                joined.undecodable += 1;
                if joined.undecodable >= UNDECODABLE_LIMIT {
                    self.renew(now);
                }
            }
        }
        Ok(())
    }

    /// The answer to a poll lacked so many packets in a row that they are not lost by chance. Either the proxy is slow to
    /// take them in, or they do not pass by it (any more).
    fn blind(&mut self, now: Instant) {
        let Phase::Joined(joined) = &self.phase else { return };
        if now.saturating_duration_since(joined.last_progress) >= SILENCE {
            self.lose(Reason::NotOnPath, now);
        }
    }

    /// What a poll's answer did not name, although it was sent a probe timeout before the poll, was lost
    /// (SPEC.md, section 7.4).
    fn tail(&mut self, polled_at: Instant, now: Instant) {
        if let Some(before) = polled_at.checked_sub(self.near_rtt.probe_timeout()) {
            if self.history.unseen_before(before) >= OFF_PATH_PACKETS {
                self.blind(now);
            } else {
                self.history.mark_tail(before);
            }
        }
    }

    /// Declares lost what has waited long enough (SPEC.md, section 7.3).
    fn declare(&mut self, now: Instant) {
        let every = self.config.terms.every.unwrap_or_default();
        let grace = 4 * self.near_rtt.loss_delay() + 3 * every;
        let before = self.lost.len();
        self.history.take_lost(now, self.near_rtt.loss_delay(), grace, &mut self.lost);
        self.stats.early_lost += u64::try_from(self.lost.len() - before).unwrap_or(0);
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
        self.phase = Phase::Seeking { attempts: timers::HELLO_ATTEMPTS, retry_at: now + timers::RETURN };
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
        let body = if std::mem::take(&mut self.say_bye) {
            Body::Bye
        } else if std::mem::take(&mut self.say_hello) {
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
mod tests;
