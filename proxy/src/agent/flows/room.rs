//! Which flows have a place, if there are more than the agent follows or helps.
//!
//! Nobody can keep others out for little: neither who scans the network, nor who sends packets with
//! false sources, nor a program or a host with many slow flows.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use sidekick_protocol::Flow;

use super::super::candidate::Candidate;
use super::super::flow::HelpedFlow;
use super::{Agent, Entry};

/// Most flows with too few packets to be helped, or that are left alone.
pub(super) const CANDIDATES: usize = 4096;
/// The same for flows whose packets only arrive. Anyone can begin such flows, from any source.
pub(super) const CANDIDATES_ARRIVING: usize = 256;
/// If there are too many flows, the agent forgets one that it leaves alone after this silence.
const ALONE_AGE: Duration = Duration::from_secs(5);
/// The agent examines this many flows when it makes room for another.
const ASKED: usize = 8;
/// Of the flows that may be helped, this share may be flows whose packets only arrive, but not more
/// than [`MOST_ARRIVING`].
const SHARE_ARRIVING: usize = 8;
const MOST_ARRIVING: usize = 16;
/// How often the agent searches for a helped flow that another may replace. In a flood, it must not
/// search all flows for each packet.
const SEARCH_INTERVAL: Duration = Duration::from_millis(100);
/// A burst of a flow without a place counts as the packets of a second.
const A_SECOND: Duration = Duration::from_secs(1);
/// A flow whose packets are further apart gives way first, in packets a second.
const SLOW: f64 = 1.0;

/// Why the help for a flow ends if another needs its place.
const REPLACES: &str = "another flow takes its place";

impl Agent {
    /// Makes room for a flow that has enough packets to be helped, and returns whether it has room.
    pub(super) fn makes_room(&mut self, flow: Flow, candidate: &Candidate, now: Instant) -> bool {
        let (most, only_arrives) = (self.limits.max_flows, candidate.only_arrives());
        let most_arriving = (most / SHARE_ARRIVING).clamp(1, MOST_ARRIVING);
        if only_arrives && self.only_arriving >= most_arriving {
            return false;
        }
        if self.helped < most {
            return true;
        }
        // A flow whose packets only arrive gives way to one of the host's own.
        let replaced = if !only_arrives && self.only_arriving > 0 {
            let arriving = self.helped().filter(|helped| helped.only_arrives);
            arriving.min_by_key(|helped| helped.last).map(|helped| helped.flow)
        } else {
            self.replaced_by(flow, candidate, now)
        };
        replaced.map(|flow| self.end(flow, REPLACES, now)).is_some()
    }

    /// The helped flow that gives way to another one: one whose packets are half as many in the
    /// same time, or one of a source that has more places.
    fn replaced_by(&mut self, flow: Flow, candidate: &Candidate, now: Instant) -> Option<Flow> {
        if self.replaces_at.is_some_and(|at| now < at) {
            return None;
        }
        self.replaces_at = Some(now + SEARCH_INTERVAL);
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for helped in self.helped() {
            *counts.entry(helped.flow.source.ip()).or_default() += 1;
        }
        let places = |flow: &Flow| counts.get(&flow.source.ip()).copied().unwrap_or(0);
        let (rate, own) = (candidate.rate(now, A_SECOND), places(&flow));
        let gives_way =
            |helped: &&HelpedFlow| helped.rate < rate / 2.0 || places(&helped.flow) > own + 1;
        // The slow ones first, then those of the source with the most places.
        let order = |one: &&HelpedFlow, other: &&HelpedFlow| {
            let is_fast = |helped: &HelpedFlow| helped.rate >= SLOW;
            is_fast(one)
                .cmp(&is_fast(other))
                .then_with(|| places(&other.flow).cmp(&places(&one.flow)))
                .then_with(|| one.rate.total_cmp(&other.rate))
        };
        self.helped().filter(gives_way).min_by(order).map(|helped| helped.flow)
    }

    /// Gives one flow that has no place at its proxy that of a slower one.
    pub(super) fn share_proxies(&mut self, now: Instant) {
        let refused = self.helped().filter(|helped| helped.has_no_place());
        let Some(refused) = refused.max_by(|one, other| one.rate.total_cmp(&other.rate)) else {
            return;
        };
        let (flow, rate) = (refused.flow, refused.rate);
        let slower = self.helped().filter(|it| it.is_assisted() && it.rate < rate / 2.0);
        let slowest = slower.min_by(|one, other| one.rate.total_cmp(&other.rate));
        if let Some(slowest) = slowest.map(|helped| helped.flow) {
            self.end(slowest, REPLACES, now);
            if let Some(Entry::Helped(helped)) = self.flows.get_mut(&flow) {
                helped.resender.restart(now);
                self.common.settle(helped, now);
            }
        }
    }

    /// Whether there is room for another flow with too few packets, perhaps because the agent
    /// forgets one of them. `arrives`: the flow begins with an arriving packet.
    pub(super) fn has_room(&mut self, arrives: bool, now: Instant) -> bool {
        let Self { flows, unhelped, unhelped_arriving, common, .. } = self;
        let (list, most) =
            if arrives { (unhelped_arriving, CANDIDATES_ARRIVING) } else { (unhelped, CANDIDATES) };
        if list.len() < most {
            return true;
        }
        // Of the oldest, the agent forgets one of the source that has the most of them.
        let mut oldest = VecDeque::with_capacity(ASKED);
        for _ in 0..ASKED {
            let Some(flow) = list.pop_front() else { break };
            match flows.get(&flow) {
                Some(Entry::LeftAlone(last)) if now < *last + ALONE_AGE => list.push_back(flow),
                Some(Entry::Candidate(candidate)) if candidate.only_arrives() != arrives => {}
                Some(Entry::Candidate(_) | Entry::LeftAlone(_)) => oldest.push_back(flow),
                Some(Entry::Helped(_)) | None => {}
            }
        }
        if list.len() + oldest.len() >= most {
            // Anyone can name any source, so those of flows that only arrive do not count.
            let source = |flow: &Flow| flow.source.ip();
            let alike = |flow: &Flow| {
                if arrives {
                    0
                } else {
                    oldest.iter().filter(|it| source(it) == source(flow)).count()
                }
            };
            let most_alike = oldest.iter().map(alike).max();
            let place = oldest.iter().position(|flow| Some(alike(flow)) == most_alike);
            if let Some(forgotten) = place.and_then(|place| oldest.remove(place)) {
                let was = flows.remove(&forgotten);
                let is_early = |was: &Entry| matches!(was, Entry::Candidate(it) if !it.was_left);
                common.totals.forgotten += u64::from(was.as_ref().is_some_and(is_early));
            }
        }
        let has_room = list.len() + oldest.len() < most;
        // They stay the oldest, but for those of the sources that have many.
        while let Some(flow) = oldest.pop_back() {
            list.push_front(flow);
        }
        has_room
    }
}
