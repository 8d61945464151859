//! Help for what the connection receives: a proxy replaces datagrams that the near segment lost.
//!
//! The hook reports a gap in the packet numbers, and holds the acknowledgements behind it. This
//! module requests copies of the gap's datagrams, or waits for parity that rebuilds them. So the
//! gap is closed before the server hears of it. Otherwise it gives up the gap: the proxy has no
//! copy, it is too late, or the loss is congestion, of which the server has to hear.

mod status;
mod times;

use quiche::sidekick::{Arrived, Gap, GapEnd, GapEvent, Hold};
use quiche::{BufFactory, Connection};
use sidekick_protocol::repair::{ParityState, Plan, Planner, Protection, RoundTrips};
use sidekick_protocol::{Between, Fate, Sender};
pub use status::{ParseRepairError, ReceiveRepair, ReceiveState, Received};
use std::time::{Duration, Instant};
use times::Times;

/// Without a list that shows a gap, parity is not waited for any longer. The proxy may send none.
const UNLISTED: Duration = Duration::from_millis(15);

/// A long hold is released in steps: a server that does not pace answers with bursts. A hold for
/// parity, from a proxy that is far away, is longer, and so are its steps.
const STEP_PACKETS: usize = 1;
const STEP_INTERVAL: Duration = Duration::from_micros(300);
const LONG_STEP_PACKETS: usize = 4;
const LONG_STEP_INTERVAL: Duration = Duration::from_millis(2);

/// A gap that is being repaired.
#[derive(Debug)]
struct OpenGap {
    gap: Gap,
    /// Copies were requested. Until then it waits for parity.
    requested: bool,
}

/// A plan, and its inputs.
#[derive(Clone, Copy, Debug)]
struct Planned {
    rtts: RoundTrips,
    parity: ParityState,
    plan: Plan,
}

impl Planned {
    /// Whether the plan is for this round trip of the whole path.
    #[inline]
    fn is_for(&self, whole: Option<Duration>) -> bool {
        self.rtts.whole() == whole
    }
}

/// The result of the latest measurements of the sender. A packet changes none of them, and asking
/// takes long.
#[derive(Clone, Copy, Debug)]
enum Known {
    /// They may have changed since.
    Nothing,
    /// No proxy keeps copies, or will soon.
    NoKeeper,
    /// The latest plan.
    Plan(Planned),
}

/// Replaces the datagrams that a connection lacks.
#[derive(Debug)]
pub(crate) struct Receiver {
    state: ReceiveState,
    planner: Planner,
    known: Known,
    protection: Protection,
    /// The connection keeps what arrives, for parity.
    collecting: bool,
    gaps: u64,
    filled: u64,
    rebuilt: u64,
    congestion: u64,
    times: Times,
    /// The gaps that are being repaired.
    open: Vec<OpenGap>,
    /// When the first of those that wait for parity is to be requested.
    request_at: Option<Instant>,
    /// Scratch, kept to avoid allocation.
    unfilled: Vec<u64>,
    copy: Vec<u8>,
}

impl Receiver {
    pub(crate) fn new(enabled: bool, repair: ReceiveRepair) -> Self {
        let state = if enabled { ReceiveState::NotKept } else { ReceiveState::Off };
        Self {
            state,
            planner: Planner::new(repair),
            known: Known::Nothing,
            protection: Protection::default(),
            collecting: false,
            gaps: 0,
            filled: 0,
            rebuilt: 0,
            congestion: 0,
            times: Times::default(),
            open: Vec::new(),
            request_at: None,
            unfilled: Vec::new(),
            copy: Vec::new(),
        }
    }

    /// Begins to watch what the connection receives. The hook shows no gaps on a server, so a
    /// server gets no help with that. Returns whether the connection can use copies.
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
    pub(crate) fn status(&self, sender: &Sender) -> Received {
        let Self { state, gaps, filled, rebuilt, congestion, .. } = *self;
        let (held, near_loss) = (self.times.percentiles(), sender.reverse_near_loss());
        Received { state, gaps, filled, rebuilt, congestion, near_loss, held }
    }

    /// When [`update`](Self::update) is due.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.request_at
    }

    /// Feeds a proxy's copy to the connection. Returns whether the connection may have something
    /// to send.
    pub(crate) fn on_copy<F: BufFactory>(&mut self, copy: &[u8], conn: &mut Connection<F>) -> bool {
        self.copy.clear();
        self.copy.extend_from_slice(copy);
        self.pass_copy(conn)
    }

    /// Feeds the scratch copy to the connection.
    fn pass_copy<F: BufFactory>(&mut self, conn: &mut Connection<F>) -> bool {
        let Some((_, local, peer)) = conn.sidekick_active_path() else { return false };
        let info = quiche::RecvInfo { from: peer, to: local };
        if let Err(error) = conn.sidekick_recv_copy(&mut self.copy, info) {
            tracing::debug!(%error, "the connection cannot use a copy");
        }
        true
    }

    /// Requests what the connection lacks, and gives up what cannot be repaired. Call it after
    /// everything that the connection or the sender may have received. Returns whether the
    /// connection has something to send, such as acknowledgements that wait no longer.
    #[inline]
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
        let rebuilt = self.collecting
            // An input of the sender may also have rebuilt something.
            && (matches!(self.known, Known::Nothing) || conn.sidekick_has_arrivals())
            && self.pass_arrivals(conn, sender, now);
        let whole = || path_id.and_then(|path_id| conn.sidekick_rtt(path_id));
        if !conn.sidekick_has_gaps() {
            match &self.known {
                Known::NoKeeper => return rebuilt,
                Known::Plan(planned) if self.is_settled(planned) && planned.is_for(whole()) => {
                    note_progress(conn, sender, now);
                    self.note_received(conn, sender, now);
                    return rebuilt;
                }
                Known::Nothing | Known::Plan(_) => {}
            }
        }
        let whole = whole();
        self.update_slowly(conn, sender, whole, now) || rebuilt
    }

    /// Whether a packet that shows no gap leaves all as it is, while this plan holds.
    #[inline]
    fn is_settled(&self, Planned { plan, parity, .. }: &Planned) -> bool {
        // Congestion ends by itself. Without a keeper, progress is not to be noted: the sender
        // would take it for old when there is one.
        let may_change = matches!(plan.state, ReceiveState::Congested | ReceiveState::NotKept);
        // The proxy's answer to the request for parity is an input of the sender. A missing answer
        // is not.
        let same = || self.protection.is_answered() && self.protection.state() == *parity;
        !may_change && self.open.is_empty() && (!plan.parity || same())
    }

    /// Passes what arrived to the sender, and feeds what parity rebuilds to the connection. Returns
    /// whether there was anything.
    #[inline(never)]
    fn pass_arrivals<F: BufFactory>(
        &mut self,
        conn: &mut Connection<F>,
        sender: &mut Sender,
        now: Instant,
    ) -> bool {
        conn.sidekick_take_arrivals(|datagram| {
            self.protection.note_arrival();
            sender.on_arrival(datagram);
        });
        self.take_rebuilt(conn, sender, now)
    }

    /// As [`update`](Self::update), if there is a gap, or another plan may be due.
    #[inline(never)]
    fn update_slowly<F: BufFactory>(
        &mut self,
        conn: &mut Connection<F>,
        sender: &mut Sender,
        whole: Option<Duration>,
        now: Instant,
    ) -> bool {
        self.request_at = None;
        if self.state == ReceiveState::NotKept
            && sender.future_keeper_rtt().is_none()
            && !conn.sidekick_has_gaps()
        {
            self.known = Known::NoKeeper;
            self.collect(false, conn);
            return false;
        }
        self.update_with_keeper(conn, sender, whole, now)
    }

    /// As [`update`](Self::update), if a proxy keeps copies or will, or there is a gap.
    fn update_with_keeper<F: BufFactory>(
        &mut self,
        conn: &mut Connection<F>,
        sender: &mut Sender,
        whole: Option<Duration>,
        now: Instant,
    ) -> bool {
        if self.state == ReceiveState::NotKept {
            // Before a proxy keeps copies, nobody judges what arrives.
            conn.sidekick_take_arrived();
        }
        let held = conn.sidekick_held();
        let (plan, is_new) = self.plan(sender, whole, now);
        // Otherwise the sender is in this state already.
        if is_new || plan.parity && !self.protection.is_answered() {
            self.follow(plan, sender, now);
            self.collect(sender.collects_arrivals(), conn);
        }
        conn.sidekick_hold(hold(plan), now);
        note_progress(conn, sender, now);
        while let Some(event) = conn.sidekick_gap_event() {
            match event {
                GapEvent::Found(gap) => self.begin(gap, plan, conn, sender, now),
                GapEvent::Closed { id, end, after } => self.end(id, end, after, sender),
                GapEvent::Late { id } => sender.on_late(id, now),
            }
        }
        // After the gaps, which end with the latest arrival.
        self.note_received(conn, sender, now);
        self.review(plan, conn, sender, now);
        sender.drain_unfilled(&mut self.unfilled);
        for id in self.unfilled.drain(..) {
            conn.sidekick_release_gap(id, now);
        }
        conn.sidekick_held() < held
    }

    /// Tells the sender what arrived since the last call.
    #[inline]
    fn note_received<F: BufFactory>(
        &mut self,
        conn: &mut Connection<F>,
        sender: &mut Sender,
        now: Instant,
    ) {
        let Arrived { datagrams, bytes, longest } = conn.sidekick_take_arrived();
        let Some(others) = datagrams.checked_sub(1) else { return };
        sender.on_received(longest, now);
        if let Some(bytes) = (bytes - longest).checked_div(others) {
            (0..others).for_each(|_| sender.on_received(bytes, now));
        }
    }

    /// Notes that the sender had an input, a timeout, or another flow. They alone change its
    /// measurements.
    pub(crate) fn on_sender_changed(&mut self) {
        self.known = Known::Nothing;
    }

    /// Notes that the connection has another path, and maybe another proxy.
    pub(crate) fn on_migrated(&mut self) {
        self.on_sender_changed();
        self.protection.expect_answers();
    }

    /// The plan for now, and whether it is a new one.
    fn plan(&mut self, sender: &Sender, whole: Option<Duration>, now: Instant) -> (Plan, bool) {
        let parity = self.protection.state();
        let rtts = match self.known {
            // Congestion ends by itself.
            Known::Plan(last)
                if (last.rtts.whole(), last.parity) == (whole, parity)
                    && last.plan.state != ReceiveState::Congested =>
            {
                return (last.plan, false);
            }
            Known::Plan(Planned { rtts, .. }) => rtts.with_whole(whole),
            Known::Nothing | Known::NoKeeper => RoundTrips::of(sender, whole),
        };
        let plan = self.planner.plan(rtts, parity, now);
        self.known = Known::Plan(Planned { rtts, parity, plan });
        (plan, true)
    }

    /// Lets the sender follow the plan.
    fn follow(&mut self, plan: Plan, sender: &mut Sender, now: Instant) {
        if plan.state != self.state {
            tracing::info!(state = %plan.state, "the help for received datagrams changed");
            self.state = plan.state;
        }
        sender.set_fetching(plan.request_after.is_some());
        let near = sender.future_keeper_rtt().unwrap_or_default();
        let wanted = plan.parity.then(|| self.protection.wanted(sender.parity_counts(), near, now));
        sender.protect(wanted, now);
        if !plan.parity {
            self.protection.pause();
        }
        if !plan.parity && plan.state != ReceiveState::Congested {
            sender.end_parity(now);
        }
    }

    /// Lets the connection keep what arrives, or not.
    #[inline]
    fn collect<F: BufFactory>(&mut self, collecting: bool, conn: &mut Connection<F>) {
        if std::mem::replace(&mut self.collecting, collecting) != collecting {
            conn.sidekick_keep_arrivals(collecting);
        }
    }

    /// Feeds what parity rebuilt to the connection. Returns whether there was anything.
    fn take_rebuilt<F: BufFactory>(
        &mut self,
        conn: &mut Connection<F>,
        sender: &mut Sender,
        now: Instant,
    ) -> bool {
        let before = self.rebuilt;
        let is_congested = sender.is_reverse_congested(now);
        while sender.next_rebuilt(&mut self.copy, now) {
            if is_congested {
                continue;
            }
            self.rebuilt += 1;
            self.pass_copy(conn);
        }
        self.rebuilt > before
    }

    /// Begins to repair a gap, or gives it up.
    fn begin<F: BufFactory>(
        &mut self,
        gap: Gap,
        plan: Plan,
        conn: &mut Connection<F>,
        sender: &mut Sender,
        now: Instant,
    ) {
        let congestion = sender.on_missing(gap.id, gap.missing, now);
        self.congestion += u64::from(congestion);
        if congestion {
            // The gaps before it are of the same kind.
            sender.on_fate(gap.id, Fate::Unknown);
            conn.sidekick_release_gaps(now);
            return;
        }
        if plan.hold.is_none() {
            sender.on_fate(gap.id, Fate::Unknown);
            conn.sidekick_release_gap(gap.id, now);
            return;
        }
        if plan.request_after.is_some() && !sender.should_wait() {
            // The answer tells whether the expectation still holds.
            if !sender.ask_about(gap.id, gap.after, gap.before, now) {
                sender.on_fate(gap.id, Fate::Unknown);
            }
            conn.sidekick_release_gap(gap.id, now);
            return;
        }
        self.gaps += 1;
        self.open.push(OpenGap { gap, requested: false });
    }

    /// Notes the end of a gap.
    fn end(&mut self, id: u64, end: GapEnd, after: Duration, sender: &mut Sender) {
        let Some(place) = self.open.iter().position(|open| open.gap.id == id) else { return };
        self.open.swap_remove(place);
        sender.close_gap(id);
        sender
            .on_fate(id, if end == GapEnd::Filled { Fate::Lost(u32::MAX) } else { Fate::Unknown });
        self.filled += u64::from(end == GapEnd::Filled);
        self.times.push(after);
    }

    /// Requests copies for the gaps that parity does not close in time. Gives up those that the
    /// proxy cannot close.
    fn review<F: BufFactory>(
        &mut self,
        plan: Plan,
        conn: &mut Connection<F>,
        sender: &mut Sender,
        now: Instant,
    ) {
        let is_congested = sender.is_reverse_congested(now);
        for OpenGap { gap, requested } in &mut self.open {
            let patience = plan.request_after.unwrap_or(Duration::MAX);
            let (waits, patience) = match sender.between(gap.after, gap.before) {
                Between::Missing { count, hopeless } => {
                    (!hopeless && self.protection.may_rebuild(count), patience)
                }
                // It began before the first list, and no later datagram is missing. A request
                // would take a round trip, and servers also skip numbers.
                Between::Unlisted
                    if !*requested && sender.between(None, gap.before) == Between::Nothing =>
                {
                    conn.sidekick_release_gap(gap.id, now);
                    continue;
                }
                // Lists are rare then.
                Between::Unlisted if plan.state == ReceiveState::Watching => (true, patience),
                // The proxy may send no parity.
                Between::Unlisted => (true, patience.min(UNLISTED)),
                Between::Nothing => {
                    // What was rebuilt and dropped is not missing any more.
                    if !is_congested {
                        self.protection.note_nothing();
                        sender.on_fate(gap.id, Fate::Elsewhere);
                    }
                    conn.sidekick_release_gap(gap.id, now);
                    continue;
                }
            };
            if *requested {
                continue;
            }
            let due = gap.found.checked_add(patience);
            if waits && plan.parity && due.is_none_or(|due| now < due) {
                self.request_at = self.request_at.into_iter().chain(due).min();
            } else if request(*gap, plan, sender, now) {
                *requested = true;
            } else {
                conn.sidekick_release_gap(gap.id, now);
            }
        }
    }
}

/// How acknowledgements wait behind a gap.
fn hold(Plan { hold, parity, .. }: Plan) -> Option<Hold> {
    let (step_packets, step_interval) = match parity {
        true => (LONG_STEP_PACKETS, LONG_STEP_INTERVAL),
        false => (STEP_PACKETS, STEP_INTERVAL),
    };
    hold.map(|limit| Hold { limit, step_packets, step_interval })
}

/// Tells the sender which datagram is the newest.
#[inline]
fn note_progress<F: BufFactory>(conn: &Connection<F>, sender: &mut Sender, now: Instant) {
    if let Some(newest) = conn.sidekick_newest() {
        sender.on_progress(newest, now);
    }
}

/// Requests copies of a gap's datagrams. Returns false if no proxy repeats them now.
fn request(gap: Gap, plan: Plan, sender: &mut Sender, now: Instant) -> bool {
    let until = gap.found + plan.hold.unwrap_or_default();
    plan.request_after.is_some() && sender.request_copies(gap.id, gap.after, gap.before, until, now)
}
