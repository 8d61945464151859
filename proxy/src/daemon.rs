//! Puts the parts together: opens everything, starts the threads, waits for the end.

use std::io::{self, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use sd_notify::NotifyState;
use sidekick_protocol::{Observer, ObserverConfig, PublicKey, SecretKey, Shard};
use tracing::{error, info, warn};

use crate::addresses::Watch;
use crate::capture::settings::{Backend, Settings};
use crate::capture::{Capture, CaptureError};
use crate::compat::nsdi24::engine::Engine;
use crate::config::Config;
use crate::crew::{Crew, sum};
use crate::key;
use crate::machine::Machine;
use crate::monitor::listener;
use crate::monitor::server;
use crate::monitor::status::{self, About};
use crate::path::PathSocket;
use crate::port::Port;
use crate::privileges;
use crate::runtime::{clock, spawn};
use crate::signals::Signals;
use crate::summary::Summary;
use crate::worker::{News, Sockets};

/// How often progress is logged and the kernel asked for drops.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);
/// How often the machine's interfaces and addresses are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What the main thread waits for.
enum Event {
    Stop,
    Reload,
    News(News),
}

impl From<News> for Event {
    fn from(news: News) -> Self {
        Self::News(news)
    }
}

/// Reads the configuration again.
type Reread<'a> = &'a dyn Fn() -> Result<Config>;

/// Runs a proxy until SIGINT, SIGTERM or SIGHUP ends it, or its port fails.
///
/// With `reread`, SIGHUP does not end the proxy. The proxy then applies the settings that `reread`
/// returns, as far as they can change while it runs. Call this before the process starts any other
/// thread: it blocks these signals, and gives up all privileges but CAP_NET_RAW.
///
/// # Errors
/// One sentence for the operator: why the proxy cannot start or continue.
pub fn run(config: &Config, reread: Option<Reread<'_>>) -> Result<()> {
    config.check()?;
    // Before any other thread starts, which would handle a signal in its own way.
    let signals = Signals::block().context("cannot handle signals")?;
    if let Some(sentence) = config.memory_shortage() {
        bail!("{sentence}");
    }
    let captures = open_all(config)?;
    let port = Port::open(config.listen)?;
    let metrics = listener::open(config.metrics)?;
    match config.nsdi24 {
        None => {
            let path =
                PathSocket::open().context("cannot open a raw socket to answer markers with")?;
            let key = config.key.as_deref().map(key::load).transpose()?;
            // All threads are one proxy, and have one key.
            let key = key.map_or_else(|| key::random().map(SecretKey), Ok)?;
            let mut machines = Vec::new();
            for index in 0..config.threads {
                let shard = Shard::new(index, config.threads).context("too many threads")?;
                let limits = ObserverConfig { key: Some(key.clone()), shard, ..config.observer() };
                machines.push(Observer::new(limits, key::random()?)?);
            }
            let public = machines.first().map(Observer::public_key);
            let sockets = Sockets { port, path: Some(path) };
            serve((config, reread), signals, captures, machines, sockets, (metrics, public))
        }
        Some(settings) => {
            let machine = Engine::new(port.address(), settings)?;
            serve(
                (config, reread),
                signals,
                captures,
                vec![machine],
                Sockets { port, path: None },
                (metrics, None),
            )
        }
    }
}

/// An interface's number, and its captures, one for each thread; or why there are none yet.
type Opened = (u32, Result<Vec<Capture>, CaptureError>);

/// The captures on each interface. One that is not there may come later, as a modem does; one at
/// least has to be.
fn open_all(config: &Config) -> Result<Vec<Opened>> {
    let mut all = Vec::new();
    for (number, name) in config.numbered_interfaces() {
        match Capture::open(name, config.capture()) {
            Err(error) if !matches!(error, CaptureError::NoSuchInterface { .. }) => {
                return Err(error.into());
            }
            outcome => all.push((number, outcome)),
        }
    }
    if all.iter().any(|(_, outcome)| outcome.is_ok()) {
        return Ok(all);
    }
    match all.into_iter().next() {
        Some((_, Err(error))) => Err(error.into()),
        _ => Ok(Vec::new()),
    }
}

/// The daemon's life, from when everything is open. `captures`: of each interface those of all
/// threads.
fn serve<M: Machine>(
    (config, reread): (&Config, Option<Reread<'_>>),
    signals: Signals,
    captures: Vec<Opened>,
    machines: Vec<M>,
    sockets: Sockets,
    (metrics, key): (Option<TcpListener>, Option<PublicKey>),
) -> Result<()> {
    // Everything is open, and no other thread has begun.
    privileges::confine()?;
    let (events, inbox) = mpsc::channel();
    let on_signal = events.clone();
    let reloads = reread.is_some();
    spawn("signals".to_owned(), move || {
        // The main thread may be gone already when a second signal arrives; then there is nothing
        // left to stop.
        signals.each(|signal| {
            let reload = reloads && signal == Signal::SIGHUP;
            on_signal.send(if reload { Event::Reload } else { Event::Stop }).is_ok()
        });
    })?;
    let address = sockets.port.address();
    let mut interfaces = Watch::begin(config, address);
    let crew = Crew::start(machines, sockets, interfaces.known(), &events)?;
    let mut missing = Missing::default();
    for (number, captures) in captures {
        match captures {
            Ok(captures) => crew.capture(number, captures),
            Err(error) => {
                warn!("{error}; it is captured on as soon as it is");
                missing.add(number, &error);
            }
        }
    }
    let max_sessions = Arc::new(AtomicU64::new(config.max_sessions));
    if let Some(listener) = metrics {
        let interfaces = config.interfaces.clone();
        let about =
            About { address, public_key: key, interfaces, max_sessions: Arc::clone(&max_sessions) };
        server::serve(listener, status::Watch::new(crew.clone(), about))?;
    }
    let said = key.map(|key| format!(", public key {key}")).unwrap_or_default();
    say(&format!(
        "ready: listening on {address}, capturing on {}{said}",
        config.interfaces.join(", ")
    ));
    tell_manager(&[NotifyState::Ready]);

    let mut progress = Progress::default();
    let mut current = config.clone();
    let outcome = loop {
        match inbox.recv_timeout(LOOK_INTERVAL) {
            Ok(Event::Stop) => break Ok(()),
            Ok(Event::Reload) => {
                let mut states = vec![NotifyState::Reloading];
                states.extend(NotifyState::monotonic_usec_now());
                tell_manager(&states);
                // The captures keep their numbers, which addresses are announced by.
                let reread = reread.map_or_else(|| Ok(current.clone()), |reread| reread());
                match reread.and_then(|new| crew.reload(&new.observer()).map(|()| new)) {
                    Ok(new) => {
                        max_sessions.store(new.max_sessions, Ordering::Relaxed);
                        warn_of_the_rest(config, &new);
                        current = Config { interfaces: config.interfaces.clone(), ..new };
                        interfaces.refresh(&current, |found| crew.set_surroundings(found));
                    }
                    Err(error) => error!("{error:#}; everything stays as it was"),
                }
                tell_manager(&[NotifyState::Ready]);
            }
            Ok(Event::News(News::CaptureEnded(number, reason))) => {
                if missing.add(number, &reason) {
                    error!("{reason}; it is captured on again as soon as it can be");
                    crew.forget(number);
                }
            }
            Ok(Event::News(News::Failed(reason))) => break Err(reason).context("the port failed"),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break Ok(()),
        }
        missing.look(&config.interfaces, config.capture(), &crew);
        interfaces.refresh(&current, |found| crew.set_surroundings(found));
        progress.log(&crew);
    };
    tell_manager(&[NotifyState::Stopping]);
    let summary = crew.close();
    if config.json {
        say(&serde_json::to_string(&summary)?);
    } else {
        say(&format!("stopped: {summary}"));
    }
    outcome
}

/// What the log says of the work now and then.
struct Progress {
    logged: Instant,
    last: Summary,
}

impl Default for Progress {
    fn default() -> Self {
        Self { logged: clock(), last: Summary::default() }
    }
}

impl Progress {
    /// Logs how things stand, if it is time to.
    fn log(&mut self, crew: &Crew) {
        let now = clock();
        if now.saturating_duration_since(self.logged) < PROGRESS_INTERVAL {
            return;
        }
        self.logged = now;
        let (totals, open) = sum(&crew.reports(0));
        let dropped = totals.capture_drops.saturating_sub(self.last.capture_drops);
        if dropped != 0 {
            warn!(
                "the kernel dropped {dropped} packets before they could be read, or they were thrown away beside such: \
                 while that goes on, senders get no help"
            );
        }
        if totals != self.last {
            match open {
                Some(open) => info!("{totals}, open now {open}"),
                None => info!("{totals}"),
            }
            self.last = totals;
        }
    }
}

/// The interfaces that are not captured on, by number.
#[derive(Default)]
struct Missing {
    numbers: Vec<u32>,
    /// Those whose rings get stuck.
    not_by_ring: Vec<u32>,
}

impl Missing {
    /// False if it was known.
    fn add(&mut self, number: u32, reason: &CaptureError) -> bool {
        if matches!(reason, CaptureError::Stuck { .. }) && !self.not_by_ring.contains(&number) {
            self.not_by_ring.push(number);
        }
        let new = !self.numbers.contains(&number);
        if new {
            self.numbers.push(number);
        }
        new
    }

    /// Captures again on those that are back.
    fn look(&mut self, names: &[String], settings: Settings, crew: &Crew) {
        let Self { numbers, not_by_ring } = self;
        numbers.retain(|number| {
            let name = usize::try_from(*number).ok().and_then(|number| names.get(number));
            let Some(name) = name else { return false };
            let backend = match settings.backend {
                Backend::Auto if not_by_ring.contains(number) => Backend::Pnet,
                chosen => chosen,
            };
            match Capture::open(name, Settings { backend, ..settings }) {
                Ok(captures) => {
                    info!("{name} is back");
                    crew.capture(*number, captures);
                    false
                }
                Err(_) => true,
            }
        });
    }
}

/// Says what the new options ask for that only a restart can give.
fn warn_of_the_rest(old: &Config, new: &Config) {
    let changed = [
        ("interfaces", old.interfaces != new.interfaces),
        ("listen", old.listen != new.listen),
        ("key", old.key != new.key),
        ("promiscuous", old.promiscuous != new.promiscuous),
        ("capture", old.backend != new.backend),
        ("buffer", old.buffer != new.buffer),
        ("threads", old.threads != new.threads),
        ("metrics", old.metrics != new.metrics),
    ];
    let changed: Vec<_> =
        changed.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| key).collect();
    if changed.is_empty() {
        info!("the configuration was read anew");
    } else {
        warn!(
            "the configuration was read anew, but it takes a restart to change {}",
            changed.join(", ")
        );
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
