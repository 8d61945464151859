//! Runs a proxy: opens everything, starts the threads, and waits for the end.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result};
use sidekick_protocol::{Observer, ObserverConfig, PublicKey, SecretKey, Shard};
use tracing::{error, info, warn};

use crate::addresses::NetworkMonitor;
use crate::capture::settings::{self, Backend};
use crate::capture::{self, Capture, CaptureError, SpareCapture};
use crate::config::Config;
use crate::gateway::Gateway;
use crate::key;
use crate::life::{Life, Order, Progress, Reread, Settings};
use crate::monitor::status::{Limits, ProxyInfo, Status, StatusReader};
use crate::monitor::subject::ProgramStatus;
use crate::monitor::{listener, server};
use crate::pool::{WorkerPool, sum};
use crate::port::{Port, PortError};
use crate::queue::Exempt;
use crate::raw_socket::RawSocket;
use crate::runtime::clock;
use crate::summary::Summary;
use crate::terminal::interface_names;
use crate::worker::{Sockets, WorkerEvent};

/// How often the daemon reads the machine's interfaces and addresses.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// The bytes of the headers before a datagram.
const IPV6_UDP_HEADERS: usize = 48;

/// An event for the main thread.
enum Event {
    Ordered(Order),
    Worker(WorkerEvent),
}

impl From<WorkerEvent> for Event {
    fn from(event: WorkerEvent) -> Self {
        Self::Worker(event)
    }
}

impl Settings for Config {
    const WHAT: &'static str = "proxy";
    const AT_RESTART: &'static [&'static str] = &[
        "interfaces",
        "listen",
        "key",
        "promiscuous",
        "in-order",
        "queue",
        "capture",
        "buffer",
        "threads",
        "metrics",
    ];

    fn memory_shortage(&self) -> Option<String> {
        self.memory_shortage()
    }

    fn to_toml(&self) -> String {
        self.to_toml()
    }

    fn json(&self) -> bool {
        self.json
    }
}

/// The sockets and state that a proxy opens before it starts threads.
struct Opened {
    captures: Vec<OpenedInterface>,
    sockets: Sockets,
    metrics: Option<TcpListener>,
    public_key: PublicKey,
    observers: Vec<Observer>,
    gateway: Gateway,
}

/// The captures on an interface, one for each thread, or why there are none yet.
struct OpenedInterface {
    number: u32,
    captures: Result<Vec<Capture>, CaptureError>,
}

/// Runs a proxy as [`crate::run`] does.
///
/// With `reread`, SIGHUP does not end the proxy. The proxy then applies the settings that `reread`
/// returns, as far as they can change while it runs.
///
/// # Errors
/// One sentence for the operator: why the proxy cannot start or continue.
pub(crate) fn run(config: &Config, reread: Option<Reread<'_, Config>>) -> Result<()> {
    config.check()?;
    let life = Life::begin(config, reread)?;
    warn_of_copies(config);
    let captures = open_captures(config)?;
    let port = open_port(config)?;
    let metrics = listener::open(config.metrics, Status::PROGRAM)?;
    let raw = RawSocket::open().context("cannot open a raw socket to answer markers with")?;
    let gateway = match config.in_order {
        true => Gateway::open(&config.interfaces, config.queue, Exempt::To(port.address().port())),
        false => Gateway::default(),
    };
    let (public_key, observers) = observers(config, gateway.is_open())?;
    let sockets = Sockets { port, raw };
    serve(config, life, Opened { captures, sockets, metrics, public_key, observers, gateway })
}

/// An observer for each thread, and the public key. All have the same, since they are one proxy.
/// `orders` says that packets wait in a queue.
fn observers(config: &Config, orders: bool) -> Result<(PublicKey, Vec<Observer>)> {
    let key = config.key.as_deref().map(key::load).transpose()?;
    let key = key.map_or_else(|| key::random().map(SecretKey), Ok)?;
    let observers = (0..config.threads)
        .map(|index| {
            let shard = Shard::new(index, config.threads).context("too many threads")?;
            let limits = ObserverConfig {
                key: Some(key.clone()),
                longest_datagram: longest_datagram(
                    config.numbered_interfaces().map(|(_, name)| name),
                ),
                shard,
                orders,
                relays: true,
                ..config.observer()
            };
            Ok(Observer::new(limits, key::random()?)?)
        })
        .collect::<Result<_>>()?;
    Ok((key.public(), observers))
}

/// The longest datagram that each interface sends whole, also over IPv6. An interface that appears
/// later does not count: a sender asks for parts itself if whole copies do not arrive.
fn longest_datagram<'a>(interfaces: impl Iterator<Item = &'a str>) -> usize {
    let mtu = |name| {
        let text = std::fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok()?;
        text.trim().parse::<usize>().ok()
    };
    interfaces.filter_map(mtu).min().map_or(usize::MAX, |mtu| mtu.saturating_sub(IPV6_UDP_HEADERS))
}

fn open_port(config: &Config) -> Result<Port, PortError> {
    let address = config.listen();
    if config.listen.is_none() && address.is_ipv4() {
        info!("this kernel has no IPv6, so the proxy listens on {address}");
    }
    Port::open(address)
}

/// Opens the captures on each interface. An interface may appear later, as that of a modem does,
/// but at least one must exist.
fn open_captures(config: &Config) -> Result<Vec<OpenedInterface>> {
    let mut all = Vec::new();
    for (number, name) in config.numbered_interfaces() {
        match capture::open(name, config.capture()) {
            Err(error) if !matches!(error, CaptureError::NoSuchInterface { .. }) => {
                return Err(error.into());
            }
            captures => all.push(OpenedInterface { number, captures }),
        }
    }
    if all.iter().any(|interface| interface.captures.is_ok()) {
        return Ok(all);
    }
    match all.into_iter().next() {
        Some(OpenedInterface { captures: Err(error), .. }) => Err(error.into()),
        _ => Ok(Vec::new()),
    }
}

/// Starts the threads, and handles events until the proxy ends.
fn serve(config: &Config, mut life: Life<'_, Config>, opened: Opened) -> Result<()> {
    let Opened { captures, sockets, metrics, public_key, observers, gateway } = opened;
    let (events, inbox) = mpsc::channel();
    let on_signal = events.clone();
    life.watch(&gateway.capabilities(), move |order| {
        on_signal.send(Event::Ordered(order)).is_ok()
    })?;
    let address = sockets.port.address();
    let mut network = NetworkMonitor::new(config, address);
    let pool = WorkerPool::start(observers, sockets, network.known(), &events)?;
    let order = if gateway.is_open() { ", in order" } else { "" };
    pool.order(gateway);
    let present: Vec<_> = captures.iter().map(|interface| interface.captures.is_ok()).collect();
    let names = config.interfaces.iter().map(String::as_str);
    let interfaces = interface_names(names.zip(present));
    let (mut missing, mut rings) = (MissingInterfaces::default(), StuckRings::default());
    for OpenedInterface { number, captures } in captures {
        match captures {
            Ok(captures) => pool.capture(number, captures),
            Err(error) => {
                warn!("{error}; capture starts when the interface appears");
                missing.add(number);
            }
        }
    }
    let limits = Arc::new(Limits::of(config));
    if let Some(listener) = metrics {
        let interfaces = config.interfaces.clone();
        let limits = Arc::clone(&limits);
        let info = ProxyInfo { address, public_key, interfaces, limits };
        server::serve(listener, StatusReader::new(pool.clone(), info))?;
    }
    life.ready(&format!(
        "listening on {address}, capturing on {interfaces}{order}, public key {public_key}"
    ));

    let mut progress = Progress::default();
    let mut current = config.clone();
    let outcome = loop {
        match inbox.recv_timeout(REFRESH_INTERVAL) {
            Ok(Event::Ordered(Order::Stop)) => break Ok(()),
            Ok(Event::Ordered(Order::Reload)) => life.reload(|new| {
                // A changed number of threads takes effect at a restart. The captures keep their
                // numbers, by which the addresses name them.
                let interfaces = config.interfaces.clone();
                let new = Config { threads: config.threads, interfaces, ..new.clone() };
                pool.reload(&new.observer())?;
                limits.set(&new);
                warn_of_copies(&new);
                network.refresh(&new, |found| pool.set_network(found));
                current = new;
                Ok(())
            }),
            Ok(Event::Worker(WorkerEvent::CaptureEnded { interface, cause })) => {
                rings.note(interface, matches!(cause, CaptureError::Stuck { .. }));
                if missing.add(interface) {
                    error!("{}", cause.ended("capture"));
                    pool.close_capture(interface);
                }
            }
            Ok(Event::Worker(WorkerEvent::SpareWanted { worker, interface, stuck })) => {
                rings.note(interface, stuck);
                let opened = open_copies(config, interface, &rings);
                pool.provide_spare(worker, interface, opened);
            }
            Ok(Event::Worker(WorkerEvent::CopiesUnused(unused))) => drop(unused),
            Ok(Event::Worker(WorkerEvent::Failed(cause))) => {
                break Err(cause).context("the port failed");
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break Ok(()),
        }
        missing.reopen(config, &rings, &pool);
        network.refresh(&current, |found| pool.set_network(found));
        log_progress(&mut progress, &pool);
    };
    life.end(|| pool.close()).and(outcome)
}

/// Logs the totals if they are due and have changed.
fn log_progress(progress: &mut Progress<Summary>, pool: &WorkerPool) {
    if !progress.is_due(clock()) {
        return;
    }
    let (totals, open) = sum(&pool.reports(0));
    let drops = totals.capture_drops;
    let dropped = drops.saturating_sub(progress.log(totals, open).capture_drops);
    if dropped != 0 {
        warn!(
            "the proxy missed {dropped} packets: the kernel had no room for them, or the proxy \
             discarded them beside such packets; while this continues, it does not help senders"
        );
    }
}

/// Opens a spare capture of what travels towards clients on the interface with this number.
fn open_copies(
    config: &Config,
    interface: u32,
    rings: &StuckRings,
) -> Result<Box<SpareCapture>, CaptureError> {
    let (_, name) = config
        .numbered_interfaces()
        .find(|(number, _)| *number == interface)
        .unwrap_or((interface, ""));
    SpareCapture::open(name, rings.adapt(config.capture(), interface)).map(Box::new)
}

/// Logs that the memory for copies is too little for any.
fn warn_of_copies(config: &Config) {
    if let Some(sentence) = config.copies_shortage() {
        warn!("{sentence}");
    }
}

/// The numbers of these interfaces. The cause that stopped one ring would stop the next, too.
#[derive(Default)]
struct StuckRings(Vec<u32>);

impl StuckRings {
    /// Notes whether a ring got stuck on an interface.
    fn note(&mut self, interface: u32, stuck: bool) {
        if stuck && !self.0.contains(&interface) {
            self.0.push(interface);
        }
    }

    /// How to capture on an interface: without a ring where one got stuck, unless the operator
    /// wants one in any case.
    fn adapt(&self, settings: settings::Settings, interface: u32) -> settings::Settings {
        let backend = match settings.backend {
            Backend::Auto if self.0.contains(&interface) => Backend::Pnet,
            chosen => chosen,
        };
        settings::Settings { backend, ..settings }
    }
}

/// The interfaces without captures, by number.
#[derive(Default)]
struct MissingInterfaces(Vec<u32>);

impl MissingInterfaces {
    /// Adds an interface. Returns false if it was missing before.
    fn add(&mut self, number: u32) -> bool {
        let new = !self.0.contains(&number);
        if new {
            self.0.push(number);
        }
        new
    }

    /// Starts captures on the interfaces that exist again.
    fn reopen(&mut self, config: &Config, rings: &StuckRings, pool: &WorkerPool) {
        self.0.retain(|number| {
            let name = config.numbered_interfaces().find(|(other, _)| other == number);
            let Some((_, name)) = name else { return false };
            match capture::open(name, rings.adapt(config.capture(), *number)) {
                Ok(captures) => {
                    warn!("{name} is back");
                    pool.capture(*number, captures);
                    false
                }
                Err(_) => true,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_narrowest_interface_limits_datagrams() {
        // The MTU of the loopback interface is 65536 by default.
        assert!(longest_datagram(["lo"].into_iter()) < usize::MAX);
        assert_eq!(longest_datagram(["no such interface"].into_iter()), usize::MAX);
    }

    #[test]
    fn a_ring_that_got_stuck_is_not_tried_again() {
        let mut rings = StuckRings::default();
        rings.note(1, true);
        rings.note(2, false);
        for (backend, then) in [(Backend::Auto, Backend::Pnet), (Backend::Ring, Backend::Ring)] {
            let settings = settings::Settings { backend, ..Config::default().capture() };
            assert_eq!(rings.adapt(settings, 1).backend, then);
            assert_eq!(rings.adapt(settings, 2).backend, backend);
        }
    }
}
