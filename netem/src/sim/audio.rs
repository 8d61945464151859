//! An audio call. The talker is at the sender and the listener at the receiver, or the reverse.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use audio::listener::{self, Handled, Protected};
use audio::source::RandomBytes;
use audio::talker::sender_config;
use audio::{Listener, ListenerConfig, Reinject, Talker, TalkerConfig};
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
        let hearing = Hearing::new(scenario, seed, SENDER)?;
        let talking = talker(scenario, seed, RECEIVER, SENDER, start)?;
        let (end, hearing, talking) = carry(&mut path, run, hearing, talking)?;
        (end, talking, hearing)
    } else {
        let hearing = Hearing::new(scenario, seed, RECEIVER)?;
        let talking = talker(scenario, seed, SENDER, RECEIVER, start)?;
        carry(&mut path, run, talking, hearing)?
    };
    let (talker, report) = (talking.talker.report(start + end), hearing.listener.report());
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
) -> Result<Talking, SimError> {
    let (flow, sidekick) = (&scenario.flow, &scenario.sidekick);
    let local: SocketAddr = (talks, TALKER_PORT).into();
    let listener: SocketAddr = (listens, LISTENER_PORT).into();
    let reinject = (sidekick.mode == Mode::Reinject).then(|| {
        let mut sender = sender_config(sidekick.proxy_address());
        sender.terms.every_packets = sidekick.every_packets();
        sender.terms.every = sidekick.every();
        (sender.terms.threshold, sender.poll) = (sidekick.threshold, sidekick.poll);
        sender.steady = sidekick.steady.then_some(flow.frame_interval);
        let flow = Flow { source: local, destination: listener };
        Reinject { sender, flow, seed: seed_bytes(seed, "sidekick") }
    });
    let config = TalkerConfig {
        interval: flow.frame_interval,
        packets: flow.frames(),
        reinject,
        ..TalkerConfig::of_simulation(seed)
    };
    let source = Box::new(RandomBytes::new(seed, flow.frame_bytes.into()));
    let talker =
        Talker::new(config, source, start).map_err(|error| SimError::SetUp(error.to_string()))?;
    let adjacent = (talks, ADJACENT_PORT).into();
    Ok(Talking { talker, local, listener, adjacent, buffer: Vec::new() })
}

struct Talking {
    talker: Talker,
    local: SocketAddr,
    listener: SocketAddr,
    adjacent: SocketAddr,
    buffer: Vec<u8>,
}

impl Talking {
    fn send(&mut self, now: Instant, out: &mut Vec<Packet>) {
        while self.talker.poll_transmit(&mut self.buffer, now) {
            out.push(Packet::new(self.local, self.listener, &self.buffer));
        }
        let mut datagram = [0; MAX_DATAGRAM_LEN];
        while let Some((proxy, length)) = self.talker.transmit_to_proxy(&mut datagram) {
            out.push(Packet::new(self.adjacent, proxy, datagram.get(..length).unwrap_or_default()));
        }
    }
}

impl Endpoint for Talking {
    fn owns(&self, destination: SocketAddr) -> bool {
        destination == self.local || destination == self.adjacent
    }

    fn receive(&mut self, packet: Packet, now: Instant, out: &mut Vec<Packet>) {
        // The receiver of a message counts it if it is invalid.
        if packet.destination == self.adjacent {
            let _ = self.talker.handle_proxy(packet.source, &packet.payload, now);
        } else if packet.source == self.listener {
            let _ = self.talker.handle_input(&packet.payload, now);
        }
        self.send(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.talker.poll_timeout()
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Vec<Packet>) {
        self.talker.on_timeout(now);
        self.send(now, out);
    }

    fn is_done(&self) -> bool {
        self.talker.is_finished()
    }
}

/// The listener's end. Like the program, it answers to the source of the last new packet.
struct Hearing {
    listener: Listener,
    local: SocketAddr,
    adjacent: SocketAddr,
    talker: Option<SocketAddr>,
    frame_bytes: u64,
    /// The bytes to the proxy, with UDP and IPv4 headers.
    to_proxy: u64,
    buffer: Vec<u8>,
}

impl Hearing {
    fn new(scenario: &Scenario, seed: u64, listens: Ipv4Addr) -> Result<Self, SimError> {
        let (flow, sidekick) = (&scenario.flow, &scenario.sidekick);
        let session = TalkerConfig::of_simulation(seed).session;
        let protected = (sidekick.mode == Mode::Receive).then(|| Protected {
            sender: listener::sender_config(sidekick.proxy_address()),
            share: f64::from(sidekick.parity_percent) / 100.0 * SYMBOLS,
            interval: flow.frame_interval,
            seed: seed_bytes(seed, "sidekick"),
        });
        let config = ListenerConfig { protected, ..ListenerConfig::default() };
        let listener = Listener::new(config, session);
        Ok(Self {
            listener: listener.map_err(|error| SimError::SetUp(error.to_string()))?,
            local: (listens, LISTENER_PORT).into(),
            adjacent: (listens, ADJACENT_PORT).into(),
            talker: None,
            frame_bytes: flow.frame_bytes.into(),
            to_proxy: 0,
            buffer: Vec::new(),
        })
    }

    fn send(&mut self, now: Instant, out: &mut Vec<Packet>) {
        while self.listener.poll_transmit(&mut self.buffer, now) {
            if let Some(talker) = self.talker {
                out.push(Packet::new(self.local, talker, &self.buffer));
            }
        }
        let mut datagram = [0; MAX_DATAGRAM_LEN];
        while let Some((proxy, length)) = self.listener.transmit_to_proxy(&mut datagram) {
            self.to_proxy += length as u64 + HEADERS;
            out.push(Packet::new(self.adjacent, proxy, datagram.get(..length).unwrap_or_default()));
        }
    }
}

impl Endpoint for Hearing {
    fn owns(&self, destination: SocketAddr) -> bool {
        destination == self.local || destination == self.adjacent
    }

    fn receive(&mut self, packet: Packet, now: Instant, out: &mut Vec<Packet>) {
        // Like the program, it learns the talker's address only from new packets. A repeated packet
        // may come from any host.
        if packet.destination == self.adjacent {
            let _ = self.listener.handle_proxy(packet.source, &packet.payload, now);
        } else if let Ok(Handled::New) = self.listener.handle_input(&packet.payload, now) {
            self.talker = Some(packet.source);
            let flow = Flow { source: self.local, destination: packet.source };
            self.listener.follow(flow, now);
        }
        self.send(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.listener.poll_timeout()
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Vec<Packet>) {
        self.listener.on_timeout(now);
        self.send(now, out);
    }

    fn delivered(&self) -> u64 {
        self.listener.played() * self.frame_bytes
    }
}
