//! Time to the first byte, with and without 0-RTT.

use super::Scope;
use crate::figures::job::Case;
use crate::figures::model::{Axis, Curve, Experiment, Part};
use crate::figures::quantity::{Quantity, measures};
use crate::figures::sender::{BLUE, GREY, ORANGE};

/// The near segment's share of the round trip.
const NEAR_MS: f64 = 1.0;

pub(super) fn experiment(scope: Scope) -> Experiment {
    let round_trips: &[f64] =
        scope.pick(&[10.0, 50.0, 200.0], &[10.0, 25.0, 50.0, 100.0, 200.0, 300.0, 600.0]);
    let case = |round_trip: f64, zero_rtt: &str, replayable: &str| {
        Case::of("upload-paper")
            .with(&["flow.kind=requests", "flow.bytes=10000", "near.loss_percent=0"])
            .set("flow.zero_rtt", zero_rtt)
            .set("flow.replayable", replayable)
            .set("near.delay_ms", NEAR_MS)
            .set("far.delay_ms", round_trip / 2.0 - NEAR_MS)
            .seeds(scope.pick(1, 3))
    };
    let curves = [
        ("without 0-RTT", GREY, "off", "on"),
        ("0-RTT, request may be replayed (GET)", BLUE, "on", "on"),
        ("0-RTT, request may not be replayed (POST)", ORANGE, "on", "off"),
    ]
    .map(|(name, colour, zero_rtt, replayable)| {
        let quantity =
            |round_trip| Quantity::Of(case(round_trip, zero_rtt, replayable), measures::FIRST_BYTE);
        let points = round_trips.iter().map(|&round_trip| (round_trip, quantity(round_trip)));
        Curve::measured(name, colour, points)
    });
    let axes = (Axis::linear("round trip, ms", 0), Axis::linear("ms", 1));
    Experiment {
        id: "first-byte",
        title: "Time to the first byte, with and without 0-RTT",
        shows: vec![
            "A client that resumes a session may send its request with its first packet. That \
             saves a round trip. A request that must not be replayed still has to wait for the \
             handshake (RFC 9001, section 9.2), and gains nothing.",
        ],
        parts: vec![Part::plot("first-byte-by-rtt", "First byte of the answer", axes, curves)],
    }
}
