//! A directory in which a file appears only when it is complete.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use sha2::{Digest as _, Sha256};
use tempfile::TempPath;
use thiserror::Error;
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;

/// Hidden, as no client's file can be: see `name.rs`.
const TEMPORARY: &str = ".h3-upload-";

/// Why a file was not stored.
#[derive(Debug, Error)]
pub(crate) enum StoreError {
    #[error("this server takes at most {0} bytes")]
    TooLong(u64),
    #[error("the server cannot store the file: {0}")]
    Io(#[from] io::Error),
}

/// Where the files go, and how long they may be.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    dir: Arc<Path>,
    max_bytes: u64,
}

impl Store {
    /// Checks that files can be created in `dir`.
    pub(crate) fn new(dir: &Path, max_bytes: Option<u64>) -> anyhow::Result<Self> {
        ensure!(dir.is_dir(), "{} is not a directory: create it, or name another with --dir", dir.display());
        temporary(dir).with_context(|| {
            format!("cannot write to {}: allow it, or name another directory with --dir", dir.display())
        })?;
        Ok(Self { dir: dir.into(), max_bytes: max_bytes.unwrap_or(u64::MAX) })
    }

    /// Whether a file of `bytes` would be taken.
    pub(crate) fn check_length(&self, bytes: u64) -> Result<(), StoreError> {
        if bytes > self.max_bytes { Err(StoreError::TooLong(self.max_bytes)) } else { Ok(()) }
    }

    /// Begins a file. Dropped without [`Upload::finish`], it leaves no trace.
    pub(crate) fn begin(&self) -> Result<Upload, StoreError> {
        let (file, path) = temporary(&self.dir)?.into_parts();
        Ok(Upload { store: self.clone(), file: File::from_std(file), path, hash: Sha256::new(), bytes: 0 })
    }
}

fn temporary(dir: &Path) -> io::Result<tempfile::NamedTempFile> {
    // The umask has its say, as with any other new file.
    let permissions = Permissions::from_mode(0o666);
    tempfile::Builder::new().prefix(TEMPORARY).suffix(".part").permissions(permissions).tempfile_in(dir)
}

/// A file on its way in.
pub(crate) struct Upload {
    store: Store,
    file: File,
    /// Removes the temporary file when dropped.
    path: TempPath,
    hash: Sha256,
    bytes: u64,
}

impl Upload {
    /// Bytes written so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends `data`.
    pub(crate) async fn write(&mut self, data: &[u8]) -> Result<(), StoreError> {
        let bytes = self.bytes + data.len() as u64;
        self.store.check_length(bytes)?;
        self.file.write_all(data).await?;
        self.hash.update(data);
        self.bytes = bytes;
        Ok(())
    }

    /// Gives the file its name, in one step, over whatever had it before. A symbolic link of that name is
    /// replaced, not followed. Returns the SHA-256 in hexadecimal.
    pub(crate) async fn finish(mut self, name: &OsStr) -> Result<String, StoreError> {
        self.file.flush().await?;
        let target: PathBuf = self.store.dir.join(name);
        self.path.persist(target).map_err(|e| e.error)?;
        Ok(self.hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[tokio::test]
    async fn a_file_appears_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path(), None).unwrap();
        let mut upload = store.begin().unwrap();
        upload.write(b"ab").await.unwrap();
        assert!(names(dir.path()).iter().all(|name| name.starts_with('.')));
        upload.write(b"c").await.unwrap();
        assert_eq!(
            upload.finish(OsStr::new("x")).await.unwrap(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(names(dir.path()), ["x"]);
        assert_eq!(std::fs::read(dir.path().join("x")).unwrap(), b"abc");
    }

    #[tokio::test]
    async fn what_is_not_finished_leaves_no_trace() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path(), Some(3)).unwrap();
        let mut upload = store.begin().unwrap();
        upload.write(b"abc").await.unwrap();
        assert!(matches!(upload.write(b"d").await, Err(StoreError::TooLong(3))));
        drop(upload);
        assert!(names(dir.path()).is_empty());
    }

    #[tokio::test]
    async fn a_link_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::NamedTempFile::new().unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("x")).unwrap();
        let store = Store::new(dir.path(), None).unwrap();
        let mut upload = store.begin().unwrap();
        upload.write(b"new").await.unwrap();
        upload.finish(OsStr::new("x")).await.unwrap();
        assert_eq!(std::fs::read(outside.path()).unwrap(), b"");
        assert!(dir.path().join("x").symlink_metadata().unwrap().is_file());
    }

    #[tokio::test]
    async fn a_directory_is_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("x")).unwrap();
        let store = Store::new(dir.path(), None).unwrap();
        let upload = store.begin().unwrap();
        assert!(matches!(upload.finish(OsStr::new("x")).await, Err(StoreError::Io(_))));
        assert_eq!(names(dir.path()), ["x"]);
    }
}
