//! The programs' access to the system: clock, randomness, signals, sockets, files and terminal.

use crate::end::{End, Handled};
use crate::session::{Description, Sources};
use anyhow::{Context as _, bail, ensure};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use sidekick_protocol::{Flow, MAX_DATAGRAM_LEN, is_network_error};
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// The most datagrams read from one socket before the other socket and the timers.
const BATCH: usize = 32;
/// Longer than any valid datagram, so that a truncated one is recognised as too long.
const RECEIVE_LEN: usize = 2048;

/// The interval between updates of the status line.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

/// The current time.
#[allow(clippy::disallowed_methods, reason = "the programs' only clock")]
#[must_use]
pub fn clock() -> Instant {
    Instant::now()
}

/// Ends a program: prints its error, if any, after its name.
#[must_use]
pub fn exit(program: &str, outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints to standard output, and flushes it, because a program may wait at the end of a pipe.
///
/// # Errors
/// The system's.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.context("cannot write to standard output")
}

/// Random bytes for keys.
///
/// # Errors
/// The system's.
pub fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).context("cannot read random bytes from the system")?;
    Ok(bytes)
}

/// The unspecified address of the same family.
#[must_use]
pub fn unspecified(like: SocketAddr) -> IpAddr {
    match like {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// The address of `HOST:PORT`.
///
/// # Errors
/// The system's, or the port is 0.
pub fn resolve(name: &str) -> anyhow::Result<SocketAddr> {
    let mut found = name
        .to_socket_addrs()
        .with_context(|| format!("cannot resolve {name:?}; it must be HOST:PORT"))?;
    let address = found.next().with_context(|| format!("{name:?} has no address"))?;
    ensure!(address.port() != 0, "{name:?} has an invalid port; use one from 1 to 65535");
    Ok(address)
}

/// The address of the proxy that `--sidekick` needs: of `proxy`, `HOST` or `HOST:PORT`. `used` is
/// whether it names `mode`.
///
/// # Errors
/// One option without the other, or as [`resolve`].
pub fn proxy(mode: &str, used: bool, proxy: Option<&str>) -> anyhow::Result<Option<SocketAddr>> {
    match (used, proxy) {
        (false, None) => Ok(None),
        (false, Some(_)) => bail!(
            "--proxy has no effect without --sidekick: add --sidekick {mode}, or leave it out"
        ),
        (true, None) => bail!(
            "--sidekick {mode} needs a proxy: name it with --proxy HOST[:PORT], or use --sidekick off"
        ),
        (true, Some(proxy)) => proxy_address(proxy).map(Some),
    }
}

/// An IPv6 address has colons, with or without brackets.
fn proxy_address(proxy: &str) -> anyhow::Result<SocketAddr> {
    let port = sidekick_protocol::DEFAULT_PORT;
    let bare = proxy.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(proxy);
    match bare.parse::<IpAddr>() {
        Ok(address) => resolve(&SocketAddr::new(address, port).to_string()),
        Err(_) if proxy.contains(':') => resolve(proxy),
        Err(_) => resolve(&format!("{proxy}:{port}")),
    }
}

/// Checks that options name different files, because each of these files would spoil the other. A
/// device may be named twice.
///
/// # Errors
/// Two options name the same file.
pub fn check_files(options: &[(&str, &Option<PathBuf>)]) -> anyhow::Result<()> {
    let mut seen: Vec<(&str, PathBuf)> = Vec::new();
    for (option, path) in options {
        let Some(file) = path.as_deref().and_then(full) else { continue };
        if let Some((other, _)) = seen.iter().find(|(_, other)| *other == file) {
            bail!("{other} and {option} name the same file: rename one of them");
        }
        seen.push((option, file));
    }
    Ok(())
}

/// The path from the root of a regular file, which need not exist yet.
fn full(path: &Path) -> Option<PathBuf> {
    if let Ok(existing) = path.canonicalize() {
        return existing.is_file().then_some(existing);
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new(".")).canonicalize().ok()?;
    Some(directory.join(path.file_name()?))
}

/// Reads a session description.
///
/// # Errors
/// The system's, or what is wrong with the description.
pub fn read_description(path: &Path) -> anyhow::Result<Description> {
    let name = path.display();
    let text = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
    Description::from_sdp(&text)
        .with_context(|| format!("cannot use the session description {name}"))
}

/// Writes a session description, with the talker's SSRCs if the talker writes it.
///
/// # Errors
/// The system's.
pub fn write_description(
    path: &Path,
    description: &Description,
    sources: Option<Sources>,
) -> anyhow::Result<()> {
    let written = write_secret(path, &description.to_sdp(sources));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Writes a file that only its owner can read, because it holds a key. A reader finds the old file
/// or all of the new one.
fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    // Keep a link, and write to a terminal or a pipe.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if path.metadata().is_ok_and(|there| !there.is_file()) {
        return OpenOptions::new().write(true).open(&path)?.write_all(text.as_bytes());
    }
    let mut file = NamedTempFile::new_in(path.parent().unwrap_or(&path))?;
    file.write_all(text.as_bytes())?;
    file.persist(&path)?;
    Ok(())
}

/// A status line in a terminal; nothing if standard error is not a terminal.
#[derive(Debug)]
struct Status {
    bar: ProgressBar,
    next: Option<Instant>,
}

impl Status {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed_precise}  {msg}") {
            bar.set_style(style);
        }
        Self { bar, next: None }
    }

    /// Shows `text`, at most once per interval.
    fn show(&mut self, now: Instant, text: impl FnOnce() -> String) {
        if !self.bar.is_hidden() && self.next.is_none_or(|next| next <= now) {
            self.next = Some(now + STATUS_INTERVAL);
            self.bar.set_message(text());
            self.bar.tick();
        }
    }

    /// Removes the line.
    fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// Ctrl-C and SIGTERM as a source of events, so that they do not end the program.
#[derive(Debug)]
pub struct Interrupts(SignalFd);

impl Interrupts {
    /// Catches both from now on. Call it before the program starts other threads.
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

    /// Whether one arrived since the last call.
    fn pending(&self) -> io::Result<bool> {
        Ok(self.0.read_signal()?.is_some())
    }
}

/// A nonblocking UDP socket. It counts errors that the network reports, and ignores them, because
/// anyone can forge them.
#[derive(Debug)]
pub struct Socket {
    udp: UdpSocket,
    errors: u64,
}

impl Socket {
    /// A socket at the local address `own`.
    ///
    /// # Errors
    /// The system's.
    pub fn bind(own: SocketAddr) -> io::Result<Self> {
        let udp = UdpSocket::bind(own)?;
        udp.set_nonblocking(true)?;
        Ok(Self { udp, errors: 0 })
    }

    /// Its local address.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> anyhow::Result<SocketAddr> {
        self.udp.local_addr().context("cannot read the socket's local address")
    }

    /// A socket at the local address `own` that is connected to `peer`.
    ///
    /// # Errors
    /// The system's.
    pub fn connected(own: SocketAddr, peer: SocketAddr) -> anyhow::Result<Self> {
        let socket = Self::bind(own).with_context(|| format!("cannot open a socket at {own}"))?;
        socket
            .udp
            .connect(peer)
            .with_context(|| format!("there is no route from {own} to {peer}"))?;
        Ok(socket)
    }

    /// Reads the waiting datagrams, up to a batch. Polling returns at once if there are more.
    fn receive(&mut self, mut take: impl FnMut(&[u8], SocketAddr)) -> io::Result<()> {
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

    /// Sends, and retries once if the network reports an error. The error is about an earlier
    /// datagram, and this one was not sent. A datagram that the network rejects is lost.
    fn send_to(&mut self, datagram: &[u8], peer: SocketAddr) -> io::Result<()> {
        let sent = match self.udp.send_to(datagram, peer) {
            Err(error) if is_network_error(&error) => {
                self.errors += 1;
                self.udp.send_to(datagram, peer)
            }
            sent => sent,
        };
        sent.map(drop).or_else(|error| self.note(error))
    }

    /// Ignores what the network reports, and temporary errors.
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

/// An end of a call with its sockets.
#[derive(Debug)]
pub struct Call<E> {
    /// The end.
    pub end: E,
    media: Socket,
    /// The local address of `media`.
    own: SocketAddr,
    /// The other end's address, once known.
    peer: Option<SocketAddr>,
    /// The socket to the proxy; `None` if there is none, or no route to it.
    adjacent: Option<Socket>,
}

impl<E: End> Call<E> {
    /// A call of the program with this name. Without a route to `proxy`, it prints a message, and
    /// the call continues without the proxy.
    ///
    /// # Errors
    /// The system's.
    pub fn new(
        program: &str,
        end: E,
        media: Socket,
        peer: Option<SocketAddr>,
        proxy: Option<SocketAddr>,
    ) -> anyhow::Result<Self> {
        let own = media.address()?;
        // The proxy assumes that the stream has the address of the adjacent socket.
        let adjacent = proxy.map(|proxy| Socket::connected(SocketAddr::new(own.ip(), 0), proxy));
        if let Some(Err(error)) = &adjacent {
            eprintln!("{program}: {error:#}; the call continues without the proxy");
        }
        let mut call = Self { end, media, own, peer, adjacent: adjacent.and_then(Result::ok) };
        if let Some(peer) = peer {
            call.end.follow(Flow { source: own, destination: peer }, clock());
        }
        Ok(call)
    }

    /// Runs until the stream is over. The first interrupt stops this end's part, a second one the
    /// call. `each` runs after each step, and `line` makes the status line. Returns whether there
    /// was an interrupt.
    ///
    /// # Errors
    /// The system's, or that of `each`.
    pub fn run(
        &mut self,
        interrupts: &Interrupts,
        mut each: impl FnMut(&mut E) -> anyhow::Result<()>,
        line: impl Fn(&E) -> String,
    ) -> anyhow::Result<bool> {
        let mut status = Status::new();
        let mut interrupted = false;
        loop {
            self.receive()?;
            self.end.on_timeout(clock());
            if interrupts.pending().context("cannot wait for Ctrl-C")? {
                if std::mem::replace(&mut interrupted, true) {
                    break;
                }
                self.end.stop(clock());
                self.end.on_timeout(clock());
            }
            self.transmit()?;
            each(&mut self.end)?;
            if self.end.is_finished() {
                break;
            }
            status.show(clock(), || line(&self.end));
            self.wait(interrupts).context("cannot wait for datagrams")?;
        }
        status.clear();
        Ok(interrupted)
    }

    /// The number of errors that the network reported. They come from a host without a listener, or
    /// from anyone who forges ICMP.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.media.errors + self.adjacent.as_ref().map_or(0, |adjacent| adjacent.errors)
    }

    fn receive(&mut self) -> anyhow::Result<()> {
        let Self { end, media, own, peer, adjacent } = self;
        // No error of an end requires an action.
        let handled = media.receive(|datagram, from| {
            let now = clock();
            if end.handle_input(datagram, now) == Ok(Handled::New) {
                *peer = Some(from);
                end.follow(Flow { source: *own, destination: from }, now);
            }
        });
        handled.context("cannot receive")?;
        let Some(adjacent) = adjacent else { return Ok(()) };
        let handled = adjacent.receive(|datagram, from| {
            let _ = end.handle_proxy(from, datagram, clock());
        });
        handled.context("cannot receive from the proxy")
    }

    fn transmit(&mut self) -> anyhow::Result<()> {
        let mut datagram = Vec::new();
        while self.end.poll_transmit(&mut datagram, clock()) {
            let Some(peer) = self.peer else { continue };
            let sent = self.media.send_to(&datagram, peer);
            sent.with_context(|| format!("cannot send to {peer}"))?;
        }
        let mut message = [0; MAX_DATAGRAM_LEN];
        while let Some((proxy, len)) = self.end.transmit_to_proxy(&mut message) {
            if let Some(adjacent) = &mut self.adjacent {
                let sent = adjacent.send_to(message.get(..len).unwrap_or_default(), proxy);
                sent.context("cannot send to the proxy")?;
            }
        }
        Ok(())
    }

    /// Waits until a socket is readable, an interrupt arrives, or a timer is due.
    fn wait(&self, interrupts: &Interrupts) -> io::Result<()> {
        let sockets = [Some(&self.media), self.adjacent.as_ref()].into_iter().flatten();
        let sources = sockets.map(|socket| socket.udp.as_fd()).chain([interrupts.0.as_fd()]);
        let mut polled: Vec<_> = sources.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let deadline = self.end.poll_timeout();
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(clock()));
        match ppoll(&mut polled, timeout.map(TimeSpec::from), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_secret_is_complete_and_only_its_owner_can_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("call.sdp"), directory.path().join("link"));
        fs::write(&path, "an older description").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let mut reader = File::open(&path).unwrap();
        write_secret(&link, "a key").unwrap();
        let mut before = String::new();
        reader.read_to_string(&mut before).unwrap();
        assert_eq!(before, "an older description", "a reader sees either file whole");
        assert_eq!(fs::read_to_string(&path).unwrap(), "a key");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(link.is_symlink());
        write_secret(&directory.path().join("new.sdp"), "a key").unwrap();
        write_secret(Path::new("/dev/null"), "a key").unwrap();
        assert!(write_secret(&directory.path().join("none/call.sdp"), "a key").is_err());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3, "no temporary file remains");
    }
}
