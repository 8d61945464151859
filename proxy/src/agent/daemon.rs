//! Runs an agent: one thread reads and sends packets, others receive signals and serve metrics.

use std::cmp::Reverse;
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use sidekick_protocol::policy::Carry;
use sidekick_protocol::{DEFAULT_PORT, SenderConfig, is_network_error};
use tracing::{error, info, warn};

use super::captures::Captures;
use super::config::{AgentConfig, TunName};
use super::flows::{Agent, Limits};
use super::host::{self, Host};
use super::outbox::To;
use super::report::{OrderReport, Report, SecondUplinkReport, Totals};
use super::status::{AgentStatus, AgentStatusReader};
use super::tun::Tun;
use crate::config::MAX_INTERFACES;
use crate::gateway::Gateway;
use crate::key;
use crate::life::{Life, Order, Progress, Reread, Settings};
use crate::monitor::subject::ProgramStatus as _;
use crate::monitor::{listener, server};
use crate::packet_info::PacketInfo;
use crate::port::{self, Port, PortReader};
use crate::queue::Exempt;
use crate::runtime::clock;
use crate::terminal::interface_names;
use crate::trace::{Recorder, Trace};

/// How often the agent checks its captures, and looks for interfaces that are missing.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a report may take.
const REPORT_PATIENCE: Duration = Duration::from_secs(2);

impl Settings for AgentConfig {
    const WHAT: &'static str = "agent";
    const AT_RESTART: &'static [&'static str] = &[
        "interfaces",
        "tun",
        "in-order",
        "second-uplink",
        "carry",
        "carry-budget",
        "queue",
        "capture",
        "buffer",
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

/// A request of another thread to the loop.
enum Command {
    Ordered(Order),
    /// A report with at most this many flows.
    Report(usize, SyncSender<Report>),
}

/// Asks the loop from another thread.
#[derive(Clone)]
struct Handle {
    commands: Sender<Command>,
    waker: Arc<UnixStream>,
}

impl Handle {
    /// Returns false if the loop has ended.
    fn send(&self, command: Command) -> bool {
        // A full pipe wakes the loop as well.
        self.commands.send(command).is_ok() && {
            let _ = (&*self.waker).write(&[1]);
            true
        }
    }

    /// Asks the loop for a report, whose busiest flow is the first. `None` if it does not answer in
    /// time.
    fn report(&self, flows: usize) -> Option<Report> {
        let (reply, answer) = sync_channel(1);
        self.send(Command::Report(flows, reply)).then_some(())?;
        let mut report = answer.recv_timeout(REPORT_PATIENCE).ok()?;
        report.flows.sort_by_key(|flow| Reverse(flow.sent));
        Some(report)
    }
}

/// Runs an agent until SIGINT or SIGTERM ends it, or its port fails. With `reread`, SIGHUP applies
/// the settings that it returns; otherwise it ends the agent, too.
///
/// # Errors
/// One sentence for the operator: why the agent cannot start or continue.
pub(crate) fn run(config: &AgentConfig, reread: Option<Reread<'_, AgentConfig>>) -> Result<()> {
    let mut life = begin(config, reread)?;
    let mut agent = open(config, &mut life)?;
    let order = if agent.gateway.is_open() { ", in order" } else { "" };
    let arrives =
        agent.tun.as_ref().map(|tun| format!(", and what arrives, by way of {}{order}", tun.name));
    life.ready(&format!(
        "helping what leaves by {}{}",
        interface_names(agent.captures.present()),
        arrives.unwrap_or_default()
    ));
    let outcome = agent.work(&mut life);
    life.end(|| agent.close()).and(outcome)
}

/// Watches flows for this time or until a signal, without help for them. Returns what the link did
/// to their packets, how many left whose fate no report showed, and the totals. `on_second` gets
/// the time since the start and the totals, each second.
///
/// # Errors
/// As [`run`].
pub(crate) fn measure(
    config: &AgentConfig,
    time: Duration,
    on_second: fn(Duration, Totals),
) -> Result<(Trace, u64, Totals)> {
    let mut life = begin(config, None)?;
    let mut agent = open(config, &mut life)?;
    let begun = clock();
    agent.agent.watch(begun);
    agent.measures = Some(Measuring { begun, until: begun + time, on_second });
    life.ready(&format!("measuring {}", interface_names(agent.captures.present())));
    let outcome = agent.work(&mut life);
    let (trace, unknown) = agent.agent.end_watch(clock()).unwrap_or_default();
    let totals = agent.close();
    outcome.map(|()| (trace, unknown, totals))
}

fn begin<'a>(
    config: &'a AgentConfig,
    reread: Option<Reread<'a, AgentConfig>>,
) -> Result<Life<'a, AgentConfig>> {
    config.check()?;
    Life::begin(config, reread)
}

/// Opens all that the agent needs, and then gives up privileges.
fn open<'a>(config: &'a AgentConfig, life: &mut Life<'_, AgentConfig>) -> Result<Loop<'a>> {
    let captures = Captures::open(config)?;
    warn_of_layers(&config.interfaces);
    let port = open_port()?;
    let second = config.second_uplink.as_deref().map(SecondUplink::open).transpose()?;
    let tun = Tun::of(config.tun.as_ref())?;
    let gateway = open_gateway(config, tun.is_some());
    let metrics = listener::open(config.metrics, AgentStatus::PROGRAM)?;
    let (commands, inbox) = channel();
    let (waker, wakes) = UnixStream::pair().context("cannot open a pipe")?;
    waker.set_nonblocking(true).context("cannot open a pipe")?;
    wakes.set_nonblocking(true).context("cannot open a pipe")?;
    let handle = Handle { commands, waker: Arc::new(waker) };
    let on_signal = handle.clone();
    life.watch(&gateway.capabilities(), move |order| on_signal.send(Command::Ordered(order)))?;
    let limits = limits(config, tun.is_some(), gateway.is_open());
    let host = Host::read(&config.interfaces);
    let ports = [Some(&port), second.as_ref().map(|it| &it.port)].into_iter().flatten();
    let ports = ports.map(|port| port.address().port()).collect();
    let mut agent = Agent::new(limits, ports, || key::random().ok());
    agent.set_local(&host.local, &host.hardware);
    if let Some(listener) = metrics {
        let asked = handle.clone();
        server::serve(listener, AgentStatusReader::new(move |flows| asked.report(flows)))?;
    }
    Ok(Loop {
        agent,
        host,
        captures,
        port,
        second,
        tun,
        gateway,
        inbox,
        wakes,
        unsent: 0,
        checked: clock(),
        progress: Progress::default(),
        started: config,
        measures: None,
    })
}

/// Warns of interfaces that lie upon each other, and of a bridge whose packets pass this host's
/// filter.
fn warn_of_layers(interfaces: &[String]) {
    for (upper, lower) in host::stacked(Path::new("/sys/class/net"), interfaces) {
        warn!(
            "packets of {upper} also pass {lower}, and the agent would see them twice: name one \
             of the two, of a VLAN and its parent the VLAN"
        );
    }
    let (class, settings) = (Path::new("/sys/class/net"), Path::new("/proc/sys/net/bridge"));
    if let Some(sentence) = host::filtered_bridge(class, settings, interfaces) {
        warn!("{sentence}");
    }
}

/// Opens what puts arriving packets in order. Without it, the agent helps as it would without
/// in-order.
fn open_gateway(config: &AgentConfig, has_tun: bool) -> Gateway {
    match (config.in_order, has_tun) {
        (true, true) => Gateway::open(&config.interfaces, config.queue, Exempt::From(DEFAULT_PORT)),
        (true, false) => Gateway::closed("no TUN device, by which copies would arrive"),
        (false, _) => Gateway::default(),
    }
}

/// Why the loop woke up, beside captured frames.
#[derive(Clone, Copy, Debug)]
struct Woken {
    /// Messages of proxies wait.
    message: bool,
    /// A capture has an error.
    failed: bool,
}

/// An agent that only watches.
#[derive(Clone, Copy)]
struct Measuring {
    begun: Instant,
    until: Instant,
    on_second: fn(Duration, Totals),
}

struct Loop<'a> {
    agent: Agent,
    /// The machine as it was at the last check.
    host: Host,
    captures: Captures,
    port: Port,
    second: Option<SecondUplink<'a>>,
    /// The device that takes copies of packets that were lost on their way to this host.
    tun: Option<Tun>,
    gateway: Gateway,
    inbox: Receiver<Command>,
    wakes: UnixStream,
    unsent: u64,
    checked: Instant,
    progress: Progress<Totals>,
    /// The settings of the start.
    started: &'a AgentConfig,
    measures: Option<Measuring>,
}

impl Loop<'_> {
    fn work(&mut self, life: &mut Life<'_, AgentConfig>) -> Result<()> {
        let mut reader = PortReader::default();
        loop {
            let Woken { message, failed } = self.wait()?;
            if failed || self.checked + CHECK_INTERVAL <= clock() {
                self.check();
                if self.is_measured() {
                    return Ok(());
                }
            }
            // First all that left: answers to it may have arrived.
            self.captures.read_leaving(&mut self.agent);
            self.captures.read_arriving(&mut self.agent);
            self.read_queue();
            self.send_all();
            if message {
                self.read_ports(&mut reader)?;
            }
            let now = clock();
            if self.agent.poll_timeout().is_some_and(|deadline| deadline <= now) {
                self.agent.on_timeout(now);
            }
            self.send_all();
            loop {
                match self.inbox.try_recv() {
                    Ok(Command::Ordered(Order::Stop)) | Err(TryRecvError::Disconnected) => {
                        return Ok(());
                    }
                    Ok(Command::Ordered(Order::Reload)) => life.reload(|new| {
                        self.agent.set_limits(limits(
                            new,
                            self.tun.is_some(),
                            self.gateway.is_open(),
                        ));
                        Ok(())
                    }),
                    Ok(Command::Report(flows, reply)) => {
                        // The recipient may have stopped waiting.
                        let _ = reply.try_send(self.report(flows));
                    }
                    Err(TryRecvError::Empty) => break,
                }
            }
        }
    }

    /// Whether the agent has watched for long enough.
    fn is_measured(&self) -> bool {
        let Some(Measuring { begun, until, on_second }) = self.measures else { return false };
        on_second(self.checked - begun, self.report(0).totals);
        until <= self.checked || self.agent.recorder().is_none_or(Recorder::is_full)
    }

    /// Ends all sessions, and returns the totals.
    fn close(&mut self) -> Totals {
        self.agent.close(clock());
        self.send_all();
        self.gateway.close();
        self.report(0).totals
    }

    /// Sleeps until there is something to do.
    fn wait(&self) -> Result<Woken> {
        let check = self.checked + CHECK_INTERVAL;
        let until = self.agent.poll_timeout().map_or(check, |deadline| deadline.min(check));
        let timeout = TimeSpec::from_duration(until.saturating_duration_since(clock()));
        // An array, since this runs for every packet when there are few. Unused places hold the
        // descriptor of the waker.
        let mut fds = [(); 4 + 2 * MAX_INTERFACES]
            .map(|()| PollFd::new(self.wakes.as_fd(), PollFlags::POLLIN));
        let mut used = 0;
        for (fd, place) in self.descriptors().zip(&mut fds) {
            *place = PollFd::new(fd, PollFlags::POLLIN);
            used += 1;
        }
        let fds = fds.get_mut(..used).unwrap_or_default();
        match ppoll(fds, Some(timeout), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno).context("cannot wait for packets"),
        }
        let events = |fd: &PollFd<'_>| fd.revents().unwrap_or(PollFlags::empty());
        let message = fds.iter().skip(1).take(2).any(|port| !events(port).is_empty());
        // A link that goes down shows this without any frame, until the error is read.
        let captures = fds.get(4..).unwrap_or_default();
        let failed = captures.iter().any(|capture| events(capture).contains(PollFlags::POLLERR));
        if fds.first().is_some_and(|waker| !events(waker).is_empty()) {
            // The commands follow in any case.
            while matches!((&self.wakes).read(&mut [0; 64]), Ok(1..)) {}
        }
        Ok(Woken { message, failed })
    }

    /// The waker, the ports, the queue or the waker again, and the captures.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let queue = self.gateway.fd().unwrap_or(self.wakes.as_fd());
        let second = self.second.as_ref().map_or(self.port.as_fd(), |it| it.port.as_fd());
        let first = [self.wakes.as_fd(), self.port.as_fd(), second, queue];
        first.into_iter().chain(self.captures.descriptors())
    }

    /// Reads packets that wait in the queue.
    fn read_queue(&mut self) {
        let Self { gateway, agent, .. } = self;
        let now = clock();
        gateway.read(|id, packet| agent.on_queued(id, packet, now));
        self.check_gateway();
    }

    /// Puts nothing in order any longer once the queue has failed.
    fn check_gateway(&mut self) {
        if self.agent.limits().in_order && !self.gateway.is_open() {
            self.agent.stop_ordering(clock());
        }
    }

    /// Checks the captures, and what the machine has become.
    fn check(&mut self) {
        self.checked = clock();
        self.host = Host::read(&self.started.interfaces);
        self.agent.set_local(&self.host.local, &self.host.hardware);
        self.captures.check(self.started);
        self.second.iter_mut().for_each(SecondUplink::check);
        if self.agent.is_passed_by() {
            let exempt = Exempt::From(DEFAULT_PORT);
            self.gateway.renew(&self.started.interfaces, exempt, self.checked);
        }
        self.log_progress();
    }

    /// Logs the totals if they are due and have changed.
    fn log_progress(&mut self) {
        if !self.progress.is_due(self.checked) {
            return;
        }
        let Report { totals, flows_open, .. } = self.report(0);
        let drops = totals.capture_drops;
        let before = self.progress.log(totals, flows_open);
        let dropped = drops.saturating_sub(before.capture_drops);
        if dropped != 0 {
            warn!(
                "the agent missed {dropped} packets, because the kernel had no room for them; it \
                 cannot repair their losses: raise buffer"
            );
        }
    }

    /// Reads some messages of proxies: a flood of them must not delay packets.
    fn read_ports(&mut self, reader: &mut PortReader) -> Result<()> {
        let count = reader.read(&self.port).context("the agent's port failed")?;
        self.take_messages(reader, count);
        if let Some(second) = &self.second {
            // Without the interface, the flows go on by the first uplink alone.
            let count = reader.read(&second.port).unwrap_or(0);
            self.take_messages(reader, count);
        }
        Ok(())
    }

    fn take_messages(&mut self, reader: &PortReader, count: usize) {
        // After the receipt: these packets left or arrived before the messages, which may report or
        // list them.
        self.captures.read_leaving(&mut self.agent);
        self.read_queue();
        for (from, message) in reader.messages(count) {
            self.agent.on_message(from.address, message, clock());
        }
    }

    /// Sends everything that is ready.
    fn send_all(&mut self) {
        while let Some((to, buffer)) = self.agent.pop() {
            let sent = match to {
                To::Proxy { proxy, interface, source } => {
                    self.send_message(&buffer, proxy, interface, source)
                }
                To::SecondUplink(proxy) => match &self.second {
                    Some(second) => second.send(&buffer, proxy),
                    None => Ok(()),
                },
                To::Interface(number) => self.captures.send(number, &buffer),
                To::Host => self.deliver(&buffer),
                To::Queued(id) => {
                    self.gateway.accept(id);
                    Ok(())
                }
            };
            if let Err(cause) = sent {
                if self.unsent == 0 {
                    warn!("cannot send to {to}: {cause}; further failures are counted");
                }
                self.unsent += 1;
            }
            self.agent.give_back(buffer);
        }
        self.gateway.flush();
        self.check_gateway();
    }

    /// Hands a packet to this host. If another program deletes the device or sets it down, it does
    /// not come back. Creating it requires a privilege that the agent has given up.
    fn deliver(&mut self, packet: &[u8]) -> io::Result<()> {
        self.gateway.flush();
        let sent = match &self.tun {
            Some(tun) => tun.send(packet),
            None => Err(ErrorKind::NotConnected.into()),
        };
        if let Err(cause) = &sent {
            self.agent.undo_delivery();
            if let Some(tun) = self.tun.take() {
                let name = &tun.name;
                error!("{name}: {cause}; no help for what arrives until the agent restarts");
                self.agent.stop_delivering(clock());
            }
        }
        sent
    }

    /// Sends a message to a proxy by the interface of its flow. The machine may route other packets
    /// differently, such as into the tunnel that the flow carries.
    fn send_message(
        &self,
        message: &[u8],
        proxy: SocketAddr,
        interface: u32,
        source: IpAddr,
    ) -> io::Result<()> {
        let own = self.host.local.contains(&source) && source.is_ipv4() == proxy.is_ipv4();
        let source = Some(source).filter(|_| own);
        let info = PacketInfo { source, interface: self.host.egress(interface) };
        self.port
            .send(message, proxy, info)
            .or_else(|_| self.port.send(message, proxy, PacketInfo::default()))
    }

    /// What arrives in order.
    fn order(&self) -> OrderReport {
        let (holds, waiting) = self.agent.holds();
        let hold = |share| holds.hold(share).map(|hold| hold.as_secs_f64() * 1e3);
        OrderReport {
            fault: self.gateway.fault().map(str::to_owned),
            waiting,
            arrived: holds.arrived(),
            held: holds.held(),
            held_p50_ms: hold(0.5),
            held_p99_ms: hold(0.99),
            held_s: holds.sum().as_secs_f64(),
        }
    }

    fn report(&self, flows: usize) -> Report {
        let counters = self.captures.counters();
        let agent = self.agent.totals();
        let totals = Totals {
            malformed_frames: counters.malformed,
            fragments: counters.fragments,
            merged_split: counters.split,
            merged_unsplit: counters.unsplit,
            capture_drops: counters.dropped,
            queue_unread: self.gateway.unread(),
            unsent: self.unsent + agent.unsent,
            ..agent
        };
        let Limits { max_flows: flows_max, memory, .. } = *self.agent.limits();
        let (flows_open, flows_assisted, memory_bytes) = self.agent.counts();
        Report {
            tun: self.tun.as_ref().map(|tun| tun.name.clone()),
            tun_off: self.started.tun == Some(TunName::Off),
            order: self.started.in_order.then(|| self.order()),
            second_uplink: self.second.as_ref().map(|second| {
                let (flows, carried, carry_left) = self.agent.second_uplink(clock());
                let (interface, is_there) = (second.name.to_owned(), second.index.is_some());
                SecondUplinkReport { interface, is_there, flows, carried, carry_left }
            }),
            totals,
            flows_max,
            memory_max: memory as u64,
            flows_open,
            flows_assisted,
            memory_bytes,
            interfaces: self.captures.reports(),
            flows: self.agent.flows(flows, |number| self.captures.name(number), clock()),
        }
    }
}

/// The port of the second uplink.
struct SecondUplink<'a> {
    port: Port,
    name: &'a str,
    /// The interface's index. It is another one if a modem dials again, and `None` without an
    /// interface.
    index: Option<u32>,
}

impl<'a> SecondUplink<'a> {
    fn open(name: &'a str) -> Result<Self> {
        let index = if_nametoindex(name).ok();
        if index.is_none() {
            warn!("{name}: there is no such interface; the second uplink waits for it");
        }
        Ok(Self { port: open_port()?, name, index })
    }

    /// Follows the interface.
    fn check(&mut self) {
        let index = if_nametoindex(self.name).ok();
        let before = mem::replace(&mut self.index, index);
        match index {
            Some(_) if before.is_none() => info!("{}: the second uplink is there", self.name),
            None if before.is_some() => warn!("{}: the second uplink is gone", self.name),
            _ => {}
        }
    }

    /// Sends a message. Without the interface it is lost, as on any link.
    fn send(&self, message: &[u8], proxy: SocketAddr) -> io::Result<()> {
        let Some(interface) = self.index else { return Ok(()) };
        let sent =
            self.port.send(message, proxy, PacketInfo { interface: Some(interface), source: None });
        sent.or_else(|cause| if is_network_error(&cause) { Ok(()) } else { Err(cause) })
    }
}

/// The port at which proxies answer. The kernel chooses its number. It serves IPv6 and IPv4 if the
/// machine has both.
fn open_port() -> Result<Port> {
    Ok(Port::open((port::all_addresses(), 0).into())?)
}

/// `delivers` states whether this host takes copies of datagrams that were lost on their way to it,
/// and `in_order` whether those that arrive pass a queue.
fn limits(config: &AgentConfig, delivers: bool, in_order: bool) -> Limits {
    let sender = SenderConfig {
        proxy: config.proxy,
        key: config.proxy_key,
        second_link: config.second_uplink.is_some(),
        carries: config.carry > 0,
        ..SenderConfig::default()
    };
    Limits {
        sender,
        filter: config.filter(),
        min_packets: config.min_packets,
        max_flows: usize::try_from(config.max_flows).unwrap_or(usize::MAX),
        memory: usize::try_from(config.memory.get()).unwrap_or(usize::MAX),
        idle_timeout: Duration::from_secs(config.idle_timeout),
        delivers,
        in_order,
        upload_parity: config.upload_parity,
        second_uplink: config
            .second_uplink
            .as_ref()
            .map(|_| Carry::new(config.carry.into(), config.carry_budget.get())),
    }
}
