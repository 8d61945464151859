//! What one direction of a link does to packets.

use std::sync::Arc;
use std::time::Duration;

use super::codel::CoDelConfig;
use super::jitter::Jitter;
use super::loss::LossModel;
use super::outage::Outages;
use super::trace::Trace;
use crate::units::{BitRate, Percent};

/// Default limit of a queue, in bytes.
const DEFAULT_QUEUE_BYTES: u64 = 65_000;

/// What one direction of a link does to packets. The default is a wire without length.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkConfig {
    /// Time from the end of a packet's transmission to its arrival.
    pub delay: Duration,
    /// What is added to the delay, or taken off, from packet to packet. Packets keep their order.
    pub jitter: Jitter,
    /// Chance of each packet to be spared the delay, and so to overtake others.
    pub reorder: Percent,
    /// Transmission rate; `None` is no limit.
    pub rate: Option<BitRate>,
    /// Transmission opportunities instead of a rate. Where there is a trace, `rate` is not looked
    /// at.
    pub trace: Option<Arc<Trace>>,
    /// Bytes that each packet needs on the line in addition to its Ethernet frame.
    pub overhead_bytes: u64,
    /// Chance of each packet to be lost at random; what it means exactly is the model's business.
    pub loss: Percent,
    /// How losses follow each other.
    pub loss_model: LossModel,
    /// Times in which all that reaches the link is lost.
    pub outages: Outages,
    /// Largest IP packet that passes, in bytes; the link drops larger ones silently. `None` is no
    /// limit.
    pub mtu_bytes: Option<u64>,
    /// Chance of each packet to arrive twice.
    pub duplicate: Percent,
    /// Chance of each packet to be damaged on the way.
    pub corrupt: Percent,
    /// Which packets a queue drops.
    pub queue: Discipline,
    /// Bytes that may wait for transmission, the packet in transmission not counted.
    pub queue_bytes: u64,
    /// Packets that may wait for transmission, the packet in transmission not counted; `None` is no
    /// limit.
    pub queue_packets: Option<u64>,
    /// Whether RED and CoDel mark packets of ECN-capable transports where they would drop others.
    pub ecn: bool,
}

/// Which packets a queue drops. The limits in bytes and packets hold for each discipline.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Discipline {
    /// Those for which there is no room.
    #[default]
    DropTail,
    /// Random early detection with the parameters that follow from the limit in bytes.
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
            outages: Outages::default(),
            mtu_bytes: None,
            duplicate: Percent::default(),
            corrupt: Percent::default(),
            queue: Discipline::DropTail,
            queue_bytes: DEFAULT_QUEUE_BYTES,
            queue_packets: None,
            ecn: false,
        }
    }
}
