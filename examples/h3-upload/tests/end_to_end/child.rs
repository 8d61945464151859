//! The programs that a test started. The tests of `pubsub` and `audio` use this, too.

use std::io::{BufRead as _, BufReader, Read};
use std::net::UdpSocket;
use std::ops::{Deref, DerefMut};
use std::process::Child;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The longest wait for an event that should follow soon. It turns a hang into a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A child that ends with its test.
pub(crate) struct Ends(pub(crate) Child);

impl Deref for Ends {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Ends {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends `signal` to a program that this test started.
pub(crate) fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id().try_into().unwrap()), signal).unwrap();
}

/// Blocks until this server listens. Returns its port.
pub(crate) fn wait_for_port(server: &mut Child) -> u16 {
    let mut ready = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let address = ready
        .strip_prefix("ready: listening on ")
        .unwrap_or_else(|| panic!("the first line is {ready:?}"));
    address.trim_end().rsplit(':').next().unwrap().parse().unwrap()
}

/// The lines of a program, which a thread reads one at a time as the test receives them. So a wait
/// for a line can have a limit. If the test reads nothing, the program still fills its pipe.
pub(crate) fn lines(output: impl Read + Send + 'static) -> Receiver<String> {
    let (to, lines) = sync_channel(0);
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// The value of a line of its `/proc/PID/status`, in KiB.
pub(crate) fn memory(child: &Child, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let value = status.lines().find_map(|found| found.strip_prefix(line)).unwrap();
    value.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// A port of this machine that is closed until this value is dropped.
pub(crate) struct ClosedPort {
    pub(crate) number: u16,
    _socket: UdpSocket,
}

impl ClosedPort {
    /// The port has a socket that is connected to the discard port. So the system refuses everyone
    /// else's datagrams, and no other test can take the port.
    pub(crate) fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect("127.0.0.1:9").unwrap();
        Self { number: socket.local_addr().unwrap().port(), _socket: socket }
    }
}
