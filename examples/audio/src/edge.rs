//! Where the programs touch the system: the clock, randomness, signals, waiting, sockets, files and
//! the terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use sidekick_protocol::is_network_error;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal as _, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Datagrams taken from one socket before the other and the timers get their turn.
const BATCH: usize = 32;
/// Longer than any datagram of a stream or message of a proxy, so that one cut to this length is
/// seen to be too long.
const RECEIVE_LEN: usize = 2048;

/// From one change of the status line to the next.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

/// The time.
#[allow(clippy::disallowed_methods, reason = "the programs' only clock")]
#[must_use]
pub fn clock() -> Instant {
    Instant::now()
}

/// Random bytes, fit for keys.
///
/// # Errors
/// The system's.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// Writes a file that nobody else can read, since there is a key in it. Who opens it finds what was
/// there before or all of the text.
///
/// # Errors
/// The system's.
pub fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    // A link stays, and so does a terminal or a pipe.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if path.metadata().is_ok_and(|there| !there.is_file()) {
        return OpenOptions::new().write(true).open(&path)?.write_all(text.as_bytes());
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{:016x}", u64::from_ne_bytes(random()?)));
    let beside = path.with_file_name(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| std::fs::rename(&beside, &path));
    if written.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    written
}

/// A line at the bottom of a terminal that tells how the call goes; nothing if standard error is
/// none.
#[derive(Debug)]
pub struct Status {
    bar: Option<ProgressBar>,
    next: Option<Instant>,
}

impl Status {
    /// For somebody who watches.
    #[must_use]
    pub fn new() -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise}  {msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { bar, next: None }
    }

    /// Shows what `text` gives, if somebody watches and the last time was long enough ago.
    pub fn show(&mut self, now: Instant, text: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar
            && self.next.is_none_or(|next| next <= now)
        {
            self.next = Some(now + STATUS_INTERVAL);
            bar.set_message(text());
            bar.tick();
        }
    }

    /// Leaves the terminal clean for the summary.
    pub fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Default for Status {
    fn default() -> Self {
        Self::new()
    }
}

/// Ctrl-C and SIGTERM as something to wait for, in place of a sudden end.
#[derive(Debug)]
pub struct Interrupts(SignalFd);

impl Interrupts {
    /// From here on they do not end the program. Call it before other threads are started.
    ///
    /// # Errors
    /// The system's.
    pub fn catch() -> io::Result<Self> {
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGINT);
        signals.add(Signal::SIGTERM);
        signals.thread_block()?;
        Ok(Self(SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?))
    }

    /// Whether there was one since the last call.
    ///
    /// # Errors
    /// The system's.
    pub fn pending(&self) -> io::Result<bool> {
        Ok(self.0.read_signal()?.is_some())
    }
}

impl AsFd for Interrupts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of `sources` has something to read, or until `deadline`.
///
/// # Errors
/// The system's.
pub fn wait(sources: &[BorrowedFd<'_>], deadline: Option<Instant>) -> io::Result<()> {
    let mut polled: Vec<_> = sources.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
    let timeout = deadline.map(|deadline| deadline.saturating_duration_since(clock()));
    match ppoll(&mut polled, timeout.map(TimeSpec::from), None) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A UDP socket that does not block. What the network says of it is counted, and ends nothing:
/// anyone can say that.
#[derive(Debug)]
pub struct Socket {
    udp: UdpSocket,
    errors: u64,
}

impl Socket {
    /// A socket at `own`.
    ///
    /// # Errors
    /// The system's.
    pub fn bind(own: SocketAddr) -> io::Result<Self> {
        let udp = UdpSocket::bind(own)?;
        udp.set_nonblocking(true)?;
        Ok(Self { udp, errors: 0 })
    }

    /// Has it speak with `peer` alone.
    ///
    /// # Errors
    /// The system's, if there is no way to that address.
    pub fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        self.udp.connect(peer)
    }

    /// Its own address.
    ///
    /// # Errors
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    /// Errors that the network has reported. A host where nobody listens reports some, and so does
    /// anyone who forges ICMP.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Takes in what waits, up to a batch; the rest is still there when [`wait`] looks.
    ///
    /// # Errors
    /// The system's, if the socket is of no more use.
    pub fn receive(&mut self, mut take: impl FnMut(&[u8], SocketAddr)) -> io::Result<()> {
        let mut buffer = [0; RECEIVE_LEN];
        for _ in 0..BATCH {
            match self.udp.recv_from(&mut buffer) {
                Ok((len, from)) => take(buffer.get(..len).unwrap_or_default(), from),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => self.note(error)?,
            }
        }
        Ok(())
    }

    /// Sends to the peer that it is connected to. A datagram that the network does not take is
    /// lost, as others are on their way.
    ///
    /// # Errors
    /// The system's, if the socket is of no more use.
    pub fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        self.attempt(|udp| udp.send(datagram))
    }

    /// As [`Socket::send`], to `peer`.
    ///
    /// # Errors
    /// As of [`Socket::send`].
    pub fn send_to(&mut self, datagram: &[u8], peer: SocketAddr) -> io::Result<()> {
        self.attempt(|udp| udp.send_to(datagram, peer))
    }

    /// Sends, once more if the network reports an error: that is about an earlier datagram, and
    /// this one has not left.
    fn attempt(&mut self, send: impl Fn(&UdpSocket) -> io::Result<usize>) -> io::Result<()> {
        match send(&self.udp) {
            Err(error) if is_network_error(&error) => self.errors += 1,
            outcome => return outcome.map(drop).or_else(|error| self.note(error)),
        }
        send(&self.udp).map(drop).or_else(|error| self.note(error))
    }

    /// Passes over what the network reports, and what only stands for now.
    fn note(&mut self, error: io::Error) -> io::Result<()> {
        if is_network_error(&error) {
            self.errors += 1;
            return Ok(());
        }
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
            _ => Err(error),
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.udp.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_secret_is_there_as_a_whole_and_for_nobody_else() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("call.sdp"), directory.path().join("link"));
        fs::write(&path, "what was there before").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let mut reader = File::open(&path).unwrap();
        write_secret(&link, "a key").unwrap();
        let mut before = String::new();
        reader.read_to_string(&mut before).unwrap();
        assert_eq!(
            before, "what was there before",
            "nobody reads half of one and half of the other"
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "a key");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(link.is_symlink());
        write_secret(&directory.path().join("new.sdp"), "a key").unwrap();
        write_secret(Path::new("/dev/null"), "a key").unwrap();
        assert!(write_secret(&directory.path().join("none/call.sdp"), "a key").is_err());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3, "nothing is left beside them");
    }
}
