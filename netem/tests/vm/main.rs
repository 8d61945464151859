//! The records of the virtual machine, whose path the environment variable SIDEKICK_RECORDS has.
//! `make test-full PART=vm` makes them.
#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use sidekick_netem::record::RunRecord;
use sidekick_proxy::Summary;

#[path = "../support"]
mod support {
    pub(crate) mod measured;
}

use support::measured::{assert_near, lost, measured};

/// What `netem/vm/links` prints, with bounds that chance exceeds once in some thousand such runs.
#[test]
fn an_agent_measures_what_the_kernel_does() {
    let records = std::fs::read_to_string(std::env::var("SIDEKICK_RECORDS").unwrap()).unwrap();
    let records = records.lines().map(|line| serde_json::from_str(line).unwrap());
    let mut seen = 0;
    for record in records {
        let record: RunRecord = record;
        let what = format!("{} {:?}: {:?}", record.scenario, record.settings, record.measured);
        let Summary { up, down, near_rtt_ms, .. } = measured(&record);
        let links = &record.links.near;
        let (of, truth) = if record.is_download() {
            (down, links.to_sender.link)
        } else {
            (up, links.to_receiver.link)
        };
        assert_eq!((record.backend.as_str(), record.agent.unwrap().resent), ("tc", 0), "{what}");
        // The rest are the agent's and the proxy's own.
        assert!(of.packets * 10 > truth.packets * 7, "{what}");
        let truth = lost(&truth);
        assert!(of.loss_least_percent <= truth && truth <= of.loss_most_percent, "{what}");
        let chance = 4.0 / (of.runs.iter().map(|run| run.count).sum::<u64>() as f64).sqrt();
        let is_set = |setting: &str| record.settings.iter().any(|it| it == setting);
        match () {
            () if is_set("near.loss_percent=2") => {
                assert_near(of.loss_percent, 2.0, chance, &what);
                assert_near(of.run_packets, 1.02, 0.1, &what);
            }
            () if is_set("near.bad_leave_percent=25") => {
                assert_near(of.run_packets, 4.0, chance, &what);
            }
            () if is_set("near.bad_ms=20") => assert_near(of.run_ms, 20.0, chance, &what),
            () if is_set("near.reorder_percent=2") => {
                // A packet without another one before it overtakes nothing.
                assert!((1.0..2.6).contains(&of.late_percent), "{what}");
                assert!((8.0..=10.0).contains(&of.late_ms), "{what}");
            }
            () if is_set("near.jitter_ms=2") => {
                let near_rtt = near_rtt_ms.unwrap();
                assert_near(near_rtt.median, 20.0, 0.05, &what);
                // The median difference of two sums of two normal deviates.
                assert_near(near_rtt.jitter, 2.0 * 2.0 * 0.6745, 0.25, &what);
            }
            () => {
                assert_eq!(of.outages, 5, "{what}");
                assert_near(of.outage_ms, 2100.0, 0.1, &what);
                assert_near(of.longest_outage_ms, 800.0, 0.15, &what);
            }
        }
        seen += 1;
    }
    assert_eq!(seen, 9, "each command of netem/vm/links has a record");
}
