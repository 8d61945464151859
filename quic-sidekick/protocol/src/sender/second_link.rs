//! The second link of a sender (SPEC.md, section 7.15).

use super::Sender;
use super::established::Established;
use super::session::{ProxySession, State};
use crate::keys::Link;
use std::time::Instant;

/// How a datagram is relayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayAs {
    /// The caller's name for it.
    pub tag: u64,
    /// What [`Sender::drain_lost_relays`] said of it, if it is relayed again.
    pub again: Option<LostRelay>,
    /// The traffic class with which it leaves the proxy.
    pub class: u8,
    /// How many milliseconds it waits there for those relayed before it.
    pub wait_ms: u8,
    /// [`Sender::drain_lost_relays`] is to say if it is lost.
    pub confirm: bool,
}

/// A relayed datagram that the second link lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostRelay {
    /// Its number.
    pub number: u16,
    /// The caller's name for it.
    pub tag: u64,
    /// When it was relayed first.
    pub since: Instant,
}

impl Sender {
    /// Sets whether there is a second link to the proxy: another interface, with a socket of its
    /// own, which sends what has [`Route::SecondLink`](crate::Route::SecondLink). What arrives
    /// there goes to [`Sender::handle_input`], too. The proxy learns of the link by a message, and
    /// proves that it arrives.
    pub fn set_second_link(&mut self, is_there: bool, now: Instant) {
        self.config.second_link = is_there;
        self.sessions.iter_mut().for_each(|session| session.set_second_link(is_there, now));
    }

    /// The session whose second link is used: the leading one.
    fn linked_session(&self) -> Option<&Established> {
        self.leading().and_then(ProxySession::established)
    }

    fn linked_session_mut(&mut self) -> Option<&mut ProxySession> {
        let number = self.linked_session()?.number().0;
        self.sessions.iter_mut().find(|session| session.number() == Some(number))
    }

    /// Whether the proxy has the second link at present.
    #[must_use]
    pub fn has_second_link(&self, now: Instant) -> bool {
        self.linked_session().is_some_and(|it| it.second.is_linked(now))
    }

    /// Whether repairs go by the second link: the proxy has it, and it is not much slower than the
    /// first, or the first is silent.
    #[must_use]
    pub fn repairs_by_second_link(&self, now: Instant) -> bool {
        self.linked_session().is_some_and(|it| it.link_of_repairs(now) == Link::Second)
    }

    /// Sends a datagram of the flow by the second link, from where the proxy puts it on its way.
    /// Returns false if there is no such link, or too much waits for it.
    pub fn relay(&mut self, relay: RelayAs, datagram: &[u8], now: Instant) -> bool {
        let session = self.linked_session_mut().and_then(ProxySession::established_mut);
        session.is_some_and(|session| session.relay(relay, datagram, now))
    }

    /// Moves the relayed datagrams to `out` that the second link lost, of the last second. At most
    /// 512 are kept for this.
    pub fn drain_lost_relays(&mut self, out: &mut Vec<LostRelay>) {
        let session = self.linked_session_mut().and_then(ProxySession::established_mut);
        session.into_iter().for_each(|session| out.append(&mut session.second.lost));
    }

    /// Whether the proxy has been silent on the first link for long, but not on the second. Then
    /// what leaves by the first is probably lost, and may be relayed at once.
    #[must_use]
    pub fn first_link_is_silent(&self) -> bool {
        self.config.carries && self.linked_session().is_some_and(Established::carries)
    }

    /// Requests by the second link what passed the proxy behind the newest datagram that arrived,
    /// if the first is silent and that is due. Call it after each input.
    pub fn fetch_by_second_link(&mut self, now: Instant) {
        let Self { sessions, effects, .. } = self;
        for session in sessions {
            let (state, mut context) = session.split(effects, now);
            if let State::Established(established) = state
                && established.takes_tail()
            {
                established.fetch_tail(&mut context);
            }
        }
    }

    /// The datagram before which the latest copy comes, if that was lost among others that came by
    /// the second link.
    pub(crate) fn copy_fills_before(&self) -> Option<u32> {
        self.linked_session()?.keeping.fetcher.fills_before
    }

    /// Whether copies are still missing among others that came by the second link.
    pub(crate) fn lacks_copies(&self) -> bool {
        self.linked_session().is_some_and(|session| session.keeping.fetcher.has_holes())
    }

    /// The tags of packets that left and that no quACK has reported, the oldest first.
    pub fn unreported(&self) -> impl Iterator<Item = u64> + '_ {
        self.linked_session().into_iter().flat_map(|it| it.history.pending.iter().map(|of| of.tag))
    }
}
