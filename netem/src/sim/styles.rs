//! The bytes that the proxy would send if it reported packets in another way. The Sidekick paper
//! compares these ways with power sums.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sidekick_protocol::wire::Quack;

use crate::record::QuackStyles;

const IDENTIFIER: u64 = 4;
/// Bytes of a SHA-256.
const HASH: u64 = 32;

/// Counts the bytes of every way over one run.
#[derive(Debug)]
pub(super) struct Tally {
    /// The shortest time that a packet is in flight.
    in_flight: Duration,
    seen: VecDeque<Instant>,
    unreported: u64,
    styles: QuackStyles,
}

impl Tally {
    /// For a path with this round trip time while its queues are empty.
    pub(super) fn new(round_trip: Duration) -> Self {
        Self {
            in_flight: round_trip,
            seen: VecDeque::new(),
            unreported: 0,
            styles: QuackStyles::default(),
        }
    }

    pub(super) fn counted(&mut self, now: Instant) {
        self.seen.push_back(now);
        self.unreported += 1;
        self.styles.packets += 1;
    }

    /// Counts a quACK that the proxy sent in a datagram of `length` bytes. The other ways need the
    /// same bytes around their contents as a whole quACK has around its sums, with the seal. A
    /// short quACK saves 17 bytes. The other ways could save them as well.
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
