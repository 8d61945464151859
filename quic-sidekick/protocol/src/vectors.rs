//! `docs/protocol/vectors.json`: test vectors for other implementations.
//!
//! The code generates the file, and the test fails if the two differ. To accept a change, run
//! `SIDEKICK_UPDATE=1 cargo test -p sidekick-protocol vectors`, and read the difference.

mod handshakes;
mod identifiers;
mod invalid;
mod json;
mod noise;
mod sums;
mod symbols;
mod valid;

use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// The description of the file's parts, in the file.
const ABOUT: [&str; 12] = [
    "Test vectors of the Sidekick protocol, version 1. Byte strings are hexadecimal.",
    "datagrams: each type of datagram, its fields under short names, and its bytes.",
    "A SEALED's ciphertext includes the tag. payloads: those of the two handshake messages.",
    "A HELLO's payload has 64 bytes; those that no field names are zero.",
    "messages: the plaintext of sealed datagrams. null stands for a flag of 0.",
    "identifiers: terms, a payload, and its identifier, or null if it does not count.",
    "invalid: byte strings, the parser to read each with, and the first rule or field that is wrong.",
    "handshakes: both sides' inputs, their messages, and datagrams sealed with the resulting keys.",
    "An ephemeral secret is the X25519 private key. A sequence number is its seal's nonce.",
    "`from` names the sealing side. The receiver chose the session number. A sealed datagram with",
    "an error is authentic but malformed. power_sums: modulo 4294967291, lowest power first.",
    "repair_symbols: the datagrams from a position on, their coefficients, and their sum.",
];

fn file() -> Value {
    json!({
        "about": ABOUT,
        "version": crate::wire::VERSION,
        "datagrams": valid::datagrams(),
        "payloads": valid::payloads(),
        "messages": valid::messages(),
        "identifiers": identifiers::all(),
        "invalid": invalid::all(),
        "handshakes": handshakes::all(),
        "power_sums": sums::all(),
        "repair_symbols": symbols::all(),
    })
}

#[test]
fn the_vectors_match_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol/vectors.json");
    let expected = json::written(&file(), 0, 0) + "\n";
    if std::env::var_os("SIDEKICK_UPDATE").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    let differs =
        found.lines().zip(expected.lines()).position(|(found, expected)| found != expected);
    let line = differs.unwrap_or(found.lines().count().min(expected.lines().count()));
    assert!(
        found == expected,
        "{} differs from the code in line {}; SIDEKICK_UPDATE=1 regenerates it.\n  \
         file: {:?}\n  code: {:?}",
        path.display(),
        line + 1,
        found.lines().nth(line),
        expected.lines().nth(line),
    );
}
