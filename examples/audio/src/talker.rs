//! The sending end: a packet every interval, and again those that are asked for.

mod config;
mod store;

use crate::report::{Quacks, TalkerPackets, TalkerReport};
use crate::wire::{self, Body, Datagram, MEDIA_HEADER_LEN, ParseError, Sequences};
pub use config::{ConfigError, MAX_INTERVAL, MAX_PAYLOAD, MIN_INTERVAL, MIN_PAYLOAD, Reinject, TalkerConfig};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use sidekick_protocol::sender::HandleError as ProxyError;
use sidekick_protocol::{Assistance, Payload, Sender, Target};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use store::{Cause, Store, Transmission};
use thiserror::Error;

/// How long a packet is kept to be sent again: longer than a listener waits for it.
const KEEP: Duration = Duration::from_secs(3);
/// A talker that was held up for longer leaves out the pause, rather than to send what it missed all at once.
const MAX_BEHIND: Duration = Duration::from_millis(500);
/// The end is said again after this long.
const END_INTERVAL: Duration = Duration::from_millis(100);
/// And no more often than this, if nobody confirms it.
const MAX_ENDS: u32 = 50;
/// A listener's word on the round trip is not taken for more.
const MAX_RTT: Duration = Duration::from_secs(1);
/// More waiting datagrams than this are not kept: what is asked for and not sent will be asked for again.
const MAX_WAITING: usize = 1024;

/// Why a datagram from the listener's address changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandleError {
    /// It is no datagram of a stream.
    #[error("malformed: {0}")]
    Malformed(#[from] ParseError),
    /// It is of another stream.
    #[error("of another stream")]
    OtherStream,
    /// It is one that only a talker sends.
    #[error("a datagram that only a talker sends")]
    NotForTalker,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Talking { due: Instant },
    Ending { ends: u32, due: Instant },
    Finished { at: Instant, acknowledged: bool },
}

#[derive(Clone, Copy, Debug)]
enum Outgoing {
    Media(Transmission),
    Pong(u32),
    End,
}

/// The sending end of a stream.
///
/// # Order of calls
/// Feed in datagrams of the stream's socket with [`handle`](Self::handle), those of the adjacent socket (that is the one
/// to the proxy) with [`handle_proxy`](Self::handle_proxy), and at [`next_deadline`](Self::next_deadline) call
/// [`on_deadline`](Self::on_deadline). After each of them send what [`transmit`](Self::transmit) and
/// [`transmit_to_proxy`](Self::transmit_to_proxy) give until they have no more, until [`is_finished`](Self::is_finished).
#[derive(Debug)]
pub struct Talker {
    config: TalkerConfig,
    stream: u32,
    began: Instant,
    phase: Phase,
    store: Store,
    outgoing: VecDeque<Outgoing>,
    sidekick: Option<Sender>,
    lost: Vec<u64>,
    listener_rtt: Option<Duration>,
    packets: TalkerPackets,
    bytes: u64,
}

impl Talker {
    /// A talker whose first packet is due `now`.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting that is out of range.
    pub fn new(config: TalkerConfig, now: Instant) -> Result<Self, ConfigError> {
        config.check()?;
        let capacity = KEEP.as_millis() / config.interval.as_millis().max(1);
        let sidekick = config.reinject.as_ref().map(|reinject| {
            let mut sender = Sender::new(reinject.sender(), reinject.seed);
            sender.start(reinject.flow, now);
            sender
        });
        Ok(Self {
            stream: ChaCha8Rng::seed_from_u64(config.seed).next_u32(),
            began: now,
            phase: Phase::Talking { due: now },
            store: Store::new(usize::try_from(capacity).unwrap_or(0).max(16)),
            outgoing: VecDeque::new(),
            sidekick,
            lost: Vec::new(),
            listener_rtt: None,
            packets: TalkerPackets::default(),
            bytes: 0,
            config,
        })
    }

    /// Ends the stream with the packets that were sent so far.
    pub fn stop(&mut self, now: Instant) {
        if let Phase::Talking { .. } = self.phase {
            self.phase = Phase::Ending { ends: 0, due: now };
        }
    }

    /// Whether the listener has confirmed the end, or was told often enough. There is nothing left to do but to send what
    /// [`Talker::transmit_to_proxy`] still gives.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished { .. })
    }

    /// When [`Talker::on_deadline`] wants to be called.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Instant> {
        let own = match self.phase {
            Phase::Talking { due } | Phase::Ending { due, .. } => due,
            Phase::Finished { .. } => return None,
        };
        let sidekick = self.sidekick.as_ref().and_then(Sender::next_deadline);
        Some(sidekick.map_or(own, |sidekick| sidekick.min(own)))
    }

    /// Does what is due at `now`.
    pub fn on_deadline(&mut self, now: Instant) {
        while let Phase::Talking { due } = self.phase
            && due <= now
        {
            self.talk(due, now);
        }
        if let Phase::Ending { ends, due } = self.phase
            && due <= now
        {
            if ends < MAX_ENDS {
                self.queue(Outgoing::End);
                self.phase = Phase::Ending { ends: ends + 1, due: now + END_INTERVAL };
            } else {
                self.finish(false, now);
            }
        }
        if let Some(sidekick) = &mut self.sidekick {
            sidekick.on_deadline(now);
        }
        self.reinject(now);
    }

    /// Makes the next packet, or ends.
    fn talk(&mut self, due: Instant, now: Instant) {
        let sequence = self.store.next();
        if sequence >= self.config.packets {
            self.phase = Phase::Ending { ends: 0, due };
            return;
        }
        let (stream, payload, seed) = (self.stream, self.config.payload, self.config.seed);
        let captured = now.saturating_duration_since(self.began).as_micros();
        self.store.push(|out| {
            wire::emit_media(stream, sequence, u64::try_from(captured).unwrap_or(u64::MAX), out);
            out.resize(payload, 0);
            // The n-th packet's content is the same whatever became of those before it.
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(u64::from(sequence) + 1);
            random.fill_bytes(out.get_mut(MEDIA_HEADER_LEN..).unwrap_or_default());
        });
        self.queue(Outgoing::Media(Transmission { sequence, attempt: 0 }));
        let behind = now.saturating_duration_since(due);
        let pause = if behind > MAX_BEHIND { behind } else { Duration::ZERO };
        self.phase = Phase::Talking { due: due + pause + self.config.interval };
    }

    fn finish(&mut self, acknowledged: bool, now: Instant) {
        self.phase = Phase::Finished { at: now, acknowledged };
        if let Some(sidekick) = &mut self.sidekick {
            sidekick.stop();
        }
    }

    fn queue(&mut self, outgoing: Outgoing) {
        if self.outgoing.len() < MAX_WAITING {
            self.outgoing.push_back(outgoing);
        }
    }

    /// A datagram that came from the listener's address.
    ///
    /// # Errors
    /// [`HandleError`] says why it changed nothing. None of them needs an action.
    pub fn handle(&mut self, datagram: &[u8], now: Instant) -> Result<(), HandleError> {
        let datagram = Datagram::parse(datagram)?;
        if datagram.stream != self.stream {
            return Err(HandleError::OtherStream);
        }
        match datagram.body {
            Body::Feedback { rtt_us, missing, duplicates } => {
                let rtt = Duration::from_micros(rtt_us.into()).min(MAX_RTT);
                self.listener_rtt = Some(rtt);
                self.on_nacks(missing, rtt, now);
                self.on_duplicates(duplicates);
            }
            Body::Ping { token } => self.queue(Outgoing::Pong(token)),
            Body::EndReceived => {
                if let Phase::Ending { .. } = self.phase {
                    self.finish(true, now);
                }
            }
            Body::Media { .. } | Body::Pong { .. } | Body::End { .. } => {
                return Err(HandleError::NotForTalker);
            }
        }
        Ok(())
    }

    fn on_nacks(&mut self, missing: Sequences<'_>, rtt: Duration, now: Instant) {
        for sequence in missing.iter() {
            match self.store.get(sequence) {
                None => self.packets.nacks_unknown += 1,
                // When the listener wrote this, the repetition could not have reached it.
                Some(kept) if kept.again.is_some_and(|(at, _)| now.saturating_duration_since(at) < rtt) => {
                    self.packets.nacks_ignored += 1;
                }
                Some(_) => self.send_again(sequence, Cause::Nack, now),
            }
        }
    }

    /// What the listener has twice was sent again for nothing. What was never sent again, the network has doubled.
    fn on_duplicates(&mut self, duplicates: Sequences<'_>) {
        for sequence in duplicates.iter() {
            let Some((_, cause)) = self.store.get(sequence).and_then(|kept| kept.again.take()) else {
                continue;
            };
            self.packets.spurious += 1;
            if let (Cause::Quack, Some(sidekick)) = (cause, &mut self.sidekick) {
                sidekick.on_spurious(1);
            }
        }
    }

    /// A datagram that came to the adjacent socket from the address `from`.
    ///
    /// # Errors
    /// As [`Sender::handle`]. None of them needs an action.
    pub fn handle_proxy(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        now: Instant,
    ) -> Result<(), ProxyError> {
        let Some(sidekick) = &mut self.sidekick else { return Ok(()) };
        let handled = sidekick.handle(from, datagram, now);
        self.reinject(now);
        handled
    }

    /// Sends again what was found lost before the proxy: once for each loss, so not if it was sent again since.
    fn reinject(&mut self, now: Instant) {
        let Some(sidekick) = &mut self.sidekick else { return };
        let mut lost = std::mem::take(&mut self.lost);
        sidekick.drain_lost(&mut lost);
        for transmission in lost.drain(..).filter_map(Transmission::from_tag) {
            let last = self.store.get(transmission.sequence).map(|kept| kept.attempt);
            if last == Some(transmission.attempt) {
                self.send_again(transmission.sequence, Cause::Quack, now);
            }
        }
        self.lost = lost;
    }

    fn send_again(&mut self, sequence: u32, cause: Cause, now: Instant) {
        if self.outgoing.len() >= MAX_WAITING {
            return;
        }
        let Some(kept) = self.store.get(sequence) else { return };
        let Some(attempt) = kept.attempt.checked_add(1) else { return };
        kept.attempt = attempt;
        kept.again = Some((now, cause));
        match cause {
            Cause::Nack => self.packets.retransmitted_nack += 1,
            Cause::Quack => self.packets.retransmitted_quack += 1,
        }
        self.queue(Outgoing::Media(Transmission { sequence, attempt }));
    }

    /// Writes the next datagram for the listener over what is in `out`; send it at once, `now`. False if there is none.
    pub fn transmit(&mut self, out: &mut Vec<u8>, now: Instant) -> bool {
        while let Some(outgoing) = self.outgoing.pop_front() {
            let mut tag = 0;
            match outgoing {
                Outgoing::Pong(token) => wire::emit_pong(self.stream, token, out),
                Outgoing::End => wire::emit_end(self.stream, self.store.next(), out),
                Outgoing::Media(transmission) => {
                    // A packet that gave way since it was queued is too old for anyone.
                    let Some(kept) = self.store.get(transmission.sequence) else { continue };
                    out.clone_from(&kept.datagram);
                    tag = transmission.tag();
                    self.packets.sent += 1;
                    self.bytes += u64::try_from(out.len()).unwrap_or(0);
                }
            }
            // The same ciphertext once more is one more packet to the proxy, and the others are too short to count there.
            if let Some(sidekick) = &mut self.sidekick {
                sidekick.on_sent(tag, Payload::whole(out), now);
            }
            return true;
        }
        false
    }

    /// Writes the next datagram for the proxy to `out`, at least [`sidekick_protocol::MAX_DATAGRAM_LEN`] bytes, and gives
    /// its length and where to send it from the adjacent socket.
    pub fn transmit_to_proxy(&mut self, out: &mut [u8]) -> Option<(SocketAddr, usize)> {
        match self.sidekick.as_mut()?.transmit(out)? {
            (Target::Proxy(proxy), len) => Some((proxy, len)),
            // The proxy's address is known: nothing has to go along the path to find it.
            (Target::Path, _) => None,
        }
    }

    /// What was done until `now`.
    #[must_use]
    pub fn report(&self, now: Instant) -> TalkerReport {
        let (end, acknowledged) = match self.phase {
            Phase::Finished { at, acknowledged } => (at, acknowledged),
            Phase::Talking { .. } | Phase::Ending { .. } => (now, false),
        };
        let sidekick = self.sidekick.as_ref();
        let stats = sidekick.map(Sender::stats).unwrap_or_default();
        let ms = |rtt: Duration| rtt.as_secs_f64() * 1000.0;
        TalkerReport {
            mode: if sidekick.is_some() { "reinject" } else { "off" }.to_owned(),
            time_s: end.saturating_duration_since(self.began).as_secs_f64(),
            bytes: self.bytes,
            acknowledged,
            assisted: sidekick.is_some_and(|sidekick| sidekick.assistance() == Assistance::Assisted),
            assistance: sidekick.map_or_else(|| "off".to_owned(), |s| s.assistance().to_string()),
            packets: self.packets,
            quacks: Quacks {
                received: stats.quacks_received,
                bytes: stats.quack_bytes,
                undecodable: stats.undecodable,
                epochs: stats.epochs,
                polls: stats.polls,
            },
            near_rtt_ms: sidekick.and_then(Sender::near_rtt).map(ms),
            rtt_ms: self.listener_rtt.map(ms),
        }
    }
}

#[cfg(test)]
mod tests;
