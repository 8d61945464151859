//! Asks a receiver that is not ours for fewer acknowledgements: QUIC ACK frequency (draft-ietf-quic-ack-frequency-07), which
//! quinn and others answer to.

use std::time::{Duration, Instant};

use super::State;
use crate::recovery::RecoveryOps;
use crate::{BufFactory, Connection};

/// The transport parameter `min_ack_delay`: who announces it can be asked.
const MIN_ACK_DELAY: u64 = 0xff04_de1b;
/// The type of the frame.
const ACK_FREQUENCY: u64 = 0xaf;
/// The request goes out so many times, for quiche would not know it in a lost packet. Its number tells the copies from a new
/// request; and if all are lost, the receiver does as before.
const COPIES: u32 = 5;
/// The usual way (RFC 9000, section 13.2.2): every second packet.
const USUAL_THRESHOLD: u64 = 1;
/// What is out of order is told at once, as it is without a request.
const REORDERING_THRESHOLD: u64 = 1;

/// What is asked of the receiver.
#[derive(Debug, Default)]
pub(super) struct Frequency {
    request: Option<Request>,
    next_sequence: u64,
    /// The packet that is being made has the request in it.
    written: bool,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    sequence: u64,
    threshold: u64,
    delay: Duration,
    copies: u32,
    /// Between two copies.
    interval: Duration,
    next: Instant,
}

impl State {
    /// Writes a request for the receiver into a 1-RTT packet, if it is time for one, and returns how many bytes that took.
    pub(crate) fn ask(&mut self, b: &mut octets::OctetsMut, left: usize, now: Instant) -> usize {
        self.frequency.write(b, left, now)
    }
}

impl Frequency {
    fn write(&mut self, b: &mut octets::OctetsMut, left: usize, now: Instant) -> usize {
        self.written = false;
        let Some(request) = self.request.filter(|request| request.next <= now) else { return 0 };
        let delay_us = u64::try_from(request.delay.as_micros()).unwrap_or(u64::MAX);
        let fields = [ACK_FREQUENCY, request.sequence, request.threshold, delay_us, REORDERING_THRESHOLD];
        let len = fields.iter().map(|field| octets::varint_len(*field)).sum();
        // A frame of the packet's own has to follow: quiche makes none of ours alone.
        if len + 1 > left || fields.iter().any(|field| b.put_varint(*field).is_err()) {
            return 0;
        }
        self.written = true;
        len
    }

    /// A 1-RTT packet was made.
    pub(super) fn sent(&mut self, now: Instant) {
        if !std::mem::take(&mut self.written) {
            return;
        }
        self.request = self.request.and_then(|request| {
            let copies = request.copies.checked_sub(1).filter(|copies| *copies > 0)?;
            Some(Request { copies, next: now + request.interval, ..request })
        });
    }
}

/// The value of a transport parameter that is a number, in the form of RFC 9000, section 18.
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
    /// Asks the peer to acknowledge after so many packets, or so long after the first, whichever comes sooner; and what is out of
    /// order at once. False if it has not offered to be asked, or the handshake is not over. The delay is at least the shortest
    /// that the peer offers, and loss detection reckons with it from now on.
    pub fn sidekick_ask_for_acks(&mut self, packets: u64, delay: Duration, now: Instant) -> bool {
        self.sidekick_request(packets.saturating_sub(1), Some(delay), now)
    }

    /// Asks the peer to acknowledge as it would have unasked.
    pub fn sidekick_ask_for_usual_acks(&mut self, now: Instant) -> bool {
        self.sidekick_request(USUAL_THRESHOLD, None, now)
    }

    fn sidekick_request(&mut self, threshold: u64, delay: Option<Duration>, now: Instant) -> bool {
        if !self.is_established() {
            return false;
        }
        let Some(least) = parameter(self.handshake.quic_transport_params(), MIN_ACK_DELAY) else { return false };
        let usual = Duration::from_millis(self.peer_transport_params.max_ack_delay);
        let delay = delay.unwrap_or(usual).max(Duration::from_micros(least));
        let Ok(path) = self.paths.get_active_mut() else { return false };
        // The request may be in force as soon as it is on its way, and one for less may be lost.
        path.recovery.update_max_ack_delay(delay.max(usual));
        let frequency = &mut self.sidekick.frequency;
        let sequence = frequency.next_sequence;
        frequency.next_sequence += 1;
        let interval = path.recovery.rtt();
        frequency.request = Some(Request { sequence, threshold, delay, copies: COPIES, interval, next: now });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    #[allow(clippy::disallowed_methods, reason = "any instant will do to begin with")]
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
        let mut frequency = Frequency { request: Some(request), next_sequence: 3, written: false };
        let mut copies = 0;
        for now in (0..500).map(|passed| start + passed * ms) {
            let mut bytes = [0; 100];
            let mut b = octets::OctetsMut::with_slice(&mut bytes);
            assert_eq!(frequency.write(&mut b, 5, now), 0, "it does not fit");
            let len = frequency.write(&mut b, 100, now);
            if len == 0 {
                continue;
            }
            // quiche may have nothing to send after all: then it is written again.
            assert_eq!(frequency.write(&mut octets::OctetsMut::with_slice(&mut [0; 100]), 100, now), len);
            frequency.sent(now);
            copies += 1;
            // 0xaf, 2, 99, 50000, 1 as variable-length integers.
            assert_eq!(bytes[..len], [0x40, 0xaf, 2, 0x40, 99, 0x80, 0, 0xc3, 0x50, 1]);
        }
        assert_eq!(copies, COPIES);
    }
}
