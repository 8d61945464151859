//! The second link of a sender (SPEC.md, section 7.15).

use super::Sender;
use super::established::Established;
use super::session::ProxySession;
use crate::keys::Link;
use std::time::Instant;

impl Sender {
    /// Sets whether there is a second link to the proxy: another interface, with a socket of its
    /// own, which sends what has [`Route::SecondLink`](crate::Route::SecondLink). What arrives
    /// there goes to [`Sender::handle_input`], too. The proxy learns of the link by a message, and
    /// proves that it arrives.
    pub fn set_second_link(&mut self, is_there: bool, now: Instant) {
        self.config.second_link = is_there;
        self.sessions.iter_mut().for_each(|session| session.set_second_link(is_there, now));
    }

    /// Whether [`Sender::set_second_link`] said that there is one.
    #[must_use]
    pub fn has_second_link(&self) -> bool {
        self.config.second_link
    }

    fn relaying(&mut self) -> Option<&mut Established> {
        let leading = self.sessions.iter_mut().filter(|session| session.is_live());
        leading.max_by_key(|it| it.smoothed_rtt()).and_then(ProxySession::established_mut)
    }

    /// Whether repairs go by the second link: the proxy has it, and it is not much slower than the
    /// first, or the first is silent.
    #[must_use]
    pub fn repairs_by_second_link(&self, now: Instant) -> bool {
        let mut sessions = self.sessions.iter().filter_map(ProxySession::established);
        sessions.any(|session| session.link_of_repairs(now) == Link::Second)
    }

    /// Sends a datagram of the flow by the second link, from where the proxy puts it on its way.
    /// `class` is the traffic class with which it leaves there. Returns false if there is no such
    /// link, or too much waits for it.
    pub fn relay(&mut self, class: u8, datagram: &[u8], now: Instant) -> bool {
        self.relaying().is_some_and(|session| session.relay(class, datagram, now))
    }

    /// Whether the proxy has been silent on the first link for long, but not on the second. Then
    /// what leaves by the first is probably lost, and may be relayed at once.
    #[must_use]
    pub fn first_link_is_silent(&self) -> bool {
        let mut sessions = self.sessions.iter().filter_map(ProxySession::established);
        sessions.any(Established::carries)
    }

    /// The tags of packets that left and that no quACK has reported, the oldest first.
    pub fn unreported(&self) -> impl Iterator<Item = u64> + '_ {
        let sessions = self.sessions.iter().filter_map(ProxySession::established);
        sessions.take(1).flat_map(|session| session.history.pending.iter().map(|it| it.tag))
    }
}
