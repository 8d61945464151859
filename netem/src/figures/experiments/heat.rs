//! Which sender is faster where: heat maps over size, loss and delay, in the manner of "Dissecting
//! performance of production QUIC".

use super::Scope;
use crate::figures::job::Case;
use crate::figures::model::{Cells, Experiment, HeatMap, Part};
use crate::figures::quantity::{Quantity, measures};
use crate::figures::sender::{BBR2, CUBIC_RFC9438, PACUBIC, PATH_AWARE_BBR2, Sender};

const PAIRS: [(&str, Sender, Sender); 2] =
    [("pacubic", PACUBIC, CUBIC_RFC9438), ("path-aware-bbr2", PATH_AWARE_BBR2, BBR2)];

pub(super) fn experiment(scope: Scope) -> Experiment {
    let sizes: &[(&str, u64)] = scope.pick(
        &[("100 kB", 100_000), ("1 MB", 1_000_000), ("5 MB", 5_000_000)],
        &[("10 kB", 10_000), ("100 kB", 100_000), ("1 MB", 1_000_000), ("10 MB", 10_000_000)],
    );
    let losses: &[&str] =
        scope.pick(&["0", "1", "4", "15"], &["0", "0.1", "0.5", "1", "2", "4", "8", "15", "30"]);
    let delays: &[u32] = scope.pick(&[5, 100], &[5, 25, 100]);
    let map = |(id, of, to): &(&str, Sender, Sender), delay: u32| {
        let case = |loss: &str, bytes: u64| {
            Case::of("upload-paper")
                .set("near.loss_percent", loss)
                .set("far.delay_ms", delay)
                .set("flow.bytes", bytes)
                // The queue holds as many bytes as the path does at 100 ms.
                .set("far.queue_bytes", 250_000)
                .seeds(scope.pick(2, 3))
        };
        let cell = |loss: &str, bytes: u64| {
            let case = case(loss, bytes);
            Quantity::Ratio { of: of.of(&case), to: to.of(&case), measure: measures::GOODPUT }
        };
        let row = |loss: &&str| sizes.iter().map(|(_, bytes)| cell(loss, *bytes)).collect();
        Part::Heat(HeatMap {
            id: format!("heat-{id}-{delay}-ms"),
            title: format!("{} against {}, far segment of {delay} ms", of.name, to.name),
            x: ("size", sizes.iter().map(|(name, _)| (*name).to_owned()).collect()),
            y: ("near loss", losses.iter().map(|loss| format!("{loss} %")).collect()),
            kind: Cells::Ratios(of.name.to_owned()),
            cells: losses.iter().map(row).collect(),
        })
    };
    let parts = PAIRS.iter().flat_map(|pair| delays.iter().map(move |&delay| map(pair, delay)));
    Experiment {
        id: "heat",
        title: "Where a Sidekick is worth it",
        shows: vec![
            "The goodput of a Sidekick sender divided by that of the same controller without a \
             Sidekick, over size, loss and delay. The maps follow Dissecting Performance of \
             Production QUIC (WWW '21). A cell shows the median of the ratios of runs with the \
             same seed. White means no difference.",
        ],
        parts: parts.collect(),
    }
}
