//! Which payloads count, and their identifiers (SPEC.md, section 3).

use super::json::{hex, joined};
use super::valid::{bytes, terms, terms_fields};
use crate::identify::Payload;
use crate::{Filter, Position};
use serde_json::{Value, json};

fn payload(name: &str, position: Position, filter: Filter, payload: &[u8]) -> Value {
    let terms = terms(20, 0, 5000, position, filter);
    let identifier = terms.identification.identifier(Payload::whole(payload));
    let fields = terms_fields(&terms);
    joined([
        json!({ "name": name }),
        json!({ "identifier_offset": fields["identifier_offset"], "filter": fields["filter"] }),
        json!({ "payload": hex(payload), "identifier": identifier }),
    ])
}

/// A datagram that begins like a marker or an answer, up to its version.
fn named(first: u8, name: &[u8; 8], version: u8) -> Vec<u8> {
    [&[first][..], &bytes::<20>(0x21), name, &[version], &bytes::<16>(0xa0)].concat()
}

pub(super) fn all() -> Vec<Value> {
    use Filter::{All, QuicShortHeader as Quic};
    let (last, hash) = (Position::End, Position::Whole);
    let (short, long) = (bytes::<40>(0x40), bytes::<40>(0xc0));
    vec![
        payload("offset 21, short header", Position::Offset(21), Quic, &short),
        payload("offset 21, long header", Position::Offset(21), Quic, &long),
        payload("offset 21, any header", Position::Offset(21), All, &long),
        payload("offset 21, as short as can be", Position::Offset(21), Quic, &short[..25]),
        payload("offset 21, too short", Position::Offset(21), Quic, &short[..24]),
        payload("offset 0", Position::Offset(0), All, &short[..4]),
        payload("the last four bytes", last, All, &short),
        payload("the last four bytes, too short", last, All, &short[..3]),
        payload("the last four bytes, padding", last, All, &[&short[..], &[0; 4]].concat()),
        payload("offset 4, zeros", Position::Offset(4), Quic, &[0; 8]),
        payload("hash", hash, All, &short),
        payload("hash of one byte", hash, All, b"a"),
        payload("no payload", hash, All, &[]),
        payload("a marker", last, All, &named(5, b"Sidekick", 1)),
        payload("an answer of another version", last, All, &named(6, b"Sidekick", 2)),
        payload("a marker's first byte and another name", last, All, &named(5, b"sidekick", 1)),
    ]
}
