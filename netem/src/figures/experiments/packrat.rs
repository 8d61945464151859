//! Downloads over the networks of Packrat (CoNEXT '26), beside the curves that its authors
//! published: by the loss of the near segment, and by the length of its bursts.

use super::{GOODPUT, Scope};
use crate::figures::job::Case;
use crate::figures::model::{Axis, Curve, Experiment, Part};
use crate::figures::quantity::{Quantity, measures};
use crate::figures::reference;
use crate::figures::sender::{
    BLUE, BROWN, Colour, GREEN, GREY, ORANGE, PURPLE, Sender, VERMILION, VIOLET,
};

pub(super) const PLAIN: Sender = Sender::new("no help", GREY, &["sidekick.mode=off"]);
const SPLIT: Sender = Sender::new("split proxy", GREEN, &["sidekick.mode=off", "flow.split=near"]);
/// A tunnel over the near segment sends lost packets again.
const TUNNEL: Sender =
    Sender::new("tunnel", BROWN, &["sidekick.mode=off", "flow.tunnel=unordered"]);
/// The tunnel delivers packets in order.
const TUNNEL_IN_ORDER: Sender =
    Sender::new("tunnel in order", BLUE, &["sidekick.mode=off", "flow.tunnel=ordered"]);
/// The client requests what it lacks.
pub(super) const REQUESTS: Sender =
    Sender::new("requests", ORANGE, &["sidekick.mode=receive", "sidekick.repair=requests"]);
pub(super) const PARITY: Sender =
    Sender::new("parity", PURPLE, &["sidekick.mode=receive", "sidekick.repair=parity"]);
/// Parity, and requests for what it cannot rebuild.
pub(super) const BOTH: Sender =
    Sender::new("both", VIOLET, &["sidekick.mode=receive", "sidekick.repair=both"]);
/// The client chooses the help that suits the path. The setting is the default, so other figures
/// share the runs.
pub(super) const AUTO: Sender = Sender::new("auto", VERMILION, &["sidekick.mode=receive"]);

/// A server: its name in links, its controller, and Packrat's name for its counterpart.
struct Server {
    id: &'static str,
    name: &'static str,
    settings: &'static [&'static str],
    theirs: &'static str,
}

const SERVERS: [Server; 2] = [
    Server {
        id: "cubic",
        name: "CUBIC",
        settings: &["flow.cc=cubic", "flow.whole_packets=on"],
        theirs: "cubic",
    },
    Server { id: "bbr2", name: "BBR2", settings: &["flow.cc=bbr2"], theirs: "bbr3" },
];

/// With these settings, a download without help and without loss is as fast as a published one. The
/// queues hold a thousand packets, as netem's default queues do. In bursts, connections without
/// help time out after more than 30 s.
const TRANSPORT: [&str; 5] = [
    "flow.bytes=40000000",
    "flow.seconds=30",
    "flow.payload_bytes=1440",
    "near.queue_bytes=1500000",
    "far.queue_bytes=1500000",
];

const LOSS: Axis = Axis::linear("loss of the near segment, %", 0);
const BURST: Axis = Axis::logarithmic("mean length of the bad state, packets", 1);

/// The published losses, in percent.
const LOSSES: [f64; 17] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0, 20.0, 22.0, 24.0];
/// The losses of all curves but those of no help and of `auto`.
const FEWER_LOSSES: [f64; 9] = [0.0, 1.0, 2.0, 4.0, 7.0, 10.0, 14.0, 20.0, 24.0];
/// Published lengths of bursts, in packets.
const LENGTHS: [f64; 8] = [1.0, 1.318, 1.75, 2.605, 5.092, 9.737, 22.272, 55.866];

const HELP: [Sender; 8] = [PLAIN, SPLIT, TUNNEL, TUNNEL_IN_ORDER, REQUESTS, PARITY, BOTH, AUTO];

pub(super) fn experiment(scope: Scope, network: Network) -> Experiment {
    let parts = SERVERS
        .iter()
        .flat_map(|server| [by_loss(scope, network, server), by_burst(scope, network, server)]);
    Experiment {
        id: network.scenario,
        title: network.title,
        shows: vec![
            "In Packrat (CoNEXT '26), a proxy repeats the packets that a client lacks. Its curves \
             are dashed. Its server and client run picoquic with CUBIC or BBRv3. Its split proxy \
             terminates the connection. Its tunnels send lost packets again over the near segment.",
            "Our server and client run quiche with CUBIC or BBR2. They download 40 MB in packets \
             of 1440 bytes. CUBIC waits for room for a whole packet. So downloads without help and \
             without loss are as fast as those of picoquic. A run ends after 30 s, finished or \
             not. The client has no help, requests missing packets, asks for parity, asks for \
             both, or chooses by the path.",
        ],
        parts: parts.collect(),
    }
}

#[derive(Clone, Copy)]
pub(super) struct Network {
    /// Its scenario, and the name of its experiment.
    scenario: &'static str,
    title: &'static str,
    /// Its name in the published files.
    name: &'static str,
}

/// Packrat's networks, in the order of its paper.
pub(super) const NETWORKS: [Network; 3] = [
    Network { scenario: "packrat-wifi", title: "Packrat's Wi-Fi network", name: "wifi" },
    Network { scenario: "packrat-cellular", title: "Packrat's cellular network", name: "cellular" },
    Network {
        scenario: "packrat-satellite",
        title: "Packrat's satellite network",
        name: "satellite",
    },
];

impl Network {
    fn case(&self, scope: Scope, server: &Server, sender: &Sender) -> Case {
        let is_tunnel = [TUNNEL.name, TUNNEL_IN_ORDER.name].contains(&sender.name);
        // Over a tunnel, a server has thousands of packets in flight, and a run takes much longer.
        let seeds = scope.pick(1, if is_tunnel { 1 } else { 3 });
        let case = Case::of(self.scenario).with(&TRANSPORT).with(server.settings);
        sender.of(&case.seeds(seeds))
    }
}

fn goodput(case: Case) -> Quantity {
    Quantity::Of(case, measures::GOODPUT)
}

fn by_loss(scope: Scope, network: Network, server: &Server) -> Part {
    let curve = |sender: &Sender| {
        let has_all_losses = [PLAIN.name, AUTO.name].contains(&sender.name);
        let whole = if has_all_losses { &LOSSES[..] } else { &FEWER_LOSSES };
        let losses: &[f64] = scope.pick(&[4.0, 16.0], whole);
        let point = |loss: &f64| {
            let case = network.case(scope, server, sender).set("near.loss_percent", loss);
            // Without loss, the seed makes no difference.
            (*loss, goodput(if *loss == 0.0 { case.seeds(1) } else { case }))
        };
        Curve::measured(sender.name, sender.colour, losses.iter().map(point))
    };
    let of_theirs = |series: &str| reference::download_by_loss(network.name, server.theirs, series);
    let curves = HELP.iter().map(curve).chain(published(of_theirs));
    let title = format!("{}, independent losses", server.name);
    Part::plot(format!("{}-loss-{}", network.scenario, server.id), title, (LOSS, GOODPUT), curves)
}

/// Goodput over the length of bursts, at 10 % loss.
fn by_burst(scope: Scope, network: Network, server: &Server) -> Part {
    let lengths: &[f64] = scope.pick(&[5.092], &LENGTHS);
    let curve = |sender: &Sender| {
        let point = |length: &f64| {
            (*length, goodput(network.case(scope, server, sender).with(&bursts(*length))))
        };
        Curve::measured(sender.name, sender.colour, lengths.iter().map(point))
    };
    let of_theirs =
        |series: &str| reference::download_by_burst(network.name, server.theirs, series);
    let curves = HELP.iter().map(curve).chain(published(of_theirs));
    let title = format!("{}, 10 % loss in bursts", server.name);
    let id = format!("{}-bursts-{}", network.scenario, server.id);
    Part::plot(id, title, (BURST, GOODPUT), curves)
}

/// Packrat's bursts: 2 % loss in the good state, 80 % in the bad one, and 10 % in the long run.
/// `length` is the mean length of the bad state in packets.
fn bursts(length: f64) -> [String; 4] {
    // The share of time in the bad state is (10 - 2) / (80 - 2).
    let (leave, bad_to_good) = (100.0 / length, 8.0 / 70.0);
    [
        "near.loss_percent=2".to_owned(),
        "near.bad_loss_percent=80".to_owned(),
        format!("near.bad_leave_percent={leave:.3}"),
        format!("near.bad_enter_percent={:.3}", leave * bad_to_good),
    ]
}

/// Packrat's series, each in the colour of our counterpart.
const SERIES: [(&str, &str, Colour); 5] = [
    ("end_to_end", "no help", PLAIN.colour),
    ("split", "split proxy", SPLIT.colour),
    ("tunnel_unordered", "tunnel", TUNNEL.colour),
    ("tunnel_ordered_32", "tunnel in order", TUNNEL_IN_ORDER.colour),
    ("packrat", "Packrat", AUTO.colour),
];

/// The series that Packrat's authors published, drawn from their points.
fn published(points: impl Fn(&str) -> Vec<(f64, f64)>) -> impl Iterator<Item = Curve> {
    SERIES.into_iter().filter_map(move |(series, name, colour)| {
        let points = points(series);
        let name = format!("published: {name}");
        (!points.is_empty()).then(|| Curve::published(name, colour, points))
    })
}
