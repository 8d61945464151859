//! Giving up the privileges that a running proxy does not need.

use anyhow::{Context, Result};
use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;

/// The capability that stays: the proxy reopens an interface that comes back.
const KEPT: Capability = Capability::CAP_NET_RAW;

/// Gives up all capabilities but CAP_NET_RAW, and all ways to gain others. Call this when
/// everything is open, and before any other thread starts: each thread has capabilities of its own,
/// and inherits those of its creator.
///
/// # Errors
/// When the system does not allow it.
pub(crate) fn confine() -> Result<()> {
    prctl::set_no_new_privs().context("cannot forbid new privileges")?;
    drop_all_but_kept().context("cannot give up capabilities")
}

fn drop_all_but_kept() -> Result<()> {
    let kept = CapsHashSet::from([KEPT]);
    let beyond = |set: &CapsHashSet| set.iter().any(|capability| *capability != KEPT);
    caps::clear(None, CapSet::Ambient)?;
    // This set bounds the capabilities that an execve could gain. The change requires CAP_SETPCAP,
    // and so comes first.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        for capability in caps::read(None, CapSet::Bounding)? {
            if capability != KEPT {
                caps::drop(None, CapSet::Bounding, capability)?;
            }
        }
    }
    // Effective first: it must be a subset of permitted.
    for set in [CapSet::Effective, CapSet::Permitted] {
        let held = caps::read(None, set)?;
        if beyond(&held) {
            caps::set(None, set, &held.intersection(&kept).copied().collect())?;
        }
    }
    let inheritable = caps::read(None, CapSet::Inheritable)?;
    if let Err(error) = caps::clear(None, CapSet::Inheritable)
        && beyond(&inheritable)
    {
        // CAP_NET_RAW may stay in this set, since the process keeps it anyway. A service manager
        // that grants only this capability may forbid capset(2), too.
        return Err(error.into());
    }
    Ok(())
}
