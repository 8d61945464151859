//! A directory in which only complete files appear.

use std::ffi::OsStr;
use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, ensure};
use rustix::fs::OFlags;
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};
use tempfile::TempPath;
use thiserror::Error;
use tokio::fs::File;
use tokio::io::{AsyncWriteExt as _, BufWriter};
use tracing::{info, warn};

use crate::digests::{Digests, SMALL, Version};
use crate::limits::Limits;
use crate::text::hex;

/// The beginning and the end of an unfinished file's name. The name is hidden, and no client's file
/// can have one like it (`name.rs`).
const TEMPORARY: &str = ".h3-upload-";
const PART: &str = ".part";

/// The size of a write, in bytes. A body may arrive in pieces of one byte.
const BUFFER: usize = 32 * 1024;

/// Why a file was not stored.
#[derive(Debug, Error)]
pub(crate) enum StoreError {
    #[error("this server accepts at most {0} bytes")]
    TooLong(u64),
    #[error("the server has {0} bytes for unfinished files, and too few are free: try again later")]
    NoRoom(u64),
    #[error("the server cannot store the file: {0}")]
    Io(#[from] io::Error),
}

/// The directory of the files, and their limits.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    dir: Arc<Path>,
    max_bytes: u64,
    room: Arc<Room>,
    /// The hashes of the files.
    pub(crate) digests: Digests,
    /// While it exists, no other server removes unfinished files as leftovers.
    _claim: Arc<Claim>,
}

/// The bytes of all unfinished files.
#[derive(Debug)]
struct Room {
    most: u64,
    used: AtomicU64,
}

impl Room {
    /// Checks whether `bytes` more would fit.
    fn check(&self, bytes: u64) -> Result<(), StoreError> {
        let left = self.most.saturating_sub(self.used.load(Ordering::Relaxed));
        if bytes > left { Err(StoreError::NoRoom(self.most)) } else { Ok(()) }
    }

    fn take(&self, bytes: u64) -> Result<(), StoreError> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.most);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(_) => Err(StoreError::NoRoom(self.most)),
        }
    }

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Store {
    /// Checks that files can be created in `dir`, and removes the leftovers of killed servers.
    pub(crate) fn new(dir: &Path, limits: &Limits) -> anyhow::Result<Self> {
        ensure!(
            dir.is_dir(),
            "{} is not a directory: create it, or name another with --dir",
            dir.display()
        );
        let claim = claim(dir);
        temporary(dir).with_context(|| {
            format!(
                "cannot write to {}: allow it, or name another directory with --dir",
                dir.display()
            )
        })?;
        Ok(Self {
            dir: dir.into(),
            max_bytes: limits.max_bytes.unwrap_or(u64::MAX),
            room: Arc::new(Room { most: limits.max_unfinished_bytes, used: AtomicU64::new(0) }),
            digests: Digests::default(),
            _claim: Arc::new(claim),
        })
    }

    /// Checks whether a file of `bytes` is within the limit.
    pub(crate) fn check_length(&self, bytes: u64) -> Result<(), StoreError> {
        if bytes > self.max_bytes { Err(StoreError::TooLong(self.max_bytes)) } else { Ok(()) }
    }

    /// Opens the complete file of this name, which must be one that a client may store. `None` if
    /// no such file exists. The call follows no link, and does not block on a pipe.
    pub(crate) fn open(&self, name: &OsStr) -> io::Result<Option<fs::File>> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(flags.cast_signed())
            .open(self.dir.join(name));
        match opened {
            Ok(file) => Ok(file.metadata()?.is_file().then_some(file)),
            Err(error) => match Errno::from_io_error(&error) {
                // ENXIO is a socket's.
                Some(Errno::NOENT | Errno::LOOP | Errno::NXIO) => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Begins a file of the `announced` length. If it is dropped without [`Upload::finish`], it
    /// leaves no trace.
    pub(crate) fn begin(&self, announced: Option<u64>) -> Result<Upload, StoreError> {
        self.room.check(announced.unwrap_or(0))?;
        let (file, path) = temporary(&self.dir)?.into_parts();
        Ok(Upload {
            store: self.clone(),
            file: BufWriter::with_capacity(BUFFER, File::from_std(file)),
            path: Some(path),
            hash: Sha256::new(),
            bytes: 0,
        })
    }
}

fn temporary(dir: &Path) -> io::Result<tempfile::NamedTempFile> {
    // tempfile's own errors lack the error number, and contain the path, which clients must not
    // see. The umask applies, as for any new file.
    let open = |path: &Path| OpenOptions::new().write(true).create_new(true).mode(0o666).open(path);
    tempfile::Builder::new().prefix(TEMPORARY).suffix(PART).make_in(dir, open)
}

/// A shared lock on the directory while this server runs; `None` if it cannot be locked. A server
/// that gets an exclusive lock at its start is alone there, and no program will finish the
/// unfinished files.
#[derive(Debug)]
struct Claim(#[allow(dead_code, reason = "held for its lock")] Option<fs::File>);

/// Removes leftovers in `dir`, and claims it.
fn claim(dir: &Path) -> Claim {
    match try_claim(dir) {
        Ok(lock) => Claim(Some(lock)),
        Err(error) => {
            // Some network file systems do not support locks.
            warn!(%error, "cannot lock the directory: the unfinished files of killed servers stay");
            Claim(None)
        }
    }
}

fn try_claim(dir: &Path) -> io::Result<fs::File> {
    let lock = fs::File::open(dir)?;
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

/// A file that is being received.
pub(crate) struct Upload {
    store: Store,
    file: BufWriter<File>,
    /// Removes the temporary file when dropped. `None` once the file has its name.
    path: Option<TempPath>,
    hash: Sha256,
    bytes: u64,
}

impl Upload {
    /// Bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends `data`.
    pub(crate) async fn write(&mut self, data: &[u8]) -> Result<(), StoreError> {
        let bytes = self.bytes + data.len() as u64;
        self.store.check_length(bytes)?;
        self.store.room.take(data.len() as u64)?;
        self.bytes = bytes;
        self.file.write_all(data).await?;
        self.hash.update(data);
        Ok(())
    }

    /// Renames the file to its name, atomically, and replaces any file of that name. It replaces a
    /// symbolic link, and does not follow it. Returns the SHA-256 in hexadecimal.
    pub(crate) async fn finish(mut self, name: &OsStr) -> Result<String, StoreError> {
        self.file.flush().await?;
        let target: PathBuf = self.store.dir.join(name);
        if let Some(path) = self.path.take() {
            path.persist(target).map_err(|e| e.error)?;
        }
        let sha256 = std::mem::take(&mut self.hash).finalize();
        // After the rename, which changes the version.
        if self.bytes > SMALL
            && let Ok(found) = self.file.get_ref().metadata().await
        {
            self.store.digests.remember(Version::from(&found), sha256.into());
        }
        Ok(hex(&sha256))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // Removes the file before its bytes count as free.
        self.path = None;
        self.store.room.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(dir: &Path, options: &[&str]) -> Store {
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            limits: Limits,
        }
        let only: Only = clap::Parser::parse_from(["server"].iter().chain(options));
        Store::new(dir, &only.limits).unwrap()
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[tokio::test]
    async fn unfinished_files_share_their_room() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path(), &["--max-unfinished-bytes", "5"]);
        assert!(matches!(store.begin(Some(6)), Err(StoreError::NoRoom(5))));
        let mut one = store.begin(Some(5)).unwrap();
        one.write(b"abc").await.unwrap();
        assert!(matches!(store.begin(Some(3)), Err(StoreError::NoRoom(5))));
        let mut other = store.begin(None).unwrap();
        assert!(matches!(other.write(b"def").await, Err(StoreError::NoRoom(5))));
        other.write(b"de").await.unwrap();
        // Finished and dropped files free their bytes.
        one.finish(OsStr::new("x")).await.unwrap();
        other.write(b"fgh").await.unwrap();
        drop(other);
        store.begin(Some(5)).unwrap().write(b"abcde").await.unwrap();
        assert_eq!(names(dir.path()), ["x"]);
    }

    #[tokio::test]
    async fn a_link_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::NamedTempFile::new().unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("x")).unwrap();
        let store = store(dir.path(), &[]);
        let mut upload = store.begin(None).unwrap();
        upload.write(b"new").await.unwrap();
        upload.finish(OsStr::new("x")).await.unwrap();
        assert_eq!(fs::read(outside.path()).unwrap(), b"");
        assert!(dir.path().join("x").symlink_metadata().unwrap().is_file());
    }

    #[test]
    fn only_complete_regular_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(dir.path(), &[]);
        let at = |name| dir.path().join(name);
        fs::write(at("x"), "abc").unwrap();
        fs::create_dir(at("directory")).unwrap();
        std::os::unix::fs::symlink("x", at("link")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert!(store.open(OsStr::new("x")).unwrap().is_some());
        for name in ["none", "directory", "link", "pipe", "socket"] {
            assert!(store.open(OsStr::new(name)).unwrap().is_none(), "{name}");
        }
    }

    #[tokio::test]
    async fn a_directory_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("x")).unwrap();
        let store = store(dir.path(), &[]);
        let upload = store.begin(None).unwrap();
        assert!(matches!(upload.finish(OsStr::new("x")).await, Err(StoreError::Io(_))));
        assert_eq!(names(dir.path()), ["x"]);
    }
}
