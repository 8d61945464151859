//! The names of topics and publishers.

use std::fmt;
use std::sync::Arc;

use h3_client::words::is_harmless;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use thiserror::Error;

/// The longest name of a topic, in bytes.
pub(crate) const LONGEST_TOPIC: usize = 256;
/// The longest name of a publisher, in bytes.
const LONGEST_PUBLISHER: usize = 64;
/// The part of a path before a topic's name.
const PREFIX: &str = "/topics/";
/// The characters to encode in a path: all but the unreserved ones of RFC 3986, and the slash.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// Why a text is not a name.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum NameError {
    #[error("a topic needs a name")]
    Empty,
    #[error("the topic's name has {0} bytes, and the limit is {LONGEST_TOPIC}")]
    TooLong(usize),
    #[error("the topic's name has a character that cannot be shown")]
    Invisible,
    #[error("the topic's name has a wildcard (+ or #), which this broker does not support")]
    Wildcard,
    #[error("names of topics that begin with $ are the broker's own")]
    Reserved,
    #[error("the topic's name is not in UTF-8")]
    NotUtf8,
    #[error("a publisher's name has 1 to {LONGEST_PUBLISHER} bytes, all of them visible")]
    Publisher,
}

/// A topic's name: UTF-8 without wildcards and without characters that mislead.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TopicName(Arc<str>);

impl TopicName {
    /// Checks a name.
    pub(crate) fn new(text: &str) -> Result<Self, NameError> {
        match text {
            "" => Err(NameError::Empty),
            _ if text.len() > LONGEST_TOPIC => Err(NameError::TooLong(text.len())),
            _ if text.contains(['+', '#']) => Err(NameError::Wildcard),
            _ if text.starts_with('$') => Err(NameError::Reserved),
            _ if !text.chars().all(is_harmless) => Err(NameError::Invisible),
            _ => Ok(Self(text.into())),
        }
    }

    /// The topic of a request's path; `None` if the path names none.
    pub(crate) fn of_path(path: &str) -> Option<Result<Self, NameError>> {
        let name = percent_decode_str(path.strip_prefix(PREFIX)?);
        Some(name.decode_utf8().map_err(|_| NameError::NotUtf8).and_then(|name| Self::new(&name)))
    }

    /// The path of a request for this topic.
    pub(crate) fn path(&self) -> String {
        format!("{PREFIX}{}", utf8_percent_encode(&self.0, PATH))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A publisher's name. By it the broker recognises messages that a publisher repeats after a
/// reconnection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PublisherName(Arc<str>);

impl PublisherName {
    /// Checks a name.
    pub(crate) fn new(text: &str) -> Result<Self, NameError> {
        let fits = (1..=LONGEST_PUBLISHER).contains(&text.len());
        match fits && text.chars().all(is_harmless) {
            true => Ok(Self(text.into())),
            false => Err(NameError::Publisher),
        }
    }

    /// A random name, which no other publisher has.
    pub(crate) fn random() -> anyhow::Result<Self> {
        Ok(Self(Secret::random()?.text().into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The secret of a publisher, by which its name is its own at any address.
#[derive(Clone, Copy)]
pub(crate) struct Secret(u128);

impl Secret {
    /// A new secret.
    pub(crate) fn random() -> anyhow::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(u128::from_be_bytes(bytes)))
    }

    /// The secret for the broker.
    pub(crate) fn text(self) -> String {
        format!("{:032x}", self.0)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_survives_its_path() {
        for name in ["a", "house/kitchen/temperature", "grüße & more?", "50%", "..", "a//b"] {
            let name = TopicName::new(name).unwrap();
            let path = name.path();
            assert_eq!(TopicName::of_path(&path).unwrap().unwrap(), name);
            assert!(path.bytes().all(|byte| byte.is_ascii_graphic()), "{path}");
        }
        assert_eq!(TopicName::of_path("/other/a"), None);
        assert_eq!(TopicName::of_path("/topics/%ff"), Some(Err(NameError::NotUtf8)));
        assert_eq!(TopicName::of_path("/topics/"), Some(Err(NameError::Empty)));
    }

    #[test]
    fn names_are_short_and_visible() {
        let long = "x".repeat(LONGEST_TOPIC);
        assert!(TopicName::new(&long).is_ok());
        assert_eq!(TopicName::new(&format!("{long}x")), Err(NameError::TooLong(257)));
        assert_eq!(TopicName::new("a/+/b"), Err(NameError::Wildcard));
        assert_eq!(TopicName::new("a/#"), Err(NameError::Wildcard));
        assert_eq!(TopicName::new("$SYS/a"), Err(NameError::Reserved));
        assert_eq!(TopicName::new("a\0"), Err(NameError::Invisible));
        assert_eq!(TopicName::new("a\u{1b}[2J"), Err(NameError::Invisible));
        assert!(PublisherName::new("").is_err() && PublisherName::new(&"x".repeat(65)).is_err());
    }

    #[test]
    fn random_publishers_differ() {
        let (one, other) = (PublisherName::random().unwrap(), PublisherName::random().unwrap());
        assert_ne!(one, other);
        assert_eq!(PublisherName::new(one.as_str()), Ok(one));
    }
}
