//! How long the file may be: as the user allows, and as its disk has room.

use std::fs::File;

use anyhow::ensure;
use rustix::fs::fstatvfs;

/// The part of the free space that stays free.
const KEPT: u64 = 20;

/// The limits of a file's length, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Limit {
    /// The user's.
    max: Option<u64>,
    /// What its disk had room for when it was begun; `None` for what is no file on a disk.
    room: Option<u64>,
}

impl Limit {
    /// The limits of an open file.
    pub(crate) fn of(file: &File, max: Option<u64>) -> Self {
        let stored = file.metadata().is_ok_and(|found| found.is_file());
        let disk = fstatvfs(file).ok();
        // Some file systems do not tell their size.
        let disk = disk.filter(|disk| stored && disk.f_blocks > 0);
        let free = disk.map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        Self { max, room: free.map(|free| free - free / KEPT) }
    }

    /// Checks the length that the server announces.
    ///
    /// # Errors
    /// The file would be too long.
    pub(crate) fn check_announced(&self, bytes: u64) -> anyhow::Result<()> {
        if let Some(max) = self.max {
            ensure!(bytes <= max, "the file has {bytes} bytes, and --max-bytes is {max}: raise it");
        }
        if let Some(room) = self.room {
            ensure!(
                bytes <= room,
                "the file has {bytes} bytes, and its disk has room for {room}: free some, or \
                 choose another place with -o FILE"
            );
        }
        Ok(())
    }

    /// Checks how many bytes have arrived.
    ///
    /// # Errors
    /// The file is too long.
    pub(crate) fn check_arrived(&self, bytes: u64) -> anyhow::Result<()> {
        if let Some(max) = self.max {
            ensure!(bytes <= max, "the file is longer than --max-bytes {max}: raise it");
        }
        if let Some(room) = self.room {
            ensure!(
                bytes <= room,
                "the file is longer than the {room} bytes for which its disk had room: free some, \
                 or choose another place with -o FILE"
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_has_a_disk() {
        let file = tempfile::tempfile().unwrap();
        assert!(Limit::of(&file, None).room.is_some());
        let device = File::options().write(true).open("/dev/null").unwrap();
        assert!(Limit::of(&device, None).room.is_none());
    }
}
