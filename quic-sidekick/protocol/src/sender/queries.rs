//! A sender's status and measurements.

use super::Sender;
use super::last_quack::LastQuack;
use super::rtt::NearRtt;
use super::selector::Selection;
use super::session::ProxySession;
use super::status::{Assistance, Reason, SenderStats};
use crate::identify::canonical;
use crate::keys::PublicKey;
use crate::loss_floor::NearLoss;
use crate::terms::Terms;
use crate::wire::VERSION;
use crate::wire::discovery::Answer;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

impl Sender {
    /// Whether a proxy assists the flow, and if not, why.
    #[must_use]
    pub fn assistance(&self) -> Assistance {
        if self.stood_down {
            return Assistance::Unassisted(Reason::StoodDown);
        }
        if let Some(stopped) = self.stopped {
            return stopped.assistance;
        }
        let live = || self.sessions.iter().filter(|session| session.is_live());
        if live().any(|session| session.assistance == Assistance::Assisted) {
            return Assistance::Assisted;
        }
        if live().any(|session| session.assistance == Assistance::Seeking) {
            return Assistance::Seeking;
        }
        let reason = live().find_map(|session| match session.assistance {
            Assistance::Unassisted(reason) => Some(reason),
            _ => None,
        });
        match reason.or(self.last_reason) {
            Some(reason) => Assistance::Unassisted(reason),
            None if self.flow.is_some() && self.search.has_failed() => {
                Assistance::Unassisted(Reason::NotFound)
            }
            None => Assistance::Seeking,
        }
    }

    /// Whether [`Sender::assistance`] is [`Reason::StoodDown`], which is final.
    #[inline]
    #[must_use]
    pub fn has_stood_down(&self) -> bool {
        self.stood_down
    }

    /// Counters since the sender was created.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        let mut stats = self.stats;
        self.sessions.iter().for_each(|session| stats += session.stats);
        stats
    }

    /// The leading session: the selected one, or the farthest of those that report.
    pub(super) fn leading(&self) -> Option<&ProxySession> {
        let reporting = self.sessions.iter().filter(|session| session.is_assisted());
        reporting.max_by_key(|session| session.smoothed_rtt())
    }

    /// The smoothed round-trip time of the near segment, once measured.
    #[must_use]
    pub fn near_rtt(&self) -> Option<Duration> {
        if let Some(stopped) = self.stopped {
            return stopped.near_rtt;
        }
        let measured = self.sessions.iter().filter_map(ProxySession::smoothed_rtt).max();
        self.leading().and_then(ProxySession::smoothed_rtt).or(measured)
    }

    /// The latest sample of the near round-trip time, without the time that a report waited.
    #[must_use]
    pub fn latest_near_rtt(&self) -> Option<Duration> {
        self.leading()?.near_rtt()?.latest()
    }

    /// The excess of the near segment's smoothed round-trip time over the shortest of the last ten
    /// seconds. A queue or a radio link causes it.
    #[must_use]
    pub fn near_queueing(&self) -> Option<Duration> {
        self.leading()?.near_rtt()?.queueing()
    }

    /// The least excess of the near segment's last 16 round-trip times over the shortest of the
    /// last ten seconds or more. Only a queue causes it: a radio link does not delay all packets.
    #[must_use]
    pub fn near_standing_queue(&self) -> Option<Duration> {
        self.leading()?.near_rtt()?.standing()
    }

    /// Whether a queue grows before the proxy: the last three samples of the near RTT exceed the
    /// shortest recent one by much, or by nearly as much as the longest queue of the session
    /// delayed them (SPEC.md, appendix A.6). Then losses are congestion, and the congestion
    /// controller has to detect them.
    #[must_use]
    pub fn near_queue_grows(&self) -> bool {
        self.leading().and_then(ProxySession::near_rtt).is_some_and(NearRtt::queue_grows)
    }

    /// How the near segment loses packets, at the latest loss.
    #[must_use]
    pub fn near_loss(&self) -> NearLoss {
        self.floor.latest()
    }

    /// Whether random losses are told from what a queue drops by what shorter queues lost (SPEC.md,
    /// appendix A.8). If not, all losses while a queue grows count as congestion.
    #[must_use]
    pub fn tells_congestion(&self, now: Instant) -> bool {
        self.floor.tells(now)
    }

    /// The numbers of the sessions with proxies, as [`Sender::session_number`] reads them from
    /// their datagrams. They change when a session begins or ends.
    pub fn session_numbers(&self) -> impl Iterator<Item = u32> {
        self.sessions.iter().filter_map(ProxySession::number)
    }

    /// The session number in a datagram from a proxy, or `None` if the datagram is not of this
    /// version. A caller with many senders and one adjacent socket finds the right sender by it.
    ///
    /// ```
    /// use sidekick_protocol::Sender;
    ///
    /// assert_eq!(Sender::session_number(&[0x13, 0, 0, 1, 2, 9]), Some(258));
    /// assert_eq!(Sender::session_number(b"GET / HTTP/1.1"), None);
    /// ```
    #[must_use]
    pub fn session_number(datagram: &[u8]) -> Option<u32> {
        let [first, number @ ..] = datagram.first_chunk::<5>()?;
        (first >> 4 == VERSION).then_some(u32::from_be_bytes(*number))
    }

    /// The proxy that a datagram names, if it is an answer to a marker. Any node on the flow's path
    /// can name any address, and so can the destination. So a caller that requests help for other
    /// programs first decides whether to pass the answer to [`Sender::handle_on_path`].
    ///
    /// ```
    /// use sidekick_protocol::Sender;
    ///
    /// assert_eq!(Sender::answering_proxy(b"GET / HTTP/1.1"), None);
    /// ```
    #[must_use]
    pub fn answering_proxy(datagram: &[u8]) -> Option<SocketAddr> {
        Answer::parse(datagram).ok().map(|answer| canonical(answer.proxy))
    }

    /// The terms granted, during a session.
    #[must_use]
    pub fn granted(&self) -> Option<&Terms> {
        self.leading()
            .and_then(ProxySession::granted)
            .or_else(|| self.sessions.iter().find_map(ProxySession::granted))
    }

    /// The leading proxy and its key.
    #[must_use]
    pub fn proxy(&self) -> Option<(SocketAddr, PublicKey)> {
        if let Some(stopped) = self.stopped {
            return stopped.proxy;
        }
        let leading = self.leading()?;
        Some((leading.proxy, leading.key?))
    }

    /// The selected proxy and the reason. `None` until the sender has selected one of several.
    #[must_use]
    pub fn selection(&self) -> Option<Selection> {
        self.selector.made
    }

    /// The result of the latest quACK; [`SenderStats::quacks_received`] counts quACKs.
    #[must_use]
    pub fn last_quack(&self) -> Option<&LastQuack> {
        self.last_quack.as_ref()
    }
}
