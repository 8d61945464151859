//! Why a configuration file cannot be used.

use std::path::{Path, PathBuf};

use thiserror::Error;

use super::Keys;

/// Why a configuration file cannot be used, as a sentence for the operator.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum FileError {
    /// The file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        cause: std::io::Error,
    },
    /// The file has an error.
    #[error(
        "{}:{line}: {}{message}",
        path.display(),
        key.as_ref().map(|key| format!("{key}: ")).unwrap_or_default()
    )]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The key on that line, if there is one.
        key: Option<String>,
        /// The fault, and a correct form.
        message: String,
    },
}

impl FileError {
    /// The operator's sentence for an error in `text`, the contents of a file with keys `K`.
    pub(super) fn wrong<K: Keys>(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let line = before.matches('\n').count();
        let (key, message) = match unknown(error.message()) {
            Some((name, keys)) => {
                let advice = K::advice(name).unwrap_or_else(|| advice(name, &keys));
                (Some(name.to_owned()), advice)
            }
            None => {
                let there = text.lines().nth(line).unwrap_or_default();
                let message =
                    unquoted(there).unwrap_or_else(|| error.message().replace('\n', ", "));
                (key(there), message)
            }
        };
        Self::Wrong { path: path.to_owned(), line: line + 1, key, message }
    }
}

/// The name and the known keys in serde's message for an unknown key.
fn unknown(message: &str) -> Option<(&str, Vec<&str>)> {
    let (name, keys) =
        message.strip_prefix("unknown field `")?.split_once("`, expected one of ")?;
    Some((name, keys.split(", ").map(|key| key.trim_matches('`')).collect()))
}

/// What to write in place of the unknown key `name`.
fn advice(name: &str, keys: &[&str]) -> String {
    match name {
        "json" | "config" => {
            return format!(
                "this is a flag, and no key of a file: add --{name} to the command line"
            );
        }
        "verbose" => return "this is not a key: write log = \"info\"".to_owned(),
        _ => {}
    }
    let likeness = |key: &&&str| strsim::jaro_winkler(name, key);
    match keys.iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other))) {
        Some(key) if likeness(&key) > 0.8 => format!("this is not a key: did you mean {key}?"),
        _ => format!("this is not a key: the keys are {}", keys.join(", ")),
    }
}

/// What to write in place of the first value that lacks its quotes, on a line with a key. The TOML
/// parser takes such a value for a number or a boolean by its first letters.
fn unquoted(line: &str) -> Option<String> {
    let (_, value) = line.split_once('=')?;
    let word = first_without_quotes(value)?;
    let is_text = word.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/');
    let is_address = word.contains(':') || word.matches('.').count() > 1;
    let is_valid = word.chars().all(|c| c.is_ascii_alphanumeric() || "._:/@%+-[]".contains(c));
    match word {
        "true" | "false" | "inf" | "nan" => None,
        "yes" | "no" | "on" | "off" => Some("write true or false".to_owned()),
        _ if is_valid && (is_text || is_address) => {
            Some(format!("this text needs quotes: write \"{word}\""))
        }
        _ => None,
    }
}

/// The first word of a value or list that is neither in quotes nor a whole number.
fn first_without_quotes(value: &str) -> Option<&str> {
    // An IPv6 address and its port begin like a list.
    if let Some(address) = value.split_whitespace().next()
        && address.starts_with('[')
        && address.contains("]:")
    {
        return Some(address);
    }
    let mut rest = value;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '[', ',']);
        let first = rest.chars().next().filter(|first| !"]#".contains(*first))?;
        if matches!(first, '"' | '\'') {
            (_, rest) = rest.get(1..)?.split_once(first)?;
            continue;
        }
        let (word, after) =
            rest.split_at(rest.find([' ', '\t', ',', ']', '#']).unwrap_or(rest.len()));
        if word.parse::<i64>().is_err() {
            return Some(word);
        }
        rest = after;
    }
}

/// The key to which a line assigns a value.
fn key(line: &str) -> Option<String> {
    let (key, _) = line.split_once('=')?;
    let key = key.trim();
    (!key.is_empty() && !key.starts_with('#')).then(|| key.to_owned())
}
