//! Datagrams that wait to be sent.

use super::answers::OutgoingAnswer;
use super::peer::Peer;
use crate::wire::{Cookie, ECHO_LEN, Refusal, SessionNumber};

/// A datagram that waits to be sent. It names its session by number, because the session may end
/// before.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outgoing {
    Accept(SessionNumber),
    Epoch(SessionNumber),
    Quack(SessionNumber),
    Kept(SessionNumber),
    Tail(SessionNumber),
    Parity(SessionNumber),
    /// The request with this number has ranges without a datagram.
    Nothing {
        session: SessionNumber,
        number: u16,
        ranges: u16,
    },
    Bare(Peer, Bare),
    Answer(OutgoingAnswer),
}

/// An answer to a peer without a session.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bare {
    Retry(SessionNumber, [u8; ECHO_LEN], Cookie),
    Refuse(SessionNumber, [u8; ECHO_LEN], Refusal),
    UnknownSession(SessionNumber),
}
