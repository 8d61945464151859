//! Bulk transfers over satellites: the tables of SMAQ-PEP.

use super::{Scope, words};
use crate::figures::job::Case;
use crate::figures::model::{Entry, Experiment, Part};
use crate::figures::quantity::{Quantity, measures};
use crate::figures::sender::{BBR2, CUBIC_RFC9438, PACUBIC, PATH_AWARE_BBR2, RENO, SPLIT, Sender};

const SENDERS: [Sender; 6] = [RENO, CUBIC_RFC9438, BBR2, PACUBIC, PATH_AWARE_BBR2, SPLIT];
/// Orbit, scenario, loss in percent, and how much more SMAQ's proxies carried than QUIC end to end.
const ROWS: [(&str, &str, &str, &str); 4] = [
    ("LEO, 112 ms", "smaq-leo", "0.01", "about 1.07"),
    ("LEO, 112 ms", "smaq-leo", "0.1", "about 3"),
    ("GEO, 580 ms", "smaq-geo", "0.01", "about 1.3"),
    ("GEO, 580 ms", "smaq-geo", "0.1", "about 6"),
];

pub(super) fn experiment(scope: Scope) -> Experiment {
    let case = |scenario: &str, loss: &str| {
        Case::of(scenario).set("near.loss_percent", loss).seeds(scope.pick(2, 5))
    };
    let rows = ROWS.iter().flat_map(|&(orbit, scenario, loss, published)| {
        SENDERS.iter().map(move |sender| {
            let (of, to) = (sender.of(&case(scenario, loss)), RENO.of(&case(scenario, loss)));
            vec![
                Entry::text(orbit),
                Entry::text(loss),
                Entry::text(sender.name),
                Entry::Figure(Quantity::Of(of.clone(), measures::MEGABYTES), 1),
                Entry::Figure(Quantity::Ratio { of, to, measure: measures::MEGABYTES }, 2),
                Entry::text(if *sender == SPLIT { published } else { "" }),
            ]
        })
    });
    let columns = [
        "orbit, round trip",
        "loss, %",
        "sender",
        "MB in 30 s",
        "ratio to Reno",
        "published ratio",
    ];
    let table = Part::table("smaq-bulk", "Bytes in 30 seconds", words(&columns), rows);
    Experiment {
        id: "smaq",
        title: "Bulk transfer over a satellite",
        shows: vec![
            "The setting of SMAQ-PEP (IFIP Networking 2023): 20 Mbit/s over a lossy satellite segment. Its baseline is NewReno \
             end to end, and its two proxies split the connection around the satellite and run a controller made for it \
             there; the published ratio is theirs. Here one proxy stands behind the satellite, so that a split connection \
             still crosses it with an ordinary controller.",
        ],
        parts: vec![table],
    }
}
