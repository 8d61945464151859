//! The agent's state machine: all flows, without I/O.
//!
//! Call [`Agent::on_leaving`] for each captured datagram that leaves, also for those that the agent
//! itself sends by an interface. Call [`Agent::on_arriving`] for each that arrives, and
//! [`Agent::on_message`] for each message at the agent's port. Call [`Agent::on_timeout`] at
//! [`Agent::poll_timeout`]. After each call, send what [`Agent::pop`] returns until it returns
//! `None`.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use sidekick_protocol::{Flow, Sender, SenderConfig};
use tracing::{debug, info};

use super::candidate::Candidate;
use super::claims::Trusts;
use super::filter::Filter;
use super::flow::{HelpedFlow, SEARCHES, Sighting, UNWRITTEN};
use super::frame::{Passing, Template};
use super::kind::Kind;
use super::named::{Named, on_answer};
use super::outbox::{Outbox, To};
use super::report::Totals;

mod counts;
mod room;

/// How often idle flows and old copies are dropped.
const SWEEP: Duration = Duration::from_secs(1);
/// How long the agent asks a proxy for flows whose paths it does not search, after that proxy last
/// reported another flow.
const KNOWN: Duration = Duration::from_secs(600);

/// Why the agent leaves a flow alone.
const UNKNOWN: &str = "its program reports markers as errors, and no proxy is known: set proxy";
const PLAIN: &str = "its packets are not encrypted, so its program may read markers as data, and \
                     take packets twice: name it in only, if its program bears that";

/// The limits of an agent.
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
    /// The port at which proxies answer.
    port: u16,
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
    known: HashMap<(u32, bool), Known>,
    /// When an answer arrived along the path of no flow.
    stray: Option<Instant>,
    /// The machine's addresses, and those of its interfaces' hardware.
    local: HashSet<IpAddr>,
    hardware: HashSet<[u8; 6]>,
    work: Work,
}

/// A proxy that reports flows of the host's own.
#[derive(Clone, Copy, Debug)]
struct Known {
    proxy: SocketAddr,
    /// The destination of one of these flows, and whether it reports flows to others, too. A
    /// destination may pose as a proxy, and must not learn of other flows.
    destination: IpAddr,
    others: bool,
    seen: Instant,
}

/// When a flow is due, and its addresses.
type Timer = (Instant, [SocketAddr; 2]);

/// The agent's state that all flows share.
#[derive(Default)]
struct Work {
    /// The flow of a session's number.
    numbers: HashMap<u32, Flow>,
    /// When each flow with a deadline is due.
    timers: BTreeSet<Timer>,
    /// Bytes of copies.
    memory: usize,
    outbox: Outbox,
    scratch: Vec<u64>,
    trusts: Trusts,
    totals: Totals,
}

impl Work {
    /// Counts a leaving datagram of a program.
    fn count(&mut self, payload: &[u8]) {
        self.totals.captured += 1;
        self.totals.captured_bytes += payload.len() as u64;
    }

    /// Notes leaving datagrams of one frame of a helped flow. `most`: bytes of copies, of all flows
    /// together.
    ///
    /// # Errors
    /// Why the agent must leave the flow alone.
    fn on_leaving<'a>(
        &mut self,
        helped: &mut HelpedFlow,
        leaving: &Passing<'_>,
        payloads: impl Iterator<Item = &'a [u8]>,
        most: usize,
        now: Instant,
    ) -> Result<(), &'static str> {
        for payload in payloads {
            let before = helped.memory();
            let sighting = helped.on_leaving(leaving, payload, self.memory < most, now);
            self.memory = (self.memory + helped.memory()).saturating_sub(before);
            if sighting != Sighting::FromAgent {
                self.count(payload);
            }
            match sighting {
                Sighting::FromProgram => self.totals.sent += 1,
                Sighting::Duplicate => self.totals.seen_twice += 1,
                Sighting::FromAgent => {}
                Sighting::Excluded(why) => return Err(why),
            }
        }
        self.settle(helped, now);
        Ok(())
    }

    /// Completes an input of a flow: queues what it has ready, and sets its timer.
    fn settle(&mut self, helped: &mut HelpedFlow, now: Instant) {
        let Self { outbox, scratch, trusts, totals, numbers, timers, .. } = self;
        let (flow, ends) = (helped.flow, helped.ends());
        helped.flush((outbox, scratch), trusts, totals, now);
        if !helped.sender.session_numbers().eq(helped.numbers.iter().copied()) {
            forget_numbers(numbers, helped);
            helped.numbers.clear();
            helped.numbers.extend(helped.sender.session_numbers());
            numbers.extend(helped.numbers.iter().map(|number| (*number, flow)));
        }
        if let Some(due) = helped.sender.poll_timeout()
            && helped.armed.is_none_or(|armed| due < armed)
        {
            if let Some(armed) = helped.armed.replace(due) {
                timers.remove(&(armed, ends));
            }
            timers.insert((due, ends));
        }
    }

    /// Ends the help for a flow, for the reason `why`.
    fn end(&mut self, mut helped: Box<HelpedFlow>, why: &str, now: Instant) {
        helped.log_end(why);
        helped.sender.stop();
        let Self { outbox, scratch, trusts, totals, .. } = self;
        helped.flush((outbox, scratch), trusts, totals, now);
        self.totals.add(helped.sender.stats());
        self.memory = self.memory.saturating_sub(helped.memory());
        if let Some(armed) = helped.armed {
            self.timers.remove(&(armed, helped.ends()));
        }
        forget_numbers(&mut self.numbers, &helped);
    }
}

impl Agent {
    /// An agent without flows. `port` is its own. `random` draws the secrets of each flow; a flow
    /// without secrets gets no help.
    pub(super) fn new(
        limits: Limits,
        port: u16,
        random: impl FnMut() -> Option<[u8; 32]> + Send + 'static,
    ) -> Self {
        Self {
            limits,
            port,
            random: Box::new(random),
            flows: HashMap::new(),
            helped: 0,
            only_arriving: 0,
            was_full: false,
            named: Named::default(),
            known: HashMap::new(),
            stray: None,
            local: HashSet::new(),
            hardware: HashSet::new(),
            sweep_at: None,
            unhelped: VecDeque::new(),
            unhelped_arriving: VecDeque::new(),
            replaces_at: None,
            work: Work::default(),
        }
    }

    /// Applies other limits to flows that begin from now on.
    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
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
        if flow.source.port() == self.port && self.work.outbox.knows(flow.destination) {
            return;
        }
        let mut payloads = leaving.payloads().peekable();
        while let Some(payload) = payloads.peek() {
            if let Some(Entry::Helped(helped)) = self.flows.get_mut(&flow) {
                let memory = self.limits.memory;
                let outcome = self.work.on_leaving(helped, &leaving, payloads, memory, now);
                if helped.sent > 0 && mem::take(&mut helped.only_arrives) {
                    self.only_arriving -= 1;
                }
                if let Err(why) = outcome {
                    self.leave_alone(flow, why, now);
                }
                return;
            }
            // The datagram with which help begins is itself helped.
            if !self.note(&leaving, payload, now) {
                self.work.count(payload);
                payloads.next();
            }
        }
    }

    /// Notes a leaving datagram of a flow that is not helped. Returns whether help begins with it.
    fn note(&mut self, leaving: &Passing<'_>, payload: &[u8], now: Instant) -> bool {
        let flow = leaving.datagram.flow;
        let candidate = match self.flows.get_mut(&flow) {
            Some(Entry::LeftAlone(last)) => {
                *last = now;
                return false;
            }
            Some(Entry::Candidate(_)) if Sender::is_marker(payload) => {
                self.pass_over(flow, SEARCHES, now);
                return false;
            }
            Some(Entry::Candidate(candidate)) => Some(&mut **candidate),
            Some(Entry::Helped(_)) => None,
            None => self.begin(flow, false, now),
        };
        let Some(candidate) = candidate else { return false };
        let only_arrived = candidate.only_arrives();
        if !candidate.note(leaving.interface, payload, now) {
            self.work.totals.seen_twice += 1;
            return false;
        }
        if only_arrived {
            self.unhelped.push_back(flow);
        }
        self.help(flow, || Template::of(leaving), now)
    }

    /// Begins to count the packets of a flow, if it may be helped. `arrives`: its first packet
    /// arrived.
    fn begin(&mut self, flow: Flow, arrives: bool, now: Instant) -> Option<&mut Candidate> {
        self.sweep_at.get_or_insert(now + SWEEP);
        if !self.limits.filter.allows(&flow) || !self.has_room(arrives, now) {
            return None;
        }
        if arrives {
            self.unhelped_arriving.push_back(flow);
        }
        match self
            .flows
            .entry(flow)
            .or_insert_with(|| Entry::Candidate(Box::new(Candidate::new(now))))
        {
            Entry::Candidate(candidate) => Some(candidate),
            Entry::Helped(_) | Entry::LeftAlone(_) => None,
        }
    }

    /// Begins to help a flow if it has enough packets. `template` has the headers of what leaves.
    /// Returns whether it is helped.
    fn help(
        &mut self,
        flow: Flow,
        template: impl FnOnce() -> Option<Template>,
        now: Instant,
    ) -> bool {
        let Some(Entry::Candidate(candidate)) = self.flows.get(&flow) else { return false };
        let candidate = **candidate;
        if !candidate.is_worth_it(self.limits.min_packets) {
            return false;
        }
        let proxy = match self.proxy_for(flow, &candidate, now) {
            Ok(proxy) => proxy,
            Err(why) => {
                self.leave_for_now(flow, why);
                return false;
            }
        };
        if !self.makes_room(flow, &candidate, now) {
            self.refuse(flow);
            return false;
        }
        let Some(template) = template() else {
            self.pass_over(flow, UNWRITTEN, now);
            return false;
        };
        let Some(seed) = (self.random)() else {
            self.pass_over(flow, "the system provides no random secrets", now);
            return false;
        };
        let mut config = self.limits.sender.clone();
        config.proxy = proxy;
        let is_own = self.local.contains(&flow.source.ip());
        let about = (flow, candidate, is_own);
        let helped = Box::new(HelpedFlow::begin(config, seed, template, about, now));
        self.work.totals.flows += 1;
        self.helped += 1;
        self.only_arriving += usize::from(helped.only_arrives);
        self.flows.insert(flow, Entry::Helped(helped));
        true
    }

    /// The proxy to ask for a flow, if the agent need not search its path.
    ///
    /// # Errors
    /// Why the agent must leave the flow alone for now.
    fn proxy_for(
        &self,
        flow: Flow,
        candidate: &Candidate,
        now: Instant,
    ) -> Result<Option<SocketAddr>, &'static str> {
        if candidate.is_plain() && self.limits.filter.only.is_empty() {
            return Err(PLAIN);
        }
        // Without a proof from the path, a proxy serves only flows with the requester's address. So
        // a router searches the path of each flow that it forwards unchanged.
        let is_local = self.local.contains(&flow.source.ip());
        let serves = |proxy: &SocketAddr| is_local && proxy.is_ipv4() == flow.source.is_ipv4();
        let named = self.limits.sender.proxy.filter(serves);
        if named.is_some() || !candidate.classifier.kind.reports_strangers() {
            return Ok(named);
        }
        let known = candidate.interface().and_then(|it| self.known(it, flow, now));
        known.filter(serves).map(Some).ok_or(UNKNOWN)
    }

    /// Notes a flow that has no room. The agent tries again after as many packets.
    fn refuse(&mut self, flow: Flow) {
        let Some(Entry::Candidate(candidate)) = self.flows.get_mut(&flow) else { return };
        (candidate.packets, candidate.arrived) = (0, 0);
        if mem::replace(&mut candidate.was_refused, true) {
            return;
        }
        self.work.totals.flows_refused += 1;
        let (Flow { source, destination }, others) = (flow, self.helped);
        // Strangers can begin such flows.
        if mem::replace(&mut self.was_full, true) {
            debug!("{source} to {destination}: no help beside {others} other flows");
        } else {
            info!("{source} to {destination}: no help beside {others} other flows");
        }
    }

    /// The proxy that reports other flows of the host's own by this interface.
    fn known(&self, interface: u32, flow: Flow, now: Instant) -> Option<SocketAddr> {
        let known = self.known.get(&(interface, flow.source.is_ipv4()))?;
        (now < known.seen + KNOWN && known.others).then_some(known.proxy)
    }

    /// Notes a proxy that reports a flow of the host's own.
    fn note_known(&mut self, proxy: SocketAddr, interface: u32, flow: Flow, now: Instant) {
        let destination = flow.destination.ip();
        let new = Known { proxy, destination, others: false, seen: now };
        let known = self.known.entry((interface, flow.source.is_ipv4())).or_insert(new);
        if known.proxy == proxy {
            known.seen = now;
            known.others |= known.destination != destination;
        } else if known.seen + KNOWN <= now {
            *known = new;
        }
    }

    /// Notes a flow that gets no help for the reason `why`, as long as that lasts.
    fn leave_for_now(&mut self, flow: Flow, why: &str) {
        if let Some(Entry::Candidate(candidate)) = self.flows.get_mut(&flow)
            && !mem::replace(&mut candidate.was_left, true)
        {
            self.work.totals.left += 1;
            debug!("{} to {}: no help: {why}", flow.source, flow.destination);
        }
    }

    /// Ends the help for a flow, for the reason `why`, and forgets it.
    fn end(&mut self, flow: Flow, why: &str, now: Instant) {
        if let Some(Entry::Helped(helped)) = self.flows.remove(&flow) {
            self.helped -= 1;
            self.only_arriving -= usize::from(helped.only_arrives);
            self.was_full = false;
            self.work.end(helped, why, now);
        }
    }

    /// Ends the help for a flow, for the reason `why`, and begins none as long as it has packets.
    fn leave_alone(&mut self, flow: Flow, why: &str, now: Instant) {
        self.end(flow, why, now);
        self.unhelped.push_back(flow);
        self.flows.insert(flow, Entry::LeftAlone(now));
    }

    /// Begins no help for a candidate, for the reason `why`, as long as it has packets. Unlike
    /// helped flows, strangers can begin such flows at the rate of their packets. So only the log
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
            self.work.totals.arrived += 1;
            match self.flows.get_mut(&flow) {
                Some(Entry::Candidate(candidate)) => candidate.note_arriving(payload, now),
                Some(Entry::Helped(helped)) if Sender::is_answer(payload) => {
                    let known = (&mut self.named, &self.local);
                    on_answer(known, &self.limits.sender, helped, payload, now);
                    is_due = true;
                    continue;
                }
                Some(Entry::Helped(helped)) => {
                    // A packet from where the flow does not leave may be a stranger's.
                    if helped.interface() != arriving.interface {
                        continue;
                    }
                    helped.note_arriving(now);
                    if !self.limits.delivers {
                        continue;
                    }
                    let totals = &mut self.work.totals;
                    is_due |= helped.on_arriving(&arriving, payload, totals, now);
                    continue;
                }
                Some(Entry::LeftAlone(last)) => {
                    *last = now;
                    continue;
                }
                // A receiver may send nothing. Anyone can send such packets, and a proxy that
                // anyone runs may claim to have copies. So of flows that only arrive, the agent
                // helps those to this host whose proxy the operator names, and it sends nothing
                // along their paths.
                None if Sender::is_answer(payload) => {
                    self.stray = Some(now);
                    continue;
                }
                None if self.limits.delivers
                    && self.limits.sender.key.is_some()
                    && self.limits.sender.proxy.is_some()
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
        if is_due && let Some(Entry::Helped(helped)) = self.flows.get_mut(&flow) {
            self.work.settle(helped, now);
        }
    }

    /// Handles a datagram that arrived at the agent's port.
    pub(super) fn on_message(&mut self, from: SocketAddr, message: &[u8], now: Instant) {
        let number = Sender::session_number(message);
        let flow = number.and_then(|number| self.work.numbers.get(&number));
        let Some(Entry::Helped(helped)) = flow.and_then(|flow| self.flows.get_mut(flow)) else {
            self.work.totals.malformed += 1;
            return;
        };
        // An error changes only the sender's counters.
        if let Ok(copy) = helped.sender.handle_input(from, message, now) {
            self.named.on_answer(from.ip().to_canonical(), now);
            if let Some(copy) = &copy {
                let copy = copy.bytes(message);
                helped.on_copy(copy, &mut self.work.outbox, &mut self.work.totals, now);
            }
        }
        self.work.settle(helped, now);
        if helped.is_assisted()
            && self.local.contains(&helped.flow.source.ip())
            && let Some((proxy, _)) = helped.sender.proxy()
        {
            let (interface, flow) = (helped.interface(), helped.flow);
            self.note_known(proxy, interface, flow, now);
        }
    }

    /// When [`Agent::on_timeout`] is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let timer = self.work.timers.first().map(|(at, _)| *at);
        timer.into_iter().chain(self.sweep_at).min()
    }

    /// Serves the timers that are due at `now`.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        while let Some((at, _)) = self.work.timers.first()
            && *at <= now
            && let Some((_, [source, destination])) = self.work.timers.pop_first()
        {
            let flow = Flow { source, destination };
            if let Some(Entry::Helped(helped)) = self.flows.get_mut(&flow) {
                helped.armed = None;
                if helped.sender.poll_timeout().is_some_and(|due| due <= now) {
                    helped.sender.on_timeout(now);
                }
                self.work.settle(helped, now);
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
                    memory += helped.memory();
                    helped.last
                }
                Entry::Candidate(candidate) => candidate.last,
                Entry::LeftAlone(last) => *last,
            };
            if last + idle <= now {
                ended.push(*flow);
            }
        }
        self.work.memory = memory;
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
        self.work.totals.delivered = self.work.totals.delivered.saturating_sub(1);
    }

    /// Stops requesting copies, because the host no longer takes any.
    pub(super) fn stop_delivering(&mut self) {
        self.limits.delivers = false;
        for entry in self.flows.values_mut() {
            if let Entry::Helped(helped) = entry {
                helped.stop_receiving();
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
        self.work.outbox.pop()
    }

    /// Takes a buffer of [`Agent::pop`] back.
    pub(super) fn give_back(&mut self, buffer: Vec<u8>) {
        self.work.outbox.give_back(buffer);
    }
}

fn forget_numbers(numbers: &mut HashMap<u32, Flow>, helped: &HelpedFlow) {
    for number in &helped.numbers {
        // Two senders may draw the same session number.
        if numbers.get(number) == Some(&helped.flow) {
            numbers.remove(number);
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
