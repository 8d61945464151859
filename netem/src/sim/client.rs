//! The client's application: HTTP/3 requests, one after another, or several at a time for a page.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use quic_sidekick::quiche::Connection;
use quic_sidekick::quiche::h3::{self, Header, NameValue};
use sha2::{Digest, Sha256};

use super::messages::Pace;
use super::page;
use super::quic::{App, Work, begin_http, read_body};
use crate::scenario::{Flow, FlowKind};
use crate::source::{Content, hexadecimal};

/// The part of a request's answer that has arrived.
struct Answer {
    /// Bytes that the client requests or sends.
    bytes: u64,
    upload: Option<Content>,
    digest: Sha256,
    status: Option<Vec<u8>>,
    /// The answer to an upload so far: the SHA-256 of what the server received.
    text: Vec<u8>,
    first_byte: bool,
}

pub(super) struct Client {
    kind: FlowKind,
    replayable: bool,
    early: bool,
    seed: u64,
    /// The bytes of each later request, in order.
    wanted: VecDeque<u64>,
    /// Requests that may be open at a time, after the first answer.
    in_flight: usize,
    answered: usize,
    /// When the bytes of an upload become available. `None` if all are available from the
    /// beginning.
    pub(super) pace: Option<Pace>,
    begin: Instant,
    http: Option<h3::Connection>,
    answers: BTreeMap<u64, Answer>,
    sent: u64,
    delivered: u64,
    buffer: Vec<u8>,
    /// The time from the first packet to the first byte of each answer.
    pub(super) first_bytes: Vec<std::time::Duration>,
    /// The SHA-256 of the transferred bytes, after the check that they arrived. A page has none.
    pub(super) sha256: String,
}

impl Client {
    /// The client of `flow`, which begins at `begin`. Contents follow from `seed`.
    pub(super) fn new(flow: &Flow, seed: u64, begin: Instant) -> Self {
        let wanted = match flow.kind {
            FlowKind::Page => page::sizes(flow.bytes, flow.objects.into()),
            FlowKind::Requests => (0..flow.requests).map(|_| flow.bytes).collect(),
            _ => vec![flow.total_bytes()],
        };
        Self {
            kind: flow.kind,
            replayable: flow.replayable,
            early: flow.zero_rtt,
            seed,
            pace: (flow.kind == FlowKind::Messages).then(|| Pace::of(flow)),
            wanted: wanted.into(),
            in_flight: if flow.kind == FlowKind::Page { flow.in_flight.into() } else { 1 },
            answered: 0,
            begin,
            http: None,
            answers: BTreeMap::new(),
            sent: 0,
            delivered: 0,
            buffer: vec![0; 64 * 1024],
            first_bytes: Vec::new(),
            sha256: String::new(),
        }
    }

    fn uploads(&self) -> bool {
        matches!(self.kind, FlowKind::Upload | FlowKind::Messages)
    }

    /// Whether the client may send a request now. Early data carries no request that must not be
    /// replayed (RFC 8470).
    fn may_ask(&self, conn: &Connection) -> bool {
        let safe = match self.kind {
            FlowKind::Upload | FlowKind::Messages => false,
            FlowKind::Download | FlowKind::Page => true,
            FlowKind::Requests | FlowKind::Audio | FlowKind::Listen => self.replayable,
        };
        conn.is_established() || (self.early && safe && conn.is_in_early_data())
    }

    /// Sends the requests that it may send. Returns whether it sent any.
    fn ask(&mut self, http: &mut h3::Connection, conn: &mut Connection) -> Result<bool, String> {
        let mut asked = false;
        while let Some(&bytes) = self.wanted.front() {
            // The document of a page names its objects, so it comes first.
            let room = if self.answered == 0 { 1 } else { self.in_flight };
            if self.answers.len() >= room || !self.may_ask(conn) {
                break;
            }
            match http.send_request(conn, &self.request(bytes), !self.uploads()) {
                Ok(stream) => {
                    self.wanted.pop_front();
                    self.answers.insert(stream, self.answer(bytes));
                    asked = true;
                }
                Err(h3::Error::StreamBlocked | h3::Error::Done) => break,
                Err(error) => return Err(format!("cannot send a request: {error}")),
            }
        }
        Ok(asked)
    }

    fn request(&self, bytes: u64) -> [Header; 4] {
        let upload = self.uploads();
        let post = upload || (self.kind == FlowKind::Requests && !self.replayable);
        let method = if post { "POST" } else { "GET" };
        let path = if upload { "/upload".to_owned() } else { format!("/{bytes}") };
        [
            Header::new(b":method", method.as_bytes()),
            Header::new(b":scheme", b"https"),
            Header::new(b":authority", b"receiver.example"),
            Header::new(b":path", path.as_bytes()),
        ]
    }

    fn answer(&self, bytes: u64) -> Answer {
        Answer {
            bytes,
            upload: self.uploads().then(|| Content::new(bytes, self.seed)),
            digest: Sha256::new(),
            status: None,
            text: Vec::new(),
            first_byte: false,
        }
    }

    fn upload(
        &mut self,
        http: &mut h3::Connection,
        conn: &mut Connection,
        now: Instant,
    ) -> Result<bool, String> {
        // An upload has one stream.
        let Some((stream, Answer { upload, .. })) = self.answers.iter_mut().next() else {
            return Ok(false);
        };
        let Some(content) = upload else { return Ok(false) };
        let mut wrote = false;
        while !content.is_empty() {
            let bytes = content.peek();
            let due = self.pace.as_mut().map_or(u64::MAX, |pace| pace.due(now) - self.sent);
            let bytes = bytes.get(..usize::try_from(due).unwrap_or(usize::MAX)).unwrap_or(bytes);
            if bytes.is_empty() {
                return Ok(wrote);
            }
            match http.send_body(conn, *stream, bytes, false) {
                Ok(written) => {
                    content.take(written);
                    self.sent += written as u64;
                    wrote = true;
                }
                Err(h3::Error::Done | h3::Error::StreamBlocked) => return Ok(wrote),
                Err(error) => return Err(format!("cannot send the body: {error}")),
            }
        }
        match http.send_body(conn, *stream, b"", true) {
            Ok(_) => {
                *upload = None;
                Ok(true)
            }
            Err(h3::Error::Done | h3::Error::StreamBlocked) => Ok(wrote),
            Err(error) => Err(format!("cannot end the body: {error}")),
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
                    if let Some(answer) = self.answers.get_mut(&stream) {
                        let status = list.iter().find(|header| header.name() == b":status");
                        answer.status = status.map(|header| header.value().to_vec());
                    }
                }
                Ok((stream, h3::Event::Data)) => received |= self.read(http, conn, stream, now)?,
                Ok((stream, h3::Event::Finished)) => self.finish(stream)?,
                Ok((_, h3::Event::Reset(code))) => {
                    return Err(format!("the server reset the stream: {code:#x}"));
                }
                Ok(_) => {}
                Err(h3::Error::Done) => return Ok(received),
                Err(error) => return Err(format!("HTTP/3: {error}")),
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
        let uploads = self.uploads();
        let Some(answer) = self.answers.get_mut(&stream) else { return Ok(false) };
        read_body(http, conn, stream, &mut self.buffer, |bytes| {
            self.delivered += bytes.len() as u64;
            if !std::mem::replace(&mut answer.first_byte, true) {
                self.first_bytes.push(now - self.begin);
            }
            answer.digest.update(bytes);
            if uploads {
                answer.text.extend_from_slice(bytes);
            }
        })
        .map_err(|error| format!("cannot read the answer: {error}"))
    }

    fn finish(&mut self, stream: u64) -> Result<(), String> {
        let Some(answer) = self.answers.remove(&stream) else { return Ok(()) };
        let status =
            String::from_utf8_lossy(answer.status.as_deref().unwrap_or_default()).into_owned();
        if status != "200" {
            return Err(format!("the server answered with status {status}"));
        }
        let sent = Content::new(answer.bytes, self.seed).sha256();
        let arrived = if self.uploads() {
            String::from_utf8_lossy(&answer.text).into_owned()
        } else {
            hexadecimal(&answer.digest.finalize())
        };
        if arrived != sent {
            return Err(format!("{arrived} arrived where {sent} was sent"));
        }
        if self.kind != FlowKind::Page {
            self.sha256 = sent;
        }
        self.answered += 1;
        Ok(())
    }
}

impl App for Client {
    fn work(&mut self, conn: &mut Connection, now: Instant) -> Result<Work, String> {
        begin_http(&mut self.http, conn)
            .map_err(|error| format!("cannot begin HTTP/3: {error}"))?;
        let Some(mut http) = self.http.take() else { return Ok(Work::default()) };
        let mut work = || -> Result<Work, String> {
            let received = self.poll(&mut http, conn, now)?;
            let asked = self.ask(&mut http, conn)?;
            let wrote = self.upload(&mut http, conn, now)? || asked;
            Ok(Work { received, wrote })
        };
        let done = work();
        self.http = Some(http);
        done
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.pace.as_ref()?.next()
    }

    fn delivered(&self) -> u64 {
        self.delivered
    }

    fn is_done(&self) -> bool {
        self.wanted.is_empty() && self.answers.is_empty()
    }
}
