//! The characters of a peer's text that are safe to show or store. The clients and the server use
//! it.

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

#[cfg(test)]
mod tests {
    use super::*;

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
