//! A name server on loopback with the answers of a test.

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use hickory_resolver::proto::op::{Message, ResponseCode};
use hickory_resolver::proto::rr::rdata::svcb::{Alpn, IpHint, SVCB, SvcParamKey, SvcParamValue};
use hickory_resolver::proto::rr::rdata::{A, CNAME, HTTPS};
use hickory_resolver::proto::rr::{Name, RData, Record, RecordType};

/// The answer to a query.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    Records(Vec<Record>),
    /// Records whose last octets are missing, although the length includes them.
    Malformed(Vec<Record>),
    Failure(ResponseCode),
    Silence,
}

/// A running name server. It ends when dropped.
pub(crate) struct NameServer {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// Starts a server with these names. It answers NXDOMAIN for any other.
    pub(crate) fn start<'a>(
        replies: impl IntoIterator<Item = (&'a str, RecordType, Reply)>,
    ) -> Self {
        let replies: HashMap<_, _> =
            replies.into_iter().map(|(owner, kind, reply)| ((name(owner), kind), reply)).collect();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<_>>>::default();
        let log = Arc::clone(&asked);
        let thread = std::thread::spawn(move || serve(&socket, &replies, &log));
        Self { address, asked, thread: Some(thread) }
    }

    /// The names whose HTTPS records the client queried, in order.
    pub(crate) fn asked_for_https(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        // An empty datagram is not a query. It ends the thread.
        let _ = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|socket| socket.send_to(&[], self.address));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(
    socket: &UdpSocket,
    replies: &HashMap<(Name, RecordType), Reply>,
    log: &Mutex<Vec<String>>,
) {
    let mut datagram = [0; 2048];
    let mut known = HashSet::new();
    loop {
        let (len, from) = socket.recv_from(&mut datagram).unwrap();
        if len == 0 {
            return;
        }
        let request = Message::from_vec(&datagram[..len]).unwrap();
        let question = request.queries[0].clone();
        let mut owner = question.name().clone();
        // A client repeats a query that waits for its answer.
        if question.query_type() == RecordType::HTTPS && known.insert((request.id, owner.clone())) {
            log.lock().unwrap().push(owner.to_ascii());
        }

        let mut response = Message::response(request.id, request.op_code);
        response.add_query(question.clone());
        let mut cut = 0;
        // A CNAME answers for every type, together with what it leads to.
        while let Some(Reply::Records(records)) = replies.get(&(owner.clone(), RecordType::CNAME)) {
            response.add_answers(records.iter().cloned());
            owner = match &records[0].data {
                RData::CNAME(CNAME(target)) => target.clone(),
                other => panic!("no CNAME: {other}"),
            };
        }
        match replies.get(&(owner.clone(), question.query_type())) {
            Some(Reply::Silence) => continue,
            Some(Reply::Records(records)) => {
                response.add_answers(records.iter().cloned());
            }
            Some(Reply::Malformed(records)) => {
                response.add_answers(records.iter().cloned());
                cut = 2;
            }
            Some(Reply::Failure(code)) => response.metadata.response_code = *code,
            None if replies.keys().any(|(known, _)| *known == owner) => {}
            None => response.metadata.response_code = ResponseCode::NXDomain,
        }
        let mut octets = response.to_vec().unwrap();
        octets.truncate(octets.len() - cut);
        socket.send_to(&octets, from).unwrap();
    }
}

fn name(text: &str) -> Name {
    Name::from_ascii(text).unwrap()
}

/// An address record with 127.0.0.1.
pub(crate) fn here(owner: &str) -> Reply {
    Reply::Records(vec![Record::from_rdata(name(owner), 60, RData::A(A(Ipv4Addr::LOCALHOST)))])
}

pub(crate) fn cname(owner: &str, target: &str) -> Reply {
    Reply::Records(vec![Record::from_rdata(name(owner), 60, RData::CNAME(CNAME(name(target))))])
}

/// An HTTPS record in AliasMode.
pub(crate) fn alias(owner: &str, target: &str) -> Record {
    service(owner, 0, target, Vec::new())
}

/// An HTTPS record.
pub(crate) fn service(
    owner: &str,
    priority: u16,
    target: &str,
    params: Vec<(SvcParamKey, SvcParamValue)>,
) -> Record {
    let data = RData::HTTPS(HTTPS(SVCB::new(priority, name(target), params)));
    Record::from_rdata(name(owner), 60, data)
}

pub(crate) fn alpn(id: &str) -> (SvcParamKey, SvcParamValue) {
    (SvcParamKey::Alpn, SvcParamValue::Alpn(Alpn(vec![id.to_owned()])))
}

pub(crate) fn port(port: u16) -> (SvcParamKey, SvcParamValue) {
    (SvcParamKey::Port, SvcParamValue::Port(port))
}

/// A hint with the address 127.0.0.1.
pub(crate) fn hint() -> (SvcParamKey, SvcParamValue) {
    (SvcParamKey::Ipv4Hint, SvcParamValue::Ipv4Hint(IpHint(vec![A(Ipv4Addr::LOCALHOST)])))
}
