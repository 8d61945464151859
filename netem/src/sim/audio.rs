//! An audio call: the talker at the sender, the listener at the receiver.

use std::net::SocketAddr;
use std::time::Instant;

use audio::listener::Handled;
use audio::source::RandomBytes;
use audio::talker::sender_config;
use audio::{Listener, ListenerConfig, Reinject, Talker, TalkerConfig};
use sidekick_protocol::{Flow, MAX_DATAGRAM_LEN};

use super::chain::Side;
use super::host::{Endpoint, Host};
use super::packet::Packet;
use super::{Middle, Run, SimError, seed_bytes};
use crate::record::RunRecord;
use crate::scenario::{Mode, Scenario};
use crate::topology::{RECEIVER, SENDER};

const TALKER_PORT: u16 = 40_000;
const ADJACENT_PORT: u16 = 50_000;
const LISTENER_PORT: u16 = 5004;

/// Runs the call of a scenario once.
pub(super) fn run(run: &mut Run<'_>) -> Result<RunRecord, SimError> {
    let Run { scenario, seed, .. } = *run;
    let start = run.world.start();
    let mut sender =
        Host::new(Side::Right, start, vec![talker(scenario, seed, start)?], None, None);
    let mut receiver =
        Host::new(Side::Left, start, vec![Hearing::new(scenario, seed)?], None, None);
    let mut middle = Middle::new(run, None)?;
    let end = middle.drive(run, &mut sender, &mut receiver, None)?;

    let (Some(talker), Some(listener)) = (sender.endpoints.first(), receiver.endpoints.first())
    else {
        return Err(SimError::SetUp("there is no call".to_owned()));
    };
    let report = listener.listener.report();
    if !report.complete {
        let what = "the end of the call did not reach the listener".to_owned();
        return Err(SimError::Failed { what, at: end, seed });
    }
    let talker = talker.talker.report(start + end);
    let (quack_styles, faults) = (middle.proxy.quack_styles(), middle.faults(scenario));
    let record =
        RunRecord::of_call(scenario, "sim", seed, talker, &report, middle.counters(), quack_styles);
    Ok(RunRecord { faults, ..record })
}

fn talker(scenario: &Scenario, seed: u64, start: Instant) -> Result<Talking, SimError> {
    let (flow, sidekick) = (&scenario.flow, &scenario.sidekick);
    let local: SocketAddr = (SENDER, TALKER_PORT).into();
    let listener: SocketAddr = (RECEIVER, LISTENER_PORT).into();
    let reinject = (sidekick.mode == Mode::Reinject).then(|| {
        let mut sender = sender_config(sidekick.proxy_address());
        sender.terms.every_packets = sidekick.every_packets();
        sender.terms.every = sidekick.every();
        (sender.terms.threshold, sender.poll) = (sidekick.threshold, sidekick.poll);
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
    let adjacent = (SENDER, ADJACENT_PORT).into();
    Ok(Talking { talker, local, listener, adjacent, buffer: Vec::new() })
}

/// The sender's end.
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
        // What either cannot use it counts.
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

/// The receiver's end. It answers to the source of the last datagram, as the program does.
struct Hearing {
    listener: Listener,
    local: SocketAddr,
    talker: Option<SocketAddr>,
    frame_bytes: u64,
    buffer: Vec<u8>,
}

impl Hearing {
    fn new(scenario: &Scenario, seed: u64) -> Result<Self, SimError> {
        let session = TalkerConfig::of_simulation(seed).session;
        let listener = Listener::new(ListenerConfig::default(), session);
        Ok(Self {
            listener: listener.map_err(|error| SimError::SetUp(error.to_string()))?,
            local: (RECEIVER, LISTENER_PORT).into(),
            talker: None,
            frame_bytes: scenario.flow.frame_bytes.into(),
            buffer: Vec::new(),
        })
    }

    fn send(&mut self, out: &mut Vec<Packet>) {
        while self.listener.poll_transmit(&mut self.buffer) {
            if let Some(talker) = self.talker {
                out.push(Packet::new(self.local, talker, &self.buffer));
            }
        }
    }
}

impl Endpoint for Hearing {
    fn owns(&self, destination: SocketAddr) -> bool {
        destination == self.local
    }

    fn receive(&mut self, packet: Packet, now: Instant, out: &mut Vec<Packet>) {
        // As the program does it: what was there before may come from anywhere.
        if let Ok(Handled::New) = self.listener.handle_input(&packet.payload, now) {
            self.talker = Some(packet.source);
        }
        self.send(out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.listener.poll_timeout()
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Vec<Packet>) {
        self.listener.on_timeout(now);
        self.send(out);
    }

    fn delivered(&self) -> u64 {
        self.listener.played() * self.frame_bytes
    }
}
