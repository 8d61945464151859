//! Requests fewer acknowledgements from a receiver without the hook: QUIC ACK frequency
//! (draft-ietf-quic-ack-frequency-07), tested with quinn.

use std::time::{Duration, Instant};

use super::State;
use crate::recovery::RecoveryOps;
use crate::{BufFactory, Connection};

/// The transport parameter `min_ack_delay`, by which a peer offers to accept requests.
const MIN_ACK_DELAY: u64 = 0xff04_de1b;
/// The type of the frame.
const ACK_FREQUENCY: u64 = 0xaf;
/// The number of copies of a request, because quiche does not retransmit the frame if a packet is
/// lost. The sequence number distinguishes copies from a new request. If all are lost, the receiver
/// continues as before.
const COPIES: u32 = 5;
/// The default (RFC 9000, section 13.2.2): acknowledge every second packet.
const USUAL_THRESHOLD: u64 = 1;
/// Acknowledge reordered packets at once, as without a request.
const REORDERING_THRESHOLD: u64 = 1;

/// The largest values that can be requested: the draft's limit on delays, in microseconds, and more
/// packets than make a difference.
const MAX_DELAY_US: u64 = (1 << 24) - 1;
const MAX_THRESHOLD: u64 = 1 << 20;

/// A request for acknowledgements.
#[derive(Debug, Default)]
pub(super) struct Frequency {
    request: Option<Request>,
    next_sequence: u64,
    /// The longest delay requested. Loss detection uses it, because a request for less may be lost
    /// or not yet in effect.
    longest: Duration,
    /// Whether the packet under construction carries the request.
    written: bool,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    sequence: u64,
    threshold: u64,
    delay: Duration,
    copies: u32,
    /// The time between two copies.
    interval: Duration,
    next: Instant,
}

impl State {
    /// Whether a request may have to be written.
    #[inline]
    pub(crate) fn asks(&self) -> bool {
        self.frequency.request.is_some()
    }

    /// Writes a request into a 1-RTT packet if one is due, and returns its length in bytes.
    pub(crate) fn ask(&mut self, b: &mut octets::OctetsMut, left: usize, now: Instant) -> usize {
        self.frequency.write(b, left, now)
    }
}

impl Frequency {
    fn write(&mut self, b: &mut octets::OctetsMut, left: usize, now: Instant) -> usize {
        self.written = false;
        let Some(request) = self.request.filter(|request| request.next <= now) else { return 0 };
        let delay_us = u64::try_from(request.delay.as_micros()).unwrap_or(u64::MAX).min(MAX_DELAY_US);
        let fields = [ACK_FREQUENCY, request.sequence, request.threshold, delay_us, REORDERING_THRESHOLD];
        let len = fields.iter().map(|field| octets::varint_len(*field)).sum();
        // A frame of quiche's own must follow, at least a PING, so that no packet contains only
        // ours.
        if len + 1 > left || fields.iter().any(|field| b.put_varint(*field).is_err()) {
            return 0;
        }
        self.written = true;
        len
    }

    /// Records that a 1-RTT packet was made.
    #[inline]
    pub(super) fn sent(&mut self, now: Instant) {
        if self.written {
            self.sent_request(now);
        }
    }

    fn sent_request(&mut self, now: Instant) {
        self.written = false;
        self.request = self.request.and_then(|request| {
            let copies = request.copies.checked_sub(1).filter(|copies| *copies > 0)?;
            Some(Request { copies, next: now + request.interval, ..request })
        });
    }
}

/// The value of a numeric transport parameter, in the encoding of RFC 9000, section 18.
fn parameter(parameters: &[u8], wanted: u64) -> Option<u64> {
    let mut b = octets::Octets::with_slice(parameters);
    while b.cap() > 0 {
        let id = b.get_varint().ok()?;
        let mut value = b.get_bytes_with_varint_length().ok()?;
        if id == wanted {
            return value.get_varint().ok();
        }
    }
    None
}

impl<F: BufFactory> Connection<F> {
    /// Requests that the peer acknowledge after a number of packets, or a delay after the first,
    /// whichever comes sooner; and reordered packets at once. Returns false if the peer does not
    /// offer this, or the handshake is not complete. The delay is at least the peer's minimum and
    /// at most 16 s. Loss detection uses it from now on, even if a later request is for less.
    pub fn sidekick_ask_for_acks(&mut self, packets: u64, delay: Duration, now: Instant) -> bool {
        self.sidekick_request(packets.saturating_sub(1), Some(delay), now)
    }

    /// Requests that the peer acknowledge as by default.
    pub fn sidekick_ask_for_usual_acks(&mut self, now: Instant) -> bool {
        self.sidekick_request(USUAL_THRESHOLD, None, now)
    }

    fn sidekick_request(&mut self, threshold: u64, delay: Option<Duration>, now: Instant) -> bool {
        if !self.is_established() {
            return false;
        }
        let Some(least) = parameter(self.handshake.quic_transport_params(), MIN_ACK_DELAY) else { return false };
        let usual = Duration::from_millis(self.peer_transport_params.max_ack_delay);
        let least = Duration::from_micros(least);
        // The minimum must not exceed the default. A peer that claims otherwise must not control
        // when timeouts expire.
        if least > usual {
            return false;
        }
        let delay = delay.unwrap_or(usual).clamp(least, Duration::from_micros(MAX_DELAY_US));
        let frequency = &mut self.sidekick.frequency;
        frequency.longest = frequency.longest.max(delay).max(usual);
        self.recovery_config.max_ack_delay = frequency.longest;
        for (_, path) in self.paths.iter_mut() {
            path.recovery.update_max_ack_delay(frequency.longest);
        }
        let Ok(path) = self.paths.get_active_mut() else { return false };
        // Send it even if there is nothing else to send.
        path.needs_ack_eliciting = true;
        let sequence = frequency.next_sequence;
        frequency.next_sequence += 1;
        let interval = path.recovery.rtt();
        frequency.request = Some(Request { sequence, threshold: threshold.min(MAX_THRESHOLD), delay, copies: COPIES, interval, next: now });
        true
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
mod tests {
    use super::*;
    use crate::test_utils::{self, Pipe};

    #[test]
    fn parameters_are_found_by_their_numbers() {
        let mut bytes = [0; 64];
        let mut b = octets::OctetsMut::with_slice(&mut bytes);
        for (id, value) in [(0x04, 1000), (MIN_ACK_DELAY, 1500), (0x0b, 25)] {
            b.put_varint(id).unwrap();
            b.put_varint(octets::varint_len(value) as u64).unwrap();
            b.put_varint(value).unwrap();
        }
        let len = b.off();
        assert_eq!(parameter(&bytes[..len], MIN_ACK_DELAY), Some(1500));
        assert_eq!(parameter(&bytes[..len], 0x0b), Some(25));
        assert_eq!(parameter(&bytes[..len], 0x0c), None);
        for cut in 0..len {
            let found = parameter(&bytes[..cut], 0x0b);
            assert_eq!(found, None, "{cut}");
        }
    }

    #[test]
    fn a_request_goes_out_a_few_times() {
        let start = Instant::now();
        let ms = Duration::from_millis(1);
        let request = Request {
            sequence: 2,
            threshold: 99,
            delay: 50 * ms,
            copies: COPIES,
            interval: 20 * ms,
            next: start,
        };
        let mut frequency = Frequency { request: Some(request), next_sequence: 3, ..Frequency::default() };
        let mut copies = 0;
        for now in (0..500).map(|passed| start + passed * ms) {
            let mut bytes = [0; 100];
            let mut b = octets::OctetsMut::with_slice(&mut bytes);
            assert_eq!(frequency.write(&mut b, 5, now), 0, "it does not fit");
            let len = frequency.write(&mut b, 100, now);
            if len == 0 {
                continue;
            }
            // If quiche sends no packet after all, the request is written again.
            assert_eq!(frequency.write(&mut octets::OctetsMut::with_slice(&mut [0; 100]), 100, now), len);
            frequency.sent(now);
            copies += 1;
            // 0xaf, 2, 99, 50000, 1 as variable-length integers.
            assert_eq!(bytes[..len], [0x40, 0xaf, 2, 0x40, 99, 0x80, 0, 0xc3, 0x50, 1]);
        }
        assert_eq!(copies, COPIES);
    }

    /// A connection whose next packets carry a request.
    fn asking(pmtud: bool) -> Pipe {
        let mut config = Pipe::default_config("cubic").unwrap();
        config.enable_dgram(true, 10, 10);
        config.discover_pmtu(pmtud);
        config.set_max_send_udp_payload_size(1400);
        let mut pipe = Pipe::with_config(&mut config).unwrap();
        pipe.handshake().unwrap();
        while let Ok(flight) = test_utils::emit_flight(&mut pipe.server) {
            test_utils::process_flight(&mut pipe.client, flight).unwrap();
        }
        if !pmtud {
            while let Ok(flight) = test_utils::emit_flight(&mut pipe.client) {
                test_utils::process_flight(&mut pipe.server, flight).unwrap();
            }
        }
        pipe.client.sidekick.frequency.request = Some(Request {
            sequence: 0,
            threshold: 99,
            delay: Duration::from_millis(50),
            copies: COPIES,
            // Besides probes, every packet that may carry it does.
            interval: Duration::from_secs(u64::from(!pmtud)),
            next: Instant::now(),
        });
        pipe.client.paths.get_active_mut().unwrap().needs_ack_eliciting = true;
        pipe
    }

    /// A peer without the offer receives no request. quiche, which does not know the frame, rejects
    /// it.
    #[test]
    fn quiche_does_not_offer_ack_frequency() {
        let mut pipe = asking(false);
        assert!(!pipe.client.sidekick_ask_for_acks(100, Duration::from_millis(50), Instant::now()));
        assert!(!pipe.client.sidekick_ask_for_usual_acks(Instant::now()));
        let flight = test_utils::emit_flight(&mut pipe.client).unwrap();
        assert_eq!(test_utils::process_flight(&mut pipe.server, flight), Err(crate::Error::InvalidFrame));
    }

    #[test]
    fn a_request_leaves_without_other_data_to_send() {
        let mut pipe = asking(false);
        assert_eq!(test_utils::emit_flight(&mut pipe.client).unwrap().len(), 1);
        assert_eq!(pipe.client.sidekick.frequency.request.unwrap().copies, COPIES - 1);
        assert_eq!(test_utils::emit_flight(&mut pipe.client), Err(crate::Error::Done));
    }

    #[test]
    fn datagrams_that_fill_a_packet_leave_in_the_next() {
        let mut pipe = asking(false);
        let len = pipe.client.dgram_max_writable_len().unwrap();
        for _ in 0..2 {
            pipe.client.dgram_send(&vec![7; len]).unwrap();
        }
        assert_eq!(test_utils::emit_flight(&mut pipe.client).unwrap().len(), 3);
        assert_eq!(pipe.client.dgram_send_queue_len(), 0);
    }

    #[test]
    fn probes_for_a_larger_payload_carry_no_request() {
        let mut pipe = asking(true);
        pipe.client.stream_send(0, &[1; 100], true).unwrap();
        let flight = test_utils::emit_flight(&mut pipe.client).unwrap();
        assert!(flight.iter().any(|(datagram, _)| datagram.len() > 1300), "no probe");
        pipe.client.stream_send(4, &[1; 100], true).unwrap();
        test_utils::emit_flight(&mut pipe.client).unwrap();
        assert!(pipe.client.sidekick.frequency.request.unwrap().copies < COPIES, "the next packets carry it");
    }
}
