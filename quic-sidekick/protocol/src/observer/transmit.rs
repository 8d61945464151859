//! The proxy's datagrams that wait to be sent, and how they are written.

use super::Observer;
use super::flow_counter::Withheld;
use super::input::Peer;
use crate::identify::Flow;
use crate::keys::Link;
use crate::transmit::{Route, Transmit};
use crate::wire::discovery::{Answer, Reply};
use crate::wire::{Cookie, Datagram, ECHO_LEN, Linked, Message, Refusal, SessionNumber};
use std::net::SocketAddr;

/// A datagram that waits to be sent. It names its session by number, because the session may end
/// before.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outgoing {
    Accept(SessionNumber),
    Epoch(SessionNumber),
    Quack(SessionNumber),
    Kept(SessionNumber),
    Tail(SessionNumber),
    Parity(SessionNumber),
    /// The answer to a LINK of this session that came from this peer, with its token, or what a gap
    /// drew, with 0. Without a cookie, the LINK is in force.
    Linked(SessionNumber, Peer, u16, Cookie),
    /// The request with this number has ranges without a datagram.
    Nothing {
        session: SessionNumber,
        number: u16,
        ranges: u16,
        link: Link,
    },
    Bare(Peer, Bare),
    Answer(OutgoingAnswer),
}

/// An answer to a peer without a session.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bare {
    Retry(SessionNumber, [u8; ECHO_LEN], Cookie),
    Refuse(SessionNumber, [u8; ECHO_LEN], Refusal),
    UnknownSession(SessionNumber),
}

/// An answer that waits to be sent, and its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutgoingAnswer {
    pub(super) answer: Answer,
    pub(super) reply: Reply,
    /// The interface on which the marker arrived; `None` for the answer to a KEEP.
    pub(super) interface: Option<u32>,
}

impl OutgoingAnswer {
    /// Writes the answer, to send from the proxy's port to the adjacent socket, or along the flow's
    /// path.
    pub(super) fn emit(&self, out: &mut [u8]) -> Option<Transmit> {
        let size = self.answer.emit(out).ok()?;
        let Flow { source, destination } = self.answer.flow;
        let interface = self.interface;
        let (destination, route) = match self.reply {
            Reply::Adjacent(port) => {
                (SocketAddr::new(source.ip(), port), Route::Stranger { interface })
            }
            Reply::Path => (source, Route::Path { source: destination, interface }),
        };
        Some(Transmit { destination, source_ip: None, size, route })
    }
}

impl Observer {
    /// Writes the next waiting datagram to `out`, and returns its destination. `out` must have at
    /// least [`crate::MAX_DATAGRAM_LEN`] bytes. Call it until it returns `None`, after each call of
    /// a method that takes a time.
    pub fn poll_transmit(&mut self, out: &mut [u8]) -> Option<Transmit> {
        while let Some(next) = self.waiting.pop_front() {
            if let Some(transmit) = self.emit(next, out) {
                return Some(self.sent(transmit));
            }
        }
        if let Some(transmit) = self.emit_repeat(out) {
            return Some(self.sent(transmit));
        }
        while self.closing {
            let Some(index) = self.table.any() else {
                self.closing = false;
                break;
            };
            let Some(mut session) = self.table.remove(index).filter(|session| session.confirmed)
            else {
                continue;
            };
            if let Some(len) = session.emit(Link::First, &Message::Bye, out) {
                return Some(self.sent(session.transmit(len)));
            }
        }
        None
    }

    fn sent(&mut self, transmit: Transmit) -> Transmit {
        self.stats.bytes_sent += u64::try_from(transmit.size).unwrap_or(u64::MAX);
        transmit
    }

    /// Writes a sealed message of a session, within its budget.
    fn emit_sealed(
        &mut self,
        number: SessionNumber,
        message: &Message<'_>,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let (_, session) = self.table.by_number(number)?;
        let len = session.emit(Link::First, message, out)?;
        session.counter.budget.spend(len).then(|| session.transmit(len))
    }

    /// Writes a message. Returns `None` if it is obsolete, or `out` is too short.
    fn emit(&mut self, message: Outgoing, out: &mut [u8]) -> Option<Transmit> {
        Some(match message {
            Outgoing::Accept(number) => {
                let (_, session) = self.table.by_number(number)?;
                let agreed = &session.agreed;
                let accept =
                    Datagram::Accept { session: agreed.peer_number, handshake: &agreed.answer };
                // A confirmed session keeps no ACCEPT: its sender has it.
                session.transmit(accept.emit(out).ok().filter(|_| !agreed.answer.is_empty())?)
            }
            Outgoing::Epoch(number) => {
                let (_, session) = self.table.by_number(number)?;
                let epoch = session.counter.epoch;
                let len = session.emit(Link::First, &Message::Epoch { epoch }, out)?;
                session.transmit(len)
            }
            Outgoing::Kept(number) => {
                let message = self.kept(number)?;
                self.emit_sealed(number, &message, out)?
            }
            Outgoing::Tail(number) => {
                let message = self.tail(number)?;
                self.stats.tails_sent += 1;
                self.emit_sealed(number, &message, out)?
            }
            Outgoing::Parity(number) => {
                let (transmit, more) = self.emit_parity(number, out);
                if more {
                    self.waiting.push_front(message);
                }
                transmit?
            }
            Outgoing::Nothing { session, number, ranges, link } => {
                let (_, session) = self.table.by_number(session)?;
                let len = session.emit(link, &Message::Nothing { number, ranges }, out)?;
                let affords = session.counter.budget.spend(len);
                session.transmit_by(link, len).filter(|_| affords)?
            }
            Outgoing::Linked(number, to, token, cookie) => {
                let (_, session) = self.table.by_number(number)?;
                let linked = match cookie {
                    Cookie::NONE => session.second.as_mut()?.linked(),
                    cookie => Linked::Proof(cookie),
                };
                let linked = Message::Linked { token, linked };
                let len = session.emit(Link::Second, &linked, out)?;
                session.counter.budget.spend(len).then(|| to.transmit(len))?
            }
            Outgoing::Quack(number) => {
                let (_, session) = self.table.by_number(number)?;
                match session.emit_quack(out) {
                    Ok(len) => {
                        let transmit = session.transmit(len?);
                        session.quacks += 1;
                        self.stats.quacks_sent += 1;
                        transmit
                    }
                    Err(Withheld) => {
                        self.stats.quacks_withheld += 1;
                        return None;
                    }
                }
            }
            Outgoing::Bare(to, bare) => {
                let datagram = match bare {
                    Bare::Retry(session, echo, cookie) => Datagram::Retry { session, echo, cookie },
                    Bare::Refuse(session, echo, why) => Datagram::Refuse { session, echo, why },
                    Bare::UnknownSession(session) => Datagram::UnknownSession { session },
                };
                Transmit {
                    destination: to.address,
                    source_ip: to.local_ip,
                    size: datagram.emit(out).ok()?,
                    route: Route::Stranger { interface: None },
                }
            }
            Outgoing::Answer(answer) => return answer.emit(out),
        })
    }
}
