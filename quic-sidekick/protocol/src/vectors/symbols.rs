//! Repair symbols (SPEC.md, section 6.9).

use super::json::hex;
use super::valid::bytes;
use serde_json::{Value, json};
use sidekick_parity::{Encoder, MAX_SYMBOL_LEN, coefficient};

fn symbol(name: &str, number: u16, first: u32, datagrams: &[&[u8]]) -> Value {
    let mut out = [0; MAX_SYMBOL_LEN];
    let datagrams_of = datagrams.iter().copied();
    let len = Encoder::new().encode(number, first, datagrams_of, &mut out).unwrap();
    let positions = (0..).map(|offset| first.wrapping_add(offset));
    let coefficients: Vec<_> =
        positions.take(datagrams.len()).map(|position| coefficient(number, position)).collect();
    let datagrams: Vec<_> = datagrams.iter().map(|datagram| hex(datagram)).collect();
    json!({
        "name": name,
        "number": number,
        "first": first,
        "datagrams": datagrams,
        "coefficients": coefficients,
        "symbol": hex(&out[..len]),
    })
}

pub(super) fn all() -> Vec<Value> {
    let [a, b, c] = [bytes::<40>(0x10), bytes::<40>(0x80), bytes::<40>(0xe0)];
    let many: Vec<_> = (0..64).map(|len| &a[..4 + len % 37]).collect();
    vec![
        symbol("one datagram", 0, 0, &[&a]),
        symbol("three of unequal length", 1, 7, &[&a, &b[..4], &c[..17]]),
        symbol("the positions wrap", u16::MAX, u32::MAX - 1, &[&c, &b, &a]),
        symbol("a whole window", 128, 100, &many),
    ]
}
