//! The agent of a host in virtual time, for the lab.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use pnet_packet::ip::IpNextHeaderProtocols;
use pnet_packet::ipv4::{Ipv4Flags, MutableIpv4Packet};
use pnet_packet::udp::MutableUdpPacket;
use sidekick_protocol::policy::Carry;
use sidekick_protocol::{Flow, SenderConfig};

use super::config::AgentConfig;
use super::filter::Filter;
use super::flows::{Agent, Limits};
use super::frame::Passing;
use super::holds::Holds;
use super::outbox::To;
use super::report::Totals;
use crate::packet::{Link, parse};
use crate::trace::Trace;

/// The bytes of the headers of IPv4 and UDP.
const HEADERS: usize = 28;

/// What a [`HostAgent`] sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// A datagram along the path of a flow: a repair or a marker.
    AlongPath(Flow, Vec<u8>),
    /// A message from the agent's port to a proxy.
    ToProxy(SocketAddr, Vec<u8>),
    /// A message by the second uplink to a proxy.
    BySecondUplink(SocketAddr, Vec<u8>),
    /// A datagram that the host gets now.
    ToHost(Flow, Vec<u8>),
}

/// An agent beside the programs of a host. Datagrams are those of IPv4.
pub struct HostAgent {
    agent: Agent,
    /// Whether arriving datagrams wait for those before them.
    in_order: bool,
    /// What waits, by its number.
    queue: HashMap<u32, (Flow, Vec<u8>)>,
    latest: u32,
}

impl HostAgent {
    /// The agent of the host with this address, with its default settings but for `in_order`,
    /// `upload_parity`, and a second uplink that may carry so many Mbit/s and bytes. `port` is its
    /// own. Random numbers follow from the seed.
    #[must_use]
    pub fn new(
        host: Ipv4Addr,
        port: u16,
        (in_order, upload_parity): (bool, bool),
        second_uplink: Option<(f64, u64)>,
        mut seed: [u8; 32],
    ) -> Self {
        let config = AgentConfig::default();
        let limits = Limits {
            sender: SenderConfig {
                second_link: second_uplink.is_some(),
                carries: second_uplink.is_some_and(|(mbit, _)| mbit > 0.0),
                ..SenderConfig::default()
            },
            filter: Filter::default(),
            min_packets: config.min_packets,
            max_flows: 256,
            memory: usize::try_from(config.memory.get()).unwrap_or(usize::MAX),
            idle_timeout: Duration::from_secs(config.idle_timeout),
            delivers: true,
            in_order,
            upload_parity,
            second_uplink: second_uplink.map(|(mbit, bytes)| Carry::new(mbit, bytes)),
        };
        let mut agent = Agent::new(limits, vec![port], move || {
            seed[0] = seed[0].wrapping_add(1);
            Some(seed)
        });
        agent.set_local(&HashSet::from([IpAddr::V4(host)]), &HashSet::new());
        Self { agent, in_order, queue: HashMap::new(), latest: 0 }
    }

    /// Helps nothing from now on, and records what the link does.
    pub fn watch(&mut self, now: Instant) {
        self.agent.watch(now);
    }

    /// Ends the recording, if there is one.
    pub fn end_watch(&mut self, now: Instant) -> Option<Trace> {
        self.agent.end_watch(now).map(|(trace, _)| trace)
    }

    /// A program's datagram leaves.
    pub fn on_leaving(&mut self, flow: Flow, payload: &[u8], now: Instant) {
        let packet = packet(flow, payload);
        passing(&packet, |passing| self.agent.on_leaving(passing, now));
    }

    /// A datagram arrives for a program. The host gets it when [`HostAgent::pop`] says so.
    pub fn on_arriving(&mut self, flow: Flow, payload: Vec<u8>, now: Instant) {
        let packet = packet(flow, &payload);
        passing(&packet, |passing| self.agent.on_arriving(passing, now));
        self.latest = self.latest.wrapping_add(1);
        self.queue.insert(self.latest, (flow, payload));
        if self.in_order {
            self.agent.on_queued(self.latest, &packet, now);
        } else {
            self.agent.pass(self.latest);
        }
    }

    /// A message arrives at the agent's port.
    pub fn on_message(&mut self, from: SocketAddr, message: &[u8], now: Instant) {
        self.agent.on_message(from, message, now);
    }

    /// When [`HostAgent::on_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.agent.poll_timeout()
    }

    /// Serves the timers.
    pub fn on_timeout(&mut self, now: Instant) {
        self.agent.on_timeout(now);
    }

    /// What the agent sends next. Call it after each input until it returns `None`.
    pub fn pop(&mut self, now: Instant) -> Option<Sent> {
        loop {
            let (to, buffer) = self.agent.pop()?;
            let flow_of = || parse(Link::Ip, &buffer, buffer.len()).ok().map(|it| it.flow);
            let payload = || buffer.get(HEADERS..).unwrap_or_default().to_vec();
            let sent = match to {
                To::Proxy { proxy, .. } => Some(Sent::ToProxy(proxy, buffer.clone())),
                To::SecondUplink(proxy) => Some(Sent::BySecondUplink(proxy, buffer.clone())),
                To::Queued(id) => self.queue.remove(&id).map(|it| Sent::ToHost(it.0, it.1)),
                To::Host => flow_of().map(|flow| Sent::ToHost(flow, payload())),
                To::Interface(_) => {
                    // The agent sees its own frames on the wire, too.
                    passing(&buffer, |passing| self.agent.on_leaving(passing, now));
                    flow_of().map(|flow| Sent::AlongPath(flow, payload()))
                }
            };
            self.agent.give_back(buffer);
            if sent.is_some() {
                return sent;
            }
        }
    }

    /// The agent's totals.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.agent.totals()
    }

    /// How long arriving datagrams of flows in order waited.
    #[must_use]
    pub fn holds(&self) -> &Holds {
        self.agent.holds().0
    }
}

impl fmt::Debug for HostAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostAgent").field("totals", &self.totals()).finish_non_exhaustive()
    }
}

/// A datagram as a capture on a link without hardware addresses shows it.
pub(super) fn packet(flow: Flow, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; HEADERS];
    packet.extend_from_slice(payload);
    let len = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    let (SocketAddr::V4(source), SocketAddr::V4(destination)) = (flow.source, flow.destination)
    else {
        return packet;
    };
    let (ip, rest) = packet.split_at_mut(HEADERS - 8);
    if let Some(mut ip) = MutableIpv4Packet::new(ip) {
        ip.set_version(4);
        ip.set_header_length(5);
        ip.set_total_length(len);
        ip.set_flags(Ipv4Flags::DontFragment);
        ip.set_ttl(64);
        ip.set_next_level_protocol(IpNextHeaderProtocols::Udp);
        ip.set_source(*source.ip());
        ip.set_destination(*destination.ip());
    }
    if let Some(mut udp) = MutableUdpPacket::new(rest) {
        udp.set_source(source.port());
        udp.set_destination(destination.port());
        udp.set_length(len - 20);
    }
    packet
}

fn passing(packet: &[u8], handle: impl FnOnce(Passing<'_>)) {
    if let Ok(datagram) = parse(Link::Ip, packet, packet.len()) {
        handle(Passing { interface: 0, link: Link::Ip, datagram, each: None, frame: packet });
    }
}
