//! Which repair suits the path.

use crate::config::{Mode, Paper};
use std::fmt;

/// The repair that the latest loss called for in [`Mode::Auto`], and why. `Display` writes both.
///
/// It judges that loss alone. `Auto` stops re-injecting by a mean, so for some reports it can do
/// otherwise ([`Mode::Auto`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The mode whose repair is used: [`Mode::Reinject`], or early loss.
    pub mode: Mode,
    /// Why.
    pub why: Why,
}

/// Why [`Mode::Auto`] uses its present repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// No packet was lost before the proxy yet.
    NoLoss,
    /// Packets are lost before the proxy at any load, and no queue stands there.
    RandomLoss,
    /// Packets are lost before the proxy, most of them because of the load: that is congestion,
    /// although no queue stands.
    Load,
    /// Packets are lost before the proxy while a queue stands there: that is congestion.
    NearQueue,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoLoss => "nothing was lost before the proxy",
            Self::RandomLoss => "packets are lost before the proxy, and no queue stands there",
            Self::Load => "packets are lost before the proxy, and more of them at higher loads",
            Self::NearQueue => "packets are lost before the proxy, and a queue stands there",
        })
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.mode, self.why)
    }
}

const EARLY_LOSS: Mode = Mode::Paper(Paper::EarlyLoss);

impl Chosen {
    /// The repair before the first loss.
    pub(crate) const FIRST: Self = Self { mode: Mode::Reinject, why: Why::NoLoss };

    /// The repair for packets that were lost before the proxy: `queued` states whether a queue
    /// stands there, and `loaded` whether most losses are due to the load.
    ///
    /// The distance to the proxy does not matter. The connection repairs only what the receiver's
    /// acknowledgements have not shown lost. So a late report costs nothing, and an early one hides
    /// the loss from the controller.
    pub(crate) fn for_loss(queued: bool, loaded: bool) -> Self {
        let (mode, why) = match (queued, loaded) {
            (true, _) => (EARLY_LOSS, Why::NearQueue),
            (false, true) => (EARLY_LOSS, Why::Load),
            (false, false) => (Mode::Reinject, Why::RandomLoss),
        };
        Self { mode, why }
    }
}
