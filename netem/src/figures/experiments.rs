//! The experiments: those of a paper, or one, in each file.

use super::job::Case;
use super::model::{Axis, Curve, Experiment};
use super::quantity::{Measure, Quantity};
use super::sender::Sender;
use crate::record::RunRecord;
use crate::words;

mod audio;
mod backends;
mod download;
mod first_byte;
mod heat;
mod links;
mod packrat;
mod parity;
mod sec_quic;
mod sidekick;
mod smaq;
mod upload;

/// How many runs an experiment has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// For a first look: under three minutes on two cores.
    Quick,
    /// Everything: under thirty minutes.
    Whole,
}

impl Scope {
    /// Chooses between the value for the quick scope and that for the whole one.
    fn pick<T>(self, quick: T, whole: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Whole => whole,
        }
    }
}

/// All experiments, in the order of the page. `others` are records of other backends.
pub fn all(scope: Scope, others: &[RunRecord]) -> Vec<Experiment> {
    let [wifi, cellular, satellite] =
        packrat::NETWORKS.map(|network| packrat::experiment(scope, network));
    vec![
        upload::by_loss(scope),
        upload::by_size(scope),
        download::by_loss(scope),
        download::by_size(scope),
        wifi,
        cellular,
        satellite,
        parity::experiment(scope),
        audio::experiment(scope),
        sidekick::ack_reduction(scope),
        sidekick::fairness(scope),
        sidekick::congestion_window(scope),
        sidekick::quack_bytes(scope),
        heat::experiment(scope),
        smaq::experiment(scope),
        links::experiment(scope),
        sec_quic::experiment(scope),
        first_byte::experiment(scope),
        backends::experiment(others),
    ]
}

const GOODPUT: Axis = Axis::linear("goodput, Mbit/s", 2);

/// The curve of a sender: one case for each x.
fn sender_curve(
    sender: &Sender,
    measure: Measure,
    cases: impl IntoIterator<Item = (f64, Case)>,
) -> Curve {
    let points = cases.into_iter().map(|(x, case)| (x, Quantity::Of(sender.of(&case), measure)));
    Curve::measured(sender.name, sender.colour, points)
}

#[cfg(test)]
mod tests;
