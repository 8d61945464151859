//! Captured datagrams, and the outcome of observing them.

use crate::flow::Flow;
use crate::identify::Payload;

/// A captured datagram.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its flow.
    pub flow: Flow,
    /// The known part of its payload.
    pub payload: Payload<'a>,
}

/// The outcome of observing a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// No session counts its flow.
    NoSession,
    /// It does not count, although its flow may have a session. It is an answer to a marker, has a
    /// long header, or is too short. Or another interface captured it, or the network duplicated
    /// it.
    Ignored,
    /// Its session's sums include it.
    Counted,
    /// It was a marker. The proxy answers it, unless it answered it before, its addresses are
    /// impossible here, there are too many markers, or there is no address to announce.
    Marker,
}
