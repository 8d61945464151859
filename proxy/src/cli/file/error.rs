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
        let at = error.span().map_or(0, |span| span.start);
        let (before, after) = text.split_at_checked(at).unwrap_or_default();
        let line = before.matches('\n').count();
        let (key, message) = match unknown(error.message()) {
            Some((name, keys)) => {
                let advice = K::advice(name).unwrap_or_else(|| advice(name, &keys));
                (Some(name.to_owned()), advice)
            }
            None => {
                let message =
                    unquoted(before, after).unwrap_or_else(|| error.message().replace('\n', ", "));
                (text.lines().nth(line).and_then(key), message)
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

/// What to write in place of the value that ends `before` or begins `after`, the text around an
/// error, if the value lacks its quotes. The TOML parser takes such a value for a number or a
/// boolean by its first letters.
fn unquoted(before: &str, after: &str) -> Option<String> {
    let is_edge = |c: char| c.is_ascii_whitespace() || matches!(c, ',' | '=');
    let (before, begun) = before.split_at(before.rfind(is_edge).map_or(0, |edge| edge + 1));
    if !before.trim_end().ends_with(['=', ',', '[']) {
        return None;
    }
    let word = format!("{begun}{}", after.split(is_edge).next()?);
    // An IPv6 address and its port begin like a list.
    let word = if word.contains("]:") { &word } else { word.trim_matches(['[', ']']) };
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

/// The key to which a line assigns a value.
fn key(line: &str) -> Option<String> {
    let (key, _) = line.split_once('=')?;
    let key = key.trim();
    (!key.is_empty() && !key.starts_with('#')).then(|| key.to_owned())
}
