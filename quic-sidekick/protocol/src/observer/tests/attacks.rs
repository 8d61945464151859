//! What somebody tries who is not on the path: he knows both ends of the flow, sends anything from any address, and sees
//! none of the answers that do not come to him.

use super::*;

const VICTIM: &str = "203.0.113.80:53";

fn victim() -> SocketAddr {
    VICTIM.parse().unwrap()
}

/// Every kind of datagram that can be made without keys.
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

/// SPEC.md, section 6.2: nobody draws more bytes from the proxy than he sends, and nothing is kept for him.
#[test]
fn strangers_draw_no_more_bytes_than_they_send_and_leave_no_state() {
    let mut b = bench(ObserverConfig::default());
    for datagram in datagrams(&b) {
        for from in [victim(), b.flow.source, peer()] {
            assert!(b.observer.handle(from, &datagram, b.now).is_err());
            let mut drawn = 0;
            while let Some((transmit, bytes)) = b.heard() {
                assert_eq!((transmit.to, transmit.from), (from, None));
                drawn += bytes.len();
            }
            assert!(drawn <= datagram.len(), "{drawn} bytes for {}", datagram.len());
        }
    }
    b.observer.announce(0, "[2001:db8::fe]:5252".parse().unwrap());
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
            assert!(transmit.len <= MARKER_LEN && transmit.to == flow.source);
            assert_eq!(b.heard(), None, "one answer for one marker");
        }
    }
    assert_eq!((b.observer.sessions(), b.observer.stats().sessions_opened), (0, 0));
    assert!(b.observer.waiting.capacity() <= 4096);
}

/// A cookie that he was given, for an address that is his, opens nothing for somebody else's flow.
#[test]
fn a_session_is_for_one_s_own_flow() {
    let mut b = bench(ObserverConfig::default());
    let own = "203.0.113.66:6666".parse().unwrap();
    // His own cookie, and our flow.
    assert_eq!(b.hello_of(own, 1, Terms::default()), Err(HandleError::Refused));
    let (_, bytes) = b.heard().unwrap();
    assert!(matches!(Datagram::parse(&bytes), Ok(Datagram::Refuse { why: Refusal::Taken, .. })));
    // His own cookie, and our address.
    assert_eq!(b.hello_from(peer(), 1, Terms::default()).0, Err(HandleError::Unproven));
    assert!(b.heard().is_some_and(|(transmit, _)| transmit.to == peer()), "the cookie for it goes there");
    // The cookie of a marker through his own path, and our flow.
    let ours = b.flow;
    b.flow.source = own;
    b.cookie = b.mark(1, Reply::Path).unwrap().1.cookie;
    b.flow = ours;
    assert_eq!(b.hello_from(own, 1, Terms::default()).0, Err(HandleError::Unproven));
    assert_eq!(b.observer.sessions(), 0);
}

/// Another program behind the same NAT has our address, but not our path.
#[test]
fn a_flow_that_was_proven_along_its_path_is_not_taken_by_who_only_shares_the_address() {
    let mut b = bench(ObserverConfig::default());
    b.cookie = b.mark(1, Reply::Path).unwrap().1.cookie;
    let (outcome, mut initiator) = b.hello_from(peer(), 1, Terms::default());
    outcome.unwrap();
    let (_, bytes) = b.heard().unwrap();
    let Datagram::Accept { handshake, .. } = Datagram::parse(&bytes).unwrap() else { panic!() };
    let accept = initiator.read(handshake).unwrap();
    b.seals.insert(1, (accept.session, initiator.finish().unwrap().0));
    b.poll(1, 1, 1).unwrap();
    assert!(b.heard().is_some());

    let neighbour = "192.0.2.1:6000".parse().unwrap();
    assert_eq!(b.hello_of(neighbour, 2, Terms::default()), Err(HandleError::Refused));
    while b.heard().is_some() {}
    b.see(7, 0);
    b.poll(1, 1, 2).unwrap();
    assert_eq!(b.with_quack(1, |quack| quack.count), Some(1));
}

/// He has seen everything that was ever said, too, and repeats it or changes it.
#[test]
fn what_was_said_before_or_is_altered_changes_nothing() {
    let mut b = bench(ObserverConfig::default());
    b.open(1, Terms::default());
    let mut buffer = [0; MAX_DATAGRAM_LEN];
    let (session, seal) = b.seals.get_mut(&1).unwrap();
    let len = seal.seal(*session, &Message::NewEpoch { epoch: 1 }, &mut buffer).unwrap();
    for byte in 5..len {
        let mut forged = buffer;
        forged[byte] ^= 0x10;
        let outcome = b.observer.handle(peer(), &forged[..len], b.now);
        assert!(matches!(outcome, Err(HandleError::Forged)), "byte {byte}: {outcome:?}");
    }
    assert_eq!(b.observer.handle(peer(), &buffer[..len], b.now), Ok(()));
    assert!(b.heard().is_some_and(|(transmit, _)| transmit.to == peer()));
    assert_eq!(b.observer.handle(peer(), &buffer[..len], b.now), Err(HandleError::Replay));
    assert_eq!(b.heard(), None);
    assert_eq!(b.observer.handle(victim(), &buffer[..len], b.now), Err(HandleError::UnknownSession));
    assert!(b.heard().is_some_and(|(transmit, _)| transmit.len < len));
    assert_eq!(b.heard(), None);
}
