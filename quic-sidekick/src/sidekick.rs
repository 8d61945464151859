//! The plugin itself: from a connection's log of sent packets to the protocol's sender, and back.

mod ack_reduction;
mod controller;
mod path;
mod reinjection;
pub(crate) mod repair;

use crate::auto::Chosen;
use crate::measured::Measured;
use crate::qlog::{Log, Losses};
use crate::receive::{Received, Receiver};
use crate::{Config, Mode};
use ack_reduction::AckReduction;
use path::{AssistedPath, Followed, Path};
use quiche::sidekick::{Reaction, SentPacket};
use quiche::{BufFactory, Connection};
use reinjection::{Reinjection, UNMARKED};
use repair::{Repair, RepairPolicy};
use sidekick_protocol::policy::{Carry, CarryAs, Carrying};
use sidekick_protocol::{
    Assistance, HANDLE_LEN, Handling, Lost, MARKER_LEN, NearLoss, Payload, PublicKey, Selection,
    Sender, SenderStats, Transmit,
};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The most packets in the connection's log between two calls of [`Sidekick::on_sent`]: as many as
/// the sender keeps that no proxy has reported.
const LOG_CAPACITY: usize = 8192;

const BBR2: &str = "bbr2_gcongestion";
/// BBR2 ignores up to 2 % of losses in a round trip. Chance gathers losses, so of this share it
/// sometimes hears too much, which costs 1 % of its goodput. A plain flow beside it gains more
/// (docs/results.md).
const TOLERATED: f32 = 0.014;

/// Whether a connection is assisted, and its counters.
///
/// A proxy helped what the connection sent by `stats.early_lost` repairs, and what it received by
/// the `received.filled` gaps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Status {
    /// Whether it is assisted now. `Display` writes a sentence for a user.
    pub assistance: Assistance,
    /// Counters since the connection began. `early_lost` counts each time that the connection
    /// declared a packet lost early or re-injected it, by either uplink. quiche's own `lost` does
    /// not include it.
    pub stats: SenderStats,
    /// The proxy that reports, and its public key.
    pub proxy: Option<(SocketAddr, PublicKey)>,
    /// Which of several proxies the sender selected, and why.
    pub choice: Option<Selection>,
    /// The near segment's smoothed round-trip time, once measured. `None` again when a discovered
    /// proxy's session ends. It keeps its last value after `stop`.
    pub near_rtt: Option<Duration>,
    /// The repair that [`Mode::Auto`] chose for the latest loss, and why; `None` in another mode.
    pub chosen: Option<Chosen>,
    /// How the near segment loses what the connection sends, at the latest loss.
    pub near_loss: NearLoss,
    /// The help for received datagrams.
    pub received: Received,
    /// Datagrams that went by the second uplink, as repairs, which are in `early_lost`, too, or
    /// because the first was silent.
    pub relayed: u64,
    /// The connection's congestion controller, if [`Mode::suits`] is false of it. The mode then
    /// helps less than documented, or not at all.
    pub other_controller: Option<&'static str>,
}

/// Which packets a measurement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Sent,
    Received,
}

/// The sender's side of Sidekick for one connection, without I/O and without a clock.
///
/// Most event loops use [`Driver`](crate::Driver), which adds the *adjacent* UDP socket. Use this
/// type where sockets are not the system's, or where several connections share an adjacent socket.
///
/// # Order of calls
/// Call [`attach`](Self::attach) once, before the handshake. Call [`on_sent`](Self::on_sent) after
/// the application sent all that `Connection::send` returned: a packet that it holds back any
/// longer counts as lost. A loop that paces therefore asks
/// [`paced_until`](crate::tune::paced_until) before it calls `Connection::send`. Pass a datagram of
/// the adjacent socket to [`handle_input`](Self::handle_input), and call
/// [`on_timeout`](Self::on_timeout) at [`poll_timeout`](Self::poll_timeout). Each of the three
/// returns whether the connection has more to read or to send. After each, call
/// [`poll_transmit`](Self::poll_transmit) until it returns `None`.
///
/// # A second uplink
/// A client with another interface to the same proxy gives it a socket of its own, and calls
/// [`set_second_uplink`](Self::set_second_uplink). What has [`Route::SecondLink`] leaves there, and
/// what arrives there goes to [`handle_input`](Self::handle_input), too.
///
/// [`Route::SecondLink`]: crate::Route::SecondLink
#[derive(Debug)]
pub struct Sidekick {
    config: Config,
    sender: Sender,
    path: AssistedPath,
    policy: RepairPolicy,
    reinjection: Reinjection,
    ack_reduction: AckReduction,
    receiver: Receiver,
    carrying: Carrying,
    carry: Carry,
    carried: u64,
    early_lost: u64,
    /// The connection's counts of refuted and of undecided reports, as the sender knows them.
    known_refuted: u64,
    known_undecided: u64,
    stopped: bool,
    /// The connection logs the packets that it sends.
    logs: bool,
    other_controller: Option<&'static str>,
    logged_assistance: Assistance,
    logged_selection: Option<Selection>,
    logged_handling: [Handling; 2],
    qlog: Log,
    /// Scratch of [`Sidekick::apply`], kept to avoid allocation.
    scratch_lost: Vec<Lost>,
    /// Scratch of [`Sidekick::repair`], kept to avoid allocation.
    scratch_tags: Vec<u64>,
    /// Scratch of [`Sidekick::send_markers`], kept because few calls use it.
    scratch_marker: [u8; MARKER_LEN],
}

impl Sidekick {
    /// The plugin for one connection.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::with_seed(config, seed())
    }

    /// The same, with random numbers that follow from `seed`, for a reproducible simulation.
    /// Elsewhere use [`Sidekick::new`]: anyone who predicts the seed can impersonate the proxy.
    #[must_use]
    pub fn with_seed(config: Config, seed: [u8; 32]) -> Self {
        Self {
            sender: Sender::new(config.sender(), seed),
            path: AssistedPath::default(),
            receiver: Receiver::new(config.receives(), config.receive_repair),
            policy: RepairPolicy::new(config.mode),
            carrying: Carrying::default(),
            carry: config.carry,
            carried: 0,
            config,
            reinjection: Reinjection::default(),
            ack_reduction: AckReduction::default(),
            early_lost: 0,
            known_refuted: 0,
            known_undecided: 0,
            stopped: false,
            logs: false,
            other_controller: None,
            logged_assistance: Assistance::Seeking,
            logged_selection: None,
            logged_handling: [Handling::Nothing; 2],
            qlog: Log::default(),
            scratch_lost: Vec::new(),
            scratch_tags: Vec::new(),
            scratch_marker: [0; MARKER_LEN],
        }
    }

    /// Starts the connection's log of sent packets.
    pub fn attach<F: BufFactory>(&mut self, conn: &mut Connection<F>) {
        self.other_controller = controller::other_controller(self.config.mode, conn);
        if conn.sidekick_congestion_control() == Some(BBR2) {
            self.sender.set_tolerated_loss(TOLERATED);
        }
        conn.sidekick_log(LOG_CAPACITY);
        self.logs = true;
        if self.config.reinjects() {
            Reinjection::attach(conn, self.config.carries());
        }
        conn.sidekick_repeat_handshake(self.config.repeats_handshake());
        if !self.receiver.attach(conn) {
            self.sender.want_no_copies();
        }
    }

    /// Sets the adjacent socket's port, so that a discovered proxy can answer there.
    pub fn set_adjacent_port(&mut self, port: u16) {
        self.sender.set_adjacent_port(port);
    }

    /// Sets whether there is a second uplink, in the modes `auto` and `receive`: copies show a
    /// proxy that this sender is on the flow's path, and may have packets relayed.
    pub fn set_second_uplink(&mut self, is_there: bool, now: Instant) {
        self.sender.set_second_link(is_there && self.config.receives(), now);
        self.receiver.on_sender_changed();
    }

    /// Records the packets that the connection has sent since the last call, and handles proxies'
    /// answers on its path. Returns whether `Connection::send` has something to send.
    pub fn on_sent<F: BufFactory>(&mut self, conn: &mut Connection<F>, now: Instant) -> bool {
        self.qlog.mode_set(conn, &self.config, now);
        // A configured proxy can answer during the handshake. Markers wait for the peer's first
        // packet: a server that does not know the client takes a marker for its first packet.
        let may_ask = || self.config.proxy.is_some() || conn.stats().recv > 0;
        if self.path.current().is_none() && !self.stopped && may_ask() {
            self.start(conn, now);
        }
        for packet in conn.sidekick_logged() {
            self.record(packet, conn, now);
        }
        conn.sidekick_clear_log();
        for datagram in conn.sidekick_drain_side_channel() {
            self.handle_on_path(&datagram, now);
        }
        self.carry(conn, now);
        let path_id = self.path.current().map(|path| path.id);
        let mut again = self.receiver.update(conn, &mut self.sender, path_id, now);
        // Without a proxy's reports the sender depends on frequent acknowledgements.
        if self.ack_reduction.has_requested()
            && (self.stopped || self.sender.assistance() != Assistance::Assisted)
        {
            again |= self.ack_reduction.request_usual_acks(conn, now);
        }
        self.stopped |= self.sender.has_stood_down();
        if self.stopped && std::mem::take(&mut self.logs) {
            conn.sidekick_log(0);
            conn.sidekick_ignore_gaps(now);
        }
        again
    }

    /// While the first uplink is silent, lets the second one carry what the connection sends, and
    /// request what it receives.
    #[inline]
    fn carry<F: BufFactory>(&mut self, conn: &Connection<F>, now: Instant) {
        if self.config.carries()
            && let Some(path) = self.path.current()
        {
            let Self { carrying, carry, sender, reinjection, .. } = self;
            // A path-aware sender minds no order.
            let carried = CarryAs { next: reinjection.next(), class: UNMARKED, in_order: false };
            self.carried += carrying.carry(sender, carry, carried, now, |packet_number| {
                conn.sidekick_kept(path.id, packet_number).map(|(datagram, _)| datagram)
            });
        }
    }

    /// Requests assistance for the connection's path.
    #[cold]
    fn start<F: BufFactory>(&mut self, conn: &Connection<F>, now: Instant) {
        self.path.start(conn, &mut self.sender, now);
        self.receiver.on_sender_changed();
    }

    /// Handles a proxy's answer on the connection's path.
    #[cold]
    fn handle_on_path(&mut self, datagram: &[u8], now: Instant) {
        if let Err(error) = self.sender.handle_on_path(datagram, now) {
            tracing::debug!(%error, "dropped an answer on the path");
        }
        self.receiver.on_sender_changed();
    }

    /// Records a packet of the connection's log.
    #[inline]
    fn record<F: BufFactory>(&mut self, packet: &SentPacket, conn: &Connection<F>, now: Instant) {
        // A probe of another path does not belong to the flow that the proxy counts.
        if self.stopped || !packet.active_path {
            return;
        }
        match self.path.follow(packet.path_id, conn, &mut self.sender, now) {
            Followed::Same => {}
            Followed::Asked => self.receiver.on_sender_changed(),
            Followed::Migrated => {
                self.receiver.on_migrated();
                self.ack_reduction.on_migrated();
                self.carrying = Carrying::default();
            }
        }
        let payload = Payload::cut(&packet.head, packet.size);
        self.sender.on_sent(packet.packet_number, payload, packet.time_sent);
        self.reinjection.on_sent(packet);
    }

    /// Passes markers to the connection, which sends them from its own address and port. Returns
    /// whether there are any.
    fn send_markers<F: BufFactory>(&mut self, conn: &mut Connection<F>) -> bool {
        let mut again = false;
        while let Some(transmit) = self.sender.transmit_on_path(&mut self.scratch_marker) {
            tracing::debug!("the connection sends a marker on its path");
            let marker = self.scratch_marker.get(..transmit.size).unwrap_or_default();
            conn.sidekick_send_side_channel(marker);
            again = true;
        }
        again
    }

    /// Handles a datagram that arrived at the adjacent socket. The sender counts and drops one that
    /// is not from a proxy, or not authentic. Returns whether `Connection::send` has something to
    /// send, such as the frames of lost packets.
    pub fn handle_input<F: BufFactory>(
        &mut self,
        datagram: &[u8],
        from: SocketAddr,
        conn: &mut Connection<F>,
        now: Instant,
    ) -> bool {
        // The quACK may report packets that the connection has sent since the last call.
        let mut again = self.on_sent(conn, now);
        set_handle(&mut self.sender, conn);
        let reads_counters = self.qlog.is_on(conn) || self.config.mode == Mode::ACK_REDUCTION;
        let before = reads_counters.then(|| self.sender.stats());
        self.receiver.on_sender_changed();
        match self.sender.handle_input(from, datagram, now) {
            Ok(None) => {}
            Ok(Some(copy)) => {
                let copy = copy.bytes(datagram);
                if self.sender.first_link_is_silent() {
                    self.carry.charge(copy.len());
                }
                again |= self.receiver.on_copy(copy, conn);
            }
            Err(error) => {
                tracing::debug!(%error, %from, "dropped a datagram at the adjacent socket");
            }
        }
        if let Some(before) = before {
            self.qlog.quack_received(conn, &self.sender, &before, from, now);
            if self.config.mode == Mode::ACK_REDUCTION
                && self.sender.stats().quacks_received > before.quacks_received
            {
                let path_id = self.path.current().map(|path| path.id);
                again |= self.ack_reduction.on_quack(conn, &mut self.sender, path_id, now);
            }
        }
        again | self.apply(conn, now)
    }

    /// When [`Sidekick::on_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.sender.poll_timeout(), self.receiver.poll_timeout()].into_iter().flatten().min()
    }

    /// Serves the timers that are due at `now`, if any. Returns whether `Connection::send` has
    /// something to send.
    pub fn on_timeout<F: BufFactory>(&mut self, conn: &mut Connection<F>, now: Instant) -> bool {
        let again = self.on_sent(conn, now);
        set_handle(&mut self.sender, conn);
        self.sender.on_timeout(now);
        self.receiver.on_sender_changed();
        // Only a timeout makes the sender queue markers.
        let marked = self.send_markers(conn);
        again | marked | self.apply(conn, now)
    }

    /// Reports the receiver's verdicts to the sender, and repairs the packets that the sender found
    /// lost. Returns whether the connection has something to send.
    fn apply<F: BufFactory>(&mut self, conn: &mut Connection<F>, now: Instant) -> bool {
        let refuted = self.report_verdicts(conn);
        if refuted > 0 {
            self.qlog.early_loss_spurious(conn, refuted, self.sender.stats().spurious, now);
        }
        // Also without a loss: how long a queue stands decides about later losses.
        if let Some(path) = self.path.current() {
            let measured = Measured::of(&self.sender, conn, path.id);
            self.policy.observe(measured, now);
            if let Some(measured) = measured {
                self.sender.set_sparse(self.config.sparse(measured.whole));
            }
        }
        let mut lost = std::mem::take(&mut self.scratch_lost);
        self.sender.drain_lost(&mut lost);
        lost.retain(|lost| lost.congestion || !self.carrying.has(lost.tag));
        let ignored = self.config.mode == Mode::ACK_REDUCTION && !self.ack_reduction.is_fit();
        let path = self.path.current().filter(|_| !ignored && !lost.is_empty());
        if let Some(path) = path {
            let repaired = self.repair(conn, path, &lost, now);
            self.early_lost += u64::try_from(repaired).unwrap_or(0);
        }
        lost.clear();
        self.scratch_lost = lost;
        self.carry(conn, now);
        let path_id = self.path.current().map(|path| path.id);
        let released = self.receiver.update(conn, &mut self.sender, path_id, now);
        self.log_changes(conn, now);
        path.is_some() || released
    }

    /// Reports to the sender which of its losses the receiver has refuted, and which nothing will
    /// decide. Returns the number of newly refuted ones.
    fn report_verdicts<F: BufFactory>(&mut self, conn: &Connection<F>) -> u64 {
        // The counts decrease when the connection drops a path.
        let more = |known: &mut u64, now: u64| now.saturating_sub(std::mem::replace(known, now));
        let undecided = more(&mut self.known_undecided, conn.sidekick_undecided());
        self.sender.on_undecided(undecided);
        let refuted = more(&mut self.known_refuted, conn.sidekick_refuted());
        self.sender.on_spurious(refuted);
        if refuted > 0 {
            // It may stand down.
            self.receiver.on_sender_changed();
        }
        refuted
    }

    /// Repairs lost packets. Returns how many the connection declared lost or re-injects.
    fn repair<F: BufFactory>(
        &mut self,
        conn: &mut Connection<F>,
        path: Path,
        lost: &[Lost],
        now: Instant,
    ) -> usize {
        let measured = Measured::of(&self.sender, conn, path.id);
        let repairs = self.policy.decide(measured, self.sender.near_loss(), now);
        let mut tags = std::mem::take(&mut self.scratch_tags);
        let mut repaired = 0;
        for (congestion, repair) in [(true, repairs.of_congestion), (false, repairs.of_random)] {
            tags.clear();
            let alike = lost.iter().filter(|lost| lost.congestion == congestion);
            tags.extend(alike.map(|lost| lost.tag));
            if !tags.is_empty() {
                repaired += self.repair_as(repair, conn, path, &tags, now);
            }
        }
        self.scratch_tags = tags;
        repaired
    }

    fn repair_as<F: BufFactory>(
        &mut self,
        repair: Repair,
        conn: &mut Connection<F>,
        Path { id: path_id, flow }: Path,
        lost: &[u64],
        now: Instant,
    ) -> usize {
        let (resent, packets, reaction) = match repair {
            Repair::Reinject => {
                let Self { reinjection, sender, .. } = self;
                let resent = reinjection.resend(conn, sender, path_id, lost, now);
                let (packets, declared) = (resent.again, resent.again.len());
                self.qlog.early_loss(
                    conn,
                    Losses { path_id, flow, packets, repair, declared },
                    now,
                );
                (declared, resent.late, Reaction::Neutered)
            }
            Repair::EarlyLoss(reaction) => (0, lost, reaction),
        };
        let mut declared = 0;
        if !packets.is_empty() {
            declared = conn.sidekick_early_lost(path_id, packets, reaction, now);
            let repair = Repair::EarlyLoss(reaction);
            self.qlog.early_loss(conn, Losses { path_id, flow, packets, repair, declared }, now);
        }
        if resent + declared > 0 {
            tracing::debug!(resent, declared, "repairing packets lost on the near segment");
        }
        resent + declared
    }

    /// Logs the assistance, and the selection between proxies, if they changed.
    fn log_changes<F: BufFactory>(&mut self, conn: &mut Connection<F>, now: Instant) {
        let assistance = self.sender.assistance();
        if assistance != self.logged_assistance {
            let proxy = self.sender.proxy().map(|(proxy, _)| proxy).or(self.config.proxy);
            tracing::info!(?proxy, %assistance, "assistance changed");
            self.qlog.assistance_changed(conn, self.logged_assistance, assistance, proxy, now);
            self.logged_assistance = assistance;
        }
        if let Some(choice) =
            self.sender.selection().filter(|choice| Some(*choice) != self.logged_selection)
        {
            tracing::info!(%choice, "selected one of several proxies");
            self.qlog.proxy_chosen(conn, &choice, now);
            self.logged_selection = Some(choice);
        }
        let losses = [
            (Direction::Sent, self.sender.near_loss()),
            (Direction::Received, self.sender.reverse_near_loss()),
        ];
        for ((direction, loss), logged) in losses.into_iter().zip(&mut self.logged_handling) {
            let handling = loss.handling();
            if std::mem::replace(logged, handling) != handling {
                tracing::debug!(?direction, %loss, "the losses before the proxy changed");
                self.qlog.near_loss_changed(conn, direction, loss, now);
            }
        }
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) certainly has nothing.
    #[inline]
    pub(crate) fn is_silent(&self) -> bool {
        self.sender.is_silent()
    }

    /// Writes the next datagram for a proxy to `out`, at least [`crate::MAX_DATAGRAM_LEN`] bytes,
    /// and returns its destination and size. The adjacent socket sends it.
    pub fn poll_transmit(&mut self, out: &mut [u8]) -> Option<Transmit> {
        // Markers were handed to the connection, each as soon as there was one.
        self.sender.transmit_to_proxies(out)
    }

    /// Ends the session with a BYE. Call it once, before `Connection::close`, and then
    /// [`Sidekick::poll_transmit`] until it returns `None`.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.sender.stop();
        self.receiver.on_sender_changed();
    }

    /// Whether the help has ended for good.
    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped
    }

    /// Continues without a proxy, because the adjacent socket failed.
    pub fn abandon(&mut self) {
        self.stopped = true;
        self.sender.abandon();
        self.receiver.on_sender_changed();
    }

    /// Whether the connection is assisted, and its counters.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            assistance: self.sender.assistance(),
            stats: SenderStats { early_lost: self.early_lost, ..self.sender.stats() },
            proxy: self.sender.proxy(),
            choice: self.sender.selection(),
            near_rtt: self.sender.near_rtt(),
            chosen: self.policy.chosen(),
            near_loss: self.sender.near_loss(),
            received: self.receiver.status(&self.sender),
            relayed: self.carried + self.reinjection.relayed(),
            other_controller: self.other_controller,
        }
    }
}

/// The system's random bytes, for keys.
fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    if getrandom::fill(&mut seed).is_err() {
        // The standard library seeds its hash maps as well as it can.
        for bytes in seed.chunks_exact_mut(8) {
            bytes.copy_from_slice(&RandomState::new().hash_one("session").to_ne_bytes());
        }
    }
    seed
}

/// Names the connection's own ID to the sender. A socket that several connections share passes
/// packets to them by it, and the answers to their markers, too.
fn set_handle<F: BufFactory>(sender: &mut Sender, conn: &Connection<F>) {
    let mut handle = [0; HANDLE_LEN];
    let id = conn.source_id();
    if let Some(room) = handle.get_mut(..id.len()) {
        room.copy_from_slice(&id);
    }
    sender.set_handle(handle);
}
