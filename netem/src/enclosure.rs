//! The enclosure: a process, network and (where needed) user namespace of the lab's own.
//!
//! The lab starts itself again through util-linux `unshare` as the first process of a new process
//! namespace. When that process ends, the kernel kills every program in the namespace. It also
//! removes every namespace and link that only they held, so the lab needs no clean-up. The outer
//! process handles the ways to end. It holds one end of a pipe, the lifeline, and the inner process
//! the other:
//!
//! - Ctrl-C, SIGTERM or SIGHUP: the outer process closes the lifeline; the inner process ends, and
//!   the outer one reports 130;
//! - the same, while a command of the user has the terminal: the outer process writes the signal
//!   to the lifeline, and the inner one sends it to the command;
//! - the outer process is killed: the lifeline closes by itself;
//! - `unshare` is killed: `--kill-child` takes the inner process with it.

use std::fs::File;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{close, dup};

use crate::namespace::tool;

/// The environment variable with the directory of this run's files, for the inner process.
const DIRECTORY: &str = "SIDEKICK_LAB_DIRECTORY";
/// The environment variable with the file descriptor of the lifeline, for the inner process.
const LIFELINE: &str = "SIDEKICK_LAB_LIFELINE";
/// The variables of the inner process. It does not pass them to the programs that it starts.
pub(crate) const OWN_VARIABLES: [&str; 2] = [DIRECTORY, LIFELINE];

/// The signals that end a lab.
const SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
/// On the lifeline, this byte stands for a signal that the terminal also sent to the command.
const FROM_TERMINAL: u8 = 0;
/// The origin of a signal that the kernel itself sent: `SI_KERNEL` in `siginfo.h`.
const BY_THE_KERNEL: i32 = 0x80;

/// The exit code after Ctrl-C, as shells define it.
pub const INTERRUPTED: u8 = 130;

/// Why the enclosure could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum EnclosureError {
    /// `unshare` is not installed.
    #[error("the lab needs the program `unshare`; install the package util-linux")]
    NoUnshare,
    /// The system permits neither these namespaces nor a user namespace.
    #[error(
        "this system does not permit {who} to make network namespaces ({message}); run the lab as \
         root, or allow user namespaces: sysctl user.max_user_namespaces=10000, and on Debian also \
         kernel.unprivileged_userns_clone=1, on Ubuntu \
         kernel.apparmor_restrict_unprivileged_userns=0"
    )]
    Forbidden {
        /// The user who runs the lab.
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

/// Which process has the terminal and receives its signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Terminal {
    /// The lab: a signal ends it.
    Lab,
    /// A command of the user, which the inner process starts.
    Command,
}

/// Outer process: starts this program again inside the enclosure, with the same arguments, and
/// waits for its end. Returns the exit code for this process.
///
/// Call it, like [`enter_for_command`], before this process starts another thread. Another thread
/// would handle a signal in its own way.
///
/// # Errors
///
/// [`EnclosureError`] when the enclosure cannot be set up.
pub fn enter() -> Result<u8, EnclosureError> {
    enter_with(Terminal::Lab).map(|code| code.unwrap_or(1))
}

/// Like [`enter`], for an inner process that starts a command of the user, which has this process's
/// standard streams and its terminal. Signals to this process reach [`follow_outer`]. Returns
/// `None` if a signal killed the inner process.
///
/// # Errors
///
/// [`EnclosureError`] when the enclosure cannot be set up.
pub fn enter_for_command() -> Result<Option<u8>, EnclosureError> {
    enter_with(Terminal::Command)
}

fn enter_with(terminal: Terminal) -> Result<Option<u8>, EnclosureError> {
    let io = |what| move |source| EnclosureError::Io { what, source };
    let mut command = command()?;
    // From here on, signals wait. `unshare` blocks them, too: a Ctrl-C for the command must not end
    // it.
    let signals = SigSet::from_iter(SIGNALS);
    signals.thread_block().map_err(|error| io("hold back signals")(error.into()))?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC)
        .map_err(|error| io("catch Ctrl-C")(error.into()))?;
    let directory = tempfile::Builder::new()
        .prefix("sidekick-lab-")
        .tempdir()
        .map_err(io("make a temporary directory"))?;
    let program = std::env::current_exe().map_err(io("find this program's own file"))?;
    let (theirs, lifeline) = io::pipe().map_err(io("make a pipe"))?;
    // Unlike the original, the copy stays open in the inner process.
    let theirs = dup(theirs).map_err(|error| io("make a pipe")(error.into()))?;
    command.arg(program).args(std::env::args_os().skip(1));
    command.env(DIRECTORY, directory.path()).env(LIFELINE, theirs.as_raw_fd().to_string());
    if terminal == Terminal::Lab {
        command.stdin(Stdio::null());
        // A terminal sends Ctrl-C to its whole foreground group; only this process may receive it.
        command.process_group(0);
    }
    let mut child = command.spawn().map_err(io("start unshare"))?;
    drop(theirs);
    let interrupted = Arc::new(AtomicBool::new(false));
    let caught = Arc::clone(&interrupted);
    std::thread::spawn(move || match terminal {
        Terminal::Lab => {
            while next(&signals).is_none() {}
            caught.store(true, Ordering::SeqCst);
            drop(lifeline);
        }
        Terminal::Command => forward_signals(lifeline, &signals),
    });
    let status = child.wait().map_err(io("wait for the lab to end"))?;
    if interrupted.load(Ordering::SeqCst) {
        return Ok(Some(INTERRUPTED));
    }
    Ok(status.code().and_then(|code| u8::try_from(code).ok()))
}

fn forward_signals(mut lifeline: PipeWriter, signals: &SignalFd) {
    loop {
        if let Some(byte) = next(signals) {
            // If the lifeline has no reader, the inner process has ended. Then this process ends
            // soon.
            let _ = lifeline.write_all(&[byte]);
        }
    }
}

/// The next signal, encoded for the lifeline. `None` for a signal that the lifeline cannot encode.
fn next(signals: &SignalFd) -> Option<u8> {
    let signal = loop {
        match signals.read_signal() {
            Ok(Some(signal)) => break signal,
            Ok(None) | Err(Errno::EINTR) => {}
            // No further signal can be read. The thread waits forever, as if no signal came.
            Err(_) => std::thread::park(),
        }
    };
    let number = u8::try_from(signal.ssi_signo).ok()?;
    Some(if signal.ssi_code == BY_THE_KERNEL { FROM_TERMINAL } else { number })
}

/// Inner process: ends itself and everything in the enclosure when the outer process closes the
/// lifeline or ends.
///
/// # Errors
///
/// [`EnclosureError::Io`] without a lifeline. Only an outer process of another version provides
/// none.
pub fn end_with_outer(directory: PathBuf) -> Result<(), EnclosureError> {
    follow_outer(directory, |_| {})
}

/// Like [`end_with_outer`]. Also passes every signal that the outer process caught to `hear`. It
/// passes `None` for a signal that the terminal has also sent to the command.
///
/// # Errors
///
/// As [`end_with_outer`].
pub fn follow_outer(
    directory: PathBuf,
    mut hear: impl FnMut(Option<Signal>) + Send + 'static,
) -> Result<(), EnclosureError> {
    let io = |what| move |source| EnclosureError::Io { what, source };
    let mut lifeline = lifeline().map_err(io("find the pipe from the outer process"))?;
    // The programs that this process starts must receive these signals.
    SigSet::from_iter(SIGNALS)
        .thread_unblock()
        .map_err(|error| io("let signals through")(error.into()))?;
    std::thread::spawn(move || {
        let mut byte = [0_u8; 1];
        while lifeline.read_exact(&mut byte).is_ok() {
            let [number] = byte;
            hear(Signal::try_from(i32::from(number)).ok());
        }
        // If the outer process was killed, no other process removes the files.
        let _ = std::fs::remove_dir_all(directory);
        std::process::exit(i32::from(INTERRUPTED));
    });
    Ok(())
}

/// The lifeline, in a file descriptor that the programs of the lab do not inherit.
fn lifeline() -> io::Result<File> {
    let number = std::env::var(LIFELINE).ok().and_then(|text| text.parse::<RawFd>().ok());
    let number = number.ok_or_else(|| io::Error::other(format!("{LIFELINE} names none")))?;
    let lifeline = File::open(format!("/proc/self/fd/{number}"))?;
    close(number)?;
    Ok(lifeline)
}
