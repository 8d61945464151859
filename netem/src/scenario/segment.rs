//! Sections `near` and `far`: one segment of the path.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::ScenarioError;
use crate::link::{
    CoDelConfig, DEFAULT_QUEUE_BYTES, Discipline, Jitter, LinkConfig, LossModel, Outages,
    RedParameters, Trace,
};
use crate::units::{BitRate, Percent};

mod table;

pub(super) use table::SETTINGS;

/// One segment of the path. Its directions differ in their random loss at most.
#[derive(Clone, Debug, PartialEq)]
pub struct Segment {
    /// One-way delay.
    pub delay: Duration,
    /// What the delay varies by.
    pub jitter: Jitter,
    /// Chance of each packet to be spared the delay.
    pub reorder: Percent,
    /// Rate of each direction; `None` is no limit.
    pub rate: Option<BitRate>,
    /// A trace instead of the rate of each direction.
    pub trace: Option<TraceFile>,
    /// Bytes that each packet takes on the line beside those of its Ethernet frame.
    pub overhead_bytes: u64,
    /// Random loss of each direction, where it is not overridden.
    pub loss: Percent,
    /// Random loss towards the receiver, if it is another.
    pub loss_to: Option<Percent>,
    /// Random loss from the receiver, if it is another.
    pub loss_from: Option<Percent>,
    /// Chance of a packet to share the fate of the one before it.
    pub loss_correlation: Percent,
    /// The bad state of the Gilbert-Elliott model.
    pub bad_state: BadState,
    /// Chance of each packet to come twice.
    pub duplicate: Percent,
    /// Chance of each packet to be damaged.
    pub corrupt: Percent,
    /// What the queue of each direction drops.
    pub queue: Queue,
    /// Bytes of the queue of each direction.
    pub queue_bytes: u64,
    /// Packets of the queue of each direction; `None` is no limit.
    pub queue_packets: Option<u64>,
    /// Parameters of CoDel.
    pub codel: CoDelConfig,
    /// Whether RED and CoDel mark where they can.
    pub ecn: bool,
    /// Largest IP packet that passes, in bytes.
    pub mtu_bytes: Option<u64>,
    /// Outages of both directions.
    pub outages: Outages,
}

/// The bad state of the Gilbert-Elliott model. With no chance to come to it, there is none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BadState {
    /// Chance, with each packet, to go over to it.
    pub enter: Percent,
    /// Chance, with each packet, to leave it.
    pub leave: Percent,
    /// Chance of a packet to be lost in it.
    pub loss: Percent,
}

/// What the queue of a segment drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queue {
    /// What has no room.
    #[default]
    DropTail,
    /// Random early detection.
    Red,
    /// Controlled delay.
    CoDel,
}

impl Queue {
    /// Its name in a scenario.
    pub fn name(self) -> &'static str {
        match self {
            Self::DropTail => "drop-tail",
            Self::Red => "red",
            Self::CoDel => "codel",
        }
    }
}

/// A trace and where it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceFile {
    /// The path as it was given.
    pub path: PathBuf,
    /// What the file says; `None` until it has been read.
    trace: Option<Arc<Trace>>,
}

/// A direction along the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the sender to the receiver.
    ToReceiver,
    /// From the receiver to the sender.
    ToSender,
}

impl Segment {
    /// The link of one direction.
    pub fn link(&self, direction: Direction) -> LinkConfig {
        let loss = match direction {
            Direction::ToReceiver => self.loss_to,
            Direction::ToSender => self.loss_from,
        };
        let BadState { enter, leave, loss: bad_loss } = self.bad_state;
        let loss_model = if enter.get() > 0.0 {
            LossModel::GilbertElliott { to_bad: enter, to_good: leave, bad_loss }
        } else if self.loss_correlation.get() > 0.0 {
            LossModel::Correlated(self.loss_correlation)
        } else {
            LossModel::Independent
        };
        LinkConfig {
            delay: self.delay,
            jitter: self.jitter,
            reorder: self.reorder,
            rate: self.rate,
            trace: self.trace.as_ref().and_then(|file| file.trace.clone()),
            overhead_bytes: self.overhead_bytes,
            loss: loss.unwrap_or(self.loss),
            loss_model,
            outages: self.outages.clone(),
            mtu_bytes: self.mtu_bytes,
            duplicate: self.duplicate,
            corrupt: self.corrupt,
            queue: match self.queue {
                Queue::DropTail => Discipline::DropTail,
                Queue::Red => Discipline::Red,
                Queue::CoDel => Discipline::CoDel(self.codel),
            },
            queue_bytes: self.queue_bytes,
            queue_packets: self.queue_packets,
            ecn: self.ecn,
        }
    }

    /// Reads the trace if it has not been read; its path counts from `directory`.
    pub(super) fn read_trace(&mut self, directory: &Path) -> Result<(), ScenarioError> {
        if let Some(file) = self.trace.as_mut().filter(|file| file.trace.is_none()) {
            file.trace = Some(Arc::new(Trace::read(&directory.join(&file.path))?));
        }
        Ok(())
    }

    /// Checks that the settings of section `section` go together.
    pub(super) fn check(&self, section: &str) -> Result<(), ScenarioError> {
        let contradiction = |one: String, other: &str, instead: &str| {
            let [one, other] = [one.as_str(), other].map(|setting| format!("{section}.{setting}"));
            Err(ScenarioError::Contradiction { one, other, instead: instead.to_owned() })
        };
        if let (Some(rate), Some(file)) = (self.rate, &self.trace) {
            let one = format!("trace = {}", file.path.display());
            let other = format!("rate_mbit = {}", rate.bits_per_second() as f64 / 1e6);
            return contradiction(one, &other, "set the rate to unlimited, or the trace to none");
        }
        if self.reorder.get() > 0.0 && self.delay.is_zero() {
            let one = format!("reorder_percent = {}", self.reorder.get());
            return contradiction(one, "delay_ms = 0", "set a delay for others to be overtaken in");
        }
        if self.bad_state.enter.get() > 0.0 {
            let one = format!("bad_enter_percent = {}", self.bad_state.enter.get());
            if self.bad_state.leave.get() == 0.0 {
                return contradiction(
                    one,
                    "bad_leave_percent = 0",
                    "set a chance to leave the bad state",
                );
            }
            if self.loss_correlation.get() > 0.0 {
                let other = format!("loss_correlation_percent = {}", self.loss_correlation.get());
                return contradiction(one, &other, "set one of them to 0");
            }
        }
        if self.queue == Queue::Red && self.queue_bytes < RedParameters::LEAST_QUEUE_BYTES {
            let other = format!("queue_bytes = {}", self.queue_bytes);
            let instead =
                format!("set the queue to {} bytes at least", RedParameters::LEAST_QUEUE_BYTES);
            return contradiction("queue = red".to_owned(), &other, &instead);
        }
        if self.ecn && self.queue == Queue::DropTail {
            let instead = "a full queue has nothing to mark; set queue to red or codel";
            return contradiction("ecn = on".to_owned(), "queue = drop-tail", instead);
        }
        Ok(())
    }
}

impl Default for Segment {
    fn default() -> Self {
        let LinkConfig {
            delay,
            jitter,
            reorder,
            rate,
            overhead_bytes,
            loss,
            outages,
            mtu_bytes,
            duplicate,
            corrupt,
            queue_packets,
            ecn,
            ..
        } = LinkConfig::default();
        let bad_loss = Percent::new(100.0).unwrap_or_default();
        Self {
            delay,
            jitter,
            reorder,
            rate,
            trace: None,
            overhead_bytes,
            loss,
            loss_to: None,
            loss_from: None,
            loss_correlation: Percent::default(),
            bad_state: BadState {
                enter: Percent::default(),
                leave: Percent::default(),
                loss: bad_loss,
            },
            duplicate,
            corrupt,
            queue: Queue::default(),
            queue_bytes: DEFAULT_QUEUE_BYTES,
            queue_packets,
            codel: CoDelConfig::default(),
            ecn,
            mtu_bytes,
            outages,
        }
    }
}

#[cfg(test)]
mod tests;
