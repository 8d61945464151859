//! Backend `sim`: a scenario in virtual time, on one thread, without sockets.
//!
//! The real quiche, the real plugin and the real observer stand in a row, with the links of the
//! `user` backend. quiche has the hook. Without a session, the hook does not change its behaviour.
//!
//! ```text
//! sender host ── near segment ── proxy ── far segment ── receiver host
//! ```
//!
//! A middle segment and a second proxy can stand between the proxy and the far segment.
//!
//! Every decision, every time and every byte follows from the seed, so a seed gives the same record
//! and the same capture files on every machine. The simulation models neither the time of
//! processors nor the work of kernels.

use std::panic::resume_unwind;
use std::path::Path as FilePath;
use std::time::Duration;
use std::{io, thread};

use sha2::{Digest, Sha256};
use virtual_time::{NotInForce, World};

use crate::path::{PathCounters, streams};
use crate::pcap::SegmentPcap;
use crate::record::{FaultCounts, QuackStyles, RunRecord};
use crate::scenario::{FlowKind, Mode, Place, ProxyFate, ProxyPlace, Scenario, Sidekick, Uplinks};
use crate::topology::{PROXY_NEAR, PROXY_PORT, SECOND_PROXY};

mod agent;
mod audio;
mod chain;
mod client;
mod faults;
mod host;
mod messages;
mod migration;
mod near;
mod packet;
mod page;
mod proxy;
mod quic;
mod server;
mod socket;
mod split;
mod tls;
mod transfer;
mod tunnel;
mod wire;

use agent::AgentNode;
use chain::{Node, Side, Stuck, drive};
use faults::{Nat, Schedule};
use near::Near;
use proxy::{Proxy, Tally};
use socket::SocketNode;
use split::SplitProxy;
use tunnel::TunnelEnd;
use wire::Wire;

/// Why a run in virtual time failed.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The program lacks the virtual clock.
    #[error(transparent)]
    NotInForce(#[from] NotInForce),
    /// An endpoint failed, or the run made no progress.
    #[error("{what} after {:.3} s; repeat it with --seed {seed}", at.as_secs_f64())]
    Failed {
        /// The failure.
        what: String,
        /// The time of the failure.
        at: Duration,
        /// The seed that repeats it.
        seed: u64,
    },
    /// The capture files cannot be written.
    #[error("cannot write a pcap file; give --pcap a directory that can be written to")]
    Pcap(#[source] io::Error),
    /// A run could not be set up.
    #[error("cannot set up the simulation: {0}")]
    SetUp(String),
}

/// Runs a scenario once in virtual time. From time to time, calls `watch` with the virtual time and
/// the number of bytes that the applications have received. With a directory for `pcap`, it writes
/// the packets there that the links received and delivered.
///
/// # Errors
///
/// [`SimError`], with the seed that repeats the failure.
pub fn run(
    scenario: &Scenario,
    seed: u64,
    pcap: Option<&FilePath>,
    watch: &mut (dyn FnMut(Duration, u64) + Send),
) -> Result<RunRecord, SimError> {
    let run = || {
        let mut run = Run { scenario, seed, pcap, world: World::enter(seed)?, watch };
        match scenario.flow.kind {
            FlowKind::Audio | FlowKind::Listen => audio::run(&mut run),
            _ => transfer::run(&mut run),
        }
    };
    // A new thread has no generator of BoringSSL that an earlier run left in some state.
    thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| resume_unwind(panic))
}

struct Run<'a> {
    scenario: &'a Scenario,
    seed: u64,
    pcap: Option<&'a FilePath>,
    world: World,
    watch: &'a mut (dyn FnMut(Duration, u64) + Send),
}

/// The path between the hosts at its ends, for all flows.
struct Path {
    /// On the sender's host.
    agent: Option<AgentNode>,
    socket: Option<SocketNode>,
    nat: Option<Nat>,
    /// The sender's end of a tunnel over the near segment.
    tunnel: Option<TunnelEnd>,
    near: Near,
    first: Box<dyn Node>,
    /// The middle segment and the host behind it.
    middle: Option<(Wire, Box<dyn Node>)>,
    far: Wire,
}

impl Path {
    /// The path of a run. The proxies of `splits` replace the observing ones, in order from the
    /// sender on.
    fn new(run: &Run<'_>, splits: Vec<SplitProxy>) -> Result<Self, SimError> {
        let Run { scenario, seed, pcap, .. } = *run;
        let (start, faults) = (run.world.start(), &scenario.faults);
        let wire = |place: Place, segment, streams| -> Result<Wire, SimError> {
            let pcap = pcap.map(|directory| SegmentPcap::create(directory, place.name()));
            let pcap = pcap.transpose().map_err(SimError::Pcap)?;
            let first = faults.first_stage(place, segment);
            let later = faults.later_stages(place, segment);
            Ok(Wire::new(start, &first, later, seed, streams, pcap))
        };
        let schedule = Schedule::new(start, faults.clone());
        let mut splits = splits.into_iter();
        let mut host = |place| -> Result<Box<dyn Node>, SimError> {
            Ok(match splits.next() {
                Some(split) => Box::new(split),
                None => Box::new(
                    Self::proxy(scenario, place, seed, &schedule).map_err(SimError::SetUp)?,
                ),
            })
        };
        let tunnel_end = |outside| TunnelEnd::new(scenario.flow.tunnel, outside);
        let first = match tunnel_end(Side::Left) {
            Some(end) => Box::new(end),
            None => host(ProxyPlace::First)?,
        };
        let middle = match &scenario.middle {
            Some(segment) => {
                let wire = wire(Place::Middle, segment, streams::MIDDLE)?;
                Some((wire, host(ProxyPlace::Second)?))
            }
            None => None,
        };
        let second = scenario.second.as_ref();
        let second = second.map(|segment| wire(Place::Second, segment, streams::SECOND));
        let second = second.transpose()?;
        Ok(Self {
            agent: AgentNode::new(scenario, seed, start),
            socket: SocketNode::new(&scenario.sidekick, transfer::addresses(0).0, seed),
            nat: Nat::new(&schedule),
            tunnel: tunnel_end(Side::Right),
            near: Near::new(
                wire(Place::Near, &scenario.near, streams::NEAR)?,
                second,
                scenario.flow.uplinks == Uplinks::Both,
            ),
            first,
            middle,
            far: wire(Place::Far, &scenario.far, streams::FAR)?,
        })
    }

    /// The host at an end of the middle segment. It has an observing proxy if the scenario wants
    /// one there.
    fn proxy(
        scenario: &Scenario,
        place: ProxyPlace,
        seed: u64,
        schedule: &Schedule,
    ) -> Result<Proxy, String> {
        let Sidekick { mode, proxy, parity_percent, at, .. } = scenario.sidekick;
        let is_there = proxy != ProxyFate::Absent && mode != Mode::Off;
        let observes = is_there && (at == place || at == ProxyPlace::Both);
        let dies_after = (proxy == ProxyFate::Dies).then_some(scenario.flow.total_bytes() / 2);
        let one_way = scenario.segments().map(|(_, segment)| segment.both.delay).sum::<Duration>();
        // Two proxies have different seeds, as two machines do. Each has its own faults.
        let (address, purpose, own_seed) = match place {
            ProxyPlace::Second => (SECOND_PROXY, "second observer", !seed),
            ProxyPlace::First | ProxyPlace::Both => (PROXY_NEAR, "observer", seed),
        };
        let observes = observes.then_some((seed, purpose));
        let address = (address, PROXY_PORT).into();
        let tally = Tally::new(2 * one_way);
        Proxy::new(address, own_seed, observes, dies_after, tally, schedule)?
            .with(parity_percent, mode.orders())
    }

    /// Runs the whole path between two hosts until the flow ends.
    fn drive(
        &mut self,
        run: &mut Run<'_>,
        sender: &mut dyn Node,
        receiver: &mut dyn Node,
        limit: Option<Duration>,
    ) -> Result<Duration, SimError> {
        let Self { agent, socket, nat, tunnel, near, first, middle, far } = self;
        let mut nodes: Vec<&mut dyn Node> = vec![sender];
        nodes.extend(agent.as_mut().map(|agent| agent as &mut dyn Node));
        nodes.extend(socket.as_mut().map(|socket| socket as &mut dyn Node));
        nodes.extend(nat.as_mut().map(|nat| nat as &mut dyn Node));
        nodes.extend(tunnel.as_mut().map(|end| end as &mut dyn Node));
        nodes.extend([near as &mut dyn Node, &mut **first]);
        if let Some((middle, second)) = middle {
            nodes.extend([middle as &mut dyn Node, &mut **second]);
        }
        nodes.extend([far as &mut dyn Node, receiver]);
        let end = drive(&run.world, &mut nodes, limit, run.watch).map_err(|stuck| {
            let (what, at) = match stuck {
                Stuck::NoProgress { at } => ("the run made no progress for a minute", at),
                Stuck::Silence { at } => ("no host had any event left", at),
                Stuck::Loop { at } => ("the simulation was in an endless loop", at),
            };
            SimError::Failed { what: what.to_owned(), at, seed: run.seed }
        })?;
        match self.wires_mut().find_map(Wire::pcap_failure) {
            Some(error) => Err(SimError::Pcap(error)),
            None => Ok(end),
        }
    }

    fn wires_mut(&mut self) -> impl Iterator<Item = &mut Wire> {
        let middle = self.middle.as_mut().map(|(wire, _)| wire);
        let Near { first, second, .. } = &mut self.near;
        [Some(first), second.as_mut(), middle, Some(&mut self.far)].into_iter().flatten()
    }

    fn hosts(&self) -> impl Iterator<Item = &dyn Node> {
        let second = self.middle.as_ref().map(|(_, second)| &**second);
        [Some(&*self.first), second].into_iter().flatten()
    }

    fn counters(&self) -> PathCounters {
        PathCounters {
            near: self.near.first.counters(),
            second: self.near.second.as_ref().map(Wire::counters),
            middle: self.middle.as_ref().map(|(wire, _)| wire.counters()),
            far: self.far.counters(),
        }
    }

    /// The bytes of the first proxy that sent quACKs, for each way to report packets.
    fn quack_styles(&self) -> Option<QuackStyles> {
        self.hosts().find_map(Node::quack_styles)
    }

    /// Bytes that the proxies themselves sent.
    fn spoken_bytes(&self) -> u64 {
        self.hosts().map(Node::spoken_bytes).sum()
    }

    /// The part of a run's record that all transfers share.
    fn record(&self, scenario: &Scenario, seed: u64) -> RunRecord {
        RunRecord {
            quack_styles: self.quack_styles(),
            faults: self.faults(scenario),
            ..RunRecord::of(scenario, "sim", seed, self.counters())
        }
    }

    /// The faults that occurred, if the scenario has any.
    fn faults(&self, scenario: &Scenario) -> Option<FaultCounts> {
        let middle = self.middle.as_ref().map_or(0, |(wire, _)| wire.changes);
        let path_changes = self.near.first.changes + middle + self.far.changes;
        let nat = self.nat.as_ref().map(Nat::fault_counts).unwrap_or_default();
        let path = nat + FaultCounts { path_changes, ..FaultCounts::default() };
        let all = self.hosts().fold(path, |all, host| all + host.fault_counts());
        (!scenario.faults.events.is_empty()).then_some(all)
    }
}

/// Bytes that follow from a run's seed, with a different result for each purpose.
fn seed_bytes(seed: u64, purpose: &str) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(seed.to_be_bytes());
    digest.update(purpose.as_bytes());
    digest.finalize().into()
}
