//! The sending end: a packet per interval, and retransmissions.

mod config;
mod store;

use crate::end::{ConfigError, End, Handled, Refused, to_proxy};
use crate::ntp::{Reference, RoundTrip, low16, low32, ticks};
use crate::report::{Ending, Quacks, TalkerPackets, TalkerReport};
use crate::rtcp::{self, Item};
use crate::rtp::{self, Header};
use crate::session::Sources;
use crate::srtp::{Protector, Unprotector, is_rtcp, rtcp_source};
use config::Identity;
pub use config::{MAX_PAYLOAD, MIN_PAYLOAD, Reinject, TalkerConfig, sender_config};
use rtcp_types::SenderReport;
use sidekick_protocol::sender::HandleError as ProxyError;
use sidekick_protocol::{Assistance, Flow, Payload, Sender};
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use store::{Cause, Store, Transmission};

/// How long a packet is kept for retransmission: longer than a listener waits for it.
const KEEP: Duration = Duration::from_secs(3);
/// After a longer delay, the talker shifts its schedule. It does not send the missed packets all at
/// once.
const MAX_BEHIND: Duration = Duration::from_millis(500);
/// The interval between reports. The talker answers a listener's clock at once, but reports at most
/// once per [`MIN_REPORT_INTERVAL`].
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
const MIN_REPORT_INTERVAL: Duration = Duration::from_millis(100);
/// The silence after which a listener is gone, once it has sent something.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval between BYEs.
const END_INTERVAL: Duration = Duration::from_millis(100);
/// The most BYEs without a confirmation.
const MAX_ENDS: u32 = 50;
/// The most datagrams that wait to be sent. The talker drops further ones, and the listener
/// requests lost media.
const MAX_WAITING: usize = 1024;

#[derive(Clone, Copy, Debug)]
enum Phase {
    Talking { due: Instant },
    Ending { ends: u32, due: Instant },
    Finished { at: Instant, how: Ending },
}

#[derive(Clone, Copy, Debug)]
enum Outgoing {
    Media(Transmission),
    Report,
    Bye,
}

/// The content of one packet after another.
struct Source(Box<dyn Iterator<Item = Vec<u8>> + Send>);

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source(..)")
    }
}

/// The sending end of a stream.
#[derive(Debug)]
pub struct Talker {
    config: TalkerConfig,
    source: Source,
    identity: Identity,
    protector: Protector,
    unprotector: Unprotector,
    began: Instant,
    phase: Phase,
    store: Store,
    next_rtx: u16,
    outgoing: VecDeque<Outgoing>,
    report_at: Instant,
    last_report: Option<Instant>,
    /// A listener's clock, until it is answered.
    reference: Option<Reference>,
    last_received: Option<Instant>,
    rtt: RoundTrip,
    sidekick: Option<Sender>,
    followed: bool,
    packets: TalkerPackets,
    octets: u64,
    bytes: u64,
}

impl Talker {
    /// A talker whose first packet is due `now`. `source` has the content of each packet,
    /// [`MIN_PAYLOAD`] to [`MAX_PAYLOAD`] bytes. The stream ends with it.
    ///
    /// # Errors
    /// [`ConfigError`] names the setting that is out of range.
    pub fn new(
        config: TalkerConfig,
        source: impl Iterator<Item = Vec<u8>> + Send + 'static,
        now: Instant,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let capacity = KEEP.as_millis() / config.interval.as_millis().max(1);
        let sidekick = config
            .reinject
            .as_ref()
            .map(|reinject| Sender::new(reinject.sender.clone(), reinject.seed));
        let identity = Identity::drawn(config.identity);
        let mut unprotector = Unprotector::new(&config.session.key);
        unprotector.refuse_own(identity.sources.media);
        unprotector.refuse_own(identity.sources.rtx);
        Ok(Self {
            source: Source(Box::new(source)),
            identity,
            protector: Protector::new(&config.session)?,
            unprotector,
            began: now,
            phase: Phase::Talking { due: now },
            store: Store::new(usize::try_from(capacity).unwrap_or(0).max(16)),
            next_rtx: identity.first_rtx,
            outgoing: VecDeque::new(),
            report_at: now,
            last_report: None,
            reference: None,
            last_received: None,
            rtt: RoundTrip::default(),
            sidekick,
            followed: false,
            packets: TalkerPackets::default(),
            octets: 0,
            bytes: 0,
            config,
        })
    }

    /// The talker's SSRCs.
    #[must_use]
    pub fn sources(&self) -> Sources {
        self.identity.sources
    }

    /// Queues the next packet, or ends the stream.
    fn talk(&mut self, due: Instant, now: Instant) {
        let index = self.store.next();
        let next = if index < self.config.packets { self.source.0.next() } else { None };
        let fits = |content: &Vec<u8>| (MIN_PAYLOAD..=MAX_PAYLOAD).contains(&content.len());
        let Some(content) = next.filter(fits) else {
            self.phase = Phase::Ending { ends: 0, due };
            return;
        };
        let header = Header {
            ssrc: self.identity.sources.media,
            payload_type: self.config.session.payload_type,
            sequence: self.sequence(index),
            timestamp: self.timestamp(index),
            marker: index == 0,
        };
        let Some(datagram) = self.protector.rtp(&rtp::packet(&header, &content)) else {
            self.phase = Phase::Ending { ends: 0, due };
            return;
        };
        self.octets += u64::try_from(content.len()).unwrap_or(0);
        self.store.push(content, header.timestamp, datagram, now);
        self.queue(Outgoing::Media(Transmission { index, attempt: 0 }));
        let behind = now.saturating_duration_since(due);
        let pause = if behind > MAX_BEHIND { behind } else { Duration::ZERO };
        self.phase = Phase::Talking { due: due + pause + self.config.interval };
    }

    fn sequence(&self, index: u32) -> u16 {
        self.identity.first.wrapping_add(low16(index))
    }

    /// The place of the latest packet with this sequence number.
    fn index(&self, sequence: u16) -> Option<u32> {
        let last = self.store.next().checked_sub(1)?;
        last.checked_sub(self.sequence(last).wrapping_sub(sequence).into())
    }

    /// A packet's RTP timestamp, which does not advance during an omitted pause.
    fn timestamp(&self, index: u32) -> u32 {
        let ticks = low32(ticks(self.config.interval));
        self.identity.first_timestamp.wrapping_add(index.wrapping_mul(ticks))
    }

    fn finish(&mut self, how: Ending, now: Instant) {
        if self.is_finished() {
            return;
        }
        self.phase = Phase::Finished { at: now, how };
        self.outgoing.clear();
        if let Some(sidekick) = &mut self.sidekick {
            sidekick.stop();
        }
    }

    fn report_if_due(&mut self, now: Instant) {
        if self.report_at <= now {
            self.report_at = now + REPORT_INTERVAL;
            self.last_report = Some(now);
            self.queue(Outgoing::Report);
        }
    }

    fn queue(&mut self, outgoing: Outgoing) {
        if self.outgoing.len() < MAX_WAITING {
            self.outgoing.push_back(outgoing);
        }
    }

    fn on_datagram(&mut self, datagram: &[u8], now: Instant) -> Result<Handled, Refused> {
        if !is_rtcp(datagram) {
            return Err(Refused::OtherStream);
        }
        let packet = self.unprotector.rtcp(datagram)?;
        let source = rtcp_source(&packet).ok_or(Refused::Malformed)?;
        let items = rtcp::parse(&packet)?;
        self.last_received = Some(now);
        for item in items {
            self.on_item(source, item, now);
        }
        Ok(Handled::New)
    }

    fn on_item(&mut self, source: u32, item: Item, now: Instant) {
        let own = self.identity.sources.media;
        match item {
            Item::Echo(echo) if echo.ssrc == own => self.rtt.measure(&echo, now),
            Item::Clock { ssrc, ntp } => {
                self.reference = Some(Reference::new(ssrc, ntp, now));
                let soonest = self.last_report.map_or(now, |last| last + MIN_REPORT_INTERVAL);
                self.report_at = self.report_at.min(soonest.max(now));
                if matches!(self.phase, Phase::Talking { .. }) {
                    self.report_if_due(now);
                }
            }
            Item::Missing { ssrc, sequences } if ssrc == own => {
                for sequence in sequences {
                    self.on_nack(sequence, now);
                }
            }
            Item::Duplicates { ssrc, sequences } if ssrc == own => {
                for sequence in sequences {
                    self.on_duplicate(sequence);
                }
            }
            // A participant can only end its own part.
            Item::Bye { ssrc } if ssrc == source => match self.phase {
                Phase::Talking { .. } => self.finish(Ending::HungUp, now),
                Phase::Ending { .. } => self.finish(Ending::Confirmed, now),
                Phase::Finished { .. } => {}
            },
            _ => {}
        }
    }

    fn on_nack(&mut self, sequence: u16, now: Instant) {
        let (rtt, due, index) = (self.rtt.current(), self.report_due(), self.index(sequence));
        let Some((index, kept)) = index.and_then(|index| Some((index, self.store.get(index)?)))
        else {
            self.packets.nacks_unknown += 1;
            return;
        };
        // The NACK may have crossed the repair. But do not wait for a re-injection that the proxy
        // should have reported by now.
        let on_its_way = kept.again.is_some_and(|(at, cause)| {
            let since = now.saturating_duration_since(at);
            let missed =
                cause == Cause::Quack && !kept.passed && due.is_some_and(|due| since > due);
            since < rtt && !missed
        });
        if on_its_way {
            self.packets.nacks_ignored += 1;
        } else {
            self.retransmit(index, now);
        }
    }

    /// How long after its transmission the proxy reports a packet, if nothing is lost. It waits for
    /// the packets that fill a quACK, or for its timer. 9/8 of the near RTT follow, as in the loss
    /// delay (SPEC.md, section 7.3).
    fn report_due(&self) -> Option<Duration> {
        let sidekick = self.sidekick.as_ref()?;
        let terms = sidekick.granted()?;
        let packets = terms.every_packets.map(|n| u32::from(n.get() - 1) * self.config.interval);
        Some(
            [packets, terms.every].into_iter().flatten().min()?
                + sidekick.near_rtt()?.mul_f64(1.125),
        )
    }

    /// Records that the listener has a packet twice: its retransmission was spurious. If there was
    /// none, the network duplicated it.
    fn on_duplicate(&mut self, sequence: u16) {
        let Some(index) = self.index(sequence) else { return };
        let Some((_, cause)) = self.store.get(index).and_then(|kept| kept.again.take()) else {
            return;
        };
        self.packets.spurious += 1;
        if let (Cause::Quack, Some(sidekick)) = (cause, &mut self.sidekick) {
            sidekick.on_spurious(1);
        }
    }

    /// Applies the proxy's reports. Re-injects the datagrams that were lost before the proxy. Skips
    /// a loss if the packet was sent again after the lost transmission.
    fn reinject(&mut self, now: Instant) {
        let Some(sidekick) = &mut self.sidekick else { return };
        let (mut passed, mut lost) = (Vec::new(), Vec::new());
        sidekick.drain_received(&mut passed);
        sidekick.drain_lost(&mut lost);
        for transmission in passed.into_iter().filter_map(Transmission::from_tag) {
            if let Some(kept) = self.store.get(transmission.index) {
                kept.passed |= kept.attempt == transmission.attempt;
            }
        }
        for transmission in lost.into_iter().filter_map(|lost| Transmission::from_tag(lost.tag)) {
            let last = self.store.get(transmission.index).map(|kept| kept.attempt);
            if last == Some(transmission.attempt)
                && self.send_again(transmission.index, Cause::Quack, now)
            {
                self.packets.retransmitted_quack += 1;
            }
        }
    }

    /// Retransmits a packet's content (RFC 4588), or the same packet if the session has no payload
    /// type for retransmissions.
    fn retransmit(&mut self, index: u32, now: Instant) {
        if !self.send_again(index, Cause::Nack, now) {
            return;
        }
        self.packets.retransmitted_nack += 1;
        let Some(payload_type) = self.config.session.rtx_payload_type else { return };
        let original = self.sequence(index);
        let Some(kept) = self.store.get(index) else { return };
        let header = Header {
            ssrc: self.identity.sources.rtx,
            payload_type,
            sequence: self.next_rtx,
            timestamp: kept.timestamp,
            marker: index == 0,
        };
        if let Some(datagram) =
            self.protector.rtp(&rtp::retransmission(&header, original, &kept.content))
        {
            kept.datagram = datagram;
            self.next_rtx = self.next_rtx.wrapping_add(1);
        }
    }

    fn send_again(&mut self, index: u32, cause: Cause, now: Instant) -> bool {
        if self.is_finished() || self.outgoing.len() >= MAX_WAITING {
            return false;
        }
        let Some(transmission) = self.store.send_again(index, cause, now) else { return false };
        self.queue(Outgoing::Media(transmission));
        true
    }

    /// A protected report, with a BYE if the talker leaves.
    fn report_packet(&mut self, leaves: bool, now: Instant) -> Option<Vec<u8>> {
        let Sources { media, rtx } = self.identity.sources;
        let since = low32(ticks(now.saturating_duration_since(self.began)));
        let report = SenderReport::builder(media)
            .ntp_timestamp(self.rtt.timestamp(now))
            .rtp_timestamp(self.identity.first_timestamp.wrapping_add(since))
            // Each packet counts once, so the BYE states their number.
            .packet_count(self.store.next())
            .octet_count(low32(self.octets));
        let answer = self.reference.take().map(|reference| reference.echo(now));
        let leaving: &[u32] = if leaves { &[media, rtx] } else { &[] };
        self.protector.rtcp(&rtcp::sender_report(media, report, answer, leaving))
    }

    /// The report until `now`.
    #[must_use]
    pub fn report(&self, now: Instant) -> TalkerReport {
        let (end, ending) = match self.phase {
            Phase::Finished { at, how } => (at, how),
            Phase::Talking { .. } | Phase::Ending { .. } => (now, Ending::Talking),
        };
        let sidekick = self.sidekick.as_ref();
        let stats = sidekick.map(Sender::stats).unwrap_or_default();
        TalkerReport {
            mode: if sidekick.is_some() { "reinject" } else { "off" }.to_owned(),
            time_s: end.saturating_duration_since(self.began).as_secs_f64(),
            bytes: self.bytes,
            acknowledged: ending == Ending::Confirmed,
            ending,
            assisted: sidekick
                .is_some_and(|sidekick| sidekick.assistance() == Assistance::Assisted),
            assistance: sidekick.map_or_else(|| "off".to_owned(), |s| s.assistance().to_string()),
            packets: self.packets,
            quacks: Quacks {
                received: stats.quacks_received,
                bytes: stats.quack_bytes,
                undecodable: stats.undecodable,
                epochs: stats.epochs,
                polls: stats.polls,
            },
            near_rtt_ms: sidekick.and_then(Sender::near_rtt).map(|rtt| rtt.as_secs_f64() * 1000.0),
            rtt_ms: self.rtt.smoothed_ms(),
            socket_errors: 0,
        }
    }
}

impl End for Talker {
    fn handle_input(&mut self, datagram: &[u8], now: Instant) -> Result<Handled, Refused> {
        let handled = self.on_datagram(datagram, now);
        self.packets.rejected += u64::from(handled.is_err());
        handled
    }

    fn follow(&mut self, flow: Flow, now: Instant) {
        if let Some(sidekick) = &mut self.sidekick
            && !std::mem::replace(&mut self.followed, true)
        {
            sidekick.start(flow, now);
        }
    }

    fn handle_proxy(
        &mut self,
        from: SocketAddr,
        datagram: &[u8],
        now: Instant,
    ) -> Result<(), ProxyError> {
        let Some(sidekick) = &mut self.sidekick else { return Ok(()) };
        let handled = sidekick.handle_input(from, datagram, now);
        self.reinject(now);
        handled.map(|_| ())
    }

    fn stop(&mut self, now: Instant) {
        if let Phase::Talking { .. } = self.phase {
            self.phase = Phase::Ending { ends: 0, due: now };
        }
    }

    fn is_finished(&self) -> bool {
        matches!(self.phase, Phase::Finished { .. })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let own = match self.phase {
            Phase::Talking { due } => due.min(self.report_at),
            Phase::Ending { due, .. } => due,
            Phase::Finished { .. } => return None,
        };
        let idle = self.last_received.map(|at| at + IDLE_TIMEOUT);
        let sidekick = self.sidekick.as_ref().and_then(Sender::poll_timeout);
        [Some(own), idle, sidekick].into_iter().flatten().min()
    }

    fn on_timeout(&mut self, now: Instant) {
        while let Phase::Talking { due } = self.phase
            && due <= now
        {
            self.talk(due, now);
        }
        match self.phase {
            Phase::Talking { .. } => self.report_if_due(now),
            Phase::Ending { ends, due } if due <= now => {
                if ends < MAX_ENDS {
                    self.queue(Outgoing::Bye);
                    self.phase = Phase::Ending { ends: ends + 1, due: now + END_INTERVAL };
                } else {
                    self.finish(Ending::Unanswered, now);
                }
            }
            _ => {}
        }
        if self.last_received.is_some_and(|at| at + IDLE_TIMEOUT <= now) {
            self.finish(Ending::Silent, now);
        }
        if let Some(sidekick) = &mut self.sidekick {
            sidekick.on_timeout(now);
        }
        self.reinject(now);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>, now: Instant) -> bool {
        while let Some(outgoing) = self.outgoing.pop_front() {
            let mut tag = Transmission::NONE;
            match outgoing {
                Outgoing::Media(transmission) => {
                    // A packet that was evicted since it was queued is too old.
                    let Some(kept) = self.store.get(transmission.index) else { continue };
                    out.clone_from(&kept.datagram);
                    tag = transmission.tag();
                    self.packets.sent += 1;
                    self.bytes += u64::try_from(out.len()).unwrap_or(0);
                }
                Outgoing::Report | Outgoing::Bye => {
                    let leaves = matches!(outgoing, Outgoing::Bye);
                    let Some(report) = self.report_packet(leaves, now) else { continue };
                    *out = report;
                }
            }
            // The proxy counts re-injections, retransmissions and reports, too.
            if let Some(sidekick) = &mut self.sidekick {
                sidekick.on_sent(tag, Payload::whole(out), now);
            }
            return true;
        }
        false
    }

    fn transmit_to_proxy(&mut self, out: &mut [u8]) -> Option<(SocketAddr, usize)> {
        to_proxy(self.sidekick.as_mut()?, out)
    }
}

#[cfg(test)]
mod tests;
