//! The cells of tables: the results of single tries, as figures or numbers of reasons.

use crate::case::Case;
use crate::cell::{Measured, Outcome};
use crate::matrix::Tried;
use crate::peer::Peer;

/// Reasons, each listed once. Cells refer to their numbers.
#[derive(Debug, Default)]
pub(super) struct Notes(pub(super) Vec<String>);

impl Notes {
    fn number(&mut self, note: &str) -> usize {
        let known = self.0.iter().position(|known| known == note);
        known.unwrap_or_else(|| {
            self.0.push(note.to_owned());
            self.0.len() - 1
        }) + 1
    }
}

/// The losses at which a case was tried, in ascending order.
pub(super) fn losses(tried: &[Tried], case: Case) -> Vec<f64> {
    let of_case = tried.iter().filter(|tried| tried.case == case);
    let mut losses: Vec<f64> = of_case.map(|tried| tried.near_loss_percent).collect();
    losses.sort_by(f64::total_cmp);
    losses.dedup();
    losses
}

/// The result of one try, if it was made.
pub(super) fn find<'a>(
    tried: &'a [Tried],
    peer: &Peer,
    case: Case,
    sender: &str,
    loss: f64,
) -> Option<&'a Outcome> {
    let found = tried.iter().find(|tried| {
        tried.peer == peer.folder
            && tried.case == case
            && tried.sender == sender
            && tried.near_loss_percent.total_cmp(&loss).is_eq()
    });
    found.map(|tried| &tried.outcome)
}

/// The goodput, or the reason why there is none.
pub(super) fn rate(outcome: Option<&Outcome>, notes: &mut Notes) -> String {
    match outcome {
        Some(Outcome::Passed(measured)) => format!("{:.2}", measured.goodput_mbit_s),
        Some(other) => reason(other, notes),
        None => "not tried".to_owned(),
    }
}

/// How many times as fast `fast` was as `slow`, if both passed.
pub(super) fn ratio(fast: Option<&Outcome>, slow: Option<&Outcome>) -> String {
    let goodput = |outcome: Option<&Outcome>| Some(passed(outcome?)?.goodput_mbit_s);
    let ratio = goodput(fast).zip(goodput(slow)).map(|(fast, slow)| fast / slow);
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.1}"))
}

pub(super) fn passed(outcome: &Outcome) -> Option<&Measured> {
    match outcome {
        Outcome::Passed(measured) => Some(measured.as_ref()),
        _ => None,
    }
}

pub(super) fn reason(outcome: &Outcome, notes: &mut Notes) -> String {
    match outcome {
        Outcome::Passed(_) => "passed".to_owned(),
        Outcome::Failed { why } => format!("**failed** [{}]", notes.number(&plain(why))),
        Outcome::Unsupported { why } => format!("no [{}]", notes.number(why)),
        Outcome::Missing { why } => format!("**not installed** [{}]", notes.number(&plain(why))),
    }
}

/// Escapes the text of other programs, so that none of it acts as Markdown.
fn plain(words: &str) -> String {
    let mut text = String::with_capacity(words.len());
    // At the beginning, a number with a dot or a bullet would begin a list.
    let number = words.trim_start_matches(|c: char| c.is_ascii_digit());
    let begins_list = number.starts_with(['-', '.', ')']).then_some(words.len() - number.len());
    for (at, letter) in words.char_indices() {
        let letter = if letter.is_control() { ' ' } else { letter };
        let special = begins_list == Some(at);
        if special
            || letter.is_ascii_punctuation()
                && !matches!(
                    letter,
                    '.' | ',' | ':' | ';' | '/' | '-' | '\'' | '(' | ')' | '%' | '"'
                )
        {
            text.push('\\');
        }
        text.push(letter);
    }
    text
}

/// A title with a capital at its beginning.
pub(super) fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().collect::<String>() + letters.as_str())
        .unwrap_or_default()
}
