//! At least one vector for every kind of datagram, payload and message, and for each of its forms.

use super::json::{hex, joined};
use crate::clock::micros;
use crate::wire::discovery::{Answer, Marker, Reply};
use crate::wire::{
    Accept, Cookie, Datagram, Hello, Keep, Linked, MAX_DATAGRAM_LEN, Message, Parity, Part,
    Pattern, Poll, Protect, Quack, Range, Ranges, Refusal, Relay, Relayed, Repeat, Request,
    Schedule, SentList, SentSymbol, SessionNumber, ShortQuack, Timing, Words, hello_payload,
    parse_hello_payload,
};
use crate::{Filter, Flow, Identification, Position, Terms};
use serde_json::{Value, json};
use std::num::NonZeroU16;
use std::time::Duration;

pub(super) const SENDER_SESSION: SessionNumber = SessionNumber(0x5e55_1017);
pub(super) const PROXY_SESSION: SessionNumber = SessionNumber(0x0bca_fe01);
pub(super) const ECHO: [u8; 8] = *b"\xec\x40\xec\x41\xec\x42\xec\x43";

/// Bytes of which no two neighbours are equal.
pub(super) fn bytes<const N: usize>(from: u8) -> [u8; N] {
    let mut bytes = [from; N];
    bytes.iter_mut().fold(from, |next, byte| {
        *byte = next;
        next.wrapping_add(1)
    });
    bytes
}

pub(super) fn v4() -> Flow {
    Flow {
        source: "192.0.2.1:4000".parse().unwrap(),
        destination: "198.51.100.7:443".parse().unwrap(),
    }
}

pub(super) fn v6() -> Flow {
    Flow {
        source: "[2001:db8::1]:50000".parse().unwrap(),
        destination: "[2001:db8:ff::443]:443".parse().unwrap(),
    }
}

/// A flow with an unspecified source address.
pub(super) fn open() -> Flow {
    Flow { source: "0.0.0.0:4000".parse().unwrap(), ..v4() }
}

pub(super) fn terms(
    threshold: u8,
    packets: u16,
    micros: u32,
    position: Position,
    filter: Filter,
) -> Terms {
    Terms {
        threshold,
        every_packets: NonZeroU16::new(packets),
        every: (micros != 0).then(|| Duration::from_micros(micros.into())),
        identification: Identification { position, filter },
    }
}

/// Distinguishable sums.
pub(super) fn words(n: u8) -> Vec<u32> {
    (1..=n).map(|i| u32::from(i).wrapping_mul(0x9e37_79b1)).collect()
}

pub(super) fn quack(epoch: u16, token: u16, sums: &[u32]) -> Message<'_> {
    let sums = Words::new(sums);
    let (first, last) = (0x8c31_02f7, 0xe402_9b1c);
    Message::Quack(Quack { epoch, token, age_us: 1250, first, last, count: 65_537, sums })
}

pub(super) fn short_quack(count: u16, sums: &[u32]) -> Message<'_> {
    Message::ShortQuack(ShortQuack { count, last: 0x9b1c, sums: Words::new(sums) })
}

fn flow_fields(flow: &Flow) -> Value {
    json!({
        "source_address": flow.source.ip(),
        "source_port": flow.source.port(),
        "destination_address": flow.destination.ip(),
        "destination_port": flow.destination.port(),
    })
}

pub(super) fn terms_fields(terms: &Terms) -> Value {
    let every = terms.every.map_or(0, |every| u32::try_from(every.as_micros()).unwrap());
    let offset = match terms.identification.position {
        Position::Offset(offset) => offset,
        Position::End => 0xffff,
        Position::Whole => 0xfffe,
    };
    let filter = u8::from(terms.identification.filter == Filter::QuicShortHeader);
    json!({
        "threshold": terms.threshold,
        "every_packets": terms.every_packets.map_or(0, NonZeroU16::get),
        "every_us": every,
        "identifier_offset": offset,
        "filter": filter,
    })
}

fn datagram_fields(datagram: &Datagram<'_>) -> (&'static str, Value) {
    match *datagram {
        Datagram::Hello(hello) => {
            let pattern = u8::from(hello.pattern == Pattern::Pinned);
            let fields = joined([
                json!({ "session": hello.session.0 }),
                flow_fields(&hello.flow),
                json!({ "cookie": hex(&hello.cookie.0), "pattern": pattern }),
                json!({ "handshake": hex(hello.handshake) }),
            ]);
            ("hello", fields)
        }
        Datagram::Retry { session, echo, cookie } => {
            ("retry", json!({ "session": session.0, "echo": hex(&echo), "cookie": hex(&cookie.0) }))
        }
        Datagram::Accept { session, handshake } => {
            ("accept", json!({ "session": session.0, "handshake": hex(handshake) }))
        }
        Datagram::Refuse { session, echo, why } => {
            let refusal = match why {
                Refusal::Full => 1,
                Refusal::Terms => 2,
                Refusal::Taken => 3,
            };
            ("refuse", json!({ "session": session.0, "echo": hex(&echo), "refusal": refusal }))
        }
        Datagram::UnknownSession { session } => {
            ("unknown session", json!({ "session": session.0 }))
        }
        Datagram::Sealed { session, sequence, ciphertext } => (
            "sealed",
            json!({ "session": session.0, "sequence": sequence, "ciphertext": hex(ciphertext) }),
        ),
        Datagram::Repeat(repeat) => (
            "repeat",
            json!({
                "session": repeat.session.0,
                "number": repeat.number,
                "range": repeat.range,
                "part": match repeat.part {
                    Part::Whole => 0,
                    Part::First => 1,
                    Part::Second => 2,
                },
                "index": repeat.index,
                "total": repeat.total,
                "datagram": hex(repeat.datagram),
            }),
        ),
        Datagram::Parity(parity) => (
            "parity",
            json!({
                "session": parity.session.0,
                "number": parity.number,
                "first": parity.first,
                "window": parity.count,
                "identifiers": parity.identifiers.iter().collect::<Vec<_>>(),
                "symbol": hex(parity.symbol),
            }),
        ),
    }
}

fn message_fields(message: &Message<'_>) -> (&'static str, Value) {
    let list = |sums: Words<'_>| sums.iter().collect::<Vec<_>>();
    match *message {
        Message::Quack(q) => (
            "quack",
            json!({
                "epoch": q.epoch,
                "token": q.token,
                "age_us": q.age_us,
                "first": q.first,
                "last": q.last,
                "count": q.count,
                "sums": list(q.sums),
            }),
        ),
        Message::ShortQuack(q) => {
            ("short quack", json!({ "count": q.count, "last": q.last, "sums": list(q.sums) }))
        }
        Message::Poll(poll) => {
            ("poll", json!({ "epoch": poll.epoch, "token": poll.token, "wanted_sums": poll.sums }))
        }
        Message::NewEpoch { epoch } => ("new epoch", json!({ "epoch": epoch })),
        Message::Epoch { epoch } => ("epoch", json!({ "epoch": epoch })),
        Message::Bye => ("bye", json!({})),
        Message::Keep(Keep { age_ms, handle, nonce, cookie }) => {
            let (handle, nonce, cookie) = (hex(&handle), hex(&nonce), hex(&cookie.0));
            let fields =
                json!({ "age_ms": age_ms, "handle": handle, "nonce": nonce, "cookie": cookie });
            ("keep", fields)
        }
        Message::Kept { age_ms } => ("kept", json!({ "age_ms": age_ms })),
        Message::Request(Request { number, ranges }) => {
            let range = |Range { after, before, inclusive, in_parts }: Range| json!({ "after": after, "before": before, "inclusive": inclusive, "in_parts": in_parts });
            let ranges: Vec<_> = ranges.iter().map(range).collect();
            ("request", json!({ "number": number, "ranges": ranges }))
        }
        Message::Nothing { number, ranges } => {
            ("nothing", json!({ "number": number, "ranges": ranges }))
        }
        Message::Tail { last, passed } => ("tail", json!({ "last": last, "passed": passed })),
        Message::Protect(Protect { share, window, flush_us, list }) => {
            let fields = json!({
                "share": share, "window": window, "flush_us": flush_us, "list": list
            });
            ("protect", fields)
        }
        Message::Schedule(Schedule { epoch, token, timing }) => {
            let Timing { every_packets, every, interval } = timing;
            let fields = json!({
                "epoch": epoch, "token": token, "every_packets": every_packets,
                "every_us": micros(every), "interval_us": micros(interval)
            });
            ("schedule", fields)
        }
        Message::List(SentList { first, gap_us, wait_us, identifiers }) => {
            let identifiers: Vec<_> = identifiers.iter().collect();
            let fields = json!({
                "first": first, "gap_us": gap_us, "wait_us": wait_us, "identifiers": identifiers
            });
            ("list", fields)
        }
        Message::Symbol(SentSymbol { number, first, count, part, symbol }) => {
            let fields = json!({
                "number": number, "first": first, "window": count, "part": part.number(),
                "symbol": hex(symbol)
            });
            ("symbol", fields)
        }
        Message::Link { token, cookie } => {
            ("link", json!({ "token": token, "cookie": hex(&cookie.0) }))
        }
        Message::Linked { token, linked: Linked::Proof(cookie) } => {
            ("linked", json!({ "token": token, "cookie": hex(&cookie.0) }))
        }
        Message::Linked { token, linked: Linked::InForce(Relayed { newest, arrived }) } => {
            let fields = json!({
                "token": token, "cookie": hex(&Cookie::NONE.0), "newest": newest,
                "arrived": hex(&arrived)
            });
            ("linked", fields)
        }
        Message::Relay(Relay { number, part, class, wait_ms, datagram }) => {
            let fields = json!({
                "number": number, "part": part.number(), "class": class, "wait_ms": wait_ms,
                "datagram": hex(datagram)
            });
            ("relay", fields)
        }
    }
}

fn vector(name: &str, (kind, fields): (&'static str, Value), bytes: &[u8]) -> Value {
    json!({ "name": name, "kind": kind, "fields": fields, "bytes": hex(bytes) })
}

fn marker(name: &str, marker: &Marker) -> Value {
    let mut out = [0; MAX_DATAGRAM_LEN];
    let len = marker.emit(&mut out).unwrap();
    assert_eq!(Marker::parse(&out[..len]), Ok(*marker), "{name}");
    let port = match marker.reply {
        Reply::Adjacent(port) => port,
        Reply::Path => 0,
    };
    let (handle, nonce) = (hex(&marker.handle), hex(&marker.nonce));
    let fields = json!({ "handle": handle, "nonce": nonce, "reply_port": port });
    vector(name, ("marker", fields), &out[..len])
}

fn answer(name: &str, answer: &Answer) -> Value {
    let mut out = [0; MAX_DATAGRAM_LEN];
    let len = answer.emit(&mut out).unwrap();
    assert_eq!(Answer::parse(&out[..len]), Ok(*answer), "{name}");
    let fields = joined([
        json!({ "handle": hex(&answer.handle), "nonce": hex(&answer.nonce) }),
        json!({ "proxy_address": answer.proxy.ip(), "proxy_port": answer.proxy.port() }),
        flow_fields(&answer.flow),
        json!({ "cookie": hex(&answer.cookie.0) }),
    ]);
    vector(name, ("answer", fields), &out[..len])
}

pub(super) fn emitted(datagram: &Datagram<'_>) -> Vec<u8> {
    let mut out = vec![0; MAX_DATAGRAM_LEN];
    let len = datagram.emit(&mut out).unwrap();
    out.truncate(len);
    out
}

fn datagram(name: &str, datagram: &Datagram<'_>) -> Value {
    let bytes = emitted(datagram);
    assert_eq!(Datagram::parse(&bytes), Ok(*datagram), "{name}");
    vector(name, datagram_fields(datagram), &bytes)
}

fn request(number: u16, ranges: &[Range]) -> Message<'_> {
    Message::Request(Request { number, ranges: Ranges::new(ranges) })
}

pub(super) fn datagrams() -> Vec<Value> {
    let a_marker = Marker { handle: bytes(0x21), nonce: bytes(0xa0), reply: Reply::Adjacent(5000) };
    let an_answer = Answer {
        handle: bytes(0x21),
        nonce: bytes(0xa0),
        proxy: "192.0.2.254:5252".parse().unwrap(),
        flow: v4(),
        cookie: Cookie(bytes(0xc0)),
    };
    let v6_proxy = "[2001:db8::fe]:5252".parse().unwrap();
    // An unpinned HELLO's payload is in clear, so it must be valid.
    let mut unpinned = bytes::<96>(0x10);
    unpinned[32..].copy_from_slice(&hello_payload(&Terms::default()).unwrap());
    let hello = Hello {
        session: SENDER_SESSION,
        flow: v4(),
        cookie: Cookie::NONE,
        pattern: Pattern::Unpinned,
        handshake: &unpinned,
    };
    let pinned = Hello { pattern: Pattern::Pinned, handshake: &bytes::<112>(0x10), ..hello };
    let (session, cookie) = (SENDER_SESSION, Cookie(bytes(0xc0)));
    let refuse = |why| Datagram::Refuse { session, echo: ECHO, why };
    let repeat = |(number, range, index, total), part, datagram| {
        Datagram::Repeat(Repeat { session, number, range, index, total, part, datagram })
    };
    let parity = |(number, first, count), identifiers, symbol| {
        let identifiers = Words::new(identifiers);
        Datagram::Parity(Parity { session, number, first, count, identifiers, symbol })
    };
    let sealed = |ciphertext| Datagram::Sealed { session: PROXY_SESSION, sequence: 7, ciphertext };
    vec![
        marker("marker, to be answered at the adjacent socket", &a_marker),
        marker("marker, to be answered along the path", &Marker { reply: Reply::Path, ..a_marker }),
        answer("answer, IPv4", &an_answer),
        answer("answer, IPv6", &Answer { proxy: v6_proxy, flow: v6(), ..an_answer }),
        answer("answer, flow IPv4, proxy IPv6", &Answer { proxy: v6_proxy, ..an_answer }),
        datagram("HELLO, unpinned, IPv4, no cookie", &Datagram::Hello(hello)),
        datagram(
            "HELLO, unpinned, IPv6, with a cookie",
            &Datagram::Hello(Hello { flow: v6(), cookie, ..hello }),
        ),
        datagram(
            "HELLO, unpinned, source address left open",
            &Datagram::Hello(Hello { flow: open(), ..hello }),
        ),
        datagram(
            "HELLO, pinned, IPv4, with a cookie",
            &Datagram::Hello(Hello { cookie, ..pinned }),
        ),
        datagram(
            "HELLO, pinned, IPv6, no cookie",
            &Datagram::Hello(Hello { flow: v6(), ..pinned }),
        ),
        datagram("RETRY", &Datagram::Retry { session, echo: ECHO, cookie }),
        datagram("ACCEPT, unpinned", &Datagram::Accept { session, handshake: &bytes::<112>(0x40) }),
        datagram("ACCEPT, pinned", &Datagram::Accept { session, handshake: &bytes::<64>(0x40) }),
        datagram("REFUSE, full", &refuse(Refusal::Full)),
        datagram("REFUSE, terms", &refuse(Refusal::Terms)),
        datagram("REFUSE, taken", &refuse(Refusal::Taken)),
        datagram("UNKNOWN SESSION", &Datagram::UnknownSession { session: PROXY_SESSION }),
        datagram("SEALED, the shortest", &sealed(&bytes::<17>(0x70))),
        datagram("SEALED, the longest", &sealed(&bytes::<1058>(0x70))),
        datagram("REPEAT, the shortest", &repeat((1, 0, 0, 1), Part::Whole, &bytes::<4>(0x90))),
        datagram("REPEAT, a first part", &repeat((1, 2, 0, 1), Part::First, &bytes::<4>(0x90))),
        datagram(
            "REPEAT, the longest",
            &repeat((u16::MAX, 15, 63, 64), Part::Second, &bytes::<1472>(0x90)),
        ),
        datagram("PARITY, both", &parity((1, 7, 3), &words(2), &bytes::<6>(0x50))),
        datagram("PARITY, a list alone", &parity((0x1234, 0, 64), &words(64), &[])),
        datagram(
            "PARITY, the longest symbol",
            &parity((u16::MAX, u32::MAX, 1), &[], &bytes::<1474>(0x50)),
        ),
    ]
}

pub(super) fn payloads() -> Vec<Value> {
    let quic = Identification::default();
    let of_hello = |name: &str, terms: Terms| {
        let payload = hello_payload(&terms).unwrap();
        assert_eq!(parse_hello_payload(&payload), Ok(terms), "{name}");
        vector(name, ("hello payload", terms_fields(&terms)), &payload)
    };
    let of_accept = |name: &str, accept: Accept| {
        let payload = accept.emit().unwrap();
        assert_eq!(Accept::parse(&payload), Ok(accept), "{name}");
        vector(name, accept_fields(&accept), &payload)
    };
    let (session, kept) = (PROXY_SESSION, Terms::default());
    let accept = Accept { session, terms: kept, kept_sums: 128, orders: false };
    let most = terms(255, u16::MAX, u32::MAX, Position::Offset(Position::MAX_OFFSET), Filter::All);
    let least = terms(1, 0, 0, Position::Offset(0), Filter::All);
    vec![
        of_hello("terms, the default", Terms::default()),
        of_hello("terms, every 32 packets", terms(10, 32, 0, quic.position, quic.filter)),
        of_hello("terms, the last four bytes", terms(20, 0, 30_000, Position::End, Filter::All)),
        of_hello("terms, the whole payload", terms(20, 0, 1000, Position::Whole, Filter::All)),
        of_hello("terms, the smallest", least),
        of_hello("terms, the largest", most),
        of_accept("grant, the default", accept),
        of_accept("grant, the smallest", Accept { terms: least, kept_sums: 1, ..accept }),
        of_accept(
            "grant, the largest",
            Accept { terms: most, kept_sums: 255, orders: true, ..accept },
        ),
    ]
}

pub(super) fn accept_fields(accept: &Accept) -> (&'static str, Value) {
    let Accept { session, kept_sums, orders, .. } = *accept;
    let fields = joined([
        json!({ "session": session.0 }),
        terms_fields(&accept.terms),
        json!({ "kept_sums": kept_sums, "orders": orders }),
    ]);
    ("accept payload", fields)
}

pub(super) fn message(name: &str, message: &Message<'_>) -> Value {
    let mut out = [0; MAX_DATAGRAM_LEN];
    let len = message.emit(&mut out).unwrap();
    assert_eq!(Message::parse(&out[..len]), Ok(*message), "{name}");
    vector(name, message_fields(message), &out[..len])
}

pub(super) fn messages() -> Vec<Value> {
    let empty = Quack {
        epoch: 1,
        token: 9,
        age_us: 0,
        first: 0,
        last: 0,
        count: 0,
        sums: Words::new(&[0; 20]),
    };
    let (handle, nonce) = (bytes(0x21), bytes(0xa0));
    let keep = Keep { age_ms: 300, handle, nonce, cookie: Cookie::NONE };
    let between = Range::new(Some(0x8c31_02f7), Some(0));
    let (since, until) = (Range { before: None, ..between }, Range { after: None, ..between });
    let (all, parts) = (Range::new(None, None), Range { in_parts: true, ..between });
    let through = Range { inclusive: true, ..between };
    let protect =
        |share, window, flush_us, list| Message::Protect(Protect { share, window, flush_us, list });
    let poll = |token, sums| Message::Poll(Poll { epoch: 3, token, sums });
    let schedule = |every_packets, every_us: u32, interval_us: u32| {
        let [every, interval] = [every_us, interval_us].map(|us| Duration::from_micros(us.into()));
        let timing = Timing { every_packets, every, interval };
        Message::Schedule(Schedule { epoch: 3, token: 0xbeef, timing })
    };
    let list = |first, gap_us, wait_us, identifiers| {
        let identifiers = Words::new(identifiers);
        Message::List(SentList { first, gap_us, wait_us, identifiers })
    };
    let symbol = |number, first, count, part, symbol| {
        Message::Symbol(SentSymbol { number, first, count, part, symbol })
    };
    let relay = |number, part, (class, wait_ms), datagram| {
        Message::Relay(Relay { number, part, class, wait_ms, datagram })
    };
    let cookie = Cookie(bytes(0xc0));
    let in_force = |newest, arrived| {
        let linked = Linked::InForce(Relayed { newest, arrived });
        Message::Linked { token: 3, linked }
    };
    vec![
        message("quACK of an epoch without packets", &Message::Quack(empty)),
        message("quACK of one sum, unasked", &quack(1, 0, &words(1))),
        message("quACK of 20 sums, answers a poll", &quack(2, 0xbeef, &words(20))),
        message("quACK of 255 sums", &quack(u16::MAX, u16::MAX, &words(255))),
        message("short quACK of one sum", &short_quack(0xfff0, &words(1))),
        message("short quACK of 255 sums", &short_quack(0, &words(255))),
        message("POLL for as many sums as the threshold", &poll(1, 0)),
        message("POLL for one sum", &poll(0xbeef, 1)),
        message("POLL for 255 sums", &poll(u16::MAX, 255)),
        message("NEW EPOCH", &Message::NewEpoch { epoch: 1 }),
        message(
            "NEW EPOCH, the last before they begin again",
            &Message::NewEpoch { epoch: u16::MAX },
        ),
        message("EPOCH", &Message::Epoch { epoch: 2 }),
        message("BYE", &Message::Bye),
        message("KEEP without a cookie", &Message::Keep(keep)),
        message("KEEP with a cookie", &Message::Keep(Keep { cookie: Cookie(bytes(0xc0)), ..keep })),
        message("KEPT", &Message::Kept { age_ms: 300 }),
        message("KEPT, refused", &Message::Kept { age_ms: 0 }),
        message("REQUEST of one range", &request(1, &[all])),
        message(
            "REQUEST of each kind of range",
            &request(2, &[between, since, until, all, parts, through]),
        ),
        message("REQUEST of 16 ranges", &request(u16::MAX, &[between; 16])),
        message("NOTHING in the first range", &Message::Nothing { number: 1, ranges: 1 }),
        message("NOTHING in all", &Message::Nothing { number: u16::MAX, ranges: u16::MAX }),
        message("TAIL", &Message::Tail { last: 0xe402_9b1c, passed: 65_537 }),
        message("PROTECT", &protect(128, 30, 3000, 8)),
        message("PROTECT, no more", &protect(0, 1, 0, 0)),
        message("PROTECT, the most", &protect(1024, 64, u16::MAX, u8::MAX)),
        message("SCHEDULE, fewer quACKs", &schedule(16, 20_000, 0)),
        message("SCHEDULE, a steady flow", &schedule(25, 0, 20_000)),
        message("SCHEDULE, as the terms say", &schedule(0, 0, 0)),
        message("LIST", &list(65_536, 17_000, 3000, &[1, 0xffff_ffff, 7])),
        message("LIST, hold nothing", &list(0, 0, 0, &[])),
        message("LIST, the most", &list(u32::MAX, u16::MAX, u16::MAX, &words(64))),
        message("SYMBOL", &symbol(7, 65_536, 30, Part::Whole, &bytes::<1024>(0x30))),
        message("SYMBOL, the shortest", &symbol(0, u32::MAX, 1, Part::Whole, &[0, 4, 1, 2, 3, 4])),
        message("SYMBOL, the first part", &symbol(u16::MAX, 1, 64, Part::First, &[9; 1024])),
        message("SYMBOL, the second part", &symbol(u16::MAX, 1, 64, Part::Second, &[8])),
        message("SCHEDULE, the most", &schedule(u16::MAX, u32::MAX, u32::MAX)),
        message("LINK without a cookie", &Message::Link { token: 0, cookie: Cookie::NONE }),
        message("LINK with a cookie", &Message::Link { token: u16::MAX, cookie }),
        message(
            "LINKED with a cookie",
            &Message::Linked { token: 0x1234, linked: Linked::Proof(cookie) },
        ),
        message("LINKED, in force", &in_force(0, [0; 64])),
        message("LINKED, some arrived", &in_force(7, bytes::<64>(0xed))),
        message("RELAY", &relay(7, Part::Whole, (0xb8, 0), &bytes::<1024>(0x30))),
        message("RELAY, the first part", &relay(u16::MAX, Part::First, (2, 100), &[9; 700])),
        message("RELAY, the second part", &relay(u16::MAX, Part::Second, (2, u8::MAX), &[8])),
    ]
}
