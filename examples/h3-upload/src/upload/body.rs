//! Reads the file, hashes it, and passes it to the connection.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use h3_client::exchange::Content;
use h3_client::http3::Piece;
use h3_client::patience::Activity;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

/// Bytes that the connection takes at a time. It holds a bounded number of chunks, so memory does
/// not grow with the file.
const CHUNK: usize = 64 * 1024;

/// An open file, and its length if that is known in advance.
pub(crate) struct Source {
    file: File,
    path: PathBuf,
    len: Option<u64>,
}

impl Source {
    /// Opens `path`. A pipe or device has no known length, and is read to its end.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot read {}", path.display());
        let file = File::open(path).with_context(cannot)?;
        let metadata = file.metadata().with_context(cannot)?;
        ensure!(!metadata.is_dir(), "{} is a directory: name a file to upload", path.display());
        let len = metadata.is_file().then_some(metadata.len());
        Ok(Self { file, path: path.to_owned(), len })
    }

    /// The file's length, for the content-length header.
    pub(crate) fn len(&self) -> Option<u64> {
        self.len
    }
}

/// What was sent; `None` if the server stopped reading. The end of the connection, or the server's
/// answer, then gives the reason.
pub(crate) type Done = anyhow::Result<Option<Content>>;

/// Sends the whole file to `to`, and updates `activity`.
pub(crate) fn send(source: Source, to: &mpsc::Sender<Piece>, activity: &Activity) -> Done {
    let Source { mut file, path, len } = source;
    let cannot = || format!("cannot read {}", path.display());
    let changed = || format!("{} changed during the upload; try again", path.display());
    let mut hash = Sha256::new();
    let mut bytes = 0;
    // Reads one chunk ahead, so that the last one can carry the end of the stream.
    let mut chunk = activity.reading(|| read_chunk(&mut file)).with_context(cannot)?;
    loop {
        let next = match chunk.len() {
            CHUNK => activity.reading(|| read_chunk(&mut file)).with_context(cannot)?,
            _ => Bytes::new(),
        };
        let last = next.is_empty();
        hash.update(&chunk);
        bytes += chunk.len() as u64;
        // A body of another length than announced must not look complete (RFC 9114, section 4.1.2).
        ensure!(len.is_none_or(|len| if last { bytes == len } else { bytes < len }), changed());
        if to.blocking_send(Piece { bytes: chunk, last }).is_err() {
            return Ok(None);
        }
        activity.set_bytes(bytes);
        if last {
            return Ok(Some(Content::new(bytes, hash)));
        }
        chunk = next;
    }
}

/// Reads a whole chunk, or the rest of the file.
fn read_chunk(file: &mut impl Read) -> io::Result<Bytes> {
    let mut chunk = Vec::with_capacity(CHUNK);
    file.take(CHUNK as u64).read_to_end(&mut chunk)?;
    Ok(chunk.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use h3_client::words::hex;

    use super::*;

    /// Sends a file of `content`, announced as `len` bytes, and collects the frames.
    fn sent(content: &[u8], len: Option<u64>) -> (Vec<(Bytes, bool)>, Done) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        let mut source = Source::open(file.path()).unwrap();
        source.len = len.or(source.len);
        let (to, mut frames) = mpsc::channel(64);
        let done = send(source, &to, &Activity::default());
        drop(to);
        let mut got = Vec::new();
        while let Ok(frame) = frames.try_recv() {
            got.push((frame.bytes, frame.last));
        }
        (got, done)
    }

    #[test]
    fn a_file_of_any_length_arrives_whole_and_ends_once() {
        for len in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 7] {
            let content: Vec<u8> = (0..=250).cycle().take(len).collect();
            let (frames, done) = sent(&content, None);
            let body: Vec<u8> = frames.iter().flat_map(|(bytes, _)| bytes.to_vec()).collect();
            assert!(body == content, "{len} bytes differ");
            let ends: Vec<bool> = frames.iter().map(|(_, fin)| *fin).collect();
            assert_eq!(ends.iter().filter(|fin| **fin).count(), 1, "{len}");
            assert_eq!(ends.last(), Some(&true), "{len}");
            let sent = done.unwrap().unwrap();
            assert_eq!(sent.bytes, len as u64);
            assert_eq!(sent.sha256, hex(&Sha256::digest(&content)));
        }
    }

    #[test]
    fn a_file_that_changed_never_looks_complete() {
        let content = vec![7; 2 * CHUNK];
        for announced in [0, 5, CHUNK as u64, content.len() as u64 - 1, content.len() as u64 + 1] {
            let (frames, done) = sent(&content, Some(announced));
            assert!(frames.iter().all(|(_, fin)| !fin), "{announced}");
            assert!(done.unwrap_err().to_string().contains("changed"), "{announced}");
        }
    }

    #[test]
    fn a_connection_that_ended_is_no_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (to, frames) = mpsc::channel(1);
        drop(frames);
        let done = send(Source::open(file.path()).unwrap(), &to, &Activity::default());
        assert_eq!(done.unwrap(), None);
    }
}
