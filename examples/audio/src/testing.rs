//! What the tests of both ends have in common.

use crate::end::{End, Handled};
use crate::rtcp::{self, Item};
use crate::rtp::{self, Header};
use crate::session::{Encoding, MasterKey, Session};
use crate::srtp::{Protector, Unprotector, is_rtcp};
use crate::{Listener, ListenerConfig, Talker, TalkerConfig, source::random_bytes};
use proptest::prelude::*;
use std::time::{Duration, Instant};

pub(crate) const MS: Duration = Duration::from_millis(1);

/// The beginning of virtual time.
#[allow(clippy::disallowed_methods, reason = "virtual time has to begin somewhere")]
pub(crate) fn start() -> Instant {
    Instant::now()
}

pub(crate) fn session() -> Session {
    Session::new(MasterKey::of_simulation(1), Encoding::Random)
}

pub(crate) fn talker(config: TalkerConfig) -> Call<Talker> {
    Call::new(|now| Talker::new(config, random_bytes(1, 240), now).unwrap())
}

pub(crate) fn listener(config: ListenerConfig) -> Call<Listener> {
    Call::new(|_| Listener::new(config, session()).unwrap())
}

/// An end, and the key of the other one, which is the same.
pub(crate) struct Call<E> {
    pub(crate) end: E,
    pub(crate) now: Instant,
    sealer: Protector,
    opener: Unprotector,
}

impl<E: End> Call<E> {
    fn new(end: impl FnOnce(Instant) -> E) -> Self {
        let (now, session) = (start(), session());
        let sealer = Protector::new(&session).unwrap();
        Self { end: end(now), now, sealer, opener: Unprotector::new(&session.key) }
    }

    pub(crate) fn seal(&mut self, packet: &[u8]) -> Vec<u8> {
        let sealer = &mut self.sealer;
        if is_rtcp(packet) { sealer.rtcp(packet) } else { sealer.rtp(packet) }.unwrap()
    }

    /// The end receives a protected packet some milliseconds after the beginning.
    pub(crate) fn gets(&mut self, packet: &[u8], after: u32) {
        let datagram = self.seal(packet);
        self.end.handle_input(&datagram, self.now + after * MS).unwrap();
    }

    /// Every datagram that waits to be sent at `now`, after the timers that are due.
    pub(crate) fn datagrams(&mut self, now: Instant) -> Vec<Vec<u8>> {
        self.end.on_timeout(now);
        let mut out = Vec::new();
        std::iter::from_fn(|| self.end.poll_transmit(&mut out, now).then(|| out.clone())).collect()
    }

    /// The headers and contents of the media packets among these datagrams.
    pub(crate) fn media(&mut self, now: Instant) -> Vec<(Header, Vec<u8>)> {
        let datagrams: Vec<_> = self.datagrams(now).into_iter().filter(|d| !is_rtcp(d)).collect();
        let open = |datagram: &Vec<u8>| {
            let header = rtp::header(datagram)?;
            let packet = self.opener.rtp(datagram, header.ssrc).ok()?;
            Some((header, rtp::content(&packet)?.to_vec()))
        };
        datagrams.iter().filter_map(open).collect()
    }

    /// The contents of the RTCP among these datagrams.
    pub(crate) fn items(&mut self, now: Instant) -> Vec<Item> {
        let datagrams = self.datagrams(now);
        let reports = datagrams.iter().filter(|datagram| is_rtcp(datagram));
        reports.flat_map(|d| rtcp::parse(&self.opener.rtcp(d).unwrap()).unwrap()).collect()
    }

    /// Sends datagrams of the end back to it. Its report without the count of rejections, as text,
    /// must not change.
    pub(crate) fn ignores_its_own(&mut self, own: &[Vec<u8>], report: impl Fn(&E) -> String) {
        let before = (report(&self.end), self.end.poll_timeout());
        for datagram in own {
            assert!(self.end.handle_input(datagram, self.now).is_err());
        }
        assert_eq!((report(&self.end), self.end.poll_timeout()), before);
        assert!(!self.end.poll_transmit(&mut Vec::new(), self.now) && !self.end.is_finished());
    }

    /// Survives a packet with these fields, as RTP and as RTCP.
    fn survives(&mut self, header: &Header, first: u8, body: &[u8], authentic: bool) {
        let mut packet = rtp::packet(header, body);
        packet[0] = first;
        let words = body.len() / 4;
        let kind = 200 + header.sequence.to_be_bytes()[1] % 8;
        let head = [first, kind, 0, words.try_into().unwrap()];
        for packet in [packet, [&head, &body[..words * 4]].concat()] {
            let sealed = self.sealer.rtcp(&packet).filter(|_| is_rtcp(&packet));
            let sealed = sealed.or_else(|| self.sealer.rtp(&packet)).filter(|_| authentic);
            let handled = self.end.handle_input(&sealed.unwrap_or(packet), self.now);
            assert!(authentic || matches!(handled, Err(_) | Ok(Handled::Proxy)), "{handled:?}");
        }
        self.now += 7 * MS;
        self.end.on_timeout(self.now);
        assert!(self.end.poll_timeout().is_none_or(|at| at > self.now), "due again at once");
        if header.marker {
            self.datagrams(self.now);
        }
    }
}

/// The SSRCs of a hostile talker.
const MEDIA: u32 = 1;
const RTX: u32 = 2;

proptest! {
    #[test]
    fn hostile_datagrams_are_survived_and_answered_within_bounds(
        packets in proptest::collection::vec((0x80_u8..0xc0, any::<u16>(), any::<bool>(), any::<bool>(), proptest::collection::vec(any::<u8>(), 0..300)), 1..60),
        authentic in any::<bool>(),
    ) {
        let mut talker = talker(TalkerConfig { packets: 100, ..TalkerConfig::of_simulation(1) });
        let mut listener = listener(ListenerConfig::default());
        let (ssrc, payload_type, timestamp) = (MEDIA, 96, 0);
        let begins = Header { ssrc, payload_type, sequence: 0, timestamp, marker: true };
        listener.gets(&rtp::packet(&begins, &[7; 100]), 0);
        for (first, sequence, again, marker, body) in packets {
            let (ssrc, payload_type) = if again { (RTX, 97) } else { (MEDIA, 96) };
            let timestamp = u32::from(sequence) << 8;
            let header = Header { ssrc, payload_type, sequence, timestamp, marker };
            talker.survives(&header, first, &body, authentic);
            listener.survives(&header, first, &body, authentic);
            prop_assert!(talker.end.waits_within_bounds() && listener.end.waits_within_bounds());
        }
    }
}

#[test]
fn only_a_participant_itself_leaves() {
    let bye = |media| {
        let mut packet = rtcp::receiver_report(77, rtcp_types::ReportBlock::builder(media), None);
        // The last word of a BYE names the SSRC.
        let at = packet.len() - 4;
        packet[at..].copy_from_slice(&u32::to_be_bytes(media));
        packet
    };
    let mut talking = talker(TalkerConfig::of_simulation(1));
    talking.datagrams(talking.now);
    talking.gets(&bye(talking.end.sources().media), 0);
    assert!(!talking.end.is_finished());
    let mut hearing = listener(ListenerConfig::default());
    let (ssrc, payload_type) = (MEDIA, 96);
    let header = Header { ssrc, payload_type, sequence: 0, timestamp: 0, marker: true };
    hearing.gets(&rtp::packet(&header, &[7; 100]), 0);
    hearing.gets(&bye(MEDIA), 20);
    assert!(!hearing.end.report().complete);
}
