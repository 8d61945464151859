//! The sender's side for the reverse flow, which it receives (SPEC.md, section 7.10).

mod arrivals;
mod lengths;
mod overtaking;
mod trial;

use super::Sender;
use super::effects::Context;
use super::established::Established;
pub use super::established::List;
pub use super::fetcher::Fate;
use super::rtt::NearRtt;
use super::session::{ProxySession, State};
use crate::gate::ListedGap;
use crate::keys::Link;
use crate::loss_floor::NearLoss;
use crate::wire::{Protect, Range};
pub(super) use arrivals::Arrivals;
use arrivals::Near;
use sidekick_parity::{Between, Counts as ParityCounts, Decoder, Origin};
use std::time::{Duration, Instant};

/// A copy of a datagram of the reverse flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Copied {
    /// These bytes of the datagram that [`Sender::handle_input`] has just handled.
    Within(std::ops::Range<usize>),
    /// It arrived in parts. That datagram held the last one.
    Joined(Vec<u8>),
}

impl Copied {
    /// The copy's bytes. `input` is the datagram that [`Sender::handle_input`] has just handled.
    #[must_use]
    pub fn bytes<'a>(&'a self, input: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Within(place) => input.get(place.clone()).unwrap_or_default(),
            Self::Joined(copy) => copy,
        }
    }
}

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
        keeper(&self.sessions)
    }

    /// Records the newest datagram of the reverse flow that arrived, original or copy: that with
    /// the highest packet number. `identifier` is its last four bytes.
    #[inline]
    pub fn on_progress(&mut self, identifier: u32, now: Instant) {
        for session in &mut self.sessions {
            if let Some(session) = session.established_mut() {
                session.on_progress(identifier, now);
            }
        }
    }

    /// Records a datagram of the reverse flow that arrived, of this length. Copies are not counted.
    #[inline]
    pub fn on_received(&mut self, bytes: usize, now: Instant) {
        let Self { arrivals, sessions, .. } = self;
        arrivals.on_received(bytes, || near_segment(sessions, now), now);
    }

    /// Records that datagrams of the reverse flow are missing before the next one that arrives.
    /// `gap` is the caller's number for them. Returns whether one of them is lost by congestion. If
    /// so, a repair must not hide that from the peer: do not request copies, and do not delay
    /// acknowledgements (SPEC.md, section 7.12).
    ///
    /// While the first link is silent, what arrives comes by the second, and a gap shows nothing
    /// about the near segment.
    pub fn on_missing(&mut self, gap: u64, packets: u64, now: Instant) -> bool {
        if self.first_link_is_silent() {
            return false;
        }
        let near = near_segment(&self.sessions, now);
        let congestion = self.arrivals.on_missing(gap, packets, near, now);
        if congestion {
            for session in &mut self.sessions {
                if let Some(session) = session.established_mut() {
                    session.on_congestion(now);
                }
            }
        }
        congestion
    }

    /// Whether losses of the reverse flow were found to be congestion a short time ago. What parity
    /// rebuilds meanwhile must not reach the receiver, whose acknowledgement would hide them.
    #[must_use]
    pub fn is_reverse_congested(&self, now: Instant) -> bool {
        let mut established = self.sessions.iter().filter_map(|session| session.established());
        established.any(|session| session.is_congested(now))
    }

    /// Records that a datagram of a gap arrived from the network after all.
    pub fn on_late(&mut self, gap: u64, now: Instant) {
        self.arrivals.on_late(gap, now);
    }

    /// Records what became of a gap's datagrams. A proxy's answers to
    /// [`Sender::request_copies`] count without this.
    pub fn on_fate(&mut self, gap: u64, fate: Fate) {
        self.arrivals.on_fate(gap, fate);
    }

    /// Notes what proxies' lists say about queues, and their answers about gaps and copies.
    pub(super) fn note_fates(&mut self, now: Instant) {
        for session in &mut self.sessions {
            let Some(session) = session.established_mut() else { continue };
            if let Some(queue) = session.take_queue().filter(|_| session.keeps()) {
                self.arrivals.on_queue(queue, now);
            }
            // Most inputs have no copies.
            let by_second = !session.keeping.fetcher.copies.is_empty()
                && session.link_of_repairs(now) == Link::Second;
            let fetcher = &mut session.keeping.fetcher;
            for (gap, fate) in fetcher.fates.drain(..) {
                self.arrivals.on_fate(gap, fate);
            }
            let mut congestion = false;
            for (lost, arrived) in fetcher.copies.drain(..).filter(|_| !by_second) {
                congestion |= self.arrivals.on_copies(lost, arrived);
            }
            if congestion {
                session.on_congestion(now);
            }
        }
    }

    /// Whether acknowledgements should wait for a new gap: it may well be a random loss of the near
    /// segment, or a datagram that is late. Otherwise it is congestion, a loss elsewhere, or a
    /// number that the peer skips, and the wait does harm.
    #[must_use]
    pub fn should_wait(&self) -> bool {
        self.arrivals.waits()
    }

    /// How the near segment loses datagrams of the reverse flow, at the latest loss.
    #[must_use]
    pub fn reverse_near_loss(&self) -> NearLoss {
        self.arrivals.latest()
    }

    /// Requests the datagrams that passed the proxy between those with the identifiers `after` and
    /// `before`. Without `after`, the range begins with the flow. `gap` is the caller's number for
    /// them, and at `until` it gives them up. Returns false if no proxy keeps copies, or
    /// [`Sender::set_fetching`] has paused the requests.
    pub fn request_copies(
        &mut self,
        gap: u64,
        after: Option<u32>,
        before: u32,
        until: Instant,
        now: Instant,
    ) -> bool {
        self.request_range(gap, Range::new(after, Some(before)), false, until, now)
    }

    /// As [`Sender::request_copies`], for a gap that a list shows.
    pub(crate) fn request_listed(&mut self, gap: &ListedGap, now: Instant) -> bool {
        let ListedGap { number, after, last, until, .. } = *gap;
        self.request_range(number, Range::through(after, last), true, until, now)
    }

    fn request_range(
        &mut self,
        gap: u64,
        range: Range,
        is_listed: bool,
        until: Instant,
        now: Instant,
    ) -> bool {
        self.fetch(now, |session, arrivals, context| {
            let due = arrivals.request_at(gap, session.longest_patience(), context.now);
            session.want(gap, range, (due, until), is_listed, context);
        })
    }

    /// As [`Sender::request_copies`], but only to learn whether the proxy has them. Use it where
    /// acknowledgements do not wait ([`Sender::should_wait`]).
    pub fn ask_about(&mut self, gap: u64, after: Option<u32>, before: u32, now: Instant) -> bool {
        let range = Range::new(after, Some(before));
        self.fetch(now, |session, _, context| session.ask_about(gap, range, context))
    }

    /// Lets the session with the proxy that keeps copies request some, if there is one.
    fn fetch(
        &mut self,
        now: Instant,
        request: impl FnOnce(&mut Established, &Arrivals, &mut Context<'_>),
    ) -> bool {
        let fetches = |state: &State| match state {
            State::Established(session) => session.fetches(),
            State::Closed | State::Handshaking(_) => false,
        };
        let Self { sessions, effects, arrivals, .. } = self;
        let Some(session) = sessions.iter_mut().find(|session| fetches(&session.state)) else {
            return false;
        };
        if let (State::Established(state), mut context) = session.split(effects, now) {
            request(state, arrivals, &mut context);
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
    /// them, in the order of their arrival. Each also pays for a few PARITYs.
    pub fn on_arrival(&mut self, datagram: &[u8]) {
        for session in &mut self.sessions {
            if let Some(session) = session.established_mut() {
                session.on_arrival(datagram, Origin::Original);
            }
        }
    }

    /// Replaces the contents of `out` by the next datagram of the reverse flow that parity rebuilt,
    /// if it is not too long to be passed on. Call it until it returns false, after each datagram
    /// that arrives on either socket.
    pub fn next_rebuilt(&mut self, out: &mut Vec<u8>, now: Instant) -> bool {
        let longest = self.arrivals.longest_copy(now);
        let sessions = self.sessions.iter_mut().filter_map(ProxySession::established_mut);
        for decoder in sessions.filter_map(|session| session.decoder_mut()) {
            while let Some(datagram) = decoder.rebuilt() {
                if datagram.len() <= longest {
                    out.clear();
                    out.extend_from_slice(datagram);
                    return true;
                }
            }
        }
        false
    }

    /// The list that arrived last, once: what passed the proxy towards the receiver, in order. Call
    /// it after each input.
    pub fn take_list(&mut self) -> Option<List> {
        let mut sessions = self.sessions.iter_mut().filter_map(ProxySession::established_mut);
        sessions.find_map(Established::take_list)
    }

    /// The datagrams that passed the proxy between two others that arrived, as far as parity lists
    /// them. `after` and `before` are the identifiers of these two. Without `after`, the range
    /// begins where parity began.
    #[must_use]
    pub fn between(&self, after: Option<u32>, before: u32) -> Between {
        let decoder = self.decoder().map(|decoder| decoder.missing(after, before));
        decoder.unwrap_or(Between::Unlisted)
    }

    /// What is missing of so many datagrams that passed the proxy from this position on, as far as
    /// parity lists them.
    #[must_use]
    pub fn missing_at(&self, first: u32, datagrams: u32) -> Between {
        let decoder = self.decoder().map(|decoder| decoder.missing_at(first, datagrams));
        decoder.unwrap_or(Between::Unlisted)
    }

    /// The near segment's losses as far as parity shows them; zeros without parity.
    #[must_use]
    pub fn parity_counts(&self) -> ParityCounts {
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

/// The near RTT of the session with the proxy that keeps copies.
fn keeper(sessions: &[ProxySession]) -> Option<&NearRtt> {
    let mut established = sessions.iter().filter_map(|session| session.established());
    established.find(|session| session.keeps()).map(|session| &session.near_rtt)
}

fn near_segment(sessions: &[ProxySession], now: Instant) -> Near {
    let mut established = sessions.iter().filter_map(|session| session.established());
    let keeper = established.find(|session| session.keeps());
    keeper.map_or_else(Near::default, |session| Near {
        rtt: session.near_rtt.smoothed().unwrap_or_default(),
        queue: session.latest_queue(now),
    })
}

#[cfg(test)]
mod tests;
