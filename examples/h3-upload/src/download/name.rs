//! The file's name, from the URL.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use anyhow::ensure;
use h3_client::words::is_harmless;
use percent_encoding::percent_decode_str;
use url::Url;

/// The longest name that file systems accept, in bytes (NAME_MAX).
const LONGEST: usize = 255;
/// The replacement of a character that a name should not have.
const SAFE: char = '_';

/// The last part of the URL's path, percent-decoded, as a name that is safe in the present
/// directory. Characters that mislead a reader or a program are replaced.
pub(crate) fn file_name(url: &Url) -> anyhow::Result<PathBuf> {
    let segment = url.path().rsplit('/').next().unwrap_or("");
    ensure!(!segment.is_empty(), "{url} names no file: name one with -o FILE");
    let decoded: Vec<u8> = percent_decode_str(segment).collect();
    let text = String::from_utf8_lossy(&decoded);
    let mut name: String = text
        .chars()
        .map(|c| match c {
            '/' | '\\' | char::REPLACEMENT_CHARACTER => SAFE,
            c if is_harmless(c) => c,
            _ => SAFE,
        })
        .collect();
    // A dot hides a file, and ".." leads elsewhere. Programs read a dash as an option.
    if name.starts_with(['.', '-']) {
        name.replace_range(..1, &SAFE.to_string());
    }
    while name.len() > LONGEST {
        name.pop();
    }
    Ok(OsString::from_vec(name.into_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Component;

    fn name(path: &str) -> String {
        let url = Url::parse("https://h").unwrap().join(path).unwrap();
        file_name(&url).unwrap().into_os_string().into_string().unwrap()
    }

    #[test]
    fn ordinary_names_stay() {
        for (path, expected) in [
            ("/a", "a"),
            ("/dir/a%20file.bin", "a file.bin"),
            ("/gr%C3%BC%C3%9Fe", "grüße"),
            ("/50%25", "50%"),
            ("/a..b", "a..b"),
        ] {
            assert_eq!(name(path), expected);
        }
    }

    #[test]
    fn dangerous_names_are_made_safe() {
        for (path, expected) in [
            ("/.bashrc", "_bashrc"),
            ("/-rf", "_rf"),
            ("/..%2f..%2fetc%2fpasswd", "_._.._etc_passwd"),
            ("/a%5cb", "a_b"),
            ("/a%00b%0ac", "a_b_c"),
            ("/a%e2%80%aegpj.exe", "a_gpj.exe"),
            ("/%ff", "_"),
        ] {
            assert_eq!(name(path), expected);
        }
        assert_eq!(name(&format!("/{}", "%C3%BC".repeat(200))), "ü".repeat(127));
    }

    #[test]
    fn every_name_is_one_in_its_directory() {
        for first in 0..=255u8 {
            for second in [b'.', b'/', b'\\', b'-', b'a', 0, 0xff, first] {
                // The parser follows "%2e%2e" to the directory above, which names no file.
                if (first, second) == (b'.', b'.') {
                    continue;
                }
                let name = name(&format!("/%{first:02x}%{second:02X}"));
                let mut parts = std::path::Path::new(&name).components();
                assert!(matches!(parts.next(), Some(Component::Normal(_))), "{name:?}");
                assert_eq!(parts.next(), None, "{name:?}");
            }
        }
    }

    #[test]
    fn a_directory_has_no_name() {
        for path in ["", "/", "/dir/"] {
            assert!(file_name(&Url::parse("https://h").unwrap().join(path).unwrap()).is_err());
        }
    }
}
