//! A host at an end of the path, with its endpoints.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::chain::{Node, Outbox, Side};
use super::packet::Packet;

/// An endpoint on a host: one end of one flow.
pub(super) trait Endpoint {
    /// Whether a datagram for this address belongs to it.
    fn owns(&self, destination: SocketAddr) -> bool;
    fn receive(&mut self, packet: Packet, now: Instant, out: &mut Vec<Packet>);
    /// When to call [`Endpoint::on_timeout`].
    fn poll_timeout(&self) -> Option<Instant>;
    /// Does the work that is due. It may be called at any time.
    fn on_timeout(&mut self, now: Instant, out: &mut Vec<Packet>);
    /// Bytes that its application has received.
    fn delivered(&self) -> u64 {
        0
    }
    /// Its congestion window in bytes, if it has one.
    fn window(&self) -> Option<u64> {
        None
    }
    fn is_done(&self) -> bool {
        false
    }
}

/// The state of a host's endpoints at one time.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) at: Duration,
    pub(super) delivered: Vec<u64>,
    pub(super) windows: Vec<Option<u64>>,
}

pub(super) struct Host<E> {
    side: Side,
    start: Instant,
    every: Option<Duration>,
    next_sample: Option<Instant>,
    pub(super) endpoints: Vec<E>,
    pub(super) samples: Vec<Sample>,
    out: Vec<Packet>,
}

impl<E: Endpoint> Host<E> {
    /// A host whose path leads to `side`. It samples its endpoints at `first`, and then every
    /// `every`.
    pub(super) fn new(
        side: Side,
        start: Instant,
        endpoints: Vec<E>,
        first: Option<Duration>,
        every: Option<Duration>,
    ) -> Self {
        let next_sample = first.map(|first| start + first);
        Self { side, start, every, next_sample, endpoints, samples: Vec::new(), out: Vec::new() }
    }

    fn send(&mut self, out: &mut Outbox) {
        out.extend(self.out.drain(..).map(|packet| (self.side, packet)));
    }
}

impl<E: Endpoint> Node for Host<E> {
    fn receive(&mut self, _from: Side, packet: Packet, now: Instant, out: &mut Outbox) {
        // A host drops damaged packets, and packets for none of its sockets.
        if packet.damaged {
            return;
        }
        if let Some(endpoint) =
            self.endpoints.iter_mut().find(|endpoint| endpoint.owns(packet.destination))
        {
            endpoint.receive(packet, now, &mut self.out);
            self.send(out);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let deadlines = self.endpoints.iter().filter_map(Endpoint::poll_timeout);
        deadlines.chain(self.next_sample).min()
    }

    fn on_timeout(&mut self, now: Instant, out: &mut Outbox) {
        if self.next_sample.is_some_and(|at| at <= now) {
            self.next_sample = self.every.map(|every| now + every);
            self.samples.push(Sample {
                at: now - self.start,
                delivered: self.endpoints.iter().map(Endpoint::delivered).collect(),
                windows: self.endpoints.iter().map(Endpoint::window).collect(),
            });
        }
        for endpoint in &mut self.endpoints {
            if endpoint.poll_timeout().is_some_and(|deadline| deadline <= now) {
                endpoint.on_timeout(now, &mut self.out);
            }
        }
        self.send(out);
    }

    fn delivered(&self) -> u64 {
        self.endpoints.iter().map(Endpoint::delivered).sum()
    }

    fn is_done(&self) -> bool {
        // The lab measures the first flow. The run does not wait for a second one.
        self.endpoints.first().is_some_and(Endpoint::is_done)
    }
}
