//! Downloads by the loss of the client's hop, and by size.

use super::{GOODPUT, Scope, sender_curve};
use crate::figures::job::Case;
use crate::figures::model::{Axis, Experiment, Part};
use crate::figures::quantity::measures;
use crate::figures::sender::{
    BBR2, CUBIC, CUBIC_RFC9438, RECEIVE_BBR2, RECEIVE_CUBIC, RECEIVE_CUBIC_RFC9438, RECEIVE_RENO,
    RENO, SPLIT, Sender,
};

/// Servers, without and with help for their clients.
const SERVERS: [Sender; 9] = [
    CUBIC,
    CUBIC_RFC9438,
    RENO,
    BBR2,
    RECEIVE_CUBIC,
    RECEIVE_CUBIC_RFC9438,
    RECEIVE_RENO,
    RECEIVE_BBR2,
    SPLIT,
];
const LOSS: Axis = Axis::linear("loss of the near segment, %", 2);

pub(super) fn by_loss(scope: Scope) -> Experiment {
    let losses: &[f64] =
        scope.pick(&[0.0, 1.0, 4.0, 15.0], &[0.0, 1.0, 2.0, 4.0, 8.0, 15.0, 20.0, 30.0]);
    let curve = |sender: &Sender| {
        let case = |loss: f64| {
            let seeds = if loss == 0.0 { 1 } else { scope.pick(1, 5) };
            Case::of("download-paper").set("near.loss_percent", loss).seeds(seeds)
        };
        // Without help, some downloads never end if more packets are lost.
        let helped = sender.settings.contains(&"sidekick.mode=receive");
        let most = if helped { 30.0 } else { 15.0 };
        let cases = losses.iter().filter(|loss| **loss <= most).map(|loss| (*loss, case(*loss)));
        sender_curve(sender, measures::GOODPUT, cases)
    };
    let title = "Goodput by the server's controller";
    let plot =
        Part::plot("download-by-loss-servers", title, (LOSS, GOODPUT), SERVERS.iter().map(curve));
    Experiment {
        id: "download-by-loss",
        title: "Download of 10 MiB by the loss of the client's hop",
        shows: vec![
            "The path of the Sidekick paper, reversed. The client is behind the fast, short, lossy \
             near segment. The server, which is unmodified, is behind the slow, long, clean far \
             one. The client asks the proxy to repeat the packets that the near segment lost. It \
             holds its acknowledgements until the copy arrives. So the server detects no loss.",
        ],
        parts: vec![plot],
    }
}

pub(super) fn by_size(scope: Scope) -> Experiment {
    let sizes: &[u32] =
        scope.pick(&[10, 100, 1000, 10_000], &[10, 30, 100, 300, 1000, 3000, 10_000, 30_000]);
    let curve = |sender: &Sender| {
        let case = |kib: u32| {
            Case::of("download-paper")
                .set("near.loss_percent", 4)
                .set("flow.bytes", u64::from(kib) * 1024)
                .seeds(scope.pick(3, 15))
        };
        let cases = sizes.iter().map(|&kib| (f64::from(kib), case(kib)));
        sender_curve(sender, measures::GOODPUT, cases)
    };
    let servers = [CUBIC, CUBIC_RFC9438, BBR2, RECEIVE_CUBIC, RECEIVE_CUBIC_RFC9438, RECEIVE_BBR2];
    let axes = (Axis::logarithmic("size, KiB", 0), GOODPUT);
    let title = "4 % loss of the near segment";
    let plot = Part::plot("download-by-size-4-percent", title, axes, servers.iter().map(curve));
    Experiment {
        id: "download-by-size",
        title: "Download by size",
        shows: vec![
            "The same path. Below a hundred kilobytes, the handshake and slow start decide. The \
             client also repairs the packets that it sends, as in an upload.",
        ],
        parts: vec![plot],
    }
}
