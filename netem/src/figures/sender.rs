//! The compared senders, each with its name, settings and colour.

use super::job::Case;
use super::palette::{
    BLUE, BROWN, Colour, GREEN, GREY, OLIVE, ORANGE, PURPLE, SKY, VERMILION, VIOLET,
};

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
}
