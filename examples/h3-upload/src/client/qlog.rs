//! The connection's qlog file.
//!
//! tokio-quiche accepts a directory, and names the file in it by the connection's own identifier,
//! which is not known in advance. So this module makes a scratch directory beside the user's file.
//! After the handshake it moves the new file to the user's name. The connection continues to write
//! to the moved file.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, ensure};
use tempfile::TempDir;

use crate::paths::{descriptor, directory, same_file};

/// A place for a connection's qlog file.
#[derive(Debug)]
pub(crate) struct Qlog {
    file: PathBuf,
    scratch: TempDir,
    dir: String,
}

impl Qlog {
    /// Checks that `file` can be written. An existing regular file will be replaced.
    ///
    /// # Errors
    /// It cannot be written, or is one of the `used` files.
    pub(crate) fn prepare(file: &Path, used: &[&Path]) -> anyhow::Result<Self> {
        let cannot = || format!("cannot write the qlog file {}", file.display());
        if let Some(used) = used.iter().find(|used| same_file(file, used)) {
            anyhow::bail!(
                "{}: this program reads or writes {}; name another file",
                cannot(),
                used.display()
            );
        }
        // The move would replace a device, a pipe, or the link to a descriptor.
        let replaceable = fs::metadata(file).map_or(true, |metadata| metadata.is_file())
            && descriptor(file).is_none();
        ensure!(
            replaceable && file.file_name().is_some(),
            "{}: it is not a regular file",
            cannot()
        );
        // In the same directory, because a file cannot move to another file system.
        let parent = directory(file);
        // tempfile's own error names the scratch directory, which the user did not choose.
        let scratch =
            tempfile::Builder::new().prefix(".qlog-").tempdir_in(parent).map_err(|error| {
                let parent = parent.display();
                anyhow!(match error.kind() {
                    ErrorKind::NotFound => format!("{}: there is no directory {parent}", cannot()),
                    kind => format!("{}: {kind} in the directory {parent}", cannot()),
                })
            })?;
        let dir = scratch
            .path()
            .to_str()
            .context("its directory's name is not UTF-8")
            .with_context(cannot)?;
        Ok(Self { file: file.to_owned(), dir: dir.to_owned(), scratch })
    }

    /// The directory in which tokio-quiche makes the file.
    pub(crate) fn dir(&self) -> &str {
        &self.dir
    }

    /// Moves the file to the user's name.
    pub(crate) fn keep(self) -> anyhow::Result<()> {
        let cannot = || format!("cannot write the qlog file {}", self.file.display());
        let made = fs::read_dir(self.scratch.path()).with_context(cannot)?.next();
        let made = made
            .context("tokio-quiche did not make it")
            .with_context(cannot)?
            .with_context(cannot)?;
        fs::rename(made.path(), &self.file).with_context(cannot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn writes_after_the_move_reach_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.sqlog");
        for content in ["once", "twice"] {
            let qlog = Qlog::prepare(&path, &[]).unwrap();
            let mut file = fs::File::create(Path::new(qlog.dir()).join("0123.sqlog")).unwrap();
            qlog.keep().unwrap();
            file.write_all(content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn only_a_regular_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let inside_nothing = dir.path().join("no/such/directory");
        let open = fs::File::create(dir.path().join("open")).unwrap();
        let open = PathBuf::from(format!("/dev/fd/{}", open.as_raw_fd()));
        for bad in [dir.path(), Path::new("/dev/null"), Path::new(".."), &inside_nothing, &open] {
            assert!(Qlog::prepare(bad, &[]).is_err(), "{}", bad.display());
        }
        let error = format!("{:#}", Qlog::prepare(&inside_nothing, &[]).unwrap_err());
        let said = format!("there is no directory {}", dir.path().join("no/such").display());
        assert!(error.ends_with(&said) && !error.contains(".qlog-"), "{error}");
        fs::remove_file(dir.path().join("open")).unwrap();
        assert!(Qlog::prepare(Path::new("no-parent.sqlog"), &[]).is_ok());
        // An input of the upload stays, under any name.
        let upload = dir.path().join("upload");
        fs::write(&upload, "precious").unwrap();
        let other_name = dir.path().join(".").join("upload");
        assert!(Qlog::prepare(&other_name, &[Path::new("ca.pem"), &upload]).is_err());
        assert_eq!(fs::read_to_string(&upload).unwrap(), "precious");
        fs::remove_file(&upload).unwrap();
        // tokio-quiche made no file there.
        let qlog = Qlog::prepare(&dir.path().join("x"), &[]).unwrap();
        assert!(qlog.keep().is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
