//! Complete handshakes of either pattern, and sealed datagrams after them.

use super::invalid;
use super::json::{hex, joined};
use super::noise::{self, Input};
use super::valid::{
    PROXY_SESSION, SENDER_SESSION, accept_fields, bytes, emitted, message, open, quack, terms,
    terms_fields, v4, v6, words,
};
use crate::clock::Numbers;
use crate::keys::{Initiator, Link, Responder, Seal, prologue};
use crate::wire::{
    Accept, Cookie, Datagram, Hello, Keep, Linked, MAX_DATAGRAM_LEN, Message, Part, Pattern, Poll,
    Protect, Range, Ranges, Relay, Relayed, Request, SessionNumber, hello_payload,
};
use crate::{Filter, Flow, Identification, Position, PublicKey, SecretKey, Terms};
use serde_json::{Value, json};

struct Case {
    name: &'static str,
    pattern: Pattern,
    flow: Flow,
    cookie: Cookie,
    asked: Terms,
    granted: Accept,
}

/// The results of a handshake at both sides.
struct Done {
    hello: Vec<u8>,
    accept: Vec<u8>,
    sender: Seal,
    proxy: Seal,
    key: PublicKey,
}

fn noise_name(pattern: Pattern) -> &'static str {
    match pattern {
        Pattern::Unpinned => "Noise_NX_25519_ChaChaPoly_BLAKE2s",
        Pattern::Pinned => "Noise_NK_25519_ChaChaPoly_BLAKE2s",
    }
}

/// Runs the handshake with the crate's own code.
fn run_handshake(case: &Case, secret: &SecretKey, seeds: [[u8; 32]; 2]) -> Done {
    let Case { pattern, flow, asked, granted, .. } = case;
    let pinned = (*pattern == Pattern::Pinned).then(|| secret.public());
    let (mut initiator, hello) =
        Initiator::begin(pinned.as_ref(), SENDER_SESSION, flow, asked, seeds[0]).unwrap();
    let (responder, read) =
        Responder::read(*pattern, secret, SENDER_SESSION, flow, seeds[1], hello.bytes()).unwrap();
    assert_eq!(read, *asked);
    let (proxy, accept) = responder.finish(granted).unwrap();
    assert_eq!(initiator.read(accept.bytes()), Ok(*granted));
    let (sender, key) = initiator.finish().unwrap();
    Done { hello: hello.bytes().to_vec(), accept: accept.bytes().to_vec(), sender, proxy, key }
}

/// One side's seal, and its expected key.
struct Side<'a> {
    name: &'static str,
    /// The session number that the other side chose.
    session: SessionNumber,
    seal: Seal,
    key: &'a [u8; 32],
    sealed: Vec<Value>,
    next: u32,
}

impl Side<'_> {
    fn add(&mut self, sequence: u32, what: Value, datagram: &[u8]) {
        self.sealed.push(joined([
            json!({ "from": self.name, "session": self.session.0, "sequence": sequence }),
            what,
            json!({ "datagram": hex(datagram) }),
        ]));
        self.next = sequence.wrapping_add(1);
    }

    fn by_hand(&self, sequence: u32, plain: &[u8]) -> Vec<u8> {
        let ciphertext = noise::encrypt(self.key, sequence.into(), &[], plain);
        emitted(&Datagram::Sealed { session: self.session, sequence, ciphertext: &ciphertext })
    }

    /// Adds a message that the crate's code sealed, after a check against the key.
    fn add_message(&mut self, name: &str, what: &Message<'_>) {
        self.add_message_by(Link::First, name, what);
    }

    fn add_message_by(&mut self, link: Link, name: &str, what: &Message<'_>) {
        let (mut out, mut plain) = ([0; MAX_DATAGRAM_LEN], [0; MAX_DATAGRAM_LEN]);
        let len = self.seal.seal(link, self.session, what, &mut out).unwrap();
        let Ok(Datagram::Sealed { sequence, .. }) = Datagram::parse(&out[..len]) else {
            panic!("{name}")
        };
        let plain_len = what.emit(&mut plain).unwrap();
        assert_eq!(out[..len], self.by_hand(sequence, &plain[..plain_len]), "{name}");
        self.add(sequence, json!({ "message": message(name, what) }), &out[..len]);
    }

    /// Adds a malformed message, sealed by hand.
    fn add_malformed(&mut self, (name, plain, error): invalid::Bad) {
        let sequence = self.next;
        let datagram = self.by_hand(sequence, &plain);
        let what = json!({ "name": name, "plaintext": hex(&plain), "error": error });
        self.add(sequence, what, &datagram);
    }
}

fn handshake(case: &Case, number: u8, with_invalid: bool) -> Value {
    let secret = SecretKey(bytes(0x60 + number));
    let seeds = [[2 * number; 32], [2 * number + 1; 32]];
    let payloads =
        [hello_payload(&case.asked).unwrap().to_vec(), case.granted.emit().unwrap().to_vec()];
    let payloads = payloads.each_ref().map(Vec::as_slice);
    let done = run_handshake(case, &secret, seeds);
    assert_eq!(done.key, secret.public());

    let prologue = prologue(SENDER_SESSION, &case.flow);
    // The ephemeral key is the first output of a seed.
    let [sender_ephemeral, proxy_ephemeral] =
        seeds.map(|seed| SecretKey(Numbers::new(seed).array()));
    let [e, re] = [sender_ephemeral.0, proxy_ephemeral.0];
    let name = noise_name(case.pattern);
    let again = noise::run(&Input {
        pattern: case.pattern,
        name,
        prologue: &prologue,
        proxy: &secret,
        sender_ephemeral,
        proxy_ephemeral,
        payloads,
    });
    assert_eq!([&done.hello, &done.accept], again.messages.each_ref(), "{}", case.name);

    let hello = Datagram::Hello(Hello {
        session: SENDER_SESSION,
        flow: case.flow,
        cookie: case.cookie,
        pattern: case.pattern,
        handshake: &done.hello,
    });
    let accept = Datagram::Accept { session: SENDER_SESSION, handshake: &done.accept };
    let (_, granted) = accept_fields(&case.granted);
    let sealed = sealed(done.sender, done.proxy, &again.keys, with_invalid);
    json!({
        "name": case.name,
        "noise": name,
        "proxy_secret": hex(&secret.0),
        "proxy_public": hex(&done.key.0),
        "sender_ephemeral_secret": hex(&e),
        "proxy_ephemeral_secret": hex(&re),
        "session": SENDER_SESSION.0,
        "source_address": case.flow.source.ip(),
        "source_port": case.flow.source.port(),
        "destination_address": case.flow.destination.ip(),
        "destination_port": case.flow.destination.port(),
        "cookie": hex(&case.cookie.0),
        "prologue": hex(&prologue),
        "hello_fields": terms_fields(&case.asked),
        "hello_payload": hex(payloads[0]),
        "hello_handshake": hex(&done.hello),
        "hello_datagram": hex(&emitted(&hello)),
        "accept_fields": granted,
        "accept_payload": hex(payloads[1]),
        "accept_handshake": hex(&done.accept),
        "accept_datagram": hex(&emitted(&accept)),
        "handshake_hash": hex(&again.hash),
        "sender_key": hex(&again.keys[0]),
        "proxy_key": hex(&again.keys[1]),
        "sealed": sealed,
    })
}

fn sealed(sender: Seal, proxy: Seal, keys: &[[u8; 32]; 2], with_invalid: bool) -> Vec<Value> {
    let side =
        |name, session, seal, key| Side { name, session, seal, key, sealed: vec![], next: 0 };
    let mut sender = side("sender", PROXY_SESSION, sender, &keys[0]);
    let mut proxy = side("proxy", SENDER_SESSION, proxy, &keys[1]);
    sender.add_message("POLL", &Message::Poll(Poll { epoch: 1, token: 0xbeef, sums: 0 }));
    proxy.add_message("quACK that answers it", &quack(1, 0xbeef, &words(20)));
    proxy.add_message("quACK of one sum", &quack(1, 0, &words(1)));
    sender.add_message("NEW EPOCH", &Message::NewEpoch { epoch: 1 });
    proxy.add_message("EPOCH", &Message::Epoch { epoch: 2 });
    proxy.add_message("quACK, the longest", &quack(2, 0, &words(255)));
    let keep = Keep { age_ms: 300, handle: [1; 20], nonce: [2; 16], cookie: Cookie([3; 20]) };
    sender.add_message("KEEP", &Message::Keep(keep));
    proxy.add_message("KEPT", &Message::Kept { age_ms: 300 });
    let ranges = [Range::new(Some(7), Some(9)), Range::new(None, None)];
    let request = Request { number: 1, ranges: Ranges::new(&ranges) };
    sender.add_message("REQUEST", &Message::Request(request));
    proxy.add_message("NOTHING", &Message::Nothing { number: 1, ranges: 1 });
    proxy.add_message("TAIL", &Message::Tail { last: 9, passed: 2 });
    let protect = Protect { share: 128, window: 30, flush_us: 3000, list: 8 };
    sender.add_message("PROTECT", &Message::Protect(protect));
    proxy.add_message("BYE of the proxy", &Message::Bye);
    if with_invalid {
        invalid::messages().into_iter().for_each(|bad| sender.add_malformed(bad));
    }
    let link = Message::Link { token: 1, cookie: Cookie([3; 20]) };
    sender.add_message_by(Link::Second, "LINK", &link);
    let linked = Message::Linked { token: 1, linked: Linked::InForce(Relayed::default()) };
    proxy.add_message_by(Link::Second, "LINKED", &linked);
    sender.seal.skip_to(u32::MAX);
    sender.add_message_by(Link::Second, "RELAY with the last number that there is", &relay());
    sender.seal.skip_to((1 << 31) - 1);
    sender.add_message("BYE with the last number of the first link", &Message::Bye);
    assert!(sender.seal.is_exhausted());
    [sender.sealed, proxy.sealed].concat()
}

fn relay() -> Message<'static> {
    let datagram = &[0x40; 30];
    Message::Relay(Relay { number: 1, part: Part::Whole, class: 0, wait_ms: 0, datagram })
}

pub(super) fn all() -> Vec<Value> {
    let granted = |terms| Accept { session: PROXY_SESSION, terms, kept_sums: 128, orders: true };
    let end = Identification { position: Position::End, filter: Filter::All };
    let cases = [
        Case {
            name: "unpinned, IPv4",
            pattern: Pattern::Unpinned,
            flow: v4(),
            cookie: Cookie(bytes(0xc0)),
            asked: Terms::default(),
            granted: granted(Terms::default()),
        },
        Case {
            name: "pinned, IPv6",
            pattern: Pattern::Pinned,
            flow: v6(),
            cookie: Cookie(bytes(0xc0)),
            asked: terms(255, 32, 1000, end.position, end.filter),
            granted: granted(terms(128, 32, 2000, end.position, end.filter)),
        },
        Case {
            name: "pinned, IPv4, source address left open",
            pattern: Pattern::Pinned,
            flow: open(),
            cookie: Cookie(bytes(0xd0)),
            asked: Terms::default(),
            granted: granted(Terms::default()),
        },
    ];
    cases.iter().zip(1..).map(|(case, number)| handshake(case, number, number == 1)).collect()
}
