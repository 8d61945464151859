//! The socket of a plain connection on the sender's host, with the help that it gets.

use std::net::SocketAddr;
use std::time::Instant;

use sidekick_socket::{Arrival, Assistance, Config, Datagram, Flows, Marks};

use super::chain::{Node, Outbox, Side};
use super::packet::Packet;
use super::seed_bytes;
use crate::record::{Repeats, RunRecord};
use crate::scenario::{Mode, ProxyFate, Sidekick};

pub(super) struct SocketNode {
    /// The connection's own address. The packets of others pass.
    address: SocketAddr,
    flows: Flows,
}

impl SocketNode {
    /// The socket at `address` of a run. `None` in a mode without one.
    pub(super) fn new(sidekick: &Sidekick, address: SocketAddr, seed: u64) -> Option<Self> {
        let proxy = (sidekick.proxy != ProxyFate::Found).then(|| sidekick.proxy_address());
        let config = Config { proxy, ..Config::default() };
        let mut drawn = seed_bytes(seed, "socket");
        let flows = Flows::new(config, address, move || {
            drawn[0] = drawn[0].wrapping_add(1);
            Some(drawn)
        });
        (sidekick.mode == Mode::Socket).then_some(Self { address, flows })
    }

    /// Adds what it did to the record of the flow.
    pub(super) fn describe(&self, record: &mut RunRecord, now: Instant) {
        let Some(status) = self.flows.status(now).next() else { return };
        record.assisted = status.assistance == Assistance::Assisted;
        record.assistance = status.assistance.to_string();
        record.near_rtt_ms = status.near_rtt.map(|rtt| rtt.as_secs_f64() * 1e3);
        record.packets.lost_early = status.lost;
        record.repeats = (status.missed > 0).then(|| Repeats {
            repeats_received: status.delivered,
            repaired_near: status.delivered,
            ..Repeats::default()
        });
    }

    fn drain(&mut self, now: Instant, out: &mut Outbox) {
        let address = self.address;
        self.flows.transmit(now, |Datagram { peer, payload, .. }| {
            out.push((Side::Right, Packet::new(address, *peer, payload)));
            true
        });
        while let Some(Datagram { peer, payload, .. }) = self.flows.poll_delivery() {
            out.push((Side::Left, Packet::new(peer, address, &payload)));
        }
    }
}

impl Node for SocketNode {
    fn receive(&mut self, from: Side, packet: Packet, now: Instant, out: &mut Outbox) {
        match from {
            Side::Left => {
                let (source, peer) = (packet.source, packet.destination);
                let payload = (source == self.address).then(|| packet.payload.clone());
                out.push((Side::Right, packet));
                if let Some(payload) = payload {
                    self.flows.on_sent(peer, Marks::default(), [&payload[..]], now);
                }
            }
            // The host drops it before the socket sees it.
            Side::Right if packet.damaged => {}
            Side::Right if packet.destination == self.address => {
                let Packet { source, payload, .. } = &packet;
                let arrival = self.flows.on_received(*source, Marks::default(), payload, now);
                if arrival == Arrival::Passes {
                    out.push((Side::Left, packet));
                }
            }
            Side::Right => out.push((Side::Left, packet)),
        }
        self.drain(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.flows.poll_timeout()
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Outbox) {
        self.flows.on_timeout(now);
        self.drain(now, out);
    }
}
