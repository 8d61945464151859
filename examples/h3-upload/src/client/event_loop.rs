//! One connection on quiche and tokio: its sockets, its timers, the plugin, and the application
//! that runs on it.
//!
//! A file may pause for long at this end, where a pipe's other end decides. Neither end then has
//! anything to send, so the loop sends PINGs. If the server has gone, they do not hold off the idle
//! timeout, because it does not acknowledge them (RFC 9000, section 10.1).

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use quic_sidekick::quiche::{self, Connection};
use quic_sidekick::tune::paced_until;
use quic_sidekick::{Driver, Status};
use sidekick_protocol::{SenderStats, is_network_error};
use sidekick_socket::FlowStatus;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::{Notify, oneshot};

use crate::now;
use crate::report::without_proxy;

/// The most datagrams that one round reads, so that a flood delays neither timers nor packets.
const MOST_RECEIVED: usize = 64;
/// The longest datagram (RFC 768).
const LONGEST_DATAGRAM: usize = 65_535;
/// The interval between PINGs, unless the server's idle timeout needs a shorter one.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The shortest interval, whatever the server's idle timeout.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// The error code of a client without an application (RFC 9000, section 20.1).
const INTERNAL_ERROR: u64 = 1;
/// PINGs within an idle timeout. Two may be lost.
const PINGS: u32 = 3;

/// What a program does on its connection. The loop owns it, and ends it by dropping it.
pub trait Application: Send + 'static {
    /// The handshake is complete.
    ///
    /// # Errors
    /// The connection cannot serve the application.
    fn established(&mut self, conn: &mut Connection) -> Result<(), quiche::h3::Error>;

    /// Moves as much as possible between the program and the connection. The loop calls it after
    /// each arrival and after each [`wait`](Self::wait). It closes the connection by itself.
    fn work(&mut self, conn: &mut Connection);

    /// Waits until the program has something for [`work`](Self::work). Cancel safe.
    fn wait(&mut self) -> impl Future<Output = ()> + Send;

    /// Whether bytes that arrived still wait for the program, although the server has gone.
    fn has_unread(&self) -> bool;
}

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

/// What quiche and the plugin count of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent: usize,
    pub(crate) received: usize,
    pub(crate) received_bytes: u64,
    pub(crate) retransmitted: usize,
    pub(crate) lost: usize,
    pub(crate) rtt: Duration,
    /// Bytes of packets that the server has acknowledged.
    pub(crate) acknowledged: u64,
    /// The most that these bytes have exceeded the received ones by.
    pub(crate) taken: u64,
    /// The plugin's report, if the plan has a mode, or that of the socket.
    pub(crate) sidekick: Option<Status>,
    /// Errors that the network reported at the plugin's socket.
    pub(crate) socket_errors: u64,
}

/// What the program sees of a connection.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// How the connection ended.
    pub(crate) ending: OnceLock<Ending>,
    counters: Mutex<Counters>,
    /// The network reported that no program listens at the server's port.
    pub(crate) refused: Notify,
}

impl Seen {
    /// The counters after the latest round of the loop.
    pub(crate) fn counters(&self) -> Counters {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The plugin, and the readiness of its sockets.
struct Help {
    driver: Driver,
    adjacent: Option<UdpSocket>,
    second: Option<UdpSocket>,
}

impl Help {
    fn new(driver: Driver) -> Self {
        // A second descriptor, because the plugin owns its socket.
        let watch =
            |socket: &std::net::UdpSocket| UdpSocket::from_std(socket.try_clone().ok()?).ok();
        let (adjacent, second) = (driver.socket(), driver.second_socket());
        Self { adjacent: adjacent.and_then(watch), second: second.and_then(watch), driver }
    }

    /// The sockets that the plugin still has.
    fn sockets(&self) -> [Option<&UdpSocket>; 2] {
        let Self { driver, adjacent, second } = self;
        [
            adjacent.as_ref().filter(|_| driver.socket().is_some()),
            second.as_ref().filter(|_| driver.second_socket().is_some()),
        ]
    }
}

/// Waits for a message of a proxy at this socket. Cancel safe: the plugin reads it.
async fn heard(adjacent: Option<&UdpSocket>) {
    if let Some(adjacent) = adjacent
        && adjacent.readable().await.is_ok()
    {
        // The plugin reads until nothing waits, or sets a timer to go on. So the socket counts as
        // drained from here on, until more arrives.
        let drained = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = adjacent.try_io(Interest::READABLE, drained);
        return;
    }
    std::future::pending::<()>().await;
}

/// The connection's socket.
#[derive(Debug)]
pub(crate) enum Udp {
    /// Connected to the server.
    Plain(UdpSocket),
    /// One that gets help.
    Helped(Box<sidekick_socket::tokio::UdpSocket>),
}

impl Udp {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Plain(socket) => socket.local_addr(),
            Self::Helped(socket) => socket.local_addr(),
        }
    }

    async fn readable(&self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.readable().await,
            Self::Helped(socket) => socket.readable().await,
        }
    }

    async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.writable().await,
            Self::Helped(socket) => socket.writable().await,
        }
    }

    /// Receives a datagram of the server.
    fn try_recv(&self, buffer: &mut [u8], server: SocketAddr) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_recv(buffer),
            Self::Helped(socket) => loop {
                let (len, from) = socket.try_recv_from(buffer)?;
                if from == server {
                    return Ok(len);
                }
            },
        }
    }

    fn try_send(&self, datagram: &[u8], server: SocketAddr) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.try_send(datagram),
            Self::Helped(socket) => socket.try_send_to(datagram, server),
        }
    }

    /// The help in the plugin's words, if this socket gets help.
    fn status(&self) -> Option<Status> {
        let Self::Helped(socket) = self else { return None };
        let unasked = without_proxy();
        let Some(flow) = socket.status().pop() else { return Some(unasked) };
        let stats = SenderStats { early_lost: flow.lost, ..unasked.stats };
        let FlowStatus { assistance, near_rtt, .. } = flow;
        Some(Status { assistance, near_rtt, stats, ..unasked })
    }
}

/// A connection and its application.
pub(crate) struct EventLoop<A> {
    conn: Connection,
    udp: Udp,
    server: SocketAddr,
    local: SocketAddr,
    help: Option<Help>,
    app: A,
    seen: Arc<Seen>,
    /// Fires after the handshake. `None` since then.
    established: Option<oneshot::Sender<()>>,
    buffer: Vec<u8>,
    /// When the next packet may leave, if it may not yet.
    release: Option<Instant>,
    /// When the next PING is due. `None` before the handshake.
    ping: Option<Instant>,
}

impl<A: Application> EventLoop<A> {
    /// Prepares the loop of a connection to `server` that has sent nothing, and its socket.
    /// The receiver fires after the handshake, or is dropped if that fails.
    pub(crate) fn new(
        mut conn: Connection,
        (udp, server): (Udp, SocketAddr),
        help: Option<Driver>,
        app: A,
    ) -> io::Result<(Self, Arc<Seen>, oneshot::Receiver<()>)> {
        let local = udp.local_addr()?;
        let help = help.map(|mut driver| {
            if let Err(error) = driver.attach(&mut conn) {
                tracing::warn!(%error, "no socket for the proxy: unassisted");
            }
            Help::new(driver)
        });
        let seen = Arc::<Seen>::default();
        let (established, begun) = oneshot::channel();
        let this = Self {
            conn,
            udp,
            server,
            local,
            help,
            app,
            seen: Arc::clone(&seen),
            established: Some(established),
            buffer: vec![0; LONGEST_DATAGRAM],
            release: None,
            ping: None,
        };
        Ok((this, seen, begun))
    }

    /// Runs the connection to its end. A closed connection would stay for three probe timeouts (RFC
    /// 9000, section 10.2); the loop ends as soon as a CONNECTION_CLOSE frame is sent or received.
    pub(crate) async fn run(mut self) {
        while self.round().await {
            self.wait().await;
            // A flood must not keep the program's only thread.
            tokio::task::consume_budget().await;
        }
        if let Some(help) = &mut self.help {
            help.driver.stop();
        }
        self.record();
        if let Some(ending) = ending(&self.conn) {
            let _ = self.seen.ending.set(ending);
        }
        while self.established.is_none() && self.app.has_unread() {
            self.app.wait().await;
            self.app.work(&mut self.conn);
        }
    }

    /// Receives, works and sends. Returns whether the connection goes on.
    async fn round(&mut self) -> bool {
        self.receive();
        if let Some(help) = &mut self.help {
            help.driver.receive(&mut self.conn, now());
        }
        if self.conn.is_established() && self.established.is_some() {
            match self.app.established(&mut self.conn) {
                Ok(()) => {
                    self.ping = Some(now() + pause(&self.conn));
                    let _ = self.established.take().map(|established| established.send(()));
                }
                Err(_) => drop(self.conn.close(false, INTERNAL_ERROR, b"")),
            }
        }
        if self.established.is_none() {
            self.app.work(&mut self.conn);
        }
        let sent = self.send().await;
        self.record();
        sent.is_ok() && !self.conn.is_draining() && !self.conn.is_closed()
    }

    fn receive(&mut self) {
        let Self { conn, udp, buffer, seen, .. } = self;
        let info = quiche::RecvInfo { from: self.server, to: self.local };
        for _ in 0..MOST_RECEIVED {
            match udp.try_recv(buffer, self.server) {
                // quiche drops a datagram that is not the connection's, and closes the connection
                // after an error of the server.
                Ok(len) => drop(conn.recv(buffer.get_mut(..len).unwrap_or_default(), info)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => drop(note(&error, seen)),
            }
        }
    }

    /// Sends all packets that are due. It holds none back, because BBR2 and the plugin use the time
    /// at which quiche makes a packet as the time on the wire.
    async fn send(&mut self) -> Result<(), quiche::Error> {
        loop {
            loop {
                self.release = paced_until(&self.conn, now());
                if self.release.is_some() {
                    break;
                }
                match self.conn.send(&mut self.buffer) {
                    Ok((len, _)) => {
                        let datagram = self.buffer.get(..len).unwrap_or_default();
                        put((&self.udp, self.server), datagram, &self.seen).await;
                    }
                    Err(quiche::Error::Done) => break,
                    Err(error) => return Err(error),
                }
            }
            let Some(help) = &mut self.help else { return Ok(()) };
            if !help.driver.on_sent(&mut self.conn, now()) {
                return Ok(());
            }
            // The plugin may have rebuilt packets from parity, and streams may be readable.
            if self.established.is_none() {
                self.app.work(&mut self.conn);
            }
        }
    }

    async fn wait(&mut self) {
        let Self { conn, udp, help, app, release, ping, .. } = self;
        let begun = self.established.is_none();
        let proxy = help.as_ref().and_then(|help| help.driver.poll_timeout());
        let deadline = [conn.timeout_instant(), *release, *ping, proxy].into_iter().flatten().min();
        let due = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        let [adjacent, second] = help.as_ref().map(Help::sockets).unwrap_or_default();
        tokio::select! {
            _ = udp.readable() => {}
            () = heard(adjacent) => {}
            () = heard(second) => {}
            () = due => {}
            () = app.wait(), if begun => {}
        }
        let now = now();
        if conn.timeout_instant().is_some_and(|at| at <= now) {
            conn.on_timeout();
        }
        if ping.is_some_and(|at| at <= now) {
            // It fails only if the connection has no path left; then the next round ends it.
            let _ = conn.send_ack_eliciting();
            *ping = Some(now + pause(conn));
        }
    }

    fn record(&self) {
        let stats = self.conn.stats();
        let path = self.conn.path_stats().find(|path| path.active);
        let driver = self.help.as_ref().map(|help| &help.driver);
        let mut counters = self.seen.lock();
        *counters = Counters {
            sent: stats.sent,
            received: stats.recv,
            received_bytes: stats.recv_bytes,
            retransmitted: stats.retrans,
            lost: stats.lost,
            rtt: path.map(|path| path.rtt).unwrap_or_default(),
            acknowledged: stats.acked_bytes,
            taken: counters.taken.max(stats.acked_bytes.saturating_sub(stats.recv_bytes)),
            sidekick: driver.map(|driver| driver.status()).or_else(|| self.udp.status()),
            socket_errors: driver.map_or(0, |driver| driver.socket_errors()),
        };
    }
}

/// Sends a datagram. If the system refuses it, such as a probe of the path MTU, it counts as lost
/// in the network.
async fn put((udp, server): (&Udp, SocketAddr), datagram: &[u8], seen: &Seen) {
    let mut again = true;
    loop {
        match udp.try_send(datagram, server) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if udp.writable().await.is_err() {
                    return;
                }
            }
            // An ICMP message concerns an earlier datagram, and the system has not sent this one.
            Err(error) if note(&error, seen) && again => again = false,
            _ => return,
        }
    }
}

/// Notes an error of the connection's socket, and returns whether the network reported it. None
/// ends the connection, because anyone can forge ICMP messages.
fn note(error: &io::Error, seen: &Seen) -> bool {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        seen.refused.notify_one();
    }
    is_network_error(error)
}

/// How long the connection may pause.
fn pause(conn: &Connection) -> Duration {
    let idle = conn.peer_transport_params().map_or(0, |params| params.max_idle_timeout);
    match Duration::from_millis(idle) {
        Duration::ZERO => LONGEST_PAUSE,
        idle => (idle / PINGS).clamp(SHORTEST_PAUSE, LONGEST_PAUSE),
    }
}

fn ending(conn: &Connection) -> Option<Ending> {
    if conn.is_timed_out() {
        return Some(Ending::TimedOut);
    }
    if let Some(error) = conn.peer_error() {
        let reason = String::from_utf8_lossy(&error.reason).trim().to_owned();
        return Some(Ending::ByServer { code: error.error_code, reason });
    }
    conn.local_error().map(|error| Ending::ByUs { code: error.error_code })
}
