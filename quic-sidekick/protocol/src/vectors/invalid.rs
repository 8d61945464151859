//! Invalid byte strings, each with exactly one fault.

use super::json::hex;
use super::valid::{
    ECHO, PROXY_SESSION, SENDER_SESSION, bytes, emitted, quack, short_quack, v4, words,
};
use crate::Terms;
use crate::wire::discovery::{Answer, Marker, Reply};
use crate::wire::{
    Accept, Cookie, Datagram, Hello, Keep, Linked, MAX_DATAGRAM_LEN, Message, Parity, ParseError,
    Part, Pattern, Poll, Protect, Range, Ranges, Refusal, Relay, Relayed, Repeat, Request,
    Schedule, SentList, SentSymbol, Timing, Words, hello_payload, parse_hello_payload,
};
use serde_json::{Value, json};

/// The parser that a byte string is for: its name, and the error that it returns.
type Parser = (&'static str, fn(&[u8]) -> Option<ParseError>);
const MARKER: Parser = ("marker", |bytes| Marker::parse(bytes).err());
const ANSWER: Parser = ("answer", |bytes| Answer::parse(bytes).err());
const DATAGRAM: Parser = ("datagram", |bytes| Datagram::parse(bytes).err());
const HELLO_PAYLOAD: Parser = ("hello payload", |bytes| parse_hello_payload(bytes).err());
const ACCEPT_PAYLOAD: Parser = ("accept payload", |bytes| Accept::parse(bytes).err());
const MESSAGE: Parser = ("message", |bytes| Message::parse(bytes).err());

/// An error's name in the vectors.
pub(super) fn error_name(error: ParseError) -> String {
    match error {
        ParseError::Truncated => "truncated".to_owned(),
        ParseError::TrailingBytes => "trailing bytes".to_owned(),
        ParseError::Version(_) => "version".to_owned(),
        ParseError::Type(_) => "type".to_owned(),
        ParseError::Field(field) => format!("field {field}"),
    }
}

/// A change to a valid byte string.
enum Change<'a> {
    /// Put these bytes at an offset.
    Put(usize, &'a [u8]),
    /// Truncate to this length.
    Cut(usize),
    /// Append a byte.
    More,
    /// Append these bytes.
    Append(&'a [u8]),
}
use Change::{Append, Cut, More, Put};

fn changed(valid: &[u8], change: &Change<'_>) -> Vec<u8> {
    let mut bytes = valid.to_vec();
    match *change {
        Put(at, new) => bytes[at..at + new.len()].copy_from_slice(new),
        Cut(len) => {
            assert!(len < bytes.len());
            bytes.truncate(len);
        }
        More => bytes.push(0),
        Append(more) => bytes.extend_from_slice(more),
    }
    bytes
}

fn vector((kind, error_of): Parser, name: &str, bytes: &[u8], error: &str) -> Value {
    assert_eq!(error_of(bytes).map(error_name).as_deref(), Some(error), "{name}");
    json!({ "name": name, "as": kind, "bytes": hex(bytes), "error": error })
}

/// Vectors of changes to one valid byte string, each with a name and the expected error.
fn changes(
    parser: Parser,
    what: &str,
    valid: &[u8],
    list: &[(&str, Change<'_>, &str)],
) -> Vec<Value> {
    assert_eq!(parser.1(valid), None, "{what}");
    list.iter()
        .map(|(name, change, error)| {
            vector(parser, &format!("{what}: {name}"), &changed(valid, change), error)
        })
        .collect()
}

pub(super) fn all() -> Vec<Value> {
    [path(), hello(), datagrams(), payloads(), messages().into_iter().map(as_vector).collect()]
        .concat()
}

fn path() -> Vec<Value> {
    let head = (bytes(0x21), bytes(0xa0));
    let mut out = [0; 128];
    Marker { handle: head.0, nonce: head.1, reply: Reply::Path }.emit(&mut out).unwrap();
    let marker = changes(
        MARKER,
        "marker",
        &out,
        &[
            ("another first byte", Put(0, &[7]), "type"),
            ("an answer's first byte", Put(0, &[6]), "type"),
            ("another magic", Put(21, b"sidekick"), "field magic"),
            ("version 2", Put(29, &[2]), "version"),
            ("empty", Cut(0), "truncated"),
            ("no nonce", Cut(30), "truncated"),
            ("without its padding", Cut(48), "truncated"),
            ("one byte short", Cut(127), "truncated"),
        ],
    );
    let mut out = [0; 128];
    let (proxy, flow) = ("192.0.2.254:5252".parse().unwrap(), v4());
    let answer = Answer { handle: head.0, nonce: head.1, proxy, flow, cookie: Cookie(bytes(0xc0)) };
    let len = answer.emit(&mut out).unwrap();
    let answer = changes(
        ANSWER,
        "answer",
        &out[..len],
        &[
            ("another first byte", Put(0, &[7]), "type"),
            ("a marker's first byte", Put(0, &[5]), "type"),
            ("another magic", Put(28, b"K"), "field magic"),
            ("version 0", Put(29, &[0]), "version"),
            ("the proxy's address family is 5", Put(46, &[5]), "field address family"),
            ("the proxy's port is 0", Put(51, &[0, 0]), "field proxy port"),
            ("the flow's address family is 0", Put(53, &[0]), "field address family"),
            ("the source port is 0", Put(58, &[0, 0]), "field source port"),
            ("the destination port is 0", Put(64, &[0, 0]), "field destination port"),
            ("no cookie", Put(66, &[0; 20]), "field cookie"),
            ("empty", Cut(0), "truncated"),
            ("cut in the flow", Cut(60), "truncated"),
            ("one byte short", Cut(85), "truncated"),
            ("one byte long", More, "trailing bytes"),
        ],
    );
    [marker, answer].concat()
}

fn hello() -> Vec<Value> {
    let (session, flow, cookie) = (SENDER_SESSION, v4(), Cookie::NONE);
    let (short, long) = (bytes::<96>(0x10), bytes::<112>(0x10));
    let hello = |pattern, handshake| {
        emitted(&Datagram::Hello(Hello { session, flow, cookie, pattern, handshake }))
    };
    let unpinned = changes(
        DATAGRAM,
        "HELLO, unpinned",
        &hello(Pattern::Unpinned, &short),
        &[
            ("version 0", Put(0, &[0x01]), "version"),
            ("version 2", Put(0, &[0x21]), "version"),
            ("the address family is 5", Put(5, &[5]), "field address family"),
            ("the source port is 0", Put(10, &[0, 0]), "field source port"),
            ("the destination port is 0", Put(16, &[0, 0]), "field destination port"),
            ("pattern 2", Put(38, &[2]), "field pattern"),
            ("called pinned", Put(38, &[1]), "truncated"),
            ("no session", Cut(4), "truncated"),
            ("cut in the cookie", Cut(30), "truncated"),
            ("one byte short", Cut(134), "truncated"),
            ("one byte long", More, "trailing bytes"),
        ],
    );
    let pinned = changes(
        DATAGRAM,
        "HELLO, pinned",
        &hello(Pattern::Pinned, &long),
        &[
            ("called unpinned", Put(38, &[0]), "trailing bytes"),
            ("one byte short", Cut(150), "truncated"),
            ("one byte long", More, "trailing bytes"),
        ],
    );
    [unpinned, pinned].concat()
}

fn datagrams() -> Vec<Value> {
    let (session, cookie) = (SENDER_SESSION, Cookie(bytes(0xc0)));
    let ends = |what: &str, valid: &[u8]| {
        let short = ("one byte short", Cut(valid.len() - 1), "truncated");
        let long = ("one byte long", More, "trailing bytes");
        changes(DATAGRAM, what, valid, &[short, long])
    };
    let retry = emitted(&Datagram::Retry { session, echo: ECHO, cookie });
    let refuse = emitted(&Datagram::Refuse { session, echo: ECHO, why: Refusal::Full });
    let unknown = emitted(&Datagram::UnknownSession { session: PROXY_SESSION });
    let handshake = bytes::<113>(0x40);
    let accept = |handshake| emitted(&Datagram::Accept { session, handshake });
    let wrong = |len| {
        let what = format!("ACCEPT: a handshake message of {len} bytes");
        vector(DATAGRAM, &what, &accept(&handshake[..len]), "field handshake")
    };
    let sealed = emitted(&Datagram::Sealed {
        session: PROXY_SESSION,
        sequence: 7,
        ciphertext: &bytes::<17>(0x70),
    });
    let longest = bytes::<1472>(0x90);
    let identifiers = Words::new(&[7]);
    let symbol = &longest[..1470];
    let parity = Parity { session, number: 1, first: 1, count: 3, identifiers, symbol };
    let nothing = Parity { identifiers: Words::new(&[]), symbol: &[], ..parity };
    let part = Part::Second;
    let repeat =
        Repeat { session, number: 1, range: 15, index: 1, total: 2, part, datagram: &longest };
    [
        vec![vector(DATAGRAM, "empty", &[], "truncated")],
        changes(DATAGRAM, "RETRY", &retry, &[("no cookie", Put(13, &[0; 20]), "field cookie")]),
        ends("RETRY", &retry),
        [0, 63, 65, 111, 113].map(wrong).to_vec(),
        changes(
            DATAGRAM,
            "REFUSE",
            &refuse,
            &[
                ("reason 0", Put(13, &[0]), "field refusal"),
                ("reason 4", Put(13, &[4]), "field refusal"),
            ],
        ),
        ends("REFUSE", &refuse),
        changes(
            DATAGRAM,
            "UNKNOWN SESSION",
            &unknown,
            &[
                ("type 0", Put(0, &[0x10]), "type"),
                ("type 9", Put(0, &[0x19]), "type"),
                ("type 15", Put(0, &[0x1f]), "type"),
            ],
        ),
        ends("UNKNOWN SESSION", &unknown),
        changes(
            DATAGRAM,
            "SEALED",
            &sealed,
            &[
                ("cut in the sequence number", Cut(8), "truncated"),
                ("a tag alone", Cut(25), "truncated"),
            ],
        ),
        changes(
            DATAGRAM,
            "REPEAT",
            &emitted(&Datagram::Repeat(repeat)),
            &[
                ("number 0", Put(5, &[0, 0]), "field request number"),
                ("part 3", Put(7, &[0x30]), "field part"),
                ("no copies at all", Put(9, &[0]), "field range"),
                ("a copy behind the last", Put(8, &[2]), "field range"),
                ("a copy without an identifier", Cut(13), "truncated"),
                ("one byte long", More, "trailing bytes"),
            ],
        ),
        changes(
            DATAGRAM,
            "PARITY",
            &emitted(&Datagram::Parity(parity)),
            &[
                ("a window of 0", Put(11, &[0]), "field window"),
                ("a window of 65", Put(11, &[65]), "field window"),
                ("more identifiers than datagrams", Put(12, &[4]), "field identifiers"),
                ("ends before its identifiers", Cut(13), "truncated"),
                ("ends in its identifiers", Cut(16), "truncated"),
                ("a symbol of 5 bytes", Cut(22), "truncated"),
                ("one byte long", More, "trailing bytes"),
            ],
        ),
        vec![vector(
            DATAGRAM,
            "PARITY: neither identifiers nor a symbol",
            &emitted(&Datagram::Parity(nothing)),
            "truncated",
        )],
    ]
    .concat()
}

fn payloads() -> Vec<Value> {
    let terms = hello_payload(&Terms::default()).unwrap();
    let hello = changes(
        HELLO_PAYLOAD,
        "terms",
        &terms,
        &[
            ("threshold 0", Put(0, &[0]), "field threshold"),
            ("offset 22", Put(7, &[0, 22]), "field identifier offset"),
            ("offset 65533", Put(7, &[0xff, 0xfd]), "field identifier offset"),
            ("filter 2", Put(9, &[2]), "field filter"),
            ("cut", Cut(9), "truncated"),
        ],
    );
    let (session, terms) = (PROXY_SESSION, Terms::default());
    let accept = Accept { session, terms, kept_sums: 128, orders: false };
    let accept = changes(
        ACCEPT_PAYLOAD,
        "grant",
        &accept.emit().unwrap(),
        &[
            ("threshold 0", Put(4, &[0]), "field threshold"),
            ("offset 22", Put(11, &[0, 22]), "field identifier offset"),
            ("filter 2", Put(13, &[2]), "field filter"),
            ("keeps no sums", Put(14, &[0]), "field kept sums"),
            ("keeps fewer sums than the threshold", Put(14, &[19]), "field kept sums"),
            ("orders 2", Put(15, &[2]), "field orders"),
            ("one byte short", Cut(15), "truncated"),
            ("one byte long", More, "trailing bytes"),
        ],
    );
    [hello, accept].concat()
}

/// A name, the bytes of a malformed message, and the error.
pub(super) type Bad = (String, Vec<u8>, &'static str);

fn as_vector((name, bytes, error): Bad) -> Value {
    vector(MESSAGE, &name, &bytes, error)
}

pub(super) fn messages() -> Vec<Bad> {
    let sums = words(2);
    let (poll, new_epoch) = (Poll { epoch: 3, token: 4, sums: 5 }, Message::NewEpoch { epoch: 1 });
    let keep = Keep { age_ms: 1, handle: bytes(0), nonce: bytes(0), cookie: Cookie::NONE };
    let range = Range::new(Some(5), Some(6));
    type Changes<'a> = &'a [(&'a str, Change<'a>, &'static str)];
    let of = |what: &str, message: Message<'_>, list: Changes<'_>| {
        let mut out = [0; MAX_DATAGRAM_LEN];
        let len = message.emit(&mut out).unwrap();
        let bad = list.iter().map(|(name, change, error)| {
            (format!("{what}: {name}"), changed(&out[..len], change), *error)
        });
        bad.collect::<Vec<_>>()
    };
    let no_epoch = || ("epoch 0", Put(1, &[0, 0]), "field epoch");
    let long = || ("one byte long", More, "trailing bytes");
    [
        of(
            "quACK",
            quack(1, 0, &sums),
            &[
                no_epoch(),
                ("no sums", Put(21, &[0]), "field number of sums"),
                ("ends before its sums", Cut(22), "truncated"),
                ("one byte short", Cut(29), "truncated"),
                ("fewer sums than it says", Put(21, &[3]), "truncated"),
                ("more sums than it says", Put(21, &[1]), "trailing bytes"),
                long(),
            ],
        ),
        of(
            "short quACK",
            short_quack(1, &sums),
            &[
                ("no sums", Cut(5), "truncated"),
                ("ends in its first sum", Cut(8), "truncated"),
                ("one byte short", Cut(12), "truncated"),
                ("one byte long", More, "truncated"),
            ],
        ),
        vec![("short quACK: 256 sums".to_owned(), vec![6; 5 + 4 * 256], "trailing bytes")],
        of(
            "POLL",
            Message::Poll(poll),
            &[
                no_epoch(),
                ("token 0", Put(3, &[0, 0]), "field token"),
                ("one byte short", Cut(5), "truncated"),
                long(),
            ],
        ),
        of("NEW EPOCH", new_epoch, &[no_epoch(), ("one byte short", Cut(2), "truncated"), long()]),
        of(
            "EPOCH",
            Message::Epoch { epoch: 1 },
            &[no_epoch(), ("one byte short", Cut(2), "truncated"), long()],
        ),
        of(
            "BYE",
            Message::Bye,
            &[("type 0", Put(0, &[0]), "type"), ("type 19", Put(0, &[19]), "type"), long()],
        ),
        of(
            "KEEP",
            Message::Keep(keep),
            &[
                ("age 0", Put(1, &[0, 0]), "field age"),
                ("one byte short", Cut(58), "truncated"),
                long(),
            ],
        ),
        of("KEPT", Message::Kept { age_ms: 1 }, &[("one byte short", Cut(2), "truncated"), long()]),
        of(
            "REQUEST",
            Message::Request(Request { number: 1, ranges: Ranges::new(&[range; 2]) }),
            &[
                ("number 0", Put(1, &[0, 0]), "field request number"),
                ("no range", Cut(3), "truncated"),
                ("ends in its second range", Cut(20), "truncated"),
                ("an unknown flag", Put(3, &[19]), "field range"),
                ("an end that is in the range and not there", Put(3, &[9]), "field range"),
                ("an end that is not there, and its identifier", Put(3, &[2]), "field range"),
                ("one byte long", More, "truncated"),
            ],
        ),
        vec![(
            "REQUEST: 17 ranges".to_owned(),
            [[9; 3].as_slice(), &[0; 153]].concat(),
            "trailing bytes",
        )],
        of(
            "NOTHING",
            Message::Nothing { number: 1, ranges: 1 },
            &[
                ("number 0", Put(1, &[0, 0]), "field request number"),
                ("no range", Put(3, &[0, 0]), "field ranges"),
                ("one byte short", Cut(4), "truncated"),
                long(),
            ],
        ),
        of(
            "TAIL",
            Message::Tail { last: 1, passed: 1 },
            &[("one byte short", Cut(8), "truncated"), long()],
        ),
        of(
            "PROTECT",
            Message::Protect(Protect { share: 1, window: 1, flush_us: 0, list: 0 }),
            &[
                ("a share above the whole", Put(1, &[4, 1]), "field share"),
                ("a window of 0", Put(3, &[0]), "field window"),
                ("a window of 65", Put(3, &[65]), "field window"),
                ("one byte short", Cut(6), "truncated"),
                long(),
            ],
        ),
        of(
            "SCHEDULE",
            Message::Schedule(Schedule { epoch: 3, token: 4, timing: Timing::default() }),
            &[
                no_epoch(),
                ("token 0", Put(3, &[0, 0]), "field token"),
                ("one byte short", Cut(14), "truncated"),
                long(),
            ],
        ),
        of(
            "LIST",
            Message::List(SentList {
                first: 7,
                gap_us: 17_000,
                wait_us: 3000,
                identifiers: Words::new(&[1; 64]),
            }),
            &[
                ("without its times", Cut(6), "truncated"),
                ("part of an identifier", Cut(12), "truncated"),
                ("65 identifiers", Append(&[0; 4]), "trailing bytes"),
            ],
        ),
        of(
            "SYMBOL",
            Message::Symbol(SentSymbol {
                number: 3,
                first: 7,
                count: 64,
                part: Part::Whole,
                symbol: &[1; 1024],
            }),
            &[
                ("an empty window", Put(7, &[0]), "field window"),
                ("a window of 65", Put(7, &[65]), "field window"),
                ("part 3", Put(8, &[3]), "field part"),
                ("without its part", Cut(8), "truncated"),
                ("a whole one of 5 bytes", Cut(14), "truncated"),
                long(),
            ],
        ),
        of(
            "LINK",
            Message::Link { token: 1, cookie: Cookie([7; Cookie::LEN]) },
            &[("one byte short", Cut(22), "truncated"), long()],
        ),
        of(
            "LINKED",
            Message::Linked { token: 1, linked: Linked::Proof(Cookie([7; Cookie::LEN])) },
            &[("one byte short", Cut(22), "truncated"), long()],
        ),
        of(
            "LINKED in force",
            Message::Linked { token: 1, linked: Linked::InForce(Relayed::default()) },
            &[
                ("without what arrived", Cut(23), "truncated"),
                ("one byte short", Cut(40), "truncated"),
                long(),
            ],
        ),
        of(
            "RELAY",
            Message::Relay(Relay {
                number: 3,
                part: Part::Whole,
                class: 0,
                wait_ms: 0,
                datagram: &[1; 1024],
            }),
            &[
                ("part 3", Put(3, &[3]), "field part"),
                ("without a datagram", Cut(6), "truncated"),
                ("without its wait", Cut(5), "truncated"),
                long(),
            ],
        ),
    ]
    .concat()
}
