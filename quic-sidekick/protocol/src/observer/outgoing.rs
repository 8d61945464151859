//! What waits to be sent.

use super::answers::OutgoingAnswer;
use super::peer::Peer;
use crate::wire::{Cookie, ECHO_LEN, Refusal, SessionNumber};

/// What waits to be sent. Sessions are named by their place and number, since they may be over
/// before.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outgoing {
    Accept(SessionNumber),
    Epoch(SessionNumber),
    Quack(SessionNumber),
    Bare(Peer, Bare),
    Answer(OutgoingAnswer),
}

/// An answer to somebody without a session.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bare {
    Retry(SessionNumber, [u8; ECHO_LEN], Cookie),
    Refuse(SessionNumber, [u8; ECHO_LEN], Refusal),
    UnknownSession(SessionNumber),
}
