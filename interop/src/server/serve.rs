//! The loop, and the assignment of datagrams to connections.

use std::collections::HashMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;

use anyhow::Context as _;
use quiche::{Connection, ConnectionId};

use super::service::Service;
use super::{Help, Helper, Options, Report};
use crate::endpoint::sockets::{self, DATAGRAM, Socket, now};
use crate::endpoint::{IDLE_TIMEOUT, Outbox, WINDOW, connection_id, reset_token};

/// The most simultaneous connections.
const MOST_CONNECTIONS: usize = 256;
/// The largest UDP payload to send.
const PAYLOAD: usize = 1350;

/// H3_GENERAL_PROTOCOL_ERROR (RFC 9114, section 8.1).
const GENERAL_PROTOCOL_ERROR: u64 = 0x101;

/// A client's connection.
struct Client {
    conn: Connection,
    service: Option<Service>,
    help: Option<Box<dyn Help>>,
    outbox: Outbox,
    /// Whether a datagram from the client arrived in this round.
    heard: bool,
    /// The report at the client's last datagram. The client's close may be lost, and the help may
    /// end before the idle timeout. That must not change the report.
    report: Report,
}

/// The key of a connection: one of the server's IDs, or the ID that the client chose for its first
/// flight. An empty ID is replaced by the client's address.
type Key = (Vec<u8>, Option<SocketAddr>);

struct Server<'a> {
    options: &'a Options,
    config: quiche::Config,
    socket: Socket,
    local: SocketAddr,
    clients: HashMap<u64, Client>,
    next: u64,
    keys: HashMap<Key, u64>,
    helper: Helper<'a>,
}

/// Serves until the process ends; with `--once`, until its first connection ends.
pub(crate) fn serve(options: &Options, helper: Helper<'_>) -> anyhow::Result<()> {
    let config = config(options).context("quiche refuses the settings")?;
    let socket = Socket::bind(options.listen).with_context(|| {
        format!("cannot listen on {}: choose another address with --listen", options.listen)
    })?;
    let local = socket.local_addr()?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready: listening on {local}")
        .and_then(|()| out.flush())
        .context("cannot write to standard output that the server is ready")?;
    drop(out);
    if let Some(cipher) = &options.cipher {
        eprintln!("interop-server: the client selects the cipher, not --cipher {cipher}");
    }
    let (clients, keys) = (HashMap::new(), HashMap::new());
    let mut server = Server { options, config, socket, local, clients, next: 0, keys, helper };
    while !(options.once && server.next > 0 && server.clients.is_empty()) {
        server.round()?;
    }
    Ok(())
}

fn config(options: &Options) -> Result<quiche::Config, quiche::Error> {
    let mut config = quiche::Config::new(quiche::PROTOCOL_VERSION)?;
    config.set_application_protos(quiche::h3::APPLICATION_PROTOCOL)?;
    config.load_cert_chain_from_pem_file(&options.cert)?;
    config.load_priv_key_from_pem_file(&options.key)?;
    config.set_cc_algorithm_name(options.cc.as_deref().unwrap_or("cubic"))?;
    config.set_max_send_udp_payload_size(PAYLOAD);
    config.set_max_recv_udp_payload_size(DATAGRAM);
    config.set_max_idle_timeout(IDLE_TIMEOUT.as_millis().try_into().unwrap_or(u64::MAX));
    config.set_initial_max_data(WINDOW);
    config.set_initial_max_stream_data_bidi_remote(WINDOW);
    config.set_initial_max_stream_data_uni(WINDOW);
    config.set_initial_max_streams_bidi(100);
    config.set_initial_max_streams_uni(16);
    config.set_active_connection_id_limit(4);
    config.enable_early_data();
    Ok(config)
}

impl Server<'_> {
    fn round(&mut self) -> anyhow::Result<()> {
        self.receive()?;
        for client in self.clients.values_mut() {
            client.work(&self.options.root);
            client.send(&self.socket);
            if std::mem::take(&mut client.heard) {
                client.report =
                    Report::of(&client.conn, client.help.as_deref(), self.socket.errors());
            }
        }
        let Self { clients, keys, options, .. } = self;
        for (&number, client) in clients.iter_mut() {
            more_ids(number, &mut client.conn, options.cid_length, keys)?;
        }
        self.wait()?;
        self.clients.retain(|_, client| {
            let closed = client.conn.is_closed();
            if closed {
                client.report.print();
            }
            !closed
        });
        self.keys.retain(|_, number| self.clients.contains_key(number));
        Ok(())
    }

    fn receive(&mut self) -> anyhow::Result<()> {
        let mut buffer = vec![0; DATAGRAM];
        while let Some((len, from)) = self.socket.receive(&mut buffer)? {
            let datagram = buffer.get_mut(..len).unwrap_or_default();
            let Some(number) = self.client_of(datagram, from)? else { continue };
            if let Some(client) = self.clients.get_mut(&number) {
                // The connection drops a datagram that is not its own.
                let read = client.conn.recv(datagram, quiche::RecvInfo { from, to: self.local });
                client.heard |= read.is_ok();
            }
        }
        for client in self.clients.values_mut() {
            if let Some(help) = &mut client.help {
                help.receive(&mut client.conn);
            }
        }
        Ok(())
    }

    /// The number of the client that sent this datagram; a new one if it begins a connection.
    fn client_of(&mut self, datagram: &mut [u8], from: SocketAddr) -> anyhow::Result<Option<u64>> {
        let Ok(header) = quiche::Header::from_slice(datagram, self.options.cid_length.into())
        else {
            return Ok(None);
        };
        let key = key(&header.dcid, from);
        if let Some(&number) = self.keys.get(&key) {
            return Ok(Some(number));
        }
        let begins =
            header.ty == quiche::Type::Initial && quiche::version_is_supported(header.version);
        if !begins || self.clients.len() >= MOST_CONNECTIONS {
            return Ok(None);
        }
        let id = connection_id(self.options.cid_length)?;
        let Ok(mut conn) = quiche::accept(&id, None, self.local, from, &mut self.config) else {
            return Ok(None);
        };
        let help = (self.helper)(&mut conn)?;
        let number = self.next;
        self.next += 1;
        self.keys.insert(key, number);
        self.keys.insert(self::key(&id, from), number);
        let report = Report::of(&conn, help.as_deref(), self.socket.errors());
        let client =
            Client { conn, service: None, help, outbox: Outbox::default(), heard: false, report };
        self.clients.insert(number, client);
        Ok(Some(number))
    }

    fn wait(&mut self) -> anyhow::Result<()> {
        let deadline = self.clients.values().filter_map(Client::deadline).min();
        let adjacent = self.clients.values().filter_map(|client| client.help.as_ref()?.socket());
        sockets::wait([self.socket.as_fd()].into_iter().chain(adjacent), deadline)?;
        for client in self.clients.values_mut() {
            client.on_timeout();
        }
        Ok(())
    }
}

impl Client {
    fn work(&mut self, root: &std::path::Path) {
        if self.service.is_none() && (self.conn.is_established() || self.conn.is_in_early_data()) {
            self.service = Service::new(&mut self.conn, root).ok();
        }
        if let Some(service) = &mut self.service
            && let Err(error) = service.work(&mut self.conn)
        {
            eprintln!("interop-server: a client violated HTTP/3: {error}");
            let _ = self.conn.close(true, GENERAL_PROTOCOL_ERROR, b"");
        }
    }

    fn send(&mut self, socket: &Socket) {
        loop {
            let put = |packet: &[u8], info: &quiche::SendInfo| socket.send(packet, info.to);
            if let Err(error) = self.outbox.send(&mut self.conn, now, put) {
                eprintln!("interop-server: a connection cannot send: {error}");
                let _ = self.conn.close(false, 1, b"");
                return;
            }
            let again = self.help.as_mut().is_some_and(|help| help.on_sent(&mut self.conn));
            if !again {
                return;
            }
        }
    }

    fn deadline(&self) -> Option<std::time::Instant> {
        let help = self.help.as_ref().and_then(|help| help.deadline());
        [self.conn.timeout_instant(), self.outbox.release(), help].into_iter().flatten().min()
    }

    fn on_timeout(&mut self) {
        if self.conn.timeout_instant().is_some_and(|at| at <= now()) {
            self.conn.on_timeout();
        }
    }
}

/// Provides connection IDs, because a client that migrates needs an unused one.
fn more_ids(
    number: u64,
    conn: &mut Connection,
    length: u8,
    keys: &mut HashMap<Key, u64>,
) -> anyhow::Result<()> {
    while let Some(retired) = conn.retired_scid_next() {
        keys.remove(&(retired.to_vec(), None));
    }
    while length > 0 && conn.is_established() && conn.scids_left() > 0 {
        let id = connection_id(length)?;
        conn.new_scid(&id, reset_token()?, false)?;
        keys.insert((id.to_vec(), None), number);
    }
    while conn.path_event_next().is_some() {}
    Ok(())
}

fn key(id: &ConnectionId<'_>, from: SocketAddr) -> Key {
    (id.to_vec(), id.is_empty().then_some(from))
}
