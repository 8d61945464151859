//! `nsdi24-proxy`: a stand-in for the proxy that was published with "Sidekick: In-Network
//! Assistance for Secure End-to-End Transport Protocols" (NSDI '24), for the sender and the
//! receiver that were written for it.
//!
//! Its wire format has no sessions. The proxy counts every datagram of every flow, and sends quACKs
//! to one address. Any UDP datagram at its own port resets the sums. Nothing is authenticated.
//!
//! `observer.rs` is the state machine, without I/O and clock, and `wire.rs` is the message.

mod observer;
mod wire;

use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context as _;
use clap::{Parser, value_parser};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sidekick_proxy::testing::Arrivals;

use observer::{Interval, Observer};
use wire::MAX_QUACK_LEN;

/// The port of the published proxy.
const PORT: u16 = 5252;
/// Longest time between two quACKs, in milliseconds.
const MAX_MILLIS: u32 = 60_000;

/// Counts UDP datagrams and reports them in the wire format of the programs published with the
/// Sidekick paper (NSDI '24)
///
/// The proxy counts every UDP datagram that arrives through the interface, of any flow and with any
/// first byte, if its payload has at least 25 bytes. The identifier is bytes 21 to 24 (the first is
/// byte 0), big-endian. Datagrams from and to the proxy's own address do not count.
///
/// Nothing in this wire format is authenticated. Use it in a laboratory. Capturing needs
/// CAP_NET_RAW.
#[derive(Debug, Parser)]
#[command(name = "nsdi24-proxy", version, max_term_width = 100)]
struct Options {
    /// The interface of the near segment
    #[arg(short, long, value_name = "IF")]
    interface: String,

    /// Destination of quACKs: the sender's address and UDP port for them
    #[arg(long, value_name = "ADDR:PORT")]
    quack_to: SocketAddr,

    /// Where any UDP datagram is a reset: it clears the sums, the count and the last identifier.
    /// Without this, port 5252 of every address
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,

    /// When to send a quACK: after every N counted datagrams (32), or every N milliseconds (30ms)
    ///
    /// By time, the first quACK follows N milliseconds after the first datagram since the start or
    /// a reset. From then on the proxy sends one every N milliseconds, even if it has counted
    /// nothing new. N is 1 to 4294967295 datagrams, or 1 to 60000 milliseconds.
    #[arg(long, value_name = "N|Nms", default_value = "30ms", value_parser = interval)]
    quack_every: Interval,

    /// Sums in each quACK: a sender can identify this many missing datagrams. The sender must
    /// expect the same number
    #[arg(long, value_name = "T", default_value_t = 20, value_parser = value_parser!(u8).range(1..))]
    threshold: u8,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("nsdi24-proxy: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Counts and reports until the process is killed, which needs no cleaning up.
fn run(options: &Options) -> anyhow::Result<std::convert::Infallible> {
    let Options { interface, quack_to, quack_every, threshold, .. } = options;
    let any = if quack_to.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let listen = options.listen.unwrap_or(SocketAddr::new(any, PORT));
    let port = UdpSocket::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    port.set_nonblocking(true)?;
    let mut observer = Observer::new(*threshold, *quack_every, listen)?;
    let mut arrivals = Arrivals::open(interface)?;
    println!("listening on {listen}, capturing on {interface}");
    std::io::stdout().flush()?;
    loop {
        wait(&port, &arrivals, observer.poll_timeout())?;
        let now = clock();
        // A quACK leaves before the next datagram is counted.
        arrivals.read(|seen| {
            if observer.observe(&seen.flow, seen.payload, now) {
                send(&mut observer, &port, *quack_to);
            }
        })?;
        observer.on_timeout(clock());
        send(&mut observer, &port, *quack_to);
        // A datagram that arrives at the same time as a reset may be counted before or after it.
        loop {
            match port.recv_from(&mut []) {
                Ok(_) => observer.reset(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // A quACK was refused.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(error).context("the port failed"),
            }
        }
    }
}

/// Sends the quACK that is due. One that the system does not accept is lost, as on the network.
fn send(observer: &mut Observer, port: &UdpSocket, to: SocketAddr) {
    let mut quack = [0; MAX_QUACK_LEN];
    if let Some(quack) = observer.poll_transmit(&mut quack).and_then(|len| quack.get(..len))
        && let Err(error) = port.send_to(quack, to)
    {
        eprintln!("nsdi24-proxy: cannot send a quACK to {to}: {error}");
    }
}

/// Waits until a datagram arrives or the time comes.
fn wait(port: &UdpSocket, arrivals: &Arrivals, until: Option<Instant>) -> anyhow::Result<()> {
    let mut fds = [PollFd::new(port, PollFlags::IN), PollFd::new(arrivals, PollFlags::IN)];
    let left = until.map(|until| until.saturating_duration_since(clock()));
    let timeout = left.map(Timespec::try_from).transpose()?;
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("cannot wait for datagrams"),
    }
}

#[allow(clippy::disallowed_methods, reason = "the program is the edge: it reads the clock")]
fn clock() -> Instant {
    Instant::now()
}

/// Reads `N` or `Nms`.
fn interval(text: &str) -> Result<Interval, String> {
    let (number, limit, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, MAX_MILLIS, "milliseconds"),
        None => (text, u32::MAX, "datagrams"),
    };
    let number = number.parse().ok().filter(|number: &NonZeroU32| number.get() <= limit);
    let number = number.ok_or_else(|| format!("choose 1 to {limit} {unit}, such as 32 or 30ms"))?;
    Ok(if unit == "datagrams" { Interval::Packets(number) } else { Interval::Millis(number) })
}
