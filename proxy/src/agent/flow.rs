//! A flow that is helped, without I/O.

use std::mem;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sidekick_protocol::{
    Assistance, Filter, Flow, Identification, Lost, MAX_DATAGRAM_LEN, Payload, Position, Reason,
    Route, Sender, SenderConfig, Store, Terms,
};

use super::arriving::Reception;
use super::candidate::{Candidate, MOVED};
use super::claims::{Counts, Trust, Trusts};
use super::frame::{Passing, Template};
use super::journal::{Journal, Withheld};
use super::kind::{Classifier, Kind};
use super::looks::Alike;
use super::outbox::Outbox;
use super::report::Totals;
use super::round_trip::RoundTrip;
use super::under_way::UnderWay;

mod state;

/// The proxy sends a quACK at most this long after the first unreported packet. So a repair leaves
/// this long and a near RTT after the packets that follow the lost one.
const QUACK_INTERVAL: Duration = Duration::from_millis(1);
/// Losses that a quACK can identify: at 1 Gbit/s, a fifth of the packets of that time.
const THRESHOLD: u8 = 20;
/// The same for calls, which get a quACK for each packet or two. Larger quACKs would be as long as
/// the packets.
const THRESHOLD_OF_CALLS: u8 = 4;
/// The agent sends a repair twice for this many of a flow's first packets, if its sender slows
/// down. The repair of a lost repair would be late, and one loss then ends slow start. Later,
/// second copies would take bandwidth from a full far segment.
const TWICE: u64 = 200;
/// Packets without a loss before the agent asks for fewer quACKs, of a flow whose sender slows down
/// after losses: enough for the beginning of its slow start.
const SLOW_START: u32 = 64;
/// The same for other flows.
const FEW: u32 = 8;
/// The rate of a new flow is that of at least this time: a burst keeps its place for some seconds.
const NEW: Duration = Duration::from_millis(100);
/// The tag of a repair's second copy has this bit. The loss of that copy needs no repair.
const SECOND: u64 = 1 << 63;
/// A repair that is late by more than this part of the round trip is no help. Loss detection by
/// time allows an eighth (RFC 9002, section 6.1.2). Senders allow more once they find losses
/// spurious.
const REPAIR_SHARE: u32 = 5;
/// The longest near RTT for a flow that has not shown its round trip: a fifth of a path of 65 ms.
const UNKNOWN_FAR: Duration = Duration::from_millis(13);
/// The longest near RTT for a flow whose receiver waits for late packets.
const WAITING_FAR: Duration = Duration::from_millis(80);
/// After this many losses, the agent decides whether the link reorders packets.
const JUDGED: u64 = 64;
/// In a flow whose packets overtake each other, a missing packet counts as lost after this many
/// later ones, as in senders (RFC 9002, section 6.1.1).
const REORDERED: u32 = 3;
/// How long the agent sends no repairs after a queue grew before the proxy.
const CONGESTION_PAUSE: Duration = Duration::from_millis(100);
/// If a queue grows for this long, the agent's own messages may fill it. The agent then pauses the
/// help for the flow.
const FULL: Duration = Duration::from_secs(1);
/// The first pause. Each later pause is twice as long, up to the longest. A flow that had help for
/// as long as the next pause begins with the first again.
const REST: Duration = Duration::from_secs(10);
const LONGEST_REST: Duration = Duration::from_secs(320);
/// The agent does not send a lost packet again that is older than this.
const MAX_AGE: Duration = Duration::from_millis(200);
/// How long the proxy keeps copies of arriving packets. A receiver cannot use older ones.
const KEEP: Duration = Duration::from_millis(200);
/// A program whose packets left within this time still sends: a receiver of a call reports at least
/// this often (RFC 3550, section 6.2), and WireGuard keeps its way open every 25 s.
const SENDS: Duration = Duration::from_secs(30);
/// Most bytes of copies of one flow: what 1 Gbit/s carries in 8 ms.
const STORE: usize = 1 << 20;
/// So many packets are compared with those before them, to see whether they can be told apart. They
/// cannot if more than half of them are alike.
const COMPARED: u32 = 16;
/// So many ends that are alike show that packets need another identifier.
const ENDS_ALIKE: u32 = 2;

/// The first bits of a long header (RFC 9000, section 17.2).
const LONG: u8 = 0xc0;
/// Most packets of a handshake that the agent sends again because no proxy counted the flow yet.
const UNCOUNTED: usize = 8;

/// Packets that a flow remembers until a proxy accepts: at 1 Gbit/s those of 11 ms.
const UNANSWERED: usize = 1024;

/// The configuration of a flow's sender, apart from its terms.
fn for_flow(config: SenderConfig) -> SenderConfig {
    SenderConfig { keep: None, unanswered: UNANSWERED, ..config }
}

/// The terms for a flow of this kind, whose packets have their identifier there.
fn terms(kind: Kind, position: Position) -> Terms {
    let threshold = if kind == Kind::Rtp { THRESHOLD_OF_CALLS } else { THRESHOLD };
    let every = Some(QUACK_INTERVAL);
    let identification = Identification { position, filter: Filter::All };
    Terms { threshold, every_packets: None, every, identification }
}

/// Packets of a flow of this kind that must arrive without a loss before the agent asks for fewer
/// quACKs.
fn frugal_after(kind: Kind) -> u32 {
    if kind.slows_down() { SLOW_START } else { FEW }
}

/// Bytes that a flow takes beside its copies, until a proxy accepts.
pub(super) fn bytes() -> u64 {
    for_flow(SenderConfig::default()).unanswered_bytes() as u64
}

/// A flow that is helped.
#[derive(Debug)]
pub(super) struct HelpedFlow {
    pub(super) flow: Flow,
    classifier: Classifier,
    /// Where packets have their identifier: at the end of an authentication tag, or nowhere.
    position: Position,
    /// Packets that leave, and packets that arrive.
    alike: [Alike; 2],
    /// Many packets that leave are the same, so no report can tell which of them arrived.
    are_the_same: bool,
    round_trip: RoundTrip,
    pub(super) last: Instant,
    /// Its packets in a second, of both directions, smoothed, and those since the latest second.
    pub(super) rate: f64,
    packets: u32,
    pub(super) sender: Sender,
    /// How it leaves.
    template: Template,
    /// When the program's last packet left by this interface.
    seen: Option<Instant>,
    /// Repairs and markers of the agent that are under way.
    under_way: UnderWay,
    store: Store,
    /// Whether the agent can detect the loss of packets that leave now.
    has_session: bool,
    /// The tags of the handshake's packets that left before a proxy counted the flow, and that the
    /// agent has not sent again.
    uncounted: Vec<u64>,
    /// How many more such packets the agent may send again.
    uncounted_left: usize,
    next_tag: u64,
    /// The kind of arriving packets.
    arriving: Classifier,
    /// The arriving packets, if they have numbers.
    reception: Option<Box<Reception>>,
    congested_until: Option<Instant>,
    /// Since when a queue grows before the proxy.
    full_since: Option<Instant>,
    /// The agent pauses the help until then, after a queue grew for long.
    rests_until: Option<Instant>,
    /// When the latest pause ended.
    woke: Option<Instant>,
    /// The next pause.
    rest: Duration,
    /// The losses at the last decision about reordering, and how many of them turned out to be
    /// late.
    judged: (u64, u64),
    /// What the proxy's trust does not know yet: counts, and bytes of the program's packets.
    news: (Counts, usize),
    /// The sender's polls and answers that it knows.
    polls: (u64, u64),
    /// The proxy's reports are not believed.
    is_unbelieved: bool,
    /// Its packets overtake each other.
    reorders: bool,
    /// A proxy reported it at least once.
    was_assisted: bool,
    /// Only arriving packets began the help, and none left yet.
    pub(super) only_arrives: bool,
    /// Its source is this host. A copy for another one would pass by this host's firewall.
    is_own: bool,
    /// The operator knows the proxy's key.
    is_pinned: bool,
    journal: Journal,
    /// Scratch of [`flush`](Self::flush), kept to avoid allocation.
    found_lost: Vec<Lost>,
    pub(super) sent: u64,
    pub(super) lost: u64,
    pub(super) resent: u64,
    /// When the agent's timers will wake it.
    pub(super) armed: Option<Instant>,
    /// The session numbers that the agent's map has for this flow.
    pub(super) numbers: Vec<u32>,
}

/// The origin of a leaving datagram of a helped flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sighting {
    /// A datagram of the program.
    FromProgram,
    /// A duplicate: the flow's own interface shows it, too.
    Duplicate,
    /// A repair or a marker of the agent.
    FromAgent,
    /// The agent must leave the flow alone, for this reason.
    Excluded(&'static str),
}

/// Why the agent leaves a flow alone.
pub(super) const SEARCHES: &str = "its program searches for a proxy itself";
pub(super) const UNWRITTEN: &str = "its packets have headers that the agent does not write";

impl HelpedFlow {
    /// A flow whose help begins with this packet.
    pub(super) fn begin(
        config: SenderConfig,
        seed: [u8; 32],
        template: Template,
        (flow, candidate, is_own): (Flow, Candidate, bool),
        now: Instant,
    ) -> Self {
        let position = if candidate.may_end_alike() { Position::Whole } else { Position::End };
        let terms = terms(candidate.classifier.kind, position);
        // Most links keep the order, and the next packet may be far away in time.
        let frugal = Some(frugal_after(candidate.classifier.kind));
        let config = SenderConfig { terms, packet_threshold: 1, frugal, ..for_flow(config) };
        let is_pinned = config.key.is_some();
        let mut sender = Sender::new(config, seed);
        sender.start(flow, now);
        Self {
            flow,
            classifier: candidate.classifier,
            position,
            alike: Default::default(),
            are_the_same: false,
            round_trip: candidate.round_trip,
            last: now,
            rate: candidate.rate(now, NEW),
            packets: 0,
            sender,
            template,
            seen: candidate.left(),
            under_way: UnderWay::new(position),
            store: Store::new(STORE, MAX_AGE),
            has_session: false,
            uncounted: Vec::with_capacity(UNCOUNTED),
            uncounted_left: UNCOUNTED,
            next_tag: 0,
            arriving: candidate.arriving,
            reception: None,
            congested_until: None,
            full_since: None,
            woke: None,
            rests_until: None,
            rest: REST,
            judged: (0, 0),
            news: Default::default(),
            polls: (0, 0),
            is_unbelieved: false,
            reorders: false,
            was_assisted: false,
            only_arrives: candidate.only_arrives(),
            is_own,
            is_pinned,
            journal: Journal::begin(flow, candidate.classifier.kind),
            found_lost: Vec::new(),
            sent: 0,
            lost: 0,
            resent: 0,
            armed: None,
            numbers: Vec::new(),
        }
    }

    /// Notes a datagram that arrived, also of a flow whose losses the agent cannot repair. Help may
    /// begin before the answer to the handshake arrives.
    pub(super) fn note_arriving(&mut self, now: Instant) {
        self.round_trip.on_arriving(now);
    }

    /// Requests the datagrams that are missing before one that arrived. Call [`HelpedFlow::flush`]
    /// if it returns true.
    pub(super) fn on_arriving(
        &mut self,
        arriving: &Passing<'_>,
        payload: &[u8],
        totals: &mut Totals,
        now: Instant,
    ) -> bool {
        self.note_packet(now);
        self.wake(now);
        if self.reception.is_none() {
            self.arriving.note(payload);
            let kind = self.arriving.kind;
            if !kind.is_numbered() || !self.is_own {
                return false;
            }
            self.reception = Reception::begin(kind, self.position, arriving).map(Box::new);
            if self.reception.is_some() {
                self.sender.want_copies(KEEP, now);
            }
        }
        self.compare(1, payload, now);
        if let Some(reception) = &mut self.reception {
            reception.note_headers(arriving);
            let (missed, congestion) = reception.on_arriving(payload, &mut self.sender, now);
            totals.missed += missed;
            totals.copies_withheld += congestion;
        }
        self.reception.is_some()
    }

    /// Hands a proxy's copy to the host, if the host lacks it.
    pub(super) fn on_copy(
        &mut self,
        copy: &[u8],
        outbox: &mut Outbox,
        totals: &mut Totals,
        now: Instant,
    ) {
        if self.may_receive(now)
            && let Some(reception) = &mut self.reception
            && reception.on_copy(copy, &mut self.sender, now)
        {
            let delivered = u64::from(outbox.push_packet(reception.template(), copy));
            reception.delivered += delivered;
            totals.delivered += delivered;
        }
    }

    /// Its source and destination.
    pub(super) fn ends(&self) -> [SocketAddr; 2] {
        [self.flow.source, self.flow.destination]
    }

    /// The number of the interface by which it leaves.
    pub(super) fn interface(&self) -> u32 {
        self.template.interface()
    }

    /// Notes a datagram that left. `keeps` states whether there is memory for its copy.
    pub(super) fn on_leaving(
        &mut self,
        leaving: &Passing<'_>,
        payload: &[u8],
        keeps: bool,
        now: Instant,
    ) -> Sighting {
        let is_marker = Sender::is_marker(payload);
        if is_marker && self.under_way.is_marker(payload) {
            return Sighting::FromAgent;
        }
        if leaving.interface != self.interface() {
            if self.under_way.is_repair(payload) {
                return Sighting::FromAgent;
            }
            if self.seen.is_some_and(|seen| now < seen + MOVED) {
                return Sighting::Duplicate;
            }
            let Some(template) = Template::of(leaving) else {
                return Sighting::Excluded(UNWRITTEN);
            };
            self.go_by(template, now);
        }
        if is_marker {
            return Sighting::Excluded(SEARCHES);
        }
        if let Some(tag) = self.under_way.take_repair(payload) {
            // The proxy counts it as another packet, behind those that left the local queue before.
            self.sender.on_sent(tag, Payload::whole(payload), now);
            return Sighting::FromAgent;
        }
        self.template.update(leaving);
        self.seen = Some(now);
        self.note_packet(now);
        self.sent += 1;
        let before = self.kind();
        self.classifier.note(payload);
        self.round_trip.on_leaving(self.kind(), payload, now);
        // A call begins with the handshake of another protocol.
        if before != self.kind() && self.kind() == Kind::Rtp {
            self.begin_again(now);
        }
        self.compare(0, payload, now);
        self.wake(now);
        self.sender.on_sent(self.next_tag, Payload::whole(payload), now);
        let is_uncounted = keeps
            && !self.was_assisted
            && self.uncounted_left > 0
            && self.kind() == Kind::Quic
            && payload.first().is_some_and(|first| first & LONG == LONG);
        if (keeps && self.has_session) || is_uncounted {
            self.store.push_copy(self.next_tag, payload, now);
        }
        if is_uncounted {
            self.uncounted.push(self.next_tag);
            self.uncounted_left -= 1;
        }
        self.next_tag += 1;
        let (counts, bytes) = &mut self.news;
        counts.packets += 1;
        *bytes += payload.len();
        Sighting::FromProgram
    }

    /// Agrees on other terms with the proxy.
    fn begin_again(&mut self, now: Instant) {
        self.sender.set_terms(terms(self.kind(), self.position));
        self.apply_order();
        self.reception = None;
        // The help begins again after a pause anyway.
        if self.rests_until.is_none() {
            self.sender.start(self.flow, now);
        }
    }

    /// Compares a packet with those before it that left (0) or arrived (1). If some ended alike,
    /// the whole of each identifies it from now on.
    fn compare(&mut self, direction: usize, payload: &[u8], now: Instant) {
        let kind = if direction == 0 { self.kind() } else { self.arriving.kind };
        let Some(alike) = self.alike.get_mut(direction).filter(|_| kind.may_end_alike()) else {
            return;
        };
        alike.note(payload);
        let Alike { noted, repeated, same, .. } = *alike;
        if noted >= COMPARED {
            *alike = Alike::default();
        }
        if direction == 0 && noted >= COMPARED {
            self.are_the_same = same > COMPARED / 2;
        }
        if repeated >= ENDS_ALIKE && self.position != Position::Whole {
            self.position = Position::Whole;
            self.under_way.set_position(self.position);
            self.begin_again(now);
        }
    }

    /// Continues on another interface. That path has another proxy, and earlier measurements and
    /// pauses do not apply to it.
    fn go_by(&mut self, template: Template, now: Instant) {
        self.template = template;
        self.store.clear();
        self.under_way.clear_repairs();
        (self.round_trip, self.congested_until) = (RoundTrip::unknown(), None);
        (self.full_since, self.rests_until, self.woke, self.rest) = (None, None, None, REST);
        self.reorders = false;
        let stats = self.sender.stats();
        self.judged = (stats.early_lost, stats.turned_up);
        self.apply_order();
        self.sender.start(self.flow, now);
    }

    /// Whether a proxy reports it now.
    pub(super) fn is_assisted(&self) -> bool {
        self.rests_until.is_none() && self.sender.assistance() == Assistance::Assisted
    }

    /// Whether a proxy refuses it, because it has reached a limit.
    pub(super) fn has_no_place(&self) -> bool {
        self.sender.assistance() == Assistance::Unassisted(Reason::ProxyFull)
    }

    /// Asks a proxy for help again.
    pub(super) fn ask_again(&mut self, now: Instant) {
        self.sender.start(self.flow, now);
    }

    /// Asks a proxy for help again after a pause.
    fn wake(&mut self, now: Instant) {
        if self.rests_until.take_if(|until| *until <= now).is_some() {
            (self.full_since, self.woke) = (None, Some(now));
            self.sender.start(self.flow, now);
        }
    }

    /// Notes whether a queue grows. Pauses the help if it grows for long.
    fn note_queue(&mut self, now: Instant) {
        if !self.sender.near_queue_grows() && !self.sender.keeper_queue_grows() {
            self.full_since = None;
            return;
        }
        self.congested_until = Some(now + CONGESTION_PAUSE);
        if self.rests_until.is_none() && *self.full_since.get_or_insert(now) + FULL <= now {
            if self.woke.is_some_and(|woke| woke + self.rest <= now) {
                self.rest = REST;
            }
            self.rests_until = Some(now + self.rest);
            self.rest = (2 * self.rest).min(LONGEST_REST);
            self.sender.stop();
        }
    }

    /// Tells the proxy's trust what is new. Returns whether the agent has to poll.
    fn report(&mut self, trust: &mut Trust, lost: u64, now: Instant) -> bool {
        let stats = self.sender.stats();
        let (polls, answers) = mem::replace(&mut self.polls, (stats.polls, stats.polls_answered));
        let (counts, bytes) = mem::take(&mut self.news);
        let polls = stats.polls.saturating_sub(polls);
        let answers = stats.polls_answered.saturating_sub(answers);
        trust.note(Counts { lost, polls, answers, ..counts }, bytes, now);
        self.is_unbelieved = !trust.believes(now);
        let spacing = self.sender.near_rtt().map(|near| near + near / 4);
        spacing.is_some_and(|spacing| trust.wants_poll(spacing, now))
    }

    /// The kind of its packets.
    pub(super) fn kind(&self) -> Kind {
        self.classifier.kind
    }

    /// Bytes of copies.
    pub(super) fn memory(&self) -> usize {
        self.store.bytes()
    }

    fn note_packet(&mut self, now: Instant) {
        self.last = now;
        self.packets = self.packets.saturating_add(1);
    }

    /// Drops copies that are too old for a repair, and measures the rate. Call it each second.
    pub(super) fn on_second(&mut self, now: Instant) {
        self.store.expire(now);
        self.rate = f64::midpoint(self.rate, mem::take(&mut self.packets).into());
    }

    /// Numbers that were missing among what arrived, and copies that were handed to the host.
    pub(super) fn received(&self) -> (u64, u64) {
        self.reception.as_ref().map_or((0, 0), |of| (of.missed, of.delivered))
    }

    /// Why the agent sends no repairs and no requests now, or `None` if it repairs losses.
    pub(super) fn withheld(&self, now: Instant) -> Option<Withheld> {
        if self.is_unbelieved {
            return Some(Withheld::Unbelieved);
        }
        if self.congested_until.is_some_and(|until| now < until) {
            return Some(Withheld::Congested);
        }
        let Some(near) = self.near() else { return Some(Withheld::Unmeasured) };
        (near > self.longest_near(near)).then_some(Withheld::Far)
    }

    /// The longest near RTT with which repairs are in time.
    fn longest_near(&self, near: Duration) -> Duration {
        match self.round_trip.get(near) {
            _ if self.kind().waits() || self.arriving.kind.waits() => WAITING_FAR,
            // Anyone can send what looks like an answer, and would end the help.
            Some(rtt) if self.round_trip.certain(near).is_none() => {
                UNKNOWN_FAR.max(rtt / REPAIR_SHARE)
            }
            Some(rtt) => rtt / REPAIR_SHARE,
            None => UNKNOWN_FAR,
        }
    }

    /// The near RTT without a queue: a queue is a reason of its own.
    fn near(&self) -> Option<Duration> {
        let queue = self.sender.near_queueing().unwrap_or_default();
        Some(self.sender.near_rtt()?.saturating_sub(queue))
    }

    /// The whole path's round trip, if the flow showed it.
    pub(super) fn rtt(&self) -> Option<Duration> {
        self.round_trip.get(self.near().unwrap_or_default())
    }

    /// Completes an input: sends lost packets again, and the messages that the sender has ready.
    pub(super) fn flush(
        &mut self,
        (outbox, scratch): (&mut Outbox, &mut Vec<u64>),
        trusts: &mut Trusts,
        totals: &mut Totals,
        now: Instant,
    ) {
        self.note_queue(now);
        let assistance = self.sender.assistance();
        if !self.was_assisted && assistance == Assistance::Assisted {
            self.was_assisted = true;
            totals.flows_assisted += 1;
        }
        let Self { journal, sender, .. } = self;
        journal
            .note(assistance, self.rests_until.is_some(), || (sender.proxy(), sender.near_rtt()));
        let has_proxy = !matches!(assistance, Assistance::Unassisted(_));
        self.has_session = has_proxy && self.sender.session_numbers().next().is_some();
        if self.has_session {
            self.repeat_uncounted(outbox, totals, now);
        }
        // The sender keeps reported packets until a caller takes them. The agent does not need
        // them.
        scratch.clear();
        self.sender.drain_received(scratch);
        let mut lost = mem::take(&mut self.found_lost);
        self.sender.drain_lost(&mut lost);
        lost.retain(|lost| lost.tag & SECOND == 0);
        let count = lost.len() as u64;
        self.lost += count;
        totals.lost += count;
        if count > 0 {
            self.judge_losses();
        }
        let proxy = self.sender.proxy().map(|(proxy, _)| proxy);
        let mut trust = None;
        match proxy {
            Some(proxy) => {
                trusts.note(self.news.1);
                trust = Some(trusts.of(proxy, now));
            }
            None => (self.news, self.is_unbelieved) = (Default::default(), false),
        }
        if let Some(trust) = &mut trust
            && self.report(trust, count, now)
        {
            self.sender.poll_now(now);
        }
        let withheld = self.withheld(now);
        if self.reception.is_some() {
            self.sender.set_fetching(withheld.is_none() && self.may_receive(now));
        }
        if count > 0
            && let Some(why) = withheld
        {
            self.journal.note_withheld(why);
        }
        match withheld {
            None => {
                let twice = self.kind().slows_down();
                for Lost { tag, congestion, .. } in lost.drain(..) {
                    if congestion {
                        totals.withheld_congested += 1;
                        continue;
                    }
                    let names = [tag, tag | SECOND];
                    let names = if twice && tag < TWICE { &names[..] } else { &names[..1] };
                    self.repair(tag, names, trust.as_deref_mut(), outbox, totals, now);
                }
            }
            Some(Withheld::Unbelieved) => totals.withheld_late += count,
            Some(Withheld::Congested) => totals.withheld_congested += count,
            Some(Withheld::Far | Withheld::Unmeasured) => totals.withheld_far += count,
        }
        lost.clear();
        self.found_lost = lost;
        // Nothing waits for a gap that the proxy cannot fill.
        scratch.clear();
        self.sender.drain_unfilled(scratch);
        let mut message = [0; MAX_DATAGRAM_LEN];
        while let Some(transmit) = self.sender.poll_transmit(&mut message) {
            let message = message.get(..transmit.size).unwrap_or_default();
            match transmit.route {
                // The marker is lost.
                Route::Path { .. } if !self.may_mark(now) => {}
                Route::Path { .. } => {
                    totals.markers += 1;
                    self.under_way.push_marker(message);
                    outbox.push_frame(&self.template, message);
                }
                Route::Session | Route::Stranger { .. } => {
                    totals.messages += 1;
                    totals.message_bytes += message.len() as u64;
                    let about = (self.interface(), self.flow.source.ip());
                    outbox.push_message(transmit.destination, about, message);
                }
            }
        }
    }

    /// Whether the host may take copies. A program that no longer sends may have ended, and nothing
    /// would check what arrives.
    fn may_receive(&self, now: Instant) -> bool {
        self.is_pinned || self.sends(now)
    }

    /// Whether the program has sent a short time ago.
    fn sends(&self, now: Instant) -> bool {
        self.seen.is_some_and(|seen| now < seen + SENDS)
    }

    /// Whether markers may leave along the flow's path. They pass no firewall of this host, so the
    /// flow's own packets must have passed it a short time ago. Some programs show each to people.
    fn may_mark(&self, now: Instant) -> bool {
        !self.kind().reports_strangers() && self.sends(now)
    }

    /// Declares losses as early as the order of packets allows. Where they overtake each other, few
    /// quACKs do not show whether one is lost or late.
    fn apply_order(&mut self) {
        let (threshold, frugal) =
            if self.reorders { (REORDERED, None) } else { (1, Some(frugal_after(self.kind()))) };
        self.sender.set_packet_threshold(threshold);
        self.sender.set_frugal(frugal);
    }

    /// Declares losses later from now on if more than a quarter of the last ones turned out to be
    /// late.
    fn judge_losses(&mut self) {
        let stats = self.sender.stats();
        let (lost, turned_up) = (stats.early_lost - self.judged.0, stats.turned_up - self.judged.1);
        if lost >= JUDGED {
            self.judged = (stats.early_lost, stats.turned_up);
            if turned_up > lost / 4 {
                self.reorders = true;
                self.apply_order();
            }
        }
    }

    /// Sends the handshake's packets again that left before a proxy counted the flow. No quACK will
    /// report whether they arrived. The agent has asked a proxy: one that answered a marker, or at
    /// once the one that the operator has named.
    fn repeat_uncounted(&mut self, outbox: &mut Outbox, totals: &mut Totals, now: Instant) {
        let mut uncounted = mem::take(&mut self.uncounted);
        for tag in uncounted.drain(..) {
            self.repair(tag, &[tag | SECOND], None, outbox, totals, now);
        }
        self.uncounted = uncounted;
    }

    /// Sends a datagram again, once for each of these names.
    fn repair(
        &mut self,
        tag: u64,
        names: &[u64],
        mut trust: Option<&mut Trust>,
        outbox: &mut Outbox,
        totals: &mut Totals,
        now: Instant,
    ) {
        for name in names.iter().copied() {
            if !self.under_way.has_room(MAX_AGE, now) {
                totals.withheld_late += u64::from(name == tag);
                return;
            }
            let Some(payload) = self.store.get_for_resend(tag, now) else {
                totals.withheld_late += u64::from(name == tag);
                return;
            };
            let len = payload.len();
            if trust.as_mut().is_some_and(|trust| !trust.spend(len)) {
                totals.withheld_late += u64::from(name == tag);
                self.store.refund(len);
                return;
            }
            if outbox.push_frame(&self.template, payload) {
                self.resent += 1;
                self.news.0.packets += 1;
                totals.resent += 1;
                totals.resent_bytes += len as u64;
                self.under_way.push_repair(name, payload, now);
            } else {
                self.store.refund(len);
            }
        }
    }

    /// Logs that the agent asks a proxy that an answer names.
    pub(super) fn log_answer(&mut self, proxy: SocketAddr) {
        self.journal.note_answer(proxy);
    }

    /// Logs that the help ends.
    pub(super) fn log_end(&self, why: &str) {
        let (missed, delivered) = self.received();
        self.journal.end(why, [self.sent, self.lost, self.resent, missed, delivered]);
    }

    /// Stops requesting copies, because the host no longer takes any.
    pub(super) fn stop_receiving(&mut self) {
        self.reception = None;
        self.sender.want_no_copies();
        self.sender.set_fetching(false);
    }
}
