//! The whole path of a scenario, ready to carry packets: its topology and its links, on either
//! backend.

use std::io;
use std::path::Path as FilePath;

use serde::{Deserialize, Serialize};

use crate::namespace::{Namespace, NamespaceError};
use crate::pcap::SegmentPcap;
use crate::relay::{DirectionCounters, PathClock, Relay, RelayError, SegmentCounters};
use crate::scenario::{Direction, FlowKind, Place, Scenario};
use crate::tc::{self, TcError, Timed};
use crate::topology::{FAR, FAR_ENDS, NEAR, NEAR_ENDS, SECOND_ENDS, Topology};

/// Random streams of the four links of a path, under one seed.
pub mod streams {
    /// The near segment: the stream to the receiver, and the stream to the sender.
    pub const NEAR: (u64, u64) = (0, 1);
    /// The far segment: the stream to the receiver, and the stream to the sender.
    pub const FAR: (u64, u64) = (2, 3);
    /// The contents of generated files.
    pub const FILE: u64 = 4;
    /// The faults of a scenario's events. Each fault adds its own multiple of 2^32.
    pub const FAULTS: u64 = 5;
    /// The middle segment: the stream to the receiver, and the stream to the sender.
    pub const MIDDLE: (u64, u64) = (6, 7);
    /// The second near segment: the stream to the proxy, and the stream to the sender.
    pub const SECOND: (u64, u64) = (8, 9);
}

/// The program that emulates the links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// The lab's own relays, in user space.
    User,
    /// The kernel's queueing disciplines.
    Tc,
}

impl Backend {
    /// The name on command lines and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Tc => "tc",
        }
    }
}

/// Counts of the segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathCounters {
    /// Sender to proxy.
    pub near: SegmentCounters,
    /// The same by the sender's second uplink, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second: Option<SegmentCounters>,
    /// Proxy to second proxy, if the path has three segments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub middle: Option<SegmentCounters>,
    /// Last proxy to receiver.
    pub far: SegmentCounters,
}

impl PathCounters {
    /// Frames that this machine lost because it was too slow.
    pub fn overruns(&self) -> u64 {
        self.directions().map(|direction| direction.overruns).sum()
    }

    /// The share of frames that this machine sent more than a millisecond late, in percent.
    pub fn late_percent(&self) -> f64 {
        let late: u64 = self.directions().map(|direction| direction.late).sum();
        let all: u64 = self.directions().map(|direction| direction.link.delivered).sum();
        if all == 0 { 0.0 } else { late as f64 * 100.0 / all as f64 }
    }

    fn directions(&self) -> impl Iterator<Item = DirectionCounters> {
        let segments = [Some(self.near), self.middle, Some(self.far)];
        segments.into_iter().flatten().flat_map(|segment| [segment.to_receiver, segment.to_sender])
    }
}

/// Why a path could not be built, or stopped carrying packets.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// Namespaces, interfaces or addresses cannot be set up.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A link in user space failed.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// A link of the kernel failed.
    #[error(transparent)]
    Tc(#[from] TcError),
    /// A pcap file cannot be made.
    #[error("cannot make a pcap file; give --pcap a directory that can be written to")]
    Pcap(#[source] io::Error),
    /// Backend `tc` cannot write pcap files.
    #[error("backend tc writes no pcap files; omit --pcap, or use --backend user")]
    NoPcap,
    /// Backend `tc` has one near segment.
    #[error("backend tc has no second uplink; omit second.*, or use --backend user")]
    NoSecond,
}

/// A path that carries packets until its drop.
#[derive(Debug)]
pub struct Path {
    // Fields are dropped in their order. A relay must stop before the topology removes its
    // interfaces.
    links: Links,
    topology: Topology,
}

#[derive(Debug)]
enum Links {
    User {
        near: Relay,
        second: Option<Relay>,
        far: Relay,
        /// The namespace of the relays' ends. This field keeps it alive.
        _lab: Namespace,
    },
    Tc {
        /// The namespace with the bridges.
        lab: Namespace,
        timed: Vec<Timed>,
    },
}

impl Path {
    /// Builds the path of a scenario. The caller needs the right to make network namespaces: see
    /// [`crate::enclosure`].
    ///
    /// # Errors
    ///
    /// [`PathError`] of the step that failed.
    pub fn build(backend: Backend, scenario: &Scenario, seed: u64) -> Result<Self, PathError> {
        Self::build_with_pcap(backend, scenario, seed, None)
    }

    /// Like [`Path::build`], with the pcap files of both segments in a directory, if any is given.
    ///
    /// # Errors
    ///
    /// [`PathError`] of the step that failed.
    pub fn build_with_pcap(
        backend: Backend,
        scenario: &Scenario,
        seed: u64,
        directory: Option<&FilePath>,
    ) -> Result<Self, PathError> {
        let pcap = |segment| {
            directory
                .map(|at| SegmentPcap::create(at, segment))
                .transpose()
                .map_err(PathError::Pcap)
        };
        // Among the faults, real programs support only outages.
        let near_segment = scenario.faults.first_stage(Place::Near, &scenario.near);
        let far_segment = scenario.faults.first_stage(Place::Far, &scenario.far);
        match backend {
            Backend::User => {
                // Each path has its own namespace, because the kernel removes old interfaces late.
                let lab = Namespace::create("lab")?;
                let topology = Topology::through_lab(&lab, scenario.second.is_some())?;
                let clock = PathClock::default();
                let pcaps = (pcap("near")?, pcap("far")?);
                let beside = scenario.second.as_ref();
                let beside = beside.map(|it| scenario.faults.first_stage(Place::Second, it));
                let start = |name, ends, segment, streams, pcap| {
                    Relay::start(name, ends, segment, seed, streams, &clock, pcap)
                };
                let relays = lab.enter(|| -> Result<_, RelayError> {
                    let near = start("near", NEAR_ENDS, &near_segment, streams::NEAR, pcaps.0)?;
                    let far = start("far", FAR_ENDS, &far_segment, streams::FAR, pcaps.1)?;
                    let second = beside.as_ref().map(|segment| {
                        start("second", SECOND_ENDS, segment, streams::SECOND, None)
                    });
                    Ok((near, second.transpose()?, far))
                });
                let (near, second, far) = relays??;
                Ok(Self { links: Links::User { near, second, far, _lab: lab }, topology })
            }
            Backend::Tc if directory.is_some() => Err(PathError::NoPcap),
            Backend::Tc if scenario.second.is_some() => Err(PathError::NoSecond),
            Backend::Tc => {
                let lab = Namespace::create("lab")?;
                let topology = Topology::through_lab(&lab, false)?;
                Topology::bridge(&lab)?;
                let (near, far) = (streams::NEAR, streams::FAR);
                let mut timed = Vec::new();
                for (interface, segment, direction, stream) in [
                    (NEAR_ENDS.1, &near_segment, Direction::ToReceiver, near.0),
                    (NEAR_ENDS.0, &near_segment, Direction::ToSender, near.1),
                    (FAR_ENDS.1, &far_segment, Direction::ToReceiver, far.0),
                    (FAR_ENDS.0, &far_segment, Direction::ToSender, far.1),
                ] {
                    let link = segment.link(direction);
                    tc::apply(&lab, interface, &link)?;
                    timed.extend(Timed::prepare(&lab, interface, &link, seed, stream)?);
                }
                Ok(Self { links: Links::Tc { lab, timed }, topology })
            }
        }
    }

    /// Begins the time of what depends on it, if no frame does.
    pub(crate) fn begin(&self) {
        if let Links::Tc { timed, .. } = &self.links {
            timed.iter().for_each(Timed::begin);
        }
    }

    /// The hosts.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Packets and bytes that have reached the end of the path to which a flow of this kind goes.
    /// This costs less than all [counts](Self::counters).
    ///
    /// # Errors
    ///
    /// [`PathError`] if a link failed or cannot be queried.
    pub fn arrived(&mut self, kind: FlowKind) -> Result<(u64, u64), PathError> {
        let down = kind.is_download();
        match &self.links {
            Links::User { .. } => {
                let PathCounters { near, far, .. } = self.counters()?;
                let last = if down { near.to_sender.link } else { far.to_receiver.link };
                Ok((last.delivered, last.delivered_bytes))
            }
            Links::Tc { .. } if down => Ok(tc::received(&self.topology.sender, NEAR)?),
            Links::Tc { .. } => Ok(tc::received(&self.topology.receiver, FAR)?),
        }
    }

    /// The current counts.
    ///
    /// # Errors
    ///
    /// [`PathError`] if a link failed or cannot be queried.
    pub fn counters(&mut self) -> Result<PathCounters, PathError> {
        match &mut self.links {
            Links::User { near, second, far, .. } => {
                near.check()?;
                far.check()?;
                second.as_mut().map(Relay::check).transpose()?;
                let second = second.as_ref().map(Relay::counters);
                let (near, far) = (near.counters(), far.counters());
                Ok(PathCounters { near, second, middle: None, far })
            }
            Links::Tc { lab, timed } => {
                timed.iter_mut().try_for_each(Timed::check)?;
                let ask = |(left, right)| -> Result<_, TcError> {
                    Ok(SegmentCounters {
                        to_receiver: tc::counters(lab, right)?.into(),
                        to_sender: tc::counters(lab, left)?.into(),
                    })
                };
                let (near, far) = (ask(NEAR_ENDS)?, ask(FAR_ENDS)?);
                Ok(PathCounters { near, second: None, middle: None, far })
            }
        }
    }
}
