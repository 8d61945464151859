//! The connection's qlog file.

use std::fs::{self, File};
use std::io::LineWriter;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};

use crate::paths::{descriptor, same_file};

/// Makes the qlog file, which holds whole events at any time. An existing regular file is replaced.
///
/// # Errors
/// It is one of the `used` files or no regular file, or the system's error.
pub(crate) fn create(path: &Path, used: &[&Path]) -> anyhow::Result<Box<LineWriter<File>>> {
    let cannot = || format!("cannot write the qlog file {}", path.display());
    if let Some(used) = used.iter().find(|used| same_file(path, used)) {
        bail!("{}: this program reads or writes {}; name another file", cannot(), used.display());
    }
    // A device or a pipe would get a file's content, and a descriptor is somebody else's.
    let replaceable = fs::metadata(path).map_or(true, |metadata| metadata.is_file())
        && descriptor(path).is_none();
    ensure!(replaceable && path.file_name().is_some(), "{}: it is not a regular file", cannot());
    Ok(Box::new(LineWriter::new(File::create(path).with_context(cannot)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    use std::path::PathBuf;

    #[test]
    fn a_file_is_replaced_and_written_by_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.sqlog");
        for content in ["the first\n", "2nd\n"] {
            let mut file = create(&path, &[]).unwrap();
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
            assert!(create(bad, &[]).is_err(), "{}", bad.display());
        }
        let inside_nothing = dir.path().join("no/such/directory");
        let error = create(&inside_nothing, &[]).unwrap_err();
        let said = format!("{error:#}");
        assert!(said.contains("qlog file") && said.contains("No such file"), "{said}");
        // An input of the upload stays, under any name.
        let upload = dir.path().join("upload");
        fs::write(&upload, "precious").unwrap();
        let other_name = dir.path().join(".").join("upload");
        assert!(create(&other_name, &[Path::new("ca.pem"), &upload]).is_err());
        assert_eq!(fs::read_to_string(&upload).unwrap(), "precious");
    }
}
