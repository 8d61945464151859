//! Backend `sim`: a scenario in virtual time, on one thread, without sockets.
//!
//! The real quiche (with the hook, which without a session behaves as the stock one does), the real
//! plugin and the real observer stand in a row with the same links as the `user` backend has:
//!
//! ```text
//! sender host ── near segment ── proxy ── far segment ── receiver host
//! ```
//!
//! Everything that decides what happens and when follows from the seed, so that a seed gives the
//! same record on every machine. Ciphertexts do not: TLS draws its keys out of reach, so that
//! capture files and identifiers differ from run to run, in contents and not in sizes or times.
//! What is not modelled: the time that processors take, and what kernels do to packets.

use std::io;
use std::path::Path;
use std::time::Duration;

use sha2::{Digest, Sha256};
use virtual_time::{NotInForce, World};

use crate::path::{PathCounters, streams};
use crate::pcap::SegmentPcap;
use crate::record::{FaultCounts, RunRecord};
use crate::scenario::{FlowKind, Mode, Place, ProxyFate, Scenario, Sidekick};
use crate::topology::{PROXY_NEAR, PROXY_PORT, RECEIVER};

mod audio;
mod chain;
mod client;
mod faults;
mod host;
mod messages;
mod migration;
mod packet;
mod proxy;
mod quic;
mod server;
mod split;
mod styles;
mod tls;
mod transfer;
mod wire;

use chain::{Node, Stuck, drive};
use faults::{Nat, Schedule};
use proxy::Proxy;
use split::SplitProxy;
use styles::Tally;
use wire::Wire;

/// Why a run in virtual time came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The program was linked wrongly.
    #[error(transparent)]
    NotInForce(#[from] NotInForce),
    /// An endpoint gave up, or the run made no progress.
    #[error("{what} after {:.3} s; repeat it with --seed {seed}", at.as_secs_f64())]
    Failed {
        /// What happened.
        what: String,
        /// When.
        at: Duration,
        /// The seed that repeats it.
        seed: u64,
    },
    /// The capture files.
    #[error("cannot write a pcap file; give --pcap a directory that can be written to")]
    Pcap(#[source] io::Error),
    /// A run could not be set up.
    #[error("cannot set up the simulation: {0}")]
    SetUp(String),
}

/// Runs a scenario once in virtual time. `watch` hears now and then how much virtual time has
/// passed and how many bytes the applications have had. With a directory for `pcap`, what the links
/// were given and delivered is written down there.
///
/// # Errors
///
/// [`SimError`], with the seed that repeats the failure.
pub fn run(
    scenario: &Scenario,
    seed: u64,
    pcap: Option<&Path>,
    watch: &mut dyn FnMut(Duration, u64),
) -> Result<RunRecord, SimError> {
    let mut run = Run { scenario, seed, pcap, world: World::enter(seed)?, watch };
    match scenario.flow.kind {
        FlowKind::Audio | FlowKind::Listen => audio::run(&mut run),
        _ => transfer::run(&mut run),
    }
}

/// What a run has from its beginning to its end.
struct Run<'a> {
    scenario: &'a Scenario,
    seed: u64,
    pcap: Option<&'a Path>,
    world: World,
    watch: &'a mut dyn FnMut(Duration, u64),
}

/// The parts of the path that are the same for all flows.
struct Middle {
    nat: Option<Nat>,
    near: Wire,
    proxy: Box<dyn Node>,
    far: Wire,
}

impl Middle {
    fn new(run: &Run<'_>, split: Option<SplitProxy>) -> Result<Self, SimError> {
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
        let proxy: Box<dyn Node> = match split {
            Some(split) => Box::new(split),
            None => Box::new(Self::proxy(scenario, seed, &schedule).map_err(SimError::SetUp)?),
        };
        Ok(Self {
            nat: Nat::new(&schedule),
            near: wire(Place::Near, &scenario.near, streams::NEAR)?,
            proxy,
            far: wire(Place::Far, &scenario.far, streams::FAR)?,
        })
    }

    fn proxy(scenario: &Scenario, seed: u64, schedule: &Schedule) -> Result<Proxy, String> {
        let Sidekick { mode, proxy, parity_percent, .. } = scenario.sidekick;
        let observes = proxy != ProxyFate::Absent && mode != Mode::Off;
        let dies_after = (proxy == ProxyFate::Dies).then_some(scenario.flow.total_bytes() / 2);
        let tally = Tally::new(2 * (scenario.near.both.delay + scenario.far.both.delay));
        let address = (PROXY_NEAR, PROXY_PORT).into();
        let receiver = RECEIVER.into();
        let proxy = Proxy::new(address, receiver, seed, observes, dies_after, tally, schedule)?;
        proxy.with_parity(parity_percent)
    }

    /// Runs the whole path between two hosts.
    fn drive(
        &mut self,
        run: &mut Run<'_>,
        sender: &mut dyn Node,
        receiver: &mut dyn Node,
        limit: Option<Duration>,
    ) -> Result<Duration, SimError> {
        let Self { nat, near, proxy, far } = self;
        let mut nodes: Vec<&mut dyn Node> = vec![sender];
        nodes.extend(nat.as_mut().map(|nat| nat as &mut dyn Node));
        nodes.extend([near as &mut dyn Node, &mut **proxy, far, receiver]);
        let end = drive(&run.world, &mut nodes, limit, run.watch).map_err(|stuck| {
            let (what, at) = match stuck {
                Stuck::NoProgress { at } | Stuck::Silence { at } => {
                    ("the run made no progress for a minute", at)
                }
                Stuck::Loop { at } => ("the simulation runs in a circle", at),
            };
            SimError::Failed { what: what.to_owned(), at, seed: run.seed }
        })?;
        match self.near.pcap_failure().or_else(|| self.far.pcap_failure()) {
            Some(error) => Err(SimError::Pcap(error)),
            None => Ok(end),
        }
    }

    fn counters(&self) -> PathCounters {
        PathCounters { near: self.near.counters(), far: self.far.counters() }
    }

    /// The record of a run, as far as it is the same for all transfers.
    fn record(&self, scenario: &Scenario, seed: u64) -> RunRecord {
        RunRecord {
            quack_styles: self.proxy.quack_styles(),
            faults: self.faults(scenario),
            ..RunRecord::of(scenario, "sim", seed, self.counters())
        }
    }

    /// The faults that came to pass, where the scenario has any.
    fn faults(&self, scenario: &Scenario) -> Option<FaultCounts> {
        let path_changes = self.near.changes + self.far.changes;
        let all = self.nat.as_ref().map(Nat::fault_counts).unwrap_or_default()
            + self.proxy.fault_counts()
            + FaultCounts { path_changes, ..FaultCounts::default() };
        (!scenario.faults.events.is_empty()).then_some(all)
    }
}

/// Bytes that follow from a run's seed, different for each purpose.
fn seed_bytes(seed: u64, purpose: &str) -> [u8; 32] {
    let mut digest = Sha256::new();
    digest.update(seed.to_be_bytes());
    digest.update(purpose.as_bytes());
    digest.finalize().into()
}
