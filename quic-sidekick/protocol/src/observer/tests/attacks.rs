//! Attacks from off the path: the attacker knows both endpoints of the flow, sends anything from
//! any address, and receives only the answers to its own address.

use super::*;
use std::net::Ipv4Addr;

const VICTIM: &str = "203.0.113.80:53";

fn victim() -> SocketAddr {
    VICTIM.parse().unwrap()
}

/// The proxy's addresses, one announced for each family.
fn both_families() -> Addresses {
    let own: [IpAddr; 2] = ["192.0.2.254".parse().unwrap(), "2001:db8::fe".parse().unwrap()];
    Addresses {
        announced: own.map(|ip| (0, SocketAddr::new(ip, 5252))).to_vec(),
        local: own.to_vec(),
        broadcast: vec!["192.0.2.255".parse().unwrap()],
        loopback: Vec::new(),
    }
}

/// Every kind of datagram that an attacker can make without keys.
fn datagrams(b: &Bench) -> Vec<Vec<u8>> {
    let (session, flow) = (SessionNumber(77), b.flow);
    let mut made = Vec::new();
    let mut emit = |datagram: Datagram<'_>| {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let len = datagram.emit(&mut buffer).unwrap();
        made.push(buffer[..len].to_vec());
    };
    for cookie in [Cookie::NONE, Cookie([0x5a; Cookie::LEN])] {
        for claimed in [flow, Flow { source: "0.0.0.0:4000".parse().unwrap(), ..flow }] {
            let terms = Terms::default();
            let (_, message) = Initiator::begin(None, session, &claimed, &terms, [1; 32]).unwrap();
            let (pattern, handshake) = (Pattern::Unpinned, message.bytes());
            emit(Datagram::Hello(Hello { session, flow: claimed, cookie, pattern, handshake }));
        }
    }
    for (number, len) in [(0, 17), (0, 60), (1 << 20, 1000), (u32::MAX, 40)] {
        let (session, sequence) = (SessionNumber(number), 9);
        emit(Datagram::Sealed { session, sequence, ciphertext: &vec![3; len] });
    }
    emit(Datagram::UnknownSession { session });
    emit(Datagram::Refuse { session, echo: [0; ECHO_LEN], why: Refusal::Full });
    emit(Datagram::Retry { session, echo: [0; ECHO_LEN], cookie: Cookie([1; Cookie::LEN]) });
    emit(Datagram::Accept { session, handshake: &[4; 116] });
    made
}

/// SPEC.md, section 6.2: a peer without a proof receives no more bytes than it sends, and leaves no
/// state.
#[test]
fn unproven_peers_get_no_more_bytes_than_they_send_and_leave_no_state() {
    let mut b = bench(ObserverConfig::default());
    for datagram in datagrams(&b) {
        for from in [victim(), b.flow.source, peer()] {
            assert!(b.observer.handle_input(from, &datagram, b.now).is_err());
            let mut drawn = 0;
            while let Some((transmit, bytes)) = b.next_sent() {
                let route = Route::Stranger { interface: None };
                assert_eq!((transmit.destination, transmit.route), (from, route));
                drawn += bytes.len();
            }
            assert!(drawn <= datagram.len(), "{drawn} bytes for {}", datagram.len());
        }
    }
    b.observer.set_addresses(both_families());
    let v4 = Flow { source: victim(), ..b.flow };
    let v6 = Flow {
        source: "[2001:db8::53]:53".parse().unwrap(),
        destination: "[2001:db8:1::7]:443".parse().unwrap(),
    };
    let mut nonce = 0;
    for flow in [v4, v6] {
        for reply in [Reply::Path, Reply::Adjacent(53)] {
            (b.flow, nonce) = (flow, nonce + 1);
            let (transmit, _) = b.mark(nonce, reply).unwrap();
            assert!(transmit.size <= MARKER_LEN && transmit.destination == flow.source);
            assert_eq!(b.next_sent(), None, "one answer for one marker");
        }
    }
    assert_eq!((b.observer.sessions(), b.observer.stats().sessions_opened), (0, 0));
    assert!(b.observer.waiting.capacity() <= 4096);
}

/// A valid cookie for the attacker's own address opens no session for another's flow.
#[test]
fn a_cookie_opens_no_session_for_another_flow() {
    let mut b = bench(ObserverConfig::default());
    let own = "203.0.113.66:6666".parse().unwrap();
    // The attacker's cookie and our flow.
    assert_eq!(
        b.hello_of(own, 1, Terms::default()),
        Err(HandleError::Refused(RefusalCause::OtherSource))
    );
    let (_, bytes) = b.next_sent().unwrap();
    assert!(matches!(Datagram::parse(&bytes), Ok(Datagram::Refuse { why: Refusal::Taken, .. })));
    // The attacker's cookie and our address.
    assert_eq!(b.hello_from(peer(), 1, Terms::default()).0, Err(HandleError::Unproven));
    assert!(
        b.next_sent().is_some_and(|(transmit, _)| transmit.destination == peer()),
        "the cookie for it goes there"
    );
    // The cookie of a marker on the attacker's path and our flow.
    let ours = b.flow;
    b.flow.source = own;
    b.cookie = b.mark(1, Reply::Path).unwrap().1.cookie;
    b.flow = ours;
    assert_eq!(b.hello_from(own, 1, Terms::default()).0, Err(HandleError::Unproven));
    assert_eq!(b.observer.sessions(), 0);
}

/// Another program behind the same NAT shares our address, but not our path.
#[test]
fn a_shared_address_takes_no_flow_whose_path_was_proven() {
    let mut b = bench(ObserverConfig::default());
    b.hello_along_path(1).unwrap();
    b.poll(1, 1, 1).unwrap();
    assert!(b.next_sent().is_some());

    let neighbour = "192.0.2.1:6000".parse().unwrap();
    assert_eq!(
        b.hello_of(neighbour, 2, Terms::default()),
        Err(HandleError::Refused(RefusalCause::Taken))
    );
    while b.next_sent().is_some() {}
    b.capture(7, 0);
    b.poll(1, 1, 2).unwrap();
    assert_eq!(b.with_quack(1, |quack| quack.count), Some(1));
}

/// The attacker has also recorded every message, and repeats or alters them.
#[test]
fn replayed_and_altered_datagrams_change_nothing() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms::default());
    let mut buffer = [0; MAX_DATAGRAM_LEN];
    let (session, seal) = b.seals.get_mut(&1).unwrap();
    let len =
        seal.seal(Link::First, *session, &Message::NewEpoch { epoch: 1 }, &mut buffer).unwrap();
    for byte in 5..len {
        let mut forged = buffer;
        forged[byte] ^= 0x10;
        let outcome = b.observer.handle_input(peer(), &forged[..len], b.now);
        assert!(matches!(outcome, Err(HandleError::Forged)), "byte {byte}: {outcome:?}");
    }
    assert_eq!(b.observer.handle_input(peer(), &buffer[..len], b.now), Ok(()));
    assert!(b.next_sent().is_some_and(|(transmit, _)| transmit.destination == peer()));
    assert_eq!(b.observer.handle_input(peer(), &buffer[..len], b.now), Err(HandleError::Replay));
    assert_eq!(b.next_sent(), None);
    assert_eq!(
        b.observer.handle_input(victim(), &buffer[..len], b.now),
        Err(HandleError::UnknownSession)
    );
    assert!(b.next_sent().is_some_and(|(transmit, _)| transmit.size < len));
    assert_eq!(b.next_sent(), None);
}

/// SPEC.md, section 6.1: an answer goes only where a sender on the marker's interface can be.
#[test]
fn markers_with_impossible_addresses_are_not_answered() {
    let mut b = bench(ObserverConfig::default());
    b.observer.set_addresses(both_families());
    let (source, destination) = (b.flow.source, b.flow.destination);
    let mut nonce = 0;
    for bad in ["127.0.0.1:53", "0.0.0.0:53", "192.0.2.254:53", "192.0.2.255:53", "224.0.0.251:53"]
    {
        let bad = bad.parse().unwrap();
        for flow in [Flow { source: bad, destination }, Flow { source, destination: bad }] {
            for reply in [Reply::Path, Reply::Adjacent(53)] {
                (b.flow, nonce) = (flow, nonce + 1);
                assert_eq!(b.mark(nonce, reply), None, "{flow:?}");
            }
        }
    }
    assert_eq!(b.observer.stats().markers_refused, u64::from(nonce));
    b.flow = Flow { source, destination };
    let (transmit, _) = b.mark(nonce + 1, Reply::Path).unwrap();
    let route = Route::Path { source: destination, interface: Some(0) };
    assert_eq!(transmit.route, route, "it leaves where the marker arrived");
}

/// An answer contains nothing that an attacker chose but the addresses.
#[test]
fn an_answer_contains_no_bytes_of_an_attackers_choice() {
    let mut b = bench(ObserverConfig::default());
    for reply in [Reply::Path, Reply::Adjacent(53)] {
        let (handle, nonce) = (*b"twenty bytes of text", *b"and sixteen more");
        let mut buffer = [0; MARKER_LEN];
        Marker { handle, nonce, reply }.emit(&mut buffer).unwrap();
        b.observer.observe(&b.flow, 0, Payload::whole(&buffer), b.now);
        let Some((_, bytes)) = b.next_sent() else { continue };
        for text in [&handle[..], &nonce[..]] {
            let repeated =
                bytes.windows(4).filter(|window| text.windows(4).any(|part| part == *window));
            assert_eq!(repeated.count(), 0, "{bytes:?}");
        }
        let answer = Answer::parse(&bytes).unwrap();
        assert_eq!((answer.handle, answer.nonce), (handle, nonce), "the flow's sender can read it");
    }
}

/// SPEC.md, section 6.1: a flood of markers causes answers at a fixed rate, to one address and to
/// all.
#[test]
fn a_flood_of_markers_draws_answers_at_a_fixed_rate() {
    let drawn = |sources: u32| {
        let mut b = bench(ObserverConfig::default());
        let mut bytes = 0;
        let seconds = 10;
        for number in 0..20_000 * seconds {
            b.flow.source = SocketAddr::from((Ipv4Addr::from(0x0a00_0001 + number % sources), 53));
            let mut buffer = [0; MARKER_LEN];
            let nonce = u128::from(number).to_be_bytes();
            Marker { handle: [3; 20], nonce, reply: Reply::Path }.emit(&mut buffer).unwrap();
            b.observer.observe(&b.flow, 0, Payload::whole(&buffer), b.now);
            while let Some((transmit, _)) = b.next_sent() {
                bytes += transmit.size;
            }
            b.now += Duration::from_secs(1) / 20_000;
        }
        let stats = b.observer.stats();
        assert_eq!(stats.markers + stats.markers_deferred, 20_000 * u64::from(seconds));
        bytes / usize::try_from(seconds).unwrap()
    };
    // 20 and 250 answers per second over ten seconds, plus the bursts.
    assert!(drawn(1) <= (20 + 7) * MARKER_LEN);
    assert!(drawn(10_000) <= (250 + 26) * MARKER_LEN);
}

/// A neighbour uses up all sessions of the address, and cannot prove a path.
#[test]
fn a_sender_with_a_proven_path_displaces_one_without() {
    let limit = 4;
    let mut b =
        bench(ObserverConfig { max_sessions_per_source: limit, ..ObserverConfig::default() });
    let neighbour: SocketAddr = "192.0.2.1:6000".parse().unwrap();
    let taken: Vec<u16> = (7001..).take(limit).collect();
    for port in &taken {
        b.flow.source.set_port(*port);
        b.hello_of(neighbour, (*port).into(), Terms::default()).unwrap();
        // All but the last are confirmed.
        if port != taken.last().unwrap() {
            b.send_from(
                neighbour,
                (*port).into(),
                Message::Poll(Poll { epoch: 1, token: 1, sums: 0 }),
            )
            .unwrap();
        }
        while b.next_sent().is_some() {}
    }
    b.flow.source.set_port(4000);
    assert_eq!(
        b.hello(1, Terms::default()).map(drop),
        Err(HandleError::Refused(RefusalCause::SessionsOfSource)),
        "no stronger proof than the sender's"
    );
    while b.next_sent().is_some() {}
    for number in 1..=u32::try_from(limit).unwrap() {
        b.flow.source.set_port(4000 + u16::try_from(number).unwrap());
        b.hello_along_path(number).unwrap();
        b.observer.table.check();
        assert_eq!(b.observer.sessions(), limit);
    }
    let stayed = taken.iter().filter(|port| {
        let session = b.seals[&u32::from(**port)].0;
        b.observer.table.by_number(session).is_some()
    });
    assert_eq!(stayed.count(), 0);
    b.flow.source.set_port(4999);
    assert_eq!(
        b.hello_along_path(99),
        Err(HandleError::Refused(RefusalCause::SessionsOfSource)),
        "those have an equal proof"
    );
}

/// The sender with the proven path is still unconfirmed: its first sealed message is in flight.
#[test]
fn an_unconfirmed_session_with_a_proven_path_keeps_its_flow() {
    let neighbour = "192.0.2.1:6000".parse().unwrap();
    let poll = Message::Poll(Poll { epoch: 1, token: 1, sums: 0 });
    // The attacker comes after it, or before.
    for before in [false, true] {
        let mut b = bench(ObserverConfig::default());
        if before {
            b.hello_of(neighbour, 2, Terms::default()).unwrap();
        }
        b.hello_along_path(1).unwrap();
        if before {
            b.send_from(neighbour, 2, poll).unwrap();
        } else {
            assert_eq!(
                b.hello_of(neighbour, 2, Terms::default()),
                Err(HandleError::Refused(RefusalCause::Taken))
            );
        }
        b.observer.table.check();
        while b.next_sent().is_some() {}
        assert_eq!(
            b.capture(7, 0),
            Observed::NoSession,
            "no session counts yet; attacker first: {before}"
        );
        b.poll(1, 1, 2).unwrap();
        assert_eq!(b.capture(8, 0), Observed::Counted);
        b.observer.table.check();
    }
    // Without its first message the flow is free again.
    let mut b = bench(ObserverConfig::default());
    b.hello_along_path(1).unwrap();
    b.now += PROOF_TIMEOUT;
    b.observer.on_timeout(b.now);
    b.observer.table.check();
    b.hello_of(neighbour, 2, Terms::default()).unwrap();
    b.send_from(neighbour, 2, poll).unwrap();
    assert_eq!(b.capture(7, 0), Observed::Counted);
}

/// An attacker with a thousand sessions cannot predict the number of the next, and gets no more
/// bytes than it sends by trying.
#[test]
fn session_numbers_are_unpredictable() {
    let numbers = |seed: u8| {
        let mut observer = Observer::new(ObserverConfig::default(), [seed; 32]).unwrap();
        (0..1000).map(|_| observer.numbers.next_u32()).collect::<Vec<u32>>()
    };
    let (ours, others) = (numbers(1), numbers(2));
    assert_eq!(ours.iter().filter(|number| others.contains(number)).count(), 0);
    // No difference of two numbers repeats, as it would with a counter or a linear generator.
    let steps: Vec<u32> = ours.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    let mut distinct = steps.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), steps.len());

    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms::default());
    let (stats, ciphertext) = (*b.observer.stats(), [3; 40]);
    let known = b.seals[&1].0;
    let mut draw = |session: SessionNumber, from: SocketAddr| {
        let outcome = b
            .receive_from(from, Datagram::Sealed { session, sequence: 1, ciphertext: &ciphertext });
        let drawn = b.next_sent().map_or(0, |(_, bytes)| bytes.len());
        (outcome, drawn)
    };
    for guess in ours.into_iter().map(SessionNumber).filter(|guess| *guess != known) {
        for from in [victim(), peer()] {
            let (outcome, drawn) = draw(guess, from);
            assert!(outcome == Err(HandleError::UnknownSession) && drawn < ciphertext.len());
        }
    }
    // The right number from the right address also needs a key.
    assert_eq!(draw(known, peer()), (Err(HandleError::Forged), 0));
    assert_eq!(b.observer.stats().forged, stats.forged + 1);
    assert_eq!(b.poll(1, 1, 9), Ok(()), "the session continues");
}
