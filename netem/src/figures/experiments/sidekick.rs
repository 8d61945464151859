//! Other figures of the Sidekick paper than those of goodput by loss and by size.

use super::{GOODPUT, Scope, sender_curve, words};
use crate::figures::job::Case;
use crate::figures::model::{Axis, Curve, Entry, Experiment, Part, Trace};
use crate::figures::quantity::{Measure, Quantity, measures};
use crate::figures::reference;
use crate::figures::sender::{
    ACK_REDUCTION, BBR2, BLUE, BROWN, CUBIC, CUBIC_RFC9438, Colour, EARLY_LOSS, GREEN, ORANGE,
    PACUBIC, PATH_AWARE_BBR2, RENO, Sender, VERMILION,
};
use crate::record::RunRecord;

const DELAY: Axis = Axis::logarithmic("longest delay of an acknowledgement, ms", 0);

/// Fewer acknowledgements: figure 4c.
pub(super) fn ack_reduction(scope: Scope) -> Experiment {
    let delays: &[u32] =
        scope.pick(&[1, 5, 25, 100, 400], &[1, 2, 3, 5, 10, 20, 30, 50, 70, 100, 200, 400, 800]);
    let case = |delay: u32| {
        // The delay alone decides when an acknowledgement leaves, as in the paper. Otherwise every
        // second packet would cause one.
        Case::of("ack-reduction-paper")
            .set("flow.ack_delay_ms", delay)
            .set("flow.ack_packets", 65_535)
    };
    let cases = || delays.iter().map(|&delay| (f64::from(delay), case(delay)));
    let plot = |id: &str, title: &str, y: Axis, measure: Measure, column: &str| {
        let ours = [CUBIC, CUBIC_RFC9438, BBR2, ACK_REDUCTION]
            .iter()
            .map(|sender| sender_curve(sender, measure, cases()));
        let published = [
            ("published: QUIC", CUBIC_RFC9438.colour, "quic"),
            ("published: Sidekick, quACK every 15 ms", VERMILION, "sidekick_15ms_50"),
            ("published: Sidekick, every 60 ms", GREEN, "sidekick_60ms_200"),
        ]
        .map(|(name, colour, series)| {
            Curve::published(name, colour, reference::ack_reduction(series, column))
        });
        Part::plot(id, title, (DELAY, y), ours.chain(published))
    };
    Experiment {
        id: "ack-reduction",
        title: "What rare acknowledgements cost",
        shows: vec![
            "Figure 4c of the Sidekick paper: a slow, long near segment (25 ms, 10 Mbit/s) and a \
             fast, short far one, without loss. The receiver delays acknowledgements. Without \
             help, the sender fills its window and waits, and goodput falls. With the published \
             Sidekick, the proxy's quACKs make room in the window. Ours does the same over stock \
             CUBIC. The other senders are plain ones.",
        ],
        parts: vec![
            plot(
                "ack-reduction-goodput",
                "Goodput of 10 MiB",
                GOODPUT,
                measures::GOODPUT,
                "goodput_mbit_s_median",
            ),
            plot(
                "ack-reduction-packets",
                "Packets that the receiver sends",
                Axis::logarithmic("packets", 0),
                measures::ACK_PACKETS,
                "receiver_tx_packets",
            ),
        ],
    }
}

const FAIR_SENDERS: [Sender; 7] =
    [CUBIC, CUBIC_RFC9438, RENO, BBR2, EARLY_LOSS, PACUBIC, PATH_AWARE_BBR2];
/// The plain flow: its name, and its controller.
const COMPETITORS: [(&str, &str); 2] =
    [("CUBIC as in RFC 9438", "cubic-rfc9438"), ("BBR2", "bbr2")];
const JAIN: Axis = Axis { from: 0.5, ..Axis::linear("Jain's fairness index", 3) };

/// Two flows on one path: figures 5 and 6.
pub(super) fn fairness(scope: Scope) -> Experiment {
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
        let curves =
            FAIR_SENDERS.iter().map(|sender| sender_curve(sender, measures::JAIN, cases()));
        let (id, title) = (format!("fairness-{competitor}"), format!("Against plain {name}"));
        Part::plot(id, title, (Axis::linear("loss of the near segment, %", 1), JAIN), curves)
    };
    let rows = COMPETITORS.iter().flat_map(|&(name, competitor)| {
        FAIR_SENDERS.iter().flat_map(move |sender| {
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

/// Bytes on the link by the contents of a quACK: figure 7.
pub(super) fn quack_bytes(scope: Scope) -> Experiment {
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
            plot("quack-interval-goodput", "Goodput", GOODPUT, vec![goodput]),
        ],
    }
}

const WINDOW_SENDERS: [Sender; 5] = [CUBIC, CUBIC_RFC9438, BBR2, PACUBIC, PATH_AWARE_BBR2];
const TIME: Axis = Axis::linear("time, s", 1);

fn window(record: &RunRecord) -> Vec<(f64, f64)> {
    record.window.iter().map(|at| (at.time_s, at.window_bytes as f64 / 1e3)).collect()
}

fn delivered(record: &RunRecord) -> Vec<(f64, f64)> {
    record.window.iter().map(|at| (at.time_s, at.delivered_bytes as f64 / 1e6)).collect()
}

/// The congestion window over time: figure 9.
pub(super) fn congestion_window(scope: Scope) -> Experiment {
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
        Part::plot(id, title, (TIME, y), WINDOW_SENDERS.iter().map(curve))
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
