//! Uploads by the loss of the near segment, and by size: figure 4b of the Sidekick paper, with more
//! senders and losses.

use super::{GOODPUT, Scope, sender_curve};
use crate::figures::job::Case;
use crate::figures::model::{Axis, Curve, Experiment, Part};
use crate::figures::quantity::measures;
use crate::figures::reference;
use crate::figures::sender::{
    ALL, BBR2, CUBIC, CUBIC_RFC9438, Colour, PACUBIC, PATH_AWARE_BBR2, SPLIT, Sender, VIOLET,
};

/// PACUBIC with the quACKs of the published curve: one every 30 ms that identifies at most ten
/// missing packets, and no polls.
const PACUBIC_AS_PUBLISHED: Sender = Sender::new(
    "Sidekick, PACUBIC, as published",
    VIOLET,
    &[
        "sidekick.mode=pacubic",
        "sidekick.every_ms=30",
        "sidekick.threshold=10",
        "sidekick.poll=off",
    ],
);
const LOSS: Axis = Axis::linear("loss of the near segment, %", 2);

/// Published curves, in the colours of the senders that correspond to them.
fn published(points: impl Fn(&str) -> Vec<(f64, f64)>, sidekick: (&str, Colour)) -> Vec<Curve> {
    let (series, colour) = sidekick;
    vec![
        Curve::published("published: QUIC", CUBIC_RFC9438.colour, points("quic")),
        Curve::published("published: Sidekick", colour, points(series)),
        Curve::published("published: split TCP", SPLIT.colour, points("pep")),
    ]
}

pub(super) fn by_loss(scope: Scope) -> Experiment {
    let losses: &[f64] = scope.pick(
        &[0.0, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0],
        &[
            0.0, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 15.0, 20.0, 25.0,
            30.0,
        ],
    );
    let case = |loss: f64| {
        let seeds = if loss == 0.0 { 1 } else { scope.pick(3, 10) };
        Case::of("upload-paper").set("near.loss_percent", loss).seeds(seeds)
    };
    let curve = |sender: &Sender, most: f64| {
        let cases = losses.iter().filter(|loss| **loss <= most).map(|loss| (*loss, case(*loss)));
        sender_curve(sender, measures::GOODPUT, cases)
    };
    let plot = |id, title, curves: Vec<Curve>| Part::plot(id, title, (LOSS, GOODPUT), curves);
    let mut paper: Vec<Curve> =
        ALL.iter().chain([&PACUBIC_AS_PUBLISHED]).map(|sender| curve(sender, 8.0)).collect();
    let sidekick = ("sidekick_30ms_t10", PACUBIC_AS_PUBLISHED.colour);
    paper.extend(published(reference::upload_by_loss, sidekick));
    let far = ALL.iter().map(|sender| curve(sender, 30.0)).collect();
    Experiment {
        id: "upload-by-loss",
        title: "Upload of 10 MiB by the loss of the first hop",
        shows: vec![
            "A fast, short, lossy near segment (1 ms, 100 Mbit/s) and a slow, long, clean far one \
             (25 ms, 10 Mbit/s), as in the Sidekick paper, whose curves are dashed. A sender that \
             counts each loss as congestion is slow at 1 % already. BBR2 alone is fast up to a \
             higher loss, and then slow as well. The question is which senders fill the path at \
             every loss rate.",
            "The published Sidekick had a quACK every 30 ms. It identified at most ten missing \
             packets, and the sender could not request another quACK. Ours identifies twenty, and \
             the sender may poll. \"PACUBIC, as published\" uses neither. Compare the dashed curve \
             with it.",
            "The split proxy works as a performance-enhancing proxy does. It terminates the \
             connection, so the endpoints must trust it with their keys. The published split proxy \
             is one for TCP.",
        ],
        parts: vec![
            plot("upload-by-loss-paper", "Up to 8 %, with the published curves", paper),
            plot("upload-by-loss-far", "Up to 30 %", far),
        ],
    }
}

pub(super) fn by_size(scope: Scope) -> Experiment {
    let sizes: &[u32] = scope.pick(
        &[100, 300, 1000, 3000, 10_000],
        &[100, 200, 400, 700, 1000, 2000, 4000, 8000, 16_000, 30_000, 50_000],
    );
    let senders = [CUBIC, CUBIC_RFC9438, BBR2, PACUBIC, PATH_AWARE_BBR2, SPLIT];
    let plot = |loss: &str| {
        let case = |kib: u32| {
            Case::of("upload-paper")
                .set("near.loss_percent", loss)
                .set("flow.bytes", u64::from(kib) * 1024)
                .seeds(if loss == "0" { 1 } else { scope.pick(3, 5) })
        };
        let cases = || sizes.iter().map(|&kib| (f64::from(kib), case(kib)));
        let mut curves: Vec<Curve> =
            senders.iter().map(|sender| sender_curve(sender, measures::GOODPUT, cases())).collect();
        let sidekick = ("sidekick_30ms_10", PACUBIC.colour);
        curves.extend(published(|series| reference::upload_by_size(series, loss), sidekick));
        let title = format!("{loss} % loss of the near segment");
        let axes = (Axis::logarithmic("size, KiB", 0), GOODPUT);
        Part::plot(format!("upload-by-size-{loss}-percent"), title, axes, curves)
    };
    Experiment {
        id: "upload-by-size",
        title: "Upload by size",
        shows: vec![
            "Figure 4b of the Sidekick paper: the same path, without loss and with 1 %. The \
             repairs of a proxy show from about a megabyte on. Below that, the handshake and slow \
             start decide. Without loss, a Sidekick must cost nothing.",
            "The published uploads of less than two megabytes took far longer than ours, with and \
             without a proxy. For example, 100 KiB took 1.2 s. Five round trips explain a quarter \
             of that. We do not know what took the rest.",
        ],
        parts: vec![plot("0"), plot("1")],
    }
}
