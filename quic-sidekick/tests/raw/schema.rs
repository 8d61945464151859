//! Reads qlog files, and compares our events in them with the tables of `QLOG.md`.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// The document, which is the schema.
const DOCUMENT: &str = include_str!("../../../docs/protocol/QLOG.md");

/// One event of a file.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    /// Milliseconds since the file's reference time.
    pub(crate) time: f64,
    pub(crate) name: String,
    pub(crate) data: Map<String, Value>,
}

/// The events of a JSON-SEQ file (RFC 7464): each record begins with 0x1e, ends with a line feed
/// and is one JSON text. The first is the header.
pub(crate) fn read(file: &[u8]) -> Vec<Event> {
    let mut records = file.split(|byte| *byte == 0x1e);
    assert_eq!(records.next(), Some(&[][..]), "nothing comes before the first record");
    let mut values = records.map(|record| {
        assert_eq!(record.last(), Some(&b'\n'), "cut off: {}", String::from_utf8_lossy(record));
        serde_json::from_slice::<Value>(record).unwrap()
    });
    let header = values.next().unwrap();
    assert_eq!(header["serialization_format"], "JSON-SEQ");
    assert!(header["trace"]["common_fields"]["reference_time"].is_object(), "{header}");
    values
        .map(|event| Event {
            time: event["time"].as_f64().unwrap(),
            name: event["name"].as_str().unwrap().to_owned(),
            data: event["data"].as_object().unwrap().clone(),
        })
        .collect()
}

/// The data of the events of this name.
pub(crate) fn named<'a>(events: &'a [Event], name: &str) -> Vec<&'a Map<String, Value>> {
    events.iter().filter(|event| event.name == name).map(|event| &event.data).collect()
}

/// The numbers of the sent 1-RTT packets in the file.
pub(crate) fn sent(events: &[Event]) -> BTreeSet<u64> {
    named(events, "quic:packet_sent")
        .into_iter()
        .filter(|data| data["header"]["packet_type"] == "1RTT")
        .map(|data| data["header"]["packet_number"].as_u64().unwrap())
        .collect()
}

/// The numbers of the packets that were declared lost early.
pub(crate) fn early_lost(events: &[Event]) -> Vec<u64> {
    named(events, "sidekick:early_loss")
        .into_iter()
        .flat_map(|data| data["packet_numbers"].as_array().unwrap())
        .map(|number| number.as_u64().unwrap())
        .collect()
}

/// One row of a table: the type, and whether the field may be left out.
struct Field {
    kind: String,
    optional: bool,
}

/// The tables, by the heading above each.
fn tables() -> BTreeMap<String, BTreeMap<String, Field>> {
    let mut tables: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    let mut heading = String::new();
    for line in DOCUMENT.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            name.clone_into(&mut heading);
        } else if let Some(row) = line.strip_prefix("| `") {
            let mut cells = row.split(" | ");
            let (name, mark) = cells.next().unwrap().split_once('`').unwrap();
            let field = Field { kind: cells.next().unwrap().to_owned(), optional: mark == "?" };
            tables.entry(heading.clone()).or_default().insert(name.to_owned(), field);
        }
    }
    tables
}

/// Panics unless each of our events has the fields that the document gives it, and only these.
/// Returns how many of each there are.
pub(crate) fn check(events: &[Event]) -> BTreeMap<String, usize> {
    let tables = tables();
    let mut counts: BTreeMap<_, _> = tables.keys().map(|name| (name.clone(), 0)).collect();
    for Event { time, name, data } in
        events.iter().filter(|event| event.name.starts_with("sidekick:"))
    {
        assert!(*time >= 0.0);
        let fields = tables.get(name).unwrap_or_else(|| panic!("QLOG.md has no {name}"));
        *counts.get_mut(name).unwrap() += 1;
        for (field, Field { kind, optional }) in fields {
            match data.get(field) {
                Some(value) => assert!(is(value, kind), "{name}: {field} is {value}, not {kind}"),
                None => assert!(optional, "{name} without {field}: {data:?}"),
            }
        }
        let unknown: Vec<_> = data.keys().filter(|field| !fields.contains_key(*field)).collect();
        assert!(unknown.is_empty(), "QLOG.md has no {unknown:?} in {name}");
    }
    counts
}

/// Whether a value is of the type, as the document calls it.
fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "number" => value.is_f64(),
        "integers" => value.as_array().is_some_and(|all| all.iter().all(Value::is_u64)),
        "address" => value.as_str().is_some_and(|text| text.parse::<SocketAddr>().is_ok()),
        _ => {
            let values =
                kind.strip_prefix("string: ").unwrap_or_else(|| panic!("QLOG.md: a type {kind}?"));
            value.as_str().is_some_and(|text| values.split(", ").any(|one| one == text))
        }
    }
}
