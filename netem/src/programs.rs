//! The real programs of a run, as child processes in guards. The drop of a guard kills its program.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::namespace::{Namespace, NamespaceError};

/// The longest time until a program reports that it is ready. On a busy machine, it may get no
/// processor for a while.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long a program may take to end after SIGTERM.
pub(crate) const STOPPED_WITHIN: Duration = Duration::from_secs(5);
/// The longest wait for the rest of a program's output after its end, or for its end after it
/// closed its output. The wait is this long only if another process holds the output, or the
/// program continues without one.
pub(crate) const REST_WITHIN: Duration = Duration::from_secs(10);

/// The directory of the programs.
#[derive(Clone, Debug)]
pub struct Programs {
    directory: PathBuf,
}

/// Why a program failed.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The directory of the programs is not known.
    #[error("cannot find this program's own directory ({0}); give --programs DIR")]
    NoDirectory(io::Error),
    /// A program is missing, failed, or did not report that it is ready.
    #[error("{0}")]
    Failed(String),
    /// A program could not be started.
    #[error("cannot start {name}")]
    Start {
        /// The program.
        name: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
}

impl Programs {
    /// The programs in `directory`, or beside this program.
    ///
    /// # Errors
    ///
    /// [`ProgramError::NoDirectory`] if the lab cannot find its own directory.
    pub fn find(directory: Option<&Path>) -> Result<Self, ProgramError> {
        if let Some(directory) = directory {
            return Ok(Self { directory: directory.to_owned() });
        }
        let own = std::env::current_exe().map_err(ProgramError::NoDirectory)?;
        let none = || ProgramError::NoDirectory(io::Error::other("it has no parent"));
        Ok(Self { directory: own.parent().ok_or_else(none)?.to_owned() })
    }

    /// The path of a program.
    ///
    /// # Errors
    ///
    /// [`ProgramError::Failed`], which names the command that builds it.
    pub fn path(&self, name: &'static str) -> Result<PathBuf, ProgramError> {
        let path = self.directory.join(name);
        if path.is_file() {
            return Ok(path);
        }
        let directory = self.directory.display();
        Err(ProgramError::Failed(format!(
            "there is no program `{name}` in {directory}; run `make lab`, or give \
             --programs DIR"
        )))
    }
}

/// An event of a program's standard output.
#[derive(Debug)]
enum Output {
    FirstLine(String),
    /// Everything after the first line. The program has closed its output.
    Rest(String),
}

/// A running program.
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    child: Child,
    /// Yields one message: the program has ended.
    end: Receiver<()>,
    output: Receiver<Output>,
    first_line: String,
    errors: PathBuf,
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// Everything that it wrote to standard output.
    pub output: String,
    /// The last line it wrote to standard error.
    pub last_words: String,
}

impl Ended {
    /// The reason of an unexpected end: the last line of its standard error, and its exit status.
    pub fn why(&self) -> String {
        why(self.status, &self.last_words)
    }
}

/// Why a program ended: its last line, and its exit status.
pub fn why(status: ExitStatus, last_words: &str) -> String {
    format!("{last_words} ({status})")
}

impl Program {
    /// Starts a program in the namespace of a host. Its standard error goes to a file in
    /// `directory`.
    ///
    /// # Errors
    ///
    /// [`ProgramError`] when it is missing or cannot be started.
    pub fn start(
        programs: &Programs,
        name: &'static str,
        arguments: &[String],
        host: &Namespace,
        directory: &Path,
    ) -> Result<Self, ProgramError> {
        let mut command = Command::new(programs.path(name)?);
        command.args(arguments);
        Self::start_command(name, command, host, directory)
    }

    /// Like [`Program::start`], with any command. Errors use this name.
    ///
    /// # Errors
    ///
    /// [`ProgramError`] when it cannot be started.
    pub fn start_command(
        name: &'static str,
        mut command: Command,
        host: &Namespace,
        directory: &Path,
    ) -> Result<Self, ProgramError> {
        // A Ctrl-C is for the lab, or for a command that has the terminal.
        command.process_group(0);
        Self::spawn(name, command, directory, |mut command| host.enter(move || command.spawn()))
    }

    /// Guards the child that `spawn` makes of a command.
    fn spawn(
        name: &'static str,
        mut command: Command,
        directory: &Path,
        spawn: impl FnOnce(Command) -> Result<io::Result<Child>, NamespaceError>,
    ) -> Result<Self, ProgramError> {
        let failed = |source| ProgramError::Start { name, source };
        let errors = directory.join(format!("{name}.stderr"));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(File::create(&errors).map_err(failed)?);
        let mut child = spawn(command)?.map_err(failed)?;
        let stdout = child.stdout.take();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let Some(stdout) = stdout else { return };
            let mut stdout = BufReader::new(stdout);
            let (mut line, mut rest) = (Vec::new(), Vec::new());
            // The exit code shows an interrupted output.
            let _ = stdout.read_until(b'\n', &mut line);
            let _ = sender.send(Output::FirstLine(String::from_utf8_lossy(&line).into_owned()));
            let _ = stdout.read_to_end(&mut rest);
            let _ = sender.send(Output::Rest(String::from_utf8_lossy(&rest).into_owned()));
        });
        let first_line = String::new();
        Ok(Self { name, end: end_of(&child), child, output, first_line, errors })
    }

    /// Waits for the line `ready: ...`.
    ///
    /// # Errors
    ///
    /// [`ProgramError`] when the program ends, or prints nothing for long.
    pub fn wait_until_ready(&mut self) -> Result<(), ProgramError> {
        let how = match self.output.recv_timeout(READY_WITHIN) {
            Ok(Output::FirstLine(line)) if line.starts_with("ready:") => {
                self.first_line = line;
                return Ok(());
            }
            Ok(Output::FirstLine(line)) if !line.is_empty() => {
                format!("printed `{}` instead of `ready: ...`", printable(&line))
            }
            Err(RecvTimeoutError::Timeout) => {
                format!("was not ready within {} s", READY_WITHIN.as_secs())
            }
            Ok(_) | Err(RecvTimeoutError::Disconnected) => {
                let status = self.status_within(REST_WITHIN).ok().flatten();
                let words = last_line(&self.errors);
                match status {
                    Some(status) => format!("ended before it was ready: {}", why(status, &words)),
                    None => {
                        format!("still runs, but closed its output before it was ready: {words}")
                    }
                }
            }
        };
        Err(ProgramError::Failed(format!("{} {how}", self.name)))
    }

    /// Checks that the line `ready: ...` ends in these words.
    ///
    /// # Errors
    ///
    /// [`ProgramError`] with what the program wrote last to standard error.
    pub fn is_ready_and(&self, does: &str) -> Result<(), ProgramError> {
        if self.first_line.trim_end().ends_with(does) {
            return Ok(());
        }
        let (name, words) = (self.name, last_line(&self.errors));
        Err(ProgramError::Failed(format!("{name} is ready, but not `{does}`: {words}")))
    }

    /// Waits for the program to end by itself. `None` if it has not ended within `timeout`.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<Option<Ended>> {
        let Some(status) = self.status_within(timeout)? else { return Ok(None) };
        let rest = loop {
            match self.output.recv_timeout(REST_WITHIN) {
                Ok(Output::FirstLine(line)) => self.first_line = line,
                Ok(Output::Rest(rest)) => break rest,
                Err(_) => break String::new(),
            }
        };
        let output = std::mem::take(&mut self.first_line) + &rest;
        Ok(Some(Ended { status, output, last_words: last_line(&self.errors) }))
    }

    /// If the program has ended: the last line of its standard error, and its exit status.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    pub fn ended(&mut self) -> io::Result<Option<String>> {
        Ok(self.child.try_wait()?.map(|status| why(status, &last_line(&self.errors))))
    }

    fn status_within(&mut self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        // The channel yields the end only once, but `try_wait` keeps the status.
        if let Some(status) = self.child.try_wait()? {
            return Ok(Some(status));
        }
        match self.end.recv_timeout(timeout) {
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => self.child.wait().map(Some),
        }
    }

    /// Asks the program to end, and kills it if it does not end in time.
    pub fn stop(mut self) {
        self.signal(Signal::SIGTERM);
        // The drop of the guard comes next in any case.
        let _ = self.status_within(STOPPED_WITHIN);
    }

    /// Asks the program to end by a signal. If it does not end in time, kills it and returns
    /// `None`.
    ///
    /// # Errors
    ///
    /// The error of the system call.
    pub fn end(mut self, signal: Signal) -> io::Result<Option<Ended>> {
        self.signal(signal);
        self.wait(STOPPED_WITHIN)
    }

    fn signal(&mut self, signal: Signal) {
        let running = matches!(self.child.try_wait(), Ok(None));
        if let Some(pid) = i32::try_from(self.child.id()).ok().filter(|_| running) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A channel that yields once the child has ended. The caller must still wait for the child.
pub(crate) fn end_of(child: &Child) -> Receiver<()> {
    let (sender, end) = channel();
    when_ended(child, move || {
        // The receiver may be gone.
        let _ = sender.send(());
    });
    end
}

/// Does something, on a thread of its own, once the child has ended. The caller must still wait for
/// the child.
pub(crate) fn when_ended(child: &Child, then: impl FnOnce() + Send + 'static) {
    let pid = i32::try_from(child.id()).map(Pid::from_raw);
    std::thread::spawn(move || {
        let Ok(pid) = pid else { return };
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        while waitid(Id::Pid(pid), flags) == Err(Errno::EINTR) {}
        then();
    });
}

/// The last line of a file that is not blank, without control characters for a terminal.
pub fn last_line(path: &Path) -> String {
    let mut text = Vec::new();
    if let Ok(mut file) = File::open(path) {
        let _ = file.read_to_end(&mut text);
    }
    let text = String::from_utf8_lossy(&text);
    let said = text.lines().rev().map(printable).find(|line| !line.is_empty());
    said.unwrap_or_else(|| "it printed no error".to_owned())
}

fn printable(line: &str) -> String {
    line.chars().filter(|letter| !letter.is_control()).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a shell script as a program. The test's own namespace serves as the host.
    fn start(script: &str) -> (Program, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        // Like `Program::start`, without a namespace: a unit test may lack the right to enter one.
        let spawn = |mut command: Command| Ok(command.spawn());
        let program = Program::spawn("sidekick-proxy", command, directory.path(), spawn).unwrap();
        (program, directory)
    }

    #[test]
    fn the_error_of_a_missing_program_states_how_to_build_it() {
        let directory = tempfile::tempdir().unwrap();
        let error = Programs::find(Some(directory.path()))
            .unwrap()
            .path("h3-upload")
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("there is no program `h3-upload` in "), "{error}");
        assert!(error.contains("make lab"), "{error}");
    }

    #[test]
    fn a_ready_program_is_waited_for_and_stopped() {
        let (mut program, _directory) = start("echo ready: here; exec cat /dev/zero >/dev/null");
        program.wait_until_ready().unwrap();
        let pid = Pid::from_raw(i32::try_from(program.child.id()).unwrap());
        program.stop();
        assert_eq!(kill(pid, None), Err(Errno::ESRCH));
    }

    #[test]
    fn a_program_that_fails_is_quoted() {
        let (mut program, _directory) = start("echo first >&2; echo no such interface >&2; exit 3");
        let error = program.wait_until_ready().unwrap_err().to_string();
        assert_eq!(
            error,
            "sidekick-proxy ended before it was ready: no such interface (exit status: 3)"
        );
    }

    #[test]
    fn an_error_states_why_a_program_is_not_ready() {
        for (script, sentence) in [
            ("kill -9 $$", "ended before it was ready: it printed no error (signal: 9 (SIGKILL))"),
            ("echo welcome; exec sleep 1000", "printed `welcome` instead of `ready: ...`"),
            (
                "exec >&-; exec sleep 1000",
                "still runs, but closed its output before it was ready: it printed no error",
            ),
        ] {
            let (mut program, _directory) = start(script);
            let error = program.wait_until_ready().unwrap_err().to_string();
            assert_eq!(error, format!("sidekick-proxy {sentence}"));
        }
    }

    #[test]
    fn the_end_of_a_program_is_detected_while_its_output_is_open_or_closed() {
        // The background process holds the program's output.
        let (mut program, _directory) = start("echo ready: here; sleep 1000 & echo $! >&2; exit 4");
        program.wait_until_ready().unwrap();
        let ended = program.wait(Duration::from_secs(20)).unwrap().unwrap();
        kill(Pid::from_raw(ended.last_words.parse().unwrap()), Signal::SIGKILL).unwrap();
        assert_eq!((ended.status.code(), ended.output.as_str()), (Some(4), "ready: here\n"));
        // This program closes its output and ignores the signal.
        let (mut program, _directory) =
            start("trap '' TERM; echo ready: here; exec >&-; while :; do sleep 1; done");
        program.wait_until_ready().unwrap();
        let pid = Pid::from_raw(i32::try_from(program.child.id()).unwrap());
        program.stop();
        assert_eq!(kill(pid, None), Err(Errno::ESRCH));
    }

    #[test]
    fn the_output_of_an_ended_program_is_whole() {
        let (mut program, _directory) =
            start("printf 'one\\ntwo\\n'; printf '\\033[1mlast\\n\\007\\n' >&2; exit 4");
        let ended = program.wait(Duration::from_secs(20)).unwrap().unwrap();
        assert_eq!((ended.output.as_str(), ended.status.code()), ("one\ntwo\n", Some(4)));
        assert_eq!(ended.last_words, "[1mlast");
        assert_eq!(program.ended().unwrap().unwrap(), "[1mlast (exit status: 4)");
    }
}
