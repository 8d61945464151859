//! The receiving end: plays packets in their order, and asks for those that are missing.

mod config;
mod dejitter;
mod numbers;
mod reception;
mod repeats;

use crate::error::{ConfigError, HandleError};
use crate::ntp::{NtpClock, RoundTrip, middle};
use crate::quality::{self, Quality};
use crate::report::{ListenerPackets, ListenerReport, Nacks};
use crate::rtcp::{self, MAX_NAMED, Said};
use crate::rtp::{self, Header};
use crate::session::{Encoding, Session};
use crate::srtp::{Protector, Refused, Unprotector, is_rtcp, rtcp_source};
pub use config::ListenerConfig;
pub use dejitter::Frame;
use dejitter::{Arrival, Dejitter};
use hdrhistogram::Histogram;
use numbers::{LOOKBACK, Numbers};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use reception::Statistics;
use repeats::Repeats;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long the goodbye is answered after it was last said.
const LINGER: Duration = Duration::from_millis(500);
/// From one report to the next, and while the round trip is not known.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
const FIRST_REPORT_INTERVAL: Duration = Duration::from_millis(250);
/// More waiting datagrams than this are dropped, the oldest first; each is repeated when it is
/// needed.
const MAX_WAITING: usize = 128;

/// What came of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// It is of the call, and was not there before: the talker is where it came from.
    New,
    /// It was there before, to the byte. Anyone on the way can send it again, so it tells nothing
    /// about the talker.
    Repeated,
}

/// A talker, once a packet of its media has come.
#[derive(Debug)]
struct Heard {
    media: u32,
    rtx: Option<u32>,
    numbers: Numbers,
    /// The place of the stream's first packet, once it is known.
    first: Option<u32>,
    clock: NtpClock,
    report_at: Instant,
}

/// The receiving end of a stream: of the first whose packet it gets.
///
/// # Order of calls
/// Feed in datagrams with [`handle_input`](Self::handle_input), and at [`poll_timeout`](Self::poll_timeout)
/// call [`on_timeout`](Self::on_timeout). After both send what [`poll_transmit`](Self::poll_transmit) gives
/// until it has no more, to where the last datagram came from that `handle` called
/// [`Handled::New`], and play what [`next_frame`](Self::next_frame) gives; until
/// [`is_finished`](Self::is_finished).
#[derive(Debug)]
pub struct Listener {
    config: ListenerConfig,
    session: Session,
    ssrc: u32,
    protector: Protector,
    unprotector: Unprotector,
    heard: Option<Heard>,
    dejitter: Dejitter,
    statistics: Statistics,
    repeats: Repeats,
    rtt: RoundTrip,
    last_heard: Option<Instant>,
    /// When the end was last said, once it was confirmed.
    ended: Option<Instant>,
    finished: bool,
    outgoing: VecDeque<Vec<u8>>,
    packets: ListenerPackets,
    nacks: Nacks,
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
            unprotector: Unprotector::new(&session.key)?,
            session,
            heard: None,
            dejitter: Dejitter::new(config.playout_limit, config.plays).map_err(histogram)?,
            statistics: Statistics::new().map_err(histogram)?,
            repeats: Repeats::new(),
            rtt: RoundTrip::new(config.initial_rtt),
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
    pub fn handle_input(&mut self, datagram: &[u8], now: Instant) -> Result<Handled, HandleError> {
        let handled = if is_rtcp(datagram) {
            self.on_rtcp(datagram, now)
        } else {
            self.on_rtp(datagram, now)
        };
        match &handled {
            Ok(Handled::New) => self.last_heard = Some(now),
            Ok(Handled::Repeated) => {}
            Err(error) => {
                self.packets.rejected += 1;
                self.packets.forged +=
                    u64::from(matches!(error, HandleError::Refused(Refused::Forged)));
            }
        }
        self.on_timeout(now);
        handled
    }

    fn on_rtp(&mut self, datagram: &[u8], now: Instant) -> Result<Handled, HandleError> {
        let header = rtp::header(datagram).ok_or(Refused::Malformed)?;
        let again = Some(header.payload_type) == self.session.rtx_payload_type;
        let known = match (&self.heard, again) {
            (Some(heard), true) => {
                heard.rtx.is_none_or(|rtx| rtx == header.ssrc) && header.ssrc != heard.media
            }
            (Some(heard), false) => heard.media == header.ssrc,
            // Only a packet sent for the first time begins a stream.
            (None, again) => !again,
        };
        if !known || !(again || header.payload_type == self.session.payload_type) {
            return Err(HandleError::OtherStream);
        }
        let packet = match self.unprotector.rtp(datagram, header.ssrc) {
            Ok(packet) => packet,
            Err(refused) => return self.on_refused(datagram, &header, refused),
        };
        let (_, content) = rtp::parse(&packet).ok_or(Refused::Malformed)?;
        let (sequence, content) = if again {
            rtp::original(content).ok_or(Refused::Malformed)?
        } else {
            (header.sequence, content)
        };
        self.repeats.note(datagram, header.ssrc, header.sequence, sequence);
        self.on_media(&Header { sequence, ..header }, content, again, now)
    }

    /// What the replay protection keeps out may be what was sent again for nothing, to the last
    /// byte.
    fn on_refused(
        &mut self,
        datagram: &[u8],
        header: &Header,
        refused: Refused,
    ) -> Result<Handled, HandleError> {
        let original = self.repeats.original(datagram, header.ssrc, header.sequence);
        match original {
            Some(original) if refused == Refused::Forged => {
                self.packets.received += 1;
                self.packets.replayed += 1;
                self.on_duplicate(original);
                Ok(Handled::Repeated)
            }
            _ => Err(refused.into()),
        }
    }

    fn on_duplicate(&mut self, sequence: u16) {
        self.packets.duplicates += 1;
        // What others repeat draws no more answers than there are packets, and moves a talker to no
        // more doubt.
        if let Some(heard) = &self.heard
            && self.repeats.tell(sequence)
        {
            let media = heard.media;
            self.say(&rtcp::duplicate(self.ssrc, media, sequence));
        }
    }

    fn on_media(
        &mut self,
        header: &Header,
        content: &[u8],
        again: bool,
        now: Instant,
    ) -> Result<Handled, HandleError> {
        let heard = self.heard.get_or_insert_with(|| {
            // A talker's own SSRC is not taken.
            self.ssrc = if self.ssrc == header.ssrc { !self.ssrc } else { self.ssrc };
            self.unprotector.refuse_own(self.ssrc);
            let place =
                if header.marker || self.session.rtx_payload_type.is_none() { 0 } else { LOOKBACK };
            self.dejitter.begins_by(place);
            Heard {
                media: header.ssrc,
                rtx: None,
                numbers: Numbers::new(header.sequence, place),
                first: None,
                clock: NtpClock::new(now),
                report_at: now,
            }
        });
        if again {
            heard.rtx = Some(header.ssrc);
        }
        let place = heard.numbers.place(header.sequence).ok_or(HandleError::Unbelievable)?;
        if header.marker && heard.first.is_none() && place <= LOOKBACK {
            heard.first = Some(place);
            self.dejitter.begins_at(place, now);
        }
        match self.dejitter.arrive(place, content, now) {
            Arrival::Unbelievable => return Err(HandleError::Unbelievable),
            Arrival::Taken => {
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
        if let Some(heard) = &mut self.heard {
            heard.numbers.saw(place);
        }
        self.packets.received += 1;
        Ok(Handled::New)
    }

    fn on_rtcp(&mut self, datagram: &[u8], now: Instant) -> Result<Handled, HandleError> {
        let packet = self.unprotector.rtcp(datagram)?;
        let (source, said) = (rtcp_source(&packet), rtcp::parse(&packet)?);
        let mut packets = None;
        for said in said {
            let Some(heard) = &mut self.heard else { return Err(HandleError::OtherStream) };
            match said {
                Said::Sender { ssrc, ntp, packets: sent } if ssrc == heard.media => {
                    packets = Some(sent);
                    self.statistics.sender_report = Some((middle(ntp), now));
                }
                Said::Held(held) if held.ssrc == self.ssrc => {
                    if let Some(trip) = heard.clock.round_trip(held.last, held.delay, now) {
                        self.rtt.sample(trip);
                    }
                }
                // Nobody else ends it.
                Said::Bye { ssrc } if ssrc == heard.media && source == Some(ssrc) => {
                    self.on_bye(packets, now);
                }
                _ => {}
            }
        }
        Ok(Handled::New)
    }

    /// The talker has sent so many packets, if it said so and their first is known, and leaves. A
    /// count that cannot be is none: the stream ends with the last packet that is known of.
    fn on_bye(&mut self, packets: Option<u32>, now: Instant) {
        let first = self.heard.as_ref().and_then(|heard| heard.first);
        let total = first.zip(packets).and_then(|(first, packets)| first.checked_add(packets));
        if !total.is_some_and(|total| self.dejitter.ends(total, now)) {
            self.dejitter.ends(self.dejitter.end, now);
        }
        if self.dejitter.is_complete() {
            self.confirm(now);
        }
    }

    /// The stream is complete: says so as often as the talker says its end.
    fn confirm(&mut self, now: Instant) {
        self.ended = Some(now);
        self.report_reception(true, now);
    }

    fn report_reception(&mut self, leaves: bool, now: Instant) {
        let Some(heard) = &self.heard else { return };
        let first = heard.first.unwrap_or(heard.numbers.place);
        let expected = heard.numbers.highest.saturating_sub(first).saturating_add(1);
        let reception =
            self.statistics.reception(heard.media, expected.into(), heard.numbers.extended(), now);
        let ntp = heard.clock.at(now);
        self.say(&rtcp::receiver_report(self.ssrc, &reception, ntp, leaves));
    }

    fn say(&mut self, packet: &[u8]) {
        let Some(datagram) = self.protector.rtcp(packet) else { return };
        if self.outgoing.len() >= MAX_WAITING {
            self.outgoing.pop_front();
        }
        self.outgoing.push_back(datagram);
    }

    /// When [`Listener::on_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.finished {
            return None;
        }
        if let Some(ended) = self.ended {
            return Some(ended + LINGER);
        }
        let idle = self.last_heard.map(|heard| heard + self.config.idle_timeout);
        let report = self.heard.as_ref().map(|heard| heard.report_at);
        [self.dejitter.deadline(), self.dejitter.nack_at(), report, idle]
            .into_iter()
            .flatten()
            .min()
    }

    /// Leaves the call before its end: says goodbye, once. Send what [`Listener::poll_transmit`] gives.
    pub fn stop(&mut self, now: Instant) {
        if !self.finished && self.ended.is_none() {
            self.report_reception(true, now);
            self.finished = true;
        }
    }

    /// Does what is due at `now`.
    pub fn on_timeout(&mut self, now: Instant) {
        if self.finished {
            return;
        }
        if let Some(ended) = self.ended {
            self.finished = ended + LINGER <= now;
            return;
        }
        self.dejitter.on_timeout(now);
        if self.dejitter.is_complete() {
            self.confirm(now);
            return;
        }
        if self.last_heard.is_some_and(|heard| heard + self.config.idle_timeout <= now) {
            self.finished = true;
            return;
        }
        let Some(heard) = &mut self.heard else { return };
        if heard.report_at <= now {
            let known = self.rtt.smoothed.is_some();
            heard.report_at = now + if known { REPORT_INTERVAL } else { FIRST_REPORT_INTERVAL };
            self.report_reception(false, now);
        }
        self.ask(now);
    }

    /// Asks for every missing packet that was not asked for within the last round trip.
    fn ask(&mut self, now: Instant) {
        let Some(heard) = &self.heard else { return };
        let (media, numbers) = (heard.media, heard.numbers);
        let due = self.dejitter.take_due(now, now + self.rtt.patience());
        let due: Vec<_> = due.into_iter().map(|place| numbers.sequence_of(place)).collect();
        for named in due.chunks(MAX_NAMED) {
            self.nacks.datagrams += 1;
            self.nacks.packets += u64::try_from(named.len()).unwrap_or(0);
            self.say(&rtcp::nack(self.ssrc, media, named));
        }
    }

    /// Writes the next datagram for the talker over what is in `out`. False if there is none.
    pub fn poll_transmit(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(datagram) = self.outgoing.pop_front() else { return false };
        *out = datagram;
        true
    }

    /// What is to be played next, if it is there and [`ListenerConfig::plays`] asks for it.
    pub fn next_frame(&mut self) -> Option<Frame> {
        self.dejitter.frames.pop_front()
    }

    /// Whether the stream is over: the talker has stopped to say its end, or was not heard for a
    /// long time.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// How long packets waited for those before them, in microseconds: the de-jitter latencies of
    /// the packets played.
    #[must_use]
    pub fn waits(&self) -> &Histogram<u64> {
        &self.dejitter.waits_us
    }

    /// Packets played in their order so far.
    #[must_use]
    pub fn played(&self) -> u64 {
        self.dejitter.played
    }

    /// What was heard so far. It goes through the whole call: not for every packet.
    #[must_use]
    pub fn report(&self) -> ListenerReport {
        ListenerReport {
            complete: self.dejitter.is_complete(),
            played: self.dejitter.played,
            late: self.dejitter.late,
            dejitter_ms: self.dejitter.latency(),
            packets: self.packets,
            nacks: self.nacks,
            rtt_ms: self.rtt.smoothed.map(|rtt| rtt.as_secs_f64() * 1000.0),
            quality: self.quality(),
            concealed: None,
            socket_errors: 0,
        }
    }

    /// Nobody can hear random bytes.
    fn quality(&self) -> Option<Quality> {
        if self.session.encoding == Encoding::Random {
            return None;
        }
        quality::best(&self.statistics.lateness_us, self.dejitter.late, self.rtt.smoothed?)
    }
}

#[cfg(test)]
mod tests;
