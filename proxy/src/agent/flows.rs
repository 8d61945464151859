//! The agent's state machine: all flows, without I/O.
//!
//! Call [`Agent::on_leaving`] for each captured datagram that leaves, also for those that the agent
//! itself sends by an interface. Call [`Agent::on_arriving`] for each that arrives, and
//! [`Agent::on_message`] for each message at the agent's port. Call [`Agent::on_timeout`] at
//! [`Agent::poll_timeout`]. After each call, send what [`Agent::pop`] returns until it returns
//! `None`.

mod begin;
mod common;
mod room;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet, VecDeque};
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use sidekick_protocol::policy::{Carry, Named};
use sidekick_protocol::repair::ReceiveRepair;
use sidekick_protocol::{Flow, Sender, SenderConfig};
use tracing::{debug, warn};

use super::candidate::Candidate;
use super::filter::Filter;
use super::flow::{Begin, HelpedFlow};
use super::frame::{Passing, Template};
use super::holds::Holds;
use super::kind::Kind;
use super::outbox::To;
use super::report::{FlowReport, Totals};
use crate::packet::{self, Link};
use crate::trace::{Recorder, Trace};

use common::{Common, KnownProxy};

/// How often idle flows and old copies are dropped.
const SWEEP: Duration = Duration::from_secs(1);
/// A flow that begins within this time after others arrived without a loss expects none.
const CLEAN: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(super) struct Limits {
    /// The proxy to use, or how to find one.
    pub(super) sender: SenderConfig,
    pub(super) filter: Filter,
    /// The agent helps a flow from this packet on.
    pub(super) min_packets: u32,
    pub(super) max_flows: usize,
    /// Most bytes of copies.
    pub(super) memory: usize,
    pub(super) idle_timeout: Duration,
    /// Whether the host takes copies of datagrams that were lost on their way to it.
    pub(super) delivers: bool,
    /// Whether arriving packets pass a queue in which they may wait.
    pub(super) in_order: bool,
    /// Whether proxies that put uploads in order get parity of them.
    pub(super) upload_parity: bool,
    /// What a second uplink may carry; `None` without one.
    pub(super) second_uplink: Option<Carry>,
}

impl Limits {
    /// Whether the operator names the proxy, as help for a flow of which nothing leaves requires:
    /// anyone can send such packets, and a proxy that anyone runs may claim to have copies. The
    /// agent helps only those to this host, and sends nothing along their paths.
    fn names_proxy(&self) -> bool {
        self.sender.key.is_some() && self.sender.proxy.is_some()
    }
}

/// The state of a flow.
enum Entry {
    /// It has too few packets to be helped.
    Candidate(Box<Candidate>),
    Helped(Box<HelpedFlow>),
    /// The agent begins no help for it. The field is the time of its last packet.
    LeftAlone(Instant),
}

/// All flows, and the state of their help.
pub(super) struct Agent {
    limits: Limits,
    /// The ports at which proxies answer.
    ports: Vec<u16>,
    random: Box<dyn FnMut() -> Option<[u8; 32]> + Send>,
    flows: HashMap<Flow, Entry>,
    /// Those of the flows that are helped.
    helped: usize,
    /// Those of the helped flows whose packets only arrive.
    only_arriving: usize,
    /// The log names a flow that had no room. It names no other until the help for one ends.
    was_full: bool,
    sweep_at: Option<Instant>,
    /// The flows with too few packets and those that are left alone, the oldest first, and apart
    /// from them those whose packets only arrive. The lists may also contain flows that are gone or
    /// helped.
    unhelped: VecDeque<Flow>,
    unhelped_arriving: VecDeque<Flow>,
    /// Before this time, the agent does not search again for a helped flow to replace.
    replaces_at: Option<Instant>,
    /// Proxies that answers have named.
    named: Named,
    /// A proxy that reports flows of the host's own, by interface and by version of IP.
    known: HashMap<(u32, bool), KnownProxy>,
    /// When an answer arrived along the path of no flow.
    stray: Option<Instant>,
    /// Until then, a new flow expects no losses of what arrives: others lately had none.
    clean_until: Option<Instant>,
    /// The packets of a flow have begun to pass the queue by.
    is_passed_by: bool,
    /// The log has named such a flow.
    warned: bool,
    /// The machine's addresses, and those of its interfaces' hardware.
    local: HashSet<IpAddr>,
    hardware: HashSet<[u8; 6]>,
    common: Common,
}

impl Agent {
    /// An agent without flows. `ports` are its own. `random` draws the secrets of each flow; a flow
    /// without secrets gets no help.
    pub(super) fn new(
        limits: Limits,
        ports: Vec<u16>,
        random: impl FnMut() -> Option<[u8; 32]> + Send + 'static,
    ) -> Self {
        let carry = limits.second_uplink.unwrap_or_default();
        Self {
            limits,
            ports,
            random: Box::new(random),
            flows: HashMap::new(),
            helped: 0,
            only_arriving: 0,
            was_full: false,
            named: Named::default(),
            known: HashMap::new(),
            stray: None,
            clean_until: None,
            is_passed_by: false,
            warned: false,
            local: HashSet::new(),
            hardware: HashSet::new(),
            sweep_at: None,
            unhelped: VecDeque::new(),
            unhelped_arriving: VecDeque::new(),
            replaces_at: None,
            common: Common::new(carry),
        }
    }

    /// Applies other limits to flows that begin from now on.
    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Repairs nothing from now on, and records what the link does to packets.
    pub(super) fn watch(&mut self, now: Instant) {
        self.common.recorder = Some(Recorder::begin(now));
        self.limits.memory = 0;
    }

    /// The recording so far; `None` if the agent helps.
    pub(super) fn recorder(&self) -> Option<&Recorder> {
        self.common.recorder.as_ref()
    }

    /// Ends the recording.
    /// Returns it, and how many packets left whose fate no report showed.
    pub(super) fn end_watch(&mut self, now: Instant) -> Option<(Trace, u64)> {
        let mut recorder = self.common.recorder.take()?;
        for entry in self.flows.values_mut() {
            if let Entry::Helped(helped) = entry {
                helped.record_end(&mut recorder);
            }
        }
        let unknown = recorder.unknown();
        Some((recorder.end(now), unknown))
    }

    /// Notes the machine's addresses, and those of its interfaces' hardware.
    pub(super) fn set_local(&mut self, local: &HashSet<IpAddr>, hardware: &HashSet<[u8; 6]>) {
        self.local.clone_from(local);
        self.hardware.clone_from(hardware);
    }

    /// Notes a datagram that leaves, or all datagrams of a merged frame.
    pub(super) fn on_leaving(&mut self, leaving: Passing<'_>, now: Instant) {
        let flow = leaving.datagram.flow;
        self.sweep_at.get_or_insert(now + SWEEP);
        // The agent's own messages. Another host's flow may have the same port.
        if self.ports.contains(&flow.source.port()) && self.common.outbox.knows(flow.destination) {
            return;
        }
        let mut payloads = leaving.payloads().peekable();
        while let Some(payload) = payloads.peek() {
            if let Some(Entry::Helped(helped)) = self.flows.get_mut(&flow) {
                let memory = self.limits.memory;
                let outcome = self.common.on_leaving(helped, &leaving, payloads, memory, now);
                if helped.resender.sent() > 0 && mem::take(&mut helped.only_arrives) {
                    self.only_arriving -= 1;
                }
                if let Err(why) = outcome {
                    self.leave_alone(flow, why, now);
                }
                return;
            }
            // The datagram with which help begins is itself helped.
            if !self.note(&leaving, payload, now) {
                self.common.count(payload);
                payloads.next();
            }
        }
    }

    /// Ends the help for a flow, for the reason `why`, and forgets it.
    fn end(&mut self, flow: Flow, why: &str, now: Instant) {
        if let Some(Entry::Helped(helped)) = self.flows.remove(&flow) {
            self.helped -= 1;
            self.only_arriving -= usize::from(helped.only_arrives);
            self.was_full = false;
            self.common.end(helped, why, now);
        }
    }

    /// Ends the help for a flow, for the reason `why`, and begins none as long as it has packets.
    fn leave_alone(&mut self, flow: Flow, why: &str, now: Instant) {
        self.end(flow, why, now);
        self.unhelped.push_back(flow);
        self.flows.insert(flow, Entry::LeftAlone(now));
    }

    /// Begins no help for a candidate, for the reason `why`, as long as it has packets. Unlike
    /// helped flows, strangers can begin such flows at the rate of their packets, so only the log
    /// of -vv names them.
    fn pass_over(&mut self, flow: Flow, why: &str, now: Instant) {
        debug!("{} to {}: no help: {why}", flow.source, flow.destination);
        self.flows.insert(flow, Entry::LeftAlone(now));
    }

    /// Notes a datagram that arrives, or all datagrams of a merged frame.
    pub(super) fn on_arriving(&mut self, arriving: Passing<'_>, now: Instant) {
        let flow = arriving.datagram.flow.reversed();
        let mut is_due = false;
        for payload in arriving.payloads() {
            self.common.totals.arrived += 1;
            match self.flows.get_mut(&flow) {
                Some(Entry::Candidate(candidate)) => candidate.note_arriving(payload, now),
                Some(Entry::Helped(helped)) if Sender::is_answer(payload) => {
                    let (chosen, local) = (&self.limits.sender, |ip| self.local.contains(&ip));
                    helped.on_answer(&mut self.named, chosen, local, payload, now);
                    is_due = true;
                    continue;
                }
                Some(Entry::Helped(helped)) => {
                    // A packet from where the flow does not leave may be a stranger's.
                    if helped.interface() != arriving.interface {
                        continue;
                    }
                    helped.note_arriving(payload.len(), now);
                    if let Some(recorder) = &mut self.common.recorder {
                        helped.watch_arriving(payload, recorder, now);
                        is_due = true;
                        continue;
                    }
                    if !self.limits.delivers {
                        continue;
                    }
                    let totals = &mut self.common.totals;
                    is_due |= helped.on_arriving(&arriving, payload, totals, now);
                    continue;
                }
                Some(Entry::LeftAlone(last)) => {
                    *last = now;
                    continue;
                }
                None if Sender::is_answer(payload) => {
                    self.stray = Some(now);
                    continue;
                }
                None if self.limits.delivers
                    && self.limits.names_proxy()
                    && self.local.contains(&flow.source.ip())
                    && arriving.goes_to(&self.hardware)
                    && Kind::may_be_numbered(payload) =>
                {
                    if let Some(candidate) = self.begin(flow, true, now) {
                        candidate.note_arriving(payload, now);
                    }
                }
                None => continue,
            }
            if self.limits.delivers {
                self.help(flow, || Template::back(&arriving), now);
            }
        }
        let Some(Entry::Helped(helped)) = self.flows.get_mut(&flow) else { return };
        let Common { totals, outbox, .. } = &mut self.common;
        let is_here = helped.interface() == arriving.interface;
        if is_here && helped.pass_by(outbox, totals, now) {
            self.is_passed_by = true;
            if !mem::replace(&mut self.warned, true) {
                warn!(
                    "in-order: packets from {} do not pass the queue, so they do not wait: another \
                     program has removed the rules, or accepts the packets before, or they arrive \
                     by another interface than the firewall sees",
                    flow.destination
                );
            }
        }
        if is_due {
            self.common.settle(helped, now);
        }
    }

    /// Notes a packet that waits in the queue on its way to this host, from its IP header on. The
    /// queue does not say by which interface it arrived.
    pub(super) fn on_queued(&mut self, id: u32, packet: &[u8], now: Instant) {
        let begin = self.order_begins(now);
        let datagram = packet::parse(Link::Ip, packet, packet.len()).ok();
        let Some(datagram) = datagram.filter(|_| self.limits.delivers) else {
            self.pass(id);
            return;
        };
        let flow = datagram.flow.reversed();
        if let Some(Entry::Helped(helped)) = self.flows.get_mut(&flow) {
            let (interface, link, frame) = (helped.interface(), Link::Ip, packet);
            let passing = Passing { interface, link, datagram, each: None, frame };
            if helped.on_queued(id, &passing, begin, now) {
                self.common.settle(helped, now);
                let is_lossy = helped.order.as_ref().and_then(|order| order.gate().is_lossy(now));
                if let Some(is_lossy) = is_lossy {
                    self.clean_until = (!is_lossy).then(|| now + CLEAN);
                }
                return;
            }
        } else if !self.limits.filter.only.is_empty()
            && Kind::of(datagram.payload) == Kind::MpegTs
            && self.limits.names_proxy()
            && self.local.contains(&flow.source.ip())
            && !self.flows.contains_key(&flow)
        {
            self.begin(flow, true, now);
        }
        self.pass(id);
    }

    /// Whether the packets of a flow have begun to pass the queue by since the last call.
    pub(super) fn is_passed_by(&mut self) -> bool {
        mem::take(&mut self.is_passed_by)
    }

    /// How another flow's order begins.
    fn order_begins(&self, now: Instant) -> Begin {
        let is_clean = self.clean_until.is_some_and(|until| now < until);
        Begin { repair: ReceiveRepair::beside(self.helped), is_clean }
    }

    /// Lets a packet of the queue pass.
    pub(super) fn pass(&mut self, id: u32) {
        self.common.outbox.push_queued(id);
    }

    /// Handles a datagram that arrived at the agent's port.
    pub(super) fn on_message(&mut self, from: SocketAddr, message: &[u8], now: Instant) {
        let number = Sender::session_number(message);
        let flow = number.and_then(|number| self.common.numbers.get(&number));
        let Some(Entry::Helped(helped)) = flow.and_then(|flow| self.flows.get_mut(flow)) else {
            self.common.totals.malformed += 1;
            return;
        };
        // An error changes only the sender's counters.
        if let Ok(copy) = helped.resender.sender.handle_input(from, message, now) {
            self.named.on_answer(from.ip().to_canonical(), now);
            if let Some(recorder) = &mut self.common.recorder {
                helped.watch_message(recorder, now);
            }
            if let Some(copy) = &copy {
                let copy = copy.bytes(message);
                if helped.resender.sender.first_link_is_silent() {
                    self.common.charge(copy.len());
                }
                helped.on_copy(copy, &mut self.common.outbox, &mut self.common.totals, now);
            }
        }
        self.common.settle(helped, now);
        if helped.is_assisted()
            && self.local.contains(&helped.flow.source.ip())
            && let Some((proxy, _)) = helped.resender.sender.proxy()
        {
            let (interface, flow) = (helped.interface(), helped.flow);
            self.note_known(proxy, interface, flow, now);
        }
    }

    /// When [`Agent::on_timeout`] is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let timer = self.common.timers.first().map(|(at, _)| *at);
        timer.into_iter().chain(self.sweep_at).min()
    }

    /// Serves the timers that are due at `now`.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        while let Some((at, _)) = self.common.timers.first()
            && *at <= now
            && let Some((_, [source, destination])) = self.common.timers.pop_first()
        {
            let flow = Flow { source, destination };
            if let Some(Entry::Helped(helped)) = self.flows.get_mut(&flow) {
                helped.armed = None;
                if helped.resender.sender.poll_timeout().is_some_and(|due| due <= now) {
                    helped.resender.sender.on_timeout(now);
                }
                self.common.settle(helped, now);
            }
        }
        if self.sweep_at.is_some_and(|at| at <= now) {
            self.sweep(now);
        }
    }

    /// Drops old copies and idle flows.
    fn sweep(&mut self, now: Instant) {
        let idle = self.limits.idle_timeout;
        let mut memory = 0;
        // Allocates only if a flow ends.
        let mut ended = Vec::new();
        for (flow, entry) in &mut self.flows {
            let last = match entry {
                Entry::Helped(helped) => {
                    helped.on_second(now);
                    memory += helped.resender.memory();
                    helped.last
                }
                Entry::Candidate(candidate) => candidate.last,
                Entry::LeftAlone(last) => *last,
            };
            if last + idle <= now {
                ended.push(*flow);
            }
        }
        self.common.memory = memory;
        for flow in ended {
            if let Some(Entry::Helped(_)) = self.flows.get(&flow) {
                self.end(flow, "it has no more packets", now);
            } else {
                self.flows.remove(&flow);
            }
        }
        self.share_proxies(now);
        let Self { unhelped, unhelped_arriving, flows, .. } = self;
        for list in [unhelped, unhelped_arriving] {
            list.retain(|flow| !matches!(flows.get(flow), Some(Entry::Helped(_)) | None));
        }
        self.sweep_at = (!self.flows.is_empty()).then(|| now + SWEEP);
    }

    /// Undoes the count of a copy that did not reach the host.
    pub(super) fn undo_delivery(&mut self) {
        self.common.totals.delivered = self.common.totals.delivered.saturating_sub(1);
    }

    /// Stops requesting copies, because the host no longer takes any.
    pub(super) fn stop_delivering(&mut self, now: Instant) {
        self.limits.delivers = false;
        let Common { outbox, totals, .. } = &mut self.common;
        for entry in self.flows.values_mut() {
            if let Entry::Helped(helped) = entry {
                helped.stop_receiving(outbox, totals, now);
            }
        }
    }

    /// Puts nothing in order any longer, because there is no queue.
    pub(super) fn stop_ordering(&mut self, now: Instant) {
        self.limits.in_order = false;
        let Common { outbox, totals, .. } = &mut self.common;
        for entry in self.flows.values_mut() {
            if let Entry::Helped(helped) = entry {
                helped.end_order(outbox, totals, now);
            }
        }
    }

    /// Ends the help for all flows.
    pub(super) fn close(&mut self, now: Instant) {
        let helped = self.flows.iter().filter(|(_, entry)| matches!(entry, Entry::Helped(_)));
        let helped: Vec<_> = helped.map(|(flow, _)| *flow).collect();
        for flow in helped {
            self.end(flow, "the agent ends", now);
        }
    }

    /// The next frame or message to send. Give its buffer back.
    pub(super) fn pop(&mut self) -> Option<(To, Vec<u8>)> {
        self.common.outbox.pop()
    }

    /// Takes a buffer of [`Agent::pop`] back.
    pub(super) fn give_back(&mut self, buffer: Vec<u8>) {
        self.common.outbox.give_back(buffer);
    }
}

#[cfg(test)]
pub(super) mod tests;

/// How long the state of flows without a proxy mentions answers along other paths.
const STRAYS: Duration = Duration::from_secs(300);

impl Agent {
    /// The totals now.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = self.common.totals;
        totals.unsent += self.common.outbox.refused;
        for helped in self.helped() {
            totals.add(helped.resender.sender.stats());
            helped.order.iter().for_each(|order| totals.add_order(order.gate().counters()));
        }
        totals
    }

    /// How long arriving packets of flows in order waited, and how many wait now.
    pub(super) fn holds(&self) -> (&Holds, usize) {
        let orders = self.helped().filter_map(|helped| helped.order.as_ref());
        (&self.common.outbox.holds, orders.map(|order| order.gate().waiting()).sum())
    }

    /// The limits now.
    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    fn helped(&self) -> impl Iterator<Item = &HelpedFlow> {
        self.flows.values().filter_map(|entry| match entry {
            Entry::Helped(helped) => Some(&**helped),
            _ => None,
        })
    }

    /// Flows that are helped, flows that a proxy reports, and bytes of copies.
    pub(super) fn counts(&self) -> (usize, usize, u64) {
        let assisted = |helped: &&HelpedFlow| helped.is_assisted();
        let memory = self.helped().map(|helped| helped.resender.memory() as u64).sum();
        (self.helped, self.helped().filter(assisted).count(), memory)
    }

    /// Flows whose proxy can be reached by the second uplink, flows that it carries, and the bytes
    /// that it may still carry.
    pub(super) fn second_uplink(&self, now: Instant) -> (usize, usize, u64) {
        let senders = || self.helped().map(|helped| &helped.resender.sender);
        let reached = senders().filter(|sender| sender.has_second_link(now)).count();
        let carried = senders().filter(|sender| sender.first_link_is_silent()).count();
        (reached, carried, self.common.carry_left())
    }

    /// The busiest of the helped flows, at most `most`, in any order, because packets wait
    /// meanwhile. `name` returns the name of an interface.
    pub(super) fn flows(
        &self,
        most: usize,
        name: impl Fn(u32) -> String,
        now: Instant,
    ) -> Vec<FlowReport> {
        let mut helped: Vec<_> = self.helped().collect();
        if most < helped.len() {
            helped.select_nth_unstable_by_key(most, |helped| Reverse(helped.resender.sent()));
            helped.truncate(most);
        }
        let strays = self.stray.is_some_and(|at| now < at + STRAYS);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let described = helped.into_iter().map(|helped| FlowReport {
            source: helped.flow.source,
            destination: helped.flow.destination,
            interface: name(helped.interface()),
            kind: helped.kind().to_string(),
            state: helped.state(strays, now),
            arrivals: helped.arrivals(self.limits.delivers, now),
            assisted: helped.is_assisted(),
            proxy: helped.resender.sender.proxy().map(|(address, _)| address),
            proxy_key: helped.resender.sender.proxy().map(|(_, key)| key.to_string()),
            near_rtt_ms: helped.resender.sender.near_rtt().map(ms),
            near_rtt_most_ms: helped.near_most().map(ms),
            rtt_ms: helped.rtt().map(ms),
            sent: helped.resender.sent(),
            lost: helped.resender.lost(),
            resent: helped.resent,
            missed: helped.received().0,
            delivered: helped.received().1,
            last_packet_ago: now.saturating_duration_since(helped.last).as_secs_f64(),
        });
        described.collect()
    }
}
