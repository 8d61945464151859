//! Copies of the reverse flow: the right to ask for them, and their bounds (SPEC.md, section 6.8).

mod grant;
mod neighbours;
mod pace;
mod reload;

use super::*;
use crate::wire::{Keep, Range, Ranges, Request};

const MS: Duration = Duration::from_millis(1);
/// The grant of a session's share of copies, and that of its share of messages.
const GRANTS: [usize; 2] = [64 << 10, 16 << 10];

fn keeping() -> ObserverConfig {
    ObserverConfig { keep_bytes: 8 << 20, keep_bytes_per_session: 1 << 20, ..Default::default() }
}

fn keep(cookie: Cookie, nonce: u8) -> Message<'static> {
    Message::Keep(Keep { age_ms: 500, handle: [3; 20], nonce: [nonce; 16], cookie })
}

/// A datagram of the reverse flow. Its last four bytes are its identifier.
fn datagram(identifier: u32) -> Vec<u8> {
    let mut datagram = vec![0x41; 1000];
    datagram[996..].copy_from_slice(&identifier.to_be_bytes());
    datagram
}

const ALL: Range = Range::new(None, None);

fn between(after: u32, before: u32) -> Range {
    Range::new(Some(after), Some(before))
}

impl Bench {
    /// Lets datagrams of the reverse flow pass. Returns how many of them the observer kept.
    fn pass(&mut self, identifiers: impl IntoIterator<Item = u32>) -> usize {
        let reverse = Flow { source: self.flow.destination, destination: self.flow.source };
        let now = self.now;
        let mut kept = |id| self.observer.keep(&reverse, 0, &datagram(id), now);
        identifiers.into_iter().filter(|id| kept(*id)).count()
    }

    /// The cookie that the observer sends to the flow's own port for a KEEP.
    fn keep_cookie(&mut self, from: SocketAddr, number: u32) -> Option<Cookie> {
        let asked = self.send_from(from, number, keep(Cookie::NONE, 9));
        assert_eq!(asked, Err(HandleError::Unproven));
        let (transmit, bytes) = self.next_sent()?;
        let route = Route::Path { source: self.flow.destination, interface: None };
        assert_eq!((transmit.destination, transmit.route), (self.flow.source, route));
        Some(Answer::parse(&bytes).unwrap().cookie)
    }

    /// Proves that the session's sender receives the reverse flow. The observer keeps copies then.
    fn prove(&mut self, from: SocketAddr, number: u32) {
        let cookie = self.keep_cookie(from, number).unwrap();
        self.send_from(from, number, keep(cookie, 9)).unwrap();
        let kept = self.with_message(number, |message| matches!(message, Message::Kept { .. }));
        assert_eq!(kept, Some(true));
    }

    /// Opens a session that keeps copies.
    fn open_keeping(&mut self, number: u32) {
        self.open(number, Terms::default());
        self.prove(peer(), number);
    }

    fn request(&mut self, number: u32, ranges: &[Range]) -> Result<(), HandleError> {
        self.send(number, Message::Request(Request { number: 7, ranges: Ranges::new(ranges) }))
    }

    /// All waiting datagrams: the identifiers of copies, and the bytes of copies and of the others.
    fn drawn(&mut self) -> (Vec<u32>, [usize; 2]) {
        let (mut copies, mut bytes) = (Vec::new(), [0; 2]);
        while let Some((transmit, sent)) = self.next_sent() {
            assert_eq!((transmit.destination, transmit.route), (peer(), Route::Session));
            match Datagram::parse(&sent).unwrap() {
                Datagram::Repeat(copy) => {
                    let identifier = u32::from_be_bytes(*copy.datagram.last_chunk().unwrap());
                    assert_eq!(copy.datagram, datagram(identifier));
                    copies.push(identifier);
                    bytes[0] += sent.len();
                }
                Datagram::Sealed { .. } => bytes[1] += sent.len(),
                other => panic!("{other:?}"),
            }
        }
        (copies, bytes)
    }
}

#[test]
fn copies_between_two_datagrams_are_repeated_in_order() {
    let mut b = bench(keeping());
    b.open_keeping(1);
    assert_eq!(b.pass(100..150), 50);
    b.request(1, &[between(110, 114), between(148, 149), between(130, 132)]).unwrap();
    let (copies, [_, messages]) = b.drawn();
    assert_eq!(copies, [111, 112, 113, 131]);
    assert!(messages > 0, "NOTHING for the second range");
    b.request(1, &[Range::new(Some(147), None)]).unwrap();
    assert_eq!(b.drawn().0, [148, 149]);
    b.request(1, &[Range::new(None, Some(103))]).unwrap();
    assert_eq!(b.drawn().0, [100, 101, 102]);
    assert_eq!(b.observer.stats().repeats_sent, 9);
}

/// A proxy that captures what leaves sees its own answers.
#[test]
fn answers_and_markers_are_not_kept() {
    let mut b = bench(keeping());
    b.open_keeping(1);
    let (reverse, now) = (b.flow.reversed(), b.now);
    let mut keep = |datagram: &[u8]| b.observer.keep(&reverse, 0, datagram, now);
    let mut bytes = [0; 200];
    let (handle, nonce, reply) = ([1; 20], [2; 16], Reply::Path);
    let len = Marker { handle, nonce, reply }.emit(&mut bytes).unwrap();
    assert!(!keep(&bytes[..len]));
    let (proxy, flow, cookie) = (peer(), reverse, Cookie([3; 20]));
    let len = Answer { handle, nonce, proxy, flow, cookie }.emit(&mut bytes).unwrap();
    assert!(!keep(&bytes[..len]));
    assert!(keep(&datagram(7)));
}

/// A batch is kept as its datagrams one by one, whatever flows it mixes.
#[test]
fn a_batch_is_kept_like_its_datagrams() {
    let mut b = bench(keeping());
    let ours = b.flow;
    b.open_keeping(1);
    b.flow.source.set_port(4001);
    b.open_keeping(2);
    let [first, second] = [ours, b.flow].map(|flow| flow.reversed());
    let mut nobody = first;
    nobody.destination.set_port(4009);
    let datagrams: Vec<_> = (0..100).map(datagram).collect();
    let flows = [first, second, nobody, first].into_iter().cycle();
    let mut seen: Vec<_> = flows
        .zip(&datagrams)
        .map(|(flow, datagram)| Seen { flow, payload: Payload::whole(datagram) })
        .collect();
    // A datagram that the capture truncated is not kept.
    seen[4].payload = Payload::cut(&datagrams[4][..100], 1000);
    let now = b.now;
    b.observer.keep_all(&seen, 0, now);
    assert_eq!(b.observer.stats().kept, 74);
    b.request(1, &[between(0, 8)]).unwrap();
    assert_eq!(b.drawn().0, [3, 7]);
    b.request(2, &[between(1, 9)]).unwrap();
    assert_eq!(b.drawn().0, [5]);
}

/// A cookie for the address, one for the path, and one of another flow prove less.
#[test]
fn only_a_cookie_that_went_to_the_flows_own_port_proves_a_keep() {
    let mut b = bench(keeping());
    let ours = b.flow;
    b.open(1, Terms::default());
    b.flow.source.set_port(4001);
    b.open(2, Terms::default());
    let foreign = b.keep_cookie(peer(), 2).unwrap();
    b.flow = ours;
    b.obtain_cookie(peer());
    let path = b.mark(1, Reply::Path).unwrap().1.cookie;
    for cookie in [Cookie::NONE, b.cookie, path, foreign, Cookie([7; Cookie::LEN])] {
        assert_eq!(b.send(1, keep(cookie, 9)), Err(HandleError::Unproven));
        assert!(b.next_sent().is_some_and(|(sent, _)| sent.destination == ours.source));
        assert_eq!(b.pass(0..10), 0, "{cookie:?}");
    }
    assert!(!b.observer.keeps_copies());
    let right = b.keep_cookie(peer(), 1).unwrap();
    b.now += Duration::from_secs(31);
    assert_eq!(b.send(1, keep(right, 9)), Err(HandleError::Unproven), "it has expired");
    b.drawn_along_path();
    b.prove(peer(), 1);
    assert_eq!(b.pass(0..10), 10);
}

impl Bench {
    /// The bytes of the waiting answers, which go to the flow's own port.
    fn drawn_along_path(&mut self) -> usize {
        let mut bytes = 0;
        while let Some((transmit, sent)) = self.next_sent() {
            assert_eq!(transmit.destination, self.flow.source);
            assert!(Answer::parse(&sent).is_ok());
            bytes += sent.len();
        }
        bytes
    }
}

/// A session may belong to a host that only claims the flow's address.
#[test]
fn a_keep_draws_an_answer_only_to_the_senders_own_host() {
    let mut b = bench(keeping());
    b.cookie = b.mark(1, Reply::Path).unwrap().1.cookie;
    let elsewhere = "203.0.113.9:5000".parse().unwrap();
    let (outcome, initiator) = b.hello_from(elsewhere, 1, Terms::default());
    assert_eq!(outcome, Ok(()));
    b.accepted(1, initiator);
    assert_eq!(b.keep_cookie(elsewhere, 1), None);
    assert_eq!(b.next_sent(), None);
}

#[test]
fn a_flood_of_keeps_draws_answers_at_a_fixed_rate() {
    let mut b = bench(keeping());
    b.open(1, Terms::default());
    let mut bytes = 0;
    for _ in 0..20_000 {
        assert!(b.send(1, keep(Cookie::NONE, 9)).is_err());
        bytes += b.drawn_along_path();
        b.now += MS / 2;
    }
    // 20 a second for ten seconds, and a burst.
    assert!((200 * MARKER_LEN / 2..=(200 + 64) * MARKER_LEN).contains(&bytes), "{bytes}");
}

#[test]
fn requests_without_a_right_get_no_answer() {
    let mut b = bench(keeping());
    let ours = b.flow;
    b.open_keeping(1);
    assert_eq!(b.pass(100..120), 20);
    // A neighbour's session, which keeps copies of its own flow.
    b.flow.source.set_port(4001);
    b.open_keeping(2);
    assert_eq!(b.pass(500..520), 20);
    // A session without a proof.
    b.flow.source.set_port(4002);
    b.open(3, Terms::default());
    assert_eq!(b.pass(800..820), 0);
    b.flow = ours;
    for (number, range) in [
        (1, between(500, 510)),
        (1, between(110, 300)),
        (1, between(110, 105)),
        (2, between(100, 110)),
        (3, between(100, 110)),
        (3, between(800, 810)),
        (3, ALL),
    ] {
        let _ = b.request(number, &[range; 16]);
        assert_eq!(b.next_sent(), None, "session {number}, {range:?}");
    }
    // A request of a session from another address, and one of no session.
    let elsewhere = "203.0.113.9:5000".parse().unwrap();
    let message = Message::Request(Request { number: 7, ranges: Ranges::new(&[ALL]) });
    assert_eq!(b.send_from(elsewhere, 1, message), Err(HandleError::UnknownSession));
    let (transmit, bytes) = b.next_sent().unwrap();
    assert_eq!((transmit.destination, bytes.len()), (elsewhere, 5));
    b.request(1, &[between(100, 102)]).unwrap();
    assert_eq!(b.drawn().0, [101], "a request with the right is answered");
}

#[test]
fn a_request_counts_once() {
    let mut b = bench(keeping());
    b.open_keeping(1);
    assert_eq!(b.pass(100..110), 10);
    let mut buffer = [0; MAX_DATAGRAM_LEN];
    let (session, seal) = b.seals.get_mut(&1).unwrap();
    let request = Request { number: 7, ranges: Ranges::new(&[ALL]) };
    let len = seal.seal(Link::First, *session, &Message::Request(request), &mut buffer).unwrap();
    assert_eq!(b.observer.handle_input(peer(), &buffer[..len], b.now), Ok(()));
    assert_eq!(b.drawn().0.len(), 10);
    for _ in 0..100 {
        let outcome = b.observer.handle_input(peer(), &buffer[..len], b.now);
        assert_eq!(outcome, Err(HandleError::Replay));
        assert_eq!(b.next_sent(), None);
    }
}

#[test]
fn repeats_of_a_copy_stop() {
    let mut b = bench(keeping());
    b.open_keeping(1);
    assert_eq!(b.pass(100..103), 3);
    let mut repeats = 0;
    for _ in 0..40 {
        b.request(1, &[between(100, 102)]).unwrap();
        repeats += b.drawn().0.len();
        b.now += MS;
    }
    assert_eq!(repeats, 16);
    assert_eq!(b.observer.stats().repeats_withheld, 24);
    b.request(1, &[ALL]).unwrap();
    assert_eq!(b.drawn().0, [100, 102], "others may still be repeated");
}

/// An epoch that the sender asked for, one that it did not, another session and a BYE.
#[test]
fn waiting_copies_end_with_their_epoch_or_session() {
    let mut b = bench(keeping());
    b.open_keeping(1);
    let waits = |b: &mut Bench| {
        assert_eq!(b.pass(100..110), 10);
        b.request(1, &[ALL]).unwrap();
        assert!(b.observer.copies_bytes() > 0);
    };
    waits(&mut b);
    b.send(1, Message::NewEpoch { epoch: 1 }).unwrap();
    assert_eq!((b.drawn().0, b.observer.copies_bytes()), (vec![], 0));
    b.capture(1, 0);
    waits(&mut b);
    b.now += Duration::from_secs(2);
    b.capture(3, 5);
    assert_eq!((b.drawn().0, b.observer.copies_bytes()), (vec![], 0), "another interface");
    waits(&mut b);
    b.send(1, Message::Bye).unwrap();
    assert_eq!((b.drawn().0, b.observer.copies_bytes()), (vec![], 0));
    assert!(!b.observer.keeps_copies());
    b.observer.table.check();
}

/// The path is the same.
#[test]
fn copies_outlast_an_epoch_for_lack_of_room() {
    let mut b = bench(keeping());
    b.open_keeping(1);
    b.capture(1, 0);
    assert_eq!(b.pass(100..103), 3);
    b.request(1, &[between(100, 102)]).unwrap();
    b.observer.missed(0);
    b.capture(2, 0);
    assert_eq!(b.observer.stats().epochs_unasked, 1);
    assert_eq!(b.drawn().0, [101]);
}

/// 4000 a second, or 770 if each makes the observer search all that a session can keep.
#[test]
fn requests_beyond_the_rate_are_dropped() {
    for (passed, ranges, most) in [(1, 1, 4000), (8192, 1, 3170), (8192, 16, 770)] {
        let (keep_bytes, keep_bytes_per_session) = (32 << 20, 16 << 20);
        let limits = ObserverConfig { keep_bytes, keep_bytes_per_session, ..keeping() };
        let mut b = bench(limits);
        b.open_keeping(1);
        let (mut answered, mut dropped) = (0, 0);
        for step in 0..10_000 {
            if step % 1000 == 0 {
                b.pass((0..passed).map(|id| id + 100));
            }
            match b.request(1, &vec![between(1, 2); ranges]) {
                Err(HandleError::Busy) => dropped += 1,
                outcome => answered += u32::from(outcome.is_ok()),
            }
            assert_eq!(b.next_sent(), None);
            b.now += MS / 10;
        }
        assert_eq!(answered + dropped, 10_000);
        assert!(
            (most * 9 / 10..=most + 64 + most / 50).contains(&answered),
            "{answered} of {most}"
        );
        assert_eq!(b.observer.stats().requests_deferred, u64::from(dropped));
    }
}

#[test]
fn quacks_go_before_copies() {
    let mut b = bench(keeping());
    b.open_keeping(1);
    assert_eq!(b.pass(100..110), 10);
    b.request(1, &[ALL]).unwrap();
    b.capture(7, 0);
    b.poll(1, 1, 2).unwrap();
    assert_eq!(b.with_quack(1, |quack| (quack.token, quack.count)), Some((2, 1)));
    assert_eq!(b.drawn().0.len(), 10);
}

/// Whatever a session requests, its copies and its messages stay within their shares.
#[test]
fn a_million_hostile_requests_draw_no_more_bytes_than_the_shares() {
    let mut b = bench(keeping());
    b.open_keeping(1);
    let mut random = Numbers::new([4; 32]);
    let (mut next, mut passed, mut heard) = (0, 0, 0);
    let (mut copies, mut messages) = (0, 0);
    for step in 0..1_000_000_u32 {
        if step % 1000 == 0 {
            passed += 1000 * b.pass([next]);
            next += 1;
        }
        let mut end = || Some(next.wrapping_sub(random.next_u32() % 64)).filter(|id| id % 8 > 1);
        let ranges: [Range; 16] = std::array::from_fn(|_| Range::new(end(), end()));
        heard += 9 + 3 + 16 + 16 * 9;
        let _ = b.request(1, &ranges);
        b.observer.on_timeout(b.now);
        let (_, drawn) = b.drawn();
        (copies, messages) = (copies + drawn[0], messages + drawn[1]);
        b.now += Duration::from_micros(100);
    }
    let [copies_grant, messages_grant] = GRANTS;
    let share = copies_grant + passed;
    assert!((share * 9 / 10..=share).contains(&copies), "{copies} of {share}");
    assert!(messages <= messages_grant + passed / 2 + heard, "{messages}");
    assert!(b.observer.copies_bytes() <= 1 << 20);
}

#[test]
fn ten_thousand_sessions_stay_within_the_pool() {
    let pool = 4 << 20;
    let mut b = bench(ObserverConfig {
        max_sessions: 10_000,
        keep_bytes: pool,
        keep_bytes_per_session: 1 << 20,
        idle_timeout: Duration::from_secs(600),
        ..ObserverConfig::default()
    });
    let mut kept = 0;
    for number in 0..10_000_u32 {
        let ip = IpAddr::from((0x0a00_0001 + number).to_be_bytes());
        let from = SocketAddr::new(ip, 5000);
        b.flow.source = SocketAddr::new(ip, 4000);
        b.hello_of(from, number, Terms::default()).unwrap();
        b.prove(from, number);
        kept += b.pass(0..80);
        assert!(b.observer.copies_bytes() <= pool);
        // As slowly as handshakes and answers are admitted.
        b.now += Duration::from_micros(4100);
        b.observer.on_timeout(b.now);
        while b.next_sent().is_some() {}
    }
    assert_eq!(b.observer.sessions(), 10_000);
    assert!(kept > 1000, "{kept}");
    assert!(b.observer.copies_bytes() > 0);
    b.now += Duration::from_secs(1);
    b.observer.on_timeout(b.now);
    while b.next_sent().is_some() {}
    b.now += Duration::from_secs(1);
    b.observer.on_timeout(b.now);
    assert_eq!(b.observer.copies_bytes(), 0, "all are too old");
}
