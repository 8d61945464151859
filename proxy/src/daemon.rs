//! Puts the parts together: opens everything, starts the threads, waits for the end.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::Signal;
use sd_notify::NotifyState;
use sidekick_protocol::{Flow, ObserverConfig};
use tracing::{error, info, warn};

use crate::capture::{Capture, CaptureError, Counters, Queue};
use crate::cli::Options;
use crate::compat::nsdi24;
use crate::key;
use crate::path::PathSocket;
use crate::port::Port;
use crate::runtime::{Proxy, Sockets};
use crate::signals::Signals;
use crate::summary::Summary;

/// How often progress is logged and the kernel asked for drops.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// What the daemon's threads run: the part that differs with the wire that is spoken.
pub trait Service: Send + Sync + 'static {
    /// Datagrams of `flow` were captured on the interface that the caller numbers `interface`: `payload`
    /// holds their payloads, one behind the other, each `each` bytes long but for the last.
    fn captured(&self, interface: u32, flow: &Flow, payload: &[u8], each: usize);

    /// Receives on the port until it fails or the service is closed: the body of a thread.
    ///
    /// # Errors
    /// Why the socket failed.
    fn listen(&self) -> io::Result<()>;

    /// Meets deadlines until the service is closed: the body of a thread.
    fn keep_time(&self);

    /// Takes over what may change while it runs.
    ///
    /// # Errors
    /// Why not; nothing has changed then.
    fn reload(&self, options: &Options) -> Result<()>;

    /// Ends the service, with a goodbye where the wire has one. From here on nothing is counted and nothing sent.
    fn close(&self);

    /// What it counted; the fields that belong to the captures are 0.
    fn totals(&self) -> Summary;

    /// The sessions that are open now, if there are sessions.
    fn open_sessions(&self) -> Option<usize>;

    /// What else its operator wants to know when it begins; empty, or begins with a comma.
    fn ready(&self) -> String {
        String::new()
    }

    /// The address it listens on.
    fn address(&self) -> SocketAddr;
}

/// What the main thread waits for.
enum Event {
    Stop,
    Reload,
    CaptureEnded(CaptureError),
    PortEnded(io::Result<()>),
}

/// What the main thread keeps of a capture that runs in its own thread.
struct Watched {
    name: String,
    counters: Arc<Counters>,
    queue: Arc<Queue>,
    dropped: u64,
}

/// Reads the options anew.
type Reread<'a> = &'a dyn Fn() -> Result<Options>;

/// Runs the proxy until a signal ends it, or until there is nothing left to capture on. With a configuration file, SIGHUP has
/// it take over what `reread` gives, as far as that may change while it runs.
///
/// # Errors
/// One sentence for the operator: why it cannot start or go on.
pub fn run(options: &Options, reread: Reread<'_>) -> Result<()> {
    // Before there is any other thread, which would take a signal in its own way.
    let signals = Signals::block().context("cannot handle signals")?;
    let captures: Vec<Capture> = options
        .distinct_interfaces()
        .into_iter()
        .map(|name| Capture::open(name, options.promiscuous))
        .collect::<Result<_, _>>()?;
    let port = Port::open(options.listen)?;
    match options.compat.nsdi24() {
        None => {
            let path = PathSocket::open().context("cannot open a raw socket to answer markers with")?;
            let key = options.key.as_deref().map(key::load).transpose()?;
            let config = ObserverConfig { key, ..options.observer() };
            let announced = announced(options, port.address());
            let queues = captures.iter().map(Capture::queue).collect();
            let sockets = Sockets { port, path, queues };
            serve(
                options,
                reread,
                signals,
                captures,
                Proxy::new(sockets, config, &announced, key::random()?)?,
            )
        }
        Some(settings) => serve(options, reread, signals, captures, nsdi24::Proxy::new(port, settings)?),
    }
}

/// Where senders reach the proxy: what the operator says, the one address that it listens on, or those of the interfaces on
/// which it captures.
pub(crate) fn announced(options: &Options, own: SocketAddr) -> Vec<(u32, SocketAddr)> {
    if options.no_discovery {
        return Vec::new();
    }
    if !options.announce.is_empty() {
        return options.announce.iter().map(|address| (u32::MAX, *address)).collect();
    }
    if !own.ip().is_unspecified() {
        return vec![(u32::MAX, own)];
    }
    let interfaces = pnet_datalink::interfaces();
    let mut announced = Vec::new();
    for (number, name) in (0_u32..).zip(options.distinct_interfaces()) {
        // The port of a bridge has no address of its own; the bridge has.
        let bridge = std::fs::read_link(format!("/sys/class/net/{name}/master")).ok();
        let bridge = bridge.as_deref().and_then(Path::file_name).and_then(OsStr::to_str);
        let before = announced.len();
        for interface in interfaces.iter().filter(|i| i.name == name || Some(i.name.as_str()) == bridge) {
            let usable = interface.ips.iter().map(|network| network.ip()).filter(|ip| match ip {
                IpAddr::V4(ip) => !ip.is_link_local(),
                // An IPv6 socket that listens on all addresses takes IPv4 in, too.
                IpAddr::V6(ip) => own.is_ipv6() && !ip.is_unicast_link_local(),
            });
            announced.extend(usable.map(|ip| (number, SocketAddr::new(ip, own.port()))));
        }
        if announced.len() == before {
            warn!(
                "{name} has no address to tell senders that look for a proxy: they will not find this one there; \
                 name one with --announce"
            );
        }
    }
    announced
}

/// The daemon's life, from when everything is open.
fn serve(
    options: &Options,
    reread: Reread<'_>,
    signals: Signals,
    captures: Vec<Capture>,
    service: impl Service,
) -> Result<()> {
    let service = Arc::new(service);
    let (events, inbox) = mpsc::channel();
    let on_signal = events.clone();
    let has_file = options.config.is_some();
    spawn("signals".to_owned(), move || {
        // The main thread may be gone already when a second signal arrives; then there is nothing left to stop.
        signals.each(|signal| {
            let reload = has_file && signal == Signal::SIGHUP;
            on_signal.send(if reload { Event::Reload } else { Event::Stop }).is_ok()
        });
    })?;

    let names = captures.iter().map(Capture::name).collect::<Vec<_>>().join(", ");
    let mut watched = start(captures, &service, &events)?;
    say(&format!("ready: listening on {}, capturing on {names}{}", service.address(), service.ready()));

    tell_manager(&[NotifyState::Ready]);

    let mut running = watched.len();
    let mut last = Summary::default();
    let outcome = loop {
        match inbox.recv_timeout(PROGRESS_INTERVAL) {
            Ok(Event::Stop) => break Ok(()),
            Ok(Event::Reload) => {
                let mut states = vec![NotifyState::Reloading];
                states.extend(NotifyState::monotonic_usec_now());
                tell_manager(&states);
                // The captures keep their numbers, which addresses are announced by.
                let running =
                    |new: &Options| Options { interfaces: options.interfaces.clone(), ..new.clone() };
                match reread().and_then(|new| service.reload(&running(&new)).map(|()| new)) {
                    Ok(new) => warn_of_the_rest(options, &new),
                    Err(error) => error!("{error:#}; everything stays as it was"),
                }
                tell_manager(&[NotifyState::Ready]);
            }
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
                let now = summarise(&*service, &mut watched);
                if now != last {
                    match service.open_sessions() {
                        Some(open) => info!("{now}, open now {open}"),
                        None => info!("{now}"),
                    }
                    last = now;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break Ok(()),
        }
    };
    tell_manager(&[NotifyState::Stopping]);
    service.close();
    let summary = summarise(&*service, &mut watched);
    if options.json {
        say(&serde_json::to_string(&summary)?);
    } else {
        say(&format!("stopped: {summary}"));
    }
    // The threads are not joined: they wait for packets, and the process ends under them.
    outcome
}

/// Starts all threads; each reports its end as an event.
fn start(
    captures: Vec<Capture>,
    service: &Arc<impl Service>,
    events: &Sender<Event>,
) -> Result<Vec<Watched>> {
    let mut watched = Vec::new();
    for (number, capture) in (0_u32..).zip(captures) {
        let counters = Arc::new(Counters::default());
        let name = capture.name().to_owned();
        watched.push(Watched {
            name: name.clone(),
            counters: Arc::clone(&counters),
            queue: capture.queue(),
            dropped: 0,
        });
        let (service, events) = (Arc::clone(service), events.clone());
        spawn(format!("capture-{name}"), move || {
            let end =
                capture.run(&counters, |flow, payload, each| service.captured(number, flow, payload, each));
            drop(events.send(Event::CaptureEnded(end)));
        })?;
    }
    let (listener, ended) = (Arc::clone(service), events.clone());
    spawn("port".to_owned(), move || drop(ended.send(Event::PortEnded(listener.listen()))))?;
    let timekeeper = Arc::clone(service);
    spawn("deadlines".to_owned(), move || timekeeper.keep_time())?;
    Ok(watched)
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<()> {
    thread::Builder::new().name(name).spawn(body).context("cannot start a thread")?;
    Ok(())
}

fn summarise(service: &impl Service, watched: &mut [Watched]) -> Summary {
    let mut summary = service.totals();
    for Watched { name, counters, queue, dropped } in watched {
        let lately = queue.dropped() - *dropped;
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

/// Says what the new options ask for that only a restart can give.
fn warn_of_the_rest(old: &Options, new: &Options) {
    let changed = [
        ("interfaces", old.distinct_interfaces() != new.distinct_interfaces()),
        ("listen", old.listen != new.listen),
        ("key", old.key != new.key),
        ("promiscuous", old.promiscuous != new.promiscuous),
    ];
    let changed: Vec<_> = changed.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect();
    if changed.is_empty() {
        info!("the configuration was read anew");
    } else {
        warn!("the configuration was read anew, but it takes a restart to change {}", changed.join(", "));
    }
}

/// Tells systemd, or whoever else manages services here in its way, if somebody does.
fn tell_manager(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!("the service manager does not hear: {error}");
    }
}

/// A line on stdout. A daemon whose stdout is closed goes on: its work is not there.
fn say(line: &str) {
    let mut stdout = io::stdout().lock();
    if writeln!(stdout, "{line}").and_then(|()| stdout.flush()).is_err() {
        warn!("stdout is closed; it would have said: {line}");
    }
}
