//! The proxy's static key, which senders may pin.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail};
use sidekick_protocol::{PublicKey, SecretKey};
use tracing::warn;

/// Random bytes from the system.
///
/// # Errors
/// When the system gives none.
pub fn random() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("cannot read random bytes from /dev/urandom")?;
    Ok(bytes)
}

/// The key in `file`, 64 hexadecimal digits; a file that does not exist is made, readable by its owner alone.
///
/// # Errors
/// When the file can be neither read nor made, or holds something else.
pub fn load(file: &Path) -> Result<SecretKey> {
    let name = file.display();
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(file) {
        Ok(mut made) => {
            let key = random()?;
            let written = writeln!(made, "{}", PublicKey(key)).and_then(|()| made.sync_all());
            if written.is_err() {
                // What is there is no key, and would be taken for somebody's next time.
                let _ = std::fs::remove_file(file);
            }
            written.with_context(|| format!("cannot write a key to {name}"))?;
            Ok(SecretKey(key))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let mode = std::fs::metadata(file).map_or(0, |metadata| metadata.permissions().mode());
            if mode & 0o077 != 0 {
                warn!("{name} can be read by others than its owner: make it private with `chmod 600 {name}`");
            }
            let mut text = String::new();
            // One byte more than a key and its line's end tells that there is more.
            let read = File::open(file).and_then(|file| file.take(66).read_to_string(&mut text));
            read.with_context(|| format!("cannot read the key in {name}"))?;
            // Both keys are written alike; only the type says which is secret.
            match text.trim_end().parse::<PublicKey>() {
                Ok(PublicKey(key)) => Ok(SecretKey(key)),
                Err(error) => bail!("{name} holds no key: {error}; name another file, or remove this one"),
            }
        }
        Err(error) => Err(error).with_context(|| format!("cannot make the key file {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("sidekick-key-{}-{name}", std::process::id()));
        drop(std::fs::remove_file(&path));
        path
    }

    #[test]
    fn a_key_is_made_once_and_read_again() {
        let path = scratch("made");
        let made = load(&path).unwrap();
        assert_eq!(load(&path).unwrap(), made);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_file(&path).unwrap();
        assert_ne!(load(&path).unwrap(), made, "another file, another key");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_no_key_is_refused_and_left_alone() {
        for (name, text) in
            [("empty", ""), ("short", "0123"), ("long", &"0".repeat(80)), ("words", "not a key")]
        {
            let path = scratch(name);
            std::fs::write(&path, text).unwrap();
            let error = load(&path).unwrap_err().to_string();
            assert!(error.contains("holds no key"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            std::fs::remove_file(&path).unwrap();
        }
    }
}
