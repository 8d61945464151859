//! When the observer answers a proof by KEPT.

use super::*;

/// The caller captures the reverse flow only when a session wants copies, and that takes a moment.
#[test]
fn copies_are_granted_once_the_caller_captures() {
    let mut b = bench(keeping());
    b.observer.set_copying(false);
    b.open(1, Terms::default());
    let cookie = b.keep_cookie(peer(), 1).unwrap();
    for _ in 0..3 {
        b.send(1, keep(cookie, 9)).unwrap();
        assert_eq!(b.next_sent(), None);
    }
    assert!(b.observer.keeps_copies(), "the caller captures then");
    assert_eq!(b.observer.stats().keeps, 0);
    let granted = |b: &mut Bench| {
        let age = b.with_message(1, |message| match message {
            Message::Kept { age_ms } => *age_ms,
            other => panic!("{other:?}"),
        });
        assert_eq!((age, b.next_sent()), (Some(500), None));
    };
    b.observer.set_copying(true);
    granted(&mut b);
    assert_eq!(b.pass(0..10), 10);
    b.observer.set_copying(true);
    assert_eq!(b.next_sent(), None, "once");
    // A KEPT can be lost. The sender asks again.
    b.send(1, keep(cookie, 9)).unwrap();
    granted(&mut b);
    assert_eq!(b.observer.stats().keeps, 2);
}

/// The caller's capture fails while a session has copies.
#[test]
fn without_a_capture_the_answer_is_nothing() {
    let mut b = bench(keeping());
    b.open_keeping(1);
    assert_eq!(b.pass(0..10), 10);
    let unknown = between(100, 102);
    b.request(1, &[unknown]).unwrap();
    assert_eq!(b.next_sent(), None);
    b.observer.set_copying(false);
    b.request(1, &[between(3, 5), unknown]).unwrap();
    let ranges = b.with_message(1, |message| match message {
        Message::Nothing { ranges, .. } => *ranges,
        other => panic!("{other:?}"),
    });
    assert_eq!(ranges, Some(0b10));
    assert_eq!(b.drawn().0, [4], "a kept datagram is repeated");
}

/// A proxy that keeps none has nothing to wait for.
#[test]
fn a_refusal_waits_for_nothing() {
    let mut b = bench(ObserverConfig::default());
    b.observer.set_copying(false);
    b.open(1, Terms::default());
    b.send(1, keep(Cookie::NONE, 9)).unwrap();
    let kept = b.with_message(1, |message| matches!(message, Message::Kept { age_ms: 0 }));
    assert_eq!(kept, Some(true));
}
