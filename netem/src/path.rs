//! The whole path of a scenario, ready to carry packets: topology and links, by either backend.

use serde::Serialize;

use crate::namespace::{Namespace, NamespaceError};
use crate::relay::{DirectionCounters, Relay, RelayError, SegmentCounters};
use crate::scenario::{Direction, Scenario};
use crate::tc::{self, TcError};
use crate::topology::{FAR, FAR_ENDS, NEAR, NEAR_ENDS, Topology};

/// Random streams of the four links of a path, under one seed.
pub mod streams {
    /// Near segment, to the receiver and to the sender.
    pub const NEAR: (u64, u64) = (0, 1);
    /// Far segment, to the receiver and to the sender.
    pub const FAR: (u64, u64) = (2, 3);
    /// Contents of generated files.
    pub const FILE: u64 = 4;
}

/// Who makes the links.
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

/// Counts of both segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PathCounters {
    /// Sender to proxy.
    pub near: SegmentCounters,
    /// Proxy to receiver.
    pub far: SegmentCounters,
}

impl PathCounters {
    /// Frames that this machine lost because it was too slow.
    pub fn overruns(&self) -> u64 {
        [self.near.to_receiver, self.near.to_sender, self.far.to_receiver, self.far.to_sender]
            .iter()
            .map(|direction| direction.overruns)
            .sum()
    }
}

/// Why a path could not be built or carried no more.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// Namespaces, interfaces, addresses.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A user-space link.
    #[error(transparent)]
    Relay(#[from] RelayError),
    /// A link of the kernel.
    #[error(transparent)]
    Tc(#[from] TcError),
}

/// A path that carries packets until it is dropped.
#[derive(Debug)]
pub struct Path {
    // Before the topology: fields are dropped in their order, and a relay stops before its interfaces go.
    links: Links,
    topology: Topology,
}

#[derive(Debug)]
enum Links {
    User {
        near: Relay,
        far: Relay,
        /// Where the relays' ends are; held for them.
        _lab: Namespace,
    },
    Tc,
}

impl Path {
    /// Builds the path of a scenario. Takes the right to make network namespaces: see [`crate::enclosure`].
    ///
    /// # Errors
    ///
    /// [`PathError`] of the step that failed.
    pub fn build(backend: Backend, scenario: &Scenario, seed: u64) -> Result<Self, PathError> {
        match backend {
            Backend::User => {
                // One of its own for each path: the kernel takes old interfaces away in its own time.
                let lab = Namespace::create("lab")?;
                let topology = Topology::through_lab(&lab)?;
                let relays = lab.enter(|| -> Result<_, RelayError> {
                    let near = Relay::start("near", NEAR_ENDS, &scenario.near, seed, streams::NEAR)?;
                    let far = Relay::start("far", FAR_ENDS, &scenario.far, seed, streams::FAR)?;
                    Ok((near, far))
                });
                let (near, far) = relays??;
                Ok(Self { links: Links::User { near, far, _lab: lab }, topology })
            }
            Backend::Tc => {
                let topology = Topology::direct()?;
                for (host, interface, segment, direction) in [
                    (&topology.sender, NEAR, &scenario.near, Direction::ToReceiver),
                    (&topology.proxy, NEAR, &scenario.near, Direction::ToSender),
                    (&topology.proxy, FAR, &scenario.far, Direction::ToReceiver),
                    (&topology.receiver, FAR, &scenario.far, Direction::ToSender),
                ] {
                    tc::apply(host, interface, &segment.link(direction))?;
                }
                Ok(Self { links: Links::Tc, topology })
            }
        }
    }

    /// The hosts.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The counts so far.
    ///
    /// # Errors
    ///
    /// [`PathError`] when a link has failed or cannot be asked.
    pub fn counters(&mut self) -> Result<PathCounters, PathError> {
        match &mut self.links {
            Links::User { near, far, .. } => {
                near.check()?;
                far.check()?;
                Ok(PathCounters { near: near.counters(), far: far.counters() })
            }
            Links::Tc => {
                let Topology { sender, proxy, receiver } = &self.topology;
                let ask = |host, interface| -> Result<DirectionCounters, TcError> {
                    Ok(DirectionCounters { link: tc::counters(host, interface)?, overruns: 0 })
                };
                Ok(PathCounters {
                    near: SegmentCounters { to_receiver: ask(sender, NEAR)?, to_sender: ask(proxy, NEAR)? },
                    far: SegmentCounters { to_receiver: ask(proxy, FAR)?, to_sender: ask(receiver, FAR)? },
                })
            }
        }
    }
}
