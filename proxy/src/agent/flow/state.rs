//! Whether a flow is helped now, and if not, why; and what the operator reads about that.

use std::time::{Duration, Instant};

use sidekick_protocol::policy::{RESTS, Withheld};
use sidekick_protocol::{Assistance, Handling, InOrderState, Reason};

use super::HelpedFlow;

impl HelpedFlow {
    /// Why the agent sends no repairs and no requests now, or `None` if it repairs losses.
    pub(in super::super) fn withheld(&self, now: Instant) -> Option<Withheld> {
        self.resender.policy.withheld(self.traits(), &self.resender.sender, now)
    }

    /// The whole path's round trip, if the flow showed it.
    pub(in super::super) fn rtt(&self) -> Option<Duration> {
        self.resender.policy.rtt(&self.resender.sender)
    }

    /// The longest near RTT with which repairs are in time, once the near RTT is measured.
    pub(in super::super) fn near_most(&self) -> Option<Duration> {
        self.resender.policy.distance(self.traits(), &self.resender.sender).map(|(_, most)| most)
    }

    /// States for the operator whether what arrives is helped, and if not, why. `takes` states
    /// whether the host takes copies.
    pub(in super::super) fn arrivals(&self, takes: bool, now: Instant) -> String {
        if let Some(order) = self.order.as_ref().filter(|_| takes) {
            let what = match order.gate().state() {
                InOrderState::Ordering => "in order",
                InOrderState::Protected => "in order, with parity",
                InOrderState::Watching => "in order; nothing is lost",
                InOrderState::Congested => "congestion",
                InOrderState::Idle if self.resender.sender.is_kept() => "too far",
                InOrderState::Idle => "no copies at a proxy",
            };
            return what.to_owned();
        }
        let why = match &self.reception {
            _ if !takes => "no TUN device",
            _ if self.passes_by => "not in the queue",
            // A proxy keeps copies only for the address that it sees.
            None if self.arriving.kind.is_numbered() && !self.is_own => "not to this host",
            None if self.arriving.kind.is_numbered() => "other headers, or terms change",
            None => "no numbers",
            Some(_) if self.resender.policy.rests() => "a pause",
            Some(_) if !self.may_receive(now) => "its program does not send",
            Some(_) if self.resender.sender.is_kept() => match self.withheld(now) {
                None | Some(Withheld::Protected) => "helped",
                Some(Withheld::Congested) => "a queue grows",
                Some(Withheld::Far) => "too far",
                Some(Withheld::Unmeasured) => "not measured yet",
                Some(Withheld::Unbelieved) => "not believed",
            },
            Some(_) => "no copies at a proxy",
        };
        why.to_owned()
    }

    /// States for the operator whether what leaves is helped, and if not, why. `strays` states
    /// whether answers came along another path.
    pub(in super::super) fn state(&self, strays: bool, now: Instant) -> String {
        if self.resender.policy.rests() {
            return RESTS.to_owned();
        }
        match (self.resender.sender.assistance(), self.withheld(now)) {
            (Assistance::Assisted, None) if self.are_the_same => {
                "its packets cannot be told apart".to_owned()
            }
            (Assistance::Assisted, None) if !self.kind().is_robust() => {
                "helped, though its receiver may not put packets in order".to_owned()
            }
            (Assistance::Assisted, None) => match self.resender.sender.near_loss() {
                loss if matches!(loss.handling(), Handling::Shared | Handling::Left) => {
                    format!("helped; before the proxy, {loss}")
                }
                _ => "helped".to_owned(),
            },
            (Assistance::Assisted, Some(Withheld::Far)) => {
                let ms = |time: Duration| time.as_secs_f64() * 1e3;
                let distance = self.resender.policy.distance(self.traits(), &self.resender.sender);
                let (near, most) = distance.unwrap_or_default();
                let (near, most) = (ms(near), ms(most));
                format!("{}: {near:.1} ms, at most {most:.1} ms", Withheld::Far)
            }
            (Assistance::Assisted, Some(Withheld::Protected)) => {
                format!("helped: {}", Withheld::Protected)
            }
            (Assistance::Assisted, Some(why)) => why.to_string(),
            // A proxy with another key looks like none.
            (other @ Assistance::Seeking, _) if self.is_pinned => {
                format!("{other}, or its key is not that of proxy-key")
            }
            (other @ Assistance::Unassisted(Reason::NotFound), _) if strays => {
                format!("{other}, but answers arrive with other addresses: see the manual")
            }
            (other, _) => other.to_string(),
        }
    }
}
