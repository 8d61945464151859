//! The whole path's round trip, as a flow's handshake shows it.

use std::time::{Duration, Instant};

use super::kind::Kind;

/// Measures a flow's round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum RoundTrip {
    /// The flow has no packet yet.
    #[default]
    Unbegun,
    /// The first and the latest packet that asks for an answer left then.
    Asked { first: Instant, latest: Instant },
    /// The times from each of them to the first answer.
    Answered { first: Duration, latest: Duration },
    /// The flow began before the agent, or without a handshake. An arrival may answer any packet.
    Unknown,
}

impl RoundTrip {
    /// Notes a packet that leaves, of a flow of this kind.
    pub(super) fn on_leaving(&mut self, kind: Kind, payload: &[u8], now: Instant) {
        match self {
            Self::Unbegun if kind.begins_with(payload) => {
                *self = Self::Asked { first: now, latest: now };
            }
            Self::Unbegun => *self = Self::Unknown,
            Self::Asked { latest, .. } if kind.begins_with(payload) => *latest = now,
            Self::Asked { .. } | Self::Answered { .. } | Self::Unknown => {}
        }
    }

    /// Notes a packet that arrives.
    pub(super) fn on_arriving(&mut self, now: Instant) {
        match *self {
            Self::Unbegun => *self = Self::Unknown,
            Self::Asked { first, latest } => {
                let [first, latest] = [first, latest].map(|at| now.saturating_duration_since(at));
                *self = Self::Answered { first, latest };
            }
            Self::Answered { .. } | Self::Unknown => {}
        }
    }

    /// The round trip, if it is known, and not shorter than this part of it.
    ///
    /// If a packet of the handshake was sent again, the answer mostly belongs to the latest one. An
    /// answer to an earlier one would make that round trip too short.
    pub(super) fn get(self, near: Duration) -> Option<Duration> {
        match self {
            Self::Answered { first, latest } => {
                [latest, first].into_iter().find(|time| *time >= near)
            }
            Self::Unbegun | Self::Asked { .. } | Self::Unknown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::clock;

    const MS: Duration = Duration::from_millis(1);
    const INITIAL: [u8; 6] = [0xc3, 0, 0, 0, 1, 8];

    /// The round trip of a flow with such packets in these milliseconds. `None` stands for an
    /// arrival.
    fn shown(packets: &[(u32, Option<&[u8]>)], near: Duration) -> Option<Duration> {
        let (mut trip, begun) = (RoundTrip::default(), clock());
        for (at, packet) in packets {
            match packet {
                Some(payload) => trip.on_leaving(Kind::Quic, payload, begun + *at * MS),
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
}
