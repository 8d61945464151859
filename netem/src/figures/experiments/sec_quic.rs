//! Payload, cipher, acknowledgement delay, size and loss: the tables of SEC-QUIC.

use super::{GOODPUT, Scope, words};
use crate::figures::job::Case;
use crate::figures::model::{Axis, Curve, Entry, Experiment, Part};
use crate::figures::palette::{BLUE, BROWN, Colour, GREEN, ORANGE, SKY, VERMILION};
use crate::figures::quantity::{Quantity, measures};

const CIPHERS: [&str; 2] = ["aes", "chacha20"];
const SIZES: [(&str, u64); 5] = [
    ("1 kB", 1_000),
    ("10 kB", 10_000),
    ("1 MB", 1_000_000),
    ("10 MB", 10_000_000),
    ("100 MB", 100_000_000),
];
/// Payload, ack delay, colour of the curve.
const CURVES: [(&str, &str, Colour); 6] = [
    ("1200", "15", SKY),
    ("1200", "25", BLUE),
    ("1200", "35", GREEN),
    ("1400", "15", ORANGE),
    ("1400", "25", VERMILION),
    ("1400", "35", BROWN),
];

fn case(
    scope: Scope,
    loss: &str,
    bytes: u64,
    payload: &str,
    ack_delay: &str,
    cipher: &str,
) -> Case {
    Case::of("upload-paper")
        .with(&["near.delay_ms=5", "far.delay_ms=95"])
        .with(&["near.rate_mbit=100", "far.rate_mbit=100"])
        // What the path holds: 100 Mbit/s for 200 ms.
        .with(&["near.queue_bytes=2500000", "far.queue_bytes=2500000"])
        // Without the rule of every second packet the delay alone decides.
        .with(&["flow.cc=cubic-rfc9438", "flow.ack_packets=65535"])
        .set("near.loss_percent", loss)
        .set("flow.payload_bytes", payload)
        .set("flow.ack_delay_ms", ack_delay)
        .set("flow.cipher", cipher)
        .set("flow.bytes", bytes)
        .seeds(if bytes > 1_000_000 { scope.pick(2, 3) } else { scope.pick(2, 10) })
}

pub(super) fn experiment(scope: Scope) -> Experiment {
    let sizes = scope.pick(&SIZES[..4], &SIZES);
    let goodput = |loss: &str, bytes: u64, payload: &str, ack_delay: &str, cipher: &str| {
        Quantity::Of(case(scope, loss, bytes, payload, ack_delay, cipher), measures::GOODPUT)
    };
    let plot = |loss: &str| {
        let curves = CURVES.iter().map(|(payload, ack_delay, colour)| {
            let points = sizes.iter().map(|(_, bytes)| {
                (*bytes as f64 / 1e3, goodput(loss, *bytes, payload, ack_delay, "aes"))
            });
            Curve::measured(format!("{payload} bytes, {ack_delay} ms"), *colour, points)
        });
        let title = format!("{loss} % loss: payload and ack delay");
        let axes = (Axis::logarithmic("size, kB", 0), GOODPUT);
        Part::plot(format!("sec-quic-{loss}-percent"), title, axes, curves)
    };
    let mut columns = words(&["loss, %", "size", "cipher"]);
    columns
        .extend(CURVES.map(|(payload, delay, _)| format!("{payload} bytes, {delay} ms: Mbit/s")));
    let rows = ["0.1", "1"].into_iter().flat_map(|loss| {
        sizes.iter().flat_map(move |(name, bytes)| {
            CIPHERS.map(|cipher| {
                let mut row = vec![Entry::text(loss), Entry::text(*name), Entry::text(cipher)];
                row.extend(CURVES.map(|(payload, delay, _)| {
                    Entry::Figure(goodput(loss, *bytes, payload, delay, cipher), 2)
                }));
                row
            })
        })
    });
    let table = Part::table("sec-quic-all", "All of it", columns, rows);
    Experiment {
        id: "sec-quic",
        title: "Payload, cipher and acknowledgement delay",
        shows: vec![
            "The questions of SEC-QUIC at a round trip of 200 ms, with CUBIC as in RFC 9438 over 100 Mbit/s: does a larger payload help, \
             does a shorter delay of acknowledgements? The delay alone decides when one is sent: after every second packet as \
             well, it could hardly matter. They found up to 60 % more throughput with 1400 bytes, and 25 ms \
             the best delay. Here the shortest delay is the best, most of all for 1 MB and 10 MB at 0.1 %.",
            "Virtual time does not model what a processor spends. So the two ciphers can differ by nothing here, which the table \
             confirms; what AES hardware saves has to be measured on real machines.",
        ],
        parts: vec![plot("0.1"), plot("1"), table],
    }
}
