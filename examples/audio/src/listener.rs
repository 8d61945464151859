//! The receiving end: plays packets in order, and requests those that are missing.

mod dejitter;
mod numbers;
mod parity;
mod reception;

use crate::end::{ConfigError, End, Handled, MAX_PLAYOUT_LIMIT, Refused, to_proxy};
use crate::ntp::{Reference, RoundTrip};
use crate::quality::{self, Quality};
use crate::report::{ListenerPackets, ListenerReport, Nacks, Percentiles};
use crate::rtcp::{self, Item, MAX_NAMED};
use crate::rtp::{self, Header};
use crate::session::{Encoding, Session};
use crate::srtp::{Protector, Unprotector, is_rtcp, rtcp_source};
pub use dejitter::Frame;
use dejitter::{Arrival, Dejitter};
use hdrhistogram::Histogram;
use numbers::{LOOKBACK, Numbers, Repeats};
use parity::Parity;
pub use parity::{Protected, sender_config};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use reception::Statistics;
use sidekick_protocol::Flow;
use sidekick_protocol::sender::HandleError as ProxyError;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long a listener answers a BYE after the last one.
const LINGER: Duration = Duration::from_millis(500);
/// The interval between reports, and the one before the round-trip time is measured.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
const FIRST_REPORT_INTERVAL: Duration = Duration::from_millis(250);
/// The most datagrams that wait to be sent. Beyond them the oldest is dropped; each kind is
/// repeated while it is needed.
const MAX_WAITING: usize = 128;

/// A listener's limits, and whether it plays.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// How long a missing packet delays later ones before it is skipped, 1 ms to 60 s. The default
    /// is 1 s.
    pub playout_limit: Duration,
    /// The silence after which the stream is over. The default is 10 s.
    pub idle_timeout: Duration,
    /// Whether the caller plays what [`crate::Listener::next_frame`] returns. Otherwise contents
    /// are dropped. The default is false.
    pub plays: bool,
    /// Determines the SSRC. Must be random, except in a simulation that repeats itself.
    pub identity: [u8; 32],
    /// Parity from a proxy near the listener. The default is none.
    pub protected: Option<Protected>,
}

impl Default for ListenerConfig {
    fn default() -> Self {
        Self {
            playout_limit: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(10),
            plays: false,
            identity: [1; 32],
            protected: None,
        }
    }
}

impl ListenerConfig {
    fn check(&self) -> Result<(), ConfigError> {
        let range = Duration::from_millis(1)..=MAX_PLAYOUT_LIMIT;
        if !range.contains(&self.playout_limit) {
            return Err(ConfigError::PlayoutLimit);
        }
        let wrong = |protected: &Protected| !(protected.share > 0.0 && protected.share <= 1.0);
        if self.protected.as_ref().is_some_and(wrong) {
            return Err(ConfigError::Share);
        }
        Ok(())
    }
}

/// A talker's stream, once a packet of its media arrived.
#[derive(Debug)]
struct Stream {
    media: u32,
    rtx: Option<u32>,
    numbers: Numbers,
    /// The place of the stream's first packet, once known.
    first: Option<u32>,
    report_at: Instant,
}

/// The receiving end of a stream: of the first whose packet arrives.
#[derive(Debug)]
pub struct Listener {
    config: ListenerConfig,
    session: Session,
    ssrc: u32,
    protector: Protector,
    unprotector: Unprotector,
    stream: Option<Stream>,
    dejitter: Dejitter,
    statistics: Statistics,
    repeats: Repeats,
    rtt: RoundTrip,
    last_received: Option<Instant>,
    /// When the listener last confirmed the end.
    ended: Option<Instant>,
    finished: bool,
    outgoing: VecDeque<Vec<u8>>,
    packets: ListenerPackets,
    nacks: Nacks,
    parity: Option<Parity>,
    /// A rebuilt datagram.
    rebuilt: Vec<u8>,
}

impl Listener {
    /// A listener that waits for a stream of this session.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting that is out of range.
    pub fn new(config: ListenerConfig, session: Session) -> Result<Self, ConfigError> {
        config.check()?;
        let histogram = |_| ConfigError::PlayoutLimit;
        Ok(Self {
            ssrc: ChaCha8Rng::from_seed(config.identity).next_u32(),
            protector: Protector::new(&session)?,
            unprotector: Unprotector::new(&session.key),
            session,
            stream: None,
            dejitter: Dejitter::new(config.playout_limit, config.plays).map_err(histogram)?,
            statistics: Statistics::new().map_err(histogram)?,
            repeats: Repeats::new(),
            rtt: RoundTrip::default(),
            last_received: None,
            ended: None,
            finished: false,
            outgoing: VecDeque::new(),
            packets: ListenerPackets::default(),
            nacks: Nacks::default(),
            parity: config.protected.clone().map(Parity::new),
            rebuilt: Vec::new(),
            config,
        })
    }

    /// Handles what parity rebuilt as if it had arrived.
    fn take_rebuilt(&mut self, now: Instant) {
        let mut rebuilt = std::mem::take(&mut self.rebuilt);
        while self.parity.as_mut().is_some_and(|parity| parity.next_rebuilt(&mut rebuilt, now)) {
            // The handler counts an unusable datagram.
            let _ = self.take(&rebuilt, now);
        }
        self.rebuilt = rebuilt;
    }

    /// Handles a datagram that arrived or was rebuilt.
    fn take(&mut self, datagram: &[u8], now: Instant) -> Result<Handled, Refused> {
        let patience = self.parity.as_ref().map(|parity| parity.patience(now));
        self.dejitter.patience = patience.unwrap_or_default();
        // Each missing packet needs a repair symbol. With many, a NACK is sooner.
        self.dejitter.most_patience = self.rtt.current();
        let known = self.dejitter.end;
        let handled = if is_rtcp(datagram) {
            self.on_rtcp(datagram, now)
        } else {
            self.on_rtp(datagram, now)
        };
        match &handled {
            Ok(Handled::New) => self.last_received = Some(now),
            Ok(Handled::Repeated | Handled::Proxy) => {}
            Err(error) => {
                self.packets.rejected += 1;
                self.packets.forged += u64::from(*error == Refused::Forged);
            }
        }
        // A refused datagram may come from anyone. If it passed no proxy, no list names it. Then no
        // list would show which packets are missing after it.
        if let (Some(parity), Ok(Handled::New)) = (&mut self.parity, &handled) {
            parity.note(datagram, known..self.dejitter.end, now);
        }
        handled
    }

    fn on_rtp(&mut self, datagram: &[u8], now: Instant) -> Result<Handled, Refused> {
        let header = rtp::header(datagram).ok_or(Refused::Malformed)?;
        let again = Some(header.payload_type) == self.session.rtx_payload_type;
        let known = match (&self.stream, again) {
            (Some(stream), true) => {
                stream.rtx.is_none_or(|rtx| rtx == header.ssrc) && header.ssrc != stream.media
            }
            (Some(stream), false) => stream.media == header.ssrc,
            // No retransmission begins a stream.
            (None, again) => !again,
        };
        if !known || !(again || header.payload_type == self.session.payload_type) {
            return Err(Refused::OtherStream);
        }
        let packet = match self.unprotector.rtp(datagram, header.ssrc) {
            Ok(packet) => packet,
            Err(refused) => return self.on_refused(datagram, &header, refused),
        };
        let content = rtp::content(&packet).ok_or(Refused::Malformed)?;
        let (sequence, content) = if again {
            rtp::original(content).ok_or(Refused::Malformed)?
        } else {
            (header.sequence, content)
        };
        self.repeats.note(datagram, header.ssrc, header.sequence, sequence);
        self.on_media(&Header { sequence, ..header }, content, again, now)
    }

    /// Handles a packet that the replay protection rejects. It may be a spurious retransmission,
    /// byte for byte.
    fn on_refused(
        &mut self,
        datagram: &[u8],
        header: &Header,
        refused: Refused,
    ) -> Result<Handled, Refused> {
        let original = self.repeats.original(datagram, header.ssrc, header.sequence);
        match original {
            Some(original) if refused == Refused::Forged => {
                self.packets.received += 1;
                self.packets.replayed += 1;
                self.on_duplicate(original);
                Ok(Handled::Repeated)
            }
            _ => Err(refused),
        }
    }

    fn on_duplicate(&mut self, sequence: u16) {
        self.packets.duplicates += 1;
        // Anyone can repeat a packet. The listener reports it once, so that it cannot be made to
        // send more, or to discredit the talker's proxy.
        if let Some(stream) = &self.stream
            && self.repeats.record_report(sequence)
        {
            let media = stream.media;
            self.queue(&rtcp::duplicate(self.ssrc, media, sequence));
        }
    }

    fn on_media(
        &mut self,
        header: &Header,
        content: &[u8],
        again: bool,
        now: Instant,
    ) -> Result<Handled, Refused> {
        let stream = self.stream.get_or_insert_with(|| {
            // The SSRC must differ from the talker's.
            self.ssrc = if self.ssrc == header.ssrc { !self.ssrc } else { self.ssrc };
            self.unprotector.refuse_own(self.ssrc);
            let place =
                if header.marker || self.session.rtx_payload_type.is_none() { 0 } else { LOOKBACK };
            self.dejitter.certain_from = place;
            Stream {
                media: header.ssrc,
                rtx: None,
                numbers: Numbers::new(header.sequence, place),
                first: None,
                report_at: now,
            }
        });
        if again {
            stream.rtx = Some(header.ssrc);
        }
        let place = stream.numbers.place(header.sequence).ok_or(Refused::Implausible)?;
        if header.marker && stream.first.is_none() && place <= LOOKBACK {
            stream.first = Some(place);
            self.dejitter.begins_at(place, now);
        }
        match self.dejitter.arrive(place, content, now) {
            Arrival::Implausible => return Err(Refused::Implausible),
            Arrival::Accepted => {
                self.repeats.begins(header.sequence);
                self.statistics.arrived(header.timestamp, true, now);
            }
            Arrival::TooLate => {
                self.packets.too_late += 1;
                self.repeats.begins(header.sequence);
                self.statistics.arrived(header.timestamp, false, now);
            }
            Arrival::Duplicate => self.on_duplicate(header.sequence),
        }
        if let Some(stream) = &mut self.stream {
            stream.numbers.record(place);
        }
        self.packets.received += 1;
        Ok(Handled::New)
    }

    fn on_rtcp(&mut self, datagram: &[u8], now: Instant) -> Result<Handled, Refused> {
        let packet = self.unprotector.rtcp(datagram)?;
        let (source, items) = (rtcp_source(&packet), rtcp::parse(&packet)?);
        let mut packets = None;
        for item in items {
            let Some(stream) = &self.stream else { return Err(Refused::OtherStream) };
            match item {
                Item::Clock { ssrc, ntp } if ssrc == stream.media => {
                    self.statistics.sender_report = Some(Reference::new(ssrc, ntp, now));
                }
                Item::Sent { ssrc, packets: sent } if ssrc == stream.media => packets = Some(sent),
                Item::Echo(echo) if echo.ssrc == self.ssrc => self.rtt.measure(&echo, now),
                // Only the talker ends its stream.
                Item::Bye { ssrc } if ssrc == stream.media && source == Some(ssrc) => {
                    self.on_bye(packets, now);
                }
                _ => {}
            }
        }
        Ok(Handled::New)
    }

    /// Handles the talker's BYE. If the number of packets is unknown or impossible, the stream ends
    /// with the last packet that is known.
    fn on_bye(&mut self, packets: Option<u32>, now: Instant) {
        let first = self.stream.as_ref().and_then(|stream| stream.first);
        let total = first.zip(packets).and_then(|(first, packets)| first.checked_add(packets));
        if !total.is_some_and(|total| self.dejitter.ends(total, now)) {
            self.dejitter.ends(self.dejitter.end, now);
        }
        if self.dejitter.is_complete() {
            self.confirm(now);
        }
    }

    /// Confirms that the stream is complete, once for each BYE.
    fn confirm(&mut self, now: Instant) {
        self.ended = Some(now);
        self.report_reception(true, now);
    }

    fn report_reception(&mut self, leaves: bool, now: Instant) {
        let Some(stream) = &self.stream else { return };
        let first = stream.first.unwrap_or(stream.numbers.place);
        let expected = stream.numbers.highest.saturating_sub(first).saturating_add(1);
        let reception = self.statistics.reception(
            stream.media,
            expected.into(),
            stream.numbers.extended(),
            now,
        );
        let clock = (!leaves).then(|| self.rtt.timestamp(now));
        self.queue(&rtcp::receiver_report(self.ssrc, reception, clock));
    }

    fn queue(&mut self, packet: &[u8]) {
        let Some(datagram) = self.protector.rtcp(packet) else { return };
        if self.outgoing.len() >= MAX_WAITING {
            self.outgoing.pop_front();
        }
        self.outgoing.push_back(datagram);
    }

    fn finish(&mut self) {
        self.finished = true;
        if let Some(parity) = &mut self.parity {
            parity.sender.stop();
        }
    }

    /// Requests each missing packet that it did not request within the last round trip.
    fn request_missing(&mut self, now: Instant) {
        let Some(stream) = &self.stream else { return };
        let (media, numbers) = (stream.media, stream.numbers);
        let due = self.dejitter.take_due(now, now + self.rtt.patience());
        let due: Vec<_> = due.into_iter().map(|place| numbers.sequence_of(place)).collect();
        for named in due.chunks(MAX_NAMED) {
            self.nacks.datagrams += 1;
            self.nacks.packets += u64::try_from(named.len()).unwrap_or(0);
            self.queue(&rtcp::nack(self.ssrc, media, named));
        }
    }

    /// The next frame to play, if there is one, and [`ListenerConfig::plays`] is set.
    pub fn next_frame(&mut self) -> Option<Frame> {
        self.dejitter.frames.pop_front()
    }

    /// The de-jitter delays of the packets played, in microseconds.
    #[must_use]
    pub fn waits(&self) -> &Histogram<u64> {
        &self.dejitter.waits_us
    }

    /// The report so far. It takes time in proportion to the call.
    #[must_use]
    pub fn report(&self) -> ListenerReport {
        ListenerReport {
            complete: self.dejitter.is_complete(),
            played: self.dejitter.played,
            late: self.dejitter.late,
            dejitter_ms: Percentiles::of(self.waits()),
            packets: self.packets,
            nacks: self.nacks,
            rtt_ms: self.rtt.smoothed_ms(),
            quality: self.quality(),
            concealed: None,
            parity: self.parity.as_ref().map(Parity::report),
            socket_errors: 0,
        }
    }

    /// The estimated quality; `None` for random bytes.
    fn quality(&self) -> Option<Quality> {
        if self.session.encoding == Encoding::Random {
            return None;
        }
        quality::best(&self.statistics.lateness_us, self.dejitter.late, self.rtt.smoothed?)
    }
}

impl End for Listener {
    fn handle_input(&mut self, datagram: &[u8], now: Instant) -> Result<Handled, Refused> {
        if let Some(parity) = &mut self.parity {
            if parity.takes_answer(datagram, now) {
                return Ok(Handled::Proxy);
            }
            parity.on_arrival(datagram, now);
        }
        let handled = self.take(datagram, now);
        self.take_rebuilt(now);
        self.on_timeout(now);
        handled
    }

    fn follow(&mut self, flow: Flow, now: Instant) {
        if let Some(parity) = self.parity.as_mut().filter(|_| !self.finished) {
            parity.follow(flow, now);
        }
    }

    fn handle_proxy(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        now: Instant,
    ) -> Result<(), ProxyError> {
        let Some(parity) = &mut self.parity else { return Ok(()) };
        let handled = parity.handle_proxy(from, datagram, now);
        self.take_rebuilt(now);
        while let Some(places) = self.parity.as_mut().and_then(|parity| parity.next_hopeless(now)) {
            self.dejitter.hurry(places, now);
        }
        self.on_timeout(now);
        handled
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if self.finished {
            return None;
        }
        if let Some(ended) = self.ended {
            return Some(ended + LINGER);
        }
        let idle = self.last_received.map(|at| at + self.config.idle_timeout);
        let report = self.stream.as_ref().map(|stream| stream.report_at);
        let parity = self.parity.as_ref().and_then(|parity| parity.sender.poll_timeout());
        [self.dejitter.deadline(), self.dejitter.nack_at(), report, idle, parity]
            .into_iter()
            .flatten()
            .min()
    }

    fn stop(&mut self, now: Instant) {
        if !self.finished && self.ended.is_none() {
            self.report_reception(true, now);
        }
        self.finish();
    }

    fn on_timeout(&mut self, now: Instant) {
        if self.finished {
            return;
        }
        if let Some(ended) = self.ended {
            if ended + LINGER <= now {
                self.finish();
            }
            return;
        }
        if let Some(parity) = &mut self.parity {
            parity.on_timeout(now);
        }
        self.dejitter.on_timeout(now);
        if self.dejitter.is_complete() {
            self.confirm(now);
            return;
        }
        if self.last_received.is_some_and(|at| at + self.config.idle_timeout <= now) {
            self.finish();
            return;
        }
        let Some(stream) = &mut self.stream else { return };
        if stream.report_at <= now {
            let known = self.rtt.smoothed.is_some();
            stream.report_at = now + if known { REPORT_INTERVAL } else { FIRST_REPORT_INTERVAL };
            self.report_reception(false, now);
        }
        self.request_missing(now);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>, now: Instant) -> bool {
        let Some(datagram) = self.outgoing.pop_front() else { return false };
        *out = datagram;
        if let Some(parity) = &mut self.parity {
            parity.on_sent(out, now);
        }
        true
    }

    fn transmit_to_proxy(&mut self, out: &mut [u8]) -> Option<(SocketAddr, usize)> {
        to_proxy(&mut self.parity.as_mut()?.sender, out)
    }

    fn played(&self) -> u64 {
        self.dejitter.played
    }

    fn is_finished(&self) -> bool {
        self.finished
    }
}

#[cfg(test)]
mod tests;
