//! The real programs of a call on the emulated path.

use std::ffi::OsStr;

use serde_json::Value;

use crate::support::runs::{self, number};

/// Makes a call of five seconds with these settings, and returns its record.
fn call(settings: &[&str]) -> Value {
    runs::record("audio-paper", &[&["flow.seconds=5"], settings].concat())
}

#[test]
fn end_to_end_every_packet_is_played() {
    let record = call(&["near.loss_percent=10"]);
    assert_eq!((number(&record, "/played"), number(&record, "/late")), (250, 0));
    assert_eq!((record["flow"].as_str(), record["mode"].as_str()), (Some("audio"), Some("off")));
    assert_eq!(number(&record, "/packets/lost_early"), 0);
    let repaired = number(&record, "/packets/lost_end_to_end");
    assert!(repaired > 0 && repaired <= number(&record, "/packets/sent") - 250, "{record}");
    assert!(record["dejitter_ms"]["max"].as_f64() > Some(0.0));
}

#[test]
fn with_a_proxy_most_losses_are_found_early() {
    for poll in ["sidekick.poll=off", "sidekick.poll=on"] {
        let record = call(&["near.loss_percent=10", "sidekick.mode=reinject", poll]);
        assert_eq!((number(&record, "/played"), number(&record, "/late")), (250, 0));
        assert_eq!(record["assistance"].as_str(), Some("assisted by the proxy"));
        let (early, end_to_end) =
            (number(&record, "/packets/lost_early"), number(&record, "/packets/lost_end_to_end"));
        assert!(early > end_to_end, "{record}");
        assert!(early <= number(&record, "/packets/lost_near"), "{record}");
    }
}

/// The capture of this call holds every packet that the links delivered.
#[test]
fn without_a_proxy_the_call_goes_on_unassisted() {
    let directory = tempfile::tempdir().unwrap();
    let settings = ["flow.seconds=5", "sidekick.mode=reinject", "sidekick.proxy=absent"];
    let arguments = [OsStr::new("--pcap"), directory.path().as_os_str()];
    let record = runs::record_with("audio-paper", &settings, &arguments);
    assert_eq!((number(&record, "/played"), number(&record, "/late")), (250, 0));
    assert_eq!(record["assisted"].as_bool(), Some(false));
    for segment in ["near", "far"] {
        let capture = directory.path().join(format!("seed-7/{segment}-delivered.pcap"));
        let delivered = |way, what| number(&record, &format!("/links/{segment}/{way}/{what}"));
        let frames = delivered("to_receiver", "delivered") + delivered("to_sender", "delivered");
        let bytes =
            delivered("to_receiver", "delivered_bytes") + delivered("to_sender", "delivered_bytes");
        assert!(frames > 250, "{record}");
        // The file has a file header, and a header for each frame.
        assert_eq!(std::fs::metadata(capture).unwrap().len(), 24 + 16 * frames + bytes);
    }
}
