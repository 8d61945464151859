//! The SHA-256 of files, from their upload or their last download.
//!
//! The digest of an answer stands before the file. Hashing a large file takes longer than a client
//! waits for the first byte. So the server hashes such a file while it passes through, and
//! announces the hash at the next download.

use std::collections::VecDeque;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, PoisonError};

/// The longest file that is hashed at each download before it is sent, in bytes. That takes a few
/// milliseconds.
pub(crate) const SMALL: u64 = 1024 * 1024;
/// The files whose hash is remembered. A search through all of them takes microseconds.
const MOST: usize = 1024;

/// The SHA-256 of a file.
pub(crate) type Sha256 = [u8; 32];

/// A file with one content. Each change of the content changes it, because no program can set the
/// time of the last change of status. The kernel counts that time in steps of a few milliseconds.
/// Only a change within one step of the previous one escapes, so small files are not remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// The device and the inode.
    file: (u64, u64),
    /// The length in bytes.
    pub(crate) bytes: u64,
    /// The seconds and nanoseconds of the last changes, of the content and of the status.
    changed: [i64; 4],
}

impl From<&Metadata> for Version {
    fn from(found: &Metadata) -> Self {
        Self {
            file: (found.dev(), found.ino()),
            bytes: found.len(),
            changed: [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()],
        }
    }
}

/// The hashes that the server knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Digests(Arc<Mutex<VecDeque<(Version, Sha256)>>>);

impl Digests {
    /// The hash of this version of a file, if known.
    pub(crate) fn get(&self, version: &Version) -> Option<Sha256> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|(of, _)| of == version).map(|&(_, sha256)| sha256)
    }

    /// Remembers a hash. It replaces that of an earlier version, or the oldest of all.
    pub(crate) fn remember(&self, version: Version, sha256: Sha256) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(of, _)| of.file != version.file);
        known.truncate(MOST - 1);
        known.push_front((version, sha256));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_changed_file_has_no_hash() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::write(&path, "abc").unwrap();
        let version = || Version::from(&fs::metadata(&path).unwrap());
        let digests = Digests::default();
        digests.remember(version(), [1; 32]);
        assert_eq!(digests.get(&version()), Some([1; 32]));
        // The length and the inode stay.
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1)).unwrap();
        assert_eq!(digests.get(&version()), None);
        digests.remember(version(), [2; 32]);
        assert_eq!(digests.get(&version()), Some([2; 32]));
        assert_eq!(digests.0.lock().unwrap().len(), 1);
        // Another file of the same length.
        fs::write(dir.path().join("y"), "abd").unwrap();
        fs::rename(dir.path().join("y"), &path).unwrap();
        assert_eq!(digests.get(&version()), None);
    }

    #[test]
    fn the_oldest_hash_is_forgotten() {
        let digests = Digests::default();
        let at = |inode| Version { file: (0, inode), bytes: 0, changed: [0; 4] };
        for inode in 0..=MOST as u64 {
            digests.remember(at(inode), [0; 32]);
        }
        assert_eq!(digests.0.lock().unwrap().len(), MOST);
        assert_eq!(digests.get(&at(0)), None);
        assert!(digests.get(&at(1)).is_some() && digests.get(&at(MOST as u64)).is_some());
    }
}
