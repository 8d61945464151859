//! The congestion window over time: figure 9 of the Sidekick paper.

use super::Scope;
use crate::figures::job::Case;
use crate::figures::model::{Axis, Curve, Experiment, Part, Trace};
use crate::figures::sender::{BBR2, CUBIC, CUBIC_RFC9438, PACUBIC, PATH_AWARE_BBR2, Sender};
use crate::record::RunRecord;

const SENDERS: [Sender; 5] = [CUBIC, CUBIC_RFC9438, BBR2, PACUBIC, PATH_AWARE_BBR2];
const TIME: Axis = Axis::linear("time, s", 1);

fn window(record: &RunRecord) -> Vec<(f64, f64)> {
    record.window.iter().map(|at| (at.time_s, at.window_bytes as f64 / 1e3)).collect()
}

fn delivered(record: &RunRecord) -> Vec<(f64, f64)> {
    record.window.iter().map(|at| (at.time_s, at.delivered_bytes as f64 / 1e6)).collect()
}

pub(super) fn experiment(scope: Scope) -> Experiment {
    let case = |sender: &Sender| {
        let case = Case::of("upload-paper")
            .set("near.loss_percent", 1)
            .set("flow.bytes", 50_000_000)
            .set("flow.seconds", 20)
            .set("flow.sample_ms", scope.pick(500, 200));
        sender.of(&case)
    };
    let plot = |id: &str, title: &str, y: Axis, trace: Trace| {
        let curve =
            |sender: &Sender| Curve::traced(sender.name, sender.colour, case(sender), trace);
        Part::plot(id, title, (TIME, y), SENDERS.iter().map(curve))
    };
    Experiment {
        id: "window",
        title: "The congestion window over time",
        shows: vec![
            "Figure 9 of the Sidekick paper: one run of each sender at 1 % near loss. The path \
             holds 64 kilobytes in flight, and the queue of the far segment holds 65. A window of \
             less than 64 kilobytes leaves the path idle. A window above the sum overflows the \
             queue. The second plot shows the bytes that the receiver's application has read by \
             then.",
        ],
        parts: vec![
            plot(
                "window-size",
                "Congestion window",
                Axis::linear("congestion window, kB", 0),
                window,
            ),
            plot(
                "window-delivered",
                "Bytes delivered",
                Axis::linear("delivered, MB", 2),
                delivered,
            ),
        ],
    }
}
