//! What a killed server left in the directory.
//!
//! A server holds a shared lock on its directory for as long as it runs. Where one can lock it for
//! itself alone at its start, no other server runs there, and no program would finish what
//! is unfinished.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use tracing::{info, warn};

use crate::store::{PART, TEMPORARY};

/// Keeps other servers from removing unfinished files. `None` where the directory cannot be locked.
#[derive(Debug)]
pub(crate) struct Claim(#[allow(dead_code, reason = "held for its lock")] Option<File>);

/// Removes what is left over in `dir`, and claims it.
pub(crate) fn claim(dir: &Path) -> Claim {
    match try_claim(dir) {
        Ok(lock) => Claim(Some(lock)),
        Err(error) => {
            // Some network file systems have no locks.
            warn!(%error, "cannot lock the directory: what a killed server left there stays");
            Claim(None)
        }
    }
}

fn try_claim(dir: &Path) -> io::Result<File> {
    let lock = File::open(dir)?;
    match lock.try_lock() {
        Ok(()) => remove(dir),
        // Another server runs, or starts: then this waits until it has removed what there was.
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(error),
    }
    lock.lock_shared()?;
    Ok(lock)
}

fn remove(dir: &Path) {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => return warn!(%error, "cannot look for what a killed server left"),
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
