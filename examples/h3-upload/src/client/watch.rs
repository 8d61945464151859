//! A wrapper around any tokio-quiche application. It records why the connection ended, counts
//! acknowledged bytes, and keeps the connection alive.
//!
//! tokio-quiche's HTTP/3 driver does not report why a connection ended; its event channel closes.
//! A closed connection then stays for three probe timeouts (RFC 9000, section 10.2), for which the
//! program would have to wait. This wrapper records the reason, and ends the worker as soon as the
//! CONNECTION_CLOSE frame is sent or received.
//!
//! A file may pause for long at this end, where a pipe's other end decides. Neither end then has
//! anything to send, so this wrapper sends PINGs. If the server has gone, they do not hold off the
//! idle timeout, because it does not acknowledge them (RFC 9000, section 10.1).

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::{Sleep, sleep};
use tokio_quiche::metrics::Metrics;
use tokio_quiche::quic::{HandshakeInfo, QuicheConnection};
use tokio_quiche::{ApplicationOverQuic, QuicResult, quiche};

/// The interval between PINGs, unless the server's idle timeout needs a shorter one.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The shortest interval, whatever the server's idle timeout.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// PINGs within an idle timeout. Two may be lost.
const PINGS: u32 = 3;

/// Why the connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The server sent nothing for the whole idle timeout.
    TimedOut,
    /// The server closed it.
    ByServer { code: u64, reason: String },
    /// This end closed it, because of an error of the server.
    ByUs { code: u64 },
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TimedOut => f.write_str("the server stopped answering"),
            Self::ByServer { code, reason } if reason.is_empty() => {
                write!(f, "the server closed the connection (code {code:#x})")
            }
            Self::ByServer { code, reason } => {
                write!(f, "the server closed the connection: {reason} (code {code:#x})")
            }
            Self::ByUs { code } => {
                write!(
                    f,
                    "this end closed the connection: the server violated the protocol (code \
                     {code:#x})"
                )
            }
        }
    }
}

/// quiche's own counters of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent: usize,
    pub(crate) received: usize,
    pub(crate) received_bytes: u64,
    pub(crate) retransmitted: usize,
    pub(crate) lost: usize,
    pub(crate) rtt: Duration,
}

impl Counters {
    pub(crate) fn of(stats: &quiche::Stats, path: Option<&quiche::PathStats>) -> Self {
        Self {
            sent: stats.sent,
            received: stats.recv,
            received_bytes: stats.recv_bytes,
            retransmitted: stats.retrans,
            lost: stats.lost,
            rtt: path.map(|path| path.rtt).unwrap_or_default(),
        }
    }
}

/// The records of [`Watched`] about a connection.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// How its connection ended.
    pub(crate) ending: OnceLock<Ending>,
    /// Its counters when it ended.
    pub(crate) last: OnceLock<Counters>,
    /// Bytes that the server has acknowledged, minus a quarter of the received ones. An upload
    /// receives much less than it sends, so this excludes packets that the server itself provoked.
    pub(crate) taken: AtomicU64,
    /// Bytes of packets that the server has acknowledged.
    pub(crate) acknowledged: AtomicU64,
}

/// The wrapper. It passes every call on to `app`.
pub(crate) struct Watched<A> {
    app: A,
    seen: Arc<Seen>,
    /// Ends when the next PING is due. `None` before the handshake.
    pause: Option<Pin<Box<Sleep>>>,
}

impl<A> Watched<A> {
    pub(crate) fn new(app: A) -> (Self, Arc<Seen>) {
        let seen = Arc::<Seen>::default();
        (Self { app, seen: Arc::clone(&seen), pause: None }, seen)
    }
}

impl<A: ApplicationOverQuic> ApplicationOverQuic for Watched<A> {
    fn on_conn_established(
        &mut self,
        conn: &mut QuicheConnection,
        info: &HandshakeInfo,
    ) -> QuicResult<()> {
        self.pause = Some(Box::pin(sleep(pause(conn))));
        self.app.on_conn_established(conn, info)
    }

    fn should_act(&self) -> bool {
        self.app.should_act()
    }

    /// As cancel-safe as `app`'s own, because only a PING restarts the pause.
    async fn wait_for_data(&mut self, conn: &mut QuicheConnection) -> QuicResult<()> {
        // The worker flushes before it waits, so a draining connection has sent its last packet.
        // The driver accepts a `quiche::Error` as a regular end.
        if conn.is_draining() {
            return Err(quiche::Error::Done.into());
        }
        let Some(due) = &mut self.pause else { return self.app.wait_for_data(conn).await };
        tokio::select! {
            biased;
            done = self.app.wait_for_data(conn) => done,
            () = due.as_mut() => {
                conn.send_ack_eliciting()?;
                due.set(sleep(pause(conn)));
                Ok(())
            }
        }
    }

    fn process_reads(&mut self, conn: &mut QuicheConnection) -> QuicResult<()> {
        let stats = conn.stats();
        let taken = stats.acked_bytes.saturating_sub(stats.recv_bytes / 4);
        self.seen.taken.fetch_max(taken, Ordering::Relaxed);
        self.seen.acknowledged.store(stats.acked_bytes, Ordering::Relaxed);
        self.app.process_reads(conn)
    }

    fn process_writes(&mut self, conn: &mut QuicheConnection) -> QuicResult<()> {
        self.app.process_writes(conn)
    }

    fn on_conn_close<M: Metrics>(
        &mut self,
        conn: &mut QuicheConnection,
        metrics: &M,
        result: &QuicResult<()>,
    ) {
        let path = conn.path_stats().find(|path| path.active);
        let _ = self.seen.last.set(Counters::of(&conn.stats(), path.as_ref()));
        if let Some(ending) = ending(conn) {
            let _ = self.seen.ending.set(ending);
        }
        self.app.on_conn_close(conn, metrics, result);
    }
}

/// How long the connection may pause.
fn pause(conn: &QuicheConnection) -> Duration {
    let idle = conn.peer_transport_params().map_or(0, |params| params.max_idle_timeout);
    match Duration::from_millis(idle) {
        Duration::ZERO => LONGEST_PAUSE,
        idle => (idle / PINGS).clamp(SHORTEST_PAUSE, LONGEST_PAUSE),
    }
}

fn ending(conn: &QuicheConnection) -> Option<Ending> {
    if conn.is_timed_out() {
        return Some(Ending::TimedOut);
    }
    if let Some(error) = conn.peer_error() {
        let reason = String::from_utf8_lossy(&error.reason).trim().to_owned();
        return Some(Ending::ByServer { code: error.error_code, reason });
    }
    conn.local_error().map(|error| Ending::ByUs { code: error.error_code })
}
