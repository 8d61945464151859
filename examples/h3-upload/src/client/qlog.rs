//! The connection's qlog file.

use std::fs::{self, File};
use std::io::LineWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

use crate::paths::{descriptor, same_file};

/// A qlog file that can be written.
#[derive(Debug)]
pub(crate) struct Qlog(PathBuf);

impl Qlog {
    /// Checks that `file` may be written. An existing regular file will be replaced.
    ///
    /// # Errors
    /// It may not, or is one of the `used` files.
    pub(crate) fn prepare(file: &Path, used: &[&Path]) -> anyhow::Result<Self> {
        let qlog = Self(file.to_owned());
        if let Some(used) = used.iter().find(|used| same_file(file, used)) {
            bail!(
                "{}: this program reads or writes {}; name another file",
                qlog.cannot(),
                used.display()
            );
        }
        // A device or a pipe would get a file's content, and a descriptor is somebody else's.
        let replaceable = fs::metadata(file).map_or(true, |metadata| metadata.is_file())
            && descriptor(file).is_none();
        ensure!(
            replaceable && file.file_name().is_some(),
            "{}: it is not a regular file",
            qlog.cannot()
        );
        Ok(qlog)
    }

    /// Makes the file. It holds whole events at any time.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn create(&self) -> anyhow::Result<Box<LineWriter<File>>> {
        let file = File::create(&self.0).with_context(|| self.cannot())?;
        Ok(Box::new(LineWriter::new(file)))
    }

    fn cannot(&self) -> String {
        format!("cannot write the qlog file {}", self.0.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn a_file_is_replaced_and_written_by_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.sqlog");
        for content in ["the first\n", "2nd\n"] {
            let mut file = Qlog::prepare(&path, &[]).unwrap().create().unwrap();
            file.write_all(content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
    }

    #[test]
    fn only_a_regular_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let open = File::create(dir.path().join("open")).unwrap();
        let open = PathBuf::from(format!("/dev/fd/{}", open.as_raw_fd()));
        for bad in [dir.path(), Path::new("/dev/null"), Path::new(".."), &open] {
            assert!(Qlog::prepare(bad, &[]).is_err(), "{}", bad.display());
        }
        let inside_nothing = dir.path().join("no/such/directory");
        let error = Qlog::prepare(&inside_nothing, &[]).unwrap().create().unwrap_err();
        let said = format!("{error:#}");
        assert!(said.contains("qlog file") && said.contains("No such file"), "{said}");
        assert!(Qlog::prepare(Path::new("no-parent.sqlog"), &[]).is_ok());
        // An input of the upload stays, under any name.
        let upload = dir.path().join("upload");
        fs::write(&upload, "precious").unwrap();
        let other_name = dir.path().join(".").join("upload");
        assert!(Qlog::prepare(&other_name, &[Path::new("ca.pem"), &upload]).is_err());
        assert_eq!(fs::read_to_string(&upload).unwrap(), "precious");
    }
}
