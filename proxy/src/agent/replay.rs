//! An agent and a proxy side by side, without I/O, for benchmarks and tests of memory.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sidekick_protocol::observer::ConfigError;
use sidekick_protocol::{
    Addresses, MAX_DATAGRAM_LEN, Observer, ObserverConfig, Route, SenderConfig,
};

use super::filter::Filter;
use super::flows::{Agent, Limits};
use super::frame::Passing;
use super::outbox::To;
use super::report::Totals;
use crate::packet::{Link, parse};

const PROXY: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 254)), 5252);
const AGENT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 6000);

/// An agent and a proxy that see the same frames. The caller measures only the agent's work:
/// [`AgentReplay::leave`] and [`AgentReplay::hear`].
pub struct AgentReplay {
    agent: Agent,
    proxy: Observer,
    /// Messages and markers of the agent.
    sent: Vec<(To, Vec<u8>)>,
    /// Messages of the proxy, and whether each goes along the path.
    heard: Vec<(Option<[SocketAddr; 2]>, Vec<u8>)>,
}

impl fmt::Debug for AgentReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentReplay").field("totals", &self.totals()).finish_non_exhaustive()
    }
}

impl AgentReplay {
    /// An agent that helps a flow from its first packet, and a proxy on its path.
    ///
    /// # Errors
    /// None: the proxy's default configuration is possible.
    pub fn new() -> Result<Self, ConfigError> {
        let limits = Limits {
            sender: SenderConfig::default(),
            filter: Filter::default(),
            min_packets: 1,
            max_flows: 256,
            memory: 64 << 20,
            idle_timeout: Duration::from_secs(30),
            delivers: true,
            in_order: false,
            upload_parity: false,
            second_uplink: None,
        };
        let mut proxy = Observer::new(ObserverConfig::default(), [7; 32])?;
        proxy.set_addresses(Addresses::announcing(0, PROXY));
        let agent = Agent::new(limits, vec![AGENT.port()], || Some([3; 32]));
        Ok(Self { agent, proxy, sent: Vec::new(), heard: Vec::new() })
    }

    /// The agent's work for Ethernet frames that leave.
    pub fn leave<'a>(&mut self, frames: impl Iterator<Item = &'a [u8]>, now: Instant) {
        for frame in frames {
            let Ok(datagram) = parse(Link::Ethernet, frame, frame.len()) else { continue };
            let link = Link::Ethernet;
            self.agent.on_leaving(Passing { interface: 0, link, datagram, each: None, frame }, now);
        }
        if self.agent.poll_timeout().is_some_and(|due| due <= now) {
            self.agent.on_timeout(now);
        }
        self.take_sent(now);
    }

    /// The proxy's work for frames that arrive, and for the agent's messages.
    pub fn pass<'a>(&mut self, frames: impl Iterator<Item = &'a [u8]>, now: Instant) {
        for frame in frames {
            if let Ok(datagram) = parse(Link::Ethernet, frame, frame.len()) {
                self.proxy.observe(&datagram.flow, 0, datagram.payload(), now);
            }
        }
        for (to, buffer) in self.sent.drain(..) {
            match to {
                To::SecondUplink(_) => {}
                To::Proxy { .. } => drop(self.proxy.handle_input(AGENT, &buffer, now)),
                To::Interface(_) => {
                    if let Ok(datagram) = parse(Link::Ethernet, &buffer, buffer.len()) {
                        self.proxy.observe(&datagram.flow, 0, datagram.payload(), now);
                    }
                }
                To::Host | To::Queued(_) => {}
            }
            self.agent.give_back(buffer);
        }
        if self.proxy.poll_timeout().is_some_and(|due| due <= now) {
            self.proxy.on_timeout(now);
        }
        let mut out = [0; MAX_DATAGRAM_LEN];
        while let Some(transmit) = self.proxy.poll_transmit(&mut out) {
            let along = match transmit.route {
                Route::Path { source, .. } => Some([source, transmit.destination]),
                Route::Session | Route::SecondLink | Route::Stranger { .. } => None,
            };
            self.heard.push((along, out.get(..transmit.size).unwrap_or_default().to_vec()));
        }
    }

    /// The agent's work for the proxy's messages.
    pub fn hear(&mut self, now: Instant) {
        for (along, message) in self.heard.drain(..) {
            match along {
                None => self.agent.on_message(PROXY, &message, now),
                Some([source, destination]) => {
                    let datagram = crate::packet::Datagram {
                        flow: sidekick_protocol::Flow { source, destination },
                        payload: &message,
                        len: message.len(),
                    };
                    let (link, each, frame) = (Link::Ip, None, &*message);
                    self.agent
                        .on_arriving(Passing { interface: 0, link, datagram, each, frame }, now);
                }
            }
        }
        self.take_sent(now);
    }

    fn take_sent(&mut self, now: Instant) {
        while let Some((to, buffer)) = self.agent.pop() {
            // A capture shows each frame when it leaves.
            if let (To::Interface(_), Ok(datagram)) =
                (to, parse(Link::Ethernet, &buffer, buffer.len()))
            {
                let (link, each, frame) = (Link::Ethernet, None, &*buffer);
                let leaving = Passing { interface: 0, link, datagram, each, frame };
                self.agent.on_leaving(leaving, now);
            }
            self.sent.push((to, buffer));
        }
    }

    /// The agent's totals.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.agent.totals()
    }
}
