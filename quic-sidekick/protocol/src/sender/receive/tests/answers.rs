//! What a proxy answers, and which of its answers count.

use super::*;

impl Download {
    /// The proxy's answers to a request for these ranges, which the sender did not make. Returns
    /// their number, and the bytes of copies.
    fn ask(&mut self, ranges: &[Range]) -> (usize, usize) {
        let message = Message::Request(Request { number: 1, ranges: Ranges::new(ranges) });
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let session = self.sender.sessions[0].established_mut().unwrap();
        let len = session.seal_for_test(&message, &mut buffer);
        let peer = Peer::from(PEER.parse::<SocketAddr>().unwrap());
        let _ = self.proxy.handle_input(peer, &buffer[..len], self.now);
        let mut answers = (0, 0);
        while let Some(transmit) = self.proxy.poll_transmit(&mut buffer) {
            let is_copy = buffer[0] & 0x0f == 7;
            answers = (answers.0 + 1, answers.1 + if is_copy { transmit.size } else { 0 });
        }
        answers
    }
}

#[test]
fn requests_draw_no_more_bytes_than_the_share() {
    let mut download = Download::new(keeping(), 3, 0);
    download.run(100 * MS);
    download.stream(0, 100, MS, &[]);
    download.run(101 * MS);
    let all = [Range::new(None, None); 16];
    let mut drawn = 0;
    for _ in 0..100_000 {
        drawn += download.ask(&all).1;
        download.now += MS / 100;
    }
    // The share is the bytes that passed, and a grant.
    let share = 100 * 1200 + (64 << 10);
    assert!((share * 9 / 10..=share).contains(&drawn), "{drawn} of {share}");
}

#[test]
fn unknown_datagrams_are_not_answered() {
    let mut download = Download::new(keeping(), 3, 0);
    download.run(100 * MS);
    download.stream(0, 100, MS, &[]);
    download.run(101 * MS);
    // While the proxy keeps all that passed, the first may have passed before.
    let from_before = |before| Range::new(Some(5000), Some(before));
    assert_eq!(download.ask(&[from_before(3)]).0, 3);
    assert_eq!(download.ask(&[from_before(0)]).0, 1, "NOTHING");
    for (after, before) in [(50, 5000), (50, 49), (5000, 5001)] {
        let range = Range::new(Some(after), Some(before));
        assert_eq!(download.ask(&[range]), (0, 0));
    }
    let known = Range::new(Some(49), Some(51));
    assert_eq!(download.ask(&[known]).0, 1);
    assert_eq!(download.ask(&[Range { before: Some(50), ..known }]).0, 1, "NOTHING");
    // Later, the first copies are too old.
    download.stream(100, 150, MS, &[]);
    download.run(151 * MS);
    assert_eq!(download.ask(&[from_before(249)]), (0, 0));
    assert_eq!(download.ask(&[Range::new(Some(247), Some(249))]).0, 1);
}

#[test]
fn a_new_epoch_drops_the_copies() {
    let mut download = Download::new(keeping(), 3, 0);
    download.run(100 * MS);
    download.stream(0, 100, MS, &[]);
    download.run(101 * MS);
    assert!(download.proxy.copies_bytes() > 0);
    let now = download.now;
    if let (State::Established(session), _) =
        download.sender.sessions[0].split(&mut download.sender.effects, now)
    {
        session.renew(now);
    }
    download.drain();
    download.run(5 * MS);
    assert_eq!(download.proxy.copies_bytes(), 0);
    assert!(download.sender.is_kept(), "the proxy keeps later copies");
}

#[test]
fn copies_are_dropped_after_their_age() {
    let mut download = Download::new(keeping(), 3, 0);
    download.run(100 * MS);
    download.stream(0, 100, MS, &[]);
    download.run(100 * MS);
    assert!(download.proxy.copies_bytes() > 0);
    download.run(210 * MS);
    assert_eq!(download.proxy.copies_bytes(), 0);
    assert!(download.proxy.keeps_copies());
    // Where datagrams are far apart, no TAIL is due before.
    download.stream(100, 10, 100 * MS, &[]);
    download.run(1000 * MS);
    assert!(download.proxy.copies_bytes() > 0);
    download.run(310 * MS);
    assert_eq!(download.proxy.copies_bytes(), 0);
}

#[test]
fn a_cookie_that_expired_is_replaced() {
    let mut download = Download::new(keeping(), 3, 0);
    while !download.proxy.keeps_copies() {
        download.run(MS / 10);
    }
    // KEPT is lost, and so are all messages until the cookie expires.
    download.events.clear();
    download.loss_percent = 100;
    download.run(35_000 * MS);
    assert!(!download.sender.is_kept());
    assert_eq!(download.proxy.stats().keeps_unproven, 1);
    download.loss_percent = 0;
    download.run(2000 * MS);
    assert!(download.sender.is_kept());
    // A KEEP with a cookie leaves twice.
    assert_eq!(download.proxy.stats().keeps_unproven, 3);
}

#[test]
fn an_answer_without_the_nonce_of_the_keep_is_dropped() {
    let mut download = Download::new(keeping(), 3, 0);
    download.run(3 * MS);
    download.answers_arrive = false;
    let forged = loop {
        download.run(MS / 10);
        let answer = download.events.iter().find_map(|Reverse((.., event))| match event {
            Event::Answer(bytes) => Answer::parse(bytes).ok(),
            _ => None,
        });
        if let Some(answer) = answer {
            break answer;
        }
    };
    for nonce in [[0; 16], forged.nonce] {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let len = Answer { nonce, ..forged }.emit(&mut buffer).unwrap();
        let outcome = download.sender.handle_on_path(&buffer[..len], download.now);
        assert_eq!(outcome.is_ok(), nonce == forged.nonce);
        download.drain();
        download.run(1000 * MS);
        assert_eq!(download.sender.is_kept(), nonce == forged.nonce);
    }
}

/// The proxy sends KEPT and copies that the sender did not request.
#[test]
fn copies_that_the_sender_did_not_ask_for_are_refused() {
    let mut download = Download::new(keeping(), 3, 0);
    download.sender = Sender::new(SenderConfig::of(PROXY.parse().unwrap()), key(9));
    download.sender.start(download.flow, download.now);
    download.events.clear();
    download.drain();
    // Its HELLO has the sender's session number.
    let hello = download.events.pop().map(|Reverse((_, _, event))| event);
    let Some(Event::ToProxy(hello)) = hello else { panic!("{hello:?}") };
    let session = SessionNumber(u32::from_be_bytes(*hello[1..].first_chunk().unwrap()));
    download.run(200 * MS);
    let now = download.now;
    let Sender { sessions, effects, .. } = &mut download.sender;
    let (State::Established(established), mut context) = sessions[0].split(effects, now) else {
        panic!("no session")
    };
    for message in [Message::Kept { age_ms: 300 }, Message::Tail { last: 1, passed: 1 }] {
        established.on_message(message, 1000, 30, &mut context).unwrap();
    }
    assert!(!download.sender.is_kept());
    assert!(!download.sender.request_copies(1, Some(1), 3, now + 100 * MS, now));
    let mut buffer = [0; MAX_DATAGRAM_LEN];
    assert!(download.sender.poll_transmit(&mut buffer).is_none());
    for number in [1, 2, u16::MAX] {
        let datagram = &datagram(2);
        let (range, index, total, part) = (0, 0, 1, Part::Whole);
        let copy = Repeat { session, number, range, index, total, part, datagram };
        let len = Datagram::Repeat(copy).emit(&mut buffer).unwrap();
        let outcome = download.sender.handle_input(PROXY.parse().unwrap(), &buffer[..len], now);
        assert_eq!(outcome, Err(HandleError::Outdated));
    }
    assert_eq!(download.sender.stats().repeats_received, 0);
}

/// While the near segment is congested, the peer must detect the losses.
#[test]
fn a_sender_that_pauses_requests_nothing() {
    let mut download = Download::new(keeping(), 3, 0);
    download.run(100 * MS);
    download.stream(0, 100, MS, &[]);
    download.run(50 * MS);
    download.loss_percent = 100;
    download.run(2 * MS);
    download.loss_percent = 0;
    download.sender.set_fetching(false);
    download.run(200 * MS);
    assert!(download.proxy.stats().tails_sent > 0);
    assert_eq!((download.proxy.stats().requests, download.copies), (0, 0));
    assert!(download.gaps.is_empty(), "no request for the gap was made");
    download.sender.set_fetching(true);
    assert!(download.sender.request_copies(9, Some(40), 60, download.now + 100 * MS, download.now));
    download.sender.set_fetching(false);
    download.drain();
    download.run(100 * MS);
    assert_eq!(download.proxy.stats().requests, 0, "the sender drops the waiting request");
}

/// An attacker that knows the session number can send a REPEAT, so a REPEAT does not show that the
/// proxy still holds the session.
#[test]
fn a_copy_does_not_refute_a_claim() {
    let mut download = Download::new(keeping(), 3, 0);
    download.run(100 * MS);
    download.stream(0, 3, MS, &[]);
    download.run(2 * MS);
    download.sender.request_copies(9, Some(0), 2, download.now + 100 * MS, download.now);
    download.drain();
    let numbers = |download: &Download| {
        let sent = download.events.iter().find_map(|Reverse((.., event))| match event {
            Event::ToProxy(bytes) => Some(bytes.clone()),
            _ => None,
        });
        SessionNumber(u32::from_be_bytes(*sent.unwrap()[1..].first_chunk().unwrap()))
    };
    let at_proxy = numbers(&download);
    while download.proxy.stats().repeats_sent == 0 {
        download.run(MS / 10);
    }
    let copy = download.events.iter().find_map(|Reverse((.., event))| match event {
        Event::ToSender(bytes) if bytes[0] & 0x0f == 7 => Some(bytes.clone()),
        _ => None,
    });
    let copy = copy.unwrap();
    download.events.clear();
    // From now on only claims and copies arrive.
    download.loss_percent = 100;
    let mut claim = [0; 5];
    Datagram::UnknownSession { session: at_proxy }.emit(&mut claim).unwrap();
    let from = PROXY.parse().unwrap();
    download.sender.handle_input(from, &claim, download.now).unwrap();
    for _ in 0..200 {
        download.run(MS);
        let _ = download.sender.handle_input(from, &copy, download.now);
    }
    assert!(!download.sender.is_kept(), "the sender believes the claim");
}
