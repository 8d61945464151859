//! Network namespaces, held by a file descriptor. A namespace ends with its guard and the last
//! program in it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, setns, unshare};

/// The network namespace of the calling thread.
const OF_THIS_THREAD: &str = "/proc/thread-self/ns/net";

/// In a command of [`Namespace::run_beside`], the path of the other namespace.
pub(crate) const OTHER: &str = "/proc/self/fd/0";

/// How often [`Namespace::run_until`] repeats a command. This takes some seconds at most.
const MOST_REPEATS: u32 = 1000;

/// Why an operation with or in a namespace failed.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// A namespace, one of its kernel settings, or the start of a tool in it failed.
    #[error("cannot {what}")]
    Failed {
        /// The operation, and the host of the namespace.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A system tool is not installed.
    #[error("the lab needs the program `{0}`; install the package {1}", program, package(program))]
    NoTool {
        /// The tool.
        program: String,
    },
    /// A system tool failed.
    #[error("`{command}` failed for the {name}: {message}")]
    Tool {
        /// The whole command line.
        command: String,
        /// The host of the namespace.
        name: &'static str,
        /// The tool's standard error, on one line.
        message: String,
    },
}

fn package(program: &str) -> &str {
    if matches!(program, "ip" | "tc") { "iproute2" } else { program }
}

/// Finds a system tool. Ordinary users often have no sbin directory in their PATH, where `ip` and
/// `tc` live.
pub fn tool(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// A network namespace.
#[derive(Debug)]
pub struct Namespace {
    name: &'static str,
    file: OwnedFd,
}

impl Namespace {
    /// Makes a new, empty namespace with its loopback up and IPv6 off, so only the lab's packets
    /// cross it.
    ///
    /// # Errors
    ///
    /// [`NamespaceError`] when the kernel or `ip` refuses.
    pub fn create(name: &'static str) -> Result<Self, NamespaceError> {
        let make = || -> io::Result<OwnedFd> {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(File::open(OF_THIS_THREAD)?.into())
        };
        // On its own thread, because a thread cannot leave its new namespace.
        let file = in_fresh_thread(make).map_err(|source| failed("make", name, source))?;
        let namespace = Self { name, file };
        namespace.prepare()?;
        Ok(namespace)
    }

    fn prepare(&self) -> Result<(), NamespaceError> {
        // In a kernel without IPv6, there is nothing to switch off.
        if self.knows_ipv6()? {
            for interfaces in ["all", "default"] {
                self.set(&format!("net/ipv6/conf/{interfaces}/disable_ipv6"), "1")?;
            }
        }
        self.run("ip link set lo up").map(drop)
    }

    /// Whether the kernel has IPv6.
    pub(crate) fn knows_ipv6(&self) -> Result<bool, NamespaceError> {
        self.enter(|| Path::new("/proc/sys/net/ipv6").is_dir())
    }

    /// Does `work` on a thread inside the namespace. Everything that it opens or starts stays
    /// inside.
    ///
    /// # Errors
    ///
    /// [`NamespaceError`] when the namespace cannot be entered.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        in_fresh_thread(|| {
            setns(self.file.as_fd(), CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        })
        .map_err(|source| failed("enter", self.name, source))
    }

    /// Runs a command line of a system tool inside. Returns its output.
    pub(crate) fn run(&self, command: &str) -> Result<String, NamespaceError> {
        self.run_with(command, Stdio::null())
    }

    /// Repeats a command, which may fail before, until its output contains `wanted`: workers of the
    /// kernel complete changes of interfaces and addresses often after `ip` has returned.
    pub(crate) fn run_until(&self, command: &str, wanted: &str) -> Result<(), NamespaceError> {
        let mut said = self.run(command);
        for _ in 0..MOST_REPEATS {
            if said.as_ref().is_ok_and(|said| said.contains(wanted)) {
                return Ok(());
            }
            said = self.run(command);
        }
        let message = format!("its output never contains `{wanted}`: {}", said?.trim());
        Err(NamespaceError::Tool { command: command.to_owned(), name: self.name, message })
    }

    /// Like [`Namespace::run`]. [`OTHER`] among the words stands for the other namespace.
    pub(crate) fn run_beside(&self, other: &Self, command: &str) -> Result<String, NamespaceError> {
        let input =
            other.file.try_clone().map_err(|source| failed("hand on", other.name, source))?;
        self.run_with(command, Stdio::from(input))
    }

    fn run_with(&self, line: &str, input: Stdio) -> Result<String, NamespaceError> {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap_or_default().to_owned();
        let Some(path) = tool(&program) else { return Err(NamespaceError::NoTool { program }) };
        let mut command = Command::new(path);
        command.args(words).stdin(input);
        let output = self.enter(move || command.output())?.map_err(|source| {
            NamespaceError::Failed { what: format!("start {program}"), source }
        })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        Err(NamespaceError::Tool { command: line.to_owned(), name: self.name, message })
    }

    /// Writes a kernel setting of this namespace; `setting` is its path below /proc/sys.
    pub(crate) fn set(&self, setting: &str, value: &str) -> Result<(), NamespaceError> {
        let path = PathBuf::from("/proc/sys").join(setting);
        self.enter(|| std::fs::write(path, value))?.map_err(|source| {
            let what = format!("set {setting} in the namespace of the {}", self.name);
            NamespaceError::Failed { what, source }
        })
    }
}

fn failed(what: &str, name: &str, source: io::Error) -> NamespaceError {
    NamespaceError::Failed { what: format!("{what} the network namespace of the {name}"), source }
}

fn in_fresh_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        scope
            .spawn(work)
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that tried it panicked")))
    })
}
