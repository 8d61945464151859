//! Which repair of a download suits which path: maps over the near segment's loss and delay.

use super::Scope;
use super::packrat::{AUTO, BOTH, PARITY, PLAIN, REQUESTS};
use crate::figures::job::Case;
use crate::figures::model::{Cells, Experiment, HeatMap, Part};
use crate::figures::quantity::{Quantity, measures};
use crate::figures::sender::{BBR2, CUBIC, Sender};

/// The servers: the name in links, and the sender.
const SERVERS: [(&str, Sender); 2] = [("cubic", CUBIC), ("bbr2", BBR2)];

pub(super) fn experiment(scope: Scope) -> Experiment {
    let maps = SERVERS.iter().flat_map(|server| {
        [PLAIN, REQUESTS, PARITY, BOTH, AUTO].map(|help| map(scope, server, &help))
    });
    Experiment {
        id: "parity",
        title: "How a proxy repairs downloads best",
        shows: vec![
            "The maps show a download of 10 MB over Packrat's cellular network, by the loss of the \
             near segment and by its delay one way. The near segment has 50 Mbit/s. The far one \
             has 20 Mbit/s, 30 ms one way, and a queue of 65 kilobytes. The client has no help, \
             requests missing packets, asks for parity, asks for both, or chooses by the path.",
        ],
        parts: maps.collect(),
    }
}

fn map(scope: Scope, (id, server): &(&str, Sender), help: &Sender) -> Part {
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
