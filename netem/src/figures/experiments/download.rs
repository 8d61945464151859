//! Downloads by the loss of the client's hop, by size, and over the networks of Packrat.

use super::{GOODPUT, Scope, sender_curve};
use crate::figures::job::Case;
use crate::figures::model::{Axis, Curve, Experiment, Part};
use crate::figures::palette::{BROWN, Colour, PURPLE};
use crate::figures::quantity::measures;
use crate::figures::reference;
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
pub(super) const LOSS: Axis = Axis::linear("loss of the near segment, %", 2);
/// A queue of a thousand packets, which is netem's usual one. The scenarios have shorter queues.
const LONG_QUEUE: u32 = 1_500_000;

pub(super) fn by_loss(scope: Scope) -> Experiment {
    let losses: &[f64] =
        scope.pick(&[0.0, 1.0, 4.0, 15.0], &[0.0, 1.0, 2.0, 4.0, 8.0, 15.0, 20.0, 30.0]);
    let curve = |sender: &Sender| {
        let case = |loss: f64| {
            let seeds = if loss == 0.0 { 1 } else { scope.pick(1, 5) };
            Case::of("download-paper").set("near.loss_percent", loss).seeds(seeds)
        };
        // Without help, some downloads never end at more.
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
            "The path of the Sidekick paper, reversed: the client is behind the fast, short, lossy near segment, and the server, \
             which knows nothing of a Sidekick, is behind the slow, long, clean far one. The client asks the proxy to repeat what \
             the near segment lost, and holds its acknowledgements back until the copy is there. So the server sees no loss.",
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
            "The same path. Below a hundred kilobytes the handshake and slow start decide; what the client sends is repaired, \
             too, as an upload is.",
        ],
        parts: vec![plot],
    }
}

/// The goodput of a sender by near loss over a network of Packrat. Its settings change those of
/// `server`.
pub(super) fn over_packrat(scope: Scope, network: &str, server: &[&str], sender: &Sender) -> Curve {
    let losses: &[f64] = scope.pick(&[4.0], &[0.0, 2.0, 4.0, 7.0, 10.0, 15.0, 20.0]);
    let case = |loss: f64| {
        Case::of(&format!("packrat-{network}"))
            .with(server)
            .set("near.loss_percent", loss)
            .set("near.queue_bytes", LONG_QUEUE)
            .set("far.queue_bytes", LONG_QUEUE)
            .seeds(if loss == 0.0 { 1 } else { scope.pick(1, 3) })
    };
    // Without help, some downloads never end at more.
    let helped = sender.settings.contains(&"sidekick.mode=receive");
    let most = if helped { 20.0 } else { 10.0 };
    let cases = losses.iter().filter(|loss| **loss <= most);
    sender_curve(sender, measures::GOODPUT, cases.map(|loss| (*loss, case(*loss))))
}

/// A curve that Packrat's authors published: a series of [`reference::download_by_loss`].
pub(super) fn of_packrat(
    (network, controller): (&str, &str),
    (name, series): (&str, &str),
    colour: Colour,
) -> Curve {
    let points = reference::download_by_loss(network, controller, series);
    Curve::published(format!("published: {name}"), colour, points)
}

pub(super) fn packrat(scope: Scope) -> Experiment {
    let plot = |network: &str, controller: &str, servers: &[Sender]| {
        let published = |name: &str, colour, series: &str| {
            of_packrat((network, controller), (name, series), colour)
        };
        let curve = |sender: &Sender| over_packrat(scope, network, &[], sender);
        let mut curves: Vec<Curve> = servers.iter().map(curve).collect();
        // In the colours of what they are to be compared with.
        let (plain, helped) = (servers.first(), servers.last());
        curves.extend(helped.map(|helped| published("Packrat", helped.colour, "packrat")));
        curves.extend(plain.map(|plain| published("end to end", plain.colour, "end_to_end")));
        curves.push(published("split proxy", SPLIT.colour, "split"));
        if controller == "cubic" {
            curves.push(published("tunnel", BROWN, "tunnel_unordered"));
            curves.push(published("tunnel in order", PURPLE, "tunnel_ordered_32"));
        }
        let id = format!("download-packrat-{network}-{controller}");
        Part::plot(id, format!("{network}, {controller}"), (LOSS, GOODPUT), curves)
    };
    let networks = ["wifi", "cellular", "satellite"];
    let with_cubic = networks
        .map(|network| plot(network, "cubic", &[CUBIC, RECEIVE_CUBIC, RECEIVE_CUBIC_RFC9438]));
    let with_bbr = networks.map(|network| plot(network, "bbr3", &[BBR2, RECEIVE_BBR2]));
    Experiment {
        id: "download-packrat",
        title: "Download of 20 MB over the networks of Packrat",
        shows: vec![
            "Packrat (CoNEXT '26) also lets a proxy repeat what a client lacks. Its curves are dashed: a server and a client on \
             picoquic, CUBIC or BBRv3. Ours are quiche with CUBIC or BBR2, so the dashed lines end to end show what the \
             transports differ in. The queues here hold a thousand packets.",
        ],
        parts: with_cubic.into_iter().chain(with_bbr).collect(),
    }
}
