//! How sessions begin and end, and their limits.

use super::*;

/// A proxy with several addresses answers from the one that the sender used last.
#[test]
fn answers_leave_from_the_address_that_the_sender_used() {
    let mut b = bench(ObserverConfig::default());
    let own = |last: u8| Some(IpAddr::from([192, 0, 2, last]));
    let mut cookie = Cookie::NONE;
    for address in [own(251), own(252)] {
        let (flow, session, pattern) = (b.flow, SessionNumber(1), Pattern::Unpinned);
        let (initiator, message) =
            Initiator::begin(None, session, &flow, &Terms::default(), [7; 32]).unwrap();
        let hello = Hello { session, flow, cookie, pattern, handshake: message.bytes() };
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let len = Datagram::Hello(hello).emit(&mut buffer).unwrap();
        let _ = b.observer.handle_input(
            Peer { address: peer(), local_ip: address },
            &buffer[..len],
            b.now,
        );
        let (transmit, bytes) = b.next_sent().unwrap();
        assert_eq!((transmit.destination, transmit.source_ip), (peer(), address));
        match Datagram::parse(&bytes).unwrap() {
            Datagram::Retry { cookie: given, .. } => cookie = given,
            Datagram::Accept { handshake, .. } => {
                let mut initiator = initiator;
                let accept = initiator.read(handshake).unwrap();
                b.seals.insert(1, (accept.session, initiator.finish().unwrap().0));
            }
            other => panic!("{other:?}"),
        }
    }
    let (session, seal) = b.seals.get_mut(&1).unwrap();
    let mut buffer = [0; MAX_DATAGRAM_LEN];
    let poll = Message::Poll(Poll { epoch: 1, token: 1, sums: 0 });
    let len = seal.seal(Link::First, *session, &poll, &mut buffer).unwrap();
    b.observer
        .handle_input(Peer { address: peer(), local_ip: own(253) }, &buffer[..len], b.now)
        .unwrap();
    assert_eq!(b.next_sent().unwrap().0.source_ip, own(253));
    b.observer.close();
    assert_eq!(b.next_sent().unwrap().0.source_ip, own(253), "the BYE, too");
    assert_eq!(b.observer.statuses().count(), 0);
}

#[test]
fn a_session_reports_its_status() {
    let mut b = bench(ObserverConfig::default());
    b.hello(1, Terms::default()).unwrap();
    let status = |b: &Bench| b.observer.statuses().next().unwrap();
    assert!(!status(&b).confirmed);
    b.poll(1, 1, 1).unwrap();
    assert!(b.next_sent().is_some());
    let opened = b.now;
    b.now += Duration::from_secs(1);
    b.capture(7, 0);
    b.capture(9, 0);
    let now = status(&b);
    assert_eq!((now.flow, now.peer, now.confirmed, now.epoch), (b.flow, peer(), true, 1));
    assert_eq!((now.counted, now.ends, now.quacks), (2, Some((7, 9)), 1));
    assert_eq!((now.last_packet, now.last_heard), (Some(b.now), opened));
}

#[test]
fn new_limits_apply_to_new_sessions() {
    let mut b = bench(ObserverConfig { max_sessions: 1, ..ObserverConfig::default() });
    let key = b.observer.public_key();
    b.open(1, Terms { every_packets: NonZeroU16::new(1), ..Terms::default() });
    assert_eq!(
        b.hello(2, Terms::default()).unwrap_err(),
        HandleError::Refused(RefusalCause::Sessions)
    );
    b.next_sent();
    let wrong = ObserverConfig { max_sessions: 2, max_threshold: 0, ..ObserverConfig::default() };
    assert_eq!(b.observer.reconfigure(wrong), Err(ConfigError::Threshold));
    assert_eq!(
        b.hello(2, Terms::default()).unwrap_err(),
        HandleError::Refused(RefusalCause::Sessions),
        "the limits are unchanged"
    );
    b.next_sent();
    b.observer
        .reconfigure(ObserverConfig {
            max_sessions: 2,
            max_threshold: 3,
            ..ObserverConfig::default()
        })
        .unwrap();
    assert_eq!(b.hello(2, Terms::default()).unwrap().terms.threshold, 3);
    assert_eq!((b.observer.public_key(), b.observer.sessions()), (key, 2));
    b.capture(7, 0);
    assert_eq!(
        b.with_quack(1, |quack| quack.sums.len()),
        Some(20),
        "an existing session keeps its terms"
    );
}

#[test]
fn nothing_is_counted_before_the_first_sealed_message() {
    let mut b = bench(ObserverConfig::default());
    b.hello(1, Terms::default()).unwrap();
    assert_eq!(b.capture(1, 0), Observed::NoSession);
    b.poll(1, 1, 1).unwrap();
    assert!(b.next_sent().is_some());
    assert_eq!(b.capture(1, 0), Observed::Counted);
    // An unconfirmed session soon ends.
    b.hello(2, Terms::default()).unwrap();
    assert_eq!(b.observer.sessions(), 2);
    b.now += PROOF_TIMEOUT;
    b.observer.on_timeout(b.now);
    assert_eq!(b.observer.sessions(), 1);
}

#[test]
fn a_repeated_hello_gets_the_same_answer() {
    let mut b = bench(ObserverConfig::default());
    b.obtain_cookie(peer());
    let answers = [0, 1].map(|_| {
        assert_eq!(b.hello_from(peer(), 1, Terms::default()).0, Ok(()));
        b.next_sent().unwrap()
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(b.observer.sessions(), 1);
    b.open(2, Terms::default());
    assert_eq!(b.hello_from(peer(), 2, Terms::default()).0, Err(HandleError::Duplicate));
    assert_eq!((b.next_sent(), b.observer.sessions()), (None, 2));
}

#[test]
fn terms_are_lowered_to_the_limits() {
    let mut b = bench(ObserverConfig::default());
    let asked =
        Terms { threshold: 200, every: Some(Duration::from_micros(10)), ..Terms::default() };
    let accept = b.hello(1, asked).unwrap();
    assert_eq!((accept.terms.threshold, accept.terms.every), (40, Some(Duration::from_millis(1))));
    assert_eq!(accept.kept_sums, 128);
    let never = Terms { every: None, ..Terms::default() };
    assert_eq!(b.hello(2, never), Err(HandleError::Refused(RefusalCause::Terms)));
    let (_, bytes) = b.next_sent().unwrap();
    assert!(matches!(Datagram::parse(&bytes), Ok(Datagram::Refuse { why: Refusal::Terms, .. })));
}

#[test]
fn sessions_are_limited_for_all_and_for_one_source() {
    let mut b = bench(ObserverConfig {
        max_sessions: 3,
        max_sessions_per_source: 2,
        ..ObserverConfig::default()
    });
    let from = |host: u8| SocketAddr::from(([192, 0, 2, host], 5000));
    let outcomes = [(1, 1), (1, 2), (1, 3), (2, 4), (3, 5)].map(|(host, number)| {
        b.flow.source = SocketAddr::from(([192, 0, 2, host], 1000));
        let outcome = b.hello_of(from(host), number, Terms::default());
        if outcome.is_ok() {
            b.send_from(from(host), number, Message::Poll(Poll { epoch: 1, token: 1, sums: 0 }))
                .unwrap();
        }
        while b.next_sent().is_some() {}
        outcome.is_ok()
    });
    assert_eq!(outcomes, [true, true, false, true, false]);
    b.send_from(from(1), 1, Message::Bye).unwrap();
    b.flow.source = SocketAddr::from(([192, 0, 2, 1], 1000));
    assert!(b.hello_of(from(1), 6, Terms::default()).is_ok(), "a session ended");
    assert_eq!(b.observer.sessions(), 3);
    b.now += Duration::from_secs(60);
    b.observer.on_timeout(b.now);
    assert_eq!((b.observer.sessions(), b.observer.poll_timeout()), (0, None));
}

/// A peer with many addresses sends HELLOs and no sealed message.
#[test]
fn unconfirmed_sessions_do_not_exclude_others() {
    let mut b = bench(ObserverConfig { max_sessions: 50, ..ObserverConfig::default() });
    b.open(1, Terms::default());
    for host in 0..200u8 {
        let from = SocketAddr::from(([203, 0, 113, host], 5000));
        b.flow.source = SocketAddr::from(([203, 0, 113, host], 1000));
        b.hello_of(from, 1000 + u32::from(host), Terms::default()).unwrap();
        b.now += Duration::from_millis(5);
    }
    assert_eq!(b.observer.sessions(), 50);
    b.observer.table.check();
    b.flow.source = "192.0.2.1:4000".parse().unwrap();
    b.open(2, Terms::default());
    assert_eq!((b.poll(1, 1, 7), b.poll(2, 1, 7)), (Ok(()), Ok(())), "confirmed sessions stay");
}

#[test]
fn every_confirmed_session_ends_with_a_bye() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms::default());
    b.hello(2, Terms::default()).unwrap();
    b.capture(1, 0);
    b.observer.close();
    assert_eq!(b.with_message(1, |message| *message == Message::Bye), Some(true));
    assert_eq!(
        (b.next_sent(), b.observer.sessions()),
        (None, 0),
        "no BYE for an unconfirmed session"
    );
    assert_eq!(b.capture(2, 0), Observed::NoSession);
}

#[test]
fn a_marker_is_answered_the_requested_way() {
    let mut b = bench(ObserverConfig::default());
    let (transmit, answer) = b.mark(1, Reply::Path).unwrap();
    let route = Route::Path { source: b.flow.destination, interface: Some(0) };
    assert_eq!((transmit.destination, transmit.route), (b.flow.source, route));
    assert_eq!((answer.flow, answer.handle, answer.nonce), (b.flow, [3; 20], [1; 16]));
    assert_eq!(answer.proxy, "192.0.2.254:5252".parse().unwrap());
    assert!(b.mark(1, Reply::Path).is_none(), "the same, captured on its way out");
    let (transmit, _) = b.mark(2, Reply::Adjacent(5000)).unwrap();
    let route = Route::Stranger { interface: Some(0) };
    assert_eq!((transmit.destination, transmit.route), (peer(), route));
    // An IPv6 flow, while the proxy has no IPv6 address.
    let v6 = |host: &str| format!("[2001:db8::{host}]:443").parse().unwrap();
    b.flow = Flow { source: v6("1"), destination: v6("7") };
    assert!(b.mark(3, Reply::Path).is_none());
}

/// A marker of another version gets no answer, and does not count.
#[test]
fn a_marker_of_another_version_is_noticed_and_not_answered() {
    const VERSION_AT: usize = 29;
    let mut b = bench(ObserverConfig::default());
    let mut marker = [0; MARKER_LEN];
    Marker { handle: [3; 20], nonce: [1; 16], reply: Reply::Path }.emit(&mut marker).unwrap();
    marker[VERSION_AT] += 1;
    let mut answer = marker;
    answer[0] = 6;
    let mut other_name = marker;
    other_name[VERSION_AT - 1] ^= 1;
    for (datagram, noticed) in [(marker, 1), (answer, 0), (other_name, 0)] {
        let before = b.observer.stats().markers_other_version;
        let seen = b.observer.observe(&b.flow, 0, Payload::whole(&datagram), b.now);
        assert_ne!(seen, Observed::Marker, "{datagram:?}");
        assert_eq!(b.observer.stats().markers_other_version - before, noticed, "{datagram:?}");
    }
    assert_eq!((b.next_sent(), b.observer.stats().markers), (None, 0));
}

/// A NAT that gave the adjacent socket another port did the same to the flow: only a new session
/// can learn it.
#[test]
fn a_session_is_bound_to_its_senders_address() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms::default());
    let moved = "192.0.2.1:7777".parse().unwrap();
    let poll = Message::Poll(Poll { epoch: 1, token: 2, sums: 0 });
    assert_eq!(b.send_from(moved, 1, poll), Err(HandleError::UnknownSession));
    let (transmit, bytes) = b.next_sent().unwrap();
    assert_eq!(transmit.destination, moved);
    assert!(matches!(Datagram::parse(&bytes), Ok(Datagram::UnknownSession { .. })));
    assert_eq!(b.observer.stats().unknown_session, 1);
    assert_eq!(b.poll(1, 1, 3), Ok(()), "the session continues at its address");
    assert_eq!(b.observer.stats().unknown_session, 1);
}
