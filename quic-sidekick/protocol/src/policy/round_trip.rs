//! The whole path's round trip, as a flow's packets show it.
//!
//! The handshake shows it at once. Flows that began before the help show it by the spin bit of
//! QUIC (RFC 9000, section 17.4), or by answers that follow a silence.

use std::time::{Duration, Instant};

/// Values of a round trip of which a short one counts: each may be too long.
const SAMPLES: usize = 4;
/// An arrival answers the packet that ended a silence of this length, and not an earlier one.
const SILENCE: Duration = Duration::from_millis(400);
/// So many packets with the same spin bit come before it changes. Otherwise it is random.
const SPIN: u32 = 8;

/// Whether a datagram begins a connection of QUIC. The first answer then comes a round trip later.
#[must_use]
pub fn is_initial(payload: &[u8]) -> bool {
    match payload {
        // The first bits of a long header contain the type, here of an Initial packet (RFC 9000,
        // section 17.2.2). RFC 9369 gives the types other numbers in version 2.
        [first, 0x6b, 0x33, 0x43, 0xcf, ..] => first & 0xf0 == 0xd0,
        [first, ..] => first & 0xf0 == 0xc0,
        [] => false,
    }
}

/// Measures a flow's round trip.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundTrip {
    handshake: Handshake,
    spin: Spin,
    answers: Answers,
}

/// The latest values.
#[derive(Clone, Copy, Debug, Default)]
struct Samples([Option<Duration>; SAMPLES]);

impl Samples {
    fn note(&mut self, sample: Duration) {
        self.0.rotate_right(1);
        self.0[0] = Some(sample);
    }

    /// The one that exceeds so many others, once there are enough.
    fn nth(&self, others: usize) -> Option<Duration> {
        let mut sorted = [Duration::ZERO; SAMPLES];
        for (to, from) in sorted.iter_mut().zip(self.0) {
            *to = from?;
        }
        sorted.sort_unstable();
        sorted.get(others).copied()
    }
}

#[derive(Clone, Copy, Debug, Default)]
enum Handshake {
    /// The flow has no packet yet.
    #[default]
    Unbegun,
    /// The first and the latest packet that asks for an answer left then.
    Asked { first: Instant, latest: Instant },
    /// The times from each of them to the first answer.
    Answered { first: Duration, latest: Duration },
    /// The flow began before the help, or without a handshake. An arrival may answer any packet.
    Unknown,
}

impl Handshake {
    fn on_leaving(&mut self, begins: bool, now: Instant) {
        match self {
            Self::Unbegun if begins => {
                *self = Self::Asked { first: now, latest: now };
            }
            Self::Unbegun => *self = Self::Unknown,
            Self::Asked { latest, .. } if begins => *latest = now,
            Self::Asked { .. } | Self::Answered { .. } | Self::Unknown => {}
        }
    }

    fn on_arriving(&mut self, now: Instant) {
        match *self {
            Self::Unbegun => *self = Self::Unknown,
            Self::Asked { first, latest } => {
                let [first, latest] = [first, latest].map(|at| now.saturating_duration_since(at));
                *self = Self::Answered { first, latest };
            }
            Self::Answered { .. } | Self::Unknown => {}
        }
    }

    /// If a packet of the handshake was sent again, the answer mostly belongs to the latest one. An
    /// answer to an earlier one would make that round trip too short.
    fn get(self, near: Duration) -> Option<Duration> {
        match self {
            Self::Answered { first, latest } => {
                [latest, first].into_iter().find(|time| *time >= near)
            }
            Self::Unbegun | Self::Asked { .. } | Self::Unknown => None,
        }
    }
}

/// The spin bit of leaving packets, which changes once in a round trip.
#[derive(Clone, Copy, Debug, Default)]
struct Spin {
    bit: bool,
    /// Packets with this bit, and when the first of them left, if the bit changed then.
    packets: u32,
    since: Option<Instant>,
    samples: Samples,
}

impl Spin {
    fn on_leaving(&mut self, payload: &[u8], now: Instant) {
        // Short headers alone have it (RFC 9000, section 17.3.1).
        let Some(first) = payload.first().filter(|first| **first & 0xc0 == 0x40) else { return };
        let bit = first & 0x20 != 0;
        if bit == self.bit {
            self.packets = self.packets.saturating_add(1);
            return;
        }
        if self.packets < SPIN {
            self.samples = Samples::default();
        } else if let Some(since) = self.since {
            self.samples.note(now.saturating_duration_since(since));
        }
        (self.bit, self.packets, self.since) = (bit, 1, Some(now));
    }
}

/// Answers that follow a silence.
#[derive(Clone, Copy, Debug, Default)]
struct Answers {
    /// When the latest packet passed, in either direction.
    latest: Option<Instant>,
    /// When a packet left that ended a silence.
    asked: Option<Instant>,
    samples: Samples,
}

impl Answers {
    fn on_leaving(&mut self, now: Instant) {
        if self.latest.replace(now).is_some_and(|latest| latest + SILENCE <= now) {
            self.asked = Some(now);
        }
    }

    fn on_arriving(&mut self, now: Instant) {
        self.latest = Some(now);
        if let Some(asked) = self.asked.take() {
            let time = now.saturating_duration_since(asked);
            if time < SILENCE {
                self.samples.note(time);
            }
        }
    }
}

impl RoundTrip {
    /// That of a flow whose handshake went another way.
    #[must_use]
    pub fn unknown() -> Self {
        Self { handshake: Handshake::Unknown, ..Self::default() }
    }

    /// Notes a packet that leaves. `begins` says that it begins the flow's handshake, and `spins`
    /// that short headers have a spin bit.
    pub fn on_leaving(&mut self, payload: &[u8], begins: bool, spins: bool, now: Instant) {
        self.handshake.on_leaving(begins, now);
        if spins {
            self.spin.on_leaving(payload, now);
        }
        self.answers.on_leaving(now);
    }

    /// Notes a packet that arrives.
    pub fn on_arriving(&mut self, now: Instant) {
        self.handshake.on_arriving(now);
        self.answers.on_arriving(now);
    }

    /// The round trip, if it is known, and not shorter than this part of it.
    pub(super) fn get(&self, near: Duration) -> Option<Duration> {
        // One packet of another cause may arrive instead of an answer.
        let answers = || self.answers.samples.nth(1).filter(|time| *time >= near);
        self.certain(near).or_else(answers)
    }

    /// The same, if what arrives cannot have made it shorter.
    pub(super) fn certain(&self, near: Duration) -> Option<Duration> {
        let spin = || self.spin.samples.nth(0).filter(|time| *time >= near);
        self.handshake.get(near).or_else(spin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
    fn clock() -> Instant {
        Instant::now()
    }

    const MS: Duration = Duration::from_millis(1);
    const INITIAL: [u8; 6] = [0xc3, 0, 0, 0, 1, 8];

    /// The round trip of a flow with such packets in these milliseconds. `None` stands for an
    /// arrival.
    fn shown(packets: &[(u32, Option<&[u8]>)], near: Duration) -> Option<Duration> {
        let (mut trip, begun) = (RoundTrip::default(), clock());
        for (at, packet) in packets {
            match packet {
                Some(payload) => {
                    trip.on_leaving(payload, is_initial(payload), true, begun + *at * MS);
                }
                None => trip.on_arriving(begun + *at * MS),
            }
        }
        trip.get(near)
    }

    #[test]
    fn the_answer_to_the_latest_question_counts() {
        let (asks, other) = (Some(&INITIAL[..]), Some(&[0x40, 9][..]));
        for (packets, near, rtt) in [
            (&[(0, asks), (50, None), (60, asks), (61, None)][..], 2, Some(50)),
            (&[(0, asks), (1, asks), (50, None)], 2, Some(49)),
            // The first one was lost.
            (&[(0, asks), (1000, asks), (1050, None)], 2, Some(50)),
            // The first one was not lost but late: the answer belongs to it.
            (&[(0, asks), (1000, asks), (1001, None)], 2, Some(1001)),
            // No destination is nearer than the proxy.
            (&[(0, asks), (1, None)], 2, None),
            // Other packets do not ask for an answer.
            (&[(0, asks), (40, other), (50, None)], 2, Some(50)),
            (&[(0, other), (1, asks), (50, None)], 2, None),
            (&[(0, None), (1, asks), (50, None)], 2, None),
            (&[(0, asks)], 2, None),
            (&[], 2, None),
        ] {
            assert_eq!(shown(packets, near * MS), rtt.map(|rtt| rtt * MS), "{packets:?}");
        }
    }

    /// A connection whose handshake went unseen: the bit changes each `period`
    /// milliseconds, and a packet leaves each `spacing`.
    fn spinning(period: u32, spacing: u32, random: bool) -> Option<Duration> {
        let (mut trip, begun) = (RoundTrip::default(), clock());
        for number in 0..4000_u32 {
            let at = number * spacing;
            let bit = if random { number * number / 7 % 2 } else { at / period % 2 };
            let first = if bit == 0 { 0x41 } else { 0x61 };
            trip.on_leaving(&[first, 9], false, true, begun + at * MS);
        }
        trip.get(2 * MS)
    }

    #[test]
    fn the_spin_bit_shows_the_round_trip() {
        assert_eq!(spinning(80, 2, false), Some(80 * MS));
        assert_eq!(spinning(50, 5, false), Some(50 * MS));
        assert_eq!(spinning(50, 10, false), None, "too few packets to tell it from chance");
        assert_eq!(spinning(80, 2, true), None, "a random bit");
        assert_eq!(spinning(u32::MAX, 2, false), None, "a constant bit");
    }

    #[test]
    fn answers_after_a_silence_show_the_round_trip() {
        let (mut trip, begun) = (RoundTrip::default(), clock());
        for round in 0..6_u32 {
            let at = begun + round * 1000 * MS;
            // A question, its answer with some delay of the peer, and packets in between.
            trip.on_leaving(&[1], false, true, at);
            trip.on_leaving(&[1], false, true, at + 20 * MS);
            trip.on_arriving(at + (60 + round) * MS);
            trip.on_arriving(at + 61 * MS);
            trip.on_leaving(&[1], false, true, at + 90 * MS);
            trip.on_arriving(at + 91 * MS);
            let known = (round >= 4).then_some((60 + round - 2) * MS);
            assert_eq!(trip.get(2 * MS), known, "{round}");
        }
    }
}
