//! Puts the parts together: opens everything, starts the threads, waits for the end.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use tracing::{error, info, warn};

use crate::capture::{Capture, CaptureError, Counters, DropMeter};
use crate::cli::Options;
use crate::port::Port;
use crate::runtime::Proxy;
use crate::summary::Summary;

/// How often progress is logged and the kernel asked for drops.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// What the main thread waits for.
enum Event {
    Stop,
    CaptureEnded(CaptureError),
    PortEnded(std::io::Result<()>),
}

/// What the main thread keeps of a capture that runs in its own thread.
struct Watched {
    name: String,
    counters: Arc<Counters>,
    drops: DropMeter,
    dropped: u64,
}

/// Runs the proxy until a signal ends it, or until there is nothing left to capture on.
///
/// # Errors
/// One sentence for the operator: why it cannot start or go on.
pub fn run(options: &Options) -> Result<()> {
    let captures: Vec<Capture> = options
        .distinct_interfaces()
        .into_iter()
        .map(|name| Capture::open(name, options.promiscuous))
        .collect::<Result<_, _>>()?;
    let proxy = Arc::new(Proxy::new(Port::open(options.listen)?, options.observer(), seed()?)?);

    let (events, inbox) = mpsc::channel();
    let on_signal = events.clone();
    // The main thread may be gone already when a second signal arrives; then there is nothing left to stop.
    ctrlc::set_handler(move || drop(on_signal.send(Event::Stop))).context("cannot handle signals")?;

    let names = captures.iter().map(Capture::name).collect::<Vec<_>>().join(", ");
    let mut watched = start(captures, &proxy, &events)?;
    say(&format!("ready: listening on {}, capturing on {names}", proxy.address()));

    let mut running = watched.len();
    let mut last = Summary::default();
    let outcome = loop {
        match inbox.recv_timeout(PROGRESS_INTERVAL) {
            Ok(Event::Stop) => break Ok(()),
            Ok(Event::CaptureEnded(reason)) => {
                running -= 1;
                if running == 0 {
                    break Err(anyhow!("no interface is left to capture on: {reason}"));
                }
                error!("{reason}; going on with the other interfaces");
            }
            Ok(Event::PortEnded(reason)) => {
                break reason.context("the port failed").and_then(|()| bail!("the port closed by itself"));
            }
            Err(RecvTimeoutError::Timeout) => {
                let now = summarise(&proxy, &mut watched);
                if now != last {
                    info!("{now}, open now {}", proxy.stats().1);
                    last = now;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break Ok(()),
        }
    };
    proxy.close();
    let summary = summarise(&proxy, &mut watched);
    if options.json {
        say(&serde_json::to_string(&summary)?);
    } else {
        say(&format!("stopped: {summary}"));
    }
    // The threads are not joined: they wait for packets, and the process ends under them.
    outcome
}

/// Starts all threads; each reports its end as an event.
fn start(captures: Vec<Capture>, proxy: &Arc<Proxy>, events: &Sender<Event>) -> Result<Vec<Watched>> {
    let mut watched = Vec::new();
    for (number, capture) in (0_u32..).zip(captures) {
        let counters = Arc::new(Counters::default());
        let name = capture.name().to_owned();
        watched.push(Watched {
            name: name.clone(),
            counters: Arc::clone(&counters),
            drops: capture.drop_meter().context("cannot watch the capture for drops")?,
            dropped: 0,
        });
        let (proxy, events) = (Arc::clone(proxy), events.clone());
        spawn(format!("capture-{name}"), move || {
            let end =
                capture.run(&counters, |flow, payload, each| proxy.captured(number, flow, payload, each));
            drop(events.send(Event::CaptureEnded(end)));
        })?;
    }
    let (listener, ended) = (Arc::clone(proxy), events.clone());
    spawn("port".to_owned(), move || drop(ended.send(Event::PortEnded(listener.listen()))))?;
    let timekeeper = Arc::clone(proxy);
    spawn("deadlines".to_owned(), move || timekeeper.keep_time())?;
    Ok(watched)
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new().name(name).spawn(body).context("cannot start a thread")?;
    Ok(())
}

fn summarise(proxy: &Proxy, watched: &mut [Watched]) -> Summary {
    let (stats, _, unsent) = proxy.stats();
    let mut summary = Summary {
        counted: stats.counted,
        ignored: stats.ignored,
        quacks: stats.quacks_sent,
        bytes: stats.bytes_sent,
        sessions: stats.sessions_opened,
        expired: stats.sessions_expired,
        refused: stats.refused,
        malformed: stats.malformed,
        unsent,
        ..Summary::default()
    };
    for Watched { name, counters, drops, dropped } in watched {
        let lately = drops.read();
        if lately != 0 {
            warn!(
                "the kernel dropped {lately} packets on {name} before they could be read: quACKs lack them"
            );
            *dropped += lately;
        }
        summary.capture_drops += *dropped;
        summary.captured += counters.datagrams.load(Relaxed);
        summary.malformed_frames += counters.malformed.load(Relaxed);
        summary.fragments += counters.fragments.load(Relaxed);
        summary.merged_split += counters.split.load(Relaxed);
        summary.merged_uncounted += counters.unsplit.load(Relaxed);
    }
    summary
}

/// A line on stdout. A daemon whose stdout is closed goes on: its work is not there.
fn say(line: &str) {
    let mut stdout = std::io::stdout().lock();
    if writeln!(stdout, "{line}").and_then(|()| stdout.flush()).is_err() {
        warn!("stdout is closed; it would have said: {line}");
    }
}

/// Random bytes from the system.
fn seed() -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("cannot read random bytes from /dev/urandom")?;
    Ok(bytes)
}
