//! Removes the unfinished files of a killed server.
//!
//! A server holds a shared lock on its directory while it runs. If it gets an exclusive lock at its
//! start, no other server runs there, and no program will finish the unfinished files.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use tracing::{info, warn};

use crate::store::{PART, TEMPORARY};

/// Prevents other servers from removing unfinished files. `None` if the directory cannot be locked.
#[derive(Debug)]
pub(crate) struct Claim(#[allow(dead_code, reason = "held for its lock")] Option<File>);

/// Removes leftovers in `dir`, and claims it.
pub(crate) fn claim(dir: &Path) -> Claim {
    match try_claim(dir) {
        Ok(lock) => Claim(Some(lock)),
        Err(error) => {
            // Some network file systems do not support locks.
            warn!(%error, "cannot lock the directory: the unfinished files of killed servers stay");
            Claim(None)
        }
    }
}

fn try_claim(dir: &Path) -> io::Result<File> {
    let lock = File::open(dir)?;
    match lock.try_lock() {
        Ok(()) => remove(dir),
        // Another server runs, or starts. The shared lock waits until that one has removed
        // leftovers.
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(error),
    }
    lock.lock_shared()?;
    Ok(lock)
}

fn remove(dir: &Path) {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => {
            return warn!(%error, "cannot search for the unfinished files of killed servers");
        }
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let ours = name.as_bytes().strip_prefix(TEMPORARY.as_bytes());
        let ours = ours.is_some_and(|rest| rest.ends_with(PART.as_bytes()));
        if !ours || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        match fs::remove_file(entry.path()) {
            Ok(()) => info!(?name, "removed an unfinished file of a killed server"),
            Err(error) => {
                warn!(?name, %error, "cannot remove an unfinished file of a killed server");
            }
        }
    }
}
