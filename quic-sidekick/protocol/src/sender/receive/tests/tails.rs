//! Reports of the reverse flow's silence (SPEC.md, section 6.8).

use super::*;
use crate::wire::Protect;

#[test]
fn a_lost_tail_is_fetched() {
    for seed in 0..50 {
        let mut download = Download::new(keeping(), seed, 0);
        download.run(100 * MS);
        download.stream(0, 10, MS / 10, &[]);
        download.run(MS / 2);
        // The second half does not arrive, and a quarter of the messages do not, either.
        download.events.retain(|Reverse((.., event))| !matches!(event, Event::Arrive(_)));
        download.loss_percent = 100;
        download.run(MS);
        download.loss_percent = 25;
        download.run(200 * MS);
        if download.proxy.stats().tails_sent > 0 && download.copies > 0 {
            assert_eq!(download.arrived.len(), 10, "seed {seed}");
        }
        assert!(download.proxy.stats().tails_sent <= 3);
    }
}

#[test]
fn a_flow_that_is_lost_as_a_whole_is_fetched() {
    let mut download = Download::new(keeping(), 3, 0);
    download.run(100 * MS);
    download.stream(0, 4, MS / 10, &[]);
    download.loss_percent = 100;
    download.run(MS);
    download.loss_percent = 0;
    download.run(30 * MS);
    assert_eq!(download.arrived.len(), 4);
    assert_eq!(download.copies, 4);
}

#[test]
fn a_silence_as_long_as_the_gaps_before_draws_no_tail() {
    for (apart, after) in [(1, 3), (3, 3), (5, 2), (20, 1), (100, 0)] {
        let mut download = Download::new(keeping(), 3, 0);
        download.run(100 * MS);
        // The first four draw some, because the proxy has not measured a gap.
        download.stream(0, 5, apart * MS, &[]);
        download.run(5 * apart * MS);
        let before = download.proxy.stats().tails_sent;
        download.stream(5, 100, apart * MS, &[]);
        download.run(99 * apart * MS + 2 * DELAY);
        let during = download.proxy.stats().tails_sent;
        assert_eq!(during - before, 0, "{apart} ms apart");
        download.run(500 * MS);
        let tails = download.proxy.stats().tails_sent - during;
        assert_eq!(tails, after, "{apart} ms apart");
        // The sender measures the near RTT once in eight datagrams, at most every 25 ms.
        let polls = download.sender.stats().polls;
        let most = 20 + (104 * apart / (8 * apart).max(25)) as u64;
        assert!(polls <= most, "{polls} polls, {apart} ms apart");
    }
}

/// While the near segment loses datagrams, each of those that are far apart draws a TAIL.
#[test]
fn a_lost_datagram_is_fetched_before_the_next_passes_once_some_were_lost() {
    for is_protected in [false, true] {
        let mut download = Download::new(keeping(), 3, 0);
        download.run(100 * MS);
        if is_protected {
            // Parity that arrives after the next datagram would be too late.
            let protect = Protect::of(0.1, 30, 30 * MS);
            download.sender.protect(Some(protect), download.now);
            download.drain();
            download.run(10 * MS);
        }
        let mut next = 0;
        let mut pass = |download: &mut Download, loss_percent| {
            download.stream(next, 1, MS, &[]);
            download.loss_percent = loss_percent;
            download.run(MS / 2);
            download.loss_percent = 0;
            next += 1;
            let passed_at = download.now;
            download.run(20 * MS - MS / 2);
            download.arrived.get(&(next - 1)).map(|at| at.saturating_duration_since(passed_at))
        };
        (0..10).for_each(|_| assert!(pass(&mut download, 0).is_some()));
        let before = download.proxy.stats().tails_sent;
        // The next datagram shows the first loss.
        assert_eq!(pass(&mut download, 100), None);
        (0..10).for_each(|_| assert!(pass(&mut download, 0).is_some()));
        assert_eq!(download.copies, 1, "the first");
        let during = download.proxy.stats().tails_sent;
        assert!((9..=10).contains(&(during - before)), "{}", during - before);
        let after = pass(&mut download, 100).unwrap();
        assert!(after <= 4 * MS, "{after:?}");
        assert_eq!(download.copies, 2);
        // A datagram with only an acknowledgement draws none.
        let during = download.proxy.stats().tails_sent;
        download.len = 79;
        (0..10).for_each(|_| assert!(pass(&mut download, 0).is_some()));
        assert_eq!(download.proxy.stats().tails_sent, during);
        download.len = 80;
        (0..10).for_each(|_| assert!(pass(&mut download, 0).is_some()));
        assert_eq!(download.proxy.stats().tails_sent, during + 10);
        // Ten seconds later they draw no more.
        (0..550).for_each(|_| assert!(pass(&mut download, 0).is_some()));
        let before = download.proxy.stats().tails_sent;
        (0..50).for_each(|_| assert!(pass(&mut download, 0).is_some()));
        assert_eq!(download.proxy.stats().tails_sent, before);
    }
}

/// A TAIL may overtake its datagram. The request that it draws shows no loss.
#[test]
fn jitter_keeps_no_tails_alive() {
    for jitter in [MS, 3 * MS] {
        let mut download = Download::new(keeping(), 3, 0);
        download.run(100 * MS);
        let mut next = 0;
        let mut pass = |download: &mut Download, loss_percent| {
            // Datagrams are late, but TAILs are not.
            download.late = jitter * (next % 4);
            download.stream(next, 1, MS, &[]);
            download.loss_percent = loss_percent;
            download.run(MS / 2);
            download.loss_percent = 0;
            next += 1;
            download.run(20 * MS - MS / 2);
        };
        (0..100).for_each(|_| pass(&mut download, 0));
        pass(&mut download, 100);
        (0..10).for_each(|_| pass(&mut download, 0));
        let before = download.proxy.stats().tails_sent;
        (0..100).for_each(|_| pass(&mut download, 0));
        assert_eq!(download.proxy.stats().tails_sent - before, 100);
        (0..500).for_each(|_| pass(&mut download, 0));
        let before = download.proxy.stats().tails_sent;
        (0..100).for_each(|_| pass(&mut download, 0));
        assert_eq!(download.proxy.stats().tails_sent, before, "ten seconds after the last loss");
        assert!(download.copies < 400, "{} copies", download.copies);
    }
}
