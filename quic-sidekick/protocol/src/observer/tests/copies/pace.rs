//! The pace of copies, and conditions for keeping any.

use super::*;

/// A flow of 8 Mbit/s: a datagram of 1000 bytes every millisecond. Of 128 copies that one request
/// draws, as many leave at once as a new connection may send, and then four a millisecond.
#[test]
fn copies_leave_at_a_multiple_of_the_rate_of_the_flow() {
    let mut b = bench(keeping());
    b.open_keeping(1);
    for identifier in 0..200 {
        assert_eq!(b.pass([identifier]), 1);
        b.now += MS;
    }
    let halves = [between(9, 74), between(109, 174)];
    b.request(1, &halves).unwrap();
    let mut all = b.drawn().0;
    assert!((20..=24).contains(&all.len()), "{} at once", all.len());
    let begun = b.now;
    while all.len() < 128 {
        let due = b.observer.poll_timeout().unwrap();
        assert!(due <= b.now + MS, "the rest waits for nothing else");
        b.now = b.now.max(due);
        b.observer.on_timeout(b.now);
        let more = b.drawn().0;
        assert!(more.len() <= 5, "{} in a millisecond", more.len());
        all.extend(more);
    }
    let took = b.now - begun;
    assert!((25 * MS..=29 * MS).contains(&took), "{took:?}");
    assert!(all.into_iter().eq((10..74).chain(110..174)), "in order");
}

/// While the copies of one session wait, those of another leave.
#[test]
fn sessions_take_turns() {
    let mut b = bench(keeping());
    b.open_keeping(1);
    let ours = b.flow;
    b.pass(100..164);
    b.flow.source.set_port(4001);
    b.open_keeping(2);
    b.pass(200..204);
    b.flow = ours;
    b.request(1, &[ALL]).unwrap();
    b.request(2, &[ALL]).unwrap();
    let (copies, _) = b.drawn();
    let last_of_other = copies.iter().rposition(|id| *id >= 200).unwrap();
    assert!(last_of_other < 9, "{copies:?}");
    assert!(copies.len() < 40, "{copies:?}");
}

/// A flood of requests draws its copies no faster than one request.
#[test]
fn more_requests_draw_no_faster() {
    let mut b = bench(keeping());
    b.open_keeping(1);
    for identifier in 0..100 {
        b.pass([identifier]);
        b.now += MS;
    }
    let mut most = 0;
    for _ in 0..500 {
        let _ = b.request(1, &[ALL; 16]);
        b.observer.on_timeout(b.now);
        most = most.max(b.drawn().0.len());
        b.now += MS / 10;
    }
    assert!(most <= 24, "{most} at once");
}

/// Sends all waiting datagrams, and returns how many of them are copies.
fn repeats(b: &mut Bench) -> usize {
    let mut count = 0;
    while let Some((_, sent)) = b.next_sent() {
        count += usize::from(matches!(Datagram::parse(&sent), Ok(Datagram::Repeat(_))));
    }
    count
}

/// Copies that were repeated too often cost the proxy work for each request that names them. It
/// spends no more work on them than on copies that leave.
#[test]
fn copies_that_may_not_leave_take_their_turn() {
    let mut b = bench(keeping());
    b.open_keeping(1);
    b.pass(1000..1100);
    let reverse = b.flow.reversed();
    for identifier in 0..=65_u32 {
        assert!(b.observer.keep(&reverse, 0, &identifier.to_be_bytes(), b.now));
    }
    let withheld = |b: &Bench| b.observer.stats().repeats_withheld;
    let mut repeated = 0;
    while withheld(&b) < 64 {
        let _ = b.request(1, &[between(0, 65)]);
        b.observer.on_timeout(b.now);
        repeated += repeats(&mut b);
        b.now += MS;
    }
    assert_eq!(repeated, 16 * 64);
    while b.observer.poll_timeout().is_some_and(|due| due <= b.now + 5 * MS) {
        b.now += 5 * MS;
        b.observer.on_timeout(b.now);
        assert_eq!(repeats(&mut b), 0);
    }

    b.now += 5 * MS;
    let before = withheld(&b);
    for _ in 0..20 {
        let _ = b.request(1, &[between(0, 65); 16]);
        assert_eq!(repeats(&mut b), 0);
    }
    let at_once = withheld(&b) - before;
    assert!((64..=96).contains(&at_once), "a burst of datagrams of 256 bytes: {at_once}");
    assert!(b.observer.poll_timeout().is_some_and(|due| due <= b.now + MS), "the rest waits");
    // When the copies are too old, those that wait go at once, and leave no timer.
    b.now += Duration::from_secs(1);
    b.observer.on_timeout(b.now);
    assert_eq!(repeats(&mut b), 0);
    assert!(withheld(&b) - before >= 128 * 64, "as many as can wait");
    assert!(b.observer.poll_timeout().is_some_and(|due| due > b.now + Duration::from_secs(1)));
}

#[test]
fn less_memory_than_a_block_keeps_nothing() {
    for (keep_bytes, keep_bytes_per_session) in [(8 << 20, 65_535), (65_535, 8 << 20)] {
        let limits = ObserverConfig { keep_bytes, keep_bytes_per_session, ..keeping() };
        let mut b = bench(limits);
        b.open(1, Terms::default());
        b.send(1, keep(Cookie::NONE, 9)).unwrap();
        let kept = b.with_message(1, |message| matches!(message, Message::Kept { age_ms: 0 }));
        assert_eq!(kept, Some(true));
        assert!(!b.observer.keeps_copies());
    }
    let keep_bytes_per_session = 65_536;
    let mut b = bench(ObserverConfig { keep_bytes_per_session, ..keeping() });
    b.open_keeping(1);
    assert_eq!(b.pass(100..110), 10);
}

/// The sender chooses the flow's destination, from which the answer seems to come.
#[test]
fn a_keep_of_an_impossible_flow_draws_no_answer() {
    for destination in ["224.0.0.1:443", "255.255.255.255:443", "127.0.0.1:443"] {
        let mut b = bench(keeping());
        b.flow.destination = destination.parse().unwrap();
        b.open(1, Terms::default());
        assert_eq!(b.keep_cookie(peer(), 1), None, "{destination}");
    }
}
