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

    /// The rough round-trip time to a proxy that keeps copies, or will once the sender's proof
    /// arrives.
    #[must_use]
    pub fn future_keeper_rtt(&self) -> Option<Duration> {
        let mut established = self.sessions.iter().filter_map(|session| session.established());
        established
            .find(|session| session.may_keep())
            .map(|session| session.near_rtt.rough_at_most())
    }

    /// Whether a queue grows before the proxy that keeps copies, by the rule of
    /// [`Sender::near_queue_grows`].
    #[must_use]
    pub fn keeper_queue_grows(&self) -> bool {
        self.keeper().is_some_and(NearRtt::queue_grows)
    }

    /// The least excess of the last 16 round-trip times to the proxy that keeps copies over the
    /// shortest recent one. Only a queue causes it: jitter does not delay all packets.
    #[must_use]
    pub fn keeper_standing_queue(&self) -> Option<Duration> {
        self.keeper()?.standing()
    }

    fn keeper(&self) -> Option<&NearRtt> {
        let mut established = self.sessions.iter().filter_map(|session| session.established());
        established.find(|session| session.keeps()).map(|session| &session.near_rtt)
    }

    /// Records the newest datagram of the reverse flow that arrived, original or copy. `identifier`
    /// is its last four bytes. The newest datagram has the highest packet number.
    #[inline]
    pub fn on_progress(&mut self, identifier: u32, now: Instant) {
        for session in &mut self.sessions {
            if let Some(session) = session.established_mut() {
                session.on_progress(identifier, now);
            }
        }
    }

    /// Requests the datagrams that passed the proxy between those with the identifiers `after` and
    /// `before`. Without `after`, the range begins with the flow. `gap` is the caller's number for
    /// them. Returns false if no proxy keeps copies, or [`Sender::set_fetching`] has paused the
    /// requests.
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

    /// Requests parity from the proxy that keeps copies, changes the request, or ends it. A proxy
    /// that sends no parity does not report that: [`Sender::between`] then always returns
    /// [`Between::Unlisted`]. A new session has not requested parity, so call this after each
    /// input.
    pub fn protect(&mut self, wanted: Option<Protect>, now: Instant) {
        for session in &mut self.sessions {
            if let Some(session) = session.established_mut() {
                session.protect(wanted, now);
            }
        }
    }

    /// Ends the request for parity, and forgets the datagrams that arrived. If you will soon
    /// request parity again, call [`Sender::protect`] with `None` instead, which remembers them.
    pub fn end_parity(&mut self, now: Instant) {
        for session in &mut self.sessions {
            if let Some(session) = session.established_mut() {
                session.end_parity(now);
            }
        }
    }

    /// Records a datagram of the reverse flow as it arrived from the network. Parity needs all of
    /// them, in the order of their arrival.
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

    /// The datagrams that passed the proxy between two others that arrived, as far as parity lists
    /// them. `after` and `before` are the identifiers of these two. Without `after`, the range
    /// begins where parity began.
    #[must_use]
    pub fn between(&self, after: Option<u32>, before: u32) -> Between {
        let decoder = self.decoder().map(|decoder| decoder.missing(after, before));
        decoder.unwrap_or(Between::Unlisted)
    }

    /// The near segment's losses as far as parity shows them; zeros without parity.
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

    /// Sets whether the sender requests copies. If not, it ignores TAILs, too. A new session
    /// requests copies, so call this after each input.
    pub fn set_fetching(&mut self, fetching: bool) {
        for session in &mut self.sessions {
            if let Some(session) = session.established_mut() {
                session.set_fetching(fetching);
            }
        }
    }

    /// Appends the gaps for which the proxy has no more copies to `out`. Handle the copies that
    /// have arrived before this call, because they may have closed the gap.
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
