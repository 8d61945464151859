//! Text of a peer, and for one: the clients and the server use it.

/// Whether `c` controls a terminal, or changes how the text around it looks.
///
/// Such are control characters (C0, DEL and C1), line and paragraph separators, Unicode's controls
/// of direction, and characters without a width.
pub(crate) fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{00ad}'
                | '\u{034f}'
                | '\u{061c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// The length in the values of `content-length`: `Some(None)` without any. Several must agree.
/// `None` if they do not, or if one is no number.
pub(crate) fn content_length(
    values: impl IntoIterator<Item = impl AsRef<[u8]>>,
) -> Option<Option<u64>> {
    let mut announced = None;
    for value in values {
        // `parse` would accept a sign.
        let digits = value.as_ref().iter().all(u8::is_ascii_digit);
        let digits = std::str::from_utf8(value.as_ref()).ok().filter(|_| digits)?;
        let length = Some(digits.parse().ok()?);
        if announced.is_some() && announced != length {
            return None;
        }
        announced = length;
    }
    Some(announced)
}

/// A hash in lower-case hexadecimal.
pub(crate) fn hex(hash: &[u8]) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_numbers_and_agree() {
        for (values, length) in [
            (&[][..], Some(None)),
            (&["0"], Some(Some(0))),
            (&["18446744073709551615"], Some(Some(u64::MAX))),
            (&["7", "7"], Some(Some(7))),
            (&["7", "8"], None),
            (&["-1"], None),
            (&["+1"], None),
            (&["1, 1"], None),
            (&[""], None),
            (&["18446744073709551616"], None),
        ] {
            assert_eq!(content_length(values), length, "{values:?}");
        }
    }

    #[test]
    fn visible_characters_pass() {
        assert!(
            "grüße 50% #1 – naïve, Ελλάδα, 漢字, עברית, العربية, 😀".chars().all(|c| !misleads(c))
        );
    }

    #[test]
    fn controls_and_invisible_characters_do_not() {
        let steering = "\0\u{1b}\n\r\u{7f}\u{9b}\u{202e}\u{2066}\u{2069}\u{200f}\u{061c}\u{2028}";
        let hidden = "\u{200b}\u{200d}\u{2060}\u{feff}\u{00ad}\u{e0041}";
        for c in steering.chars().chain(hidden.chars()) {
            assert!(misleads(c), "{c:?}");
        }
    }
}
