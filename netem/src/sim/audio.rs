//! An audio call. The talker is at the sender and the listener at the receiver, or the reverse.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use audio::listener::{self, Protected};
use audio::source::random_bytes;
use audio::talker::sender_config;
use audio::{End, Handled, Listener, ListenerConfig, Reinject, Talker, TalkerConfig};
use sidekick_protocol::{Flow, MAX_DATAGRAM_LEN};

use super::chain::Side;
use super::host::{Endpoint, Host};
use super::packet::Packet;
use super::{Path, Run, SimError, seed_bytes};
use crate::record::{HEADERS, RunRecord};
use crate::scenario::{FlowKind, Mode, Scenario};
use crate::topology::{RECEIVER, SENDER};

const TALKER_PORT: u16 = 40_000;
const ADJACENT_PORT: u16 = 50_000;
const LISTENER_PORT: u16 = 5004;

/// The share of a PARITY message that is a repair symbol, without identifiers and header. It holds
/// for packets of 240 bytes and the default share. If the listener asks for as much parity as the
/// proxy may send, the proxy withholds none.
const SYMBOLS: f64 = 0.87;

/// Runs the call of a scenario once.
pub(super) fn run(run: &mut Run<'_>) -> Result<RunRecord, SimError> {
    let Run { scenario, seed, .. } = *run;
    let start = run.world.start();
    let mut path = Path::new(run, Vec::new())?;
    let (end, talking, hearing) = if scenario.flow.kind == FlowKind::Listen {
        let hearing = listener(scenario, seed, SENDER)?;
        let talking = talker(scenario, seed, RECEIVER, SENDER, start)?;
        let (end, hearing, talking) = carry(&mut path, run, hearing, talking)?;
        (end, talking, hearing)
    } else {
        let hearing = listener(scenario, seed, RECEIVER)?;
        let talking = talker(scenario, seed, SENDER, RECEIVER, start)?;
        carry(&mut path, run, talking, hearing)?
    };
    let (talker, report) = (talking.end.report(start + end), hearing.end.report());
    if !report.complete {
        let what = "the end of the call did not reach the listener".to_owned();
        return Err(SimError::Failed { what, at: end, seed });
    }
    let (quack_styles, faults) = (path.quack_styles(), path.faults(scenario));
    let counters = path.counters();
    let mut record =
        RunRecord::of_call(scenario, "sim", seed, talker, &report, counters, quack_styles);
    if let Some(audio) = record.audio.as_mut().filter(|_| report.parity.is_some()) {
        audio.help_bytes = path.spoken_bytes() + hearing.to_proxy;
    }
    path.agent.iter_mut().for_each(|agent| agent.describe(&mut record));
    Ok(RunRecord { faults, ..record })
}

/// Runs the call between the ends at the sender and at the receiver. Returns the time of its end.
fn carry<S: Endpoint, R: Endpoint>(
    path: &mut Path,
    run: &mut Run<'_>,
    sender: S,
    receiver: R,
) -> Result<(Duration, S, R), SimError> {
    let start = run.world.start();
    let mut sender = Host::new(Side::Right, start, vec![sender], None, None);
    let mut receiver = Host::new(Side::Left, start, vec![receiver], None, None);
    let end = path.drive(run, &mut sender, &mut receiver, None)?;
    let ends = sender.endpoints.pop().zip(receiver.endpoints.pop());
    let (sender, receiver) = ends.ok_or_else(|| SimError::SetUp("there is no call".to_owned()))?;
    Ok((end, sender, receiver))
}

fn talker(
    scenario: &Scenario,
    seed: u64,
    talks: Ipv4Addr,
    listens: Ipv4Addr,
    start: Instant,
) -> Result<Caller<Talker>, SimError> {
    let (flow, sidekick) = (&scenario.flow, &scenario.sidekick);
    let reinject = (sidekick.mode == Mode::Reinject).then(|| {
        let mut sender = sender_config(sidekick.proxy_address());
        sender.terms.every_packets = sidekick.every_packets();
        sender.terms.every = sidekick.every();
        (sender.terms.threshold, sender.poll) = (sidekick.threshold, sidekick.poll);
        sender.steady = sidekick.steady.then_some(flow.frame_interval);
        Reinject { sender, seed: seed_bytes(seed, "sidekick") }
    });
    let config = TalkerConfig {
        interval: flow.frame_interval,
        packets: flow.frames(),
        reinject,
        ..TalkerConfig::of_simulation(seed)
    };
    let source = random_bytes(seed, flow.frame_bytes.into());
    let talker =
        Talker::new(config, source, start).map_err(|error| SimError::SetUp(error.to_string()))?;
    let mut caller = Caller::new(talker, scenario, (talks, TALKER_PORT).into());
    caller.talks = true;
    caller.follow((listens, LISTENER_PORT).into(), start);
    Ok(caller)
}

fn listener(
    scenario: &Scenario,
    seed: u64,
    listens: Ipv4Addr,
) -> Result<Caller<Listener>, SimError> {
    let (flow, sidekick) = (&scenario.flow, &scenario.sidekick);
    let session = TalkerConfig::of_simulation(seed).session;
    let protected = (sidekick.mode == Mode::Receive).then(|| Protected {
        sender: listener::sender_config(sidekick.proxy_address()),
        share: f64::from(sidekick.parity_percent) / 100.0 * SYMBOLS,
        interval: flow.frame_interval,
        seed: seed_bytes(seed, "sidekick"),
    });
    let config =
        ListenerConfig { protected, playout_limit: flow.playout, ..ListenerConfig::default() };
    let listener =
        Listener::new(config, session).map_err(|error| SimError::SetUp(error.to_string()))?;
    Ok(Caller::new(listener, scenario, (listens, LISTENER_PORT).into()))
}

/// An end of the call with its addresses. Like the programs, it sends to the source of the last new
/// packet.
struct Caller<E> {
    end: E,
    local: SocketAddr,
    adjacent: SocketAddr,
    peer: Option<SocketAddr>,
    /// Whether the run ends with it.
    talks: bool,
    frame_bytes: u64,
    /// The bytes to the proxy, with UDP and IPv4 headers.
    to_proxy: u64,
    buffer: Vec<u8>,
}

impl<E: End> Caller<E> {
    fn new(end: E, scenario: &Scenario, local: SocketAddr) -> Self {
        Self {
            end,
            local,
            adjacent: (local.ip(), ADJACENT_PORT).into(),
            peer: None,
            talks: false,
            frame_bytes: scenario.flow.frame_bytes.into(),
            to_proxy: 0,
            buffer: Vec::new(),
        }
    }

    fn follow(&mut self, peer: SocketAddr, now: Instant) {
        self.peer = Some(peer);
        self.end.follow(Flow { source: self.local, destination: peer }, now);
    }

    fn send(&mut self, now: Instant, out: &mut Vec<Packet>) {
        while self.end.poll_transmit(&mut self.buffer, now) {
            if let Some(peer) = self.peer {
                out.push(Packet::new(self.local, peer, &self.buffer));
            }
        }
        let mut datagram = [0; MAX_DATAGRAM_LEN];
        while let Some((proxy, length)) = self.end.transmit_to_proxy(&mut datagram) {
            self.to_proxy += length as u64 + HEADERS;
            out.push(Packet::new(self.adjacent, proxy, datagram.get(..length).unwrap_or_default()));
        }
    }
}

impl<E: End> Endpoint for Caller<E> {
    fn owns(&self, destination: SocketAddr) -> bool {
        destination == self.local || destination == self.adjacent
    }

    fn receive(&mut self, packet: Packet, now: Instant, out: &mut Vec<Packet>) {
        // A repeated packet may come from any host. The receiver of a message counts it if it is
        // invalid.
        if packet.destination == self.adjacent {
            let _ = self.end.handle_proxy(packet.source, &packet.payload, now);
        } else if let Ok(Handled::New) = self.end.handle_input(&packet.payload, now) {
            self.follow(packet.source, now);
        }
        self.send(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.end.poll_timeout()
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Vec<Packet>) {
        self.end.on_timeout(now);
        self.send(now, out);
    }

    fn is_done(&self) -> bool {
        self.talks && self.end.is_finished()
    }

    fn delivered(&self) -> u64 {
        self.end.played() * self.frame_bytes
    }
}
