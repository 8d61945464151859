//! The open connections of the HTTP server, and which one to close for a new one.
//!
//! A connection counts as waiting until it has sent a whole request. However many new connections
//! come, they end none that is answered.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

/// Most connections that wait for a request. For a further one, the server closes the oldest of the
/// address that has most of them.
const WAITING: usize = 64;
/// Most requests at once. The server answers no further one, unless another takes too long.
const REQUESTS: usize = 16;
/// Most of them of one address, so that it keeps no other out.
const OF_ADDRESS: usize = 12;
/// How long an answer takes at least before another request may end it, so that clients that do not
/// read keep nobody out. The status of stuck threads takes two seconds.
const SLOW: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Connections(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    /// The number of the latest connection.
    latest: u64,
    open: HashMap<u64, Connection>,
}

#[derive(Debug)]
struct Connection {
    peer: IpAddr,
    /// Since when it waits, or is answered.
    since: Instant,
    answered: bool,
    task: AbortHandle,
}

impl Connections {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection, whose task owns its guard until it ends.
    pub(crate) fn open(
        self: &Arc<Self>,
        peer: IpAddr,
        now: Instant,
        spawn: impl FnOnce(ConnectionGuard) -> AbortHandle,
    ) {
        let number = {
            let mut table = self.table();
            if table.open.values().filter(|other| !other.answered).count() >= WAITING {
                table.close_waiting();
            }
            table.latest += 1;
            table.latest
        };
        // The runtime runs the task only after this function, because it has one thread.
        let task = spawn(ConnectionGuard { connections: Arc::clone(self), number });
        let connection = Connection { peer, since: now, answered: false, task };
        self.table().open.insert(number, connection);
    }
}

impl Table {
    fn close_waiting(&mut self) {
        let waiting = || self.open.iter().filter(|(_, other)| !other.answered);
        let mut by = HashMap::<_, usize>::new();
        for (_, other) in waiting() {
            *by.entry(other.peer).or_default() += 1;
        }
        let greedy = by.into_iter().max_by_key(|(_, count)| *count).map(|(peer, _)| peer);
        let theirs = waiting().filter(|(_, other)| Some(other.peer) == greedy);
        let oldest = theirs.min_by_key(|(number, _)| **number).map(|(number, _)| *number);
        self.close(oldest);
    }

    fn close(&mut self, number: Option<u64>) {
        if let Some(closed) = number.and_then(|number| self.open.remove(&number)) {
            closed.task.abort();
        }
    }
}

/// The guard of a connection. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionGuard {
    connections: Arc<Connections>,
    number: u64,
}

impl ConnectionGuard {
    /// Notes that the connection has sent a whole request. Returns whether the server answers it.
    pub(crate) fn requested(&self, now: Instant) -> bool {
        let mut table = self.connections.table();
        let peer = table.open.get(&self.number).map(|own| own.peer);
        let answered = || table.open.iter().filter(|(_, other)| other.answered);
        if answered().filter(|(_, other)| Some(other.peer) == peer).count() >= OF_ADDRESS {
            return false;
        }
        if answered().count() >= REQUESTS {
            let slow = answered()
                .filter(|(_, other)| now.saturating_duration_since(other.since) >= SLOW)
                .min_by_key(|(_, other)| other.since)
                .map(|(number, _)| *number);
            if slow.is_none() {
                return false;
            }
            table.close(slow);
        }
        if let Some(own) = table.open.get_mut(&self.number) {
            own.answered = true;
            own.since = now;
        }
        true
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.connections.table().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections of tasks that wait forever, and their guards.
    struct Fixture {
        connections: Arc<Connections>,
        now: Instant,
    }

    impl Fixture {
        fn new() -> Self {
            Self { connections: Arc::default(), now: crate::runtime::clock() }
        }

        fn open(&self, peer: u8) -> ConnectionGuard {
            let mut made = None;
            self.connections.open([192, 0, 2, peer].into(), self.now, |guard| {
                made = Some(guard);
                tokio::spawn(std::future::pending::<()>()).abort_handle()
            });
            made.unwrap()
        }

        fn is_open(&self, guard: &ConnectionGuard) -> bool {
            self.connections.table().open.contains_key(&guard.number)
        }
    }

    #[tokio::test]
    async fn new_connections_end_no_answer_and_first_those_of_a_greedy_address() {
        let fixture = Fixture::new();
        let answered = fixture.open(1);
        assert!(answered.requested(fixture.now));
        let (calm, first) = (fixture.open(2), fixture.open(1));
        let flood: Vec<_> = (0..10 * WAITING).map(|_| fixture.open(1)).collect();
        assert!(fixture.is_open(&answered) && fixture.is_open(&calm));
        assert!(!fixture.is_open(&first), "the oldest of the flood");
        assert!(fixture.is_open(flood.last().unwrap()));
        assert_eq!(fixture.connections.table().open.len(), 1 + WAITING);
        drop(flood);
        assert_eq!(fixture.connections.table().open.len(), 2, "they ended by themselves");
    }

    #[tokio::test]
    async fn an_address_takes_a_part_of_the_requests() {
        let fixture = Fixture::new();
        let guards: Vec<_> = (0..REQUESTS).map(|_| fixture.open(1)).collect();
        let answered = guards.iter().filter(|guard| guard.requested(fixture.now)).count();
        assert_eq!(answered, OF_ADDRESS);
        assert!(fixture.open(2).requested(fixture.now));
    }

    #[tokio::test]
    async fn a_request_beyond_the_limit_ends_only_a_slow_answer() {
        let fixture = Fixture::new();
        let addresses = (1..).flat_map(|peer| [peer; OF_ADDRESS]);
        let guards: Vec<_> = addresses.take(REQUESTS).map(|peer| fixture.open(peer)).collect();
        assert!(guards.iter().all(|guard| guard.requested(fixture.now)));
        let further = fixture.open(99);
        assert!(!further.requested(fixture.now + SLOW - Duration::from_millis(1)));
        assert!(guards.iter().all(|guard| fixture.is_open(guard)));
        assert!(further.requested(fixture.now + SLOW));
        assert_eq!(guards.iter().filter(|guard| !fixture.is_open(guard)).count(), 1);
    }
}
