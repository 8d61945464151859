//! A flow that is helped, without I/O.

use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use sidekick_protocol::policy::{KEEP, Leaving, Named, Policy, Resender, Traits};
use sidekick_protocol::{Assistance, Flow, Position, Reason, Sender, SenderConfig};
use tracing::debug;

use super::arriving::Reception;
use super::candidate::{Candidate, MOVED};
use super::frame::{Passing, Template};
use super::journal::Journal;
use super::kind::{Classifier, Kind};
use super::looks::Alike;
use super::outbox::Outbox;
use super::report::Totals;
use super::under_way::UnderWay;
use crate::trace::Watch;

mod order;
mod repair;
mod state;
mod watch;

pub(super) use order::Begin;
use order::Order;

/// The rate of a new flow is that of at least this time: a burst keeps its place for some seconds.
const NEW: Duration = Duration::from_millis(100);
/// A program whose packets left within this time still sends: a receiver of a call reports at least
/// this often (RFC 3550, section 6.2), and WireGuard keeps its way open every 25 s.
const SENDS: Duration = Duration::from_secs(30);
/// So many packets are compared with those before them, to see whether they can be told apart. They
/// cannot if more than half of them are alike.
const COMPARED: u32 = 16;
/// So many ends that are alike show that packets need another identifier.
const ENDS_ALIKE: u32 = 2;

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
    /// What leaves.
    pub(super) resender: Resender,
    pub(super) last: Instant,
    /// Its packets in a second, of both directions, smoothed, and those since the latest second.
    pub(super) rate: f64,
    packets: u32,
    /// How it leaves.
    template: Template,
    /// When the program's last packet left by this interface.
    seen: Option<Instant>,
    /// Repairs and markers of the agent that are under way.
    under_way: UnderWay,
    /// The kind of arriving packets.
    arriving: Classifier,
    /// The arriving packets, if they have numbers.
    reception: Option<Box<Reception>>,
    /// The arriving packets, if they wait for those before them.
    pub(super) order: Option<Box<Order>>,
    /// They should, but do not pass the queue.
    passes_by: bool,
    /// What becomes of its packets, if the agent only watches.
    watch: Option<Box<Watch>>,
    /// Only arriving packets began the help, and none left yet.
    pub(super) only_arrives: bool,
    /// Its source is this host. A copy for another one would pass by this host's firewall.
    is_own: bool,
    /// The operator knows the proxy's key.
    is_pinned: bool,
    journal: Journal,
    pub(super) resent: u64,
    /// What was relayed, as far as the totals have it.
    noted_relayed: u64,
    /// When the agent's timers will wake it.
    pub(super) armed: Option<Instant>,
    /// The session numbers that the agent's map has for this flow.
    pub(super) numbers: Vec<u32>,
}

/// Bytes that a flow takes beside its copies, until a proxy accepts.
pub(super) fn flow_bytes() -> u64 {
    let config = SenderConfig::default();
    Policy::config(config, Kind::Quic.traits(), Position::End).unanswered_bytes() as u64
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
        (watches, protects): (bool, bool),
        now: Instant,
    ) -> Self {
        let position = if candidate.may_end_alike() { Position::Whole } else { Position::End };
        let config = Policy::config(config, candidate.classifier.kind.traits(), position);
        let is_pinned = config.key.is_some();
        let mut sender = Sender::new(config, seed);
        let protects = protects && candidate.classifier.kind.is_authenticated();
        let policy = Policy::new(candidate.round_trip).protecting(protects);
        if watches {
            sender.set_terms(watch::terms(candidate.classifier.kind.traits().terms(position)));
            watch::wait(&mut sender);
        }
        Self {
            flow,
            classifier: candidate.classifier,
            position,
            alike: Default::default(),
            are_the_same: false,
            resender: Resender::start(sender, flow, policy, now),
            last: now,
            rate: candidate.rate(now, NEW),
            packets: 0,
            template,
            seen: candidate.left(),
            under_way: UnderWay::new(position),
            arriving: candidate.arriving,
            reception: None,
            order: None,
            passes_by: false,
            watch: watches.then(Box::default),
            only_arrives: candidate.only_arrives(),
            is_own,
            is_pinned,
            journal: Journal::begin(flow, candidate.classifier.kind),
            resent: 0,
            noted_relayed: 0,
            armed: None,
            numbers: Vec::new(),
        }
    }

    /// Notes a datagram of this length that arrived, also of a flow whose losses the agent cannot
    /// repair. Help may begin before the answer to the handshake arrives.
    pub(super) fn note_arriving(&mut self, bytes: usize, now: Instant) {
        self.resender.policy.on_arriving(bytes, now);
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
        self.resender.wake(now);
        if self.reception.is_none() {
            self.arriving.note(payload);
            let kind = self.arriving.kind;
            if !kind.is_numbered() || !self.is_own {
                return false;
            }
            self.reception = Reception::begin(kind, self.position, arriving).map(Box::new);
            if self.reception.is_some() {
                self.resender.sender.want_copies(KEEP, now);
            }
        }
        self.compare(1, payload, now);
        if let Some(reception) = &mut self.reception {
            reception.note_headers(arriving);
            let (missed, congestion) =
                reception.on_arriving(payload, &mut self.resender.sender, now);
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
        if self.order_copy(copy, now) {
            return;
        }
        if self.may_receive(now)
            && let Some(reception) = &mut self.reception
            && reception.on_copy(copy, &mut self.resender.sender, now)
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
            // It follows those that left the local queue before.
            self.resender.on_resent(tag, payload, now);
            return Sighting::FromAgent;
        }
        self.template.update(leaving);
        self.seen = Some(now);
        self.note_packet(now);
        let before = self.kind();
        self.classifier.note(payload);
        // A call begins with the handshake of another protocol.
        if before != self.kind() && self.kind() == Kind::Rtp {
            self.begin_again(now);
        }
        self.compare(0, payload, now);
        let kind = self.kind();
        let (begins, spins) = (kind.begins_with(payload), kind.spins());
        let is_quic = kind == Kind::Quic;
        let class = self.template.class();
        let leaving = Leaving { is_quic, begins, spins, keeps, class };
        self.resender.on_sent(payload, leaving, now);
        Sighting::FromProgram
    }

    /// Agrees on other terms with the proxy.
    fn begin_again(&mut self, now: Instant) {
        let (traits, terms) = (self.traits(), self.kind().traits().terms(self.position));
        let terms = if self.watch.is_some() { watch::terms(terms) } else { terms };
        self.resender.set_terms(traits, terms, now);
        self.reception = None;
        self.watch_on();
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

    /// Continues on another interface.
    fn go_by(&mut self, template: Template, now: Instant) {
        self.template = template;
        self.under_way.clear_repairs();
        self.resender.change_path(self.traits(), now);
        self.watch_on();
        if let Some(order) = &mut self.order {
            order.change_path(&mut self.resender.sender, now);
        }
    }

    /// Whether a proxy reports it now.
    pub(super) fn is_assisted(&self) -> bool {
        self.resender.policy.is_assisted(&self.resender.sender)
    }

    /// Whether a proxy refuses it, because it has reached a limit.
    pub(super) fn has_no_place(&self) -> bool {
        self.resender.sender.assistance() == Assistance::Unassisted(Reason::ProxyFull)
    }

    pub(super) fn kind(&self) -> Kind {
        self.classifier.kind
    }

    /// What decides when its losses are repaired.
    fn traits(&self) -> Traits {
        let traits = self.kind().traits();
        Traits { waits: traits.waits || self.arriving.kind.waits(), ..traits }
    }

    fn note_packet(&mut self, now: Instant) {
        self.last = now;
        self.packets = self.packets.saturating_add(1);
    }

    /// Drops copies that are too old for a repair, and measures the rate. Call it each second.
    pub(super) fn on_second(&mut self, now: Instant) {
        self.resender.expire(now);
        self.rate = f64::midpoint(self.rate, mem::take(&mut self.packets).into());
    }

    /// Numbers that were missing among what arrived, and copies that were handed to the host.
    pub(super) fn received(&self) -> (u64, u64) {
        let order = self.order.as_ref().map(|of| (of.gate().counters().missing, of.delivered));
        let reception = self.reception.as_ref().map(|of| (of.missed, of.delivered));
        order.or(reception).unwrap_or_default()
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

    /// Asks the proxy that an answer on the path names for help, if the address is plausible.
    /// `local` has this machine's addresses.
    pub(super) fn on_answer(
        &mut self,
        named: &mut Named,
        chosen: &SenderConfig,
        local: impl Fn(IpAddr) -> bool,
        answer: &[u8],
        now: Instant,
    ) {
        let destination = self.flow.destination.ip();
        match named.introduce(&mut self.resender.sender, chosen, local, (destination, answer), now)
        {
            Ok(Some(proxy)) => self.journal.note_answer(proxy),
            Ok(None) => {}
            Err(proxy) => {
                debug!(
                    "an answer on the path to {destination} names {proxy}: the agent does not ask it"
                );
            }
        }
    }

    pub(super) fn log_end(&self, why: &str) {
        let (missed, delivered) = self.received();
        self.journal
            .end(why, [self.resender.sent(), self.resender.lost(), self.resent, missed, delivered]);
    }

    /// When the sender or the gate is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let gate = self.order.as_ref().and_then(|order| order.gate().poll_timeout());
        self.resender.sender.poll_timeout().into_iter().chain(gate).min()
    }

    /// Stops requesting copies, because the host no longer takes any.
    pub(super) fn stop_receiving(
        &mut self,
        outbox: &mut Outbox,
        totals: &mut Totals,
        now: Instant,
    ) {
        self.end_order(outbox, totals, now);
        self.reception = None;
        self.resender.sender.want_no_copies();
        self.resender.sender.set_fetching(false);
    }
}
