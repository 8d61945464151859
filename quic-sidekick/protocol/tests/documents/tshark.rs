//! Runs tshark with the dissector: packets in, fields out.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

pub(crate) const PROXY_PORT: u16 = 5252;

/// The dissector's names for the vectors' fields. Three name a kind, and one the error.
const FIELDS: [&str; 59] = [
    "age_ms",
    "number",
    "after",
    "before",
    "ranges",
    "passed",
    "range",
    "part",
    "index",
    "total",
    "datagram",
    "window",
    "identifier",
    "symbol",
    "share",
    "flush_us",
    "list",
    "path_type",
    "handle",
    "nonce",
    "reply_port",
    "type",
    "session",
    "proxy_address",
    "proxy_address6",
    "proxy_port",
    "source_address",
    "source_address6",
    "source_port",
    "destination_address",
    "destination_address6",
    "destination_port",
    "cookie",
    "echo",
    "refusal",
    "pattern",
    "handshake",
    "threshold",
    "every_packets",
    "every_us",
    "identifier_offset",
    "filter",
    "sequence",
    "ciphertext",
    "message",
    "epoch",
    "token",
    "age_us",
    "first",
    "last",
    "count",
    "sum",
    "wanted_sums",
    "error",
    "class",
    "relay_part",
    "wait_ms",
    "newest",
    "arrived",
];

/// Fields that follow from others.
const DERIVED: [&str; 11] = [
    "listed",
    "range_flags",
    "version",
    "family",
    "ephemeral",
    "encrypted_static",
    "encrypted_payload",
    "tag",
    "sealed_by",
    "number_of_sums",
    "padding",
];

pub(crate) fn is_derived(field: &str) -> bool {
    DERIVED.contains(&field)
}

/// A UDP datagram, of which the capture holds `captured` bytes of payload.
#[derive(Clone)]
pub(crate) struct Packet {
    pub(crate) from: u16,
    pub(crate) to: u16,
    pub(crate) payload: Vec<u8>,
    pub(crate) captured: usize,
}

impl Packet {
    pub(crate) fn new(from: u16, to: u16, payload: Vec<u8>) -> Self {
        Self { from, to, captured: payload.len(), payload }
    }

    /// A record of a capture file: IPv4 without link layer, and without checksums.
    fn record(&self) -> Vec<u8> {
        let udp = u16::try_from(8 + self.payload.len()).unwrap();
        let hosts = if self.from == PROXY_PORT || self.from == 443 { [254, 1] } else { [1, 254] };
        let mut ip = vec![0x45, 0];
        ip.extend((20 + udp).to_be_bytes());
        ip.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, hosts[0], 192, 0, 2, hosts[1]]);
        for field in [self.from, self.to, udp, 0] {
            ip.extend(field.to_be_bytes());
        }
        ip.extend(&self.payload[..self.captured]);
        let captured = u32::try_from(ip.len()).unwrap();
        let mut record = vec![0; 8];
        record.extend(captured.to_le_bytes());
        record.extend((20 + u32::from(udp)).to_le_bytes());
        record.extend(ip);
        record
    }
}

/// A packet's fields as tshark shows them.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) protocols: String,
    fields: BTreeMap<String, Vec<String>>,
}

impl Row {
    /// All values of a field.
    pub(crate) fn get(&self, field: &str) -> &[String] {
        self.fields.get(field).unwrap_or_else(|| panic!("no field {field} was asked for"))
    }

    /// The fields that are present.
    pub(crate) fn fields(&self) -> BTreeMap<String, Vec<String>> {
        self.fields
            .iter()
            .filter(|(_, v)| !v.is_empty())
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    }
}

/// Normalises tshark's notation: bytes without colons, all numbers decimal.
fn plain(field: &str, value: &str) -> String {
    match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap().to_string(),
        None if field.ends_with("_address6") => value.to_owned(),
        None => value.replace(':', ""),
    }
}

/// Runs tshark over a capture of these packets. `test` names its files.
pub(crate) fn shown(test: &str, packets: &[Packet], keylog: &str) -> Vec<Row> {
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("dissector-{test}"));
    // A settings folder of its own: the user's may load other dissectors.
    fs::create_dir_all(&directory).unwrap();
    let (capture, keys) = (directory.join("capture.pcap"), directory.join("keys"));
    // Magic, version 2.4, no time zone, no accuracy, the longest packet, and the link type of bare
    // IP.
    let header = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 101].map(u32::to_le_bytes).concat();
    let records = packets.iter().flat_map(Packet::record);
    fs::write(&capture, header.into_iter().chain(records).collect::<Vec<_>>()).unwrap();
    fs::write(&keys, keylog).unwrap();

    let mut command = Command::new("tshark");
    command.env("WIRESHARK_CONFIG_DIR", &directory).env("HOME", &directory);
    command.arg("-n").arg("-r").arg(&capture);
    command.arg("-X").arg(format!(
        "lua_script:{}",
        crate_directory.join("../../docs/protocol/sidekick.lua").display()
    ));
    if !keylog.is_empty() {
        command.arg("-o").arg(format!("sidekick.keylog:{}", keys.display()));
    }
    command.args([
        "-T",
        "fields",
        "-E",
        "separator=/t",
        "-E",
        "occurrence=a",
        "-E",
        "aggregator=|",
    ]);
    let ours: Vec<_> = FIELDS.iter().chain(&DERIVED).collect();
    for field in ["frame.protocols", "_ws.expert.message"] {
        command.args(["-e", field]);
    }
    for field in &ours {
        command.args(["-e", &format!("sidekick.{field}")]);
    }
    let output = command.output().unwrap_or_else(|error| {
        panic!("this test runs tshark, which `.ci/deps test` installs: {error}")
    });
    let (text, complaints) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && !complaints.contains("Lua"), "{test}: {complaints}");

    let rows: Vec<_> = text
        .lines()
        .map(|line| {
            let mut cells = line.split('\t');
            let mut next = || cells.next().unwrap();
            let (protocols, expert) = (next().to_owned(), next());
            // The messages of Lua and of Wireshark when a dissector reads past the end.
            assert!(!expert.contains("Lua") && !expert.contains("Exception"), "{test}: {line}");
            let cell = |field: &&&str| {
                let values = next().split('|').filter(|value| !value.is_empty());
                ((**field).to_owned(), values.map(|value| plain(field, value)).collect())
            };
            Row { protocols, fields: ours.iter().map(cell).collect() }
        })
        .collect();
    assert_eq!(rows.len(), packets.len(), "{test}: {complaints}");
    rows
}

pub(crate) fn vectors() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol/vectors.json");
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The key log for all sessions of the vectors.
pub(crate) fn keylog(vectors: &Value) -> String {
    let mut log = String::new();
    for h in vectors["handshakes"].as_array().unwrap() {
        let key = |name: &str| h[name].as_str().unwrap();
        let (proxy, sender) =
            (h["accept_fields"]["session"].as_u64().unwrap(), h["session"].as_u64().unwrap());
        writeln!(log, "{proxy:08x} sender {}", key("sender_key")).unwrap();
        writeln!(log, "{sender:08x} proxy {}", key("proxy_key")).unwrap();
    }
    log
}

pub(crate) fn bytes(hex: &str) -> Vec<u8> {
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    assert!(rest.is_empty());
    pairs
        .iter()
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}
