//! Satellites between two proxies: bulk transfers and pages, beside the gains of SMAQ-PEP.

use super::{Scope, words};
use crate::figures::job::Case;
use crate::figures::model::{Entry, Experiment, Part};
use crate::figures::quantity::{Quantity, measures};
use crate::figures::sender::{BLUE, BROWN, GREEN, OLIVE, PURPLE, SKY, Sender, VERMILION, VIOLET};

/// The baseline of SMAQ's paper.
const RENO: Sender = Sender::new("Reno", PURPLE, &["sidekick.mode=off", "flow.cc=reno"]);
/// SMAQ's approach: two proxies that split the connection.
const SPLIT: Sender = Sender::new(
    "two split proxies, Hybla between them",
    GREEN,
    &["sidekick.mode=off", "flow.cc=reno", "flow.split=both", "flow.split_cc=hybla"],
);
const BBR2: Sender = Sender::new("BBR2", SKY, &["sidekick.mode=off", "flow.cc=bbr2"]);

/// The senders of downloads from an unmodified server. Only the endpoints hold the keys, except
/// with [`SPLIT`].
const DOWNLOADS: [Sender; 7] = [
    RENO,
    SPLIT,
    Sender::new(
        "Sidekick, requests, Reno",
        BROWN,
        &["sidekick.mode=receive", "sidekick.repair=requests", "flow.cc=reno"],
    ),
    Sender::new(
        "Sidekick, parity, Reno",
        VIOLET,
        &["sidekick.mode=receive", "sidekick.repair=parity", "flow.cc=reno"],
    ),
    Sender::new(
        "Sidekick, both, Reno",
        VERMILION,
        &["sidekick.mode=receive", "sidekick.repair=both", "flow.cc=reno"],
    ),
    BBR2,
    Sender::new(
        "Sidekick, both, BBR2",
        BLUE,
        &["sidekick.mode=receive", "sidekick.repair=both", "flow.cc=bbr2"],
    ),
];
const UPLOADS: [Sender; 3] =
    [RENO, BBR2, Sender::new("Sidekick, auto, BBR2", OLIVE, &["sidekick.mode=auto"])];

/// Orbit, scenario, loss in percent, and the published gain of SMAQ's proxies over QUIC end to end.
const ROWS: [(&str, &str, &str, &str); 4] = [
    ("LEO, 112 ms", "smaq-leo", "0.01", "about 1.07"),
    ("LEO, 112 ms", "smaq-leo", "0.1", "about 3"),
    ("GEO, 580 ms", "smaq-geo", "0.01", "about 1.3"),
    ("GEO, 580 ms", "smaq-geo", "0.1", "about 6"),
];

pub(super) fn experiment(scope: Scope) -> Experiment {
    Experiment {
        id: "smaq",
        title: "A satellite between two proxies",
        shows: vec![
            "The path of SMAQ-PEP (IFIP Networking 2023): 20 Mbit/s over a lossy satellite \
             segment, with a proxy on either side of it. Its baseline is NewReno end to end. Its \
             proxies split the connection and run Hybla-Westwood between them. The published ratio \
             is that of these proxies. Our split proxies run Hybla, as Hybla's authors published \
             it.",
            "With a Sidekick, the proxy behind the satellite only observes and repairs. The server \
             is unmodified, and only the endpoints hold the keys.",
        ],
        parts: vec![
            bulk(
                scope,
                ("smaq-bulk", "Megabytes downloaded in 30 seconds", "download"),
                &DOWNLOADS,
            ),
            bulk(scope, ("smaq-upload", "Megabytes uploaded in 30 seconds", "upload"), &UPLOADS),
            pages(scope),
        ],
    }
}

fn case(scenario: &str, loss: &str, seeds: u64) -> Case {
    Case::of(scenario).set("middle.loss_percent", loss).seeds(seeds)
}

fn bulk(scope: Scope, (id, title, kind): (&str, &str, &str), senders: &[Sender]) -> Part {
    let case =
        |scenario: &str, loss: &str| case(scenario, loss, scope.pick(1, 5)).set("flow.kind", kind);
    let rows = ROWS.iter().flat_map(|&(orbit, scenario, loss, published)| {
        senders.iter().map(move |sender| {
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
    let columns =
        ["orbit, round trip", "loss, %", "sender", "MB", "ratio to Reno", "published ratio"];
    Part::table(id, title, words(&columns), rows)
}

fn pages(scope: Scope) -> Part {
    let orbits = [("LEO, 112 ms", "smaq-leo"), ("GEO, 580 ms", "smaq-geo")];
    let losses = ["0.01", "0.1", "1"];
    let rows = orbits.iter().flat_map(|&(orbit, scenario)| {
        losses.iter().flat_map(move |&loss| {
            DOWNLOADS.iter().map(move |sender| {
                let case = case(scenario, loss, scope.pick(2, 20)).with(&[
                    "flow.kind=page",
                    "flow.bytes=2000000",
                    "flow.seconds=600",
                ]);
                let at = |percent| {
                    let (of, measure) = (sender.of(&case), measures::SECONDS);
                    Entry::Figure(Quantity::Percentile { of, percent, measure }, 2)
                };
                let words = [orbit, loss, sender.name].map(Entry::text);
                words.into_iter().chain([at(50), at(95)]).collect()
            })
        })
    });
    let columns = ["orbit, round trip", "loss, %", "sender", "p50, s", "p95, s"];
    let title = "Time to load a page of 2 MB: a document and 70 objects, six at a time";
    Part::table("smaq-pages", title, words(&columns), rows)
}
