//! The receiving end: plays packets in their order, and asks for those that are missing.

mod dejitter;
mod echo;

use crate::report::{ListenerPackets, ListenerReport, Nacks};
use crate::wire::{self, Body, Datagram, MAX_NAMED, ParseError};
use dejitter::{Arrival, Dejitter};
use echo::Echo;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use thiserror::Error;

/// How long the end is confirmed after it was last said.
const LINGER: Duration = Duration::from_millis(500);
/// More waiting datagrams than this are dropped, the oldest first; each is repeated when it is needed.
const MAX_WAITING: usize = 128;
/// The longest playout limit.
const MAX_PLAYOUT_LIMIT: Duration = Duration::from_secs(60);

/// How patient a listener is.
#[derive(Clone, Copy, Debug)]
pub struct ListenerConfig {
    /// The round-trip time to reckon with until it was measured. The default is 100 ms.
    pub initial_rtt: Duration,
    /// How long a missing packet holds up those behind it before it is passed over, 1 ms to 60 s. The default is 1 s.
    pub playout_limit: Duration,
    /// A stream of which nothing was heard for so long is over. The default is 10 s.
    pub idle_timeout: Duration,
}

impl Default for ListenerConfig {
    fn default() -> Self {
        Self {
            initial_rtt: Duration::from_millis(100),
            playout_limit: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(10),
        }
    }
}

/// A listener that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The playout limit is out of range.
    #[error("the playout limit must be 1 ms to {} s", MAX_PLAYOUT_LIMIT.as_secs())]
    PlayoutLimit,
}

/// Why a datagram changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandleError {
    /// It is no datagram of a stream.
    #[error("malformed: {0}")]
    Malformed(#[from] ParseError),
    /// It is of another stream than the first that came.
    #[error("of another stream")]
    OtherStream,
    /// It is one that only a listener sends.
    #[error("a datagram that only a listener sends")]
    NotForListener,
    /// It is too far from the others of its stream.
    #[error("too far from the others of its stream")]
    Unbelievable,
}

/// The receiving end of a stream: of the first whose packet it gets.
///
/// # Order of calls
/// Feed in datagrams with [`handle`](Self::handle), and at [`next_deadline`](Self::next_deadline) call
/// [`on_deadline`](Self::on_deadline). After both send what [`transmit`](Self::transmit) gives until it has no more, to
/// where the last datagram came from that `handle` took without an error; until [`is_finished`](Self::is_finished).
#[derive(Debug)]
pub struct Listener {
    config: ListenerConfig,
    stream: Option<u32>,
    dejitter: Dejitter,
    echo: Echo,
    last_heard: Option<Instant>,
    /// When the end was last said, once it was confirmed.
    ended: Option<Instant>,
    finished: bool,
    outgoing: VecDeque<Vec<u8>>,
    packets: ListenerPackets,
    nacks: Nacks,
}

impl Listener {
    /// A listener that waits for a stream.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting that is out of range.
    pub fn new(config: ListenerConfig) -> Result<Self, ConfigError> {
        if !(Duration::from_millis(1)..=MAX_PLAYOUT_LIMIT).contains(&config.playout_limit) {
            return Err(ConfigError::PlayoutLimit);
        }
        Ok(Self {
            stream: None,
            dejitter: Dejitter::new(config.playout_limit).map_err(|_| ConfigError::PlayoutLimit)?,
            echo: Echo::new(config.initial_rtt),
            last_heard: None,
            ended: None,
            finished: false,
            outgoing: VecDeque::new(),
            packets: ListenerPackets::default(),
            nacks: Nacks::default(),
            config,
        })
    }

    /// A datagram that came in.
    ///
    /// # Errors
    /// [`HandleError`] says why it changed nothing but a counter. None of them needs an action.
    pub fn handle(&mut self, datagram: &[u8], now: Instant) -> Result<(), HandleError> {
        let handled = self.take(datagram, now);
        match handled {
            Ok(()) => self.last_heard = Some(now),
            Err(_) => self.packets.rejected += 1,
        }
        self.settle(now);
        handled
    }

    fn take(&mut self, datagram: &[u8], now: Instant) -> Result<(), HandleError> {
        let Datagram { stream, body } = Datagram::parse(datagram)?;
        match (self.stream, body) {
            (Some(known), _) if known == stream => {}
            // Only a packet begins a stream, and only one that can be the first or near it.
            (None, Body::Media { .. }) => {}
            _ => return Err(HandleError::OtherStream),
        }
        match body {
            Body::Media { sequence, .. } => self.on_media(stream, sequence, now),
            Body::Pong { token } => {
                self.echo.pong(token, now);
                Ok(())
            }
            Body::End { packets } => {
                if !self.dejitter.ends(packets, now) {
                    return Err(HandleError::Unbelievable);
                }
                if self.dejitter.is_complete() {
                    self.confirm(now);
                }
                Ok(())
            }
            Body::Feedback { .. } | Body::Ping { .. } | Body::EndReceived => Err(HandleError::NotForListener),
        }
    }

    fn on_media(&mut self, stream: u32, sequence: u32, now: Instant) -> Result<(), HandleError> {
        match self.dejitter.arrive(sequence, now) {
            Arrival::Unbelievable => return Err(HandleError::Unbelievable),
            Arrival::Taken => {}
            Arrival::TooLate => self.packets.too_late += 1,
            Arrival::Duplicate => {
                self.packets.duplicates += 1;
                self.say(|rtt, out| wire::emit_feedback(stream, rtt, &[], &[sequence], out));
            }
        }
        self.stream = Some(stream);
        self.packets.received += 1;
        self.echo.start(now);
        Ok(())
    }

    /// The stream is complete: says so as often as the talker says its end.
    fn confirm(&mut self, now: Instant) {
        let Some(stream) = self.stream else { return };
        self.ended = Some(now);
        self.say(|_, out| wire::emit_end_received(stream, out));
    }

    /// Queues what `write` writes; it is told the round-trip time in microseconds.
    fn say(&mut self, write: impl FnOnce(u32, &mut Vec<u8>)) {
        let mut out = Vec::new();
        write(u32::try_from(self.echo.rtt().as_micros()).unwrap_or(u32::MAX), &mut out);
        if self.outgoing.len() >= MAX_WAITING {
            self.outgoing.pop_front();
        }
        self.outgoing.push_back(out);
    }

    /// When [`Listener::on_deadline`] wants to be called.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.finished {
            return None;
        }
        if let Some(ended) = self.ended {
            return Some(ended + LINGER);
        }
        let idle = self.last_heard.map(|heard| heard + self.config.idle_timeout);
        let own = [self.dejitter.deadline(), self.dejitter.nack_at(), self.echo.ping_at, idle];
        own.into_iter().flatten().min()
    }

    /// Does what is due at `now`.
    pub fn on_deadline(&mut self, now: Instant) {
        self.settle(now);
    }

    fn settle(&mut self, now: Instant) {
        if self.finished {
            return;
        }
        if let Some(ended) = self.ended {
            self.finished = ended + LINGER <= now;
            return;
        }
        self.dejitter.on_deadline(now);
        if self.dejitter.is_complete() {
            self.confirm(now);
            return;
        }
        if self.last_heard.is_some_and(|heard| heard + self.config.idle_timeout <= now) {
            self.finished = true;
            return;
        }
        let Some(stream) = self.stream else { return };
        if let Some(token) = self.echo.ping(now) {
            self.say(|_, out| wire::emit_ping(stream, token, out));
        }
        self.ask(stream, now);
    }

    /// Asks for every missing packet that was not asked for within the last round trip.
    fn ask(&mut self, stream: u32, now: Instant) {
        let again = now + self.echo.patience();
        let mut due = Vec::new();
        for (sequence, missing) in self.dejitter.missing() {
            if missing.nack_at <= now {
                missing.nack_at = again;
                due.push(sequence);
            }
        }
        for named in due.chunks(MAX_NAMED) {
            self.nacks.datagrams += 1;
            self.nacks.packets += u64::try_from(named.len()).unwrap_or(0);
            self.say(|rtt, out| wire::emit_feedback(stream, rtt, named, &[], out));
        }
    }

    /// Writes the next datagram for the talker over what is in `out`. False if there is none.
    pub fn transmit(&mut self, out: &mut Vec<u8>) -> bool {
        match self.outgoing.pop_front() {
            Some(datagram) => {
                *out = datagram;
                true
            }
            None => false,
        }
    }

    /// Whether the stream is over: the talker has stopped to say its end, or was not heard for a long time.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// What was heard so far.
    #[must_use]
    pub fn report(&self) -> ListenerReport {
        ListenerReport {
            complete: self.dejitter.is_complete(),
            played: self.dejitter.played(),
            late: self.dejitter.late(),
            dejitter_ms: self.dejitter.latency(),
            packets: self.packets,
            nacks: self.nacks,
            rtt_ms: self.echo.smoothed().map(|rtt| rtt.as_secs_f64() * 1000.0),
        }
    }
}

#[cfg(test)]
mod tests;
