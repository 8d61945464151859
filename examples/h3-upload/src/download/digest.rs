//! The server's hashes of the file (RFC 9530, and its predecessor RFC 3230).

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sfv::{BareItem, ListEntry, Parser};

/// The value of `Want-Repr-Digest` that asks for SHA-256.
pub(crate) const WANTED: &str = "sha-256=10";
/// The fields that may hold a digest, in lower case. To a whole answer they all apply alike.
pub(crate) const FIELDS: [&str; 3] = ["repr-digest", "content-digest", "digest"];

const SHA256: &str = "sha-256";

/// The SHA-256 in `values`, those of the field `name`. `None` if there is none, or if its encoding
/// is not that of the field: an unknown digest is to be ignored.
pub(crate) fn sha256(name: &str, values: &[String]) -> Option<Vec<u8>> {
    let value = values.join(", ");
    match name {
        "digest" => value.split(',').find_map(legacy),
        _ => match Parser::parse_dictionary(value.as_bytes()).ok()?.get(SHA256)? {
            ListEntry::Item(item) => match &item.bare_item {
                BareItem::ByteSeq(hash) => Some(hash.clone()),
                _ => None,
            },
            ListEntry::InnerList(_) => None,
        },
    }
}

/// A digest of RFC 3230: `SHA-256=` and base64.
fn legacy(value: &str) -> Option<Vec<u8>> {
    let (algorithm, hash) = value.trim().split_once('=')?;
    let known = algorithm.eq_ignore_ascii_case(SHA256);
    known.then(|| BASE64_STANDARD.decode(hash).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::{Digest as _, Sha256};

    fn of(name: &str, values: &[&str]) -> Option<Vec<u8>> {
        sha256(name, &values.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn the_example_of_the_rfc() {
        // RFC 9530, appendix B.1: {"hello": "world"} and a line feed.
        let hash = Some(Sha256::digest(b"{\"hello\": \"world\"}\n").to_vec());
        let field = "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:";
        assert_eq!(of("repr-digest", &[field]), hash);
        assert_eq!(of("content-digest", &["md5=:AA==:", field]), hash);
        let old = "sha-256=RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=";
        for old in [old.to_owned(), old.replace("sha", "SHA"), format!("md5=AA==,{old}")] {
            assert_eq!(of("digest", &[&old]), hash, "{old}");
        }
    }

    #[test]
    fn other_digests_are_ignored() {
        for value in ["", "sha-512=:AA==:", "sha-256=AA==", "sha-256=(:AA==:)", "sha-256", ":::"] {
            assert_eq!(of("repr-digest", &[value]), None, "{value}");
        }
        for value in ["", "sha-256", "sha-256=:AA==:", "sha-512=AA=="] {
            assert_eq!(of("digest", &[value]), None, "{value}");
        }
        // A short hash matches no file, and is no reason to skip the check.
        assert_eq!(of("repr-digest", &["sha-256=:AA==:"]), Some(vec![0]));
    }
}
