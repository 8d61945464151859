//! Parity between a proxy and a client.

use super::*;
use crate::Protect;
use crate::wire::{Parity, Words};
use sidekick_parity::Between;

const FLUSH: Duration = Duration::from_millis(3);

impl Download {
    /// A client with a proxy. It requests this share of parity, and no copies.
    fn protected(seed: u64, loss_percent: u32, share: f64) -> Self {
        let mut download = Self::new(keeping(), seed, loss_percent);
        download.requests = false;
        download.run(2000 * MS);
        assert!(download.sender.is_kept(), "seed {seed}");
        download.sender.set_fetching(false);
        download.sender.protect(Some(Protect::of(share, 30, FLUSH)), download.now);
        download.drain();
        download.run(10 * MS);
        download
    }

    /// The numbers below `count` that did not arrive.
    fn missing(&self, count: u32) -> Vec<u32> {
        (0..count).filter(|number| !self.arrived.contains_key(number)).collect()
    }

    /// The PARITYs in flight to the sender.
    fn parity_in_flight(&self) -> Vec<Vec<u8>> {
        let of = |Reverse((.., event)): &Reverse<(Instant, u64, Event)>| match event {
            Event::ToSender(bytes) if bytes[0] & 0x0f == 8 => Some(bytes.clone()),
            _ => None,
        };
        self.events.iter().filter_map(of).collect()
    }

    /// The next PARITY that leaves the proxy.
    fn next_parity(&mut self) -> Vec<u8> {
        loop {
            self.run(MS / 4);
            if let Some(parity) = self.parity_in_flight().pop() {
                return parity;
            }
        }
    }
}

#[test]
fn parity_rebuilds_lost_datagrams() {
    for (loss_percent, share, least, most) in
        [(1, 0.05, 990, 150), (4, 0.15, 992, 350), (10, 0.3, 990, 650)]
    {
        let mut present = 0;
        for seed in 0..20 {
            let mut download = Download::protected(seed, loss_percent, share);
            download.stream(0, 1000, MS, &[]);
            download.run(2000 * MS);
            assert_eq!(download.copies, 0, "the sender requested nothing");
            present += 1000 - download.missing(1000).len();
            let sent = download.proxy.stats().parity_sent;
            assert!(sent <= most, "{sent}");
        }
        assert!(present >= 20 * least, "{present} of 20000 at {loss_percent} %");
    }
}

#[test]
fn long_datagrams_have_lists_of_their_own() {
    let mut download = Download::protected(4, 0, 0.2);
    // No list fits into one datagram with a repair symbol.
    download.len = 1440;
    download.stream(0, 100, MS, &[]);
    download.run(50 * MS);
    download.loss_percent = 100;
    download.run(MS);
    download.loss_percent = 0;
    download.run(100 * MS);
    assert!(download.missing(100).is_empty());
    assert!(download.rebuilt > 0);
}

#[test]
fn datagrams_too_long_for_a_repair_symbol_are_listed() {
    // The header and the length take 15 bytes of 1472.
    for (len, rebuilds) in [(1457, true), (1458, false), (1472, false)] {
        let mut download = Download::protected(4, 0, 0.2);
        download.len = len;
        download.stream(0, 100, MS, &[]);
        download.run(50 * MS);
        download.loss_percent = 100;
        download.run(MS);
        download.loss_percent = 0;
        download.run(100 * MS);
        let (missing, rebuilt) = (download.missing(100), download.rebuilt);
        if rebuilds {
            assert!(missing.is_empty() && rebuilt > 0, "{len}: {missing:?}");
            continue;
        }
        let [lost] = missing[..] else { panic!("{len}: {missing:?}") };
        let between = download.sender.between(Some(lost - 1), lost + 1);
        assert!(matches!(between, Between::Missing { count: 1, .. }), "{len}: {between:?}");
        assert_eq!(rebuilt, 0, "{len}");
    }
}

#[test]
fn the_last_datagrams_are_protected() {
    let mut download = Download::protected(4, 0, 0.05);
    download.stream(0, 10, MS / 10, &[]);
    download.run(Duration::from_micros(850));
    // The last one is lost.
    download.loss_percent = 100;
    download.run(Duration::from_micros(100));
    download.loss_percent = 0;
    download.run(2 * MS);
    assert_eq!(download.missing(10), [9]);
    download.run(4 * MS);
    assert_eq!((download.missing(10), download.rebuilt), (vec![], 1));
}

#[test]
fn datagrams_that_are_far_apart_draw_no_tails() {
    for (flush, between, after) in [(3, 4..12, 1), (30, 0..1, 1)] {
        let mut download = Download::protected(4, 0, 0.3);
        let protect = Protect::of(0.3, 30, flush * MS);
        download.sender.protect(Some(protect), download.now);
        download.drain();
        download.run(10 * MS);
        let before = download.proxy.stats().tails_sent;
        download.stream(0, 100, 20 * MS, &[]);
        download.run(1980 * MS + 2 * DELAY);
        let tails = download.proxy.stats().tails_sent - before;
        assert!(between.contains(&tails), "{tails} with a flush of {flush} ms");
        // A longer silence draws them as usual.
        let before = download.proxy.stats().tails_sent;
        download.run(100 * MS);
        assert_eq!(download.proxy.stats().tails_sent - before, after);
    }
}

#[test]
fn parity_shows_which_datagrams_the_proxy_did_not_see() {
    let mut download = Download::protected(4, 0, 0.3);
    download.stream(0, 60, MS, &[20, 21]);
    download.run(60 * MS);
    assert_eq!(download.sender.between(Some(19), 22), Between::Nothing);
    assert_eq!(download.sender.between(Some(19), 1_000), Between::Unlisted);
    let losses = download.sender.parity_counts();
    assert_eq!((losses.lost, losses.runs), (0, 0));
}

#[test]
fn parity_ends_a_second_after_the_last_request() {
    let mut download = Download::protected(4, 0, 0.3);
    download.stream(0, 4000, MS, &[]);
    download.run(1500 * MS);
    let before = download.proxy.stats().parity_sent;
    assert!(before >= 400, "{before}");
    // From here on, no message reaches the proxy.
    download.mute = true;
    download.run(1100 * MS);
    let at_end = download.proxy.stats().parity_sent;
    download.run(1000 * MS);
    assert!(at_end > before);
    assert_eq!(download.proxy.stats().parity_sent, at_end);
}

#[test]
fn a_sender_can_end_parity() {
    let mut download = Download::protected(4, 0, 0.3);
    download.stream(0, 1000, MS, &[]);
    download.run(100 * MS);
    download.sender.protect(None, download.now);
    download.drain();
    download.run(5 * MS);
    let sent = download.proxy.stats().parity_sent;
    download.run(500 * MS);
    assert_eq!(download.proxy.stats().parity_sent, sent);
}

#[test]
fn parity_stays_within_its_share() {
    let mut download = Download::protected(4, 0, 1.0);
    download.stream(0, 3000, MS, &[]);
    download.run(3000 * MS);
    let stats = download.proxy.stats();
    let share = stats.kept_bytes * 35 / 100 + (16 << 10);
    assert!((share * 9 / 10..=share).contains(&stats.parity_bytes), "{}", stats.parity_bytes);
    assert!(stats.parity_withheld > 0);
    // Lists are not withheld with them.
    assert_eq!(download.sender.parity_counts().listed, 3000);
}

#[test]
fn parity_that_was_not_asked_for_is_dropped() {
    let mut protected = Download::protected(4, 0, 0.5);
    protected.stream(0, 100, MS, &[]);
    let parity = protected.next_parity();
    let mut download = Download::new(keeping(), 4, 0);
    download.run(100 * MS);
    let outcome = download.sender.handle_input(PROXY.parse().unwrap(), &parity, download.now);
    // The session numbers follow from the seed, and are the same.
    assert_eq!(outcome, Err(HandleError::Outdated));
    assert_eq!(download.sender.stats().parity_received, 0);
}

#[test]
fn false_parity_rebuilds_nothing() {
    let mut download = Download::protected(4, 0, 0.3);
    download.stream(0, 1000, MS, &[]);
    let mut forged = 0;
    for step in 0..500 {
        download.run(MS / 2);
        download.loss_percent = if step % 20 < 2 { 100 } else { 0 };
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        for honest in download.parity_in_flight() {
            let Ok(Datagram::Parity(parity)) = Datagram::parse(&honest) else { panic!("parity") };
            let mut symbol = parity.symbol.to_vec();
            let (identifiers, first, last) =
                (parity.identifiers.iter().collect::<Vec<_>>(), parity.first, symbol.len() - 1);
            forged += 1;
            let lie = match forged % 4 {
                0 => {
                    symbol[last] ^= 1;
                    Parity { symbol: &symbol, ..parity }
                }
                1 => Parity { number: parity.number.wrapping_add(7), ..parity },
                2 => Parity { first: first.wrapping_add(3), ..parity },
                _ => Parity { symbol: &symbol[..last / 2], ..parity },
            };
            let lie = Parity { identifiers: Words::new(&identifiers), ..lie };
            let len = Datagram::Parity(lie).emit(&mut buffer).unwrap();
            let _ =
                download.sender.handle_input(PROXY.parse().unwrap(), &buffer[..len], download.now);
        }
    }
    assert!(forged > 50, "{forged}");
    download.loss_percent = 0;
    download.run(700 * MS);
    // The harness compares each rebuilt datagram with the one sent. Afterwards the honest parity
    // repairs again.
    let rebuilt = download.rebuilt;
    download.stream(2000, 300, MS, &[]);
    download.run(100 * MS);
    download.loss_percent = 100;
    download.run(MS);
    download.loss_percent = 0;
    download.run(300 * MS);
    assert!(download.rebuilt > rebuilt);
}

#[test]
fn a_flood_of_parity_costs_no_more_than_the_flow() {
    let mut download = Download::protected(4, 0, 0.3);
    download.stream(0, 100, MS, &[]);
    let parity = download.next_parity();
    download.run(150 * MS);
    for _ in 0..10_000 {
        let _ = download.sender.handle_input(PROXY.parse().unwrap(), &parity, download.now);
    }
    let read = download.sender.stats().parity_received;
    assert!((256..=256 + 2 * 100 + 50).contains(&read), "{read}");
}

/// An attacker that knows the session's number can forge a list of positions far ahead.
#[test]
fn a_forged_list_does_not_end_parity() {
    let mut download = Download::protected(4, 0, 0.3);
    download.stream(0, 2000, MS, &[]);
    let parity = download.next_parity();
    let Ok(Datagram::Parity(parity)) = Datagram::parse(&parity) else { panic!("parity") };
    let identifiers = Words::new(&[1, 2, 3]);
    let lie = Parity { first: parity.first + (1 << 30), count: 3, identifiers, ..parity };
    let mut buffer = [0; MAX_DATAGRAM_LEN];
    let len = Datagram::Parity(lie).emit(&mut buffer).unwrap();
    let _ = download.sender.handle_input(PROXY.parse().unwrap(), &buffer[..len], download.now);
    download.run(200 * MS);
    download.loss_percent = 100;
    download.run(MS);
    download.loss_percent = 0;
    download.run(300 * MS);
    assert!(download.rebuilt > 0);
}

/// The sender requests nothing more from a proxy that stops keeping copies.
#[test]
fn parity_ends_with_keeping() {
    let mut download = Download::protected(4, 0, 0.3);
    download.stream(0, 2000, MS, &[]);
    download.run(100 * MS);
    assert!(download.sender.collects_arrivals());
    download.proxy.reconfigure(ObserverConfig::default()).unwrap();
    download.drain();
    download.run(10 * MS);
    assert!(!download.sender.collects_arrivals());
    let requests = download.proxy.stats().requests_unanswered;
    download.run(1000 * MS);
    assert_eq!(download.proxy.stats().requests_unanswered, requests);
}
