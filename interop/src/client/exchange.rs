//! The requests of one connection, and their answers.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;

use anyhow::{Context as _, bail, ensure};
use quiche::Connection;
use quiche::h3::{self, NameValue as _};
use serde::Deserialize;

use crate::cli::Task;
use crate::endpoint::Digest;

/// The size of a read of the file, in bytes.
const CHUNK: usize = 64 * 1024;
/// The longest receipt, in bytes.
const LONGEST_RECEIPT: usize = 4096;

/// The server's receipt for an upload.
#[derive(Debug, Deserialize)]
struct Receipt {
    bytes: u64,
    sha256: String,
}

/// The unsent part of a body.
struct Upload {
    file: File,
    stream: Option<u64>,
    chunk: Vec<u8>,
    handed_on: usize,
    /// The file has nothing after the chunk.
    all_read: bool,
    ended: bool,
}

/// An answer that is not complete yet.
#[derive(Default)]
struct Answer {
    status: Option<String>,
    digest: Digest,
    receipt: Vec<u8>,
}

/// The requests of one connection.
pub(crate) struct Exchange {
    authority: String,
    path: String,
    upload: Option<Upload>,
    length: Option<u64>,
    /// The bytes of the upload that may be sent for now.
    limit: u64,
    times: u32,
    at_once: u32,
    begun: u32,
    answered: u32,
    open: HashMap<u64, Answer>,
    /// The digest of the sent body, or of each received one.
    digest: Option<Digest>,
    moved: u64,
    buffer: Vec<u8>,
}

impl Exchange {
    /// The requests of a task. With `pause`, the second half of an upload waits for
    /// [`resume`](Self::resume).
    pub(crate) fn new(task: &Task, authority: &str, pause: bool) -> anyhow::Result<Self> {
        let (path, upload, length, times, at_once) = match task {
            Task::Put { file } => {
                let cannot = || format!("cannot read {}", file.display());
                let file = File::open(file).with_context(cannot)?;
                let length = file.metadata().with_context(cannot)?.len();
                let upload = Upload {
                    file,
                    stream: None,
                    chunk: Vec::new(),
                    handed_on: 0,
                    all_read: false,
                    ended: false,
                };
                ("/upload".to_owned(), Some(upload), Some(length), 1, 1)
            }
            Task::Get { name, times, at_once } => {
                (format!("/{name}"), None, None, *times, *at_once)
            }
        };
        Ok(Self {
            authority: authority.to_owned(),
            path,
            digest: upload.as_ref().map(|_| Digest::default()),
            upload,
            limit: length.filter(|_| pause).map_or(u64::MAX, |length| length / 2),
            length,
            times,
            at_once,
            begun: 0,
            answered: 0,
            open: HashMap::new(),
            moved: 0,
            buffer: vec![0; CHUNK],
        })
    }

    /// Whether all requests are answered.
    pub(crate) fn is_done(&self) -> bool {
        self.answered == self.times
    }

    /// Whether a request has been sent.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun > 0
    }

    /// Ends the pause in the middle of an upload.
    pub(crate) fn resume(&mut self) {
        self.limit = u64::MAX;
    }

    /// Whether half of the bytes is sent or received. False if their number is unknown.
    pub(crate) fn is_half_done(&self) -> bool {
        self.length.is_some_and(|length| self.moved >= length / 2)
    }

    /// The digest of the body, once all is done. Those of several answers are equal.
    pub(crate) fn digest(&self) -> Digest {
        self.digest.clone().unwrap_or_default()
    }

    /// The bytes of all bodies together.
    pub(crate) fn bytes(&self) -> u64 {
        self.moved
    }

    /// Reads answers, and sends requests and bodies, as far as the connection allows.
    pub(crate) fn work(
        &mut self,
        http: &mut h3::Connection,
        conn: &mut Connection,
    ) -> anyhow::Result<()> {
        // Answers first, because they allow more requests.
        self.read(http, conn)?;
        self.request(http, conn)?;
        self.send_body(http, conn)
    }

    fn request(&mut self, http: &mut h3::Connection, conn: &mut Connection) -> anyhow::Result<()> {
        while self.begun < self.times && self.open.len() < self.at_once as usize {
            let method: &[u8] = if self.upload.is_some() { b"PUT" } else { b"GET" };
            let mut headers = vec![
                h3::Header::new(b":method", method),
                h3::Header::new(b":scheme", b"https"),
                h3::Header::new(b":authority", self.authority.as_bytes()),
                h3::Header::new(b":path", self.path.as_bytes()),
                h3::Header::new(b"user-agent", b"interop-client"),
            ];
            if let Some(length) = self.length {
                headers.push(h3::Header::new(b"content-length", length.to_string().as_bytes()));
            }
            match http.send_request(conn, &headers, self.upload.is_none()) {
                Ok(stream) => {
                    self.open.insert(stream, Answer::default());
                    self.begun += 1;
                    if let Some(upload) = &mut self.upload {
                        upload.stream = Some(stream);
                    }
                }
                Err(
                    h3::Error::StreamBlocked
                    | h3::Error::TransportError(quiche::Error::StreamLimit),
                ) => {
                    break;
                }
                Err(error) => bail!("cannot send the request: {error}"),
            }
        }
        Ok(())
    }

    fn send_body(
        &mut self,
        http: &mut h3::Connection,
        conn: &mut Connection,
    ) -> anyhow::Result<()> {
        let Some(upload) = &mut self.upload else { return Ok(()) };
        let Some(stream) = upload.stream else { return Ok(()) };
        while !upload.ended {
            if upload.handed_on == upload.chunk.len() && !upload.all_read {
                upload.handed_on = 0;
                upload.chunk.clear();
                (&mut upload.file)
                    .take(CHUNK as u64)
                    .read_to_end(&mut upload.chunk)
                    .context("cannot read the file")?;
                upload.all_read = upload.chunk.len() < CHUNK;
            }
            let rest = upload.chunk.get(upload.handed_on..).unwrap_or_default();
            let allowed = usize::try_from(self.limit - self.moved).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(rest.len().min(allowed));
            if now.is_empty() && !later.is_empty() {
                break;
            }
            match http.send_body(conn, stream, now, upload.all_read && later.is_empty()) {
                Ok(taken) => {
                    if let Some(digest) = &mut self.digest {
                        digest.update(rest.get(..taken).unwrap_or_default());
                    }
                    upload.handed_on += taken;
                    self.moved += taken as u64;
                    upload.ended = upload.all_read && upload.handed_on == upload.chunk.len();
                }
                Err(h3::Error::Done) => break,
                Err(error) => bail!("the server accepts no more of the body: {error}"),
            }
        }
        Ok(())
    }

    fn read(&mut self, http: &mut h3::Connection, conn: &mut Connection) -> anyhow::Result<()> {
        loop {
            match http.poll(conn) {
                Ok((stream, h3::Event::Headers { list, .. })) => {
                    let Some(answer) = self.open.get_mut(&stream) else { continue };
                    if let Some(length) =
                        value(&list, b"content-length").and_then(|length| length.parse().ok())
                        && self.times == 1
                    {
                        self.length.get_or_insert(length);
                    }
                    answer.status = value(&list, b":status").or(answer.status.take());
                }
                Ok((stream, h3::Event::Data)) => {
                    while let Ok(len) = http.recv_body(conn, stream, &mut self.buffer) {
                        let Some(answer) = self.open.get_mut(&stream) else { continue };
                        let body = self.buffer.get(..len).unwrap_or_default();
                        if self.upload.is_none() {
                            answer.digest.update(body);
                            self.moved += body.len() as u64;
                        } else {
                            ensure!(
                                answer.receipt.len() + len <= LONGEST_RECEIPT,
                                "the answer is too long for a receipt"
                            );
                            answer.receipt.extend_from_slice(body);
                        }
                    }
                }
                Ok((stream, h3::Event::Finished)) => {
                    if let Some(answer) = self.open.remove(&stream) {
                        self.check(answer)?;
                    }
                }
                Ok((_, h3::Event::Reset(code))) => {
                    bail!("the server reset its answer (code {code:#x})")
                }
                Ok(_) => {}
                Err(h3::Error::Done) => return Ok(()),
                Err(error) => bail!("the server violated HTTP/3: {error}"),
            }
        }
    }

    /// Checks a complete answer.
    fn check(&mut self, answer: Answer) -> anyhow::Result<()> {
        let status = answer.status.unwrap_or_default();
        ensure!(
            matches!(status.as_str(), "200" | "201"),
            "the server answered with status {status}"
        );
        if let Some(upload) = &self.upload {
            ensure!(upload.ended, "the server answered before it received the whole body");
            let receipt: Receipt = serde_json::from_slice(&answer.receipt)
                .context("the server's answer is no receipt")?;
            let sent = self.digest();
            ensure!(
                receipt.bytes == sent.bytes() && receipt.sha256 == sent.sha256(),
                "the server received {} bytes, SHA-256 {}, but the client sent {}, SHA-256 {}",
                receipt.bytes,
                receipt.sha256,
                sent.bytes(),
                sent.sha256()
            );
        } else if let Some(first) = &self.digest {
            ensure!(first.sha256() == answer.digest.sha256(), "the server's answers differ");
        } else {
            self.digest = Some(answer.digest);
        }
        self.answered += 1;
        Ok(())
    }
}

fn value(headers: &[h3::Header], name: &[u8]) -> Option<String> {
    let header = headers.iter().find(|header| header.name() == name)?;
    Some(String::from_utf8_lossy(header.value()).into_owned())
}
