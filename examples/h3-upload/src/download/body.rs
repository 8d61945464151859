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

    /// Receives a piece that does not end the body.
    fn received(piece: &'static [u8], announced: Option<u64>) -> Option<Received> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let place = Place::File(path.clone());
        let output = Output { place, replace: false, max_bytes: None };
        let Begun::Open(writer, part) = output.begin().unwrap() else { panic!("a new file") };
        let mut pieces = [Piece { bytes: piece.into(), last: false }].into_iter();
        let done = receive(writer, || pieces.next(), announced, &Activity::default());
        part.keep().unwrap();
        assert_eq!(std::fs::read(path).unwrap(), piece);
        done.unwrap()
    }

    #[test]
    fn a_body_without_an_end_is_none() {
        assert_eq!(received(b"abc", None), None);
        assert_eq!(received(b"abc", Some(4)), None);
        // Its length shows that it is complete.
        assert!(received(b"abc", Some(3)).is_some());
    }
}
