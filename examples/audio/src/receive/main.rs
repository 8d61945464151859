//! `audio-receive`: the receiving end of an audio-like stream. It has never heard of Sidekick.

use std::io::{self, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use audio::edge::{self, Interrupts, clock};
use audio::{Listener, ListenerConfig, ListenerReport};
use clap::Parser;

/// Receive one audio-like stream from audio-send, play it in order, and tell how long packets had to wait.
///
/// The first stream that comes is taken. A packet that is missing is asked for again, at most once a round trip, until the
/// playout limit; then it is passed over. The program ends after the stream, or with Ctrl-C, and prints its report either way.
#[derive(Debug, Parser)]
#[command(name = "audio-receive", version)]
struct Cli {
    /// Where to listen (UDP)
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:5004")]
    listen: SocketAddr,
    /// How long a missing packet may hold up the others, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u16).range(1..=60_000))]
    playout_limit_ms: u16,
    /// End when nothing was heard of the stream for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    idle_timeout: u16,
    /// Print one JSON object on standard output, behind the line that says that it is ready, instead of the summary
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("audio-receive: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let config = ListenerConfig {
        playout_limit: Duration::from_millis(cli.playout_limit_ms.into()),
        idle_timeout: Duration::from_secs(cli.idle_timeout.into()),
        ..ListenerConfig::default()
    };
    let mut listener = Listener::new(config)?;
    let interrupts = Interrupts::catch().context("cannot catch Ctrl-C")?;
    let socket = UdpSocket::bind(cli.listen)
        .with_context(|| format!("cannot listen on {}; give another address with --listen", cli.listen))?;
    socket.set_nonblocking(true).context("cannot set up the socket")?;
    let address = socket.local_addr().context("cannot tell the socket's own address")?;
    print(&format!("ready: listening on {address}\n"))?;

    let interrupted = listen(&mut listener, &socket, &interrupts)?;
    let report = listener.report();
    print(&if cli.json { serde_json::to_string(&report)? + "\n" } else { summary(&report) })?;
    ensure!(
        report.complete || interrupted,
        "the talker fell silent before the end of the stream; see whether audio-send has ended, and the way is open"
    );
    Ok(())
}

/// Plays one stream. Returns whether it was interrupted.
fn listen(listener: &mut Listener, socket: &UdpSocket, interrupts: &Interrupts) -> anyhow::Result<bool> {
    let mut talker = None;
    let mut datagram = Vec::new();
    loop {
        edge::receive(socket, |datagram, from| {
            if listener.handle(datagram, clock()).is_ok() {
                talker = Some(from);
            }
        })
        .context("cannot receive")?;
        listener.on_deadline(clock());
        while listener.transmit(&mut datagram) {
            let Some(talker) = talker else { continue };
            match socket.send_to(&datagram, talker) {
                Err(error) if !edge::is_passing(&error) => {
                    return Err(error).with_context(|| format!("cannot send to {talker}"));
                }
                _ => {}
            }
        }
        if interrupts.pending().context("cannot wait for Ctrl-C")? {
            return Ok(true);
        }
        if listener.is_finished() {
            return Ok(false);
        }
        edge::wait(&[interrupts.as_fd(), socket.as_fd()], listener.next_deadline())
            .context("cannot wait for datagrams")?;
    }
}

/// Prints at once: somebody may be waiting for it at the other end of a pipe.
fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("cannot write to standard output")
}

fn summary(report: &ListenerReport) -> String {
    let waits = &report.dejitter_ms;
    format!(
        "{} packets played, {} too late; {} NACKs\n\
         de-jitter latency: p50 {:.1} ms, p90 {:.1}, p95 {:.1}, p99 {:.1}, p99.9 {:.1}, at most {:.1} ms\n",
        report.played,
        report.late,
        report.nacks.packets,
        waits.p50,
        waits.p90,
        waits.p95,
        waits.p99,
        waits.p999,
        waits.max
    )
}
