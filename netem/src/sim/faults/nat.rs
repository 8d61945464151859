//! A NAT between the sender and the near segment.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use super::Schedule;
use crate::record::FaultCounts;
use crate::scenario::Fault;
use crate::sim::chain::{Node, Outbox, Side};
use crate::sim::packet::Packet;

/// The first port that the NAT assigns after a rebinding.
const FIRST_NEW_PORT: u16 = 60_000;

/// A NAT that maps each of the sender's sockets to one port for all destinations (RFC 4787,
/// sections 4.1 and 5). It preserves ports until a rebinding, then assigns other ones, and drops
/// packets to the old ones. Its address is the sender's: only ports change.
#[derive(Debug)]
pub(in crate::sim) struct Nat {
    rebindings: VecDeque<Instant>,
    keeps_ports: bool,
    next_port: u16,
    /// The mapped addresses, by the sender's socket.
    outside: BTreeMap<SocketAddr, SocketAddr>,
    /// The sender's sockets, by mapped address.
    inside: BTreeMap<SocketAddr, SocketAddr>,
    counts: FaultCounts,
}

impl Nat {
    /// The NAT of a run with these faults. `None` without a rebinding.
    pub(in crate::sim) fn new(schedule: &Schedule) -> Option<Self> {
        let rebindings: VecDeque<_> =
            schedule.times(Fault::NatRebinding).into_iter().map(|(at, _)| at).collect();
        (!rebindings.is_empty()).then(|| Self {
            rebindings,
            keeps_ports: true,
            next_port: FIRST_NEW_PORT,
            outside: BTreeMap::new(),
            inside: BTreeMap::new(),
            counts: FaultCounts::default(),
        })
    }

    fn map(&mut self, socket: SocketAddr) -> SocketAddr {
        if let Some(&mapped) = self.outside.get(&socket) {
            return mapped;
        }
        let mut mapped = socket;
        while !self.keeps_ports || self.inside.contains_key(&mapped) {
            mapped.set_port(self.next_port);
            self.next_port = self.next_port.checked_add(1).unwrap_or(FIRST_NEW_PORT);
            if !self.inside.contains_key(&mapped) {
                break;
            }
        }
        self.outside.insert(socket, mapped);
        self.inside.insert(mapped, socket);
        mapped
    }

    fn forget_when_due(&mut self, now: Instant) {
        while self.rebindings.front().is_some_and(|at| *at <= now) {
            self.rebindings.pop_front();
            self.outside.clear();
            self.inside.clear();
            self.keeps_ports = false;
            self.counts.nat_rebindings += 1;
        }
    }
}

impl Node for Nat {
    fn receive(&mut self, from: Side, mut packet: Packet, now: Instant, out: &mut Outbox) {
        self.forget_when_due(now);
        match from {
            Side::Left => {
                packet.source = self.map(packet.source);
                out.push((Side::Right, packet));
            }
            Side::Right => match self.inside.get(&packet.destination) {
                Some(&socket) => {
                    packet.destination = socket;
                    out.push((Side::Left, packet));
                }
                None => self.counts.nat_drops += 1,
            },
        }
    }

    fn fault_counts(&self) -> FaultCounts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;
    use crate::sim::faults::tests::schedule;
    use std::time::Duration;

    const INNER: [u16; 2] = [40_000, 50_000];

    fn address(port: u16) -> SocketAddr {
        ([10, 77, 1, 1], port).into()
    }

    fn server() -> SocketAddr {
        ([10, 77, 2, 2], 4433).into()
    }

    fn through(nat: &mut Nat, from: Side, packet: Packet, now: Instant) -> Option<Packet> {
        let mut out = Outbox::new();
        nat.receive(from, packet, now, &mut out);
        out.pop().map(|(_, packet)| packet)
    }

    #[test]
    fn a_rebinding_gives_new_ports_and_forgets_the_old() {
        let scenario = Scenario::load("upload-paper").unwrap();
        assert!(Nat::new(&schedule(&scenario, "proxy-restart at 0").0).is_none());
        let (schedule, start) = schedule(&scenario, "nat-rebinding at 10; nat-rebinding at 20");
        let mut nat = Nat::new(&schedule).unwrap();
        let mut known = Vec::new();
        for ms in [0, 10, 20] {
            let now = start + Duration::from_millis(ms);
            let mapped = INNER.map(|port| {
                let packet = Packet::new(address(port), server(), &[1]);
                through(&mut nat, Side::Left, packet, now).unwrap().source
            });
            assert_eq!(mapped == INNER.map(address), ms == 0);
            for (port, mapped) in INNER.into_iter().zip(mapped) {
                let back = through(&mut nat, Side::Right, Packet::new(server(), mapped, &[2]), now)
                    .unwrap();
                assert_eq!((back.destination, back.payload), (address(port), vec![2]));
            }
            for &old in &known {
                assert_eq!(
                    through(&mut nat, Side::Right, Packet::new(server(), old, &[2]), now),
                    None
                );
            }
            known.extend(mapped);
        }
        let counts = nat.fault_counts();
        assert_eq!((counts.nat_rebindings, counts.nat_drops), (2, 2 + 4));
    }

    #[test]
    fn no_port_is_given_twice() {
        let (schedule, start) =
            schedule(&Scenario::load("upload-paper").unwrap(), "nat-rebinding at 0");
        let mut nat = Nat::new(&schedule).unwrap();
        let mut mapped: Vec<_> = (0..5000)
            .map(|port| {
                through(&mut nat, Side::Left, Packet::new(address(port), server(), &[1]), start)
                    .unwrap()
                    .source
            })
            .collect();
        mapped.sort();
        mapped.dedup();
        assert_eq!(mapped.len(), 5000);
    }
}
