//! Transfers by the real programs on the emulated path, with and without a proxy.

use serde_json::Value;

use crate::support::runs::{self, number};

/// A server that is not ours (quinn) supports requests for fewer acknowledgements. The sender
/// requests them as long as a proxy helps.
#[test]
fn a_server_that_can_be_asked_acknowledges_seldom() {
    let packets = |settings: &[&str]| {
        // About two seconds are left when the proxy dies.
        let settings = [&["flow.bytes=8000000", "flow.cc=cubic"], settings].concat();
        let record = runs::record("ack-reduction-paper", &settings);
        println!("{settings:?}: {} packets from the receiver", record["ack_packets"]);
        number(&record, "/ack_packets")
    };
    let usual = packets(&["sidekick.mode=off"]);
    let few = packets(&["sidekick.mode=ack-reduction"]);
    assert!(few * 5 < usual, "{few} packets of the receiver, and {usual} without Sidekick");
    let until_it_dies = packets(&["sidekick.mode=ack-reduction", "sidekick.proxy=dies"]);
    assert!(until_it_dies > 2 * few, "{until_it_dies} packets, and {few} where the proxy stays");
}

/// Runs the upload with these settings, and returns its record. The lab fails unless the stored
/// file equals the sent one.
fn upload(settings: &[&str]) -> Value {
    runs::record("upload-paper", settings)
}

fn assistance(record: &Value) -> (bool, &str) {
    (record["assisted"].as_bool().unwrap(), record["assistance"].as_str().unwrap())
}

#[test]
fn every_mode_finds_losses_early() {
    for (mode, cc) in [
        ("early-loss", "reno"),
        ("early-loss", "bbr2"),
        ("pacubic", "cubic-rfc9438"),
        ("path-aware-bbr", "bbr2"),
    ] {
        let (mode, cc) = (format!("sidekick.mode={mode}"), format!("flow.cc={cc}"));
        let record = upload(&["flow.bytes=2000000", "near.loss_percent=4", &mode, &cc]);
        assert_eq!(assistance(&record), (true, "assisted by the proxy"));
        let (early, near) =
            (number(&record, "/packets/lost_early"), number(&record, "/packets/lost_near"));
        // The sender's messages to the proxy may be lost, too. So may packets before the discovery
        // of the proxy.
        assert!(early >= near / 3 && early <= near, "{early} detected early of {near} lost near");
        assert!(number(&record, "/packets/spurious") <= early / 10, "{record}");
    }
}

#[test]
fn without_a_proxy_the_upload_completes_unassisted() {
    for proxy in ["sidekick.proxy=absent", "sidekick.proxy=wrong-address"] {
        let record =
            upload(&["flow.bytes=1000000", "sidekick.mode=path-aware-bbr", "flow.cc=bbr2", proxy]);
        let (assisted, sentence) = assistance(&record);
        // Some uploads end before the sender gives up on the proxy.
        let is_plain = ["unassisted: ", "no answer yet from "]
            .iter()
            .any(|beginning| sentence.starts_with(beginning));
        assert!(!assisted && is_plain, "{sentence}");
        assert_eq!(number(&record, "/packets/lost_early"), 0);
        assert_eq!(number(&record, "/quacks/received"), 0);
    }
}

#[test]
fn a_proxy_that_dies_is_noticed_and_the_upload_completes() {
    let settings = [
        "flow.bytes=6000000",
        "sidekick.mode=path-aware-bbr",
        "flow.cc=bbr2",
        "sidekick.proxy=dies",
    ];
    let record = upload(&settings);
    let unassisted = "unassisted: the proxy ended the session, or stopped answering";
    assert_eq!(assistance(&record), (false, unassisted));
    assert!(number(&record, "/quacks/received") > 0, "it was there at first");
}

/// The server (quinn) is unmodified.
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
