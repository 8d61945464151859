//! The agent on the sender's host, between its programs and the path.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sidekick_protocol::Flow;
use sidekick_proxy::testing::agent::{HostAgent, Sent};

use super::chain::{Node, Outbox, Side};
use super::packet::Packet;
use super::seed_bytes;
use crate::record::{AgentRecord, HeldMs, Repeats, RunRecord};
use crate::scenario::{Mode, Scenario, Sidekick};
use crate::topology::{SENDER, SENDER_SECOND};

/// The port at which proxies answer it.
const PORT: u16 = 6000;

pub(super) struct AgentNode {
    host: HostAgent,
    in_order: bool,
    /// When it last did anything.
    latest: Instant,
}

impl AgentNode {
    /// The agent of a run. `None` in a mode without one.
    pub(super) fn new(scenario: &Scenario, seed: u64, start: Instant) -> Option<Self> {
        let Sidekick { mode, upload_parity, carry_mbit, .. } = scenario.sidekick;
        let second = scenario.second.as_ref().map(|_| (carry_mbit.into(), u64::MAX));
        let in_order = mode == Mode::AgentInOrder;
        let seed = seed_bytes(seed, "agent");
        mode.is_of_agent().then(|| {
            let mut host = HostAgent::new(SENDER, PORT, (in_order, upload_parity), second, seed);
            if mode == Mode::Measure {
                host.watch(start);
            }
            Self { host, in_order, latest: start }
        })
    }

    /// Adds what it did to the record of a flow.
    pub(super) fn describe(&mut self, record: &mut RunRecord) {
        let totals = self.host.totals();
        let trace = self.host.end_watch(self.latest);
        let agent = AgentRecord {
            flows_assisted: totals.flows_assisted,
            sent: totals.sent,
            lost: totals.lost,
            resent: totals.resent,
            resent_bytes: totals.resent_bytes,
            withheld_congested: totals.withheld_congested,
            withheld_far: totals.withheld_far,
            withheld_late: totals.withheld_late,
            delivered: totals.delivered,
        };
        record.add_agent(Some(agent), trace);
        record.packets.lost_early = totals.lost;
        record.quacks.received = totals.quacks;
        let (holds, ms) = (self.host.holds(), |wait: Duration| wait.as_secs_f64() * 1e3);
        let passed = record.links.far.to_sender.link.delivered_bytes;
        record.repeats = self.in_order.then(|| Repeats {
            repeats_requested: totals.copies_requested,
            repeats_received: totals.copies_received,
            repaired_near: totals.in_order,
            held_ms: HeldMs {
                p50: ms(holds.wait(0.5)),
                p99: ms(holds.wait(0.99)),
                max: ms(holds.wait(1.0)),
            },
            near_overhead_percent: 100.0 * totals.help_bytes as f64 / passed.max(1) as f64,
            ..Repeats::default()
        });
    }

    fn drain(&mut self, now: Instant, out: &mut Outbox) {
        self.latest = now;
        while let Some(sent) = self.host.pop(now) {
            out.push(match sent {
                Sent::AlongPath(Flow { source, destination }, payload) => {
                    (Side::Right, Packet::new(source, destination, &payload))
                }
                Sent::ToProxy(proxy, message) => (Side::Right, Packet::new(own(), proxy, &message)),
                Sent::BySecondUplink(proxy, message) => {
                    (Side::Right, Packet::new(by_second(), proxy, &message))
                }
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

fn by_second() -> SocketAddr {
    (SENDER_SECOND, PORT).into()
}

impl Node for AgentNode {
    fn receive(&mut self, from: Side, packet: Packet, now: Instant, out: &mut Outbox) {
        let Packet { source, destination, .. } = packet;
        let flow = Flow { source, destination };
        match from {
            Side::Left => {
                self.host.on_leaving(flow, &packet.payload, now);
                out.push((Side::Right, packet));
            }
            // The host drops it before the agent sees it.
            Side::Right if packet.damaged => {}
            Side::Right if destination == own() || destination == by_second() => {
                self.host.on_message(source, &packet.payload, now);
            }
            Side::Right => self.host.on_arriving(flow, packet.payload, now),
        }
        self.drain(now, out);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.host.poll_timeout()
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Outbox) {
        self.host.on_timeout(now);
        self.drain(now, out);
    }
}
