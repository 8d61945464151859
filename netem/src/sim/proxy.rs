//! The proxy: a router between the segments, and the observer that listens on its near interface.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use sidekick_protocol::{Flow, HEAD_LEN, MAX_MESSAGE_LEN, Observed, Observer, ObserverConfig};

use super::chain::{Node, Outbox, Side};
use super::faults::{Egress, Lies, Power, Restarts, Schedule};
use super::packet::Packet;
use super::seed_bytes;
use super::styles::Tally;
use crate::record::{FaultCounts, QuackStyles};

/// The number that the proxy gives to its one capturing interface.
const NEAR_INTERFACE: u32 = 0;

/// The host between the segments.
pub(super) struct Proxy {
    address: SocketAddr,
    receiver: IpAddr,
    /// With which the observers of the run begin, if there are any.
    seed: Option<u64>,
    observer: Option<Observer>,
    /// The observer is killed when so many bytes have passed to the receiver.
    dies_after: Option<u64>,
    passed: u64,
    tally: Tally,
    restarts: Restarts,
    /// How often the observer was started anew.
    restarted: u64,
    lies: Lies,
    egress: Egress,
}

impl Proxy {
    /// A host that routes between a sender and the receiver at `receiver`. With `observes` it observes, and answers at
    /// `address`, if nothing of `schedule` comes in between. `seed` is that of the run.
    pub(super) fn new(
        (address, receiver): (SocketAddr, IpAddr),
        (seed, observes): (u64, bool),
        dies_after: Option<u64>,
        tally: Tally,
        schedule: &Schedule,
    ) -> Result<Self, String> {
        let mut proxy = Self {
            address,
            receiver,
            seed: observes.then_some(seed),
            observer: None,
            dies_after,
            passed: 0,
            tally,
            restarts: Restarts::new(schedule),
            restarted: 0,
            lies: Lies::new(schedule.clone(), seed),
            egress: Egress::new(schedule.clone(), seed),
        };
        proxy.observer = proxy.observer()?;
        Ok(proxy)
    }

    /// A new observer, which knows no session.
    fn observer(&self) -> Result<Option<Observer>, String> {
        let purpose = match self.restarted {
            0 => "observer".to_owned(),
            number => format!("observer {number}"),
        };
        let observer =
            self.seed.map(|seed| Observer::new(ObserverConfig::default(), seed_bytes(seed, &purpose)));
        observer.transpose().map_err(|error| error.to_string())
    }

    /// Kills the observer and starts a new one as the scenario has it.
    fn restart(&mut self, now: Instant) {
        while let Some(power) = self.restarts.due(now) {
            self.observer = None;
            if power == Power::On && self.seed.is_some() {
                self.restarted += 1;
                // The first was made with the same configuration.
                self.observer = self.observer().ok().flatten();
            }
        }
    }

    /// Looks at a packet that comes in from the sender.
    fn observe(&mut self, packet: &Packet, now: Instant) {
        self.passed += packet.payload.len() as u64;
        if self.dies_after.is_some_and(|bytes| self.passed > bytes) {
            self.observer = None;
        }
        let Some(observer) = &mut self.observer else { return };
        let flow = Flow { source: packet.source, destination: packet.destination };
        let mut observe = |head: &[u8]| {
            let seen = observer.observe(&flow, NEAR_INTERFACE, head, packet.payload.len(), now);
            if seen == Observed::Counted {
                self.tally.counted(now);
            }
        };
        if self.lies.sees(now) {
            observe(packet.payload.get(..HEAD_LEN).unwrap_or(&packet.payload));
        }
        if let Some(invented) = self.lies.invents(now) {
            observe(&invented);
        }
    }

    /// Sends what the observer has to say.
    fn speak(&mut self, now: Instant, out: &mut Outbox) {
        let leave = &mut |packet| out.push((Side::Left, packet));
        self.egress.on_deadline(now, leave);
        let Some(observer) = &mut self.observer else { return };
        let mut buffer = [0; MAX_MESSAGE_LEN];
        while let Some((to, length)) = observer.transmit(&mut buffer) {
            let message = buffer.get_mut(..length).unwrap_or_default();
            self.lies.falsify(message, now);
            self.tally.sent(message, now);
            self.egress.push(Packet::new(self.address, to, message), now, leave);
        }
    }
}

impl Node for Proxy {
    fn receive(&mut self, from: Side, packet: Packet, now: Instant, out: &mut Outbox) {
        self.restart(now);
        match from {
            Side::Right => out.push((Side::Left, packet)),
            Side::Left if packet.destination == self.address => {
                if let Some(observer) = self.observer.as_mut().filter(|_| !packet.damaged) {
                    // What it cannot use it counts.
                    let _ = observer.handle(packet.source, &packet.payload, now);
                }
            }
            Side::Left if packet.destination.ip() == self.receiver => {
                self.observe(&packet, now);
                out.push((Side::Right, packet));
            }
            // There is no such host.
            Side::Left => {}
        }
        self.speak(now, out);
    }

    fn next_deadline(&self) -> Option<Instant> {
        let observer = self.observer.as_ref().and_then(Observer::next_deadline);
        let deadlines = [observer, self.egress.next_deadline(), self.restarts.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    fn on_deadline(&mut self, now: Instant, out: &mut Outbox) {
        self.restart(now);
        if let Some(observer) = &mut self.observer {
            observer.on_deadline(now);
        }
        self.speak(now, out);
    }

    fn quack_styles(&self) -> Option<QuackStyles> {
        self.tally.styles()
    }

    fn fault_counts(&self) -> FaultCounts {
        let restarts = FaultCounts { proxy_restarts: self.restarted, ..FaultCounts::default() };
        self.lies.counts + self.egress.counts + restarts
    }
}
