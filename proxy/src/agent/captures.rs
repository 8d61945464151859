//! The captures on the agent's interfaces.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use anyhow::{Result, bail};
use tracing::{error, info, warn};

use super::config::AgentConfig;
use super::flows::Agent;
use super::frame::Passing;
use crate::capture::{Capture, CaptureError, Counters, Direction, PassingCapture, Whole};
use crate::monitor::subject::InterfaceReport;
use crate::runtime::clock;

/// Most frames that one turn reads from a capture of arriving packets. A flood of them must not
/// delay leaving packets.
const ARRIVING_PER_TURN: usize = 256;

/// The captures on an interface.
struct Directions {
    leaving: PassingCapture,
    arriving: PassingCapture,
}

impl Directions {
    fn open(name: &str, config: &AgentConfig) -> Result<Self, CaptureError> {
        let open = |direction| PassingCapture::open(name, config.capture(), direction);
        let (leaving, arriving) = (open(Direction::Leaving)?, open(Direction::Arriving)?);
        info!("helping what leaves by {name}, captured by {}", leaving.capture.backend());
        Ok(Self { leaving, arriving })
    }

    fn counters(&self) -> Counters {
        let mut counters = self.leaving.capture.counters();
        counters.add(&self.arriving.capture.counters());
        counters
    }
}

/// An interface that may be missing.
struct Interface {
    number: u32,
    name: String,
    captures: Option<Directions>,
}

impl Interface {
    /// Ends its captures if one of them has failed. Adds their counters to those of `closed` ones.
    fn note(&mut self, outcome: Result<(), CaptureError>, closed: &mut Counters) {
        if let Err(cause) = outcome
            && let Some(captures) = self.captures.take()
        {
            error!("{}", cause.ended("help"));
            closed.add(&captures.counters());
        }
    }

    fn report(&self) -> InterfaceReport {
        let captures = self.captures.as_ref();
        let counters = captures.map(|it| it.leaving.capture.counters()).unwrap_or_default();
        InterfaceReport {
            name: self.name.clone(),
            backend: captures.map(|it| it.leaving.capture.backend().to_owned()),
            up: captures.is_some_and(|it| it.leaving.capture.is_up()),
            captured: counters.datagrams,
            dropped: captures.map_or(0, |it| it.counters().dropped),
        }
    }
}

pub(super) struct Captures {
    interfaces: Vec<Interface>,
    /// The counters of closed ones.
    closed: Counters,
}

impl Captures {
    /// Opens the captures. An interface may appear later, as that of a modem does, but at least one
    /// must exist.
    ///
    /// # Errors
    /// One sentence for the operator: why a capture cannot be opened.
    pub(super) fn open(config: &AgentConfig) -> Result<Self> {
        let mut missing = None;
        let mut interfaces = Vec::new();
        for (number, name) in (0..).zip(&config.interfaces) {
            let captures = match Directions::open(name, config) {
                Ok(captures) => Some(captures),
                Err(error @ CaptureError::NoSuchInterface { .. }) => {
                    missing.get_or_insert(error);
                    None
                }
                // The proxy needs less.
                Err(CaptureError::NotPermitted { program }) => bail!(
                    "capturing requires the CAP_NET_RAW capability, and help for what arrives \
                     CAP_NET_ADMIN: run as root, or grant both once with `setcap \
                     cap_net_raw,cap_net_admin+ep {program}`"
                ),
                Err(error) => return Err(error.into()),
            };
            interfaces.push(Interface { number, name: name.clone(), captures });
        }
        if let Some(error) = missing {
            if interfaces.iter().all(|interface| interface.captures.is_none()) {
                return Err(error.into());
            }
            for interface in interfaces.iter().filter(|interface| interface.captures.is_none()) {
                warn!("there is no interface {}; help starts when it appears", interface.name);
            }
        }
        Ok(Self { interfaces, closed: Counters::default() })
    }

    /// The names of the interfaces, and whether each is there.
    pub(super) fn present(&self) -> impl Iterator<Item = (&str, bool)> {
        self.interfaces.iter().map(|it| (it.name.as_str(), it.captures.is_some()))
    }

    /// What becomes readable with a frame, or with an error.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let captures = self.interfaces.iter().filter_map(|interface| interface.captures.as_ref());
        captures.flat_map(|it| [it.leaving.capture.as_fd(), it.arriving.capture.as_fd()])
    }

    /// Reads all frames that have left, and perhaps some that are leaving now.
    pub(super) fn read_leaving(&mut self, agent: &mut Agent) {
        for interface in &mut self.interfaces {
            let number = interface.number;
            let Some(Directions { leaving, .. }) = &mut interface.captures else { continue };
            let most = leaving.capture.most_waiting();
            let on_leaving = |passing: Passing<'_>, now| agent.on_leaving(passing, now);
            let outcome = read(number, &mut leaving.capture, most, on_leaving);
            interface.note(outcome, &mut self.closed);
        }
    }

    /// Reads some of the frames that have arrived.
    pub(super) fn read_arriving(&mut self, agent: &mut Agent) {
        for interface in &mut self.interfaces {
            let number = interface.number;
            let Some(Directions { arriving, .. }) = &mut interface.captures else { continue };
            let on_arriving = |passing: Passing<'_>, now| agent.on_arriving(passing, now);
            let outcome = read(number, &mut arriving.capture, ARRIVING_PER_TURN, on_arriving);
            interface.note(outcome, &mut self.closed);
        }
    }

    /// Checks the captures, and opens those of interfaces that have appeared.
    pub(super) fn check(&mut self, config: &AgentConfig) {
        for interface in &mut self.interfaces {
            if let Some(Directions { leaving, arriving }) = &mut interface.captures {
                let checks = leaving.capture.check();
                let outcome = checks.and_then(|()| arriving.capture.check());
                interface.note(outcome, &mut self.closed);
                continue;
            }
            interface.captures = Directions::open(&interface.name, config).ok();
            if interface.captures.is_some() {
                warn!("{} is back", interface.name);
            }
        }
    }

    /// Sends a frame by the interface with this number.
    pub(super) fn send(&self, number: u32, frame: &[u8]) -> io::Result<()> {
        let interface = self.interfaces.iter().find(|it| it.number == number);
        match interface.and_then(|it| it.captures.as_ref()) {
            // A packet socket does not see what it sends itself.
            Some(captures) => captures.arriving.send(frame),
            None => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// The counters of all captures since the start.
    pub(super) fn counters(&self) -> Counters {
        let mut counters = self.closed;
        let captures = self.interfaces.iter().filter_map(|interface| interface.captures.as_ref());
        captures.for_each(|captures| counters.add(&captures.counters()));
        counters
    }

    /// All interfaces, for the operator.
    pub(super) fn reports(&self) -> Vec<InterfaceReport> {
        self.interfaces.iter().map(Interface::report).collect()
    }

    pub(super) fn name(&self, number: u32) -> String {
        let interface = self.interfaces.iter().find(|it| it.number == number);
        interface.map_or_else(String::new, |it| it.name.clone())
    }
}

/// Reads about `most` frames at most that wait in a capture on the interface with this number.
fn read(
    interface: u32,
    capture: &mut Capture,
    most: usize,
    mut handle: impl FnMut(Passing<'_>, Instant),
) -> Result<(), CaptureError> {
    let mut read = 0;
    while read < most {
        let now = clock();
        let whole = |Whole { link, datagram, each, frame }: Whole<'_>| {
            handle(Passing { interface, link, datagram, each, frame }, now);
        };
        match capture.read_whole(whole)? {
            0 => break,
            frames => read += frames,
        }
    }
    Ok(())
}
