//! A proxy that is killed and restarted repeatedly during two uploads of real programs.
//!
//! The test asserts nothing about times, which depend on the machine. It prints them.
//! `SIDEKICK_RESTARTS=900 cargo test -p sidekick-netem --test programs restarts:: -- --nocapture`
//! runs for twelve minutes.

use std::path::Path as FilePath;

use serde_json::Value;
use sidekick_netem::path::{Backend, Path};
use sidekick_netem::programs::Programs;
use sidekick_netem::scenario::{FlowKind, Scenario};

use crate::support::enclosed::in_enclosure;
use crate::support::transfers::{Proxy, Upload, now, server, until};

/// Packets of each upload that a proxy counts before it is killed. At 10 Mbit/s, they take half a
/// second.
const COUNTED: u64 = 200;
/// Packets that pass while every other proxy is away. They are too many for one sum.
const AWAY: u64 = 200;

#[test]
fn senders_use_a_restarted_proxy_again_without_false_losses() {
    in_enclosure(|| {
        let restarts =
            std::env::var("SIDEKICK_RESTARTS").map_or(4, |restarts| restarts.parse().unwrap());
        kill_again_and_again(restarts);
    });
}

fn kill_again_and_again(restarts: usize) {
    let scenario = Scenario::with("upload-paper", &["near.loss_percent=0"]).unwrap();
    let mut path = Path::build(Backend::User, &scenario, 7).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let programs =
        Programs::find(FilePath::new(env!("CARGO_BIN_EXE_sidekick-lab")).parent()).unwrap();
    let (_server, ca) = server(&programs, path.topology(), directory.path());
    let mut proxy = Proxy::start(&programs, path.topology(), directory.path());
    let mut uploads: Vec<_> = [("pacubic", "cubic-rfc9438"), ("path-aware-bbr", "bbr2")]
        .map(|modes| Upload::start(&programs, path.topology(), directory.path(), &ca, modes))
        .into();
    let mut waits = Vec::new();
    for restart in 0..restarts {
        proxy.wait_for(path.topology(), uploads.len(), COUNTED);
        drop(proxy);
        if restart % 2 == 1 {
            let gone = path.arrived(FlowKind::Upload).unwrap().0 + AWAY;
            let upload = &mut uploads[0].program;
            until("packets on the path", upload, || {
                path.arrived(FlowKind::Upload).unwrap().0 >= gone
            });
        }
        proxy = Proxy::start(&programs, path.topology(), directory.path());
        let back = now();
        proxy.wait_for(path.topology(), uploads.len(), 1);
        waits.push(now() - back);
    }
    proxy.wait_for(path.topology(), uploads.len(), COUNTED);
    let reports: Vec<Value> = uploads.into_iter().map(Upload::finish).collect();
    let links = path.counters().unwrap();
    let [near, far] = [links.near, links.far].map(|segment| segment.to_receiver.link.lost());
    waits.sort();
    println!(
        "{restarts} restarts; both senders were counted again after {} ms, at most {} ms",
        waits[waits.len() / 2].as_millis(),
        waits[waits.len() - 1].as_millis()
    );
    println!("{near} packets were lost on the near segment, {far} on the far one");
    for report in reports {
        println!("{report}");
        assert_eq!(report["assisted"], true, "{report}");
        let [sent, spurious] =
            ["sent", "spurious"].map(|packets| report["packets"][packets].as_u64().unwrap());
        // One packet in 2^24 has the identifier of a remembered packet, so the proxy does not count
        // it (SPEC.md, section 8). A million packets may have one. The few thousand of a short run
        // have none.
        assert!(spurious <= sent / 500_000, "declared lost, and acknowledged: {report}");
        let early = report["packets"]["lost_early"].as_u64().unwrap();
        assert!(
            early <= near + spurious,
            "{early} declared lost on the near segment, and {near} were"
        );
    }
}
