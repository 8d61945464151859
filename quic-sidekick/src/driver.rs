//! The plugin with its adjacent socket, which every event loop needs.

use crate::{Config, MAX_DATAGRAM_LEN, Route, Sidekick, Status, Transmit};
use quiche::{BufFactory, Connection};
use sidekick_protocol::is_network_error;
use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::{Deref, DerefMut};
use std::time::Instant;

/// The most datagrams that one call of [`Driver::receive`] reads of a socket. So a flood at the
/// adjacent socket does not delay the connection. The next call is due at once, and reads the rest.
const MAX_RECEIVED: usize = 32;

/// A UDP socket that never blocks, for the messages to and from a proxy.
pub trait AdjacentSocket {
    /// The address that the socket is bound to.
    ///
    /// # Errors
    /// The system's error.
    fn local_addr(&self) -> io::Result<SocketAddr>;

    /// Sends a datagram.
    ///
    /// # Errors
    /// The system's error. The datagram counts as lost.
    fn send_to(&self, datagram: &[u8], destination: SocketAddr) -> io::Result<usize>;

    /// Receives a datagram, and returns its length and source.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if no datagram waits; otherwise the
    /// system's error.
    fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)>;
}

impl AdjacentSocket for UdpSocket {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }

    fn send_to(&self, datagram: &[u8], destination: SocketAddr) -> io::Result<usize> {
        self.send_to(datagram, destination)
    }

    fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_from(buffer)
    }
}

/// The plugin for one connection in an event loop, with the socket for its proxy. Start here.
///
/// [`attach`](Self::attach) the connection before its handshake. In each round of the loop call
/// [`receive`](Self::receive), send all that `Connection::send` returns, and call
/// [`on_sent`](Self::on_sent). Then wait for the connection's socket, for
/// [`socket`](Self::socket), and until the earlier of `Connection::timeout_instant` and
/// [`poll_timeout`](Self::poll_timeout). The crate's page shows the loop.
///
/// A client with a second uplink to the same proxy, such as LTE beside Wi-Fi, gives the driver a
/// socket there ([`attach_second`](Self::attach_second)). What the first uplink loses then goes by
/// the second, and [`Config::carry`] lets it carry the connection while the first is silent.
///
/// Keep a driver as long as its connection, and call [`stop`](Self::stop) once, before
/// `Connection::close`. A driver that is dropped tells the proxy nothing: the proxy forgets the
/// session after a minute.
///
/// A driver may move to another thread with its connection (it is `Send`). Threads cannot share it
/// by reference (it is not `Sync`): it caches the next timeout in a cell.
#[derive(Debug)]
pub struct Driver<S = UdpSocket> {
    sidekick: Timed,
    proxy: Option<SocketAddr>,
    socket: Option<S>,
    second: Option<S>,
    socket_errors: u64,
    /// When the latest call of [`Driver::receive`] was, if it left datagrams unread.
    unread: Option<Instant>,
    buffer: Box<[u8; MAX_DATAGRAM_LEN + 1]>,
}

impl Driver<UdpSocket> {
    /// Binds the adjacent socket to the connection's local address, which may be unspecified, and a
    /// port of its own, and attaches the connection with it. The socket is non-blocking; wrap its
    /// descriptor (for mio, in a `SourceFd`) to wait for it. A driver serves one connection, and
    /// attaches it once.
    ///
    /// Attach before the handshake. Later, the client does not repeat its handshake, and what was
    /// sent before gets no help; all else works.
    ///
    /// # Errors
    /// - The system refuses the socket. The connection then continues unassisted, whatever follows.
    /// - [`io::ErrorKind::AlreadyExists`]: the driver attached a connection before, or its help has
    ///   ended. Nothing changes.
    pub fn attach<F: BufFactory>(&mut self, conn: &mut Connection<F>) -> io::Result<()> {
        if self.socket.is_some() || self.sidekick.has_stopped() {
            let sentence = "the driver attached a connection before, or its help has ended";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, sentence));
        }
        let socket = bind(self.proxy, conn).inspect_err(|_| self.abandon())?;
        self.attach_with(conn, socket);
        Ok(())
    }
}

impl<S: AdjacentSocket> Driver<S> {
    /// The plugin and its socket for one connection.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let proxy = config.proxy;
        Self::of(Sidekick::new(config), proxy)
    }

    /// The same, with random numbers that follow from `seed`, for a reproducible simulation.
    /// Elsewhere use [`Driver::new`]: anyone who predicts the seed can impersonate the proxy.
    #[must_use]
    pub fn with_seed(config: Config, seed: [u8; 32]) -> Self {
        let proxy = config.proxy;
        Self::of(Sidekick::with_seed(config, seed), proxy)
    }

    fn of(sidekick: Sidekick, proxy: Option<SocketAddr>) -> Self {
        let buffer = Box::new([0; MAX_DATAGRAM_LEN + 1]);
        let sidekick = Timed { sidekick, timeout: Cell::default() };
        let (socket, second) = (None, None);
        Self { sidekick, proxy, socket, second, socket_errors: 0, unread: None, buffer }
    }

    /// Attaches the connection with a given adjacent socket. The proxy looks for the connection's
    /// packets under that socket's IP address.
    pub fn attach_with<F: BufFactory>(&mut self, conn: &mut Connection<F>, socket: S) {
        self.sidekick.set_adjacent_port(socket.local_addr().map_or(0, |local| local.port()));
        self.sidekick.attach(conn);
        self.socket = Some(socket);
    }

    /// Adds a second uplink to the same proxy, with a non-blocking socket that sends by it: one
    /// that is bound to its interface (on Linux by `SO_BINDTODEVICE`, on Android by
    /// `Network.bindSocket`), because by its address alone the kernel may choose another. Its
    /// packets need a route to the proxy. It serves the modes `auto` and `receive`. Call it at any
    /// time, and wait for [`second_socket`](Self::second_socket), too.
    pub fn attach_second(&mut self, socket: S, now: Instant) {
        // Another one than before has to prove itself.
        self.sidekick.set_second_uplink(false, now);
        self.sidekick.set_second_uplink(true, now);
        self.second = Some(socket);
    }

    /// Takes the second uplink away, such as one whose interface is gone. The connection goes on by
    /// the first.
    pub fn detach_second(&mut self, now: Instant) {
        self.sidekick.set_second_uplink(false, now);
        self.second = None;
    }

    /// Reads the adjacent socket, and that of a second uplink, and serves timers. Call it in each
    /// round, before `Connection::send`. If it leaves datagrams unread, because many wait,
    /// `poll_timeout` is due at once, so a loop that waits for edges misses none. Streams may be
    /// readable after it, because a proxy's copies fill gaps in what the connection received.
    /// Returns whether `Connection::send` has something to send because of it, such as the frames
    /// of lost packets.
    pub fn receive<F: BufFactory>(&mut self, conn: &mut Connection<F>, now: Instant) -> bool {
        let is_due = |sidekick: &Timed| sidekick.poll_timeout().is_some_and(|at| at <= now);
        let due = is_due(&self.sidekick);
        let mut again = self.read(conn, now);
        // A datagram may have stopped the timer that was due. A timer that it started waits for the
        // next round, because the connection first sends what the datagram made lost.
        if due && is_due(&self.sidekick) {
            again |= self.sidekick.on_timeout(conn, now);
        }
        again
    }

    /// Reads the sockets. One that fails is used no longer.
    fn read<F: BufFactory>(&mut self, conn: &mut Connection<F>, now: Instant) -> bool {
        self.unread = None;
        let mut again = false;
        if let Some(socket) = self.socket.take() {
            match self.read_from(&socket, &mut again, conn, now) {
                Ok(()) => self.socket = Some(socket),
                Err(error) => {
                    tracing::warn!(%error, proxy = ?self.proxy, "the adjacent socket failed: unassisted");
                    self.abandon();
                }
            }
        }
        if let Some(socket) = self.second.take() {
            match self.read_from(&socket, &mut again, conn, now) {
                Ok(()) => self.second = Some(socket),
                Err(error) => {
                    tracing::warn!(%error, "the socket of the second uplink failed: one uplink");
                    self.detach_second(now);
                }
            }
        }
        again
    }

    /// Reads what waits at a socket. Sets `again` if the connection has something to send.
    fn read_from<F: BufFactory>(
        &mut self,
        socket: &S,
        again: &mut bool,
        conn: &mut Connection<F>,
        now: Instant,
    ) -> io::Result<()> {
        for _ in 0..MAX_RECEIVED {
            match socket.recv_from(self.buffer.as_mut_slice()) {
                Ok((len, source)) => {
                    let datagram = self.buffer.get(..len).unwrap_or_default();
                    *again |= self.sidekick.handle_input(datagram, source, conn, now);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Anyone can forge ICMP messages, so they do not end the help.
                Err(error) if is_network_error(&error) => self.socket_errors += 1,
                Err(error) => return Err(error),
            }
        }
        self.unread = Some(now);
        Ok(())
    }

    /// Records the packets that the connection has sent, and sends messages to the proxy. Call it
    /// in each round, after the application sent all that `Connection::send` returned. If it
    /// returns true, the connection has changed: read the streams, because parity may have rebuilt
    /// a packet, and call `Connection::send` and this again.
    ///
    /// A packet that the application holds back beyond this call counts as lost before the proxy. A
    /// loop that paces therefore asks [`paced_until`](crate::tune::paced_until) before it calls
    /// `Connection::send`.
    #[must_use = "if true, the connection has more to send: call its `send` and this again"]
    pub fn on_sent<F: BufFactory>(&mut self, conn: &mut Connection<F>, now: Instant) -> bool {
        let again = self.sidekick.on_sent(conn, now);
        // A message seldom waits, and asking for one takes longer.
        if !self.sidekick.is_silent() {
            self.transmit();
        }
        again
    }

    /// Sends the waiting messages to proxies. The protocol recovers from a message that the system
    /// does not send as from one that the network loses.
    #[cold]
    fn transmit(&mut self) {
        if self.socket.is_none() {
            return;
        }
        while let Some(transmit) = self.sidekick.poll_transmit(self.buffer.as_mut_slice()) {
            let Transmit { destination, size, route, .. } = transmit;
            let socket = if route == Route::SecondLink { &self.second } else { &self.socket };
            let Some(socket) = socket else { continue };
            let message = self.buffer.get(..size).unwrap_or_default();
            if let Err(error) = socket.send_to(message, destination) {
                self.socket_errors += u64::from(is_network_error(&error));
                tracing::debug!(%error, %destination, "a message to the proxy was not sent");
            }
        }
    }

    /// When [`Driver::receive`] is due, if nothing happens before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.socket.as_ref()?;
        // An event loop that waits for edges gets no event for datagrams that already wait.
        self.unread.or_else(|| self.sidekick.poll_timeout())
    }

    /// The adjacent socket, to wait for; `None` before [`attach`](Driver::attach), and after the
    /// socket failed. It stays the same in between, so a loop registers it once.
    #[must_use]
    pub fn socket(&self) -> Option<&S> {
        self.socket.as_ref()
    }

    /// The socket of the second uplink, to wait for; `None` without one.
    #[must_use]
    pub fn second_socket(&self) -> Option<&S> {
        self.second.as_ref()
    }

    /// The number of errors that the network reported at these sockets. They do not end the
    /// help, because anyone can forge them.
    #[must_use]
    pub fn socket_errors(&self) -> u64 {
        self.socket_errors
    }

    /// Whether the connection is assisted, and its counters.
    #[must_use]
    pub fn status(&self) -> Status {
        self.sidekick.status()
    }

    /// Ends the session with the proxy, and tells it so at once. Call it once, before
    /// `Connection::close`. Afterwards [`status`](Self::status) still has the counters and the last
    /// [`Assistance`](crate::Assistance), but read its other parts before. If the connection goes
    /// on without help, call [`receive`](Self::receive) and [`on_sent`](Self::on_sent) once more at
    /// least: they end what the help has changed in the connection, such as held acknowledgements.
    pub fn stop(&mut self) {
        self.sidekick.stop();
        self.transmit();
    }

    /// Continues without a proxy, because the adjacent socket failed or the system refused it.
    pub fn abandon(&mut self) {
        self.sidekick.abandon();
        (self.socket, self.second) = (None, None);
    }
}

// Compiles only if a driver may move to another thread.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Driver>();
};

/// The plugin, and its timeout since it last changed. A loop asks for the timeout before it waits,
/// and the next [`Driver::receive`] asks again.
#[derive(Debug)]
struct Timed {
    sidekick: Sidekick,
    /// `None` until it is computed.
    timeout: Cell<Option<Option<Instant>>>,
}

impl Timed {
    /// As [`Sidekick::poll_timeout`].
    fn poll_timeout(&self) -> Option<Instant> {
        let timeout = self.timeout.get().unwrap_or_else(|| self.sidekick.poll_timeout());
        self.timeout.set(Some(timeout));
        timeout
    }
}

impl Deref for Timed {
    type Target = Sidekick;

    fn deref(&self) -> &Sidekick {
        &self.sidekick
    }
}

impl DerefMut for Timed {
    /// Any change of the plugin may change its timeout.
    fn deref_mut(&mut self) -> &mut Sidekick {
        self.timeout.set(None);
        &mut self.sidekick
    }
}

/// Binds the adjacent socket to the source address of the connection's packets, because the proxy
/// looks for the flow there. If the proxy's address is of the other family, the system chooses, and
/// the proxy refuses the terms.
pub(crate) fn bind<F: BufFactory>(
    proxy: Option<SocketAddr>,
    conn: &Connection<F>,
) -> io::Result<UdpSocket> {
    let path = conn.path_stats().find(|path| path.active);
    let local = path.map(|path| path.local_addr.ip().to_canonical());
    let v4 = proxy.map(|proxy| proxy.is_ipv4()).or(local.map(|ip| ip.is_ipv4())).unwrap_or(true);
    let unspecified =
        if v4 { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
    let ip = local.filter(|ip| ip.is_ipv4() == v4).unwrap_or(unspecified);
    let socket = UdpSocket::bind((ip, 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mode;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "any instant will do")]
    fn a_timeout_is_kept_until_the_plugin_changes() {
        let proxy = SocketAddr::from(([192, 0, 2, 254], 5252));
        let mut driver: Driver = Driver::with_seed(Config::new(proxy, Mode::Auto), [7; 32]);
        assert_eq!(driver.sidekick.poll_timeout(), None);
        assert_eq!(driver.sidekick.timeout.get(), Some(None));
        driver.sidekick.timeout.set(Some(Some(Instant::now())));
        assert_ne!(driver.sidekick.poll_timeout(), None);
        driver.stop();
        assert_eq!(driver.sidekick.poll_timeout(), None);
    }

    /// A socket that fails, or has nothing.
    struct Broken(bool);

    impl AdjacentSocket for Broken {
        fn local_addr(&self) -> io::Result<SocketAddr> {
            Ok(SocketAddr::from(([127, 0, 0, 1], 9)))
        }

        fn send_to(&self, datagram: &[u8], _: SocketAddr) -> io::Result<usize> {
            Ok(datagram.len())
        }

        fn recv_from(&self, _: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
            let is_broken = self.0;
            Err(if is_broken { io::ErrorKind::InvalidInput } else { io::ErrorKind::WouldBlock }
                .into())
        }
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "any instant will do")]
    fn a_second_uplink_that_fails_leaves_the_first() {
        let (mut config, now) =
            (quiche::Config::new(quiche::PROTOCOL_VERSION).unwrap(), Instant::now());
        let id = quiche::ConnectionId::from_vec(vec![1; 16]);
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut conn = quiche::connect(None, &id, local, local, &mut config).unwrap();
        let mut driver = Driver::new(Config::discover(Mode::Auto));
        driver.attach_with(&mut conn, Broken(false));
        for is_broken in [false, true] {
            driver.attach_second(Broken(is_broken), now);
            driver.receive(&mut conn, now);
            assert_eq!(driver.second_socket().is_none(), is_broken);
            assert!(driver.socket().is_some());
        }
        driver.attach_second(Broken(false), now);
        driver.detach_second(now);
        assert!(driver.second_socket().is_none() && driver.socket().is_some());
    }

    /// A second socket would replace the one that the application polls.
    #[test]
    fn a_driver_attaches_once() {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION).unwrap();
        let id = quiche::ConnectionId::from_vec(vec![1; 16]);
        let mut conn = quiche::connect(None, &id, loopback(0), loopback(443), &mut config).unwrap();
        let terms = Config::new(loopback(5252), Mode::Reinject);
        let mut attached: Driver = Driver::new(terms.clone());
        attached.attach(&mut conn).unwrap();
        let mut refuses = |driver: &mut Driver, because: &str| {
            let kind = driver.attach(&mut conn).map_err(|error| error.kind());
            assert_eq!(kind, Err(io::ErrorKind::AlreadyExists), "{because}");
        };
        let port = attached.socket().and_then(|socket| socket.local_addr().ok());
        refuses(&mut attached, "it is attached");
        assert_eq!(attached.socket().and_then(|socket| socket.local_addr().ok()), port);
        let mut abandoned: Driver = Driver::new(terms);
        abandoned.abandon();
        refuses(&mut abandoned, "the system refused the socket");
    }
}
