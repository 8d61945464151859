//! A download with the real programs. The proxy repeats packets that the client's hop loses. The
//! server (quinn) is unmodified.

use crate::support::runs::{self, number};

#[test]
fn a_proxy_repeats_what_a_download_loses() {
    let settings = ["flow.bytes=4000000", "near.loss_percent=4", "sidekick.mode=receive"];
    let record = runs::record("download-paper", &settings);
    assert_eq!(record["assisted"].as_bool(), Some(true), "{record}");
    let [lost, repaired, repeats] = ["/packets/lost_near", "/repaired_near", "/repeats_received"]
        .map(|pointer| number(&record, pointer));
    // Several packets may be lost in one gap, and the proxy's messages may be lost as well.
    assert!(repaired >= lost / 3 && repaired <= repeats, "{record}");
}

#[test]
fn a_download_without_a_proxy_arrives_as_well() {
    for settings in [
        &["flow.bytes=1000000", "sidekick.mode=off"][..],
        &["flow.bytes=1000000", "sidekick.mode=receive", "sidekick.proxy=absent"],
    ] {
        let record = runs::record("download-paper", settings);
        assert_eq!(record["assisted"].as_bool(), Some(false), "{record}");
    }
}
