//! What the proxy would send if it reported packets in another way: the alternatives to power sums
//! in the Sidekick paper.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sidekick_protocol::wire::Quack;

use crate::record::QuackStyles;

/// Bytes of an identifier.
const IDENTIFIER: u64 = 4;
/// Bytes of a SHA-256.
const HASH: u64 = 32;

/// Counts the bytes of every style over one run.
#[derive(Debug)]
pub(super) struct Tally {
    /// How long a packet is in flight at least.
    in_flight: Duration,
    seen: VecDeque<Instant>,
    unreported: u64,
    styles: QuackStyles,
}

impl Tally {
    /// For a path with this round trip when its queues are empty.
    pub(super) fn new(round_trip: Duration) -> Self {
        Self {
            in_flight: round_trip,
            seen: VecDeque::new(),
            unreported: 0,
            styles: QuackStyles::default(),
        }
    }

    /// The proxy counted a packet.
    pub(super) fn counted(&mut self, now: Instant) {
        self.seen.push_back(now);
        self.unreported += 1;
        self.styles.packets += 1;
    }

    /// The proxy sent a quACK in a datagram of `length` bytes. The alternatives need the same bytes
    /// around their contents as a whole quACK around its sums, with the seal. A short quACK saves
    /// 17 bytes, which the alternatives could save as well.
    pub(super) fn sent(&mut self, length: usize, now: Instant) {
        while self.seen.front().is_some_and(|&at| at + self.in_flight < now) {
            self.seen.pop_front();
        }
        let frame = Quack::sealed_len(0) as u64;
        self.styles.messages += 1;
        self.styles.power_sums += length as u64;
        self.styles.echo_every += frame + self.unreported * IDENTIFIER;
        self.styles.echo_window += frame + self.seen.len() as u64 * IDENTIFIER;
        self.styles.hash_of_all += frame + HASH;
        self.unreported = 0;
    }

    /// The bytes so far; `None` if no quACK was sent.
    pub(super) fn styles(&self) -> Option<QuackStyles> {
        (self.styles.messages > 0).then_some(self.styles)
    }
}
