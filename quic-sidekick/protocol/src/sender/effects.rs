//! What an input leads to, and what the states of a session use and change beside themselves.

use super::config::SenderConfig;
use super::last_quack::LastQuack;
use super::status::{Assistance, Reason, SenderStats};
use crate::clock::Numbers;
use crate::wire::SEAL_LEN;
use std::time::Instant;

/// The bytes of a sealed BYE.
pub(super) type Bye = [u8; SEAL_LEN + 1];

/// What an input leads to, beside the datagrams that wait in the state.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Packets declared lost, by tag; they wait here for the caller of the sender.
    pub(super) lost: Vec<u64>,
    /// Packets that the latest quACK was the first to report, by tag.
    pub(super) received: Vec<u64>,
    /// The latest quACK.
    pub(super) quack: Option<LastQuack>,
    /// How the flow is assisted from now on.
    pub(super) assistance: Option<Assistance>,
    /// Where the session goes from its state.
    pub(super) transition: Option<Transition>,
}

/// Why a session leaves its state.
#[derive(Debug)]
pub(super) enum Transition {
    /// The proxy accepts. The handshake holds the session.
    Established,
    /// The proxy is of no use for this reason. It hears a BYE.
    Failed(Reason),
    /// The proxy ended the session.
    Ended,
    /// The proxy does not hold the session any more.
    Unknown,
    /// The proxy stopped answering.
    Silent,
    /// The session has used all its sequence numbers.
    Exhausted,
}

/// What a state's methods use and change beside the state.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) config: &'a SenderConfig,
    pub(super) numbers: &'a mut Numbers,
    pub(super) stats: &'a mut SenderStats,
    pub(super) effects: &'a mut Effects,
    /// As it is before the effects.
    pub(super) assistance: Assistance,
    pub(super) now: Instant,
}

impl Context<'_> {
    /// Ends the state. The first reason counts.
    pub(super) fn leave(&mut self, transition: Transition) {
        self.effects.transition.get_or_insert(transition);
    }

    /// Whether the state has ended.
    pub(super) fn has_left(&self) -> bool {
        self.effects.transition.is_some()
    }
}
