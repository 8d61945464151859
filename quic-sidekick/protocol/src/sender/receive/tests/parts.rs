//! Copies that do not fit the path.

use super::*;

/// Streams datagrams whose copies are too long. Returns it with the copies and the requests of each
/// hundred of them.
fn stream(config: ObserverConfig, longest: usize) -> (Download, Vec<(u64, u64)>) {
    let mut download = Download::new(config, 1, 4);
    download.longest = longest;
    download.run(1000 * MS);
    assert!(download.sender.is_kept());
    let mut all = Vec::new();
    for hundred in 0..20 {
        let before = (download.copies, download.sender.stats().repeats_requested);
        download.stream(100 * hundred, 100, MS, &[]);
        download.run(100 * MS);
        let after = (download.copies, download.sender.stats().repeats_requested);
        all.push((after.0 - before.0, after.1 - before.1));
    }
    download.run(1000 * MS);
    (download, all)
}

#[test]
fn copies_that_do_not_fit_the_path_come_in_parts() {
    // The datagrams have 1200 bytes, and just fit.
    for longest in [700, 1200] {
        let (mut download, all) = stream(keeping(), longest.max(1200));
        if longest == 700 {
            // The path becomes narrower still, so that no datagram fits. Copies of the last ones
            // do, in parts.
            download.longest = longest;
            download.stream(2000, 5, MS, &[]);
            download.run(1000 * MS);
        }
        let arrived = download.arrived.len();
        assert!(arrived >= 1995, "{arrived} arrived: {all:?}");
        // Once it is known, a copy costs a request, or two if a message is lost.
        let (copies, requests) =
            all[5..].iter().fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
        assert!(copies > 30 && requests < 3 * copies, "{all:?}");
    }
}

#[test]
fn a_proxy_that_knows_its_mtu_sends_parts_at_once() {
    let (download, all) = stream(ObserverConfig { longest_datagram: 1200, ..keeping() }, 1200);
    assert_eq!(download.arrived.len(), 2000, "{all:?}");
    let (copies, requests) = all.iter().fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
    assert!(copies > 50 && 2 * requests < 5 * copies, "{all:?}");
}

#[test]
fn whole_copies_stay_whole_on_a_lossy_path() {
    let mut download = Download::new(keeping(), 1, 30);
    download.run(3000 * MS);
    download.stream(0, 2000, MS, &[]);
    download.run(3000 * MS);
    assert_eq!(download.arrived.len(), 2000);
    // Some arrived in parts, after three requests in vain. That is no reason to split all.
    assert!(2 * download.joined < download.copies, "{} of {}", download.joined, download.copies);
}

/// A server that probes for the path's MTU would take the copy of a lost probe for its arrival.
#[test]
fn a_copy_is_no_evidence_of_the_mtu() {
    let mut download = Download::new(keeping(), 1, 4);
    download.longest = 1400;
    download.run(1000 * MS);
    for hundred in 0..5 {
        download.len = 1300;
        download.stream(100 * hundred, 99, MS, &[]);
        download.run(99 * MS);
        download.len = 1450;
        download.stream(100 * hundred + 99, 1, MS, &[]);
        download.run(MS);
    }
    download.run(1000 * MS);
    let missing = (0..500).filter(|number| !download.arrived.contains_key(number));
    assert_eq!(missing.collect::<Vec<_>>(), [99, 199, 299, 399, 499]);
    assert!(download.copies > 10);
}
