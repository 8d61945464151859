//! `docs/protocol/vectors.json`: what another implementation can hold itself against.
//!
//! The file is made here, and the test fails when it says something else than the code does. To
//! take a change over, run `SIDEKICK_UPDATE=1 cargo test -p sidekick-protocol vectors`, and read
//! the difference.

mod handshakes;
mod invalid;
mod json;
mod noise;
mod sums;
mod valid;

use json::Json;
use std::fs;
use std::path::Path;

/// Says in the file what its parts are.
const ABOUT: [&str; 9] = [
    "Test vectors of the Sidekick protocol, version 1. Numbers are those of the wire; byte strings are hexadecimal.",
    "datagrams: kinds of datagrams with their fields, in the order of the wire, and their bytes.",
    "payloads: of the two handshake messages. messages: what a sealed datagram holds, before it is sealed.",
    "A handshake payload of a HELLO has 64 bytes, of which those that are not named are zero.",
    "invalid: byte strings, what they are read as, and the error.",
    "handshakes: all that either side needs, what is sent, and datagrams sealed with the keys that come of it.",
    "An ephemeral secret is the X25519 private key itself. Sealed datagrams are numbered with their nonce.",
    "`from` says who seals; the session is the number that the receiver has chosen. A sealed datagram with an",
    "error is authentic, and holds no message. power_sums: modulo 4294967291, lowest power first.",
];

fn file() -> Json {
    Json::Map(vec![
        ("about", ABOUT.map(Json::from).to_vec().into()),
        ("version", crate::wire::VERSION.into()),
        ("datagrams", valid::datagrams().into()),
        ("payloads", valid::payloads().into()),
        ("messages", valid::messages().into()),
        ("invalid", invalid::all().into()),
        ("handshakes", handshakes::all().into()),
        ("power_sums", sums::all().into()),
    ])
}

#[test]
fn the_vectors_are_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol/vectors.json");
    let expected = format!("{}\n", file());
    if std::env::var_os("SIDEKICK_UPDATE").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    let differs =
        found.lines().zip(expected.lines()).position(|(found, expected)| found != expected);
    let line = differs.unwrap_or(found.lines().count().min(expected.lines().count()));
    assert!(
        found == expected,
        "{} differs from the code in line {}; SIDEKICK_UPDATE=1 writes it anew.\n  file: {:?}\n  code: {:?}",
        path.display(),
        line + 1,
        found.lines().nth(line),
        expected.lines().nth(line),
    );
}
