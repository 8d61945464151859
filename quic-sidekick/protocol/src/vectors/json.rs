//! The part of JSON that the vectors need. Fields keep their order, and what fits a line stays on
//! one line.

use std::fmt::{self, Write};
use std::net::IpAddr;

/// The longest line, in characters.
const WIDTH: usize = 120;

#[derive(Clone)]
pub(super) enum Json {
    Number(u32),
    Text(String),
    List(Vec<Json>),
    Map(Fields),
}

pub(super) type Fields = Vec<(&'static str, Json)>;

/// Bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> Json {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").unwrap();
    }
    Json::Text(text)
}

impl From<u8> for Json {
    fn from(number: u8) -> Self {
        Self::Number(number.into())
    }
}

impl From<u16> for Json {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<u32> for Json {
    fn from(number: u32) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<IpAddr> for Json {
    fn from(ip: IpAddr) -> Self {
        Self::Text(ip.to_string())
    }
}

impl From<Vec<Json>> for Json {
    fn from(list: Vec<Json>) -> Self {
        Self::List(list)
    }
}

impl From<&[u32]> for Json {
    fn from(numbers: &[u32]) -> Self {
        Self::List(numbers.iter().copied().map(Self::from).collect())
    }
}

impl Json {
    fn line(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            // Every text here is printable ASCII, for which Rust's and JSON's notations agree.
            Self::Text(text) => format!("{text:?}"),
            Self::List(list) => {
                format!("[{}]", list.iter().map(Self::line).collect::<Vec<_>>().join(", "))
            }
            Self::Map(map) if map.is_empty() => "{}".to_owned(),
            Self::Map(map) => {
                let pairs: Vec<_> =
                    map.iter().map(|(name, value)| format!("{name:?}: {}", value.line())).collect();
                format!("{{ {} }}", pairs.join(", "))
            }
        }
    }

    /// Writes the value at nesting level `depth`, after `before` characters on its first line.
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize, before: usize) -> fmt::Result {
        let line = self.line();
        let inner = 2 * (depth + 1);
        match self {
            Self::List(list) if 2 * depth + before + line.len() > WIDTH => {
                if list.iter().all(|value| matches!(value, Self::Number(_))) {
                    return write_numbers(f, list, inner);
                }
                for (i, value) in list.iter().enumerate() {
                    write!(f, "{}\n{:inner$}", if i == 0 { '[' } else { ',' }, "")?;
                    value.write(f, depth + 1, 1)?;
                }
                write!(f, "\n{:1$}]", "", 2 * depth)
            }
            Self::Map(map) if 2 * depth + before + line.len() > WIDTH => {
                for (i, (name, value)) in map.iter().enumerate() {
                    write!(f, "{}\n{:inner$}{name:?}: ", if i == 0 { '{' } else { ',' }, "")?;
                    value.write(f, depth + 1, name.len() + 5)?;
                }
                write!(f, "\n{:1$}}}", "", 2 * depth)
            }
            _ => f.write_str(&line),
        }
    }
}

/// Writes as many numbers per line as fit.
fn write_numbers(f: &mut fmt::Formatter<'_>, list: &[Json], indent: usize) -> fmt::Result {
    let mut column = WIDTH;
    for (i, value) in list.iter().enumerate() {
        let text = value.line();
        let begin = if i == 0 { "[" } else { "," };
        if column + text.len() + 3 > WIDTH {
            write!(f, "{begin}\n{:indent$}{text}", "")?;
            column = indent + text.len();
        } else {
            write!(f, "{begin} {text}")?;
            column += text.len() + 2;
        }
    }
    write!(f, "\n{:1$}]", "", indent - 2)
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0, 0)
    }
}
