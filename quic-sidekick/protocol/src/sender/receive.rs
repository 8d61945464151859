//! The sender's side for the reverse flow, which it receives (SPEC.md, section 7.10).

use super::Sender;
use super::rtt::NearRtt;
use super::session::{ProxySession, State};
use crate::wire::{Protect, Range};
use sidekick_parity::{Between, Counts as NearLosses, Decoder, Origin};
use std::time::{Duration, Instant};

impl Sender {
    /// Whether a proxy keeps copies of the reverse flow's datagrams.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.keeper_rtt().is_some()
    }

    /// The near segment's smoothed round-trip time to the proxy that keeps copies of the reverse
    /// flow's datagrams; `None` if none does. Until the first measurement this is a rough value.
    #[must_use]
    pub fn keeper_rtt(&self) -> Option<Duration> {
        self.keeper().map(|rtt| rtt.smoothed().unwrap_or_else(|| rtt.rough_at_most()))
    }

    /// The rough round-trip time to a proxy that keeps copies, or will when its sender's proof
    /// arrives.
    #[must_use]
    pub fn future_keeper_rtt(&self) -> Option<Duration> {
        let mut established = self.sessions.iter().filter_map(|session| session.established());
        established
            .find(|session| session.may_keep())
            .map(|session| session.near_rtt.rough_at_most())
    }

    /// Whether a queue grows before the proxy that keeps copies, as [`Sender::near_queue_grows`]
    /// says it of the leading proxy.
    #[must_use]
    pub fn keeper_queue_grows(&self) -> bool {
        self.keeper().is_some_and(NearRtt::queue_grows)
    }

    /// The least excess of the last 16 round-trip times to the proxy that keeps copies over the
    /// shortest of the last ten seconds. Only a queue causes it: jitter does not delay all packets.
    #[must_use]
    pub fn keeper_standing_queue(&self) -> Option<Duration> {
        self.keeper()?.standing()
    }

    fn keeper(&self) -> Option<&NearRtt> {
        let mut established = self.sessions.iter().filter_map(|session| session.established());
        established.find(|session| session.keeps()).map(|session| &session.near_rtt)
    }

    /// Notes the newest datagram of the reverse flow that arrived, original or copy, by its
    /// identifier: its last four bytes. The newest is the one with the highest packet number.
    #[inline]
    pub fn on_progress(&mut self, identifier: u32, now: Instant) {
        for session in &mut self.sessions {
            if let Some(session) = session.established_mut() {
                session.on_progress(identifier, now);
            }
        }
    }

    /// Requests the datagrams that passed the proxy after the one with the identifier `after`, or
    /// since the flow began, and before the one with the identifier `before`. `gap` is the caller's
    /// number for them. Returns false if no proxy keeps copies, or they are not requested at
    /// present.
    pub fn request_copies(
        &mut self,
        gap: u64,
        after: Option<u32>,
        before: u32,
        now: Instant,
    ) -> bool {
        let range = Range { after, before: Some(before) };
        let fetches = |state: &State| match state {
            State::Established(session) => session.fetches(),
            State::Closed | State::Handshaking(_) => false,
        };
        let Self { sessions, effects, .. } = self;
        let Some(session) = sessions.iter_mut().find(|session| fetches(&session.state)) else {
            return false;
        };
        if let (State::Established(state), mut context) = session.split(effects, now) {
            state.want(gap, range, &mut context);
        }
        true
    }

    /// Asks the proxy that keeps copies for parity, for other parity, or for none. A proxy that
    /// sends none does not say so: [`Sender::between`] then never knows a datagram. A new session
    /// has not asked, so call it after each input.
    pub fn protect(&mut self, wanted: Option<Protect>, now: Instant) {
        for session in &mut self.sessions {
            if let Some(session) = session.established_mut() {
                session.protect(wanted, now);
            }
        }
    }

    /// Asks for no parity any more, and forgets the datagrams that arrived. To ask again costs
    /// little if it is soon: then use [`Sender::protect`].
    pub fn end_parity(&mut self, now: Instant) {
        for session in &mut self.sessions {
            if let Some(session) = session.established_mut() {
                session.end_parity(now);
            }
        }
    }

    /// Notes a datagram of the reverse flow that arrived, as it came from the network. Parity needs
    /// all of them, in the order of their arrival.
    pub fn on_arrival(&mut self, datagram: &[u8]) {
        for session in &mut self.sessions {
            if let Some(session) = session.established_mut() {
                session.on_arrival(datagram, Origin::Original);
            }
        }
    }

    /// The next datagram of the reverse flow that parity rebuilt. Call it until it returns `None`,
    /// after each datagram that arrives on either socket.
    pub fn next_rebuilt(&mut self) -> Option<&[u8]> {
        let sessions = self.sessions.iter_mut().filter_map(ProxySession::established_mut);
        let mut decoders = sessions.filter_map(|session| session.decoder_mut());
        decoders.find_map(Decoder::rebuilt)
    }

    /// What parity shows of the datagrams that passed the proxy between two that arrived, by their
    /// identifiers; without `after`, of those since parity began.
    #[must_use]
    pub fn between(&self, after: Option<u32>, before: u32) -> Between {
        let decoder = self.decoder().map(|decoder| decoder.missing(after, before));
        decoder.unwrap_or(Between::Unlisted)
    }

    /// What parity shows of the near segment's losses; zeros without parity.
    #[must_use]
    pub fn near_losses(&self) -> NearLosses {
        self.decoder().map(Decoder::counts).unwrap_or_default()
    }

    /// Whether the sender has asked for parity, so that it needs [`Sender::on_arrival`].
    #[must_use]
    pub fn collects_arrivals(&self) -> bool {
        self.decoder().is_some()
    }

    fn decoder(&self) -> Option<&Decoder> {
        let established = || self.sessions.iter().filter_map(|session| session.established());
        let keeper = established().find(|session| session.keeps());
        let keeper = keeper.or_else(|| established().find(|session| session.may_keep()))?;
        keeper.keeping.protection.decoder.as_deref()
    }

    /// Stops requesting copies for a gap that is closed.
    pub fn close_gap(&mut self, gap: u64) {
        for session in &mut self.sessions {
            if let Some(session) = session.established_mut() {
                session.keeping.fetcher.close(gap);
            }
        }
    }

    /// Sets whether copies are requested. If not, TAILs are ignored, too. A new session
    /// requests copies, so call it after each input.
    pub fn set_fetching(&mut self, fetching: bool) {
        for session in &mut self.sessions {
            if let Some(session) = session.established_mut() {
                session.set_fetching(fetching);
            }
        }
    }

    /// Appends the gaps for which the proxy has no more copies to `out`. Take the copies that have
    /// arrived first: they may have closed the gap.
    pub fn drain_unfilled(&mut self, out: &mut Vec<u64>) {
        for session in &mut self.sessions {
            if let Some(session) = session.established_mut() {
                out.append(&mut session.keeping.fetcher.unfilled);
            }
        }
    }
}

#[cfg(test)]
mod tests;
