//! An upload or a download in memory and in virtual time. One function does the client's work, so
//! that a profiler can count it separately.
//!
//! This file is a module twice: once for the hooked crate and once for the pristine one. The parent
//! module imports either as `engine`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::{Direction, Link, ProxyOutput, watched};

use super::engine::{self as quiche, Config, Connection, ConnectionId, RecvInfo};
use virtual_time::World;

/// The number of the file's packets before the client's work counts, so that the handshake and slow
/// start are over.
const WARM_UP: u64 = 1000;
/// The near segment and the far one, as in the lab's `upload-paper`.
const NEAR: Duration = Duration::from_millis(1);
const FAR: Duration = Duration::from_millis(25);

/// A proxy on the path, and the client's plugin.
pub(crate) trait Help {
    fn attach(&mut self, client: &mut Connection);
    /// The client's work on a message of the proxy, and at a timeout. Returns whether it triggers
    /// packets.
    fn receive(&mut self, client: &mut Connection, message: Option<Vec<u8>>) -> bool;
    /// The client's work after it sent. Returns its messages for the proxy.
    fn on_sent(&mut self, client: &mut Connection, messages: &mut Vec<Vec<u8>>);
    /// The client's timeout.
    fn next_timeout(&self) -> Option<Instant>;
    /// The proxy's work on a datagram that the client sent, or on a message.
    fn proxy(&mut self, datagram: Option<&[u8]>, messages: &[Vec<u8>]) -> ProxyOutput;
    /// The proxy's work on a datagram for the client.
    fn keep(&mut self, datagram: &[u8]) -> ProxyOutput;
    /// The proxy's timeout.
    fn proxy_deadline(&self) -> Option<Instant>;
}

/// An input of the client.
enum Event {
    Datagram(Vec<u8>),
    Message(Vec<u8>),
    Time,
}

/// The client's datagrams for the path and for the proxy.
#[derive(Default)]
struct Output {
    datagrams: Vec<Vec<u8>>,
    messages: Vec<Vec<u8>>,
    /// When the pacer releases the next datagram.
    release: Option<Instant>,
}

/// The bytes that the client writes, and how many it has read.
struct Body {
    content: Vec<u8>,
    written: usize,
    /// How far the application may write now.
    end: usize,
    read: usize,
    /// The buffer into which the application reads.
    room: Vec<u8>,
}

/// The client's work.
fn work(
    client: &mut Connection,
    help: &mut dyn Help,
    body: &mut Body,
    event: Event,
    out: &mut Output,
) {
    match event {
        Event::Datagram(mut datagram) => {
            let info = RecvInfo { from: SERVER.into(), to: CLIENT.into() };
            watched(|| client.recv(&mut datagram, info)).unwrap();
        }
        Event::Message(message) => {
            if !watched(|| help.receive(client, Some(message))) {
                return watched(|| help.on_sent(client, &mut out.messages));
            }
        }
        Event::Time => {
            if client.timeout_instant().is_some_and(|at| at <= now()) {
                watched(|| client.on_timeout());
            }
            watched(|| help.receive(client, None));
        }
    }
    if client.is_established() && body.written < body.end {
        let (data, fin) = (&body.content[body.written..body.end], body.end == body.content.len());
        match watched(|| client.stream_send(0, data, fin)) {
            Ok(written) => body.written += written,
            Err(quiche::Error::Done) => {}
            Err(error) => panic!("{error}"),
        }
    }
    while let Ok((len, _)) = watched(|| client.stream_recv(0, &mut body.room)) {
        body.read += len;
    }
    let mut buffer = [0; 1500];
    loop {
        out.release = paced_until(client);
        if out.release.is_some() {
            break;
        }
        let Ok((len, _)) = watched(|| client.send(&mut buffer)) else { break };
        out.datagrams.push(buffer[..len].to_vec());
    }
    watched(|| help.on_sent(client, &mut out.messages));
}

/// The client's work while it counts. The profiler finds the function by its name, so it must not
/// be inlined, and contains nothing else.
#[inline(never)]
fn counted_work(
    client: &mut Connection,
    help: &mut dyn Help,
    body: &mut Body,
    event: Event,
    out: &mut Output,
) {
    work(client, help, body, event, out);
}

/// Until when the connection waits, if it paces, as in tokio-quiche.
fn paced_until(client: &Connection) -> Option<Instant> {
    let release = client.get_next_release_time()?.time(now())?;
    let early = client.max_release_into_future();
    (release.saturating_duration_since(now()) >= early).then(|| now() + early.mul_f64(0.8))
}

/// The bottleneck, which the file crosses.
struct Bottleneck {
    link: Link,
    free: Instant,
}

impl Bottleneck {
    /// When a datagram of this many bytes has left it; `None` if the queue has no room.
    fn pass(&mut self, len: usize) -> Option<Instant> {
        let len = u32::try_from(len).unwrap();
        let ns_per_byte = Duration::from_nanos(self.link.ns_per_byte);
        let start = self.free.max(now());
        if start - now() > ns_per_byte * (self.link.queue_bytes - len) {
            return None;
        }
        self.free = start + ns_per_byte * len;
        Some(self.free)
    }
}

const CLIENT: ([u8; 4], u16) = ([192, 0, 2, 1], 4000);
const SERVER: ([u8; 4], u16) = ([198, 51, 100, 7], 443);

#[allow(clippy::disallowed_methods, reason = "the virtual clock answers")]
fn now() -> Instant {
    Instant::now()
}

/// Transfers a file. `certificate` and `key` are files. Returns the number of the file's packets
/// that the client sent or received while its work counted.
pub(crate) fn transfer(
    link: Link,
    controller: &str,
    (certificate, key): (&str, &str),
    help: &mut dyn Help,
) -> u64 {
    let world = World::enter(1).unwrap();
    let (mut client, mut server) = ends(controller, certificate, key);
    watched(|| help.attach(&mut client));
    let up = link.direction == Direction::Up;
    let file: Vec<u8> = (0..=250).cycle().take(link.bytes).collect();
    let (content, reply) = if up { (file, Vec::new()) } else { (vec![1], file) };
    let end = if up { 0 } else { content.len() };
    let mut body = Body { content, written: 0, end, read: 0, room: vec![0; 65_536] };
    let (mut to_server, mut to_client) = (VecDeque::new(), VecDeque::new());
    let mut to_proxy: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let mut messages: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
    let (mut packets, mut received, mut replied, mut unacknowledged) = (0_u64, 0, 0, 0);
    let mut bottleneck = Bottleneck { link, free: now() };
    let mut release = Some(now());
    let mut buffer = vec![0; 65_536];
    while received + body.read < link.bytes {
        let due = |queue: &VecDeque<(Instant, Vec<u8>)>| queue.front().map(|(at, _)| *at);
        let timers =
            [client.timeout_instant(), help.next_timeout(), release].into_iter().flatten().min();
        let queues = [due(&to_server), due(&to_proxy), due(&to_client), due(&messages)];
        let others = [server.timeout_instant(), help.proxy_deadline(), timers];
        let next = queues.into_iter().chain(others).flatten().min().unwrap().max(now());
        world.set(next - world.start());
        let is_due = |queue: &VecDeque<(Instant, Vec<u8>)>| due(queue).is_some_and(|at| at <= next);

        let mut proxy_output = ProxyOutput::default();
        let mut event = None;
        if is_due(&to_server) {
            let (_, mut datagram) = to_server.pop_front().unwrap();
            let info = RecvInfo { from: CLIENT.into(), to: SERVER.into() };
            server.recv(&mut datagram, info).unwrap();
            unacknowledged += 1;
            while let Ok((len, _)) = server.stream_recv(0, &mut buffer) {
                received += usize::from(up) * len;
            }
        } else if is_due(&to_proxy) {
            let (_, datagram) = to_proxy.pop_front().unwrap();
            proxy_output.extend(help.keep(&datagram));
            to_client.push_back((next + NEAR, datagram));
        } else if is_due(&to_client) {
            packets += u64::from(!up);
            event = to_client.pop_front().map(|(_, datagram)| Event::Datagram(datagram));
        } else if is_due(&messages) {
            event = messages.pop_front().map(|(_, message)| Event::Message(message));
        } else if timers.is_some_and(|at| at <= next) {
            event = Some(Event::Time);
        } else {
            server.on_timeout();
            proxy_output.extend(help.proxy(None, &[]));
        }
        if let Some(event) = event {
            let mut out = Output { release, ..Output::default() };
            if up {
                body.end = link.bytes.min(received + link.ahead);
            }
            let work = if packets < WARM_UP { work } else { counted_work };
            work(&mut client, help, &mut body, event, &mut out);
            release = out.release;
            proxy_output.extend(help.proxy(None, &out.messages));
            for datagram in out.datagrams {
                packets += u64::from(up);
                if up && link.loses_every.is_some_and(|every| packets % every == 0) {
                    continue;
                }
                proxy_output.extend(help.proxy(Some(&datagram), &[]));
                let left = if up { bottleneck.pass(datagram.len()) } else { Some(next) };
                // The server drops markers: they are not QUIC.
                let is_quic = datagram[0] & 0xc0 != 0;
                if let Some(left) = left.filter(|_| is_quic) {
                    to_server.push_back((left + NEAR + FAR, datagram));
                }
            }
        }
        messages
            .extend(proxy_output.messages.into_iter().map(|datagram| (next + 2 * NEAR, datagram)));
        let on_path = proxy_output.on_path.into_iter().map(|datagram| (next + NEAR, datagram));
        to_client.extend(on_path);
        if !up && server.stream_finished(0) {
            let end = link.bytes.min(body.read + link.ahead);
            let data = &reply[replied..end];
            replied += server.stream_send(0, data, end == link.bytes).unwrap_or(0);
        }
        // The server acknowledges every second packet, as in RFC 9000, and sends its other frames
        // with that.
        if !up || unacknowledged >= 2 || !server.is_established() || to_server.is_empty() {
            unacknowledged = 0;
            while let Ok((len, _)) = server.send(&mut buffer) {
                let left = if up { Some(next) } else { bottleneck.pass(len) };
                if let Some(left) = left {
                    to_proxy.push_back((left + FAR, buffer[..len].to_vec()));
                }
            }
        }
    }
    packets - WARM_UP
}

fn ends(controller: &str, certificate: &str, key: &str) -> (Connection, Connection) {
    let make = || {
        let mut config = Config::new(quiche::PROTOCOL_VERSION).unwrap();
        config.set_application_protos(&[b"test"]).unwrap();
        config.set_cc_algorithm_name(controller).unwrap();
        config.set_initial_max_data(1 << 24);
        config.set_initial_max_stream_data_bidi_local(1 << 24);
        config.set_initial_max_stream_data_bidi_remote(1 << 24);
        config.set_initial_max_streams_bidi(1);
        config.set_max_idle_timeout(20_000);
        config.set_max_recv_udp_payload_size(1350);
        config.set_max_send_udp_payload_size(1350);
        config.verify_peer(false);
        config
    };
    let mut config = make();
    config.load_cert_chain_from_pem_file(certificate).unwrap();
    config.load_priv_key_from_pem_file(key).unwrap();
    let id = |byte: u8| ConnectionId::from_vec(vec![byte; 16]);
    let (client, server): (SocketAddr, SocketAddr) = (CLIENT.into(), SERVER.into());
    let mut ours = make();
    let connect = || quiche::connect(Some("example.org"), &id(1), client, server, &mut ours);
    let sender = watched(connect).unwrap();
    (sender, quiche::accept(&id(2), None, server, client, &mut config).unwrap())
}
