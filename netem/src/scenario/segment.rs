//! Sections `near`, `middle` and `far`: one segment of the path.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::ScenarioError;
use super::check::clash;
use super::setting::named;
use crate::link::{
    CoDelConfig, Discipline, Fading, Handovers, LinkConfig, LossModel, RedParameters, Replay,
    Retries, Trace, replay,
};
use crate::units::{BitRate, Percent};

mod table;

pub(super) use table::SETTINGS;

/// One segment of the path. Its directions can differ in their rate, their random loss and their
/// policer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Segment {
    /// The common settings of both directions. [`Segment::link`] adds those that follow from the
    /// other fields.
    pub both: LinkConfig,
    /// A trace in place of the rate of each direction.
    pub trace: Option<TraceFile>,
    /// A recording that both directions replay.
    pub replay: Option<ReplayFile>,
    /// Rate towards the receiver, if it differs. `Some(None)` is no limit.
    pub rate_to: Option<Option<BitRate>>,
    /// Rate towards the sender, if it differs.
    pub rate_from: Option<Option<BitRate>>,
    /// Random loss towards the receiver, if it differs.
    pub loss_to: Option<Percent>,
    /// Random loss towards the sender, if it differs.
    pub loss_from: Option<Percent>,
    /// Rate of the policer towards the receiver, if it differs. `Some(None)` is no policer.
    pub policer_to: Option<Option<BitRate>>,
    /// Rate of the policer towards the sender, if it differs.
    pub policer_from: Option<Option<BitRate>>,
    /// Chance of a packet to have the same fate as the previous one.
    pub loss_correlation: Percent,
    /// The bad state of the Gilbert-Elliott model, or of a link that fades.
    pub bad_state: BadState,
    /// How often a lost frame is sent again at most. If 0, the next field has no meaning.
    pub retries: u32,
    /// How long after the previous transmission.
    pub retry_after: Duration,
    /// Handovers. If they are every 0 s, there are none.
    pub handovers: Handovers,
    /// The discipline of each direction's queue.
    pub queue: Queue,
    /// Parameters of CoDel.
    pub codel: CoDelConfig,
}

/// A link's bad state. Packets lead to it and out of it by the chances of the Gilbert-Elliott
/// model, if the chance to enter it is above 0, or time does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BadState {
    /// Chance of each packet to enter the bad state.
    pub enter: Percent,
    /// Chance of each packet to leave the bad state.
    pub leave: Percent,
    /// The mean times in the good and in the bad state of a link that fades. If both are 0, it does
    /// not.
    pub good: Duration,
    /// See `good`.
    pub bad: Duration,
    /// Chance of a packet to be lost in the bad state.
    pub loss: Percent,
    /// The rate that is left in the bad state of a link that fades.
    pub rate: Percent,
}

impl Default for BadState {
    fn default() -> Self {
        let all = Percent::new(100.0).unwrap_or_default();
        Self {
            enter: Percent::default(),
            leave: Percent::default(),
            good: Duration::ZERO,
            bad: Duration::ZERO,
            loss: all,
            rate: all,
        }
    }
}

named! {
    /// The discipline of a segment's queue.
    #[derive(Default)]
    pub enum Queue {
        /// Drops the packets that do not fit.
        #[default]
        DropTail = "drop-tail",
        /// Random early detection.
        Red = "red",
        /// Controlled delay.
        CoDel = "codel",
    }
}

/// A trace and the path of its file.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceFile {
    /// The path, as the setting has it.
    pub path: PathBuf,
    /// The trace; `None` until the file has been read.
    trace: Option<Arc<Trace>>,
}

/// A recording and the path of its file.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayFile {
    /// The path, as the setting has it.
    pub path: PathBuf,
    /// What towards the receiver and towards the sender replay; `None` until the file has been
    /// read.
    directions: Option<[Arc<Replay>; 2]>,
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
        let (rate, loss, policer) = match direction {
            Direction::ToReceiver => (self.rate_to, self.loss_to, self.policer_to),
            Direction::ToSender => (self.rate_from, self.loss_from, self.policer_from),
        };
        let BadState { enter, leave, good, bad, loss: bad_loss, rate: bad_rate } = self.bad_state;
        let Handovers { every, .. } = self.handovers;
        let retries = Retries { most: self.retries, after: self.retry_after };
        let loss_model = if enter.get() > 0.0 {
            LossModel::GilbertElliott { to_bad: enter, to_good: leave, bad_loss }
        } else if self.loss_correlation.get() > 0.0 {
            LossModel::Correlated(self.loss_correlation)
        } else {
            LossModel::Independent
        };
        let directions = self.replay.as_ref().and_then(|file| file.directions.clone());
        let replay = directions.map(|[up, down]| match direction {
            Direction::ToReceiver => up,
            Direction::ToSender => down,
        });
        LinkConfig {
            rate: rate.unwrap_or(self.both.rate),
            trace: self.trace.as_ref().and_then(|file| file.trace.clone()),
            loss: loss.unwrap_or(self.both.loss),
            loss_model,
            fading: (!bad.is_zero()).then_some(Fading {
                good,
                bad,
                loss: bad_loss,
                rate: bad_rate,
            }),
            replay,
            retries: (self.retries > 0).then_some(retries),
            handovers: (!every.is_zero()).then_some(self.handovers),
            policer: policer.unwrap_or(self.both.policer),
            queue: match self.queue {
                Queue::DropTail => Discipline::DropTail,
                Queue::Red => Discipline::Red,
                Queue::CoDel => Discipline::CoDel(self.codel),
            },
            ..self.both.clone()
        }
    }

    /// Reads the trace and the recording if necessary. A relative path counts from `directory`.
    pub(super) fn read_files(&mut self, directory: &Path) -> Result<(), ScenarioError> {
        if let Some(file) = self.trace.as_mut().filter(|file| file.trace.is_none()) {
            file.trace = Some(Arc::new(Trace::read(&directory.join(&file.path))?));
        }
        if let Some(file) = self.replay.as_mut().filter(|file| file.directions.is_none()) {
            file.directions = Some(Replay::both(&replay::read(&directory.join(&file.path))?));
        }
        Ok(())
    }

    /// Checks that the settings of section `section` fit each other.
    pub(super) fn check(&self, section: &str) -> Result<(), ScenarioError> {
        let contradiction = |one: String, other: &str, instead: &str| {
            clash(format!("{section}.{one}"), format!("{section}.{other}"), instead)
        };
        let rates = [self.both.rate, self.rate_to.flatten(), self.rate_from.flatten()];
        let rate = rates.into_iter().flatten().next();
        if let (Some(rate), Some(file)) = (rate, &self.trace) {
            let one = format!("trace = {}", file.path.display());
            let other = format!("rate_mbit = {}", rate.bits_per_second() as f64 / 1e6);
            return contradiction(one, &other, "set the rate to unlimited, or the trace to none");
        }
        if self.both.reorder.get() > 0.0 && self.both.delay.is_zero() {
            let one = format!("reorder_percent = {}", self.both.reorder.get());
            return contradiction(
                one,
                "delay_ms = 0",
                "set a delay, in which packets can overtake",
            );
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
        let BadState { good, bad, .. } = self.bad_state;
        if good.is_zero() != bad.is_zero() {
            let other = format!("bad_ms = {}", ms(bad));
            let instead = "a link that fades is good and bad by turns; set both, or none";
            return contradiction(format!("good_ms = {}", ms(good)), &other, instead);
        }
        if !bad.is_zero() && self.bad_state.enter.get() > 0.0 {
            let one = format!("bad_enter_percent = {}", self.bad_state.enter.get());
            return contradiction(one, &format!("bad_ms = {}", ms(bad)), "leave one of them out");
        }
        let Handovers { every, outage: (shortest, longest), .. } = self.handovers;
        if !every.is_zero() && longest > every {
            let other = format!("handover_ms = {}-{}", ms(shortest), ms(longest));
            let instead = "set an interval that is longer than the outages";
            return contradiction(format!("handover_every_ms = {}", ms(every)), &other, instead);
        }
        self.check_alone(section)?;
        if self.queue == Queue::Red && self.both.queue_bytes < RedParameters::LEAST_QUEUE_BYTES {
            let other = format!("queue_bytes = {}", self.both.queue_bytes);
            let instead =
                format!("set the queue to {} bytes at least", RedParameters::LEAST_QUEUE_BYTES);
            return contradiction("queue = red".to_owned(), &other, &instead);
        }
        if self.both.ecn && self.queue == Queue::DropTail {
            let instead = "a drop-tail queue marks no packets; set queue to red or codel";
            return contradiction("ecn = on".to_owned(), "queue = drop-tail", instead);
        }
        Ok(())
    }

    /// Checks the settings that do nothing without others.
    fn check_alone(&self, section: &str) -> Result<(), ScenarioError> {
        let Handovers { every, outage: (shortest, longest), delay } = self.handovers;
        let BadState { enter, bad, loss, rate, .. } = self.bad_state;
        let all = BadState::default();
        let hands_over = !longest.is_zero() || !delay.is_zero();
        let alone = [
            (
                every.is_zero() && !longest.is_zero(),
                format!("handover_ms = {}-{}", ms(shortest), ms(longest)),
                "handover_every_ms = 0",
                "set the interval of the handovers, or handover_ms to 0-0",
            ),
            (
                every.is_zero() && !delay.is_zero(),
                format!("handover_delay_ms = {}", ms(delay)),
                "handover_every_ms = 0",
                "set the interval of the handovers, or handover_delay_ms to 0",
            ),
            (
                !every.is_zero() && !hands_over,
                format!("handover_every_ms = {}", ms(every)),
                "handover_ms = 0-0",
                "set what a handover does: handover_ms, handover_delay_ms, or both",
            ),
            (
                bad.is_zero() && enter.get() == 0.0 && loss != all.loss,
                format!("bad_loss_percent = {}", loss.get()),
                "a link without a bad state",
                "set good_ms and bad_ms, or leave it out",
            ),
            (
                bad.is_zero() && rate != all.rate,
                format!("bad_rate_percent = {}", rate.get()),
                "a link that does not fade",
                "set good_ms and bad_ms, or leave it out",
            ),
            (
                self.retries == 0 && !self.retry_after.is_zero(),
                format!("retry_ms = {}", ms(self.retry_after)),
                "retries = 0",
                "set how often a frame is sent again, or retry_ms to 0",
            ),
        ];
        match alone.into_iter().find(|(is_alone, ..)| *is_alone) {
            None => Ok(()),
            Some((_, one, other, instead)) => {
                // What is no setting has no section.
                let other = if other.contains('=') {
                    format!("{section}.{other}")
                } else {
                    other.to_owned()
                };
                clash(format!("{section}.{one}"), other, instead)
            }
        }
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests;
