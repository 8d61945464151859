//! Words for users: a peer's text without what controls a terminal, and counts.

use std::io::{self, Write as _};

use crate::text::{self, misleads};

/// The longest sentence of a server that is shown, in characters.
const LONGEST_SENTENCE: usize = 300;

/// Whether a character may stand in a file's name: it neither controls a terminal nor changes how
/// the text around it looks.
#[must_use]
pub fn is_harmless(c: char) -> bool {
    !misleads(c)
}

/// `text` without the characters that control a terminal, because the server may have sent parts of
/// it.
#[must_use]
pub fn harmless(text: &str) -> String {
    text.chars().filter(|&c| is_harmless(c)).collect()
}

/// A hash in lower-case hexadecimal.
#[must_use]
pub fn hex(hash: &[u8]) -> String {
    text::hex(hash)
}

/// Writes a line to standard error. Its reader may have left, which is no reason to end.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The first line of a server's text, without unsafe characters.
#[must_use]
pub fn sentence(text: &str) -> String {
    let line = harmless(text.trim().lines().next().unwrap_or(""))
        .chars()
        .take(LONGEST_SENTENCE)
        .collect::<String>();
    if line.is_empty() { "it gives no reason".to_owned() } else { line }
}

/// A number of losses that the proxy showed.
#[must_use]
pub fn losses(early: u64) -> String {
    match early {
        1 => "1 loss detected early".to_owned(),
        n => format!("{n} losses detected early"),
    }
}

/// A number of gaps that the proxy's copies closed.
#[must_use]
pub fn gaps(repaired: u64) -> String {
    match repaired {
        1 => "1 gap repaired near".to_owned(),
        n => format!("{n} gaps repaired near"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_cannot_control_the_terminal() {
        assert_eq!(
            harmless("no\x1b[2J\u{9b}2J such\u{202e} na\u{200b}me\r\n: grüße"),
            "no[2J2J such name: grüße"
        );
        assert_eq!(sentence("no\x1b[2Jsuch name\nand more"), "no[2Jsuch name");
        assert_eq!(sentence("\n"), "it gives no reason");
    }

    #[test]
    fn one_loss_is_singular() {
        assert_eq!(losses(0), "0 losses detected early");
        assert_eq!(losses(1), "1 loss detected early");
        assert_eq!(gaps(1), "1 gap repaired near");
        assert_eq!(gaps(2), "2 gaps repaired near");
    }
}
