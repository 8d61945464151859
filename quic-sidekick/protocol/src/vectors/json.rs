//! JSON whose fields keep their order, and in which what fits a line stays on one line.

use serde_json::Value;

/// The longest line, in characters.
const WIDTH: usize = 120;

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One object with the fields of all.
pub(super) fn joined(objects: impl IntoIterator<Item = Value>) -> Value {
    let fields = objects.into_iter().filter_map(|object| object.as_object().cloned()).flatten();
    Value::Object(fields.collect())
}

fn line(value: &Value) -> String {
    match value {
        Value::Array(list) => format!("[{}]", list.iter().map(line).collect::<Vec<_>>().join(", ")),
        Value::Object(map) if !map.is_empty() => {
            let pairs = map.iter().map(|(name, value)| format!("{name:?}: {}", line(value)));
            format!("{{ {} }}", pairs.collect::<Vec<_>>().join(", "))
        }
        _ => value.to_string(),
    }
}

/// The value at nesting level `depth`, after `before` characters on its first line.
pub(super) fn written(value: &Value, depth: usize, before: usize) -> String {
    let line = line(value);
    if 2 * depth + before + line.len() <= WIDTH {
        return line;
    }
    let (begin, end) = (format!("\n{:1$}", "", 2 * depth + 2), format!("\n{:1$}", "", 2 * depth));
    match value {
        Value::Array(list) if list.iter().all(Value::is_number) => {
            format!("[{}{end}]", numbers(list, &begin))
        }
        Value::Array(list) => {
            let values = list.iter().map(|value| begin.clone() + &written(value, depth + 1, 1));
            format!("[{}{end}]", values.collect::<Vec<_>>().join(","))
        }
        Value::Object(map) => {
            let pairs = map.iter().map(|(name, value)| {
                format!("{begin}{name:?}: {}", written(value, depth + 1, name.len() + 5))
            });
            format!("{{{}{end}}}", pairs.collect::<Vec<_>>().join(","))
        }
        _ => line,
    }
}

/// As many numbers per line as fit. `begin` begins a line.
fn numbers(list: &[Value], begin: &str) -> String {
    let (mut out, mut column) = (String::new(), WIDTH);
    for (i, number) in list.iter().map(Value::to_string).enumerate() {
        let comma = if i == 0 { "" } else { "," };
        if column + number.len() + 3 > WIDTH {
            column = begin.len() - 1 + number.len();
            out += &format!("{comma}{begin}{number}");
        } else {
            column += number.len() + 2;
            out += &format!("{comma} {number}");
        }
    }
    out
}
