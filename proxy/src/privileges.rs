//! What the process may do, given up as far as it can be.

use anyhow::{Context, Result};
use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::prctl;

/// What stays: an interface that comes back is opened again.
const KEPT: Capability = Capability::CAP_NET_RAW;

/// Gives up all capabilities but CAP_NET_RAW, and any way to gain others. To be called when
/// everything is open, and before there is any other thread: each has capabilities of its own, and
/// hands them to those that it starts.
///
/// # Errors
/// When there is something to give up, and the system does not let it go.
pub(crate) fn confine() -> Result<()> {
    prctl::set_no_new_privs().context("cannot do without new privileges")?;
    drop_all_but_kept().context("cannot give up capabilities")
}

fn drop_all_but_kept() -> Result<()> {
    let kept = CapsHashSet::from([KEPT]);
    let beyond = |set: &CapsHashSet| set.iter().any(|capability| *capability != KEPT);
    caps::clear(None, CapSet::Ambient)?;
    // Bounds what an execve could gain; there will be none. It takes CAP_SETPCAP, and so comes
    // before that is gone.
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        for capability in caps::read(None, CapSet::Bounding)? {
            if capability != KEPT {
                caps::drop(None, CapSet::Bounding, capability)?;
            }
        }
    }
    // Effective first, which has to be a part of the permitted.
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
        // What is kept anyway may stay in it: a service manager that grants no more may forbid
        // capset(2), too.
        return Err(error.into());
    }
    Ok(())
}
