//! Sidekick for any tokio-quiche application, such as its HTTP/3 driver.
//!
//! Wrap the application where it is handed to tokio-quiche:
//!
//! ```no_run
//! # use quic_sidekick::{Config, Mode};
//! # fn example(proxy: std::net::SocketAddr) {
//! use tokio_quiche::http3::{driver::{ClientH3Driver, H3Driver}, settings::Http3Settings};
//!
//! let (driver, controller) = ClientH3Driver::new(Http3Settings::default());
//! let (driver, sidekick) = quic_sidekick::tokio_quiche::assist(driver, Config::new(proxy, Mode::Pacubic));
//! // ... connect with `driver`, and ask for `sidekick.status()` when you like.
//! # }
//! ```
//!
//! tokio-quiche has to run on the hooked quiche. That takes one line in the application's own
//! `Cargo.toml`:
//!
//! ```toml
//! [patch.crates-io]
//! quiche = { git = "https://github.com/quic-sidekick/quic-sidekick" } # or a path to quic-sidekick/quiche
//! ```
//!
//! Without it the application does not compile; one of the errors says that tokio-quiche does not
//! run on the hooked quiche.

use crate::{Config, MAX_DATAGRAM_LEN, Sidekick, Status};
use ::tokio_quiche::metrics::Metrics;
use ::tokio_quiche::quic::{HandshakeInfo, QuicheConnection};
use ::tokio_quiche::{ApplicationOverQuic, QuicResult};
use sidekick_protocol::is_network_error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::net::UdpSocket;

/// Wraps an application, so that a proxy's reports help its connection. The handle tells how that
/// goes.
///
/// If the handshake is to be repeated (`Config::repeat_handshake`,
/// [`Mode::Auto`](crate::Mode::Auto)), all clients that this process makes from here on do so:
/// tokio-quiche lets no application near a connection before its handshake is over.
pub fn assist<A: ApplicationOverQuic>(app: A, config: Config) -> (Assisted<A>, Handle) {
    let proxy = config.proxy;
    if config.repeats_handshake() {
        quiche::sidekick::repeat_handshakes(true);
    }
    let sidekick = Sidekick::new(config);
    let handle =
        Handle { status: Arc::new(Mutex::new(sidekick.status())), socket_errors: Arc::default() };
    (Assisted { app, sidekick, proxy, adjacent: None, handle: handle.clone() }, handle)
}

/// Tells how an assisted connection does, while it runs and after.
#[derive(Clone, Debug)]
pub struct Handle {
    status: Arc<Mutex<Status>>,
    socket_errors: Arc<AtomicU64>,
}

impl Handle {
    /// The status at this moment, or at the connection's end.
    #[must_use]
    pub fn status(&self) -> Status {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Errors that the network reported at the socket for the proxy. They end nothing, since anyone
    /// can forge them.
    #[must_use]
    pub fn socket_errors(&self) -> u64 {
        self.socket_errors.load(Ordering::Relaxed)
    }

    /// Whether the network reported this error, which is counted then.
    fn passes_over(&self, error: &io::Error) -> bool {
        let network = is_network_error(error);
        self.socket_errors.fetch_add(network.into(), Ordering::Relaxed);
        network
    }
}

/// An application whose connection is assisted; see [`assist`].
#[derive(Debug)]
pub struct Assisted<A> {
    app: A,
    sidekick: Sidekick,
    proxy: Option<SocketAddr>,
    adjacent: Option<UdpSocket>,
    handle: Handle,
}

/// Datagrams taken in from the adjacent socket at a time, so that a flood there does not hold up
/// the connection.
const MAX_RECEIVED: usize = 32;

/// Stands for the hooked quiche's connections; tokio-quiche's must be such. It is there for its
/// message.
#[diagnostic::on_unimplemented(
    message = "tokio-quiche does not run on the hooked quiche",
    label = "this is the connection of another quiche",
    note = "add the quiche of quic-sidekick to [patch.crates-io] in the root Cargo.toml, as its README shows"
)]
trait Hooked {}

impl<F: quiche::BufFactory> Hooked for quiche::Connection<F> {}

const fn requires_the_hooked_quiche<C: Hooked>() {}
const _: () = requires_the_hooked_quiche::<QuicheConnection>();

#[allow(
    clippy::disallowed_methods,
    reason = "the worker loop of tokio-quiche is an edge: it runs on the real clock"
)]
fn clock() -> Instant {
    Instant::now()
}

impl<A> Assisted<A> {
    /// The adjacent socket, on the address that the connection is sent from: the proxy looks for
    /// the flow there. A proxy that is not known yet is reached as the server is.
    fn open(&self, conn: &QuicheConnection) -> io::Result<UdpSocket> {
        let path = conn.path_stats().find(|path| path.active);
        let local = path.map(|path| path.local_addr.ip().to_canonical());
        let v4 = self
            .proxy
            .map(|proxy| proxy.is_ipv4())
            .or(local.map(|ip| ip.is_ipv4()))
            .unwrap_or(true);
        let unspecified =
            if v4 { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
        let ip = local.filter(|ip| ip.is_ipv4() == v4);
        let socket = std::net::UdpSocket::bind((ip.unwrap_or(unspecified), 0))?;
        socket.set_nonblocking(true)?;
        UdpSocket::from_std(socket)
    }

    /// Sends what waits for the proxy, and publishes the status. A message that cannot be sent now
    /// is as good as lost on the way, which the protocol reckons with.
    fn flush(&mut self) {
        let mut message = [0; MAX_DATAGRAM_LEN];
        while let Some((len, proxy)) = self.sidekick.send(&mut message) {
            let sent =
                self.adjacent.as_ref().map(|socket| socket.try_send_to(&message[..len], proxy));
            if let Some(Err(error)) = sent {
                self.handle.passes_over(&error);
                tracing::debug!(%error, %proxy, "a message to the proxy was not sent");
            }
        }
        *self.handle.status.lock().unwrap_or_else(PoisonError::into_inner) = self.sidekick.status();
    }

    /// Takes in datagrams that wait at the adjacent socket; what is left wakes the worker again.
    fn receive(&mut self, conn: &mut QuicheConnection) {
        let mut datagram = [0; MAX_DATAGRAM_LEN + 1];
        for _ in 0..MAX_RECEIVED {
            let Some(socket) = &self.adjacent else { return };
            match socket.try_recv_from(&mut datagram) {
                // The worker sends after each of its rounds, whether or not there is a reason.
                Ok((len, from)) => drop(self.sidekick.recv(&datagram[..len], from, conn, clock())),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if self.handle.passes_over(&error) => {
                    tracing::debug!(%error, "the network reports an error at the socket for the proxy");
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, proxy = ?self.proxy, "the socket for the proxy failed: unassisted");
                    self.sidekick.abandon();
                    self.adjacent = None;
                }
            }
        }
    }
}

/// Resolves when the adjacent socket can be read or the sidekick's time has come. Cancel safe: it
/// takes nothing in.
async fn news(adjacent: Option<&UdpSocket>, deadline: Option<Instant>) {
    let readable = async {
        match adjacent {
            // An error of the socket shows again when it is read.
            Some(socket) => drop(socket.readable().await),
            None => std::future::pending().await,
        }
    };
    let due = async {
        match deadline {
            Some(at) => tokio::time::sleep_until(at.into()).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = readable => {}
        () = due => {}
    }
}

impl<A: ApplicationOverQuic> ApplicationOverQuic for Assisted<A> {
    fn on_conn_established(
        &mut self,
        conn: &mut QuicheConnection,
        info: &HandshakeInfo,
    ) -> QuicResult<()> {
        match self.open(conn) {
            Ok(socket) => {
                self.sidekick
                    .set_adjacent_port(socket.local_addr().map_or(0, |local| local.port()));
                self.adjacent = Some(socket);
                self.sidekick.attach(conn);
            }
            Err(error) => {
                tracing::warn!(%error, proxy = ?self.proxy, "no socket for the proxy: unassisted");
                self.sidekick.abandon();
            }
        }
        self.app.on_conn_established(conn, info)
    }

    fn should_act(&self) -> bool {
        self.app.should_act()
    }

    async fn wait_for_data(&mut self, conn: &mut QuicheConnection) -> QuicResult<()> {
        // The worker has just sent: take note of it before the timers are read.
        self.sidekick.on_sent(conn, clock());
        self.flush();
        let deadline = self.sidekick.timeout_instant();
        tokio::select! {
            result = self.app.wait_for_data(conn) => result,
            // `process_writes` comes next, and does the rest.
            () = news(self.adjacent.as_ref(), deadline) => Ok(()),
        }
    }

    fn process_reads(&mut self, conn: &mut QuicheConnection) -> QuicResult<()> {
        self.app.process_reads(conn)
    }

    fn process_writes(&mut self, conn: &mut QuicheConnection) -> QuicResult<()> {
        self.receive(conn);
        self.sidekick.on_timeout(conn, clock());
        self.flush();
        self.app.process_writes(conn)
    }

    fn on_conn_close<M: Metrics>(
        &mut self,
        conn: &mut QuicheConnection,
        metrics: &M,
        connection_result: &QuicResult<()>,
    ) {
        self.sidekick.stop();
        self.flush();
        self.app.on_conn_close(conn, metrics, connection_result);
    }
}
