//! The packets that wait between the kernel and a capture, by number.
//!
//! The kernel counts the packets that it queues for a packet socket, the capture counts those that it has handed on.
//! A message that arrives at the proxy's port has therefore a place among the packets: when the first count, as it was
//! when the message came, is reached by the second, all packets that the system took in before it have been seen. Nothing
//! else tells: an empty queue does not, since its last packet may still be in the capture thread's hands. What another
//! processor has yet to take in from another queue of the network card is as good as still on the way.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::socket;

/// What became of the packets that arrived, since the capture was opened.
#[derive(Clone, Copy, Debug, Default)]
struct Arrived {
    queued: u64,
    dropped: u64,
}

/// The packet socket's queue; shared by the thread that captures and those that want to know how far it is.
#[derive(Debug)]
pub struct Queue {
    /// A second handle on the socket.
    socket: OwnedFd,
    arrived: Mutex<Arrived>,
    /// Packets that were taken from the queue and handed on.
    delivered: AtomicU64,
    /// The count of deliveries that somebody waits for.
    awaited: AtomicU64,
    /// Held from looking at `delivered` until the wait begins, so that the wake-up is not missed.
    waiting: Mutex<()>,
    caught_up: Condvar,
}

impl Queue {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            arrived: Mutex::default(),
            delivered: AtomicU64::new(0),
            awaited: AtomicU64::new(u64::MAX),
            waiting: Mutex::default(),
            caught_up: Condvar::new(),
        }
    }

    /// Packets for which the kernel had no room in the queue, since the capture was opened.
    pub fn dropped(&self) -> u64 {
        self.arrived().dropped
    }

    fn arrived(&self) -> Arrived {
        // The kernel begins anew with each reading: two readers must not pass each other.
        let mut arrived = lock(&self.arrived);
        let (all, dropped) = socket::statistics(&self.socket);
        arrived.queued += all.saturating_sub(dropped);
        arrived.dropped += dropped;
        *arrived
    }

    /// A packet was taken from the queue and dealt with.
    pub(super) fn delivered(&self) {
        // This and the order in `catch_up` are a handshake: of the two threads, at least one sees what the other wrote.
        let delivered = self.delivered.fetch_add(1, SeqCst) + 1;
        if delivered >= self.awaited.load(SeqCst) {
            self.wake();
        }
    }

    /// The capture has ended: nobody needs to wait for it any more.
    pub(super) fn end(&self) {
        // Not the largest number, to which something might be added.
        self.delivered.store(u64::MAX / 2, SeqCst);
        self.wake();
    }

    fn wake(&self) {
        drop(lock(&self.waiting));
        self.caught_up.notify_one();
    }

    /// Waits until the packets that are queued now were handed on, but not longer than `patience`; says whether they
    /// were. For one thread at a time.
    pub fn catch_up(&self, patience: Duration) -> bool {
        let target = self.arrived().queued;
        let behind = || self.delivered.load(SeqCst) < target;
        if !behind() {
            return true;
        }
        let guard = lock(&self.waiting);
        self.awaited.store(target, SeqCst);
        let waited = self.caught_up.wait_timeout_while(guard, patience, |()| behind());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        self.awaited.store(u64::MAX, SeqCst);
        !behind()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic ends the whole daemon (see `main`), so a poisoned lock is only ever seen on the way out.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
