//! Bytes on the link by the contents of a quACK: figure 7 of the Sidekick paper.

use super::Scope;
use crate::figures::job::Case;
use crate::figures::model::{Axis, Curve, Experiment, Part};
use crate::figures::palette::{BLUE, BROWN, Colour, ORANGE, VERMILION};
use crate::figures::quantity::{Measure, Quantity, measures};
use crate::figures::sender::PACUBIC;

const EVERY: Axis = Axis::logarithmic("a quACK every, ms", 0);

/// Name, colour and bytes of each way to report packets.
const STYLES: [(&str, Colour, Measure); 4] = [
    ("power sums (as sent)", VERMILION, |run| kilobytes(run.quack_styles?.power_sums)),
    ("echo of every identifier", BLUE, |run| kilobytes(run.quack_styles?.echo_every)),
    ("echo of a window of identifiers", BROWN, |run| kilobytes(run.quack_styles?.echo_window)),
    ("hash of all", ORANGE, |run| kilobytes(run.quack_styles?.hash_of_all)),
];

fn kilobytes(bytes: u64) -> Option<f64> {
    Some(bytes as f64 / 1e3)
}

pub(super) fn experiment(scope: Scope) -> Experiment {
    let intervals: &[u32] = scope.pick(&[5, 15, 30, 60, 120], &[2, 5, 10, 15, 30, 60, 120, 240]);
    let case = |every: u32| {
        let case =
            Case::of("upload-paper").set("near.loss_percent", 1).set("sidekick.every_ms", every);
        PACUBIC.of(&case).seeds(scope.pick(2, 5))
    };
    let points = |measure: Measure| {
        intervals.iter().map(move |&every| (f64::from(every), Quantity::Of(case(every), measure)))
    };
    let bytes = STYLES
        .iter()
        .map(|(name, colour, measure)| Curve::measured(*name, *colour, points(*measure)));
    let goodput = Curve::measured(PACUBIC.name, PACUBIC.colour, points(measures::GOODPUT));
    let kilobytes = Axis::logarithmic("kB", 1);
    let plot = |id, title, y, curves: Vec<Curve>| Part::plot(id, title, (EVERY, y), curves);
    Experiment {
        id: "quack-bytes",
        title: "What a quACK costs on the link",
        shows: vec![
            "Figure 7 of the Sidekick paper: 10 MiB at 1 % near loss, PACUBIC. The first plot \
             shows the bytes that the proxy sent, and those that echoed identifiers would have \
             needed at the same times. The window has the packets of the last round trip of an \
             empty path. No window could be smaller. The threshold is 20 at every interval. A hash \
             of all identifiers is always small, but the sender would have to guess which packets \
             are missing. The second plot shows how the interval affects goodput.",
            "At 5 ms and less, power sums cost more than an echo of every identifier: a quACK has \
             few new packets to report. From 120 ms on, the interval is longer than two round \
             trips. The sender then polls, and each poll brings a quACK, so all curves rise.",
        ],
        parts: vec![
            plot("quack-bytes-by-interval", "Payload of all quACKs", kilobytes, bytes.collect()),
            plot("quack-interval-goodput", "Goodput", super::GOODPUT, vec![goodput]),
        ],
    }
}
