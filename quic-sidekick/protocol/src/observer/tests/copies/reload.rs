//! The effect of changed limits on copies.

use super::neighbours::intrude;
use super::*;

/// The age of the KEPT that is the observer's next message to this session.
fn granted(b: &mut Bench, number: u32) -> Option<u16> {
    b.with_message(number, |message| match message {
        Message::Kept { age_ms } => *age_ms,
        other => panic!("{other:?}"),
    })
}

#[test]
fn without_memory_sessions_end_copies_and_inform_senders() {
    let mut b = bench(keeping());
    b.open_keeping(1);
    assert!(b.pass(0..1000) == 1000 && b.observer.copies_bytes() == 1 << 20);
    b.request(1, &[ALL]).unwrap();
    b.observer.reconfigure(ObserverConfig { keep_bytes: 0, ..keeping() }).unwrap();
    assert_eq!((b.observer.copies_bytes(), b.observer.keeps_copies()), (0, false));
    assert_eq!(granted(&mut b, 1), Some(0), "and no copy that waited");
    assert_eq!(b.next_sent(), None);
    assert_eq!(b.request(1, &[ALL]), Err(HandleError::NotKept));
    assert_eq!(granted(&mut b, 1), Some(0), "the first one may be lost");
    for _ in 0..1000 {
        assert_eq!(b.request(1, &[ALL]), Err(HandleError::NotKept));
    }
    let answers = std::iter::from_fn(|| b.next_sent()).count();
    assert!((60..=64).contains(&answers), "{answers}: as many requests as may come at once");
    b.send(1, keep(Cookie::NONE, 9)).unwrap();
    assert_eq!(granted(&mut b, 1), Some(0));
    assert_eq!(b.pass(0..10), 0);
    b.observer.table.check();

    // The sender still receives the flow, and a neighbour does not.
    assert_eq!(intrude(&mut b), Err(HandleError::Refused(RefusalCause::Taken)));
    while b.next_sent().is_some() {}
    b.observer.reconfigure(keeping()).unwrap();
    assert_eq!((b.pass(0..10), b.next_sent()), (0, None), "no session asked");
    b.prove(peer(), 1);
    assert_eq!(b.pass(0..10), 10);
    b.observer.table.check();
}

/// Two sessions with a MiB each, of which less is allowed then.
#[test]
fn with_less_memory_each_session_drops_its_oldest_copies() {
    let mut b = bench(keeping());
    let (ours, mut theirs) = (b.flow, b.flow);
    theirs.source.set_port(4001);
    for (number, flow) in [(1, ours), (2, theirs)] {
        b.flow = flow;
        b.open_keeping(number);
        assert_eq!(b.pass(0..2000), 2000);
    }
    assert_eq!(b.observer.copies_bytes(), 2 << 20);
    let limits = [(8 << 20, 512 << 10, 1 << 20), (256 << 10, 512 << 10, 256 << 10)];
    for (keep_bytes, keep_bytes_per_session, left) in limits {
        let limits = ObserverConfig { keep_bytes, keep_bytes_per_session, ..keeping() };
        b.observer.reconfigure(limits).unwrap();
        assert_eq!(b.observer.copies_bytes(), left);
        // Each session keeps some copies.
        for number in [1, 2] {
            b.request(number, &[between(1990, 1992)]).unwrap();
            assert_eq!(b.drawn().0, [1991]);
            assert!(b.request(number, &[between(100, 102)]).is_ok());
            assert_eq!(b.next_sent(), None, "too old");
        }
        b.observer.table.check();
    }
    // Copies of new datagrams replace older ones.
    assert_eq!(b.pass(3000..4000), 1000);
    assert_eq!(b.observer.copies_bytes(), 256 << 10);
    b.observer.reconfigure(keeping()).unwrap();
    assert_eq!(b.pass(4000..6000), 2000);
    assert!(b.observer.copies_bytes() > 1 << 20, "and with more memory it keeps more");
}
