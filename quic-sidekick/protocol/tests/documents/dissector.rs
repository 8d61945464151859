//! Runs the Wireshark dissector with tshark over all vectors. It must show every field as in
//! `vectors.json`, and the error of a malformed datagram.

use crate::tshark::{PROXY_PORT, Packet, Row, bytes, is_derived, keylog, shown, vectors};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A port of the adjacent socket that no other dissector claims.
const PEER_PORT: u16 = 50_001;

/// A vector's fields as tshark shows them, by the dissector's names.
type Fields = BTreeMap<String, Vec<String>>;

/// Adds a vector's fields.
fn add(fields: &mut Fields, vector: &Map<String, Value>) {
    for (name, value) in vector {
        if name == "ranges"
            && let Value::Array(ranges) = value
        {
            for end in ["after", "before"] {
                let ends = ranges.iter().map(|range| &range[end]).filter(|end| !end.is_null());
                fields.insert(end.to_owned(), ends.map(Value::to_string).collect());
            }
            fields.retain(|_, values| !values.is_empty());
            continue;
        }
        let (name, values) = match value {
            // An empty value has no field.
            Value::Array(list) if list.is_empty() => continue,
            Value::String(text) if name == "symbol" && text.is_empty() => continue,
            Value::Array(list) => {
                let one = if name == "identifiers" { "identifier" } else { "sum" };
                (one, list.iter().map(Value::to_string).collect())
            }
            Value::String(text) => (name.as_str(), vec![text.clone()]),
            number => (name.as_str(), vec![number.to_string()]),
        };
        let is_v6 = name.ends_with("_address") && values.iter().any(|ip| ip.contains(':'));
        fields.insert(if is_v6 { format!("{name}6") } else { name.to_owned() }, values);
    }
}

fn map(value: &Value) -> &Map<String, Value> {
    value.as_object().unwrap()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap()
}

fn number_of(kind: &str) -> &'static str {
    match kind {
        "hello" | "quack" => "1",
        "retry" | "poll" => "2",
        "accept" | "new epoch" => "3",
        "refuse" | "epoch" => "4",
        "marker" | "unknown session" | "bye" => "5",
        "answer" | "sealed" => "6",
        "repeat" | "keep" => "7",
        "kept" | "parity" => "8",
        "request" => "9",
        "nothing" => "10",
        "tail" => "11",
        "protect" => "12",
        "schedule" => "13",
        "link" => "16",
        "linked" => "17",
        "relay" => "18",
        other => panic!("a vector of a new kind, {other}"),
    }
}

fn agrees(name: &str, row: &Row, expected: &Fields) {
    let found: Fields = row.fields().into_iter().filter(|(field, _)| !is_derived(field)).collect();
    assert_eq!(found, *expected, "{name}");
}

#[test]
fn every_datagram_shows_its_fields() {
    let vectors = vectors();
    let list = vectors["datagrams"].as_array().unwrap();
    let is_path = |kind: &str| matches!(kind, "marker" | "answer");
    let packets: Vec<_> = list
        .iter()
        .map(|v| {
            let to = if is_path(text(v, "kind")) { 443 } else { PROXY_PORT };
            Packet::new(PEER_PORT, to, bytes(text(v, "bytes")))
        })
        .collect();
    for (vector, row) in list.iter().zip(shown("datagrams", &packets, "")) {
        let kind = text(vector, "kind");
        let mut expected = Fields::new();
        add(&mut expected, map(&vector["fields"]));
        let name = if is_path(kind) { "path_type" } else { "type" };
        expected.insert(name.to_owned(), vec![number_of(kind).to_owned()]);
        if kind == "hello" && vector["fields"]["pattern"] == 0 {
            // The payload is in clear, so tshark shows it.
            let payload = &text(&vector["fields"], "handshake")[64..];
            let list = vectors["payloads"].as_array().unwrap();
            let payload = list.iter().find(|v| text(v, "bytes") == payload).unwrap();
            add(&mut expected, map(&payload["fields"]));
        }
        agrees(text(vector, "name"), &row, &expected);
    }
}

/// The sealed datagrams after each handshake, with the handshake.
fn sealed(vectors: &Value) -> Vec<(&Value, &Value)> {
    let handshakes = vectors["handshakes"].as_array().unwrap().iter();
    handshakes.flat_map(|h| h["sealed"].as_array().unwrap().iter().map(move |s| (h, s))).collect()
}

#[test]
fn sealed_messages_are_shown_with_the_key_log_alone() {
    let vectors = vectors();
    let list = sealed(&vectors);
    let packets: Vec<_> = list
        .iter()
        .map(|(_, s)| {
            let datagram = bytes(text(s, "datagram"));
            match text(s, "from") {
                "sender" => Packet::new(PEER_PORT, PROXY_PORT, datagram),
                _ => Packet::new(PROXY_PORT, PEER_PORT, datagram),
            }
        })
        .collect();
    let keys = keylog(&vectors);
    // Keys of other sessions with the same number.
    let others = keys.lines().filter_map(|line| line.strip_suffix(line.split(' ').next_back()?));
    let others: String = others.map(|line| format!("{line}{}\n", "5a".repeat(32))).collect();
    for (what, keys) in [("open", keys.as_str()), ("other", others.as_str()), ("none", "")] {
        for ((_, vector), row) in list.iter().zip(shown(&format!("sealed-{what}"), &packets, keys))
        {
            let mut expected = Fields::new();
            for name in ["session", "sequence"] {
                expected.insert(name.to_owned(), vec![vector[name].to_string()]);
            }
            expected.insert("type".to_owned(), vec![number_of("sealed").to_owned()]);
            expected
                .insert("ciphertext".to_owned(), vec![text(vector, "datagram")[18..].to_owned()]);
            let name = vector["name"].as_str().or(vector["message"]["name"].as_str()).unwrap();
            if what != "open" {
                agrees(name, &row, &expected);
                continue;
            }
            assert_eq!(row.get("sealed_by"), [text(vector, "from")], "{name}");
            match vector["error"].as_str() {
                Some(error) => assert_eq!(row.get("error"), [error], "{name}"),
                None => {
                    let message = &vector["message"];
                    add(&mut expected, map(&message["fields"]));
                    if text(message, "kind") == "relay" {
                        // That of a copy is half a byte.
                        let part = expected.remove("part").unwrap();
                        expected.insert("relay_part".to_owned(), part);
                    }
                    expected.insert(
                        "message".to_owned(),
                        vec![number_of(text(message, "kind")).to_owned()],
                    );
                    agrees(name, &row, &expected);
                }
            }
        }
    }
}

#[test]
fn complete_handshakes_are_shown() {
    let vectors = vectors();
    let list = vectors["handshakes"].as_array().unwrap();
    let packets: Vec<_> = list
        .iter()
        .flat_map(|h| {
            let hello = Packet::new(PEER_PORT, PROXY_PORT, bytes(text(h, "hello_datagram")));
            [hello, Packet::new(PROXY_PORT, PEER_PORT, bytes(text(h, "accept_datagram")))]
        })
        .collect();
    let rows = shown("handshakes", &packets, "");
    for (h, rows) in list.iter().zip(rows.chunks(2)) {
        let name = text(h, "name");
        for (row, message) in rows.iter().zip(["hello_handshake", "accept_handshake"]) {
            assert_eq!(row.get("handshake"), [text(h, message)], "{name}");
            assert_eq!(row.get("ephemeral"), [&text(h, message)[..64]], "{name}");
            assert!(row.get("error").is_empty(), "{name}");
        }
        let unpinned = text(h, "noise").contains("_NX_");
        assert_eq!(
            rows[0].get("threshold").is_empty(),
            !unpinned,
            "{name}: only an unpinned handshake shows its terms"
        );
        assert_eq!(rows[1].get("encrypted_static").is_empty(), !unpinned, "{name}");
    }
}

#[test]
fn a_malformed_datagram_shows_its_error() {
    let vectors = vectors();
    let hello = vectors["datagrams"].as_array().unwrap().iter();
    let mut hello = hello.filter(|v| text(v, "kind") == "hello" && v["fields"]["pattern"] == 0);
    let hello = bytes(text(hello.next().unwrap(), "bytes"));
    let (mut packets, mut expected) = (Vec::new(), Vec::new());
    for vector in vectors["invalid"].as_array().unwrap() {
        let (name, kind, error) = (text(vector, "name"), text(vector, "as"), text(vector, "error"));
        let invalid = bytes(text(vector, "bytes"));
        let first = match kind {
            "marker" => 5,
            "answer" => 6,
            "datagram" => {
                // Wireshark passes no empty payload to a dissector.
                expected.push((name, (!invalid.is_empty()).then_some(error)));
                packets.push(Packet::new(PEER_PORT, PROXY_PORT, invalid));
                continue;
            }
            "hello payload" if invalid.len() == 64 => {
                let datagram = [&hello[..hello.len() - 64], &invalid].concat();
                expected.push((name, Some(error)));
                packets.push(Packet::new(PEER_PORT, PROXY_PORT, datagram));
                continue;
            }
            // The other payloads are sealed. Another test covers messages.
            _ => continue,
        };
        let is_one = invalid.first() == Some(&first) && invalid.get(21..29) == Some(b"Sidekick");
        // A datagram that begins as the other kind is parsed as that, with another error.
        if is_one || !matches!(invalid.first(), Some(5 | 6)) || error == "field magic" {
            expected.push((name, is_one.then_some(error)));
            packets.push(Packet::new(PEER_PORT, 443, invalid));
        }
    }
    assert!(packets.len() > 50);
    for ((name, error), row) in expected.iter().zip(shown("invalid", &packets, "")) {
        assert_eq!(row.get("error"), error.iter().copied().collect::<Vec<_>>(), "{name}");
        // Of another version, only the version is shown.
        assert_eq!(
            !row.get("version").is_empty() || !row.get("path_type").is_empty(),
            error.is_some(),
            "{name}"
        );
    }
}

/// No input may cause a Lua error, which `shown` detects.
#[test]
fn nothing_breaks_the_dissector() {
    let vectors = vectors();
    let mut datagrams = Vec::new();
    for vector in vectors["datagrams"].as_array().unwrap() {
        datagrams.push((text(vector, "kind").to_owned(), bytes(text(vector, "bytes"))));
    }
    for (_, vector) in sealed(&vectors) {
        datagrams.push(("sealed".to_owned(), bytes(text(vector, "datagram"))));
    }
    let mut packets = Vec::new();
    for (kind, datagram) in &datagrams {
        let to = if matches!(kind.as_str(), "marker" | "answer") { 443 } else { PROXY_PORT };
        for len in (0..datagram.len().min(200)).chain([datagram.len()]) {
            // Truncated on the way, truncated by the capture, and with one byte changed.
            packets.push(Packet::new(PEER_PORT, to, datagram[..len].to_vec()));
            packets.push(Packet { captured: len, ..Packet::new(PEER_PORT, to, datagram.clone()) });
            let mut changed = datagram.clone();
            if let Some(byte) = changed.get_mut(len) {
                *byte ^= 0xff;
                packets.push(Packet::new(PEER_PORT, to, changed));
            }
        }
    }
    assert_eq!(shown("broken", &packets, &keylog(&vectors)).len(), packets.len());
}

/// Wireshark passes the packets of a QUIC flow to no other dissector.
#[test]
fn a_marker_is_found_in_a_quic_flow() {
    let vectors = vectors();
    let list = vectors["datagrams"].as_array().unwrap();
    let of =
        |kind: &str| bytes(text(list.iter().find(|v| text(v, "kind") == kind).unwrap(), "bytes"));
    let mut initial = bytes("c300000001080102030405060708000044a0");
    initial.resize(1200, 0x5a);
    let short = [vec![0x40], vec![0x33; 60]].concat();
    let packets = [initial, short, of("marker")].map(|payload| Packet::new(4000, 443, payload));
    let answer = Packet::new(443, 4000, of("answer"));
    let rows = shown("quic", &[packets.as_slice(), &[answer]].concat(), "");
    let is_quic = |row: &Row| row.protocols.contains("quic");
    assert!(is_quic(&rows[0]) && is_quic(&rows[1]), "the flow is not recognised as QUIC: {rows:?}");
    assert_eq!(rows[1].get("path_type"), [""; 0]);
    assert_eq!(rows[2].get("path_type"), ["5"]);
    assert_eq!(rows[3].get("path_type"), ["6"]);
}
