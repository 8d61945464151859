//! The terms that a sender requests and a proxy grants (SPEC.md, section 5).

use crate::clock::micros;
use crate::identify::{Identification, Position};
use std::num::NonZeroU16;
use std::time::Duration;

/// The terms of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Power sums in an ordinary quACK, 1 to 255: the most missing packets that it can identify.
    pub threshold: u8,
    /// The proxy sends a quACK after this many packets; `None` for no such limit.
    pub every_packets: Option<NonZeroU16>,
    /// The proxy sends a quACK this long after the first packet that no quACK has reported; `None`
    /// for no such limit. In whole microseconds, up to [`Terms::MAX_EVERY`]. If both limits are
    /// `None`, the proxy refuses.
    pub every: Option<Duration>,
    /// Which datagrams count, and by which identifier.
    pub identification: Identification,
}

impl Terms {
    /// The longest interval that the wire can carry: about 71 minutes.
    pub const MAX_EVERY: Duration = Duration::from_micros(u32::MAX as u64);

    /// The nearest terms that the wire can carry.
    pub(crate) fn normalised(self) -> Self {
        let Identification { position, filter } = self.identification;
        let position = match position {
            Position::Offset(offset) => Position::Offset(offset.min(Position::MAX_OFFSET)),
            other @ (Position::End | Position::Whole) => other,
        };
        Self {
            threshold: self.threshold.max(1),
            every_packets: self.every_packets,
            every: self.every.map(|every| Duration::from_micros(micros(every).max(1).into())),
            identification: Identification { position, filter },
        }
    }
}

impl Default for Terms {
    /// A quACK of 20 sums every 30 ms.
    fn default() -> Self {
        Self {
            threshold: 20,
            every_packets: None,
            every: Some(Duration::from_millis(30)),
            identification: Identification::default(),
        }
    }
}
