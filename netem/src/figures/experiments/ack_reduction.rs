//! Fewer acknowledgements: figure 4c of the Sidekick paper.

use super::{GOODPUT, Scope, sender_curve};
use crate::figures::job::Case;
use crate::figures::model::{Axis, Curve, Experiment, Part};
use crate::figures::palette::{GREEN, VERMILION};
use crate::figures::quantity::{Measure, measures};
use crate::figures::reference;
use crate::figures::sender::{ACK_REDUCTION, BBR2, CUBIC, CUBIC_RFC9438};

const DELAY: Axis = Axis::logarithmic("longest delay of an acknowledgement, ms", 0);

pub(super) fn experiment(scope: Scope) -> Experiment {
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
