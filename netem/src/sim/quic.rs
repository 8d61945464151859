//! A QUIC connection in virtual time: pacing, acknowledgement policy, and a Sidekick beside it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use quic_sidekick::quiche::{self, Connection, ConnectionId, RecvInfo, h3};
use quic_sidekick::{AdjacentSocket, Driver, Status};

use super::host::Endpoint;
use super::migration::Migration;
use super::packet::Packet;
use super::tls::SERVER_NAME;

/// Room for any datagram.
const ROOM: usize = 1500;

/// What an application did in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Whether it received bytes from the peer.
    pub(super) received: bool,
    /// Whether it sent bytes to the peer.
    pub(super) wrote: bool,
}

/// An application on a connection.
pub(super) trait App {
    /// Does the work that is possible at `now`.
    fn work(&mut self, conn: &mut Connection, now: Instant) -> Result<Work, String>;
    /// When the application must work without a packet.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    /// Bytes that it has received from the peer.
    fn delivered(&self) -> u64 {
        0
    }
    fn is_done(&self) -> bool {
        false
    }
}

/// Begins HTTP/3 as soon as the connection can carry it.
pub(super) fn begin_http(
    http: &mut Option<h3::Connection>,
    conn: &mut Connection,
) -> h3::Result<()> {
    if http.is_none() && (conn.is_established() || conn.is_in_early_data()) {
        match h3::Connection::with_transport(conn, &h3::Config::new()?) {
            Ok(begun) => *http = Some(begun),
            Err(h3::Error::TransportError(quiche::Error::Done)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Passes the received bytes of a stream's body to `take`. Returns whether there were any.
pub(super) fn read_body(
    http: &mut h3::Connection,
    conn: &mut Connection,
    stream: u64,
    buffer: &mut [u8],
    mut take: impl FnMut(&[u8]),
) -> h3::Result<bool> {
    let mut received = false;
    loop {
        match http.recv_body(conn, stream, buffer) {
            Ok(length) => take(buffer.get(..length).unwrap_or_default()),
            Err(h3::Error::Done) => return Ok(received),
            Err(error) => return Err(error),
        }
        received = true;
    }
}

/// The policy of a receiver of data for acknowledgements (RFC 9000, section 13.2). It works outside
/// the connection, because quiche 0.30 acknowledges at every call to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckPolicy {
    /// The number of packets after which it acknowledges at once.
    pub(super) packets: u16,
    pub(super) delay: Duration,
}

impl AckPolicy {
    /// Acknowledges every packet at once.
    pub(super) const AT_ONCE: Self = Self { packets: 1, delay: Duration::ZERO };
}

/// The adjacent socket: a queue for each direction.
#[derive(Debug)]
pub(super) struct Adjacent {
    address: SocketAddr,
    received: RefCell<VecDeque<Packet>>,
    sent: RefCell<Vec<Packet>>,
}

impl Adjacent {
    fn new(address: SocketAddr) -> Self {
        Self { address, received: RefCell::default(), sent: RefCell::default() }
    }
}

impl AdjacentSocket for Adjacent {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }

    fn send_to(&self, datagram: &[u8], destination: SocketAddr) -> io::Result<usize> {
        self.sent.borrow_mut().push(Packet::new(self.address, destination, datagram));
        Ok(datagram.len())
    }

    fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let Some(packet) = self.received.borrow_mut().pop_front() else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let length = buffer.len().min(packet.payload.len());
        buffer[..length].copy_from_slice(&packet.payload[..length]);
        Ok((length, packet.source))
    }
}

/// The sender's side of the Sidekick protocol.
pub(super) type Help = Driver<Adjacent>;

/// A connection, its sockets, and the application on it.
pub(super) struct Quic<A> {
    pub(super) conn: Connection,
    /// This is the client, or a long header has arrived.
    begun: bool,
    pub(super) app: A,
    local: SocketAddr,
    begin: Instant,
    acks: AckPolicy,
    unacknowledged: u16,
    acknowledge_at: Option<Instant>,
    release: Option<Instant>,
    help: Option<Help>,
    migration: Option<Migration>,
    failure: Option<String>,
    buffer: Box<[u8; ROOM]>,
}

impl<A: App> Quic<A> {
    /// The endpoint at `local` of a new connection to `peer`. It sends no packet before `begin`.
    pub(super) fn connect(
        app: A,
        local: SocketAddr,
        peer: SocketAddr,
        config: &mut quiche::Config,
        session: Option<&[u8]>,
        begin: Instant,
    ) -> Result<Self, String> {
        let id = connection_id(local, 1);
        let mut conn = quiche::connect(Some(SERVER_NAME), &id, local, peer, config)
            .map_err(|error| error.to_string())?;
        if let Some(session) = session {
            conn.set_session(session).map_err(|error| error.to_string())?;
        }
        Ok(Self::new(conn, app, local, begin))
    }

    /// The endpoint at `local` of the connection that `peer` makes.
    pub(super) fn accept(
        app: A,
        local: SocketAddr,
        peer: SocketAddr,
        config: &mut quiche::Config,
        begin: Instant,
    ) -> Result<Self, String> {
        let conn = quiche::accept(&connection_id(local, 2), None, local, peer, config)
            .map_err(|error| error.to_string())?;
        Ok(Self { begun: false, ..Self::new(conn, app, local, begin) })
    }

    fn new(conn: Connection, app: A, local: SocketAddr, begin: Instant) -> Self {
        Self {
            conn,
            begun: true,
            app,
            local,
            begin,
            acks: AckPolicy::AT_ONCE,
            unacknowledged: 0,
            acknowledge_at: None,
            // The time of the first flight.
            release: Some(begin),
            help: None,
            migration: None,
            failure: None,
            buffer: Box::new([0; ROOM]),
        }
    }

    /// Sets the acknowledgement policy of this endpoint.
    pub(super) fn acknowledge(mut self, acks: AckPolicy) -> Self {
        self.acks = acks;
        self
    }

    /// Adds help from the path, with an adjacent socket at `address`, and one of a second uplink.
    pub(super) fn assist(
        mut self,
        mut help: Help,
        address: SocketAddr,
        second: Option<SocketAddr>,
    ) -> Self {
        help.attach_with(&mut self.conn, Adjacent::new(address));
        if let Some(address) = second {
            help.attach_second(Adjacent::new(address), self.begin);
        }
        self.help = Some(help);
        self
    }

    pub(super) fn migrate(mut self, migration: Migration) -> Self {
        self.migration = Some(migration);
        self
    }

    pub(super) fn migrations(&self) -> u64 {
        self.migration.as_ref().map_or(0, Migration::count)
    }

    pub(super) fn status(&self) -> Option<Status> {
        self.help.as_ref().map(Driver::status)
    }

    /// The sockets for proxies, of the first uplink and of the second.
    fn adjacent(&self) -> impl Iterator<Item = &Adjacent> {
        let help = self.help.iter();
        help.flat_map(|help| help.socket().into_iter().chain(help.second_socket()))
    }

    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(super) fn take(&mut self, mut packet: Packet) {
        // A server drops what belongs to no connection, such as a marker that overtakes the first
        // packet. To quiche that would be a client's mistake.
        self.begun |= packet.payload.first().is_some_and(|byte| byte & 0x80 != 0);
        if !self.begun {
            return;
        }
        let info = RecvInfo { from: packet.source, to: packet.destination };
        // As on a real socket, quiche drops datagrams that it cannot decrypt. A broken connection
        // reports its error when it sends.
        let _ = self.conn.recv(&mut packet.payload, info);
    }

    /// Lets the application work, and sends the resulting packets.
    pub(super) fn work_and_send(&mut self, now: Instant, out: &mut Vec<Packet>) {
        self.work(now);
        self.send(now, out);
    }

    fn work(&mut self, now: Instant) -> Work {
        if let Some(migration) = &mut self.migration
            && let Some(local) = migration.work(&mut self.conn, self.local, now)
        {
            self.local = local;
        }
        self.app.work(&mut self.conn, now).unwrap_or_else(|error| {
            self.fail(error);
            Work::default()
        })
    }

    fn fail(&mut self, error: String) {
        self.failure.get_or_insert(error);
    }

    fn send(&mut self, now: Instant, out: &mut Vec<Packet>) {
        if now < self.begin {
            return;
        }
        (self.unacknowledged, self.acknowledge_at) = (0, None);
        self.send_packets(now, out);
        while self.help_sends(now, out) {
            self.work(now);
            self.send_packets(now, out);
        }
        if self.conn.is_closed() && !self.app.is_done() {
            self.fail(last_words(&self.conn));
        }
    }

    fn send_packets(&mut self, now: Instant, out: &mut Vec<Packet>) {
        loop {
            self.release = paced_until(&self.conn, now);
            if self.release.is_some() {
                break;
            }
            match self.conn.send(self.buffer.as_mut_slice()) {
                Ok((length, info)) => {
                    let payload = self.buffer.get(..length).unwrap_or_default();
                    out.push(Packet::new(info.from, info.to, payload));
                    // The first flight makes early data possible, and the application may have some
                    // to send.
                    if self.conn.is_in_early_data() {
                        self.work(now);
                    }
                }
                Err(quiche::Error::Done) => break,
                Err(error) => {
                    self.fail(format!("cannot send: {error}"));
                    break;
                }
            }
        }
    }

    /// Lets the help read its socket and handle its timers. Returns whether the connection must
    /// work because of that. If not, pacing continues unchanged.
    fn help_receives(&mut self, now: Instant) -> bool {
        let Some(help) = &mut self.help else { return false };
        let timeout = self.conn.timeout_instant();
        help.receive(&mut self.conn, now) || self.conn.timeout_instant() != timeout
    }

    /// Sends the help's messages to a proxy. Returns whether the connection has something to send.
    fn help_sends(&mut self, now: Instant, out: &mut Vec<Packet>) -> bool {
        let again = self.help.as_mut().is_some_and(|help| help.on_sent(&mut self.conn, now));
        self.adjacent().for_each(|adjacent| out.append(&mut adjacent.sent.borrow_mut()));
        again
    }

    /// Whether an acknowledgement may wait. It may if the connection has nothing else to send, no
    /// gap in its data, and the policy permits it.
    pub(super) fn may_wait(&mut self, work: Work, now: Instant) -> bool {
        // Data behind a gap cannot reach the application yet. The receiver reports a gap at once.
        if !work.received || work.wrote || !self.conn.is_established() {
            return false;
        }
        self.unacknowledged += 1;
        if self.unacknowledged >= self.acks.packets {
            return false;
        }
        let at = *self.acknowledge_at.get_or_insert(now + self.acks.delay);
        now < at
    }
}

impl<A: App> Endpoint for Quic<A> {
    fn owns(&self, destination: SocketAddr) -> bool {
        destination == self.local
            || self.migration.as_ref().is_some_and(|migration| migration.owns(destination))
            || self.adjacent().any(|adjacent| adjacent.address == destination)
    }

    fn receive(&mut self, packet: Packet, now: Instant, out: &mut Vec<Packet>) {
        let is_of = |adjacent: &&Adjacent| adjacent.address == packet.destination;
        let queue = self.adjacent().find(is_of).map(|adjacent| &adjacent.received);
        if let Some(queue) = queue {
            queue.borrow_mut().push_back(packet);
            if !self.help_receives(now) && !self.help_sends(now, out) {
                return;
            }
        } else {
            self.take(packet);
            let work = self.work(now);
            if self.may_wait(work, now) {
                return;
            }
        }
        self.work_and_send(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let deadlines = [
            self.conn.timeout_instant(),
            self.release,
            self.acknowledge_at,
            self.app.poll_timeout(),
            self.help.as_ref().and_then(Driver::poll_timeout),
            self.migration.as_ref().and_then(Migration::poll_timeout),
        ];
        deadlines.into_iter().flatten().min().map(|deadline| deadline.max(self.begin))
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Vec<Packet>) {
        let own = [
            self.conn.timeout_instant(),
            self.release,
            self.acknowledge_at,
            self.app.poll_timeout(),
            self.migration.as_ref().and_then(Migration::poll_timeout),
        ];
        if own[0].is_some_and(|at| at <= now) {
            self.conn.on_timeout();
        }
        let again = self.help_receives(now);
        let due = own.into_iter().flatten().any(|at| at <= now);
        if !due && !again && !self.help_sends(now, out) {
            return;
        }
        self.work_and_send(now, out);
    }

    fn delivered(&self) -> u64 {
        self.app.delivered()
    }

    fn window(&self) -> Option<u64> {
        self.conn.path_stats().find(|path| path.active).map(|path| path.cwnd as u64)
    }

    fn is_done(&self) -> bool {
        self.app.is_done() || self.failure.is_some()
    }
}

/// A packet may leave early by some time. This share of it passes before the connection makes the
/// next packets.
const LEEWAY: f64 = 0.8;

/// The time until which a paced connection must wait, if that is in the future. Like tokio-quiche,
/// it lets packets leave a few milliseconds early, in small bursts. BBR2 assumes that a datagram
/// leaves when it is made. So `SendInfo::at` alone would mislead it.
fn paced_until(conn: &Connection, now: Instant) -> Option<Instant> {
    let release = conn.get_next_release_time()?.time(now)?;
    let early = conn.max_release_into_future();
    (release.saturating_duration_since(now) >= early).then(|| now + early.mul_f64(LEEWAY))
}

/// A connection ID that differs between sockets. It has the greatest length that a short header
/// permits.
fn connection_id(address: SocketAddr, end: u8) -> ConnectionId<'static> {
    let [high, low] = address.port().to_be_bytes();
    let mut id = vec![end; quiche::MAX_CONN_ID_LEN];
    id.extend([high, low]);
    ConnectionId::from_vec(id.split_off(2))
}

fn last_words(conn: &Connection) -> String {
    if conn.is_timed_out() {
        return "the connection timed out".to_owned();
    }
    let word = |error: Option<&quiche::ConnectionError>, who: &str| {
        error.map(|error| {
            let reason = String::from_utf8_lossy(&error.reason);
            format!("{who} closed the connection with code {:#x} {reason}", error.error_code)
        })
    };
    word(conn.peer_error(), "the other end")
        .or_else(|| word(conn.local_error(), "this end"))
        .unwrap_or_else(|| "the connection closed".to_owned())
}
