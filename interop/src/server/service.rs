//! A connection's requests.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use quiche::Connection;
use quiche::h3::{self, NameValue as _};

use crate::endpoint::Digest;

/// H3_MESSAGE_ERROR (RFC 9114, section 8.1).
const MESSAGE_ERROR: u64 = 0x10e;
/// The size of a read of a file, in bytes.
const CHUNK: usize = 16 * 1024;

/// The unsent part of an answer.
struct Answer {
    /// Not sent yet.
    headers: Option<Vec<h3::Header>>,
    source: Box<dyn Read>,
    chunk: Vec<u8>,
    handed_on: usize,
    all_read: bool,
}

/// The requests of one connection.
pub(crate) struct Service {
    http: h3::Connection,
    root: PathBuf,
    uploads: HashMap<u64, Digest>,
    answers: HashMap<u64, Answer>,
    buffer: Vec<u8>,
}

impl Service {
    pub(crate) fn new(conn: &mut Connection, root: &Path) -> Result<Self, h3::Error> {
        let http = h3::Connection::with_transport(conn, &h3::Config::new()?)?;
        Ok(Self {
            http,
            root: root.to_owned(),
            uploads: HashMap::new(),
            answers: HashMap::new(),
            buffer: vec![0; CHUNK],
        })
    }

    /// Reads and answers what the connection allows.
    pub(crate) fn work(&mut self, conn: &mut Connection) -> Result<(), h3::Error> {
        loop {
            match self.http.poll(conn) {
                Ok((stream, h3::Event::Headers { list, .. })) => self.begin(conn, stream, &list)?,
                Ok((stream, h3::Event::Data)) => {
                    while let Ok(len) = self.http.recv_body(conn, stream, &mut self.buffer) {
                        if let Some(digest) = self.uploads.get_mut(&stream) {
                            digest.update(self.buffer.get(..len).unwrap_or_default());
                        }
                    }
                }
                Ok((stream, h3::Event::Finished)) => {
                    if let Some(digest) = self.uploads.remove(&stream) {
                        let receipt = format!(
                            "{{\"bytes\": {}, \"sha256\": \"{}\"}}\n",
                            digest.bytes(),
                            digest.sha256()
                        );
                        let length = receipt.len() as u64;
                        self.answer(
                            conn,
                            stream,
                            "200",
                            length,
                            Box::new(std::io::Cursor::new(receipt)),
                        )?;
                    }
                }
                Ok((stream, h3::Event::Reset(_))) => {
                    self.uploads.remove(&stream);
                    self.answers.remove(&stream);
                }
                Ok(_) => {}
                Err(h3::Error::Done) => break,
                Err(error) => return Err(error),
            }
        }
        let begun: Vec<u64> = self.answers.keys().copied().collect();
        for stream in begun {
            self.send(conn, stream)?;
        }
        Ok(())
    }

    fn begin(
        &mut self,
        conn: &mut Connection,
        stream: u64,
        headers: &[h3::Header],
    ) -> Result<(), h3::Error> {
        // Ignores trailers.
        if self.uploads.contains_key(&stream) || self.answers.contains_key(&stream) {
            return Ok(());
        }
        let value = |name: &[u8]| {
            headers.iter().find(|header| header.name() == name).map(h3::Header::value)
        };
        match value(b":method") {
            Some(b"PUT" | b"POST") => {
                self.uploads.insert(stream, Digest::default());
                Ok(())
            }
            Some(b"GET") => {
                let path =
                    String::from_utf8_lossy(value(b":path").unwrap_or_default()).into_owned();
                let file = file_below(&self.root, &path).and_then(|path| {
                    let file = File::open(path).ok()?;
                    let metadata = file.metadata().ok()?;
                    metadata.is_file().then_some((file, metadata.len()))
                });
                match file {
                    Some((file, length)) => {
                        self.answer(conn, stream, "200", length, Box::new(file))
                    }
                    None => self.answer(conn, stream, "404", 0, Box::new(std::io::empty())),
                }
            }
            Some(_) => self.answer(conn, stream, "405", 0, Box::new(std::io::empty())),
            // A malformed request (RFC 9114, sections 4.1.2 and 4.3.1).
            None => {
                for side in [quiche::Shutdown::Read, quiche::Shutdown::Write] {
                    // It fails if the client has ended this side already.
                    let _ = conn.stream_shutdown(stream, side, MESSAGE_ERROR);
                }
                Ok(())
            }
        }
    }

    fn answer(
        &mut self,
        conn: &mut Connection,
        stream: u64,
        status: &str,
        length: u64,
        source: Box<dyn Read>,
    ) -> Result<(), h3::Error> {
        let headers = vec![
            h3::Header::new(b":status", status.as_bytes()),
            h3::Header::new(b"content-length", length.to_string().as_bytes()),
        ];
        let answer = Answer {
            headers: Some(headers),
            source,
            chunk: Vec::new(),
            handed_on: 0,
            all_read: false,
        };
        self.answers.insert(stream, answer);
        self.send(conn, stream)
    }

    /// Sends as much of an answer as the connection accepts.
    fn send(&mut self, conn: &mut Connection, stream: u64) -> Result<(), h3::Error> {
        let Some(answer) = self.answers.get_mut(&stream) else { return Ok(()) };
        match answer.hand_on(&mut self.http, conn, stream) {
            Ok(()) => {}
            Err(h3::Error::Done | h3::Error::StreamBlocked) => return Ok(()),
            // The client has stopped the answer.
            Err(h3::Error::TransportError(_)) => {}
            Err(error) => return Err(error),
        }
        self.answers.remove(&stream);
        Ok(())
    }
}

impl Answer {
    fn hand_on(
        &mut self,
        http: &mut h3::Connection,
        conn: &mut Connection,
        stream: u64,
    ) -> Result<(), h3::Error> {
        if let Some(headers) = &self.headers {
            http.send_response(conn, stream, headers, false)?;
            self.headers = None;
        }
        loop {
            if self.handed_on == self.chunk.len() && !self.all_read {
                (self.handed_on, self.chunk) = (0, Vec::with_capacity(CHUNK));
                // After a read error the body is shorter than announced, which the client detects.
                let read = self.source.by_ref().take(CHUNK as u64).read_to_end(&mut self.chunk);
                self.all_read = read.is_err() || self.chunk.len() < CHUNK;
            }
            let rest = self.chunk.get(self.handed_on..).unwrap_or_default();
            self.handed_on += http.send_body(conn, stream, rest, self.all_read)?;
            if self.all_read && self.handed_on == self.chunk.len() {
                return Ok(());
            }
        }
    }
}

/// The file that a request's path names, if it stays below the root.
fn file_below(root: &Path, path: &str) -> Option<PathBuf> {
    let name = Path::new(path.strip_prefix('/')?);
    name.components().all(|part| matches!(part, Component::Normal(_))).then(|| root.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leaves_the_root() {
        let root = Path::new("/srv/files");
        assert_eq!(file_below(root, "/a/b"), Some("/srv/files/a/b".into()));
        for path in ["", "a", "//etc/passwd", "/../etc/passwd", "/a/../../b", "/./a/.."] {
            assert_eq!(file_below(root, path), None, "{path}");
        }
    }
}
