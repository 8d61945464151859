use super::*;
use crate::keys::{Initiator, Link, Seal};
use crate::wire::discovery::{Answer, MARKER_LEN, Marker, Reply};
use crate::wire::{Accept, Cookie, ECHO_LEN, Hello, MAX_DATAGRAM_LEN, Pattern, Quack, Refusal};
use crate::{Flow, Payload, Position, Route, Terms, Transmit};
use proptest::prelude::*;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU16;
use std::time::Duration;

mod attacks;
mod churn;
mod copies;
mod counting;
mod epochs;
mod ordering;
mod schedule;
mod second_link;
mod sessions;
mod steady;

const PEER: &str = "192.0.2.1:5000";

/// An observer, and the keys of its peers.
struct Bench {
    observer: Observer,
    now: Instant,
    flow: Flow,
    /// By the sender's session number: the proxy's number and the keys.
    seals: HashMap<u32, (SessionNumber, Seal)>,
    cookie: Cookie,
    /// The number of the latest RELAY.
    latest_relay: u16,
}

#[allow(clippy::disallowed_methods, reason = "virtual time begins at any instant")]
fn bench(config: ObserverConfig) -> Bench {
    let flow = Flow {
        source: "192.0.2.1:4000".parse().unwrap(),
        destination: "198.51.100.7:443".parse().unwrap(),
    };
    let mut observer = Observer::new(config, [5; 32]).unwrap();
    observer.set_addresses(Addresses::announcing(0, "192.0.2.254:5252".parse().unwrap()));
    let (now, seals, cookie) = (Instant::now(), HashMap::new(), Cookie::NONE);
    Bench { observer, now, flow, seals, cookie, latest_relay: 0 }
}

fn peer() -> SocketAddr {
    PEER.parse().unwrap()
}

fn packet(identifier: u32) -> [u8; 300] {
    let mut payload = [0x41; 300];
    payload[21..25].copy_from_slice(&identifier.to_be_bytes());
    payload
}

impl Bench {
    /// The next datagram that the observer sends, as bytes.
    fn next_sent(&mut self) -> Option<(Transmit, Vec<u8>)> {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let transmit = self.observer.poll_transmit(&mut buffer)?;
        Some((transmit, buffer[..transmit.size].to_vec()))
    }

    fn receive_from(
        &mut self,
        from: SocketAddr,
        datagram: Datagram<'_>,
    ) -> Result<(), HandleError> {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let len = datagram.emit(&mut buffer).unwrap();
        self.observer.handle_input(from, &buffer[..len], self.now)
    }

    /// Sends a HELLO, with the observer's cookie if there is one.
    fn hello_from(
        &mut self,
        from: SocketAddr,
        number: u32,
        terms: Terms,
    ) -> (Result<(), HandleError>, Initiator) {
        let (session, flow, pattern) = (SessionNumber(number), self.flow, Pattern::Unpinned);
        let (initiator, message) = Initiator::begin(None, session, &flow, &terms, [7; 32]).unwrap();
        let hello =
            Hello { session, flow, cookie: self.cookie, pattern, handshake: message.bytes() };
        (self.receive_from(from, Datagram::Hello(hello)), initiator)
    }

    /// Obtains a cookie for an address.
    fn obtain_cookie(&mut self, from: SocketAddr) {
        self.cookie = Cookie::NONE;
        let (outcome, _) = self.hello_from(from, 1, Terms::default());
        assert_eq!(outcome, Err(HandleError::Unproven));
        let (transmit, bytes) = self.next_sent().unwrap();
        let Datagram::Retry { cookie, .. } = Datagram::parse(&bytes).unwrap() else { panic!() };
        let route = Route::Stranger { interface: None };
        assert_eq!((transmit.destination, transmit.route), (from, route));
        self.cookie = cookie;
    }

    /// Requests a session with this number. Returns `Err` if the observer refuses it.
    fn hello(&mut self, number: u32, terms: Terms) -> Result<Accept, HandleError> {
        self.hello_of(peer(), number, terms)
    }

    fn hello_of(
        &mut self,
        from: SocketAddr,
        number: u32,
        terms: Terms,
    ) -> Result<Accept, HandleError> {
        self.obtain_cookie(from);
        let (outcome, initiator) = self.hello_from(from, number, terms);
        outcome.map(|()| self.accepted(number, initiator))
    }

    /// Requests a session with the cookie of a marker's answer.
    fn hello_along_path(&mut self, number: u32) -> Result<Accept, HandleError> {
        self.hello_along_path_for(number, Terms::default())
    }

    fn hello_along_path_for(&mut self, number: u32, terms: Terms) -> Result<Accept, HandleError> {
        let nonce = u8::try_from(number).unwrap();
        self.cookie = self.mark(nonce, Reply::Path).unwrap().1.cookie;
        let (outcome, initiator) = self.hello_from(peer(), number, terms);
        outcome.map(|()| self.accepted(number, initiator))
    }

    /// Reads the waiting ACCEPT.
    fn accepted(&mut self, number: u32, mut initiator: Initiator) -> Accept {
        let (_, bytes) = self.next_sent().unwrap();
        let Datagram::Accept { session, handshake } = Datagram::parse(&bytes).unwrap() else {
            panic!()
        };
        assert_eq!(session, SessionNumber(number));
        let accept = initiator.read(handshake).unwrap();
        let (seal, key) = initiator.finish().unwrap();
        assert_eq!(key, self.observer.public_key());
        self.seals.insert(number, (accept.session, seal));
        accept
    }

    fn send_from(
        &mut self,
        from: SocketAddr,
        number: u32,
        message: Message<'_>,
    ) -> Result<(), HandleError> {
        let mut buffer = [0; MAX_DATAGRAM_LEN];
        let (session, seal) = self.seals.get_mut(&number).unwrap();
        let len = seal.seal(Link::First, *session, &message, &mut buffer).unwrap();
        self.observer.handle_input(from, &buffer[..len], self.now)
    }

    /// Delivers messages in the reverse of their order.
    fn send_reversed(&mut self, number: u32, messages: &[Message<'_>]) {
        let (session, seal) = self.seals.get_mut(&number).unwrap();
        let mut sealed = |message| {
            let mut buffer = [0; MAX_DATAGRAM_LEN];
            let len = seal.seal(Link::First, *session, message, &mut buffer).unwrap();
            buffer[..len].to_vec()
        };
        let datagrams: Vec<_> = messages.iter().map(&mut sealed).collect();
        for datagram in datagrams.iter().rev() {
            self.observer.handle_input(peer(), datagram, self.now).unwrap();
        }
    }

    fn send(&mut self, number: u32, message: Message<'_>) -> Result<(), HandleError> {
        self.send_from(peer(), number, message)
    }

    fn poll(&mut self, number: u32, epoch: u16, token: u16) -> Result<(), HandleError> {
        self.send(number, Message::Poll(Poll { epoch, token, sums: 0 }))
    }

    /// Opens and confirms a session.
    fn open(&mut self, number: u32, terms: Terms) -> Accept {
        let accept = self.hello(number, terms).unwrap();
        self.poll(number, 1, 1).unwrap();
        assert!(self.next_sent().is_some());
        accept
    }

    fn capture(&mut self, identifier: u32, interface: u32) -> Observed {
        self.observer.observe(&self.flow, interface, Payload::whole(&packet(identifier)), self.now)
    }

    /// Passes the observer's next message to `look`, if it is a sealed one of this session.
    fn with_message<R>(&mut self, number: u32, look: impl FnOnce(&Message<'_>) -> R) -> Option<R> {
        let (_, bytes) = self.next_sent()?;
        let Datagram::Sealed { session, sequence, ciphertext } = Datagram::parse(&bytes).unwrap()
        else {
            panic!("{bytes:?}")
        };
        assert_eq!(session, SessionNumber(number));
        let mut plain = Plain::default();
        let (_, seal) = self.seals.get_mut(&number).unwrap();
        Some(look(&seal.open(sequence, ciphertext, &mut plain).unwrap()))
    }

    fn with_quack<R>(&mut self, number: u32, look: impl FnOnce(&Quack<'_>) -> R) -> Option<R> {
        self.with_message(number, |message| match message {
            Message::Quack(quack) => look(quack),
            other => panic!("{other:?}"),
        })
    }

    /// Captures a marker, and returns its answer.
    fn mark(&mut self, nonce: u8, reply: Reply) -> Option<(Transmit, Answer)> {
        let mut buffer = [0; MARKER_LEN];
        Marker { handle: [3; 20], nonce: [nonce; 16], reply }.emit(&mut buffer).unwrap();
        let seen = self.observer.observe(&self.flow, 0, Payload::whole(&buffer), self.now);
        assert_eq!(seen, Observed::Marker);
        let (transmit, bytes) = self.next_sent()?;
        Some((transmit, Answer::parse(&bytes).unwrap()))
    }
}
