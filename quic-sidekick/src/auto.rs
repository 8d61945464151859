//! Which repair suits the path.

use crate::Mode;
use crate::measured::Measured;
use std::fmt;

/// The repair that [`Mode::Auto`] uses now, and why. `Display` writes both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The mode whose repair is used.
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
    /// Packets are lost before the proxy, where no queue grows.
    RandomLoss,
    /// Packets are lost before the proxy while a queue grows there: that is congestion.
    NearQueue,
    /// The near segment is the larger part of the path.
    FarProxy,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoLoss => "nothing was lost before the proxy",
            Self::RandomLoss => "packets are lost before the proxy, and no queue grows there",
            Self::NearQueue => "packets are lost before the proxy because a queue there is full",
            Self::FarProxy => "the proxy is nearer to the receiver than to this end",
        })
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.mode, self.why)
    }
}

impl Chosen {
    /// The repair before the first loss.
    pub(crate) const FIRST: Self = Self { mode: Mode::Reinject, why: Why::NoLoss };

    /// The repair for packets that were lost before the proxy. `congested` states whether the near
    /// segment counts as congested.
    pub(crate) fn for_loss(measured: Measured, congested: bool) -> Self {
        let (mode, why) = if congested {
            (Mode::EarlyLoss, Why::NearQueue)
        } else if measured.is_far_proxy() {
            (Mode::EarlyLoss, Why::FarProxy)
        } else {
            (Mode::Reinject, Why::RandomLoss)
        };
        Self { mode, why }
    }
}
