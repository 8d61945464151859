//! The effects of an input, and the context in which a session's states handle it.

use super::config::SenderConfig;
use super::last_quack::LastQuack;
use super::status::{Assistance, Reason, SenderStats};
use crate::clock::Numbers;
use crate::loss_floor::Lost;
use crate::wire::SEAL_LEN;
use std::time::Instant;

/// The bytes of a sealed BYE.
pub(super) type Bye = [u8; SEAL_LEN + 1];

/// The effects of an input, apart from the datagrams that wait in the state.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// The packets declared lost. They wait until the caller drains them.
    pub(super) lost: Vec<Lost>,
    /// When packets were sent that were declared lost before, and reported now.
    pub(super) turned_up: Vec<Instant>,
    /// When the latest packet that a quACK was the first to report was sent.
    pub(super) reported: Option<Instant>,
    /// The tags of packets that the latest quACK was the first to report.
    pub(super) received: Vec<u64>,
    /// The longest copy that is passed on.
    pub(super) longest_copy: usize,
    /// A copy whose last part arrived now.
    pub(super) joined: Option<Vec<u8>>,
    /// The latest quACK.
    pub(super) quack: Option<LastQuack>,
    /// The new state of assistance, if it changes.
    pub(super) assistance: Option<Assistance>,
    /// The transition out of the current state, if any.
    pub(super) transition: Option<Transition>,
}

/// Why a session leaves its state.
#[derive(Debug)]
pub(super) enum Transition {
    /// The proxy accepted. The handshake holds the session.
    Established,
    /// The proxy does not help, for this reason. The sender ends the session with a BYE.
    Failed(Reason),
    /// The proxy ended the session.
    Ended,
    /// The proxy no longer holds the session.
    Unknown,
    /// The proxy stopped answering.
    Silent,
    /// The session used all its sequence numbers.
    Exhausted,
}

/// The data that a state's methods use and change besides the state.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) config: &'a SenderConfig,
    pub(super) numbers: &'a mut Numbers,
    pub(super) stats: &'a mut SenderStats,
    pub(super) effects: &'a mut Effects,
    /// The state of assistance before the effects.
    pub(super) assistance: Assistance,
    pub(super) now: Instant,
}

impl Context<'_> {
    /// Requests a transition. Only the first one takes effect.
    pub(super) fn leave(&mut self, transition: Transition) {
        self.effects.transition.get_or_insert(transition);
    }

    /// Whether a transition is requested.
    pub(super) fn has_left(&self) -> bool {
        self.effects.transition.is_some()
    }
}
