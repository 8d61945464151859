//! When the help for a flow begins, and which proxy the agent asks.

use std::mem;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sidekick_protocol::{Flow, Sender};
use tracing::{debug, info};

use super::super::candidate::Candidate;
use super::super::flow::{HelpedFlow, SEARCHES, UNWRITTEN};
use super::super::frame::{Passing, Template};
use super::common::KnownProxy;
use super::{Agent, Entry, SWEEP};

/// How long the agent asks a proxy for flows whose paths it does not search, after that proxy last
/// reported another flow.
const KNOWN: Duration = Duration::from_secs(600);

/// Why the agent leaves a flow alone.
const UNKNOWN: &str = "its program reports markers as errors, and no proxy is known: set proxy";
const PLAIN: &str = "its packets are not encrypted, so its program may read markers as data, and \
                     take packets twice: name it in only, if its program bears that";

impl Agent {
    /// Notes a leaving datagram of a flow that is not helped. Returns whether help begins with it.
    pub(super) fn note(&mut self, leaving: &Passing<'_>, payload: &[u8], now: Instant) -> bool {
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
            self.common.totals.seen_twice += 1;
            return false;
        }
        if only_arrived {
            self.unhelped.push_back(flow);
        }
        self.help(flow, || Template::of(leaving), now)
    }

    /// Begins to count the packets of a flow, if it may be helped. `arrives`: its first packet
    /// arrived.
    pub(super) fn begin(
        &mut self,
        flow: Flow,
        arrives: bool,
        now: Instant,
    ) -> Option<&mut Candidate> {
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

    /// Begins to help a flow if it has enough packets, and returns whether it is helped. `template`
    /// has the headers of what leaves.
    pub(super) fn help(
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
        let watches = self.common.recorder.is_some();
        let how = (watches, self.limits.upload_parity);
        let mut helped = Box::new(HelpedFlow::begin(config, seed, template, about, how, now));
        if watches {
            helped.watch(now);
        } else if self.limits.in_order {
            helped.expect_order(self.order_begins(now), now);
        }
        self.common.totals.flows += 1;
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
        self.common.totals.flows_refused += 1;
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
    pub(super) fn note_known(
        &mut self,
        proxy: SocketAddr,
        interface: u32,
        flow: Flow,
        now: Instant,
    ) {
        let destination = flow.destination.ip();
        let new = KnownProxy { proxy, destination, others: false, seen: now };
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
            self.common.totals.left += 1;
            debug!("{} to {}: no help: {why}", flow.source, flow.destination);
        }
    }
}
