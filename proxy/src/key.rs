//! The proxy's static key, which senders may pin.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::libc;
use sidekick_protocol::{PublicKey, SecretKey};

/// The rights of group and others, of which a key file has none.
const OTHERS: u32 = 0o077;

/// Random bytes from the system.
///
/// # Errors
/// When the system gives none.
pub(crate) fn random() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("cannot read random bytes from /dev/urandom")?;
    Ok(bytes)
}

/// Longer than a key and its line's end: there is more in the file.
const TOO_LONG: u64 = 66;

/// The key in `file`, 64 hexadecimal digits; a file that does not exist is made, readable by its
/// owner alone.
///
/// # Errors
/// When the file can be neither read nor made, holds something else, is no regular file, or can be
/// read or written by others than its owner.
pub(crate) fn load(file: &Path) -> Result<SecretKey> {
    // There first, so that nothing is made where something is, a link to a file that is missing
    // among it.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(file) {
        Ok(made) => write(made, file),
        Err(error)
            if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::IsADirectory) =>
        {
            read(file)
        }
        Err(error) => {
            Err(error).with_context(|| format!("cannot make the key file {}", file.display()))
        }
    }
}

/// Whether [`load`] would find a key here, or nothing at all. Makes nothing.
///
/// # Errors
/// As those of [`load`].
pub(crate) fn check(file: &Path) -> Result<()> {
    match std::fs::symlink_metadata(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let directory = file.parent().filter(|directory| !directory.as_os_str().is_empty());
            match directory.filter(|directory| !directory.is_dir()) {
                Some(directory) => bail!(
                    "cannot make the key file {}: there is no directory {}",
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
        // What is there is no key, and would be taken for somebody's next time.
        let _ = std::fs::remove_file(file);
    }
    written.with_context(|| format!("cannot write a key to {}", file.display()))?;
    Ok(SecretKey(key))
}

fn read(file: &Path) -> Result<SecretKey> {
    let name = file.display();
    let unreadable = || format!("cannot read the key in {name}");
    // A named pipe is opened at once, too, instead of when somebody writes into it. A link may lead
    // to the file: secrets are often handed over so.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = match OpenOptions::new().read(true).custom_flags(flags).open(file) {
        // What Linux says of a socket.
        Err(error) if error.raw_os_error() == Some(Errno::ENXIO as i32) => bail!(not_regular(file)),
        outcome => outcome.with_context(unreadable)?,
    };
    // Of what was opened: at this path there may be something else by now.
    let metadata = opened.metadata().with_context(unreadable)?;
    if !metadata.is_file() {
        bail!(not_regular(file));
    }
    if metadata.permissions().mode() & OTHERS != 0 {
        bail!(
            "others than the owner of {name} can read or write the key: make it private with `chmod 600 {name}`"
        );
    }
    let mut text = String::new();
    opened.take(TOO_LONG).read_to_string(&mut text).with_context(unreadable)?;
    // Both keys are written alike; only the type says which is secret.
    match text.trim_end().parse::<PublicKey>() {
        Ok(PublicKey(key)) => Ok(SecretKey(key)),
        Err(error) => bail!("{name} holds no key: {error}; name another file, or remove this one"),
    }
}

fn not_regular(file: &Path) -> String {
    format!(
        "{} is no regular file, and cannot hold the key: name another one with --key",
        file.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    #[test]
    fn a_key_is_made_once_and_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("made"), directory.path().join("link"));
        check(&path).unwrap();
        assert!(!path.exists(), "who looks makes nothing");
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
    fn what_is_no_key_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in
            [("empty", ""), ("short", "0123"), ("long", &"0".repeat(80)), ("words", "not a key")]
        {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
            let error = refusal(&path);
            assert!(error.contains("holds no key"), "{error}");
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
        let paths =
            [path("pipe"), path("socket"), path("link to the pipe"), path(""), "/dev/null".into()];
        for path in paths {
            let error = refusal(&path);
            assert!(error.contains("is no regular file") && error.contains("--key"), "{error}");
        }
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
