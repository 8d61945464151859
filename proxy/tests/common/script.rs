//! Scripts in Python, for what a test cannot do by itself, such as frames of its own.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// A running script, which is killed when this is dropped.
pub struct Script {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Script {
    /// Runs this code with these arguments.
    pub fn start(code: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", code]).args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, to, from: BufReader::new(from) }
    }

    /// The next line that it prints.
    pub fn hears(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the script has ended");
        line.trim_end().to_owned()
    }

    /// Writes a line to it.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.to, "{line}").unwrap();
    }

    /// Writes a line to it, and returns the next line that it prints.
    pub fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hears()
    }

    /// Whether it has printed another line, or ended.
    pub fn has_word(&self) -> bool {
        let mut fds = [PollFd::new(self.from.get_ref().as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO) == Ok(1)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
