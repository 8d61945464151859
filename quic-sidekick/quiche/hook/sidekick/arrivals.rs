//! The datagrams that arrive, as they came from the network.
//!
//! A proxy's parity rebuilds a lost datagram from those around it. So it needs their ciphertext,
//! and `recv` decrypts in place. While the application asks for them, this module keeps copies.

use crate::{BufFactory, Connection};

/// The most datagrams that wait for [`Connection::sidekick_take_arrivals`]. With more, the oldest
/// ones are dropped, this many at a time: the others move.
const MAX_WAITING: usize = 1024;
const DROPPED: usize = 64;
/// The lengths of datagrams that parity covers, in bytes.
const LENGTHS: std::ops::RangeInclusive<usize> = 4..=1472;
/// The most buffers that wait to be used again.
const MAX_SPARE: usize = 64;

/// Datagrams that wait for the application.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    keeps: bool,
    /// The datagrams, and behind them buffers to use again.
    buffers: Vec<Vec<u8>>,
    /// The number of datagrams.
    waiting: usize,
}

impl Arrivals {
    /// Keeps a copy of a datagram, if any are kept.
    #[inline]
    pub(super) fn note(&mut self, datagram: &[u8]) {
        if self.keeps && LENGTHS.contains(&datagram.len()) {
            self.keep(datagram);
        }
    }

    fn keep(&mut self, datagram: &[u8]) {
        if self.waiting >= MAX_WAITING {
            self.buffers.rotate_left(DROPPED);
            self.waiting -= DROPPED;
        }
        match self.buffers.get_mut(self.waiting) {
            Some(buffer) => {
                buffer.clear();
                buffer.extend_from_slice(datagram);
            }
            None => self.buffers.push(datagram.to_vec()),
        }
        self.waiting += 1;
    }

    /// Passes all datagrams on, the oldest first.
    #[inline]
    fn pass_on(&mut self, mut use_it: impl FnMut(&[u8])) {
        self.buffers.iter().take(self.waiting).for_each(|datagram| use_it(datagram));
        self.waiting = 0;
        self.buffers.truncate(MAX_SPARE);
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

    /// Whether [`sidekick_take_arrivals`](Self::sidekick_take_arrivals) has something to pass on.
    #[inline]
    pub fn sidekick_has_arrivals(&self) -> bool {
        self.sidekick.receive.arrivals.waiting > 0
    }

    /// Passes on the datagrams that have arrived since the last call, in order. Copies and rebuilt
    /// datagrams ([`sidekick_recv_copy`](Self::sidekick_recv_copy)) are not among them.
    pub fn sidekick_take_arrivals(&mut self, use_it: impl FnMut(&[u8])) {
        self.sidekick.receive.arrivals.pass_on(use_it);
    }
}
