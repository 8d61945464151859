//! The plugin itself: between a connection's sent log and the protocol's sender.

use crate::auto::{Auto, Chosen, Measured};
use crate::qlog::{Log, Losses};
use crate::{Config, Mode};
use quiche::sidekick::{Reaction, SentPacket};
use quiche::{BufFactory, Connection};
use sidekick_protocol::{
    Assistance, Flow, HANDLE_LEN, MARKER_LEN, Payload, PublicKey, Reason, Route, Selection, Sender,
    SenderStats, Store, Transmit,
};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Packets that the connection's log holds between two calls of [`Sidekick::on_sent`].
const LOG_CAPACITY: usize = 16_384;
/// Bytes of datagrams that are kept for re-injection: at 1 Gbit/s those of the last 30 ms.
const STORE_BYTES: usize = 4 << 20;
/// A datagram behind which more packets were sent is not sent again: quiche's receivers, and not
/// only they, take what arrives behind 128 later packets for a duplicate.
const REORDERING_WINDOW: u64 = 100;
/// A datagram that is older has been repaired or given up by the connection.
const STORE_AGE: Duration = Duration::from_secs(2);

/// Whether a connection is helped, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Status {
    /// Whether it is helped now; its `Display` is a sentence for a user.
    pub assistance: Assistance,
    /// Counters since the connection began. `early_lost` counts what the connection took for lost
    /// or sent again, each time that it did, and quiche's own `lost` does not contain it.
    pub stats: SenderStats,
    /// The proxy that reports, and the key that it has shown.
    pub proxy: Option<(SocketAddr, PublicKey)>,
    /// Which of several proxies was chosen, and why.
    pub choice: Option<Selection>,
    /// The near segment's smoothed round-trip time, once it was measured.
    pub near_rtt: Option<Duration>,
    /// What [`Mode::Auto`] has chosen to do, and why; `None` in another mode.
    pub chosen: Option<Chosen>,
}

/// Random bytes of the system, of which keys are made.
fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    if getrandom::fill(&mut seed).is_err() {
        // As good as a hash map's protection against collisions, which the standard library draws
        // where it can.
        for bytes in seed.chunks_exact_mut(8) {
            bytes.copy_from_slice(&RandomState::new().hash_one("session").to_ne_bytes());
        }
    }
    seed
}

/// A receiver that is asked for fewer acknowledgements sends one after so many packets, or a round
/// trip, but no later than this: losses behind the proxy are told by it alone.
const ACK_PACKETS: u64 = 1024;
const MAX_ACK_DELAY: Duration = Duration::from_millis(100);
/// After as many quACKs of a proxy that is not where acknowledgements can be spared, the receiver
/// is asked for the usual ones, and losses before the proxy are left to the end-to-end mechanism.
const MAX_UNFIT: u32 = 16;

/// The connection's own ID: a socket that several connections share hands them their packets by it,
/// and answers to their markers, too.
fn handle<F: BufFactory>(conn: &Connection<F>) -> [u8; HANDLE_LEN] {
    let mut handle = [0; HANDLE_LEN];
    handle.iter_mut().zip(conn.source_id().as_ref()).for_each(|(to, from)| *to = *from);
    handle
}

/// The sender's side of Sidekick for one connection, without I/O and without a clock.
///
/// Most event loops use [`Driver`](crate::Driver), which adds the *adjacent* UDP socket. Use this
/// type where sockets are not the system's, or where several connections share an adjacent socket.
///
/// # Order of calls
/// Call [`attach`](Self::attach) once, before the handshake. Call [`on_sent`](Self::on_sent) when
/// all that `Connection::send` returned was sent: a packet that is held back any longer counts as
/// lost. A loop that paces therefore asks `Connection::get_next_release_time` before it calls
/// `Connection::send`. Pass a datagram of the adjacent socket to
/// [`handle_input`](Self::handle_input), and call [`on_timeout`](Self::on_timeout) at
/// [`poll_timeout`](Self::poll_timeout). Each of the three returns whether the connection has
/// something to send again. After each, call [`poll_transmit`](Self::poll_transmit) until it
/// returns `None`.
#[derive(Debug)]
pub struct Sidekick {
    config: Config,
    sender: Sender,
    /// The path that help is asked for: the connection's name for it, and its flow.
    path: Option<(usize, Flow)>,
    /// A packet of the log was noted.
    noted: bool,
    received: Vec<u64>,
    lost: Vec<u64>,
    /// Of these, the ones that it is too late to send again.
    late: Vec<u64>,
    store: Store,
    /// The packet number that was sent last.
    latest: u64,
    auto: Auto,
    early_lost: u64,
    known_refuted: u64,
    known_undecided: u64,
    stopped: bool,
    /// The receiver was asked for fewer acknowledgements, if it can be.
    asked: bool,
    /// quACKs in a row at which the proxy was not where acknowledgements can be spared;
    /// [`MAX_UNFIT`] before the first.
    unfit: u32,
    /// The connection was given something to send.
    moved: bool,
    logged: Assistance,
    logged_selection: Option<Selection>,
    qlog: Log,
}

impl Sidekick {
    /// A sidekick for one connection.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self::with_seed(config, seed())
    }

    /// A sidekick whose random numbers follow from `seed`, for a simulation that must repeat.
    /// Elsewhere use [`Sidekick::new`]: anyone who predicts the seed can impersonate the proxy.
    #[must_use]
    pub fn with_seed(config: Config, seed: [u8; 32]) -> Self {
        Self {
            sender: Sender::new(config.sender(), seed),
            config,
            path: None,
            noted: false,
            received: Vec::new(),
            lost: Vec::new(),
            late: Vec::new(),
            store: Store::new(STORE_BYTES, STORE_AGE),
            latest: 0,
            auto: Auto::default(),
            early_lost: 0,
            known_refuted: 0,
            known_undecided: 0,
            stopped: false,
            asked: false,
            unfit: MAX_UNFIT,
            moved: false,
            logged: Assistance::Seeking,
            logged_selection: None,
            qlog: Log::default(),
        }
    }

    /// Starts the connection's log of sent packets.
    pub fn attach<F: BufFactory>(&mut self, conn: &mut Connection<F>) {
        conn.sidekick_log(LOG_CAPACITY);
        conn.sidekick_keep_datagrams(self.config.reinjects());
        conn.sidekick_repeat_handshake(self.config.repeats_handshake());
    }

    /// Tells the adjacent socket's port: a proxy that is discovered can then answer there.
    pub fn set_adjacent_port(&mut self, port: u16) {
        self.sender.set_adjacent_port(port);
    }

    /// Takes note of the packets that the connection has sent since the last call, and of what a
    /// proxy has answered on its path. True if there is something for [`Connection::send`] now.
    pub fn on_sent<F: BufFactory>(&mut self, conn: &mut Connection<F>, now: Instant) -> bool {
        self.note_sent(conn, now);
        std::mem::take(&mut self.moved)
    }

    fn note_sent<F: BufFactory>(&mut self, conn: &mut Connection<F>, now: Instant) {
        self.qlog.mode_set(conn, &self.config, now);
        if self.config.proxy.is_none() {
            self.sender.set_handle(handle(conn));
        }
        // The proxy can be asked while the handshake takes its round trips. Not so the path: to a
        // server a marker is a connection's first packet, until it knows the client.
        if self.path.is_none()
            && !self.stopped
            && (self.config.proxy.is_some() || conn.stats().recv > 0)
        {
            self.path = conn.sidekick_active_path().map(|(path_id, source, destination)| {
                let flow = Flow { source, destination };
                self.sender.start(flow, now);
                (path_id, flow)
            });
        }
        for packet in conn.sidekick_drain() {
            self.note(packet, now);
        }
        for datagram in conn.sidekick_drain_side_channel() {
            if let Err(error) = self.sender.handle_on_path(&datagram, now) {
                tracing::debug!(%error, "an answer on the path was dropped");
            }
        }
        self.mark(conn);
        // Who is told by nobody but the receiver needs to be told often.
        let helped = !self.stopped && self.sender.assistance() == Assistance::Assisted;
        if !helped && std::mem::take(&mut self.asked) {
            self.moved |= conn.sidekick_ask_for_usual_acks(now);
        }
        let stood_down = self.sender.assistance() == Assistance::Unassisted(Reason::StoodDown);
        if stood_down && !std::mem::replace(&mut self.stopped, true) {
            conn.sidekick_log(0);
        }
    }

    /// Hands markers to the connection, which sends them from its own address and port.
    fn mark<F: BufFactory>(&mut self, conn: &mut Connection<F>) {
        let mut marker = [0; MARKER_LEN];
        while let Some(transmit) = self.sender.transmit_on_path(&mut marker) {
            tracing::debug!("a marker goes onto the path");
            conn.sidekick_send_side_channel(marker.get(..transmit.size).unwrap_or_default());
            self.moved = true;
        }
    }

    fn note(&mut self, packet: SentPacket, now: Instant) {
        // Probes of another path are not of the flow that the proxy counts.
        if self.stopped || !packet.active_path {
            return;
        }
        let flow = Flow { source: packet.local_addr, destination: packet.peer_addr };
        let path = Some((packet.path_id, flow));
        if self.path != path {
            // The connection has migrated.
            self.path = path;
            self.store.clear();
            self.unfit = MAX_UNFIT;
            self.sender.start(flow, now);
        } else if !self.noted
            && self.sender.assistance() == Assistance::Unassisted(Reason::NoAnswer)
        {
            // What kept the handshake waiting may have kept the proxy from answering, too: ask
            // anew, at short intervals.
            self.sender.start(flow, now);
        }
        self.noted = true;
        self.latest = self.latest.max(packet.packet_number);
        let payload = Payload::cut(&packet.head, packet.size);
        self.sender.on_sent(packet.packet_number, payload, packet.time_sent);
        self.store.push(packet.packet_number, packet.datagram, packet.time_sent);
    }

    /// A datagram that came to the adjacent socket. What is not from a proxy, or not authentic, is
    /// counted and dropped. True if there is something for [`Connection::send`] now, such as
    /// packets that were lost.
    pub fn handle_input<F: BufFactory>(
        &mut self,
        datagram: &[u8],
        from: SocketAddr,
        conn: &mut Connection<F>,
        now: Instant,
    ) -> bool {
        // What the quACK names may have been sent since the last call.
        self.note_sent(conn, now);
        let before = self.sender.stats();
        if let Err(error) = self.sender.handle_input(from, datagram, now) {
            tracing::debug!(%error, %from, "a datagram at the adjacent socket was dropped");
        }
        self.qlog.quack_received(conn, &self.sender, &before, from, now);
        if self.config.mode == Mode::AckReduction
            && self.sender.stats().quacks_received > before.quacks_received
        {
            self.make_room(conn, now);
        }
        self.apply(conn, now);
        std::mem::take(&mut self.moved)
    }

    /// When [`Sidekick::on_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.sender.poll_timeout()
    }

    /// Does what is due at `now`; harmless when nothing is. True if there is something for
    /// [`Connection::send`] now.
    pub fn on_timeout<F: BufFactory>(&mut self, conn: &mut Connection<F>, now: Instant) -> bool {
        self.note_sent(conn, now);
        self.sender.on_timeout(now);
        self.apply(conn, now);
        std::mem::take(&mut self.moved)
    }

    /// Frees the window of what has reached the proxy, and has the receiver acknowledge seldom
    /// meanwhile, if it can be asked.
    fn make_room<F: BufFactory>(&mut self, conn: &mut Connection<F>, now: Instant) {
        self.sender.drain_received(&mut self.received);
        if let Some((path_id, _)) = self.path
            && self.sender.assistance() == Assistance::Assisted
        {
            if self.measured(conn, path_id).is_some_and(|measured| measured.is_prompt_far_proxy()) {
                self.unfit = 0;
                conn.sidekick_received(path_id, &self.received, now);
                self.moved |= !self.received.is_empty();
                if !self.asked && conn.is_established() {
                    self.asked = true;
                    let delay = conn.sidekick_rtt(path_id).unwrap_or_default().min(MAX_ACK_DELAY);
                    let asked = conn.sidekick_ask_for_acks(ACK_PACKETS, delay, now);
                    tracing::debug!(
                        asked,
                        ?delay,
                        "the receiver was asked for fewer acknowledgements"
                    );
                    self.moved |= asked;
                }
            } else {
                self.unfit = self.unfit.saturating_add(1);
                if self.unfit >= MAX_UNFIT && std::mem::take(&mut self.asked) {
                    self.moved |= conn.sidekick_ask_for_usual_acks(now);
                }
            }
        }
        self.received.clear();
    }

    fn measured<F: BufFactory>(&self, conn: &Connection<F>, path_id: usize) -> Option<Measured> {
        let (near, whole) = (self.sender.near_rtt()?, conn.sidekick_rtt(path_id)?);
        let queueing = self.sender.near_queueing().unwrap_or_default();
        let standing = self.sender.near_standing_queue().unwrap_or_default();
        Some(Measured { near, whole, queueing, standing })
    }

    /// Hands the losses found to the connection, and learns from it which of them were none.
    fn apply<F: BufFactory>(&mut self, conn: &mut Connection<F>, now: Instant) {
        let more = self.judge(conn);
        self.qlog.early_loss_spurious(conn, more, self.sender.stats().spurious, now);
        self.sender.drain_lost(&mut self.lost);
        if self.config.mode == Mode::AckReduction && self.unfit >= MAX_UNFIT {
            self.lost.clear();
        }
        if let Some((path_id, flow)) = self.path
            && !self.lost.is_empty()
        {
            self.moved = true;
            let mut declared = 0;
            let reaction = match self.reaction(conn, path_id, now) {
                None => {
                    self.reinject(conn, path_id, now);
                    declared += self.lost.len();
                    let packets = self.lost.as_slice();
                    let losses = Losses { path_id, flow, packets, reaction: None, declared };
                    self.qlog.early_loss(conn, losses, now);
                    std::mem::swap(&mut self.lost, &mut self.late);
                    self.late.clear();
                    Reaction::Neutered
                }
                Some(reaction) => reaction,
            };
            if !self.lost.is_empty() {
                let early = conn.sidekick_early_lost(path_id, &self.lost, reaction, now);
                let (packets, reaction) = (self.lost.as_slice(), Some(reaction));
                let losses = Losses { path_id, flow, packets, reaction, declared: early };
                self.qlog.early_loss(conn, losses, now);
                declared += early;
            }
            if declared > 0 {
                tracing::debug!(declared, "packets lost on the near segment");
            }
            self.early_lost += u64::try_from(declared).unwrap_or(0);
        }
        self.lost.clear();
        self.mark(conn);
        let assistance = self.sender.assistance();
        if assistance != self.logged {
            let proxy = self.sender.proxy().map(|(proxy, _)| proxy).or(self.config.proxy);
            tracing::info!(?proxy, %assistance, "assistance changed");
            self.qlog.assistance_changed(conn, self.logged, assistance, proxy, now);
            self.logged = assistance;
        }
        if let Some(choice) =
            self.sender.selection().filter(|choice| Some(*choice) != self.logged_selection)
        {
            tracing::info!(%choice, "one of several proxies was chosen");
            self.qlog.proxy_chosen(conn, &choice, now);
            self.logged_selection = Some(choice);
        }
    }

    /// Tells the sender what the receiver has made of the reports; returns how many it has refuted.
    fn judge<F: BufFactory>(&mut self, conn: &Connection<F>) -> u64 {
        // The connection forgets those of a path that it drops.
        let more = |known: &mut u64, now: u64| now.saturating_sub(std::mem::replace(known, now));
        let undecided = more(&mut self.known_undecided, conn.sidekick_undecided());
        self.sender.on_undecided(undecided);
        let refuted = more(&mut self.known_refuted, conn.sidekick_refuted());
        self.sender.on_spurious(refuted);
        refuted
    }

    /// Has lost packets sent again as they were; `lost` keeps those. The others, which are too far
    /// behind or no longer kept, or for which the budget does not last, move to `late`.
    fn reinject<F: BufFactory>(&mut self, conn: &mut Connection<F>, path_id: usize, now: Instant) {
        let Self { lost, late, store, latest, .. } = self;
        lost.retain(|&packet_number| {
            let behind = latest.saturating_sub(packet_number) > REORDERING_WINDOW;
            let Some(datagram) =
                (!behind).then(|| store.get_for_resend(packet_number, now)).flatten()
            else {
                late.push(packet_number);
                return false;
            };
            let len = datagram.len();
            let again = conn.sidekick_resend(path_id, packet_number, datagram, now);
            if !again {
                store.refund(len);
            }
            again
        });
    }

    /// How the congestion controller learns of near losses; `None` if it does not, since the
    /// packets are sent again.
    fn reaction<F: BufFactory>(
        &mut self,
        conn: &Connection<F>,
        path_id: usize,
        now: Instant,
    ) -> Option<Reaction> {
        let measured = self.measured(conn, path_id);
        let congested = match self.config.mode {
            Mode::Pacubic => self.auto.is_overflowing(measured, now),
            _ => self.auto.is_congested(measured, now),
        };
        if self.config.mode == Mode::Auto {
            return self.automatic(measured, congested, now);
        }
        match self.config.mode {
            // What is hidden from the controller, or half so, must not be congestion.
            _ if congested => Some(Reaction::Congestion),
            Mode::EarlyLoss | Mode::AckReduction => Some(Reaction::Loss),
            Mode::PathAwareBbr => Some(Reaction::Neutered),
            Mode::Pacubic => match measured {
                Some(Measured { near, whole, .. }) if !whole.is_zero() => {
                    Some(Reaction::NearLoss { ratio: near.as_secs_f64() / whole.as_secs_f64() })
                }
                _ => Some(Reaction::Loss),
            },
            Mode::Reinject | Mode::Auto => None,
        }
    }

    /// The same, as what is measured suggests.
    fn automatic(
        &mut self,
        measured: Option<Measured>,
        congested: bool,
        now: Instant,
    ) -> Option<Reaction> {
        let before = self.auto.chosen();
        let mode = self.auto.choose(measured, now);
        let chosen = self.auto.chosen();
        if chosen != before {
            tracing::info!(%chosen, "another repair was chosen");
        }
        match mode {
            Mode::Reinject => None,
            _ if congested => Some(Reaction::Congestion),
            _ => Some(Reaction::Loss),
        }
    }

    /// Writes the next datagram for a proxy to `out`, at least [`crate::MAX_DATAGRAM_LEN`] bytes,
    /// and returns its size and the proxy's address. The adjacent socket sends it.
    pub fn poll_transmit(&mut self, out: &mut [u8]) -> Option<Transmit> {
        // Markers were handed to the connection, each as soon as there was one.
        self.sender.poll_transmit(out).filter(|transmit| transmit.route == Route::Session)
    }

    /// Ends the session with the proxy by a BYE; drain [`Sidekick::poll_transmit`] once more.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.sender.stop();
    }

    /// Goes on without the proxy, because the adjacent socket failed.
    pub fn abandon(&mut self) {
        self.stopped = true;
        self.sender.abandon();
    }

    /// Whether the connection is helped, and what came of it.
    #[must_use]
    pub fn status(&self) -> Status {
        Status {
            assistance: self.sender.assistance(),
            stats: SenderStats { early_lost: self.early_lost, ..self.sender.stats() },
            proxy: self.sender.proxy(),
            choice: self.sender.selection(),
            near_rtt: self.sender.near_rtt(),
            chosen: (self.config.mode == Mode::Auto).then(|| self.auto.chosen()),
        }
    }
}
