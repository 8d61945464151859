//! Help for what the connection receives: a proxy repeats datagrams that the near segment lost.
//!
//! The hook reports a gap in the packet numbers, and holds the acknowledgements behind it. This
//! module requests copies of the gap's datagrams. Copies close the gap before the server hears of
//! it. Otherwise the gap is given up: the proxy has nothing, time is over, or the near segment is
//! congested.

use quiche::sidekick::{GapEnd, GapEvent, Hold};
use quiche::{BufFactory, Connection};
use sidekick_protocol::Sender;
use std::fmt;
use std::time::{Duration, Instant};

/// How long the acknowledgements behind a gap wait: so many near round trips, and the time that
/// follows. Each request and its copies take one.
const HOLD_RTTS: u32 = 6;
const HOLD_MORE: Duration = Duration::from_millis(5);
/// The hold is no longer than this share of the whole round trip, but at least
/// [`LEAST_HOLD`](LEAST_HOLD). A server's probe timeout allows four deviations more than a round
/// trip, and the client's announced delay.
const HOLD_SHARE: f64 = 0.5;
const LEAST_HOLD: Duration = Duration::from_millis(10);
/// A long hold is released in steps: a server that does not pace answers with bursts.
const STEP_PACKETS: usize = 4;
const STEP_INTERVAL: Duration = Duration::from_micros(300);
/// With a larger share of the far round trip, holding costs more than it repairs.
const NEAR_SHARE: f64 = 0.5;
/// A queue before the proxy: the near round trip exceeds this multiple of its minimum, and the time
/// that follows.
const QUEUE_FACTOR: f64 = 1.5;
const QUEUE_MORE: Duration = Duration::from_millis(4);
/// How long help pauses after such a queue was seen.
const PAUSE: Duration = Duration::from_millis(100);
/// The times of this many gaps are kept for [`Received::held`].
const MAX_TIMES: usize = 1024;

/// Why received datagrams are not repaired at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReceiveState {
    /// The mode does not ask for it.
    Off,
    /// No proxy keeps copies, or not yet.
    NotKept,
    /// A queue grows before the proxy: losses are congestion, and the server must hear of them.
    Congested,
    /// The proxy is too far away: a repair would hold acknowledgements for too long.
    TooFar,
    /// Losses before the proxy are repaired.
    Repairing,
}

impl fmt::Display for ReceiveState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "the mode does not repair what is received",
            Self::NotKept => "no proxy keeps copies of what is received",
            Self::Congested => "a queue grows before the proxy",
            Self::TooFar => "the proxy is too far away",
            Self::Repairing => "the proxy repeats what is lost before it",
        })
    }
}

/// The state and the counters of the help for received datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Whether they are repaired at present, and if not, why.
    pub state: ReceiveState,
    /// Gaps in the packet numbers for which copies were requested.
    pub gaps: u64,
    /// Of these, gaps that were filled.
    pub filled: u64,
    /// The median, the 99th percentile and the maximum of the times for which acknowledgements
    /// waited, of the latest thousand gaps.
    pub held: [Duration; 3],
}

/// Requests copies of what a connection lacks.
#[derive(Debug)]
pub(crate) struct Receiver {
    state: ReceiveState,
    congested_until: Option<Instant>,
    gaps: u64,
    filled: u64,
    /// How long the latest gaps were open.
    times: Vec<Duration>,
    /// The gaps for which copies were requested and that are open.
    requested: Vec<u64>,
    /// Scratch, kept to avoid allocation.
    unfilled: Vec<u64>,
    copy: Vec<u8>,
}

impl Receiver {
    pub(crate) fn new(enabled: bool) -> Self {
        let state = if enabled { ReceiveState::NotKept } else { ReceiveState::Off };
        Self {
            state,
            congested_until: None,
            gaps: 0,
            filled: 0,
            times: Vec::new(),
            requested: Vec::new(),
            unfilled: Vec::new(),
            copy: Vec::new(),
        }
    }

    /// Begins to watch what the connection receives. A server gets no help with that, because the
    /// hook shows no gaps there. Returns whether copies are of use.
    pub(crate) fn attach<F: BufFactory>(&mut self, conn: &mut Connection<F>) -> bool {
        if conn.is_server() {
            self.state = ReceiveState::Off;
        }
        if self.state != ReceiveState::Off {
            conn.sidekick_report_gaps();
        }
        self.state != ReceiveState::Off
    }

    /// The present state, and the counters.
    pub(crate) fn status(&self) -> Received {
        let mut times = self.times.clone();
        times.sort_unstable();
        let at = |percent: usize| {
            times.get((times.len() * percent / 100).min(times.len().saturating_sub(1)))
        };
        let held = [50, 99, 100].map(|percent| at(percent).copied().unwrap_or_default());
        Received { state: self.state, gaps: self.gaps, filled: self.filled, held }
    }

    /// Feeds a proxy's copy to the connection. Returns whether the connection may have something
    /// to send.
    pub(crate) fn on_copy<F: BufFactory>(&mut self, copy: &[u8], conn: &mut Connection<F>) -> bool {
        let Some((_, local, peer)) = conn.sidekick_active_path() else { return false };
        self.copy.clear();
        self.copy.extend_from_slice(copy);
        let info = quiche::RecvInfo { from: peer, to: local };
        if let Err(error) = conn.sidekick_recv_copy(&mut self.copy, info) {
            tracing::debug!(%error, "the connection cannot use a copy");
        }
        true
    }

    /// Requests what the connection lacks, and gives up what cannot be repaired. Call it after
    /// everything that the connection or the sender may have received. Returns whether the
    /// connection has something to send, such as acknowledgements that wait no longer.
    pub(crate) fn update<F: BufFactory>(
        &mut self,
        conn: &mut Connection<F>,
        sender: &mut Sender,
        path_id: Option<usize>,
        now: Instant,
    ) -> bool {
        if self.state == ReceiveState::Off {
            return false;
        }
        let near = sender.keeper_rtt();
        if near.is_none() && self.state == ReceiveState::NotKept && !conn.sidekick_has_gaps() {
            return false;
        }
        let held = conn.sidekick_held();
        let (mut state, mut hold) = (ReceiveState::NotKept, None);
        if let Some(near) = near {
            let whole = path_id.and_then(|path_id| conn.sidekick_rtt(path_id));
            state = self.judge(sender, near, whole, now);
            hold = (state == ReceiveState::Repairing).then(|| hold_for(near, whole));
        }
        if state != self.state {
            tracing::info!(%state, "the help for received datagrams changed");
            self.state = state;
        }
        sender.set_fetching(hold.is_some());
        conn.sidekick_hold(hold, now);
        if let Some(newest) = conn.sidekick_newest() {
            sender.on_progress(newest, now);
        }
        while let Some(event) = conn.sidekick_gap_event() {
            match event {
                GapEvent::Found(gap) => {
                    if hold.is_some() && sender.request_copies(gap.id, gap.after, gap.before, now) {
                        self.gaps += 1;
                        self.requested.push(gap.id);
                    } else {
                        conn.sidekick_release_gap(gap.id, now);
                    }
                }
                GapEvent::Closed { id, end, after } => {
                    let Some(place) = self.requested.iter().position(|open| *open == id) else {
                        continue;
                    };
                    self.requested.swap_remove(place);
                    sender.close_gap(id);
                    self.filled += u64::from(end == GapEnd::Filled);
                    if self.times.len() >= MAX_TIMES {
                        self.times.swap_remove(0);
                    }
                    self.times.push(after);
                }
            }
        }
        sender.drain_unfilled(&mut self.unfilled);
        for gap in self.unfilled.drain(..) {
            conn.sidekick_release_gap(gap, now);
        }
        conn.sidekick_held() < held
    }

    /// Whether losses are to be repaired now.
    fn judge(
        &mut self,
        sender: &Sender,
        near: Duration,
        whole: Option<Duration>,
        now: Instant,
    ) -> ReceiveState {
        let minimum = near.saturating_sub(sender.keeper_queueing().unwrap_or_default());
        let most = minimum.mul_f64(QUEUE_FACTOR) + QUEUE_MORE;
        if sender.keeper_rtt_of_late().is_some_and(|latest| latest > most) {
            self.congested_until = Some(now + PAUSE);
        }
        if self.congested_until.is_some_and(|until| now < until) {
            return ReceiveState::Congested;
        }
        // During the handshake the whole round trip is unknown, and nothing is held.
        let far = whole.map(|whole| whole.saturating_sub(minimum));
        if far.is_some_and(|far| minimum > far.mul_f64(NEAR_SHARE)) {
            return ReceiveState::TooFar;
        }
        ReceiveState::Repairing
    }
}

/// How long and in which steps acknowledgements are held.
fn hold_for(near: Duration, whole: Option<Duration>) -> Hold {
    let wanted = HOLD_RTTS * near + HOLD_MORE;
    let most = whole.map_or(wanted, |whole| whole.mul_f64(HOLD_SHARE).max(LEAST_HOLD));
    Hold { limit: wanted.min(most), step_packets: STEP_PACKETS, step_interval: STEP_INTERVAL }
}
