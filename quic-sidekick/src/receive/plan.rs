//! Whether and how received datagrams are repaired now.

use super::protection::Protection;
use super::status::{ReceiveRepair, ReceiveState};
use quiche::sidekick::Hold;
use sidekick_protocol::Sender;
use std::time::{Duration, Instant};

/// How long the acknowledgements behind a gap wait: so many near round trips, and the time that
/// follows. Each request and its copies take one.
const HOLD_RTTS: u32 = 6;
const HOLD_MORE: Duration = Duration::from_millis(5);
/// How long they wait for parity alone. At a few megabits per second, a window passes in this time.
const PARITY_HOLD: Duration = Duration::from_millis(50);
/// The hold is no longer than this share of the whole round trip, but at least
/// [`LEAST_HOLD`](LEAST_HOLD). A server's probe timeout allows four deviations more than a round
/// trip, and the client's announced delay.
const HOLD_SHARE: f64 = 0.5;
const LEAST_HOLD: Duration = Duration::from_millis(10);
/// A long hold is released in steps: a server that does not pace answers with bursts. A hold for a
/// proxy that is far away is longer, and so are its steps: about 32 ms altogether.
const STEP_PACKETS: usize = 4;
const STEP_INTERVAL: Duration = Duration::from_micros(300);
const LONG_STEP_INTERVAL: Duration = Duration::from_millis(2);
/// With a larger share of the far round trip, requests and their hold cost more than they repair.
const NEAR_SHARE: f64 = 0.5;
/// A requested copy takes so many near round trips, and the time that follows.
const COPY_RTTS: f64 = 1.1;
const COPY_MORE: Duration = Duration::from_millis(2);
/// Parity repairs sooner than requests from this near round trip on. Below, a request takes about
/// as long as parity, and it costs fewer bytes.
const FAR_AWAY: Duration = Duration::from_millis(10);
/// A queue before the proxy: the near round trip exceeds this multiple of its minimum, and the time
/// that follows.
const QUEUE_FACTOR: f64 = 1.5;
const QUEUE_MORE: Duration = Duration::from_millis(4);
/// How long help pauses after such a queue was seen.
const PAUSE: Duration = Duration::from_millis(100);

/// What to do for received datagrams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) state: ReceiveState,
    /// How acknowledgements wait; `None` if nothing is repaired.
    pub(super) hold: Option<Hold>,
    /// How long a gap is open before copies are requested; `None` if none are.
    pub(super) request_after: Option<Duration>,
    pub(super) parity: bool,
}

impl Plan {
    /// Nothing is repaired.
    fn nothing(state: ReceiveState) -> Self {
        Self { state, hold: None, request_after: None, parity: false }
    }
}

/// Decides, and remembers congestion.
#[derive(Debug)]
pub(super) struct Planner {
    repair: ReceiveRepair,
    congested_until: Option<Instant>,
}

impl Planner {
    pub(super) fn new(repair: ReceiveRepair) -> Self {
        Self { repair, congested_until: None }
    }

    /// The plan for a connection with this round-trip time, which is unknown during the handshake.
    pub(super) fn plan(
        &mut self,
        sender: &Sender,
        whole: Option<Duration>,
        protection: &Protection,
        now: Instant,
    ) -> Plan {
        let Some(near) = sender.keeper_rtt() else {
            // Parity covers what passes before the proxy's answer arrives.
            let near = sender.future_keeper_rtt();
            let parity = near.is_some_and(|near| self.wants_parity(near, protection));
            return Plan { parity, ..Plan::nothing(ReceiveState::NotKept) };
        };
        let minimum = near.saturating_sub(sender.keeper_queueing().unwrap_or_default());
        let most = minimum.mul_f64(QUEUE_FACTOR) + QUEUE_MORE;
        if sender.keeper_rtt_of_late().is_some_and(|latest| latest > most) {
            self.congested_until = Some(now + PAUSE);
        }
        if self.congested_until.is_some_and(|until| now < until) {
            return Plan::nothing(ReceiveState::Congested);
        }
        // During the handshake the whole round trip is unknown, and nothing is held.
        let far = whole.map(|whole| whole.saturating_sub(minimum));
        let is_near = far.is_none_or(|far| minimum <= far.mul_f64(NEAR_SHARE));
        let parity = self.wants_parity(minimum, protection);
        if parity && protection.is_lossless() {
            return Plan { parity, ..Plan::nothing(ReceiveState::Watching) };
        }
        let most = whole.map(|whole| whole.mul_f64(HOLD_SHARE).max(LEAST_HOLD));
        let bounded = |wanted: Duration| most.map_or(wanted, |most| wanted.min(most));
        let for_requests = bounded(HOLD_RTTS * near + HOLD_MORE);
        // Behind parity, a request waits as long as its copy can still come in time.
        let request_after = match parity {
            true => for_requests.checked_sub(near.mul_f64(COPY_RTTS) + COPY_MORE),
            false => is_near.then_some(Duration::ZERO),
        };
        let request_after = request_after.filter(|_| self.repair != ReceiveRepair::Parity);
        if request_after.is_none() && !parity {
            return Plan::nothing(ReceiveState::TooFar);
        }
        let limit = request_after.map_or(bounded(PARITY_HOLD), |_| for_requests);
        let step_interval = if parity { LONG_STEP_INTERVAL } else { STEP_INTERVAL };
        let hold = Hold { limit, step_packets: STEP_PACKETS, step_interval };
        let state = if parity { ReceiveState::Protected } else { ReceiveState::Repairing };
        Plan { state, hold: Some(hold), request_after, parity }
    }

    /// Whether parity suits a proxy at this near round trip.
    fn wants_parity(&self, near: Duration, protection: &Protection) -> bool {
        match self.repair {
            // The proxy sends none.
            _ if protection.is_unanswered() => false,
            ReceiveRepair::Auto => near >= FAR_AWAY,
            ReceiveRepair::Requests => false,
            ReceiveRepair::Parity | ReceiveRepair::Both => true,
        }
    }
}
