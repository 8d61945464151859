//! Any bytes either parse, and emit as the same bytes, or return an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sidekick_protocol::wire::discovery::{Answer, MARKER_LEN, Marker};
use sidekick_protocol::wire::{Accept, BufferTooShort, Datagram, Message};

/// The length of a marker's fields in bytes. The rest is padding.
const MARKER_FIELDS: usize = 1 + 20 + 8 + 1 + 16 + 2;

/// The output of `emit`, in a buffer of exactly the input's length.
fn written(
    data: &[u8],
    emit: impl FnOnce(&mut [u8]) -> Result<usize, BufferTooShort>,
) -> Option<Vec<u8>> {
    let mut buffer = vec![0; data.len()];
    let length = emit(&mut buffer).ok()?;
    buffer.truncate(length);
    Some(buffer)
}

fuzz_target!(|data: &[u8]| {
    if let Ok(datagram) = Datagram::parse(data) {
        assert_eq!(written(data, |out| datagram.emit(out)).as_deref(), Some(data), "{datagram:?}");
    }
    if let Ok(message) = Message::parse(data) {
        assert_eq!(written(data, |out| message.emit(out)).as_deref(), Some(data), "{message:?}");
    }
    if let Ok(accept) = Accept::parse(data) {
        assert_eq!(
            accept.emit().ok().as_ref().map(|payload| &payload[..]),
            Some(data),
            "{accept:?}"
        );
    }
    if let Ok(answer) = Answer::parse(data) {
        assert!(Answer::is_one(data) && data.len() <= MARKER_LEN, "{answer:?}");
        assert_eq!(written(data, |out| answer.emit(out)).as_deref(), Some(data), "{answer:?}");
    }
    if let Ok(marker) = Marker::parse(data) {
        assert!(!Answer::is_one(data), "{marker:?}");
        let written = written(data, |out| marker.emit(out));
        let (fields, rest) = written.as_deref().unwrap_or_default().split_at(MARKER_FIELDS);
        assert_eq!(
            (Some(fields), rest.len()),
            (data.get(..MARKER_FIELDS), MARKER_LEN - MARKER_FIELDS)
        );
        assert!(rest.iter().all(|byte| *byte == 0), "{marker:?}");
    }
});
