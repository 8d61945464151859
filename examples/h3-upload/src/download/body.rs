//! Hashes and writes the body.

use std::time::Instant;

use anyhow::ensure;
use bytes::Bytes;
use h3_client::exchange::Content;
use h3_client::http3::Piece;
use h3_client::now;
use h3_client::patience::Activity;
use sha2::{Digest as _, Sha256};

use crate::output::Writer;

/// The complete body that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) content: Content,
    /// When its last byte arrived.
    pub(crate) ended: Instant,
}

/// What was received, once it is stored; `None` if the body has no end. The end of the connection
/// or of the stream then gives the reason.
pub(crate) type Done = anyhow::Result<Option<Received>>;

/// Writes the whole body to `writer`, and updates `activity`. `announced` is its length, if the
/// server announced one.
pub(crate) fn receive(
    mut writer: Writer,
    mut next: impl FnMut() -> Option<Piece>,
    announced: Option<u64>,
    activity: &Activity,
) -> Done {
    let limit = writer.limit();
    let mut hash = Sha256::new();
    let mut bytes = 0;
    loop {
        let (piece, last) = match next() {
            Some(Piece { bytes, last }) => (bytes, last),
            // The connection ended before the frame that ends the body arrived.
            None if announced == Some(bytes) => (Bytes::new(), true),
            None => return Ok(None),
        };
        let ended = now();
        bytes += piece.len() as u64;
        if let Some(announced) = announced {
            ensure!(
                bytes <= announced,
                "the server sent more than the {announced} bytes that it announced: check its log"
            );
            ensure!(
                bytes == announced || !last,
                "the server sent only {bytes} of {announced} bytes: download the file again"
            );
        }
        limit.check_arrived(bytes)?;
        hash.update(&piece);
        activity.writing(|| writer.write(&piece))?;
        activity.set_bytes(bytes);
        if last {
            activity.writing(|| writer.finish())?;
            return Ok(Some(Received { content: Content::new(bytes, hash), ended }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Begun, Output, Place};
    use std::collections::VecDeque;

    /// Receives these pieces, of which the last ends the body if it does.
    fn received(pieces: &[&[u8]], ends: bool, announced: Option<u64>) -> (Done, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let place = Place::File(path.clone());
        let output = Output { place, replace: false, max_bytes: None };
        let Begun::Open(writer, part) = output.begin().unwrap() else { panic!("a new file") };
        let mut frames: VecDeque<_> = pieces
            .iter()
            .enumerate()
            .map(|(index, piece)| {
                let last = ends && index + 1 == pieces.len();
                Piece { bytes: Bytes::copy_from_slice(piece), last }
            })
            .collect();
        let done = receive(writer, || frames.pop_front(), announced, &Activity::default());
        part.keep().unwrap();
        (done, std::fs::read(path).unwrap())
    }

    #[test]
    fn a_body_arrives_whole() {
        for announced in [None, Some(6)] {
            let (done, content) = received(&[b"abc", b"def", b""], true, announced);
            let done = done.unwrap().unwrap();
            assert_eq!(content, b"abcdef");
            assert_eq!(done.content, Content::new(6, Sha256::new_with_prefix(b"abcdef")));
        }
    }

    #[test]
    fn a_body_may_be_empty() {
        for announced in [None, Some(0)] {
            let (done, content) = received(&[b""], true, announced);
            assert_eq!((done.unwrap().unwrap().content.bytes, content.len()), (0, 0));
        }
    }

    #[test]
    fn a_body_of_another_length_is_an_error() {
        let said = |done: Done| done.unwrap_err().to_string();
        assert!(said(received(&[b"abc", b""], true, Some(4)).0).contains("only 3 of 4 bytes"));
        assert!(said(received(&[b"abc"], false, Some(2)).0).contains("more than the 2 bytes"));
        assert!(said(received(&[b""], true, Some(1)).0).contains("only 0 of 1 bytes"));
    }

    #[test]
    fn a_body_without_an_end_is_none() {
        assert_eq!(received(&[b"abc"], false, None).0.unwrap(), None);
        assert_eq!(received(&[b"abc"], false, Some(4)).0.unwrap(), None);
        // Its length shows that it is complete.
        assert!(received(&[b"abc"], false, Some(3)).0.unwrap().is_some());
    }
}
