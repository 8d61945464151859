//! Two flows on one path: figures 5 and 6 of the Sidekick paper.

use super::{Scope, sender_curve, words};
use crate::figures::job::Case;
use crate::figures::model::{Axis, Entry, Experiment, Part};
use crate::figures::quantity::{Measure, Quantity, measures};
use crate::figures::sender::{
    BBR2, CUBIC, CUBIC_RFC9438, EARLY_LOSS, PACUBIC, PATH_AWARE_BBR2, RENO, Sender,
};

const SENDERS: [Sender; 7] =
    [CUBIC, CUBIC_RFC9438, RENO, BBR2, EARLY_LOSS, PACUBIC, PATH_AWARE_BBR2];
/// The plain flow: its name, and its controller.
const COMPETITORS: [(&str, &str); 2] =
    [("CUBIC as in RFC 9438", "cubic-rfc9438"), ("BBR2", "bbr2")];
const JAIN: Axis = Axis { from: 0.5, ..Axis::linear("Jain's fairness index", 3) };

pub(super) fn experiment(scope: Scope) -> Experiment {
    let losses: &[f64] = scope.pick(&[0.0, 1.0, 4.0], &[0.0, 0.5, 1.0, 2.0, 4.0, 8.0]);
    let case = |competitor: &str, loss: f64| {
        Case::of("upload-paper")
            // As the paper's links: RED over four times what the path holds, 10 Mbit/s for 52 ms.
            .with(&["near.queue=red", "far.queue=red"])
            .with(&["near.queue_bytes=260000", "far.queue_bytes=260000"])
            .set("near.loss_percent", loss)
            .set("competitor.cc", competitor)
            // Two flows that start as one draw nothing from the seed where nothing is lost.
            .set("competitor.start_ms", 1000)
            // More than either can carry in this time: both are there to the end.
            .set("flow.bytes", 100_000_000)
            .set("flow.seconds", scope.pick(15, 30))
            .seeds(scope.pick(2, 3))
    };
    let plot = |(name, competitor): (&str, &str)| {
        let cases = || losses.iter().map(|&loss| (loss, case(competitor, loss)));
        let curves = SENDERS.iter().map(|sender| sender_curve(sender, measures::JAIN, cases()));
        let (id, title) = (format!("fairness-{competitor}"), format!("Against plain {name}"));
        Part::plot(id, title, (Axis::linear("loss of the near segment, %", 1), JAIN), curves)
    };
    let rows = COMPETITORS.iter().flat_map(|&(name, competitor)| {
        SENDERS.iter().flat_map(move |sender| {
            [0.0, 1.0].map(|loss| {
                let figure = |measure: Measure| {
                    Entry::Figure(Quantity::Of(sender.of(&case(competitor, loss)), measure), 2)
                };
                vec![
                    Entry::text(sender.name),
                    Entry::text(name),
                    Entry::text(format!("{loss}")),
                    figure(measures::BESIDE),
                    figure(measures::COMPETITOR),
                    figure(measures::JAIN),
                ]
            })
        })
    });
    let columns = [
        "sender",
        "plain flow",
        "near loss, %",
        "sender, Mbit/s",
        "plain flow, Mbit/s",
        "Jain's index",
    ];
    let table = Part::table("fairness-shares", "Who gets how much", words(&columns), rows);
    Experiment {
        id: "fairness",
        title: "Beside a plain flow",
        shows: vec![
            "Figures 5 and 6 of the Sidekick paper: the sender shares both segments with a plain flow that nobody helps. An \
             index of 1 is an equal share, 0.5 is all for one. As in the paper, both links have RED in 260,000 bytes. The plain \
             flow starts a second later: without loss, all seeds would be one run if both started as one.",
            "Without loss a Sidekick on CUBIC leaves the plain flow exactly what CUBIC as in RFC 9438 does, and path-aware BBR2 \
             what BBR2 does, within what seeds differ by. BBR2 is hard on CUBIC with and without a Sidekick: in 30 s without \
             loss the index is 0.68 to 0.72. The queue decides that: in a drop-tail queue of 65,000 bytes it is 0.96 to 1.0, \
             while two flows of CUBIC fall from 1.0 to 0.9.",
            "With loss the plain CUBIC holds itself back, and whoever does not takes what is left: the index falls. The plain \
             flow loses by it, as the table shows: at 1 % it gets half of what a plain sender of its own kind would leave it. \
             A plain BBR2 gets less beside PACUBIC than beside CUBIC, since that no longer gives way: the index rises.",
        ],
        parts: COMPETITORS.into_iter().map(plot).chain([table]).collect(),
    }
}
