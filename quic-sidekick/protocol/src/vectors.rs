//! `docs/protocol/vectors.json`: test vectors for other implementations.
//!
//! The code generates the file, and the test fails if the two differ. To accept a change, run
//! `SIDEKICK_UPDATE=1 cargo test -p sidekick-protocol vectors`, and read the difference.

mod handshakes;
mod identifiers;
mod invalid;
mod json;
mod noise;
mod valid;

use serde_json::{Value, json};
use sidekick_parity::{Encoder, MAX_SYMBOL_LEN, coefficient};
use sidekick_quack::{MODULUS, PowerSums, textbook};
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
        "power_sums": power_sums(),
        "repair_symbols": repair_symbols(),
    })
}

/// Identifiers and their power sums.
fn power_sums() -> Vec<Value> {
    [
        ("none", &[][..], 4),
        ("one", &[1], 4),
        ("a single identifier", &[0x8c31_02f7], 20),
        ("the same twice", &[0x1d5e_77a0, 0x1d5e_77a0], 4),
        ("the largest that is its own remainder", &[MODULUS - 1], 4),
        (
            "the modulus and what is above it",
            &[MODULUS, MODULUS + 1, MODULUS + 2, MODULUS + 3, u32::MAX],
            4,
        ),
        ("as if 0 to 4 were put in", &[0, 1, 2, 3, 4], 4),
        ("four packets", &[0x8c31_02f7, 0x1d5e_77a0, 0xe402_9b1c, 0x05f9_6623], 20),
        ("the same in another order", &[0x05f9_6623, 0xe402_9b1c, 0x8c31_02f7, 0x1d5e_77a0], 20),
        ("100 packets", &valid::words(100), 128),
        ("as many sums as there can be", &valid::words(255), 255),
    ]
    .into_iter()
    .map(|(name, identifiers, n)| {
        let (mut sums, mut plain) = (PowerSums::new(n).unwrap(), vec![0; n]);
        sums.insert_many(identifiers);
        identifiers.iter().for_each(|identifier| textbook::insert(&mut plain, *identifier));
        let sums: Vec<_> = sums.sums().collect();
        assert_eq!(sums, plain, "{name}");
        json!({ "name": name, "identifiers": identifiers, "sums": sums })
    })
    .collect()
}

/// A repair symbol (SPEC.md, section 6.9).
fn symbol(name: &str, number: u16, first: u32, datagrams: &[&[u8]]) -> Value {
    let mut out = [0; MAX_SYMBOL_LEN];
    let datagrams_of = datagrams.iter().copied();
    let len = Encoder::new().encode(number, first, datagrams_of, &mut out).unwrap();
    let positions = (0..).map(|offset| first.wrapping_add(offset));
    let coefficients: Vec<_> =
        positions.take(datagrams.len()).map(|position| coefficient(number, position)).collect();
    let datagrams: Vec<_> = datagrams.iter().map(|datagram| json::hex(datagram)).collect();
    json!({
        "name": name,
        "number": number,
        "first": first,
        "datagrams": datagrams,
        "coefficients": coefficients,
        "symbol": json::hex(&out[..len]),
    })
}

fn repair_symbols() -> Vec<Value> {
    let [a, b, c] = [valid::bytes::<40>(0x10), valid::bytes::<40>(0x80), valid::bytes::<40>(0xe0)];
    let many: Vec<_> = (0..64).map(|len| &a[..4 + len % 37]).collect();
    vec![
        symbol("one datagram", 0, 0, &[&a]),
        symbol("three of unequal length", 1, 7, &[&a, &b[..4], &c[..17]]),
        symbol("the positions wrap", u16::MAX, u32::MAX - 1, &[&c, &b, &a]),
        symbol("a whole window", 128, 100, &many),
    ]
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
