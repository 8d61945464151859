//! Whether and how received datagrams are repaired now.

use super::{ParityState, ReceiveRepair, ReceiveState};
use crate::sender::Sender;
use std::time::{Duration, Instant};

/// How long what follows a gap waits: this many near round trips, and the time below. Each request
/// and its copies take one round trip.
const HOLD_RTTS: u32 = 6;
const HOLD_MORE: Duration = Duration::from_millis(5);
/// How long they wait for parity alone. At a few megabits per second, a window passes in this time.
const PARITY_HOLD: Duration = Duration::from_millis(50);
/// Without parity the hold is no longer than this share of the whole round trip, but at least
/// [`LEAST_HOLD`]. A server's probe timeout allows four deviations more than a round
/// trip, and the client's announced delay.
const HOLD_SHARE: f64 = 0.5;
const LEAST_HOLD: Duration = Duration::from_millis(10);
/// Behind parity the share is larger, if a second request then is in time. The first one or its
/// copy may be lost. The probe timeout still allows it, as it is more than a round trip. Parity has
/// this time before the first of two requests.
const HOLD_SHARE_FOR_TWO: f64 = 0.75;
const LEAST_PARITY_TIME: Duration = Duration::from_millis(10);
/// If the near round trip is more than this part of the whole one, requests and their hold cost
/// more than they repair.
pub(crate) const NEAR_PART: u32 = 3;
/// A requested copy takes this many near round trips, and the time below.
const COPY_RTTS: f64 = 1.1;
const COPY_MORE: Duration = Duration::from_millis(2);
/// Parity repairs sooner than requests from this near round trip on. Below, a request takes about
/// as long as parity, and it costs fewer bytes.
pub(crate) const FAR_AWAY: Duration = Duration::from_millis(10);
/// How long help pauses after a queue grew before the proxy.
const PAUSE: Duration = Duration::from_millis(100);
/// Where more than this share of the losses is congestion, parity adds to it and hides some of it.
/// So none is wanted for this time.
pub(crate) const MOSTLY: f32 = 0.5;
const NO_PARITY: Duration = Duration::from_secs(1);

/// The repair of received datagrams.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What the plan does, or why it does nothing.
    pub state: ReceiveState,
    /// How long what follows a gap waits at most; `None` if nothing does.
    pub hold: Option<Duration>,
    /// How long a gap is open before copies are requested; `None` if none are.
    pub request_after: Option<Duration>,
    /// Whether to ask for parity.
    pub parity: bool,
}

impl Plan {
    /// Nothing is repaired.
    fn nothing(state: ReceiveState) -> Self {
        Self { state, hold: None, request_after: None, parity: false }
    }
}

/// Round-trip times that a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct RoundTrips {
    /// To the proxy that keeps copies; `None` if none does.
    near: Option<NearRoundTrip>,
    /// To a proxy that keeps copies, or soon will. A rough value.
    future_near: Option<Duration>,
    /// To the peer; unknown during the handshake.
    whole: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
struct NearRoundTrip {
    smoothed: Duration,
    /// As the flow's packets take it, without a queue.
    usual: Duration,
    /// A queue grows before the proxy.
    queue_grows: bool,
    /// Most of what it loses is congestion.
    congested: bool,
}

impl RoundTrips {
    /// Those that a sender measured, and the whole path's if it is known.
    #[must_use]
    pub fn of(sender: &Sender, whole: Option<Duration>) -> Self {
        let near = sender.keeper_rtt().map(|smoothed| NearRoundTrip {
            smoothed,
            usual: smoothed.saturating_sub(sender.keeper_standing_queue().unwrap_or_default()),
            queue_grows: sender.keeper_queue_grows(),
            congested: sender.reverse_near_loss().congestion > MOSTLY,
        });
        Self { near, future_near: sender.future_keeper_rtt(), whole }
    }

    /// The round trip of the whole path.
    #[inline]
    #[must_use]
    pub fn whole(self) -> Option<Duration> {
        self.whole
    }

    /// The same for a caller that judges by itself whether losses are congestion.
    pub(crate) fn without_losses(self) -> Self {
        let near = self.near.map(|near| NearRoundTrip { congested: false, ..near });
        Self { near, ..self }
    }

    /// The same with another round trip of the whole path.
    #[must_use]
    pub fn with_whole(self, whole: Option<Duration>) -> Self {
        Self { whole, ..self }
    }
}

/// Decides, and remembers congestion.
#[derive(Debug)]
pub struct Planner {
    repair: ReceiveRepair,
    congested_until: Option<Instant>,
    no_parity_until: Option<Instant>,
}

impl Planner {
    /// Repairs in this way.
    #[must_use]
    pub fn new(repair: ReceiveRepair) -> Self {
        Self { repair, congested_until: None, no_parity_until: None }
    }

    /// The plan for a connection with these round-trip times.
    pub fn plan(&mut self, rtts: RoundTrips, parity: ParityState, now: Instant) -> Plan {
        let Some(near) = rtts.near else {
            // Parity covers what passes before the proxy's answer arrives.
            let parity = rtts.future_near.is_some_and(|near| self.wants_parity(near, parity));
            return Plan { parity, ..Plan::nothing(ReceiveState::NotKept) };
        };
        if near.queue_grows {
            self.congested_until = Some(now + PAUSE);
        }
        if self.congested_until.is_some_and(|until| now < until) {
            return Plan::nothing(ReceiveState::Congested);
        }
        if near.congested {
            self.no_parity_until = Some(now + NO_PARITY);
        }
        // Who chose parity has no other repair.
        let may_protect = self.repair == ReceiveRepair::Parity
            || self.no_parity_until.is_none_or(|until| until <= now);
        let NearRoundTrip { smoothed, usual, .. } = near;
        // During the handshake nothing is held.
        let is_near = rtts.whole.is_none_or(|whole| usual <= whole / NEAR_PART);
        if may_protect && self.wants_parity(usual, parity) {
            match parity {
                ParityState::Lossless => {
                    Plan { parity: true, ..Plan::nothing(ReceiveState::Watching) }
                }
                _ => self.by_parity(smoothed, rtts.whole, parity),
            }
        } else if self.repair == ReceiveRepair::Parity {
            Plan::nothing(ReceiveState::NoParity)
        } else if is_near {
            by_requests(smoothed, rtts.whole)
        } else {
            Plan::nothing(ReceiveState::TooFar)
        }
    }

    /// Repairs by parity, and by requests where their copies are in time.
    fn by_parity(&self, near: Duration, whole: Option<Duration>, parity: ParityState) -> Plan {
        let copy = near.mul_f64(COPY_RTTS) + COPY_MORE;
        let for_two = hold_for_copies(near, whole, HOLD_SHARE_FOR_TWO);
        let after_two = for_two.checked_sub(2 * copy).filter(|time| *time >= LEAST_PARITY_TIME);
        let for_one = longest_hold(near, whole);
        let after_one = || for_one.checked_sub(copy).map(|after| (for_one, after));
        let requests = after_two.map(|after| (for_two, after)).or_else(after_one);
        // A gap where nothing else was lost is often a number that the peer skipped.
        let is_quiet = parity == ParityState::Quiet;
        let requests = requests.filter(|_| self.repair != ReceiveRepair::Parity && !is_quiet);
        let limit = requests.map_or(parity_hold(whole), |(limit, _)| limit);
        // Waiting is useless where parity cannot rebuild the loss.
        let waits = requests.is_some() || parity != ParityState::Overwhelmed;
        Plan {
            state: if is_quiet { ReceiveState::Watching } else { ReceiveState::Protected },
            hold: waits.then_some(limit),
            request_after: requests.map(|(_, after)| after),
            parity: true,
        }
    }

    /// Whether parity suits a proxy at this near round trip.
    fn wants_parity(&self, near: Duration, parity: ParityState) -> bool {
        match self.repair {
            _ if parity == ParityState::Unanswered => false,
            ReceiveRepair::Auto => near >= FAR_AWAY,
            ReceiveRepair::Requests => false,
            ReceiveRepair::Parity | ReceiveRepair::Both => true,
        }
    }
}

/// Requests copies of missing datagrams at once.
fn by_requests(near: Duration, whole: Option<Duration>) -> Plan {
    Plan {
        state: ReceiveState::Repairing,
        hold: Some(longest_hold(near, whole)),
        request_after: Some(Duration::ZERO),
        parity: false,
    }
}

/// How long what follows a gap waits for requested copies at most.
pub(crate) fn longest_hold(near: Duration, whole: Option<Duration>) -> Duration {
    hold_for_copies(near, whole, HOLD_SHARE)
}

/// How long what follows a gap waits for parity alone.
pub(crate) fn parity_hold(whole: Option<Duration>) -> Duration {
    at_most(PARITY_HOLD, whole, HOLD_SHARE)
}

fn hold_for_copies(near: Duration, whole: Option<Duration>, share: f64) -> Duration {
    at_most(HOLD_RTTS * near + HOLD_MORE, whole, share)
}

/// A hold, bounded by this share of the whole round trip.
fn at_most(hold: Duration, whole: Option<Duration>, share: f64) -> Duration {
    whole.map_or(hold, |whole| hold.min(whole.mul_f64(share).max(LEAST_HOLD)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn rtts(near: u64, whole: u64, congested: bool) -> RoundTrips {
        let (smoothed, usual, queue_grows) = (ms(near), ms(near), false);
        let near = NearRoundTrip { smoothed, usual, queue_grows, congested };
        RoundTrips { near: Some(near), future_near: None, whole: Some(ms(whole)) }
    }

    /// The plan past a proxy at this near round trip.
    fn plan(repair: ReceiveRepair, near: u64, whole: u64, parity: ParityState) -> Plan {
        Planner::new(repair).plan(rtts(near, whole, false), parity, epoch())
    }

    #[allow(clippy::disallowed_methods, reason = "a test reads the clock")]
    fn epoch() -> Instant {
        Instant::now()
    }

    fn auto(near: u64, whole: u64) -> Plan {
        plan(ReceiveRepair::Auto, near, whole, ParityState::Lossy)
    }

    #[test]
    fn requests_serve_near_proxies_and_parity_those_far_away() {
        assert!(!auto(9, 80).parity && auto(10, 80).parity);
        assert_eq!(auto(9, 80).request_after, Some(Duration::ZERO));
        // The hold: six near round trips, but at most half of the whole one, and 10 ms at least.
        for (near, whole, limit) in [(2, 100, 17), (9, 80, 40), (4, 16, 10)] {
            assert_eq!(auto(near, whole).hold.unwrap(), ms(limit), "{near} of {whole}");
        }
    }

    /// Parity would add to the congestion.
    #[test]
    fn congestion_gets_no_parity_for_a_while() {
        let (mut planner, begun) = (Planner::new(ReceiveRepair::Auto), epoch());
        let mut plan =
            |congested, at| planner.plan(rtts(20, 80, congested), ParityState::Lossy, begun + at);
        assert!(plan(false, ms(0)).parity);
        let congested = plan(true, ms(1));
        assert!(!congested.parity && congested.request_after.is_some());
        assert!(!plan(false, ms(500)).parity && plan(false, ms(3000)).parity);
    }

    #[test]
    fn behind_parity_a_request_leaves_time_for_its_copy() {
        // Whether two copies, one or none come in time. A copy takes 1.1 near round trips and 2 ms.
        for (near, whole, after, limit) in [
            (20, 80, Some(60 - 2 * 24), 60),
            (60, 160, Some(80 - 68), 80),
            (60, 120, None, 50),
            (560, 580, None, 50),
        ] {
            let plan = auto(near, whole);
            assert_eq!(plan.request_after, after.map(ms), "{near} of {whole}");
            assert_eq!(plan.hold.unwrap(), ms(limit), "{near} of {whole}");
        }
    }

    #[test]
    fn nothing_waits_for_insufficient_parity() {
        let parity = ParityState::Overwhelmed;
        let far = plan(ReceiveRepair::Auto, 200, 260, parity);
        assert!(far.parity && far.hold.is_none() && far.request_after.is_none(), "{far:?}");
        let near = plan(ReceiveRepair::Auto, 20, 80, parity);
        assert!(near.hold.is_some() && near.request_after.is_some(), "{near:?}");
    }

    #[test]
    fn a_user_may_choose() {
        let lossy = ParityState::Lossy;
        assert!(plan(ReceiveRepair::Both, 2, 80, lossy).parity);
        assert_eq!(plan(ReceiveRepair::Parity, 20, 80, lossy).request_after, None);
        assert!(!plan(ReceiveRepair::Requests, 20, 80, lossy).parity);
        let far = plan(ReceiveRepair::Requests, 60, 160, lossy);
        assert_eq!((far.state, far.hold.is_none()), (ReceiveState::TooFar, true));
        // The proxy sends none, and the user wants no requests.
        let none = plan(ReceiveRepair::Parity, 20, 80, ParityState::Unanswered);
        assert_eq!((none.state, none.parity), (ReceiveState::NoParity, false));
    }

    #[test]
    fn with_losses_before_the_proxy_alone_nothing_waits() {
        let watching = plan(ReceiveRepair::Auto, 20, 80, ParityState::Lossless);
        assert_eq!((watching.state, watching.parity), (ReceiveState::Watching, true));
        assert!(watching.hold.is_none() && watching.request_after.is_none());
    }

    #[test]
    fn the_first_loss_waits_for_parity_and_is_not_requested() {
        let quiet = plan(ReceiveRepair::Auto, 20, 80, ParityState::Quiet);
        assert_eq!((quiet.state, quiet.parity), (ReceiveState::Watching, true));
        assert_eq!((quiet.hold.unwrap(), quiet.request_after), (ms(40), None));
    }

    #[test]
    fn help_pauses_after_a_queue() {
        let start = epoch();
        let mut planner = Planner::new(ReceiveRepair::Auto);
        let mut state = |queue_grows, at| {
            let (smoothed, usual, congested) = (ms(20), ms(20), false);
            let near = NearRoundTrip { smoothed, usual, queue_grows, congested };
            let rtts = RoundTrips { near: Some(near), future_near: None, whole: Some(ms(80)) };
            planner.plan(rtts, ParityState::Lossy, start + ms(at)).state
        };
        assert_eq!(state(true, 0), ReceiveState::Congested);
        assert_eq!(state(false, 99), ReceiveState::Congested);
        assert_eq!(state(false, 100), ReceiveState::Protected);
    }
}
