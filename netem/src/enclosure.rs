//! The enclosure: a process, network and (where needed) user namespace of the lab's own.
//!
//! The lab starts itself again through util-linux `unshare` as the first process of a new process
//! namespace. When that process ends, the kernel kills every program in the namespace. It also
//! removes every namespace and link that only they held, so the lab needs no clean-up. The outer
//! process handles the ways to end:
//!
//! - Ctrl-C, SIGTERM or SIGHUP: the outer process closes the pipe that is the inner one's standard
//!   input; the inner process ends, and the outer one reports 130;
//! - the outer process is killed: the pipe closes by itself;
//! - `unshare` is killed: `--kill-child` takes the inner process with it.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::namespace::tool;

/// The environment variable with the directory of this run's files, for the inner process.
const DIRECTORY: &str = "SIDEKICK_LAB_DIRECTORY";

/// The exit code after Ctrl-C, as shells have it.
pub const INTERRUPTED: u8 = 130;

/// Why the enclosure could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum EnclosureError {
    /// There is no `unshare`.
    #[error("the lab needs the program `unshare`; install the package util-linux")]
    NoUnshare,
    /// The system permits neither namespaces of root nor a user namespace.
    #[error(
        "this system does not permit {who} to make network namespaces ({message}); run the lab as \
         root, or allow user namespaces: sysctl user.max_user_namespaces=10000, and on Debian also \
         kernel.unprivileged_userns_clone=1, on Ubuntu \
         kernel.apparmor_restrict_unprivileged_userns=0"
    )]
    Forbidden {
        /// The user who asked.
        who: &'static str,
        /// The error message of `unshare`.
        message: String,
    },
    /// A step of the set-up failed.
    #[error("cannot {what}")]
    Io {
        /// The step.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// `unshare` with the options that work on this system. The caller adds the program to start.
///
/// # Errors
///
/// [`EnclosureError`] if the system permits no namespaces.
pub fn command() -> Result<Command, EnclosureError> {
    let unshare = tool("unshare").ok_or(EnclosureError::NoUnshare)?;
    let as_anyone =
        ["--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child=SIGKILL"];
    let as_root = &as_anyone[2..];
    let mut message = String::new();
    for options in [as_root, &as_anyone] {
        let trial = Command::new(&unshare)
            .args(options)
            .args(["--", "true"])
            .stdin(Stdio::null())
            .output()
            .map_err(|source| EnclosureError::Io { what: "start unshare", source })?;
        if trial.status.success() {
            let mut command = Command::new(&unshare);
            command.args(options).arg("--");
            return Ok(command);
        }
        let said = String::from_utf8_lossy(&trial.stderr);
        message = said.lines().last().unwrap_or("no reason given").to_owned();
    }
    let who = if nix::unistd::geteuid().is_root() {
        "root in this container"
    } else {
        "an ordinary user"
    };
    Err(EnclosureError::Forbidden { who, message })
}

/// The run's directory, if this is the inner process. `None` in the outer one.
pub fn inside() -> Option<PathBuf> {
    // Only the first process of a process namespace can be the inner one, even if the environment
    // names a directory.
    (std::process::id() == 1).then(|| std::env::var_os(DIRECTORY)).flatten().map(PathBuf::from)
}

/// Outer process: starts this program again, with the same arguments, inside the enclosure, and
/// waits for its end. Returns the exit code to end with.
///
/// # Errors
///
/// [`EnclosureError`] when the enclosure cannot be set up.
pub fn enter() -> Result<u8, EnclosureError> {
    let io = |what| move |source| EnclosureError::Io { what, source };
    let mut command = command()?;
    let directory = tempfile::Builder::new()
        .prefix("sidekick-lab-")
        .tempdir()
        .map_err(io("make a temporary directory"))?;
    let program = std::env::current_exe().map_err(io("find this program's own file"))?;
    command.arg(program).args(std::env::args_os().skip(1));
    command.env(DIRECTORY, directory.path()).stdin(Stdio::piped());
    // A terminal sends Ctrl-C to its whole foreground group; only this process may receive it.
    command.process_group(0);

    let lifeline = Arc::new(Mutex::new(None));
    let interrupted = Arc::new(AtomicBool::new(false));
    let handler = {
        let (lifeline, interrupted) = (Arc::clone(&lifeline), Arc::clone(&interrupted));
        move || {
            interrupted.store(true, Ordering::SeqCst);
            lifeline.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    };
    ctrlc::set_handler(handler).map_err(|error| EnclosureError::Io {
        what: "catch Ctrl-C",
        source: io::Error::other(error.to_string()),
    })?;
    let mut child = {
        // Held until the pipe is in its place, so that a Ctrl-C in between waits for it.
        let mut lifeline = lifeline.lock().unwrap_or_else(PoisonError::into_inner);
        let mut child = command.spawn().map_err(io("start unshare"))?;
        let stdin = child.stdin.take();
        // After a Ctrl-C that came still earlier, the pipe is closed at once.
        *lifeline = stdin.filter(|_| !interrupted.load(Ordering::SeqCst));
        child
    };
    let status = child.wait().map_err(io("wait for the lab to end"))?;
    if interrupted.load(Ordering::SeqCst) {
        return Ok(INTERRUPTED);
    }
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Inner process: ends it, and with it everything in the enclosure, when the outer process closes
/// the pipe or ends.
pub fn end_with_outer(directory: PathBuf) {
    std::thread::spawn(move || {
        let mut byte = [0_u8; 1];
        // Nothing is ever written: a read ends when the other end is closed.
        while matches!(io::stdin().read(&mut byte), Ok(read) if read > 0) {}
        // If the outer process was killed, no other process removes the files.
        let _ = std::fs::remove_dir_all(directory);
        std::process::exit(i32::from(INTERRUPTED));
    });
}
