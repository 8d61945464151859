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
            // RED as on the paper's links: over four times the bytes that the path holds (10 Mbit/s
            // for 52 ms).
            .with(&["near.queue=red", "far.queue=red"])
            .with(&["near.queue_bytes=260000", "far.queue_bytes=260000"])
            .set("near.loss_percent", loss)
            .set("competitor.cc", competitor)
            // If two flows start at the same time and no packet is lost, all seeds give the same
            // run.
            .set("competitor.start_ms", 1000)
            // More bytes than either flow can carry in this time, so both last to the end.
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
    let table = Part::table("fairness-shares", "The shares of both flows", words(&columns), rows);
    Experiment {
        id: "fairness",
        title: "Beside a plain flow",
        shows: vec![
            "Figures 5 and 6 of the Sidekick paper: the sender shares both segments with a plain \
             flow, which has no help. An index of 1 means equal shares. At 0.5, one flow has \
             everything. As in the paper, both links have RED in queues of 260,000 bytes. The \
             plain flow starts a second later. If both flows started together, all seeds would \
             give the same run without loss.",
            "Without loss, help for CUBIC leaves the plain flow exactly as much as CUBIC of \
             RFC 9438 does. Path-aware BBR2 leaves it as much as BBR2 does, within the differences \
             between seeds. BBR2 takes bandwidth from CUBIC with and without help: in 30 s \
             without loss, the index is 0.68 to 0.72. The queue decides that. In a drop-tail queue \
             of 65,000 bytes the index is 0.96 to 1.0, while that of two CUBIC flows falls from \
             1.0 to 0.9.",
            "With loss, the plain CUBIC flow slows down, and the other sender uses the bandwidth \
             that this frees. So the index falls. The table shows that the plain flow loses by it: \
             at 1 %, it has half of what it has beside a plain sender of its own kind. A plain \
             BBR2 flow has less beside PACUBIC than beside CUBIC, since PACUBIC does not slow \
             down. So that index rises.",
        ],
        parts: COMPETITORS.into_iter().map(plot).chain([table]).collect(),
    }
}
