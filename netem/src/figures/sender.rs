//! The compared senders, each with its name, settings and colour.

use super::job::Case;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    pub name: &'static str,
    pub colour: Colour,
    /// The settings that select it in a scenario, as `--set` takes them.
    pub settings: &'static [&'static str],
}

impl Sender {
    pub(crate) const fn new(
        name: &'static str,
        colour: Colour,
        settings: &'static [&'static str],
    ) -> Self {
        Self { name, colour, settings }
    }

    pub(crate) fn of(&self, case: &Case) -> Case {
        case.clone().with(self.settings)
    }
}

const OFF: &str = "sidekick.mode=off";
const RECEIVE: &str = "sidekick.mode=receive";

/// CUBIC as quiche ships it.
pub(crate) const CUBIC: Sender = Sender::new("CUBIC, stock quiche", GREY, &[OFF, "flow.cc=cubic"]);
/// CUBIC without the rollback.
pub(crate) const CUBIC_RFC9438: Sender =
    Sender::new("CUBIC, RFC 9438", ORANGE, &[OFF, "flow.cc=cubic-rfc9438"]);
pub(crate) const RENO: Sender = Sender::new("Reno", PURPLE, &[OFF, "flow.cc=reno"]);
pub(crate) const BBR2: Sender = Sender::new("BBR2", SKY, &[OFF, "flow.cc=bbr2"]);
/// Early loss on CUBIC as in RFC 9438.
pub(crate) const EARLY_LOSS: Sender = Sender::new(
    "Sidekick, early loss",
    BROWN,
    &["sidekick.mode=early-loss", "flow.cc=cubic-rfc9438"],
);
pub(crate) const PACUBIC: Sender =
    Sender::new("Sidekick, PACUBIC", VERMILION, &["sidekick.mode=pacubic"]);
pub(crate) const PATH_AWARE_BBR2: Sender =
    Sender::new("Sidekick, path-aware BBR2", BLUE, &["sidekick.mode=path-aware-bbr"]);
pub(crate) const REINJECT_BBR2: Sender =
    Sender::new("Sidekick, re-injection, BBR2", GREEN, &["sidekick.mode=reinject", "flow.cc=bbr2"]);
/// The repair that suits the path, over BBR2.
pub(crate) const AUTO: Sender = Sender::new("Sidekick, auto", OLIVE, &["sidekick.mode=auto"]);
/// The proxy's reports make room in stock CUBIC's window.
pub(crate) const ACK_REDUCTION: Sender = Sender::new(
    "Sidekick, ACK reduction",
    VIOLET,
    &["sidekick.mode=ack-reduction", "flow.cc=cubic"],
);
/// A proxy that terminates the connection, with CUBIC of RFC 9438 on both sides.
pub(crate) const SPLIT: Sender =
    Sender::new("split proxy", GREEN, &["flow.split=near", OFF, "flow.cc=cubic-rfc9438"]);

/// A server on CUBIC as quiche ships it. Its client uses help.
pub(crate) const RECEIVE_CUBIC: Sender =
    Sender::new("Sidekick, receive, CUBIC, stock quiche", VERMILION, &[RECEIVE, "flow.cc=cubic"]);
/// A server on CUBIC without the rollback. Its client uses help.
pub(crate) const RECEIVE_CUBIC_RFC9438: Sender =
    Sender::new("Sidekick, receive, CUBIC, RFC 9438", OLIVE, &[RECEIVE, "flow.cc=cubic-rfc9438"]);
/// A server on NewReno. Its client uses help.
pub(crate) const RECEIVE_RENO: Sender =
    Sender::new("Sidekick, receive, Reno", VIOLET, &[RECEIVE, "flow.cc=reno"]);
/// A server on BBR2. Its client uses help.
pub(crate) const RECEIVE_BBR2: Sender =
    Sender::new("Sidekick, receive, BBR2", BLUE, &[RECEIVE, "flow.cc=bbr2"]);

/// All senders of uploads, except [`ACK_REDUCTION`], which is for another path.
pub(crate) const ALL: [Sender; 9] =
    [CUBIC, CUBIC_RFC9438, RENO, BBR2, EARLY_LOSS, PACUBIC, PATH_AWARE_BBR2, AUTO, SPLIT];

/// A colour as red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Colour(pub u8, pub u8, pub u8);

impl Colour {
    /// As in HTML and SVG.
    pub(crate) fn hex(self) -> String {
        format!("#{:02X}{:02X}{:02X}", self.0, self.1, self.2)
    }

    /// A mixture of two colours: this colour where `share` is 0, `to` where it is 1.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a mixture of two values from 0 to 255 is one too"
    )]
    pub(crate) fn mixed(self, to: Self, share: f64) -> Self {
        let share = share.clamp(0.0, 1.0);
        let mix = |from: u8, to: u8| {
            (f64::from(from) + (f64::from(to) - f64::from(from)) * share).round() as u8
        };
        Self(mix(self.0, to.0), mix(self.1, to.1), mix(self.2, to.2))
    }
}

/// Axes and text. In dark mode, the page inverts this colour.
pub(crate) const INK: Colour = Colour(0, 0, 0);
/// Lines behind the curves. In dark mode, the page dims this colour.
pub(crate) const GRID: Colour = Colour(0xDD, 0xDD, 0xDD);
/// Text on the cells of a heat map, which are light in dark mode, too.
pub(crate) const CELL_INK: Colour = Colour(0x1A, 0x1A, 0x1A);
/// A ratio of one.
pub(crate) const EVEN: Colour = Colour(0xF7, 0xF7, 0xF7);
/// A ratio far above one.
pub(crate) const ABOVE: Colour = Colour(0x56, 0xB4, 0xE9);
/// A ratio far below one.
pub(crate) const BELOW: Colour = Colour(0xE6, 0x9F, 0x00);

// The colours of Okabe and Ito, with three changes: a grey that shows on white and on black, a
// violet, and a brown in place of yellow, which does not show on white.
pub(crate) const GREY: Colour = Colour(0x80, 0x80, 0x80);
pub(crate) const ORANGE: Colour = Colour(0xE6, 0x9F, 0x00);
pub(crate) const SKY: Colour = Colour(0x56, 0xB4, 0xE9);
pub(crate) const GREEN: Colour = Colour(0x00, 0x9E, 0x73);
pub(crate) const BLUE: Colour = Colour(0x00, 0x72, 0xB2);
pub(crate) const VERMILION: Colour = Colour(0xD5, 0x5E, 0x00);
pub(crate) const PURPLE: Colour = Colour(0xCC, 0x79, 0xA7);
pub(crate) const BROWN: Colour = Colour(0x99, 0x4F, 0x00);
pub(crate) const OLIVE: Colour = Colour(0x8A, 0x8A, 0x00);
pub(crate) const VIOLET: Colour = Colour(0x7B, 0x5F, 0xD0);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_sender_has_a_colour_and_settings_of_its_own() {
        let colours: HashSet<_> = ALL.iter().map(|sender| sender.colour).collect();
        assert_eq!(colours.len(), ALL.len());
        for sender in ALL {
            sender.of(&Case::of("upload-paper")).jobs().next().unwrap().load().unwrap();
        }
    }

    #[test]
    fn colours_mix() {
        assert_eq!(Colour(0, 100, 255).mixed(Colour(100, 100, 5), 0.5), Colour(50, 100, 130));
        assert_eq!(ABOVE.mixed(EVEN, 7.0), EVEN);
        assert_eq!(ORANGE.hex(), "#E69F00");
    }
}
