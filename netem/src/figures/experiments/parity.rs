//! How a proxy repairs downloads best: maps over the near segment's loss and delay, and curves over
//! the networks of Packrat.

use super::download::{LOSS, of_packrat, over_packrat};
use super::{GOODPUT, Scope};
use crate::figures::job::Case;
use crate::figures::model::{Cells, Experiment, HeatMap, Part};
use crate::figures::palette::{GREY, ORANGE, PURPLE, VERMILION, VIOLET};
use crate::figures::quantity::{Quantity, measures};
use crate::figures::sender::{BBR2, CUBIC, SPLIT, Sender};

/// The client has no help.
const PLAIN: Sender = Sender { name: "no help", colour: GREY, settings: &["sidekick.mode=off"] };
/// The client requests what it lacks.
const REQUESTS: Sender = Sender {
    name: "requests",
    colour: ORANGE,
    settings: &["sidekick.mode=receive", "sidekick.repair=requests"],
};
/// The proxy adds parity.
const PARITY: Sender = Sender {
    name: "parity",
    colour: PURPLE,
    settings: &["sidekick.mode=receive", "sidekick.repair=parity"],
};
/// Parity, and requests for what it cannot rebuild.
const BOTH: Sender = Sender {
    name: "both",
    colour: VIOLET,
    settings: &["sidekick.mode=receive", "sidekick.repair=both"],
};
/// The client chooses by the path. The setting is the usual one, so other figures share the runs.
const AUTO: Sender =
    Sender { name: "auto", colour: VERMILION, settings: &["sidekick.mode=receive"] };

/// The servers: the name in links, the sender, and Packrat's name for its counterpart.
const SERVERS: [(&str, Sender, &str); 2] = [("cubic", CUBIC, "cubic"), ("bbr2", BBR2, "bbr3")];

pub(super) fn experiment(scope: Scope) -> Experiment {
    let maps = SERVERS.iter().flat_map(|server| {
        [PLAIN, REQUESTS, PARITY, BOTH, AUTO].map(|help| map(scope, server, &help))
    });
    let curves = SERVERS
        .iter()
        .flat_map(|server| ["cellular", "satellite"].map(|network| plot(scope, server, network)));
    Experiment {
        id: "parity",
        title: "How a proxy repairs downloads best",
        shows: vec![
            "The maps show a download of 10 MB over Packrat's cellular network, by the loss of the near segment and by its delay \
             one way. The near segment has 50 Mbit/s. The far one has 20, 30 ms one way, and a queue of 65 kilobytes. The client \
             has no help, requests what it lacks, asks for parity, asks for both, or chooses by the path.",
            "The curves show a download of 20 MB over two networks of Packrat (CoNEXT '26), with queues of a thousand packets. \
             Its curves and those of its split proxy are dashed, with a server on picoquic. Packrat's proxy answers \
             requests, too.",
        ],
        parts: maps.chain(curves).collect(),
    }
}

/// Goodput over loss and delay.
fn map(scope: Scope, (id, server, _): &(&str, Sender, &str), help: &Sender) -> Part {
    let losses: &[u32] = scope.pick(&[0, 4, 20], &[0, 1, 2, 4, 10, 20]);
    let delays: &[u32] = scope.pick(&[2, 30, 280], &[2, 5, 10, 20, 30, 100, 280]);
    let cell = |loss: u32, delay: u32| {
        let case = Case::of("packrat-cellular")
            .set("near.loss_percent", loss)
            .set("near.delay_ms", delay)
            .set("flow.bytes", 10_000_000)
            .seeds(scope.pick(1, 5));
        Quantity::Of(help.of(&server.of(&case)), measures::GOODPUT)
    };
    let row = |loss: &u32| delays.iter().map(|&delay| cell(*loss, delay)).collect();
    Part::Heat(HeatMap {
        id: format!("parity-map-{id}-{}", help.name.replace(' ', "-")),
        title: format!("{}: {}", server.name, help.name),
        x: ("near delay, one way", delays.iter().map(|delay| format!("{delay} ms")).collect()),
        y: ("near loss", losses.iter().map(|loss| format!("{loss} %")).collect()),
        // The rate of the far segment.
        kind: Cells::Amounts { name: "goodput, Mbit/s", full: 20.0 },
        cells: losses.iter().map(row).collect(),
    })
}

/// Goodput over loss, beside what Packrat's authors published.
fn plot(scope: Scope, (id, server, theirs): &(&str, Sender, &str), network: &str) -> Part {
    let measured = [PLAIN, REQUESTS, PARITY, AUTO]
        .map(|help| over_packrat(scope, network, server.settings, &help));
    // In the colours of what they are to be compared with: Packrat's client makes requests.
    let published = [
        of_packrat((network, theirs), ("Packrat", "packrat"), REQUESTS.colour),
        of_packrat((network, theirs), ("split proxy", "split"), SPLIT.colour),
    ];
    let title = format!("{network}, {}", server.name);
    let curves = measured.into_iter().chain(published);
    Part::plot(format!("parity-{network}-{id}"), title, (LOSS, GOODPUT), curves)
}
