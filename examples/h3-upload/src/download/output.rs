//! The file of a download. It has its name only once it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, ensure};
use h3_client::paths::{descriptor, directory};
use rustix::fs::fstatvfs;
use tempfile::TempPath;

/// The beginning and the end of an unfinished file's name. It is hidden.
const TEMPORARY: &str = ".h3-download-";
const PART: &str = ".part";
/// The part of the free space that stays free.
const KEPT: u64 = 20;
/// The descriptor of standard output.
const STDOUT: u32 = 1;

/// Where to write the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) place: Place,
    /// Whether to replace an existing file.
    pub(crate) replace: bool,
    /// The longest file that the user accepts.
    pub(crate) max_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Stdout,
    File(PathBuf),
}

impl Place {
    /// The place that the user names.
    pub(crate) fn named(path: PathBuf) -> Self {
        match path.as_os_str() == "-" || descriptor(&path) == Some(STDOUT) {
            true => Self::Stdout,
            false => Self::File(path),
        }
    }
}

/// A file that was begun.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It can be written.
    Open(Writer, Part),
    /// It exists, and is written at once.
    Existing(Existing),
}

impl Output {
    /// The name for users.
    pub(crate) fn name(&self) -> String {
        match &self.place {
            Place::Stdout => "standard output".to_owned(),
            Place::File(path) => path.display().to_string(),
        }
    }

    /// Checks whether the file can have its name, and begins it under another one in the same
    /// directory. Standard output, a device, a pipe or another open file is written at once.
    ///
    /// # Errors
    /// It exists, is a directory, or cannot be written.
    pub(crate) fn begin(&self) -> anyhow::Result<Begun> {
        let cannot = || cannot_write(&self.name());
        let path = match &self.place {
            Place::Stdout => {
                let stdout = io::stdout().as_fd().try_clone_to_owned().with_context(cannot)?;
                return Ok(Begun::Open(self.writer(stdout.into(), false), Part(None)));
            }
            Place::File(path) => path,
        };
        let found = fs::metadata(path).ok();
        if found.as_ref().is_some_and(fs::Metadata::is_dir) {
            return Err(anyhow!("it is a directory, so name a file in it").context(cannot()));
        }
        if descriptor(path).is_some() || found.is_some_and(|found| !found.is_file()) {
            return Ok(Begun::Existing(Existing { path: path.clone(), max: self.max_bytes }));
        }
        // A link to nowhere exists, too.
        ensure!(
            self.replace || fs::symlink_metadata(path).is_err(),
            "{} exists: choose another name with -o FILE, or replace it with --force",
            self.name()
        );
        ensure!(path.file_name().is_some(), "{}: it has no file name", cannot());
        // The umask applies, as for any new file.
        let open =
            |path: &Path| OpenOptions::new().write(true).create_new(true).mode(0o666).open(path);
        let (file, temporary) = tempfile::Builder::new()
            .prefix(TEMPORARY)
            .suffix(PART)
            .make_in(directory(path), open)
            .with_context(cannot)?
            .into_parts();
        let unfinished = Unfinished { temporary, path: path.clone(), replace: self.replace };
        Ok(Begun::Open(self.writer(file, true), Part(Some(unfinished))))
    }

    fn writer(&self, file: File, stored: bool) -> Writer {
        Writer { limit: Limit::of(&file, self.max_bytes), file, stored, name: self.name() }
    }
}

fn cannot_write(name: &str) -> String {
    format!("cannot write {name}")
}

/// A device, a pipe, or what a descriptor of this process names.
#[derive(Debug)]
pub(crate) struct Existing {
    path: PathBuf,
    max: Option<u64>,
}

impl Existing {
    /// Opens it. A pipe blocks until it has a reader.
    pub(crate) fn open(self) -> anyhow::Result<(Writer, Part)> {
        let name = self.path.display().to_string();
        // A descriptor's file may have content, which stays.
        let file = OpenOptions::new().append(true).open(&self.path);
        let file = file.with_context(|| cannot_write(&name))?;
        let limit = Limit::of(&file, self.max);
        Ok((Writer { file, stored: false, name, limit }, Part(None)))
    }
}

/// Writes the content of the file.
#[derive(Debug)]
pub(crate) struct Writer {
    file: File,
    /// Whether it has to reach a disk.
    stored: bool,
    name: String,
    limit: Limit,
}

impl Writer {
    /// How long the file may be.
    pub(crate) fn limit(&self) -> Limit {
        self.limit
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.file.write_all(bytes).with_context(|| cannot_write(&self.name))
    }

    /// Waits until the content is stored.
    pub(crate) fn finish(self) -> anyhow::Result<()> {
        if self.stored {
            self.file.sync_all().with_context(|| cannot_write(&self.name))?;
        }
        Ok(())
    }
}

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

/// The name of an unfinished file. If it is dropped without [`Part::keep`], the file is removed.
#[derive(Debug)]
pub(crate) struct Part(Option<Unfinished>);

#[derive(Debug)]
struct Unfinished {
    temporary: TempPath,
    path: PathBuf,
    replace: bool,
}

impl Part {
    /// Renames the complete file to its name, atomically.
    pub(crate) fn keep(self) -> anyhow::Result<()> {
        let Some(Unfinished { temporary, path, replace }) = self.0 else { return Ok(()) };
        let renamed = match replace {
            true => temporary.persist(&path),
            false => temporary.persist_noclobber(&path),
        };
        renamed.map_err(|error| error.error).with_context(|| {
            // It was not there at the start.
            let hint = if replace { "" } else { " (to replace an existing file, give --force)" };
            format!("cannot rename the download to {}{hint}", path.display())
        })?;
        // Otherwise a crash could leave the file without its name. Some file systems cannot do it.
        let _ = File::open(directory(&path)).and_then(|directory| directory.sync_all());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    fn output(path: &Path, replace: bool) -> Output {
        Output { place: Place::File(path.to_owned()), replace, max_bytes: None }
    }

    fn begin(path: &Path, replace: bool) -> anyhow::Result<(Writer, Part)> {
        match output(path, replace).begin()? {
            Begun::Open(writer, part) => Ok((writer, part)),
            Begun::Existing(existing) => existing.open(),
        }
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_has_its_name_once_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let (mut writer, part) = begin(&path, false).unwrap();
        writer.write(b"abc").unwrap();
        let name = names(dir.path());
        assert!(name.len() == 1 && name[0].starts_with(TEMPORARY) && name[0].ends_with(PART));
        writer.finish().unwrap();
        part.keep().unwrap();
        assert_eq!(names(dir.path()), ["x"]);
        assert_eq!(fs::read(&path).unwrap(), b"abc");
    }

    #[test]
    fn an_unfinished_file_leaves_no_trace() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, part) = begin(&dir.path().join("x"), false).unwrap();
        writer.write(b"abc").unwrap();
        drop(part);
        // The thread that writes may live a little longer.
        writer.write(b"def").unwrap();
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn a_file_that_appears_meanwhile_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let (_, part) = begin(&path, false).unwrap();
        fs::write(&path, "another's").unwrap();
        assert!(part.keep().is_err());
        assert_eq!(fs::read(&path).unwrap(), b"another's");
        assert_eq!(names(dir.path()), ["x"]);
    }

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (dir.path().join("x"), dir.path().join("elsewhere"));
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(begin(&path, false).is_err());
        begin(&path, true).unwrap().1.keep().unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file() && !elsewhere.exists());
    }

    #[test]
    fn places_that_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        for bad in [dir.path(), Path::new("/proc/x"), &dir.path().join("none/x"), Path::new("..")] {
            let error = begin(bad, true).unwrap_err();
            assert!(format!("{error:#}").contains("cannot write"), "{error:#}");
        }
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn an_open_file_is_written_and_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"before, ").unwrap();
        let number = file.as_fd().as_raw_fd();
        std::os::unix::fs::symlink(format!("/dev/fd/{number}"), dir.path().join("link")).unwrap();
        let by_link = dir.path().join("link");
        for name in [&PathBuf::from(format!("/proc/self/fd/{number}")), &by_link] {
            assert_eq!(descriptor(name), Some(number.cast_unsigned()));
            let (mut writer, part) = begin(name, true).unwrap();
            writer.write(b"abc").unwrap();
            part.keep().unwrap();
        }
        assert_eq!(fs::read(&path).unwrap(), b"before, abcabc");
        assert!(fs::symlink_metadata(&by_link).unwrap().is_symlink());
        for other in [&path, Path::new("/dev/null"), Path::new("/proc/self/fd"), Path::new("/")] {
            assert_eq!(descriptor(other), None, "{}", other.display());
        }
    }

    #[test]
    fn only_a_file_has_a_disk() {
        let file = tempfile::tempfile().unwrap();
        assert!(Limit::of(&file, None).room.is_some());
        let device = File::options().write(true).open("/dev/null").unwrap();
        assert!(Limit::of(&device, None).room.is_none());
    }
}
