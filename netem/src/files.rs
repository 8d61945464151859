//! Files that the lab reads and writes: each error names the file, and the line if it has lines.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Why a file cannot be read, written or used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system reported an error.
    #[error("cannot {what} {path}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A line is invalid.
    #[error("{path}, line {line}: {problem}; {hint}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong there.
        problem: String,
        /// How to correct it.
        hint: &'static str,
    },
}

impl FileError {
    /// Makes the error of a failed operation `what` on the file at `path`.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { what, path: path.clone(), source }
    }

    /// The error of a malformed line.
    pub(crate) fn line(
        path: &Path,
        line: usize,
        problem: impl ToString,
        hint: &'static str,
    ) -> Self {
        Self::Line { path: path.to_owned(), line, problem: problem.to_string(), hint }
    }
}

pub(crate) fn read(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).map_err(FileError::io("read", path))
}

/// Writes a file, under another name first. An error leaves no partial file.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let write = || -> io::Result<()> {
        let directory = path.parent().unwrap_or_else(|| Path::new("."));
        let mut file = tempfile::Builder::new().prefix(".sidekick-lab-").tempfile_in(directory)?;
        file.write_all(bytes)?;
        // Only its owner can read a temporary file. A result is for all users who may read the
        // directory.
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
        }
        file.persist(path)?;
        Ok(())
    };
    write().map_err(FileError::io("write", path))
}
