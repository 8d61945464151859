//! Links as they are: what a fade takes depends on time, and the link may repair it by itself.

use super::{Scope, words};
use crate::figures::job::Case;
use crate::figures::model::{Entry, Experiment, Part};
use crate::figures::quantity::{Quantity, measures};
use crate::figures::sender::{
    AUTO, BBR2, CUBIC_RFC9438, PURPLE, RECEIVE_BBR2, RECEIVE_CUBIC_RFC9438, SKY, Sender,
};

const AGENT_CUBIC: Sender = Sender::new(
    "agent in order, CUBIC, RFC 9438",
    PURPLE,
    &["sidekick.mode=agent-in-order", "flow.cc=cubic-rfc9438"],
);
const AGENT_BBR2: Sender =
    Sender::new("agent in order, BBR2", SKY, &["sidekick.mode=agent-in-order", "flow.cc=bbr2"]);

/// The scenarios, in words.
const LINKS: [(&str, &str); 6] = [
    ("Wi-Fi two rooms away", "wifi-far-room"),
    ("LTE in a car", "lte-drive"),
    ("a train", "train"),
    ("low earth orbit", "leo"),
    ("geostationary orbit", "geo"),
    ("a fixed radio link", "microwave"),
];

pub(super) fn experiment(scope: Scope) -> Experiment {
    let downloads =
        [CUBIC_RFC9438, RECEIVE_CUBIC_RFC9438, AGENT_CUBIC, BBR2, RECEIVE_BBR2, AGENT_BBR2];
    let uploads = [CUBIC_RFC9438, BBR2, AUTO];
    Experiment {
        id: "links",
        title: "Links as they are",
        shows: vec![
            "Wi-Fi and LTE send lost frames again by themselves, so little is left to repair. \
             Satellites and trains lose everything for a time, which no copy of a few packets \
             repairs. A radio link that sends nothing again is what help is for.",
        ],
        parts: vec![
            part(scope, ("links-download", "Downloads, Mbit/s", "download"), &downloads),
            part(scope, ("links-upload", "Uploads, Mbit/s", "upload"), &uploads),
        ],
    }
}

fn part(scope: Scope, (id, title, kind): (&str, &str, &str), senders: &[Sender]) -> Part {
    let rows = LINKS.iter().map(|&(link, scenario)| {
        let case = Case::of(scenario).set("flow.kind", kind).seeds(scope.pick(2, 21));
        let figure =
            |sender: &Sender| Entry::Figure(Quantity::Of(sender.of(&case), measures::GOODPUT), 2);
        std::iter::once(Entry::text(link)).chain(senders.iter().map(figure)).collect()
    });
    let names: Vec<_> = std::iter::once("link").chain(senders.iter().map(|one| one.name)).collect();
    Part::table(id, title, words(&names), rows)
}
