//! A name server with one record, for the HTTP/3 server (RFC 9460).

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use hickory_resolver::proto::op::Message;
use hickory_resolver::proto::rr::rdata::svcb::{Alpn, IpHint, SVCB, SvcParamKey, SvcParamValue};
use hickory_resolver::proto::rr::rdata::{A, HTTPS};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};
use sidekick_netem::namespace::Namespace;
use sidekick_netem::topology::{RECEIVER, SERVER_PORT};

use crate::files::NAME;

/// The interval at which it checks whether to end.
const TICK: Duration = Duration::from_millis(100);
const TTL: u32 = 60;

/// A running name server. It ends when dropped.
pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    done: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// Starts it at the receiver's address. It has only the HTTPS record of the servers' name, and
    /// no address, so clients depend on the record's hint.
    pub(crate) fn start(receiver: &Namespace) -> anyhow::Result<Self> {
        let record = record()?;
        let socket = receiver
            .enter(|| UdpSocket::bind((RECEIVER, 0)))?
            .context("cannot open a socket for the name server")?;
        socket.set_read_timeout(Some(TICK))?;
        let address = socket.local_addr()?;
        let done = Arc::<AtomicBool>::default();
        let over = Arc::clone(&done);
        let thread = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                answer(&socket, &record);
            }
        });
        Ok(Self { address, done, thread: Some(thread) })
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The record with the servers' port and address.
fn record() -> anyhow::Result<Record> {
    let hint: Ipv4Addr = RECEIVER;
    let parameters = vec![
        (SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(vec!["h3".to_owned()]))),
        (SvcParamKey::Port, SvcParamValue::Port(SERVER_PORT)),
        (SvcParamKey::Ipv4Hint, SvcParamValue::Ipv4Hint(IpHint(vec![A(hint)]))),
    ];
    let data = RData::HTTPS(HTTPS(SVCB::new(1, Name::root(), parameters)));
    Ok(Record::from_rdata(Name::from_ascii(format!("{NAME}."))?, TTL, data))
}

/// Answers one query, if one arrives.
fn answer(socket: &UdpSocket, record: &Record) {
    let mut datagram = [0; 2048];
    let Ok((len, from)) = socket.recv_from(&mut datagram) else { return };
    let Ok(request) = Message::from_vec(datagram.get(..len).unwrap_or_default()) else { return };
    let Some(question) = request.queries.first() else { return };
    let mut response = Message::response(request.id, request.op_code);
    response.add_query(question.clone());
    if question.query_type() == RecordType::HTTPS && question.name() == &record.name {
        response.add_answer(record.clone());
    }
    if let Ok(octets) = response.to_vec() {
        let _ = socket.send_to(&octets, from);
    }
}
