//! The server's application. It hashes what it receives without storing it, and answers with as
//! many bytes as the request wants.

use std::collections::BTreeMap;
use std::time::Instant;

use quic_sidekick::quiche::Connection;
use quic_sidekick::quiche::h3::{self, Header, NameValue};
use sha2::{Digest, Sha256};

use super::messages::Arrivals;
use super::quic::{App, Work, begin_http, read_body};
use crate::scenario::{Flow, FlowKind};
use crate::source::{Content, hexadecimal};

/// A request, from its headers to the end of its answer.
enum Exchange {
    Receiving {
        path: Vec<u8>,
        digest: Sha256,
    },
    /// The answer waits until it can be sent.
    Answering {
        headers_sent: bool,
        body: Body,
    },
}

enum Body {
    Text(Vec<u8>),
    Made(Box<Content>),
}

pub(super) struct Server {
    seed: u64,
    http: Option<h3::Connection>,
    exchanges: BTreeMap<u64, Exchange>,
    delivered: u64,
    /// When messages arrived, for a flow of messages.
    pub(super) arrivals: Option<Arrivals>,
    buffer: Vec<u8>,
}

impl Server {
    /// The server of `flow`. Contents follow from `seed`.
    pub(super) fn new(flow: &Flow, seed: u64) -> Self {
        Self {
            seed,
            http: None,
            exchanges: BTreeMap::new(),
            delivered: 0,
            arrivals: (flow.kind == FlowKind::Messages).then(|| Arrivals::of(flow)),
            buffer: vec![0; 64 * 1024],
        }
    }

    fn poll(
        &mut self,
        http: &mut h3::Connection,
        conn: &mut Connection,
        now: Instant,
    ) -> Result<bool, String> {
        let mut received = false;
        loop {
            match http.poll(conn) {
                Ok((stream, h3::Event::Headers { list, .. })) => {
                    let path = list.iter().find(|header| header.name() == b":path");
                    let path = path.map(|header| header.value().to_vec()).unwrap_or_default();
                    self.exchanges
                        .insert(stream, Exchange::Receiving { path, digest: Sha256::new() });
                    received = true;
                }
                Ok((stream, h3::Event::Data)) => received |= self.read(http, conn, stream, now)?,
                Ok((stream, h3::Event::Finished)) => self.answer(stream),
                Ok(_) => {}
                Err(h3::Error::Done) => return Ok(received),
                Err(error) => return Err(format!("HTTP/3 at the server: {error}")),
            }
        }
    }

    fn read(
        &mut self,
        http: &mut h3::Connection,
        conn: &mut Connection,
        stream: u64,
        now: Instant,
    ) -> Result<bool, String> {
        let mut request = self.exchanges.get_mut(&stream);
        read_body(http, conn, stream, &mut self.buffer, |bytes| {
            self.delivered += bytes.len() as u64;
            if let Some(arrivals) = &mut self.arrivals {
                arrivals.note(self.delivered, now);
            }
            if let Some(Exchange::Receiving { digest, .. }) = &mut request {
                digest.update(bytes);
            }
        })
        .map_err(|error| format!("the server cannot read: {error}"))
    }

    fn answer(&mut self, stream: u64) {
        let Some(Exchange::Receiving { path, digest }) = self.exchanges.remove(&stream) else {
            return;
        };
        let wanted =
            std::str::from_utf8(&path).ok().and_then(|path| path.strip_prefix('/')?.parse().ok());
        let body = match wanted {
            Some(bytes) => Body::Made(Box::new(Content::new(bytes, self.seed))),
            None => Body::Text(hexadecimal(&digest.finalize()).into_bytes()),
        };
        self.exchanges.insert(stream, Exchange::Answering { headers_sent: false, body });
    }

    fn write(&mut self, http: &mut h3::Connection, conn: &mut Connection) -> Result<bool, String> {
        let mut wrote = false;
        let mut finished = Vec::new();
        for (&stream, exchange) in &mut self.exchanges {
            let Exchange::Answering { headers_sent, body } = exchange else { continue };
            match give(http, conn, stream, headers_sent, body, &mut wrote) {
                Ok(true) => finished.push(stream),
                Ok(false) | Err(h3::Error::Done | h3::Error::StreamBlocked) => {}
                Err(error) => return Err(format!("the server cannot answer: {error}")),
            }
        }
        for stream in finished {
            self.exchanges.remove(&stream);
        }
        Ok(wrote)
    }
}

/// Writes as much of an answer as fits. Returns whether the answer is complete.
fn give(
    http: &mut h3::Connection,
    conn: &mut Connection,
    stream: u64,
    headers_sent: &mut bool,
    body: &mut Body,
    wrote: &mut bool,
) -> Result<bool, h3::Error> {
    if !*headers_sent {
        http.send_response(conn, stream, &[Header::new(b":status", b"200")], false)?;
        (*headers_sent, *wrote) = (true, true);
    }
    loop {
        match body {
            Body::Text(text) => {
                let written = http.send_body(conn, stream, text, true)?;
                text.drain(..written);
                *wrote = true;
                if text.is_empty() {
                    return Ok(true);
                }
            }
            Body::Made(content) if content.is_empty() => {
                http.send_body(conn, stream, b"", true)?;
                *wrote = true;
                return Ok(true);
            }
            Body::Made(content) => {
                let written = http.send_body(conn, stream, content.peek(), false)?;
                content.take(written);
                *wrote = true;
            }
        }
    }
}

impl App for Server {
    fn work(&mut self, conn: &mut Connection, now: Instant) -> Result<Work, String> {
        begin_http(&mut self.http, conn)
            .map_err(|error| format!("the server cannot begin HTTP/3: {error}"))?;
        let Some(mut http) = self.http.take() else { return Ok(Work::default()) };
        let mut work = || -> Result<Work, String> {
            let received = self.poll(&mut http, conn, now)?;
            let wrote = self.write(&mut http, conn)?;
            Ok(Work { received, wrote })
        };
        let done = work();
        self.http = Some(http);
        done
    }

    fn delivered(&self) -> u64 {
        self.delivered
    }
}
