//! The proxy's static key, which senders may pin.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use nix::errno::Errno;
use nix::libc;
use sidekick_protocol::{ParseKeyError, PublicKey, SecretKey};

/// The permissions of group and others. A key file grants none of them.
const OTHERS: u32 = 0o077;

/// Random bytes from the system.
///
/// # Errors
/// When the system returns none.
pub(crate) fn random() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("cannot read random bytes from /dev/urandom")?;
    Ok(bytes)
}

/// More bytes than a key and a line's end.
const TOO_LONG: u64 = 66;

/// Why a file may be on a read-only file system only for the service.
const UNIT: &str = " (the packaged unit lets the proxy write only in /var/lib/sidekick-proxy)";

/// Reads the key in `file`, 64 hexadecimal digits. Creates a file that does not exist, with a new
/// key and readable only by its owner.
///
/// # Errors
/// When the file can be neither read nor created, does not contain a key, or is not a regular file.
/// Also when others than its owner can read or write it.
pub(crate) fn load(file: &Path) -> Result<SecretKey> {
    // Creation comes first, and fails if anything exists, even a link to a missing file.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(file) {
        Ok(made) => write(made, file),
        Err(error)
            if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::IsADirectory) =>
        {
            read(file)
        }
        Err(error) => {
            let hint = if error.kind() == ErrorKind::ReadOnlyFilesystem { UNIT } else { "" };
            Err(error)
                .with_context(|| format!("cannot create the key file {}{hint}", file.display()))
        }
    }
}

/// Checks that [`load`] would succeed. Creates nothing.
///
/// # Errors
/// Those of [`load`].
pub(crate) fn check(file: &Path) -> Result<()> {
    match std::fs::symlink_metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty());
            match directory.filter(|directory| !directory.is_dir()) {
                Some(directory) => bail!(
                    "cannot create the key file {}: there is no directory {}",
                    file.display(),
                    directory.display()
                ),
                None => Ok(()),
            }
        }
        _ => read(file).map(drop),
    }
}

fn write(mut made: File, file: &Path) -> Result<SecretKey> {
    let key = random()?;
    let written = writeln!(made, "{}", PublicKey(key)).and_then(|()| made.sync_all());
    if written.is_err() {
        // The file does not contain a key, and the next start would fail.
        let _ = std::fs::remove_file(file);
    }
    written.with_context(|| format!("cannot write a key to {}", file.display()))?;
    Ok(SecretKey(key))
}

fn read(file: &Path) -> Result<SecretKey> {
    let name = file.display();
    let unreadable = || format!("cannot read the key in {name}");
    // Without blocking: opening a named pipe would otherwise wait for a writer. The path may be a
    // link to the file, as secrets often are.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = match OpenOptions::new().read(true).custom_flags(flags).open(file) {
        // The error of Linux for a socket.
        Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => bail!(not_regular(file)),
        outcome => outcome.with_context(unreadable)?,
    };
    // The metadata of the open file: the path may lead to another file by now.
    let metadata = opened.metadata().with_context(unreadable)?;
    if metadata.is_dir() {
        bail!(
            "{name} is a directory: add a file name for the key, such as {}",
            file.join("key").display()
        );
    }
    if !metadata.is_file() {
        bail!(not_regular(file));
    }
    let mut bytes = Vec::new();
    opened.take(TOO_LONG).read_to_end(&mut bytes).with_context(unreadable)?;
    // Secret and public keys have the same text format.
    let text = String::from_utf8_lossy(&bytes);
    let PublicKey(key) = text.trim_end().parse().map_err(|error: ParseKeyError| {
        anyhow!("{name} does not contain a key: {error}; name another file for the key")
    })?;
    // After a look at the contents: the file may be none of ours, and others need to read it.
    if metadata.permissions().mode() & OTHERS != 0 {
        bail!(
            "others than the owner of {name} can read or write the key: protect it with \
             `chmod 600 {name}`"
        );
    }
    Ok(SecretKey(key))
}

fn not_regular(file: &Path) -> String {
    format!("{} is not a regular file: name another file for the key with --key", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    #[test]
    fn load_creates_a_key_once_and_then_reads_it() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("made"), directory.path().join("link"));
        check(&path).unwrap();
        assert!(!path.exists(), "a check creates nothing");
        let made = load(&path).unwrap();
        assert_eq!(load(&path).unwrap(), made);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        symlink(&path, &link).unwrap();
        assert_eq!(load(&link).unwrap(), made);
        check(&link).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_ne!(load(&path).unwrap(), made, "another file, another key");
    }

    fn refusal(path: &Path) -> String {
        let (loaded, looked) = (load(path).unwrap_err(), check(path).unwrap_err());
        assert_eq!(format!("{loaded:#}"), format!("{looked:#}"));
        format!("{loaded:#}")
    }

    #[test]
    fn other_contents_are_refused_and_left_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in
            [("empty", ""), ("short", "0123"), ("long", &"0".repeat(80)), ("words", "not a key")]
        {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            // The error is the same for each mode. A user must not change the mode of another file.
            for mode in [0o600, 0o644] {
                std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
                let error = refusal(&path);
                assert!(error.contains("does not contain a key"), "{mode:o}: {error}");
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn only_a_regular_file_holds_a_key() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name| directory.path().join(name);
        assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        let _listener = UnixListener::bind(path("socket")).unwrap();
        symlink(path("pipe"), path("link to the pipe")).unwrap();
        for path in [path("pipe"), path("socket"), path("link to the pipe"), "/dev/null".into()] {
            let error = refusal(&path);
            assert!(error.contains("is not a regular file") && error.contains("--key"), "{error}");
        }
        let error = refusal(directory.path());
        assert!(error.contains("is a directory") && error.ends_with("/key"), "{error}");
        symlink(path("nothing"), path("link to nothing")).unwrap();
        assert!(refusal(&path("link to nothing")).contains("cannot read the key"));
        let nowhere = path("no directory/key");
        assert!(check(&nowhere).unwrap_err().to_string().contains("there is no directory"));
        assert!(load(&nowhere).is_err());
    }

    #[test]
    fn a_key_that_others_can_read_or_write_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        let made = load(&path).unwrap();
        let allow =
            |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        for mode in [0o640, 0o620, 0o604, 0o602, 0o644, 0o777] {
            allow(mode);
            let error = refusal(&path);
            assert!(
                error.ends_with(&format!("`chmod 600 {}`", path.display())),
                "{mode:o}: {error}"
            );
        }
        for mode in [0o400, 0o600, 0o700] {
            allow(mode);
            assert_eq!(load(&path).unwrap(), made, "{mode:o}");
        }
    }
}
