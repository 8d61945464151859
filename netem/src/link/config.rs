//! The configuration of one direction of a link.

use std::sync::Arc;
use std::time::Duration;

use super::codel::CoDelConfig;
use super::jitter::Jitter;
use super::loss::LossModel;
use super::replay::Replay;
use super::trace::Trace;
use super::weather::{Fading, Handovers};
use crate::units::{BitRate, Percent};

/// Default limit of a queue, and default burst of a policer, in bytes.
const DEFAULT_QUEUE_BYTES: u64 = 65_000;

/// The configuration of one direction of a link. The default is a wire without length.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Time from the end of a packet's transmission to its arrival.
    pub delay: Duration,
    /// The variation of the delay from packet to packet. No delay is below 0.
    pub jitter: Jitter,
    /// The chance of each packet to skip the delay, and so to overtake others.
    pub reorder: Percent,
    /// Transmission rate; `None` is no limit.
    pub rate: Option<BitRate>,
    /// Transmission opportunities instead of a rate. If there is a trace, the link ignores `rate`.
    pub trace: Option<Arc<Trace>>,
    /// Bytes that each packet needs on the line in addition to its Ethernet frame.
    pub overhead_bytes: u64,
    /// The chance of each packet to be lost at random. The loss model defines its exact meaning.
    pub loss: Percent,
    /// The model of random loss.
    pub loss_model: LossModel,
    /// Good and bad times of the link.
    pub fading: Option<Fading>,
    /// A recording of losses, late packets and jitter, in addition to those of the other fields.
    pub replay: Option<Arc<Replay>>,
    /// Lost frames that the link sends again, as Wi-Fi and cellular networks do.
    pub retries: Option<Retries>,
    /// Changes from one station to the next.
    pub handovers: Option<Handovers>,
    /// Times in which the link drops every packet that reaches it.
    pub outages: Outages,
    /// Largest IP packet that passes, in bytes; the link drops larger ones silently. `None` is no
    /// limit.
    pub mtu_bytes: Option<u64>,
    /// Chance of each packet to arrive twice.
    pub duplicate: Percent,
    /// Chance of each packet to be damaged on the way.
    pub corrupt: Percent,
    /// Rate of a token bucket before the queue, which drops the packets that exceed it. `None` is
    /// no policer.
    pub policer: Option<BitRate>,
    /// Bytes that the token bucket holds, and so the longest burst that passes at once.
    pub policer_burst_bytes: u64,
    /// The rule by which the queue drops packets.
    pub queue: Discipline,
    /// Bytes that may wait for transmission, without the packet in transmission.
    pub queue_bytes: u64,
    /// Packets that may wait for transmission, without the packet in transmission. `None` is no
    /// limit.
    pub queue_packets: Option<u64>,
    /// Whether RED and CoDel mark packets of ECN-capable transports where they would drop others.
    pub ecn: bool,
}

impl LinkConfig {
    /// Whether the link loses packets at times, by fades or outages.
    pub(crate) fn is_timed(&self) -> bool {
        self.fading.is_some() || !self.outages.is_empty()
    }
}

/// The rule by which a queue drops packets. Each discipline also keeps the limits in bytes and
/// packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Discipline {
    /// Drops the packets that do not fit.
    #[default]
    DropTail,
    /// Random early detection. Its parameters follow from the limit in bytes.
    Red,
    /// Controlled delay.
    CoDel(CoDelConfig),
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Jitter::default(),
            reorder: Percent::default(),
            rate: None,
            trace: None,
            overhead_bytes: 0,
            loss: Percent::default(),
            loss_model: LossModel::default(),
            fading: None,
            replay: None,
            retries: None,
            handovers: None,
            outages: Outages::default(),
            mtu_bytes: None,
            duplicate: Percent::default(),
            corrupt: Percent::default(),
            policer: None,
            policer_burst_bytes: DEFAULT_QUEUE_BYTES,
            queue: Discipline::DropTail,
            queue_bytes: DEFAULT_QUEUE_BYTES,
            queue_packets: None,
            ecn: false,
        }
    }
}

/// How a link sends lost frames again. Each transmission takes the line as long as the first, and
/// later frames wait for the lost one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retries {
    /// How often at most.
    pub most: u32,
    /// How long after the previous transmission, without what the line takes.
    pub after: Duration,
}

/// One outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// When it begins, since the start of the run.
    pub from: Duration,
    /// How long it lasts.
    pub length: Duration,
}

/// The outages of a link. During an outage, the link drops every packet that reaches it. Packets
/// that it accepted before still arrive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outages(Arc<[Outage]>);

impl Outages {
    /// Whether the link is down at this time.
    pub fn contains(&self, now: Duration) -> bool {
        self.0
            .iter()
            .any(|outage| now.checked_sub(outage.from).is_some_and(|since| since < outage.length))
    }

    /// Every outage.
    pub fn iter(&self) -> impl Iterator<Item = &Outage> {
        self.0.iter()
    }

    /// Whether there is no outage.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Outage> for Outages {
    fn from_iter<I: IntoIterator<Item = Outage>>(outages: I) -> Self {
        Self(outages.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_holds_its_beginning_and_not_its_end() {
        let ms = Duration::from_millis;
        let outages: Outages = [(20, 5), (8, 1)]
            .map(|(from, length)| Outage { from: ms(from), length: ms(length) })
            .into_iter()
            .collect();
        let down: Vec<u64> = (0..40).filter(|&now| outages.contains(ms(now))).collect();
        assert_eq!(down, [8, 20, 21, 22, 23, 24]);
        assert!(!outages.is_empty() && Outages::default().is_empty());
    }
}
