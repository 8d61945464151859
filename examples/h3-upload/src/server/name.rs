//! Which names a file may have.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use percent_encoding::percent_decode_str;
use thiserror::Error;

use crate::text::misleads;

/// The longest name that file systems accept, in bytes (NAME_MAX).
const LONGEST: usize = 255;

/// Why a path is not the name of a file that a client may store.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum NameError {
    #[error("the file needs a name: PUT /NAME")]
    Missing,
    #[error("a name cannot contain folders, / or \\, encoded or not")]
    NotOneSegment,
    #[error("a name cannot begin with a dot")]
    Hidden,
    #[error("a name cannot begin with a dash, because programs read that as an option")]
    Dash,
    #[error(
        "a name cannot contain control or invisible characters, or any that change the direction \
         of text"
    )]
    Misleading,
    #[error("a name has at most {LONGEST} bytes")]
    TooLong,
}

/// The only segment of `path`, percent-decoded, if it is safe as a file's name. Names need not be
/// UTF-8: a byte above 0x9f passes, even if it is not part of a character.
pub(crate) fn file_name(path: &str) -> Result<OsString, NameError> {
    let segment = path.strip_prefix('/').unwrap_or(path);
    let name: Vec<u8> = percent_decode_str(segment).collect();
    match name.as_slice() {
        [] => Err(NameError::Missing),
        name if name.iter().any(|b| matches!(b, b'/' | b'\\')) => Err(NameError::NotOneSegment),
        // Including ".", ".." and the server's own temporary files.
        [b'.', ..] => Err(NameError::Hidden),
        [b'-', ..] => Err(NameError::Dash),
        name if name.utf8_chunks().any(|part| {
            // The control bytes of 8-bit terminals.
            part.valid().contains(misleads)
                || part.invalid().iter().any(|byte| matches!(byte, 0x80..=0x9f))
        }) =>
        {
            Err(NameError::Misleading)
        }
        name if name.len() > LONGEST => Err(NameError::TooLong),
        _ => Ok(OsString::from_vec(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_names_pass() {
        for (path, name) in [
            ("/a", "a"),
            ("/a%20file.bin", "a file.bin"),
            ("/%41", "A"),
            ("/50%25", "50%"),
            // Not an escape, so it is literal.
            ("/100%", "100%"),
            ("/a..b", "a..b"),
            ("/a-b", "a-b"),
            ("/gr%C3%BC%C3%9Fe", "grüße"),
        ] {
            assert_eq!(file_name(path), Ok(name.into()), "{path}");
        }
        assert_eq!(file_name("/%ff"), Ok(OsString::from_vec(vec![0xff])));
        assert_eq!(file_name(&format!("/{}", "a".repeat(255))), Ok("a".repeat(255).into()));
    }

    #[test]
    fn other_names_do_not() {
        let long = format!("/{}", "%61".repeat(256));
        for (path, error) in [
            ("", NameError::Missing),
            ("/", NameError::Missing),
            ("//", NameError::NotOneSegment),
            ("/a/b", NameError::NotOneSegment),
            ("/a%2fb", NameError::NotOneSegment),
            ("/%2Fetc%2Fpasswd", NameError::NotOneSegment),
            ("/..%2f..%2fetc", NameError::NotOneSegment),
            ("/a%5Cb", NameError::NotOneSegment),
            ("/a/", NameError::NotOneSegment),
            ("/.", NameError::Hidden),
            ("/..", NameError::Hidden),
            ("/%2e%2E", NameError::Hidden),
            ("/.bashrc", NameError::Hidden),
            ("/-rf", NameError::Dash),
            ("/%2drf", NameError::Dash),
            ("/a%00b", NameError::Misleading),
            ("/a%0ab", NameError::Misleading),
            ("/a%7f", NameError::Misleading),
            // U+009B, the CSI of eight-bit terminals; U+202E, right-to-left override; U+200B,
            // zero-width space.
            ("/a%c2%9b2J", NameError::Misleading),
            ("/a%e2%80%aegpj.exe", NameError::Misleading),
            ("/a%e2%80%8bb", NameError::Misleading),
            ("/%ffa%e2%81%a6", NameError::Misleading),
            // The same CSI as one byte.
            ("/%9b31m", NameError::Misleading),
            (long.as_str(), NameError::TooLong),
        ] {
            assert_eq!(file_name(path), Err(error), "{path}");
        }
    }

    #[test]
    fn a_valid_name_stays_in_its_directory() {
        // Every pair of bytes, encoded. Each valid name is one normal path component.
        for first in 0..=255u8 {
            for second in 0..=255u8 {
                if let Ok(name) = file_name(&format!("/%{first:02x}%{second:02X}")) {
                    let mut parts = std::path::Path::new(&name).components();
                    assert!(
                        matches!(parts.next(), Some(std::path::Component::Normal(part)) if part == name)
                    );
                    assert_eq!(parts.next(), None);
                }
            }
        }
    }
}
