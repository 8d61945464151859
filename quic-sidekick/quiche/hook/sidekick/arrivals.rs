//! The datagrams that arrive, as they came from the network.
//!
//! A proxy's parity rebuilds a lost datagram from those around it. So it needs their ciphertext,
//! and `recv` decrypts in place. While the application asks for them, this module keeps copies.

use std::collections::VecDeque;

use crate::{BufFactory, Connection};

/// The most datagrams that wait for [`Connection::sidekick_take_arrivals`]. With more, the oldest
/// is dropped.
const MAX_WAITING: usize = 1024;
/// The lengths of datagrams that parity covers, in bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 4..=1472;
/// The most buffers that wait to be used again.
const MAX_SPARE: usize = 64;

/// Datagrams that wait for the application.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    keeps: bool,
    waiting: VecDeque<Vec<u8>>,
    /// Empty buffers.
    spare: Vec<Vec<u8>>,
}

impl Arrivals {
    /// Keeps a copy of a datagram.
    pub(super) fn note(&mut self, datagram: &[u8]) {
        if !self.keeps || !LENGTHS.contains(&datagram.len()) {
            return;
        }
        if self.waiting.len() >= MAX_WAITING {
            self.pass_on(|_| {});
        }
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.extend_from_slice(datagram);
        self.waiting.push_back(buffer);
    }

    /// Passes the oldest datagram on. Returns false if there is none.
    fn pass_on(&mut self, use_it: impl FnOnce(&[u8])) -> bool {
        let Some(mut buffer) = self.waiting.pop_front() else { return false };
        use_it(&buffer);
        if self.spare.len() < MAX_SPARE {
            buffer.clear();
            self.spare.push(buffer);
        }
        true
    }
}

impl<F: BufFactory> Connection<F> {
    /// Sets whether the datagrams that arrive are kept for
    /// [`sidekick_take_arrivals`](Self::sidekick_take_arrivals).
    pub fn sidekick_keep_arrivals(&mut self, keep: bool) {
        let arrivals = &mut self.sidekick.receive.arrivals;
        if arrivals.keeps && !keep {
            *arrivals = Arrivals::default();
        }
        arrivals.keeps = keep;
    }

    /// Passes on the datagrams that have arrived since the last call, in order. Copies and rebuilt
    /// datagrams ([`sidekick_recv_copy`](Self::sidekick_recv_copy)) are not among them.
    pub fn sidekick_take_arrivals(&mut self, mut use_it: impl FnMut(&[u8])) {
        while self.sidekick.receive.arrivals.pass_on(&mut use_it) {}
    }
}
