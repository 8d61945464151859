//! The compared senders, each with its name, settings and colour.

use super::job::Case;
use super::palette::{
    BLUE, BROWN, Colour, GREEN, GREY, OLIVE, ORANGE, PURPLE, SKY, VERMILION, VIOLET,
};

/// A sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    /// Its name in legends and tables.
    pub name: &'static str,
    /// Its colour, in every plot.
    pub colour: Colour,
    /// The settings that select it in a scenario, as `--set` takes them.
    pub settings: &'static [&'static str],
}

impl Sender {
    /// A case with this sender.
    pub(crate) fn of(&self, case: &Case) -> Case {
        case.clone().with(self.settings)
    }
}

const OFF: &str = "sidekick.mode=off";
const RECEIVE: &str = "sidekick.mode=receive";

/// CUBIC as quiche ships it.
pub(crate) const CUBIC: Sender =
    Sender { name: "CUBIC, stock quiche", colour: GREY, settings: &[OFF, "flow.cc=cubic"] };
/// CUBIC without the rollback.
pub(crate) const CUBIC_RFC9438: Sender =
    Sender { name: "CUBIC, RFC 9438", colour: ORANGE, settings: &[OFF, "flow.cc=cubic-rfc9438"] };
/// NewReno.
pub(crate) const RENO: Sender =
    Sender { name: "Reno", colour: PURPLE, settings: &[OFF, "flow.cc=reno"] };
/// BBR2.
pub(crate) const BBR2: Sender =
    Sender { name: "BBR2", colour: SKY, settings: &[OFF, "flow.cc=bbr2"] };
/// Early loss on CUBIC as in RFC 9438.
pub(crate) const EARLY_LOSS: Sender = Sender {
    name: "Sidekick, early loss",
    colour: BROWN,
    settings: &["sidekick.mode=early-loss", "flow.cc=cubic-rfc9438"],
};
/// Path-aware CUBIC.
pub(crate) const PACUBIC: Sender =
    Sender { name: "Sidekick, PACUBIC", colour: VERMILION, settings: &["sidekick.mode=pacubic"] };
/// Path-aware BBR2.
pub(crate) const PATH_AWARE_BBR2: Sender = Sender {
    name: "Sidekick, path-aware BBR2",
    colour: BLUE,
    settings: &["sidekick.mode=path-aware-bbr"],
};
/// Re-injection over BBR2.
pub(crate) const REINJECT_BBR2: Sender = Sender {
    name: "Sidekick, re-injection, BBR2",
    colour: GREEN,
    settings: &["sidekick.mode=reinject", "flow.cc=bbr2"],
};
/// The repair that suits the path, over BBR2.
pub(crate) const AUTO: Sender =
    Sender { name: "Sidekick, auto", colour: OLIVE, settings: &["sidekick.mode=auto"] };
/// The proxy's reports make room in stock CUBIC's window.
pub(crate) const ACK_REDUCTION: Sender = Sender {
    name: "Sidekick, ACK reduction",
    colour: VIOLET,
    settings: &["sidekick.mode=ack-reduction", "flow.cc=cubic"],
};
/// A proxy that terminates the connection, with CUBIC of RFC 9438 on both sides.
pub(crate) const SPLIT: Sender = Sender {
    name: "split proxy",
    colour: GREEN,
    settings: &["flow.split=near", OFF, "flow.cc=cubic-rfc9438"],
};

/// A server on CUBIC as quiche ships it. Its client uses help.
pub(crate) const RECEIVE_CUBIC: Sender = Sender {
    name: "Sidekick, receive, CUBIC, stock quiche",
    colour: VERMILION,
    settings: &[RECEIVE, "flow.cc=cubic"],
};
/// A server on CUBIC without the rollback. Its client uses help.
pub(crate) const RECEIVE_CUBIC_RFC9438: Sender = Sender {
    name: "Sidekick, receive, CUBIC, RFC 9438",
    colour: OLIVE,
    settings: &[RECEIVE, "flow.cc=cubic-rfc9438"],
};
/// A server on NewReno. Its client uses help.
pub(crate) const RECEIVE_RENO: Sender = Sender {
    name: "Sidekick, receive, Reno",
    colour: VIOLET,
    settings: &[RECEIVE, "flow.cc=reno"],
};
/// A server on BBR2. Its client uses help.
pub(crate) const RECEIVE_BBR2: Sender =
    Sender { name: "Sidekick, receive, BBR2", colour: BLUE, settings: &[RECEIVE, "flow.cc=bbr2"] };

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
