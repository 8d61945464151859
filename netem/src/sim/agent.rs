//! The agent on the sender's host, between its programs and the path.

use std::net::SocketAddr;
use std::time::Instant;

use sidekick_protocol::Flow;
use sidekick_proxy::testing::agent::{HostAgent, Sent};

use super::chain::{Node, Outbox, Side};
use super::packet::Packet;
use super::seed_bytes;
use crate::record::RunRecord;
use crate::scenario::Mode;
use crate::topology::SENDER;

/// The port at which proxies answer it.
const PORT: u16 = 6000;

pub(super) struct AgentNode(HostAgent);

impl AgentNode {
    /// The agent of a run. `None` in a mode without one.
    pub(super) fn new(mode: Mode, seed: u64) -> Option<Self> {
        let in_order = mode == Mode::AgentInOrder;
        let seed = seed_bytes(seed, "agent");
        mode.is_of_agent().then(|| Self(HostAgent::new(SENDER, PORT, in_order, seed)))
    }

    /// Adds what it did to the record of a flow.
    pub(super) fn describe(&self, record: &mut RunRecord) {
        let totals = self.0.totals();
        record.assisted = totals.flows_assisted > 0;
        record.assistance = match record.assisted {
            true => "assisted by the proxy, by way of an agent".to_owned(),
            false => "the agent found no proxy".to_owned(),
        };
        record.packets.lost_early = totals.lost;
        record.quacks.received = totals.quacks;
    }

    fn drain(&mut self, now: Instant, out: &mut Outbox) {
        while let Some(sent) = self.0.pop(now) {
            out.push(match sent {
                Sent::AlongPath(Flow { source, destination }, payload) => {
                    (Side::Right, Packet::new(source, destination, &payload))
                }
                Sent::ToProxy(proxy, message) => (Side::Right, Packet::new(own(), proxy, &message)),
                Sent::ToHost(Flow { source, destination }, payload) => {
                    (Side::Left, Packet::new(source, destination, &payload))
                }
            });
        }
    }
}

fn own() -> SocketAddr {
    (SENDER, PORT).into()
}

impl Node for AgentNode {
    fn receive(&mut self, from: Side, packet: Packet, now: Instant, out: &mut Outbox) {
        let Packet { source, destination, .. } = packet;
        let flow = Flow { source, destination };
        match from {
            Side::Left => {
                self.0.on_leaving(flow, &packet.payload, now);
                out.push((Side::Right, packet));
            }
            // The host drops it before the agent sees it.
            Side::Right if packet.damaged => {}
            Side::Right if destination == own() => {
                self.0.on_message(source, &packet.payload, now);
            }
            Side::Right => self.0.on_arriving(flow, packet.payload, now),
        }
        self.drain(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.poll_timeout()
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Outbox) {
        self.0.on_timeout(now);
        self.drain(now, out);
    }
}
