//! One connection: quiche, its sockets, and the help.

use std::io::{self, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use boring::ssl::SslRef;
use quic_sidekick::{Driver, Status};
use quiche::{Connection, PathEvent, QlogLevel, h3};

use crate::cli::Cli;
use crate::endpoint::sockets::{self, DATAGRAM, Socket, now};
use crate::endpoint::{IDLE_TIMEOUT, Outbox, WINDOW, connection_id, reset_token};
use crate::exchange::Exchange;

/// The longest wait for a connection ID for another path.
const IDS_WITHIN: Duration = Duration::from_secs(20);
/// The time between two PATH_CHALLENGE frames: about the probe timeout before the first sample of
/// the round trip (RFC 9000, section 8.2.1; RFC 9002, section 6.2.2).
const PROBE_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// The longest validation of another path (RFC 9000, section 8.2.4). quiche gives up no path while
/// the client asks again.
const VALIDATED_WITHIN: Duration = Duration::from_secs(10);
/// The longest wait for a session ticket.
const TICKET_WITHIN: Duration = Duration::from_secs(3);
const NO_ANSWER_ON_NEW_PATH: &str = "the server does not answer on the new path";
/// H3_NO_ERROR (RFC 9114, section 8.1).
const NO_ERROR: u64 = 0x100;
/// BoringSSL's code for accepted early data: `ssl_early_data_accepted`.
const EARLY_DATA_ACCEPTED: u32 = 2;

/// One connection.
pub(crate) struct Session {
    conn: Connection,
    server: SocketAddr,
    /// The connection's own sockets. The second one exists after a change of the port.
    sockets: Vec<(Socket, SocketAddr)>,
    help: Option<Driver>,
    /// The plugin's status at the end, before it ended the session with the proxy.
    helped: Option<Status>,
    http: Option<h3::Connection>,
    outbox: Outbox,
    buffer: Vec<u8>,
    began: Instant,
    /// Datagrams that arrived at the second port.
    at_new_port: u64,
    /// Datagrams that arrived at the first port after the change.
    at_old_port: u64,
    /// Bytes of the longest datagram sent.
    longest: usize,
    cid_length: u8,
    migration: Migration,
    /// Until when the server may provide the missing connection ID for another path.
    ids_until: Option<Instant>,
    key_updates: Arc<AtomicU32>,
    requested_early: bool,
}

/// The change of the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Migration {
    NotWanted,
    Wanted,
    /// The new path is not validated yet. quiche does not repeat a PATH_CHALLENGE whose packet was
    /// acknowledged, even if the PATH_RESPONSE is lost. So the client asks for another one.
    Probing {
        again: Instant,
        until: Instant,
    },
    Done,
}

impl Session {
    /// Prepares a connection, and sends nothing yet. `ticket` is from an earlier connection.
    pub(crate) fn new(cli: &Cli, ticket: Option<&[u8]>) -> anyhow::Result<Self> {
        let mut config = config(cli).context("quiche refuses the settings")?;
        let local = own_address(cli.server).context("there is no route to the server")?;
        let (socket, local) = bound(local)?;
        let id = connection_id(cli.cid_length)?;
        let mut conn = quiche::connect(Some(&cli.name), &id, local, cli.server, &mut config)?;
        if let Some(ticket) = ticket {
            conn.set_session(ticket).context("cannot resume the session")?;
        }
        let key_updates = Arc::<AtomicU32>::default();
        if cli.count_key_updates {
            let log = KeyUpdates { seen: Arc::clone(&key_updates), line: Vec::new() };
            conn.set_qlog_with_level(Box::new(log), String::new(), String::new(), QlogLevel::Base);
        }
        let help = match cli.sidekick {
            Some(mode) => {
                let mut settings = quic_sidekick::Config::discover(mode);
                settings.proxy = cli.proxy;
                let mut help = Driver::new(settings);
                help.attach(&mut conn).context("cannot open a socket for the proxy")?;
                Some(help)
            }
            None => None,
        };
        Ok(Self {
            conn,
            server: cli.server,
            sockets: vec![(socket, local)],
            help,
            helped: None,
            http: None,
            outbox: Outbox::default(),
            buffer: vec![0; DATAGRAM],
            began: now(),
            at_new_port: 0,
            at_old_port: 0,
            longest: 0,
            cid_length: cli.cid_length,
            migration: if cli.migrate { Migration::Wanted } else { Migration::NotWanted },
            ids_until: None,
            key_updates,
            requested_early: false,
        })
    }

    /// Runs all requests, and closes the connection. If `ticket_wanted`, it first waits for a
    /// session ticket. Returns how long the requests took.
    pub(crate) fn run(
        &mut self,
        exchange: &mut Exchange,
        ticket_wanted: bool,
    ) -> anyhow::Result<Duration> {
        self.began = now();
        let mut took = None;
        loop {
            self.receive()?;
            self.migrate(exchange)?;
            self.work(exchange)?;
            if exchange.is_done() {
                match self.migration {
                    Migration::NotWanted | Migration::Done => {}
                    Migration::Wanted => bail!(
                        "the transfer ended before the client changed its port: --migrate needs \
                         one larger file"
                    ),
                    Migration::Probing { .. } => {
                        bail!("the transfer ended before the new path was validated")
                    }
                }
                let took = *took.get_or_insert_with(|| now().saturating_duration_since(self.began));
                let waited = now().saturating_duration_since(self.began) - took;
                if !ticket_wanted || self.conn.session().is_some() || waited > TICKET_WITHIN {
                    self.close()?;
                    return Ok(took);
                }
            }
            // The first flight has enabled early data. The request comes before anything is
            // received, because that may complete the handshake.
            while self.send()? || self.http.is_none() && self.conn.is_in_early_data() {
                self.work(exchange)?;
            }
            if self.conn.is_closed() || self.conn.is_draining() {
                return Err(self.ending());
            }
            self.wait(took.map(|took| self.began + took + TICKET_WITHIN))?;
        }
    }

    fn receive(&mut self) -> anyhow::Result<()> {
        for (index, (socket, local)) in self.sockets.iter().enumerate() {
            while let Some((len, from)) = socket.receive(&mut self.buffer)? {
                self.at_new_port += u64::from(index > 0);
                self.at_old_port += u64::from(index == 0 && self.migration == Migration::Done);
                let info = quiche::RecvInfo { from, to: *local };
                // The connection drops a datagram that is not its own.
                let _ = self.conn.recv(self.buffer.get_mut(..len).unwrap_or_default(), info);
            }
        }
        if let Some(help) = &mut self.help {
            help.receive(&mut self.conn, now());
        }
        Ok(())
    }

    fn work(&mut self, exchange: &mut Exchange) -> anyhow::Result<()> {
        let early = self.conn.is_in_early_data();
        if self.http.is_none() && (self.conn.is_established() || early) {
            let http = h3::Connection::with_transport(&mut self.conn, &h3::Config::new()?)
                .context("cannot begin HTTP/3")?;
            self.http = Some(http);
        }
        if let Some(http) = &mut self.http {
            exchange.work(http, &mut self.conn)?;
            self.requested_early |= early && exchange.has_begun();
        }
        Ok(())
    }

    /// Sends what is due. Returns whether the plugin has changed the connection, which then has
    /// more to read or to send.
    fn send(&mut self) -> anyhow::Result<bool> {
        let Self { sockets, longest, .. } = self;
        let put = |packet: &[u8], info: &quiche::SendInfo| {
            *longest = packet.len().max(*longest);
            if let Some((socket, _)) = sockets.iter().find(|(_, local)| *local == info.from) {
                socket.send(packet, info.to);
            }
        };
        self.outbox.send(&mut self.conn, now, put).context("the connection cannot send")?;
        Ok(self.help.as_mut().is_some_and(|help| help.on_sent(&mut self.conn, now())))
    }

    fn wait(&mut self, until: Option<Instant>) -> anyhow::Result<()> {
        let help = self.help.as_ref().and_then(Driver::poll_timeout);
        let probe = match self.migration {
            Migration::Probing { again, until } => Some(again.min(until)),
            _ => self.ids_until,
        };
        let own = [self.conn.timeout_instant(), self.outbox.release(), probe];
        let deadline = own.into_iter().chain([help, until]).flatten().min();
        let adjacent = self.help.as_ref().and_then(Driver::socket).map(AsFd::as_fd);
        let own = self.sockets.iter().map(|(socket, _)| socket.as_fd());
        sockets::wait(own.chain(adjacent), deadline)?;
        if self.conn.timeout_instant().is_some_and(|at| at <= now()) {
            self.conn.on_timeout();
        }
        Ok(())
    }

    /// Changes the port once half is done. The other half of an upload waits for the change.
    fn migrate(&mut self, exchange: &mut Exchange) -> anyhow::Result<()> {
        if self.migration == Migration::NotWanted || !self.conn.is_established() {
            return Ok(());
        }
        // The server needs another connection ID for another path.
        while self.conn.scids_left() > 0 {
            let id = connection_id(self.cid_length)?;
            self.conn
                .new_scid(&id, reset_token()?, false)
                .context("cannot issue another connection ID")?;
        }
        while let Some(event) = self.conn.path_event_next() {
            match event {
                PathEvent::Validated(local, _)
                    if matches!(self.migration, Migration::Probing { .. }) =>
                {
                    self.conn
                        .migrate(local, self.server)
                        .context("the connection cannot migrate")?;
                    self.migration = Migration::Done;
                    exchange.resume();
                }
                PathEvent::FailedValidation(..) => bail!(NO_ANSWER_ON_NEW_PATH),
                _ => {}
            }
        }
        if let Migration::Probing { again, until } = self.migration {
            if until <= now() {
                bail!(NO_ANSWER_ON_NEW_PATH);
            }
            if again <= now()
                && let Some((_, local)) = self.sockets.last()
            {
                self.probe(*local, until)?;
            }
        }
        if self.migration == Migration::Wanted && exchange.is_half_done() {
            if self.conn.available_dcids() == 0 {
                // The server's connection IDs may have been lost, and come again.
                let until = *self.ids_until.get_or_insert_with(|| now() + IDS_WITHIN);
                if now() < until {
                    return Ok(());
                }
                bail!("the server provides no connection ID for another path");
            }
            self.ids_until = None;
            let (socket, local) = bound(SocketAddr::new(self.first_address().ip(), 0))?;
            self.probe(local, now() + VALIDATED_WITHIN)?;
            self.sockets.push((socket, local));
        }
        Ok(())
    }

    fn probe(&mut self, local: SocketAddr, until: Instant) -> anyhow::Result<()> {
        self.conn
            .probe_path(local, self.server)
            .context("the connection cannot probe another path")?;
        self.migration = Migration::Probing { again: now() + PROBE_AGAIN_AFTER, until };
        Ok(())
    }

    fn first_address(&self) -> SocketAddr {
        self.sockets.first().map_or(self.server, |(_, local)| *local)
    }

    fn close(&mut self) -> anyhow::Result<()> {
        self.helped = self.help.as_ref().map(Driver::status);
        if let Some(help) = &mut self.help {
            help.stop();
        }
        match self.conn.close(true, NO_ERROR, b"") {
            Ok(()) | Err(quiche::Error::Done) => {}
            Err(error) => return Err(error).context("the connection cannot be closed"),
        }
        while self.send()? {}
        // The server must not have closed the connection before.
        if self.conn.peer_error().is_some() { Err(self.ending()) } else { Ok(()) }
    }

    /// Why the connection ended.
    fn ending(&self) -> anyhow::Error {
        if let Some(error) = self.conn.peer_error() {
            let reason = String::from_utf8_lossy(&error.reason).trim().to_owned();
            return anyhow!(
                "the server closed the connection (code {:#x}) {reason}",
                error.error_code
            );
        }
        if let Some(error) = self.conn.local_error() {
            let reason = String::from_utf8_lossy(&error.reason).trim().to_owned();
            return anyhow!("quiche closed the connection (code {:#x}) {reason}", error.error_code);
        }
        match self.conn.is_established() {
            true => anyhow!("the server stopped answering"),
            false => anyhow!("the handshake did not complete"),
        }
    }

    /// The session ticket for a later connection.
    pub(crate) fn ticket(&self) -> Option<&[u8]> {
        self.conn.session()
    }

    /// The plugin's status at the end; `None` without a mode.
    pub(crate) fn help(&self) -> Option<Status> {
        self.helped
    }

    pub(crate) fn conn(&self) -> &Connection {
        &self.conn
    }

    /// The name of the negotiated cipher suite.
    pub(crate) fn cipher(&mut self) -> String {
        let tls: &mut SslRef = self.conn.as_mut();
        tls.current_cipher().map(|cipher| cipher.name().to_owned()).unwrap_or_default()
    }

    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Datagrams that arrived at the new port, if the client migrated. They are few if the server
    /// did not follow.
    pub(crate) fn at_new_port(&self) -> u64 {
        if self.migration == Migration::Done { self.at_new_port } else { 0 }
    }

    /// Datagrams that arrived at the old port after the change. They are few if the server follows.
    pub(crate) fn at_old_port(&self) -> u64 {
        self.at_old_port
    }

    /// Errors that the network reported at all sockets.
    pub(crate) fn socket_errors(&self) -> u64 {
        let own = self.sockets.iter().map(|(socket, _)| socket.errors());
        own.chain(self.help.as_ref().map(Driver::socket_errors)).sum()
    }

    pub(crate) fn key_updates(&self) -> u32 {
        self.key_updates.load(Ordering::Relaxed)
    }

    /// Whether the client sent a request in 0-RTT and the server accepted it.
    pub(crate) fn early_data_accepted(&self) -> bool {
        self.requested_early && self.conn.early_data_reason() == EARLY_DATA_ACCEPTED
    }
}

fn config(cli: &Cli) -> Result<quiche::Config, quiche::Error> {
    let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION)?;
    config.set_application_protos(h3::APPLICATION_PROTOCOL)?;
    config.load_verify_locations_from_file(&cli.cafile)?;
    config.verify_peer(true);
    config.set_cc_algorithm_name(cli.controller())?;
    config.set_max_send_udp_payload_size(cli.payload.into());
    config.set_max_recv_udp_payload_size(DATAGRAM);
    config.set_max_idle_timeout(IDLE_TIMEOUT.as_millis().try_into().unwrap_or(u64::MAX));
    config.set_initial_max_data(WINDOW);
    config.set_initial_max_stream_data_bidi_local(WINDOW);
    config.set_initial_max_stream_data_uni(WINDOW);
    config.set_initial_max_streams_uni(16);
    config.set_active_connection_id_limit(4);
    config.enable_early_data();
    Ok(config)
}

/// This machine's address on the route to `peer`.
fn own_address(peer: SocketAddr) -> io::Result<SocketAddr> {
    let any: SocketAddr =
        if peer.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let probe = UdpSocket::bind(any)?;
    probe.connect(peer)?;
    Ok(SocketAddr::new(probe.local_addr()?.ip(), 0))
}

fn bound(address: SocketAddr) -> anyhow::Result<(Socket, SocketAddr)> {
    let socket = Socket::bind(address)
        .with_context(|| format!("cannot open a socket at {}", address.ip()))?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// Reads a connection's qlog as it is written, because only that reports key updates.
struct KeyUpdates {
    seen: Arc<AtomicU32>,
    line: Vec<u8>,
}

impl Write for KeyUpdates {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        for &byte in text {
            if byte == b'\n' {
                // Each update has an event for either direction. This counts one of them.
                let line = String::from_utf8_lossy(&self.line);
                if line.contains("key_updated") && line.contains("client_1rtt_secret") {
                    self.seen.fetch_add(1, Ordering::Relaxed);
                }
                self.line.clear();
            } else {
                self.line.push(byte);
            }
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
