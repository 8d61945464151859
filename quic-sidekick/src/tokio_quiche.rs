//! The plugin for any tokio-quiche application, such as its HTTP/3 driver.
//!
//! Wrap the application before you pass it to tokio-quiche. A client:
//!
//! ```no_run
//! # async fn example(udp: tokio::net::UdpSocket) -> tokio_quiche::QuicResult<()> {
//! use quic_sidekick::{Config, Mode, tokio_quiche::assist, tune::Tune};
//! use tokio_quiche::ConnectionParams;
//! use tokio_quiche::http3::{driver::ClientH3Driver, settings::Http3Settings};
//! use tokio_quiche::quic::connect_with_config;
//! use tokio_quiche::socket::{Socket, SocketCapabilitiesBuilder};
//!
//! let mut capabilities = SocketCapabilitiesBuilder::new(&udp); // a connected tokio UdpSocket
//! capabilities.txtime()?; // for pacing. Don't add gso(): with both, the kernel holds packets
//! capabilities.ip_mtu_discover_probe()?; // Don't Fragment, for path MTU discovery
//! let capabilities = capabilities.finish();
//! let mut socket = Socket::try_from(udp)?;
//! socket.capabilities = capabilities;
//!
//! let (driver, controller) = ClientH3Driver::new(Http3Settings::default());
//! let (driver, sidekick) = assist(driver, Config::discover(Mode::Auto));
//! let mut params = ConnectionParams::default();
//! params.settings.verify_peer = true; // the default accepts any certificate
//! let tuned = Tune::client().choose(); // settings that go with `Auto`
//! tuned.apply_to_settings(&mut params.settings);
//! let connecting = connect_with_config(socket, Some("example.org"), &params, driver);
//! let connecting = tuned.connect(connecting); // sets the first round trip
//! let connection = sidekick.connect(connecting).await?; // repeats the handshake's datagrams
//! // At any time: sidekick.status()
//! # let _ = (connection, controller);
//! # Ok(())
//! # }
//! ```
//!
//! A server wraps the driver of each connection by `assist`, and needs no `connect`.
//!
//! tokio-quiche must run on the hooked quiche. That takes an entry in the application's own
//! `Cargo.toml`, in a workspace in that of the root:
//!
//! ```toml
//! [patch.crates-io]
//! # As the dependency: from the same git and rev, or by a path to quic-sidekick/quiche.
//! quiche = { git = "https://github.com/quic-sidekick/quic-sidekick", rev = "REV" }
//! ```
//!
//! Without it the application does not compile. One of the errors states that tokio-quiche does
//! not run on the hooked quiche.

use crate::driver::{AdjacentSocket, Driver, bind};
use crate::{Config, Status};
use ::tokio_quiche::metrics::Metrics;
use ::tokio_quiche::quic::{HandshakeInfo, QuicheConnection};
use ::tokio_quiche::{ApplicationOverQuic, QuicResult};
use quiche::sidekick::with_repeated_handshakes;
use socket2::SockRef;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::net::UdpSocket;

/// Wraps an application, so that a proxy's reports help its connection. The handle reports the
/// status. A client also connects through [`Handle::connect`].
pub fn assist<A: ApplicationOverQuic>(app: A, config: Config) -> (Assisted<A>, Handle) {
    let proxy = config.proxy;
    let repeats_handshake = config.repeats_handshake();
    let driver = Driver::new(config);
    let handle = Handle {
        repeats_handshake,
        shared: Arc::new(Shared {
            status: Mutex::new(driver.status()),
            socket_errors: AtomicU64::new(0),
        }),
    };
    (Assisted { app, driver, proxy, second: None, handle: handle.clone(), copies: 0 }, handle)
}

/// Reports an assisted connection's status, while it runs and after.
#[derive(Clone, Debug)]
pub struct Handle {
    repeats_handshake: bool,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    status: Mutex<Status>,
    socket_errors: AtomicU64,
}

impl Handle {
    /// Awaits `connecting`, such as the future of `tokio_quiche::quic::connect_with_config`. The
    /// client that this future creates repeats the datagrams of its handshake, if the configuration
    /// demands it ([`Config::repeat_handshake`], [`Mode::Auto`](crate::Mode::Auto)). `assist`
    /// cannot do that: tokio-quiche passes a connection to the application only after its
    /// handshake, so the plugin attaches late ([`Driver::attach`]).
    pub async fn connect<F: Future>(&self, connecting: F) -> F::Output {
        let mut connecting = pin!(connecting);
        poll_fn(|context| match self.repeats_handshake {
            true => with_repeated_handshakes(|| connecting.as_mut().poll(context)),
            false => connecting.as_mut().poll(context),
        })
        .await
    }

    /// The present status; after the connection ended, its last one.
    #[must_use]
    pub fn status(&self) -> Status {
        *self.shared.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of errors that the network reported at the adjacent socket. They do not end the
    /// help, because anyone can forge them.
    #[must_use]
    pub fn socket_errors(&self) -> u64 {
        self.shared.socket_errors.load(Ordering::Relaxed)
    }

    fn publish(&self, driver: &Driver<UdpSocket>) {
        *self.shared.status.lock().unwrap_or_else(PoisonError::into_inner) = driver.status();
        self.shared.socket_errors.store(driver.socket_errors(), Ordering::Relaxed);
    }
}

impl AdjacentSocket for UdpSocket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }

    /// `try_send_to` would refuse until tokio's reactor has seen the socket. The first message to
    /// each proxy would then count as lost. The system's socket never blocks either.
    fn send_to(&self, datagram: &[u8], destination: SocketAddr) -> io::Result<usize> {
        SockRef::from(self).send_to(datagram, &destination.into())
    }

    fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.try_recv_from(buffer)
    }
}

/// An application whose connection is assisted; see [`assist`].
#[derive(Debug)]
pub struct Assisted<A> {
    app: A,
    driver: Driver<UdpSocket>,
    proxy: Option<SocketAddr>,
    /// The socket of a second uplink, until the connection is attached.
    second: Option<UdpSocket>,
    handle: Handle,
    /// The copies that the connection has taken from a proxy.
    copies: u64,
}

impl<A> Assisted<A> {
    /// Adds a second uplink, as [`Driver::attach_second`] does.
    #[must_use]
    pub fn with_second_uplink(self, socket: UdpSocket) -> Self {
        Self { second: Some(socket), ..self }
    }
}

/// A connection of the hooked quiche. Requiring it of tokio-quiche's connections gives a clear
/// compiler error.
#[diagnostic::on_unimplemented(
    message = "tokio-quiche does not run on the hooked quiche",
    label = "this is the connection of another quiche",
    note = "add the quiche of quic-sidekick to [patch.crates-io] in the root Cargo.toml",
    note = "then run `cargo update quiche@0.30.0`: Cargo.lock may still name the stock one"
)]
trait Hooked {}

impl<F: quiche::BufFactory> Hooked for quiche::Connection<F> {}

const fn requires_the_hooked_quiche<C: Hooked>() {}
const _: () = requires_the_hooked_quiche::<QuicheConnection>();

#[allow(
    clippy::disallowed_methods,
    reason = "the worker loop of tokio-quiche is an edge: it uses the real clock"
)]
fn clock() -> Instant {
    Instant::now()
}

/// Resolves when a socket for proxies is readable, or at the deadline. Cancel safe: it reads
/// nothing.
async fn wake([first, second]: [Option<&UdpSocket>; 2], deadline: Option<Instant>) {
    let readable = async |socket: Option<&UdpSocket>| match socket {
        // The next read reports an error of the socket, too.
        Some(socket) => drop(socket.readable().await),
        None => std::future::pending().await,
    };
    let due = async {
        match deadline {
            Some(at) => tokio::time::sleep_until(at.into()).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = readable(first) => {}
        () = readable(second) => {}
        () = due => {}
    }
}

impl<A: ApplicationOverQuic> ApplicationOverQuic for Assisted<A> {
    fn on_conn_established(
        &mut self,
        conn: &mut QuicheConnection,
        info: &HandshakeInfo,
    ) -> QuicResult<()> {
        match bind(self.proxy, conn).and_then(UdpSocket::from_std) {
            Ok(socket) => {
                self.driver.attach_with(conn, socket);
                if let Some(second) = self.second.take() {
                    self.driver.attach_second(second, clock());
                }
            }
            Err(error) => {
                tracing::warn!(%error, proxy = ?self.proxy, "no adjacent socket: unassisted");
                self.driver.abandon();
                self.second = None;
            }
        }
        self.handle.publish(&self.driver);
        self.app.on_conn_established(conn, info)
    }

    fn should_act(&self) -> bool {
        self.app.should_act()
    }

    async fn wait_for_data(&mut self, conn: &mut QuicheConnection) -> QuicResult<()> {
        loop {
            // The worker has just sent. It sends the rest after the next round.
            let timeout = conn.timeout_instant();
            let again = self.driver.on_sent(conn, clock());
            self.handle.publish(&self.driver);
            if again || conn.timeout_instant() != timeout {
                return Ok(());
            }
            let sockets = [self.driver.socket(), self.driver.second_socket()];
            let deadline = self.driver.poll_timeout();
            tokio::select! {
                result = self.app.wait_for_data(conn) => return result,
                () = wake(sockets, deadline) => {}
            }
            // Each round of the worker delays a paced packet. Most messages of a proxy need none.
            // A flood of them needs one: the worker serves the connection in between.
            let now = clock();
            let again = self.driver.receive(conn, now);
            let floods = self.driver.poll_timeout().is_some_and(|due| due <= now);
            if again || floods || conn.timeout_instant() != timeout {
                return Ok(());
            }
        }
    }

    fn process_reads(&mut self, conn: &mut QuicheConnection) -> QuicResult<()> {
        self.app.process_reads(conn)
    }

    /// tokio-quiche calls `process_reads` only after a packet of the peer's. A proxy's copy may
    /// hold the last data of a stream.
    fn process_writes(&mut self, conn: &mut QuicheConnection) -> QuicResult<()> {
        self.driver.receive(conn, clock());
        self.handle.publish(&self.driver);
        let copies = conn.sidekick_copies();
        if std::mem::replace(&mut self.copies, copies) != copies {
            self.app.process_reads(conn)?;
        }
        self.app.process_writes(conn)
    }

    fn on_conn_close<M: Metrics>(
        &mut self,
        conn: &mut QuicheConnection,
        metrics: &M,
        connection_result: &QuicResult<()>,
    ) {
        self.driver.stop();
        self.handle.publish(&self.driver);
        self.app.on_conn_close(conn, metrics, connection_result);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;
    use ::tokio_quiche::buf_factory::BufFactory;
    use ::tokio_quiche::metrics::DefaultMetrics;

    /// Counts how often it may read.
    #[derive(Default)]
    struct Reader(u32);

    impl ApplicationOverQuic for Reader {
        fn on_conn_established(
            &mut self,
            _: &mut QuicheConnection,
            _: &HandshakeInfo,
        ) -> QuicResult<()> {
            Ok(())
        }

        fn should_act(&self) -> bool {
            true
        }

        async fn wait_for_data(&mut self, _: &mut QuicheConnection) -> QuicResult<()> {
            Ok(())
        }

        fn process_reads(&mut self, _: &mut QuicheConnection) -> QuicResult<()> {
            self.0 += 1;
            Ok(())
        }

        fn process_writes(&mut self, _: &mut QuicheConnection) -> QuicResult<()> {
            Ok(())
        }
    }

    /// A client's connection that sends nothing.
    fn connection() -> QuicheConnection {
        let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION).unwrap();
        let id = quiche::ConnectionId::from_ref(&[7; 16]);
        let address = SocketAddr::from(([127, 0, 0, 1], 443));
        quiche::connect_with_buffer_factory::<BufFactory>(None, &id, address, address, &mut config)
            .unwrap()
    }

    #[test]
    fn the_application_reads_what_copies_brought() {
        let mut conn = connection();
        let (mut assisted, handle) = assist(Reader::default(), Config::discover(Mode::Auto));
        assisted.driver.abandon();
        conn.sidekick_report_gaps();
        assisted.process_writes(&mut conn).unwrap();
        assert_eq!(assisted.app.0, 0, "nothing arrived");
        let address = SocketAddr::from(([127, 0, 0, 1], 443));
        let info = quiche::RecvInfo { from: address, to: address };
        let _ = conn.sidekick_recv_copy(&mut [0x40; 40], info);
        assisted.process_writes(&mut conn).unwrap();
        assisted.process_writes(&mut conn).unwrap();
        assert_eq!(assisted.app.0, 1, "once");
        assisted.on_conn_close(&mut conn, &DefaultMetrics, &Ok(()));
        assert_eq!(handle.socket_errors(), 0);
    }

    #[tokio::test]
    async fn a_new_adjacent_socket_sends_at_once() {
        let adjacent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let proxy = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let proxy_address = proxy.local_addr().unwrap();
        // The reactor runs only when this task waits, so it has not seen the socket yet.
        assert_eq!(AdjacentSocket::send_to(&adjacent, b"hello", proxy_address).unwrap(), 5);
        let mut received = [0; 8];
        assert_eq!(proxy.recv(&mut received).unwrap(), 5);
    }
}
