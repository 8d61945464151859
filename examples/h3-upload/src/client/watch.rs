//! A wrapper around any tokio-quiche application that keeps a connection's last words, and counts
//! what was acknowledged.
//!
//! tokio-quiche's HTTP/3 driver does not say why a connection ended: its event channel just closes.
//! And once closed, the connection lingers for three probe timeouts (RFC 9000, section 10.2), which
//! a program about to exit has no use for. This wrapper notes the reason, and ends the worker as
//! soon as the CONNECTION_CLOSE frame is out or in.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tokio_quiche::metrics::Metrics;
use tokio_quiche::quic::{HandshakeInfo, QuicheConnection};
use tokio_quiche::{ApplicationOverQuic, QuicResult, quiche};

/// Why the connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Nothing was heard from the server for the whole idle timeout.
    TimedOut,
    /// The server closed it.
    ByServer { code: u64, reason: String },
    /// This side closed it over something the server did.
    ByUs { code: u64 },
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TimedOut => f.write_str("nothing was heard from the server any more"),
            Self::ByServer { code, reason } if reason.is_empty() => {
                write!(f, "the server closed the connection (code {code:#x})")
            }
            Self::ByServer { code, reason } => {
                write!(f, "the server closed the connection: {reason} (code {code:#x})")
            }
            Self::ByUs { code } => {
                write!(f, "the server broke the protocol and was cut off (code {code:#x})")
            }
        }
    }
}

/// What a [`Watched`] application leaves word of.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// How its connection ended.
    pub(crate) ending: OnceLock<Ending>,
    /// How many bytes the server has acknowledged, without what it brought about itself: an upload
    /// receives a fraction of what it sends, so a quarter of what came counts against it.
    pub(crate) taken: AtomicU64,
    /// Bytes of packets that the server has acknowledged.
    pub(crate) acknowledged: AtomicU64,
}

/// The wrapper: everything is handed on to `app`.
pub(crate) struct Watched<A> {
    app: A,
    seen: Arc<Seen>,
}

impl<A> Watched<A> {
    pub(crate) fn new(app: A) -> (Self, Arc<Seen>) {
        let seen = Arc::<Seen>::default();
        (Self { app, seen: Arc::clone(&seen) }, seen)
    }
}

impl<A: ApplicationOverQuic> ApplicationOverQuic for Watched<A> {
    fn on_conn_established(
        &mut self,
        conn: &mut QuicheConnection,
        info: &HandshakeInfo,
    ) -> QuicResult<()> {
        self.app.on_conn_established(conn, info)
    }

    fn should_act(&self) -> bool {
        self.app.should_act()
    }

    /// As cancel-safe as `app`'s own: nothing is kept here.
    async fn wait_for_data(&mut self, conn: &mut QuicheConnection) -> QuicResult<()> {
        // The worker flushes just before it waits: a draining connection has said its last word. A
        // `quiche::Error` is what the driver takes for an ending that needs no comment.
        if conn.is_draining() {
            return Err(quiche::Error::Done.into());
        }
        self.app.wait_for_data(conn).await
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
        if let Some(ending) = ending(conn) {
            let _ = self.seen.ending.set(ending);
        }
        self.app.on_conn_close(conn, metrics, result);
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
